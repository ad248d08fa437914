"""A file for another runtime is judged in float arithmetic on its rounded values, by every command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.evaluation.evaluate import Pair, open_pair
from qprof_onnx.quantizer.plan.provenance import read_provenance
from qprof_onnx.quantizer.prepare.prepare import file_of
from qprof_onnx.quantizer.targets.machine import ARM, X86, runs_here
from qprof_onnx.quantizer.targets.packaged import target_names

OTHERS = ("glow", "migraphx", "onnx", "openvino", "qnn", "tensorrt")
"""Targets that no processor makes onnxruntime's own."""

RNG = np.random.default_rng(0)
SAMPLES = [np.abs(RNG.normal(size=(8, 64))).astype(np.float32) for _ in range(24)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a network with weights above 0, of whose products two saturate in 16 bits."""
    text = "g (float[N,64] x) => (float[N,64] y) { h = MatMul (x, a) r = Relu (h) y = MatMul (r, b) }"
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    weights = {"a": np.abs(RNG.normal(0.0, 0.12, (64, 512))), "b": RNG.normal(0.0, 0.04, (512, 64))}
    arrays = (numpy_helper.from_array(array.astype("f4"), name) for name, array in weights.items())
    proto.graph.initializer.extend(arrays)
    path = tmp_path_factory.mktemp("float") / "m.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="module")
def profile(model: Path) -> qprof.Profile:
    return qprof.profile(model, SAMPLES)


def quantized(model: Path, profile: qprof.Profile, out: Path, target: str, **settings: Any) -> Path:
    qprof.quantize(model, profile, out, target=target, cost_model="off", **settings)
    return out


@pytest.mark.parametrize("machine", [X86[0], ARM[0]])
@pytest.mark.parametrize("target", target_names())
def test_a_target_of_onnxruntime_runs_on_its_own_processors(target: str, machine: str) -> None:
    begin = "onnxruntime-x86" if machine in X86 else "onnxruntime-arm"
    assert runs_here(target, machine=machine) == target.startswith(begin)


def test_a_target_runs_in_its_own_runtime_and_with_its_own_provider() -> None:
    assert runs_here("openvino", "openvino")
    assert not runs_here("tensorrt", "openvino")
    assert runs_here("qnn", provider="QNNExecutionProvider")
    assert not runs_here("onnxruntime-x86", provider="QNNExecutionProvider", machine=X86[0])
    assert runs_here("my-own")


def pair_of(model: Path, out: Path) -> Pair:
    return open_pair(model, out, read_provenance(file_of(out).model))


def is_as_written(session: ort.InferenceSession) -> bool:
    try:
        return session.get_session_options().get_session_config_entry("session.disable_quant_qdq") == "1"
    except RuntimeError:  # it is not set
        return False


@pytest.mark.parametrize("target", target_names())
def test_integer_kernels_compute_a_file_that_they_are_the_runtime_of(
    tmp_path: Path, model: Path, profile: qprof.Profile, target: str
) -> None:
    pair = pair_of(model, quantized(model, profile, tmp_path / "q.onnx", target))
    assert is_as_written(pair.quantized_session) != runs_here(target)
    assert not is_as_written(pair.float_session)


def test_a_file_of_another_tool_is_computed_as_programs_compute_it(
    tmp_path: Path, model: Path, profile: qprof.Profile
) -> None:
    out = quantized(model, profile, tmp_path / "q.onnx", "tensorrt")
    proto = onnx.load(out)
    del proto.metadata_props[:]
    onnx.save(proto, out)
    assert not is_as_written(pair_of(model, out).quantized_session)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "form"), [*((target, "qdq") for target in OTHERS), ("glow", "integer"), ("onnx", "qoperator")]
)
def test_every_command_has_the_same_figure_of_a_file_for_another_runtime(
    tmp_path: Path, model: Path, profile: qprof.Profile, target: str, form: str
) -> None:
    out = tmp_path / "q.onnx"
    asked: dict[str, Any] = {"target": target, "form": form, "cost_model": "off"}
    result = qprof.quantize(model, profile, out, save_plan=tmp_path / "q.plan.yaml", **asked)
    (check,) = result.plan.origin.checks
    assert check.sqnr is not None
    assert check.sqnr > 38.0
    found = qprof.evaluate(model, out, SAMPLES, latency=False)
    layers = qprof.compare_layers(model, out, SAMPLES)
    judged = qprof.quantize(model, None, tmp_path / "d.onnx", data=SAMPLES, latency=False, **asked)
    assert judged.judged is not None
    assert layers.layers[-1].difference is not None
    figures = found.worst_sqnr, layers.layers[-1].difference.sqnr, judged.judged.evaluation.worst_sqnr
    # The same file on the same samples; the last one is profiled on part of them, and judged on the others.
    assert figures == pytest.approx([check.sqnr] * 3, abs=1.0)
    assert found.verdict.grade == "good"
    assert Code.SATURATING_KERNELS not in {one.code for one in found.findings}
