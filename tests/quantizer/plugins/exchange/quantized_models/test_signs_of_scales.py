"""Scales of other tools' constants may be negative or 0; what cannot be taken is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto
from onnx import helper as oh
from onnx import numpy_helper as nh
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from qprof_onnx import ModelError
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.numerics.affine import INT4, INT8, UINT4, UINT8, QuantParams, QuantType, dequantize
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plugins.exchange.dequantized_model import (
    WrittenParams,
    dequantize_model,
    stored_constant,
)
from qprof_onnx.quantizer.plugins.exchange.importing import plan_of_file
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.loading import load_recipe


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """Return a model of one product, whose weight has a block of zeros."""
    weight = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    weight[:32, 0] = 0.0
    return saved(
        [oh.make_node("MatMul", ["x", "w"], ["y"], name="one")], {"w": weight}, tmp_path / "float.onnx"
    )


def saved(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], path: Path) -> Path:
    ends = [oh.make_tensor_value_info(name, TensorProto.FLOAT, ["n", None]) for name in "xy"]
    graph = oh.make_graph(nodes, "g", ends[:1], ends[1:], [nh.from_array(a, n) for n, a in constants.items()])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10), path)
    return path


def float_weights(model: ir.Model) -> set[str]:
    return set(dequantize_model(model).constants)


@pytest.mark.parametrize(
    ("form", "bits", "block"),
    [
        (QuantFormat.QOperator, 4, 16),
        (QuantFormat.QOperator, 8, 32),
        (QuantFormat.QDQ, 4, 16),
        (QuantFormat.QDQ, 4, 64),
    ],
)
def test_weights_of_symmetric_blocks_keep_their_values(
    product: Path, tmp_path: Path, form: QuantFormat, bits: int, block: int
) -> None:
    """onnxruntime's default gives the largest element of a block the lowest integer, whatever its sign."""
    tool = MatMulNBitsQuantizer(
        onnx.load(product), block_size=block, is_symmetric=True, quant_format=form, bits=bits
    )
    tool.process()
    source = tmp_path / "source.onnx"
    onnx.save(tool.model.model, source)
    plan = plan_of_file(source, product, load_recipe())
    assert plan.nodes["one"].kind is Kind.WEIGHT_ONLY
    written = lower(open_prepared(product).model, plan).model
    assert float_weights(written) == float_weights(load_model(source))


@pytest.mark.parametrize("qtype", [INT4, UINT4, INT8, UINT8], ids=lambda qtype: qtype.name)
def test_mirrored_integers_are_the_same_values(qtype: QuantType) -> None:
    rng = np.random.default_rng(1)
    integers = rng.integers(qtype.low, qtype.high + 1, (6, 3)).astype(qtype.numpy_dtype)
    scale = np.array([0.5, -0.25, 0.0], np.float32)
    points = rng.integers(qtype.low, qtype.high + 1, 3)
    expected = (integers.astype(np.float32) - points) * scale
    stored, params = stored_constant(integers, WrittenParams(scale, points, qtype, 1))
    np.testing.assert_array_equal(dequantize(stored, params), expected)
    assert isinstance(params, QuantParams)
    assert stored.dtype == qtype.numpy_dtype


def test_a_model_of_which_nothing_can_be_read_is_refused_with_node_and_reason(
    product: Path, tmp_path: Path
) -> None:
    weight = {"w": nh.to_array(onnx.load(product).graph.initializer[0])}
    numbers = {"s": np.array(-0.5, np.float32), "z": np.array(0, np.int8)}
    nodes = [
        oh.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="first"),
        oh.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="second"),
        oh.make_node("MatMul", ["d", "w"], ["y"], name="one"),
    ]
    source = saved(nodes, {**weight, **numbers}, tmp_path / "source.onnx")
    with pytest.raises(ModelError) as caught:
        plan_of_file(source, product, load_recipe())
    assert str(caught.value).startswith("source.onnx: its quantization cannot be read: ")
    assert "1 QuantizeLinear (such as 'first': scale -0.5 is not a finite float32 number above 0)" in str(
        caught.value
    )
