"""The file as onnxruntime has it once loaded, which is what a plan's time is compared with."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.quantizer.prepare.prepare import open_prepared

CONV = {"w": (16, 16, 1, 1), "b": (16,)}
NORM = dict.fromkeys(("s", "o", "m", "v"), (16,))
NETS = {
    "HardSwish in parts": (
        "a = Conv (x, w, b) h = Add (a, t) c = Clip (h, l, u) p = Mul (a, c) y = Div (p, d)",
        {**CONV, "t": 3.0, "l": 0.0, "u": 6.0, "d": 6.0},
    ),
    "a scale and a shift for each channel after Conv": (
        "a = Conv (x, w, b) p = Mul (a, t) y = Add (p, t)",
        {**CONV, "t": (1, 16, 1, 1)},
    ),
    "one factor without dimensions after Conv": ("a = Conv (x, w, b) y = Mul (a, t)", {**CONV, "t": 2.0}),
    "one factor with a dimension after Conv": ("a = Conv (x, w, b) y = Mul (a, t)", {**CONV, "t": (1,)}),
    "one summand after Conv": ("a = Conv (x, w, b) y = Add (a, t)", {**CONV, "t": 2.0}),
    "a quotient for each channel after Conv": (
        "a = Conv (x, w, b) y = Div (a, t)",
        {**CONV, "t": (16, 1, 1)},
    ),
    "a scale and a shift before Conv": (
        "a = Abs (x) p = Mul (a, t) q = Add (p, t) y = Conv (q, w, b)",
        {**CONV, "t": (1,)},
    ),
    "BatchNormalization after Conv": (
        "a = Conv (x, w, b) y = BatchNormalization (a, s, o, m, v)",
        {**CONV, **NORM},
    ),
    "BatchNormalization alone": ("a = Abs (x) y = BatchNormalization (a, s, o, m, v)", NORM),
    "a factor after ConvTranspose": (
        "a = ConvTranspose (x, w, b) y = Mul (a, t)",
        {**CONV, "t": (1, 16, 1, 1)},
    ),
    "Identity, and zeros around the input of Conv": (
        "i = Identity (x) a = Pad (i, p) y = Conv (a, w, b)",
        {**CONV, "p": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_what_is_loaded_has_the_operators_that_onnxruntime_runs(name: str, tmp_path: Path) -> None:
    text, constants = NETS[name]
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[1,16,8,8] x) => (float[] y) {{ {text} }}'
    )
    rng = np.random.default_rng(0)
    for constant, value in constants.items():
        array = rng.uniform(0.5, 1.5, value) if isinstance(value, tuple) else np.asarray(value)
        kind = np.float32 if array.dtype.kind == "f" else np.int64
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array, kind), constant))
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    onnx.save(proto, tmp_path / "net.onnx")
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "run.onnx")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    ort.InferenceSession(tmp_path / "net.onnx", options, providers=["CPUExecutionProvider"])
    executed = Counter(node.op_type for node in onnx.load(tmp_path / "run.onnx").graph.node)
    loaded = open_prepared(tmp_path / "net.onnx").loaded
    assert Counter(node.op_type for node in loaded.nodes) == executed
