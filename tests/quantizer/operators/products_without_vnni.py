"""Print how many outputs of onnxruntime's integer products saturate on the processor that runs this.

Each product runs with full-range and with unsaturated int8 weights, on data with a quarter at 255, by the
kernels of the processor and by those that never saturate (session.x64quantprecision).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession, SessionOptions
from qprof_onnx.quantizer.numerics.affine import INT8, quantize
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, channel_params
from qprof_onnx.quantizer.operators.pair_sums import unsaturated
from qprof_onnx.quantizer.operators.weight_layout import CONV, GEMM, MATMUL, WeightLayout

Array = npt.NDArray[Any]
SYMMETRIC = SCHEMAS["symmetric"]
RANDOM = np.random.default_rng(0)
CONSTANTS = {
    "s": np.float32(1.0),
    "z": np.uint8(0),
    "zw": np.int8(0),
    "out": np.float32(4096.0),
    "mid": np.uint8(128),
}
RESULTS = dict.fromkeys(("QLinearConv", "QLinearMatMul", "QGemm"), TensorProto.UINT8)
RESULTS["MatMulInteger"] = TensorProto.INT32
QUANTIZED = ["x", "s", "z", "w", "s", "zw", "out", "mid"]


def codes_of(weight: Array, layout: WeightLayout, *, groups: int, safe: bool) -> Array:
    """Return the int8 values of a weight, with a scale for each output channel."""
    node = ir.Node("", "", [], attributes=[ir.AttrInt64("group", groups)])
    axes, axis = layout.axes(node, weight.shape), layout.axis(node, weight.ndim)
    params = channel_params(weight, axis, SYMMETRIC, INT8)
    params = unsaturated(params, weight, axes, layout, SYMMETRIC) if safe else params
    return np.asarray(quantize(weight, params))


def outputs(node: Any, data: Array, constants: dict[str, Array], *, exact: bool) -> Array:
    """Return the output of a model of one node."""
    known = {name: array for name, array in {**CONSTANTS, **constants}.items() if name in node.input}
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)],
        [helper.make_tensor_value_info("y", RESULTS.get(node.op_type, TensorProto.FLOAT), None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in known.items()],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    options = SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
    return np.asarray(InferenceSession(model.SerializeToString(), options).run(None, {"x": data})[0])


def data_of(*shape: int) -> Array:
    values = RANDOM.integers(0, 256, shape, np.uint8)
    values[RANDOM.random(shape) < 0.25] = 255
    return values


def share(node: Any, data: Array, weight: Array, layout: WeightLayout, groups: int = 1) -> list[float]:
    """Return the share of wrong outputs with full-range weights, and with unsaturated ones."""
    found = []
    for safe in (False, True):
        codes = {"w": codes_of(weight, layout, groups=groups, safe=safe)}
        wrong = outputs(node, data, codes, exact=False) != outputs(node, data, codes, exact=True)
        found.append(float(wrong.mean()))
    return found


def lstm() -> list[float]:
    """Return `share` of DynamicQuantizeLSTM, whose weights are [directions, inputs, gates]."""
    weights = {name: RANDOM.normal(size=(1, 32, 128)).astype(np.float32) for name in ("w", "r")}
    names = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=32)
    data, found = np.abs(RANDOM.normal(size=(6, 2, 32))).astype(np.float32), []
    scales = {key: np.float32([0.002]) for key in ("ws", "rs")}
    zeros = {key: np.int8([0]) for key in ("wz", "rz")}
    for safe in (False, True):
        codes = {n: codes_of(w[0], MATMUL, groups=1, safe=safe)[None] for n, w in weights.items()}
        every = {**codes, **scales, **zeros}
        wrong = outputs(node, data, every, exact=False) != outputs(node, data, every, exact=True)
        found.append(float(wrong.mean()))
    return found


def main() -> None:
    """Print a JSON object: name of the product -> both shares."""
    found = {}
    shapes = [(64, 16, 3, 1), (3, 16, 3, 1), (5, 8, 3, 1), (32, 16, 1, 1), (1, 8, 5, 1), (6, 8, 3, 2)]
    for channels, filters, taps, groups in shapes:
        node = helper.make_node("QLinearConv", QUANTIZED, ["y"], group=groups, pads=[taps // 2] * 4)
        weight = RANDOM.normal(size=(filters, channels // groups, taps, taps)).astype(np.float32)
        name = f"QLinearConv of {channels} channels, {taps} x {taps}, {groups} groups"
        found[name] = share(node, data_of(1, channels, 12, 12), weight, CONV, groups)
    for rows in (576, 255):
        weight = RANDOM.normal(size=(rows, 24)).astype(np.float32)
        for name, node in {
            "MatMulInteger": helper.make_node("MatMulInteger", ["x", "w"], ["y"]),
            "QLinearMatMul": helper.make_node("QLinearMatMul", QUANTIZED, ["y"]),
        }.items():
            found[f"{name} of {rows} rows"] = share(node, data_of(16, rows), weight, MATMUL)
        inputs = ["x", "s", "z", "w", "s", "zw", "", "out", "mid"]
        node = helper.make_node("QGemm", inputs, ["y"], domain="com.microsoft", transB=0)
        found[f"QGemm of {rows} rows"] = share(node, data_of(16, rows), weight, GEMM)
        node = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "s", "zw"], ["y"], domain="com.microsoft")
        data = data_of(16, rows).astype(np.float32)
        found[f"DynamicQuantizeMatMul of {rows} rows"] = share(node, data, weight, MATMUL)
    found["DynamicQuantizeLSTM"] = lstm()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
