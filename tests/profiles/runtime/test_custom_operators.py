"""Models with operators that onnxruntime does not have: a library brings them, from the command line on."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from qprof_onnx.profiles.base.errors import ConfigError, ModelError
from qprof_onnx.profiles.records.store import load_profile
from qprof_onnx.profiles.runtime import providers as custom_operators
from qprof_onnx.profiles.runtime.providers import load_refusal
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.plugins.explanation.explanation import explain

from ..runner.dask_processes import dask_cluster, wait_for_workers


def _library() -> str:
    """Return a library of custom operators, without importing its package.

    That would set an environment variable by which every process started later reads protobuf in pure Python.
    """
    spec = find_spec("onnxruntime_extensions")
    if spec is None or spec.origin is None:
        pytest.skip("onnxruntime-extensions is of the extra test-all", allow_module_level=True)
    found = Path(spec.origin).parent.glob("_extensions_pydll*")
    return str(next(path for path in found if path.suffix in (".so", ".pyd")))


LIBRARY = _library()

NET = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.contrib": 1]>
net (float[N, 8, 6, 6] x) => (float[N, 8, 6, 6] y) <float[8, 8, 3, 3] w, float[8, 8, 3, 3] v> {
    h = Conv <pads = [1, 1, 1, 1]> (x, w)
    low, high = ai.onnx.contrib.NegPos(h)
    s = Sub(high, low)
    y = Conv <pads = [1, 1, 1, 1]> (s, v)
}"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(NET)
    rng = np.random.default_rng(1)
    for name in ("w", "v"):
        weight = rng.standard_normal((8, 8, 3, 3), dtype=np.float32) / 8
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    del model.graph.value_info[:]
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "data").mkdir()
    for number in range(3):
        x = rng.standard_normal((4, 8, 6, 6), dtype=np.float32)
        np.savez(tmp_path / "data" / f"{number}.npz", x=x)
    return tmp_path


@pytest.fixture
def none_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_operators, "_libraries", {})


def qprof(*arguments: object) -> None:
    """Run a command in a process of its own, which has no library loaded."""
    command = [str(Path(sys.executable).with_name("qprof")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_model_with_custom_operators_goes_through_every_command(files: Path) -> None:
    model, data, profile = files / "model.onnx", files / "data", files / "profile.yaml"
    library = ("--custom-ops", LIBRARY)
    qprof("dump-profile", model, "--data", data, "-o", profile, *library)
    written = ("-o", files / "int8.onnx", "--target", "onnxruntime-x86", "--set", "cost_model=off")
    qprof("quantize", model, "--profile", profile, *written, *library)
    quantized = {node.op_type for node in load_model(files / "int8.onnx").graph}
    assert "NegPos" in quantized
    assert "DequantizeLinear" in quantized
    qprof(
        "evaluate", model, files / "int8.onnx", "--data", data, "--no-latency", "--min-sqnr", "25", *library
    )


def test_workers_load_the_libraries_of_the_process_that_starts_them(files: Path) -> None:
    model, data = files / "model.onnx", files / "data"
    library = ("--custom-ops", LIBRARY)
    qprof("dump-profile", model, "--data", data, "-o", files / "one.yaml", *library)
    with dask_cluster(1) as address:
        wait_for_workers(address, 1)
        two = ("-o", files / "two.yaml", "--scheduler", address)
        qprof("dump-profile", model, "--data", data, *two, *library)
    assert (files / "one.yaml").read_bytes() == (files / "two.yaml").read_bytes()
    assert "low" in load_profile(files / "one.yaml").tensors


@pytest.mark.usefixtures("none_loaded")
def test_a_model_with_an_unknown_operator_is_refused_with_the_way_to_load_its_library(files: Path) -> None:
    with pytest.raises(ModelError, match=r"NegPos.*--custom-ops"):
        profile_model(files / "model.onnx", files / "data")


@pytest.mark.usefixtures("none_loaded")
def test_a_file_that_is_no_library_is_refused_with_what_to_give(files: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.onnx: onnxruntime cannot load it: .*; give a"):
        custom_operators.load_custom_operators(files / "model.onnx")


def test_a_library_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.so: no such library of custom operators; check the path"):
        custom_operators.load_custom_operators(tmp_path / "none.so")


def test_a_library_without_the_operator_is_named_in_the_refusal() -> None:
    error = RuntimeError("Fatal error: acme:Twice(-1) is not a registered function/op")
    text = load_refusal("model.onnx", error, ["/opt/libother.so"])
    assert text.startswith("model.onnx: onnxruntime has no operator acme:Twice, nor has libother.so; ")


def test_a_model_newer_than_onnxruntime_is_refused_with_the_newest_opset() -> None:
    text = "Opset 99 is under development. Current official support for domain ai.onnx is till opset 28."
    assert load_refusal("m.onnx", RuntimeError(text)).startswith(
        "m.onnx: opset 99 of ai.onnx is too new: this onnxruntime runs up to 28; export the model with opset"
    )


@pytest.mark.usefixtures("none_loaded")
def test_a_plan_is_explained_with_the_library_and_asks_for_it_without(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, plan = files / "model.onnx", files / "plan.yaml"
    custom_operators.load_custom_operators(LIBRARY)
    profile = profile_model(model, files / "data")
    write_quantized(model, profile, files / "int8.onnx", save_plan=plan)
    assert explain(plan, "s", model)
    monkeypatch.setattr(custom_operators, "_libraries", {})
    with pytest.raises(ModelError, match=r"no operator ai\.onnx\.contrib:NegPos; load the library"):
        explain(plan, "s", model)
