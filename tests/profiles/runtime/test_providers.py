"""Execution providers: names, devices, what is not installed, and what does not start."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.base.tool import tool_name
from qprof_onnx.profiles.runtime import providers
from qprof_onnx.profiles.runtime.providers import (
    CPU,
    PROVIDERS,
    check_provider,
    new_session,
    new_session_options,
    profiled_by,
    with_options,
)

from ...cli.running import qprof

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
CUDA = "CUDAExecutionProvider"


@pytest.fixture
def built_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """An onnxruntime that was built with every provider."""
    names = [*(name for name, _, _ in PROVIDERS.values()), "WebGpuExecutionProvider"]
    monkeypatch.setattr(providers.ort, "get_available_providers", lambda: names)


@dataclass
class Part:
    ep_name: str
    operators: list[str]

    def get_nodes(self) -> list[Any]:
        return [Node(name) for name in self.operators]


@dataclass
class Node:
    op_type: str


@dataclass
class Session:
    """What onnxruntime gives back: where the model runs."""

    used: list[str]
    parts: list[Part] = field(default_factory=list)
    asked: Any = None

    def __call__(self, model: object, options: object, providers: list[Any], enable_fallback: int) -> Session:
        self.asked = providers
        return self

    def get_providers(self) -> list[str]:
        return self.used

    def get_provider_graph_assignment_info(self) -> list[Part]:
        return self.parts


@pytest.mark.parametrize("short", PROVIDERS)
def test_a_provider_is_known_by_short_and_full_name(built_with_all: None, short: str) -> None:
    full = PROVIDERS[short][0]
    assert check_provider(short) == check_provider(short.upper()) == check_provider(full) == full


def test_a_provider_of_no_entry_is_known_by_the_names_that_onnxruntime_has(built_with_all: None) -> None:
    assert check_provider("webgpu") == check_provider("WebGpuExecutionProvider") == "WebGpuExecutionProvider"


def test_a_device_follows_after_a_colon(built_with_all: None) -> None:
    assert with_options(check_provider("cuda:1")) == (CUDA, {"device_id": "1"})
    assert with_options(check_provider("openvino:GPU")) == (
        "OpenVINOExecutionProvider",
        {"device_type": "GPU"},
    )
    assert with_options(check_provider("cuda")) == (CUDA, {})
    with pytest.raises(ConfigError, match=r"provider 'cpu:1': CPUExecutionProvider accepts no device"):
        check_provider("cpu:1")
    with pytest.raises(ConfigError, match=r"provider 'cuda:': a device is missing after the colon"):
        check_provider("cuda:")


def test_what_is_not_built_in_says_what_is_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers.ort, "get_available_providers", lambda: [CPU])
    with pytest.raises(ConfigError) as problem:
        check_provider("cuda:1")
    assert str(problem.value) == (
        "provider 'cuda:1': the installed onnxruntime does not have it; it has CPUExecutionProvider; install "
        "onnxruntime-gpu in place of the onnxruntime here."
    )
    with pytest.raises(ConfigError, match=r"provider 'cud'.* did you mean cuda\?|nearest|cuda"):
        check_provider("cud")


def test_a_fall_back_to_the_cpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers.ort, "InferenceSession", Session([CPU]))
    with pytest.raises(ConfigError, match="does not start here: onnxruntime would run the model with CPU"):
        new_session("m.onnx", new_session_options(), CUDA)


def test_a_provider_that_raises_where_the_cpu_loads_the_model_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def session(model: object, options: object, providers: list[Any], enable_fallback: int) -> Session:
        if providers == [CPU]:
            return Session([CPU])
        raise RuntimeError("Please install TensorRT libraries")

    monkeypatch.setattr(providers.ort, "InferenceSession", session)
    with pytest.raises(
        ConfigError, match="does not start here: Please install TensorRT libraries; check that"
    ):
        new_session("m.onnx", new_session_options(), "TensorrtExecutionProvider")


def test_nodes_that_run_on_the_cpu_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [Part(CUDA, ["Conv", "Conv", "Relu"]), Part(CPU, ["NonZero"]), Part(CPU, ["Gather", "Gather"])]
    session = Session([CUDA, CPU], parts)
    monkeypatch.setattr(providers.ort, "InferenceSession", session)
    with caplog.at_level(logging.WARNING, "qprof_onnx"):
        assert new_session("m.onnx", new_session_options(), f"{CUDA}:1") is session
    assert session.asked == [(CUDA, {"device_id": "1"})]
    assert caplog.messages == [f"{CUDA}: 3 of 6 nodes run on the CPU (Gather, NonZero)"]


def test_a_profile_says_which_provider_made_it() -> None:
    assert profiled_by(CPU) == tool_name()
    assert profiled_by(f"{CUDA}:1").startswith(f"{tool_name()} with {CUDA}:1 of onnxruntime ")
    assert ", " not in profiled_by(CUDA)  # merged profiles list their tools


COMMANDS = (
    ("dump-profile", "--data", "DATA", "-o", "OUT"),
    ("quantize", "--data", "DATA", "-o", "OUT.onnx"),
    ("evaluate", "MODEL", "--data", "DATA"),
    ("compare-layers", "MODEL", "--data", "DATA"),
    ("tune", "--data", "DATA", "--profile", "PROFILE", "-o", "OUT.onnx"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_every_command_that_runs_a_model_ends_with_2_where_there_is_no_such_provider(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers.ort, "get_available_providers", lambda: [CPU])
    profile = tmp_path / "profile.yaml"
    if "PROFILE" in words:
        few = ["--limit", "2", "-o", str(profile)]
        data = str(DIGITS / "calibration")
        assert qprof("dump-profile", MODEL, "--data", data, *few).exit_code == 0
    places = {"DATA": str(DIGITS / "heldout"), "MODEL": MODEL, "PROFILE": str(profile)}
    places |= {"OUT": str(tmp_path / "o"), "OUT.onnx": str(tmp_path / "o.onnx")}
    command, *rest = (places.get(word, word) for word in words)
    result = qprof(command, MODEL, *rest, "--provider", "cuda")
    assert result.exit_code == 2, result.output
    assert "provider 'cuda': the installed onnxruntime does not have it; it has CPU" in result.stderr
    assert "install onnxruntime-gpu" in result.stderr


MODEL = str(DIGITS / "model.onnx")


def test_a_session_takes_the_memory_that_an_earlier_one_left(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    size = 1 << 24  # 64 MiB, 16,384 pages of 4 KiB
    head = f'<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[{size}] y)'
    path = tmp_path / "expand.onnx"
    onnx.save(onnx.parser.parse_model(f"{head} <int64[1] s = {{{size}}}> {{ y = Expand(x, s) }}"), path)
    faults = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        new_session(str(path), new_session_options(), CPU).run(None, {"x": np.ones(1, np.float32)})
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert max(faults[1:]) < 2_000
