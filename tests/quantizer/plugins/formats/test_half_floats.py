"""A float16 model is priced with the Casts that onnxruntime puts into it when it loads it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.operators.table import MICROSOFT
from qprof_onnx.quantizer.planning.plan_model import PlannedModel, model_facts, plan_from
from qprof_onnx.quantizer.plugins.formats.half_floats import HALF_KERNELS, inserted_casts
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.cost_table import costs_of
from qprof_onnx.quantizer.targets.loading import load_recipe

MIXED = """T[1, 64, 64] x) => (T[1, 32] y) {
    m = MatMul (x, w)
    t = Transpose <perm = [0, 2, 1]> (m)
    s = Slice (t, zero, half, last)
    j = Concat <axis = 2> (s, s)
    k = MatMul (j, v)
    r = Sigmoid (k)
    f = Flatten (r)
    y = MatMul (f, u)
}"""
"""Two chains: products, and what moves values between two of them; a Flatten alone between the others."""

PLAIN = """T[1, 32, 16, 16] x) => (T[1, 32, 16, 16] y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
    r = Relu (c)
    d = Conv <pads = [1, 1, 1, 1]> (r, w2, b2)
    y = Sigmoid (d)
}"""
"""One chain, which needs Casts at the inputs and outputs alone."""

SHARED = PLAIN.replace("w2", "w1").replace("b2", "b1")
"""The same with constants that two nodes read: they are cast in each run."""

WINDOW = (32, 32, 3, 3)
SHAPES = {"w": (64, 64), "v": (64, 32), "u": (2048, 32)} | {
    "w1": WINDOW,
    "w2": WINDOW,
    "b1": (32,),
    "b2": (32,),
}


def written(text: str, path: Path, kind: str) -> Path:
    """Write a graph in float or float16; return the path."""
    rng = np.random.default_rng(0)
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g ({text.replace("T[", f"{kind}[")}')
    dtype = np.float16 if kind == "float16" else np.float32
    for name, shape in SHAPES.items():
        if re.search(rf"\b{name}\b", text):
            array = (rng.normal(size=shape) / 16.0).astype(np.float16).astype(dtype)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    for name, number in {"zero": 0, "half": 32, "last": 2}.items():
        if re.search(rf"\b{name}\b", text):
            model.graph.initializer.append(numpy_helper.from_array(np.array([number]), name))
    onnx.save(model, path)
    return path


def planned(path: Path, **settings: object) -> PlannedModel:
    """Return the plan of a model from a profile of random samples."""
    prepared = open_prepared(path)
    value = onnx.load(path).graph.input[0].type.tensor_type
    shape = [dim.dim_value for dim in value.shape.dim]
    dtype = np.float16 if value.elem_type == onnx.TensorProto.FLOAT16 else np.float32
    rng = np.random.default_rng(1)
    samples = [{"x": rng.normal(size=shape).astype(dtype)} for _ in range(2)]
    profile = profile_model(path, samples, path.with_suffix(".yaml"))
    recipe = replace(load_recipe("onnxruntime-x86", settings), measured=costs_of("onnxruntime-x86"))
    return plan_from(model_facts(prepared, profile, recipe))


def loaded_casts(path: Path) -> int:
    """Return how many Casts onnxruntime runs of a model."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path.with_suffix(".loaded.onnx"))
    options.log_severity_level = 4
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return sum(node.op_type == "Cast" for node in onnx.load(options.optimized_model_filepath).graph.node)


@pytest.mark.parametrize("text", [MIXED, PLAIN, SHARED], ids=["mixed", "plain", "shared"])
def test_a_float16_model_has_the_casts_that_onnxruntime_runs(text: str, tmp_path: Path) -> None:
    path = written(text, tmp_path / "half.onnx", "float16")
    graph = open_prepared(path).loaded
    borders = sum(node.op_type == "Cast" for node in graph.nodes)
    assert borders + sum(inserted_casts(graph).values()) == loaded_casts(path)


@pytest.mark.parametrize("text", [MIXED, SHARED], ids=["mixed", "shared"])
def test_a_float16_copy_gains_more_than_its_float32_twin_by_its_casts(text: str, tmp_path: Path) -> None:
    ratios = {}
    for kind in ("float", "float16"):
        done = planned(written(text, tmp_path / f"{kind}.onnx", kind), min_output_sqnr=0.0)
        time, costs = done.plan.origin.time, done.facts.file_costs
        assert time is not None
        assert costs is not None
        ratios[kind] = time.float_us / time.planned_us
        without_casts = replace(costs, is_half=False).float_time_of_run
        assert (time.float_us > 1.02 * without_casts) is (kind == "float16")
    assert ratios["float16"] > ratios["float"]


def test_convolutions_whose_constants_are_cast_keep_the_layout_of_the_model(tmp_path: Path) -> None:
    times = {}
    for name, text in {"plain": PLAIN, "shared": SHARED}.items():
        costs = planned(written(text, tmp_path / f"{name}.onnx", "float16")).facts.file_costs
        assert costs is not None
        times[name] = sum(costs.floating.values())
    assert costs.floating["Sigmoid_y"] > 10.0 * costs.floating["Relu_r"]  # of the shared one
    assert times["shared"] > 1.3 * times["plain"]  # measured: 204 and 116 us of such a network, 83 and 52


def test_a_float16_model_of_which_nothing_is_quantized_takes_its_own_time(tmp_path: Path) -> None:
    time = planned(written(PLAIN, tmp_path / "half.onnx", "float16"), keep_float=["*"]).plan.origin.time
    assert time is not None
    assert time.planned_us == time.float_us


def test_the_operators_with_float16_kernels_are_those_of_the_installed_onnxruntime() -> None:
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    if not hasattr(state, "get_all_opkernel_def"):
        pytest.skip("this onnxruntime does not list its kernels")
    having, known = set(), set()
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain in ("", MICROSOFT):
            known.add(kernel.op_name)
            types = str(kernel.type_constraints).replace("bfloat16", "")
            having |= {kernel.op_name} if "float16" in types else set()
    assert HALF_KERNELS & known <= having
