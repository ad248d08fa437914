"""Quantized models of which a part says nothing that a plan can hold: it stays float, and why is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.plugins.exchange.importing import import_plan

RNG = np.random.default_rng(5)


def save(path: Path, text: str, **weights: Any) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> {text}')
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def drawn(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def in_blocks(path: Path) -> Path:
    """Write a model with its products in onnxruntime's own 4 bits, in blocks of 32."""
    quantizer = MatMulNBitsQuantizer(onnx.load(path), bits=4, block_size=32, is_symmetric=True)
    quantizer.process()
    target = path.with_name("theirs.onnx")
    quantizer.model.save_model_to_file(str(target))
    return target


def test_rows_that_no_block_divides_stay_float_where_the_target_has_no_such_operator(tmp_path: Path) -> None:
    text = "g (float[n, 40] x) => (float[n, 24] y) { a = MatMul (x, w) b = Relu (a) y = MatMul (b, v) }"
    model = save(tmp_path / "m.onnx", text, w=drawn(40, 64), v=drawn(64, 24))
    plan = import_plan(in_blocks(model), model, target="onnx")
    kinds = {name: entry.kind for name, entry in plan.nodes.items() if name.startswith("MatMul")}
    (left,) = (plan.nodes[name] for name, kind in kinds.items() if kind is Kind.FLOAT)
    assert left.float_reason.code is ReasonCode.PARAMETERS_NOT_TAKEN
    assert "'w' in blocks of 32, which do not divide its 40 rows" in str(left.float_reason)
    assert sorted(map(str, kinds.values())) == ["float", "weight-only"]
    qprof.quantize(model, None, tmp_path / "again.onnx", plan=plan)
    assert import_plan(in_blocks(model), model, target="onnxruntime-x86").nodes.keys() == plan.nodes.keys()


def test_blocks_that_the_body_of_a_loop_reads_are_computed_outside_of_it(tmp_path: Path) -> None:
    text = (
        "g (float[n, 64] x, int64 trips, bool go) => (float[n, 64] y) { y = Loop (trips, go, x) "
        "<body = step (int64 i, bool c, float[n, 64] h) => (bool d, float[n, 64] t) "
        "{ d = Identity (c) m = MatMul (h, w) t = Tanh (m) }> }"
    )
    model = save(tmp_path / "m.onnx", text, w=drawn(64, 64))
    theirs = in_blocks(model)
    plan = import_plan(theirs, model, target="onnx")
    qprof.quantize(model, None, tmp_path / "again.onnx", plan=plan)
    feed = {"x": drawn(3, 64), "trips": np.array(3), "go": np.array(True)}
    expected, found = (
        ort.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, feed)[0]
        for file in (theirs, tmp_path / "again.onnx")
    )
    np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.02)  # theirs multiplies in fewer bits


STATIC = """g (float[n, 8] x) => (float[n, 4] y) {
    q = QuantizeLinear (x, s, z) i = MatMulInteger (q, w, z) f = Cast <to = 1> (i) r = Mul (f, m)
    h = QuantizeLinear (r, one, z) t = DequantizeLinear (h, u, z) y = Relu (t)
}"""


def test_sums_in_units_that_nobody_tells_are_no_parameters_of_a_tensor(tmp_path: Path) -> None:
    text = "g (float[n, 8] x) => (float[n, 4] y) { t = MatMul (x, w) y = Relu (t) }"
    model = save(tmp_path / "m.onnx", text, w=drawn(8, 4))
    scales = {"s": np.float32(0.02), "m": np.float32(0.01), "one": np.float32(1), "u": np.float32(0.05)}
    weights = RNG.integers(-100, 100, (8, 4)).astype(np.int8)
    theirs = save(tmp_path / "theirs.onnx", STATIC, w=weights, z=np.int8(0), **scales)
    with pytest.raises(ModelError, match="it rounds integer sums whose scale is not known"):
        import_plan(theirs, model)


def test_dynamic_products_in_the_branches_of_a_model_in_float16_are_read(tmp_path: Path) -> None:
    text = (
        "g (float[n, 64] x, bool c) => (float[n, 32] y) { a = MatMul (x, w) b = Relu (a) y = If (c) < "
        "then_branch = t () => (float[n, 32] s) { s = MatMul (b, v) }, "
        "else_branch = e () => (float[n, 32] r) { r = MatMul (b, u) }> }"
    )
    weights = {"w": drawn(64, 64), "v": drawn(64, 32), "u": drawn(64, 32)}
    model = save(tmp_path / "m.onnx", text, **weights)
    settings = {"mode": "dynamic", "float_type": "float16", "cost_model": "off"}
    qprof.quantize(model, None, tmp_path / "q.onnx", target="onnx", **settings)
    plan = import_plan(tmp_path / "q.onnx", model, target="onnx")
    kinds = [entry.kind for name, entry in plan.nodes.items() if name.startswith("MatMul")]
    assert kinds == [Kind.DYNAMIC] * 3
