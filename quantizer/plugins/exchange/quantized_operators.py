"""Operators on quantized tensors, written as the float operator between conversions.

QLinear operators have scales and zero points as inputs. They are rewritten as float operators between
DequantizeLinear and QuantizeLinear, so that one reader handles both forms. The order of their inputs is that
of the ONNX standard and of onnxruntime's documentation of its own operators (ContribOperators.md, 1.31).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ....profiles.instrumentation.subgraphs import STANDARD_DOMAINS
from ...model.editing import add_initializer, free_name, sole_user
from ...model.graph import constant_of
from ...operators.table import DEQUANTIZE, MICROSOFT, QUANTIZE

Inputs = Sequence[ir.Value | None]


def expand_operators(model: ir.Model, taken: set[str]) -> bool:
    """Write operators on quantized tensors as float ones between conversions, if there are any."""
    nodes = [node for node in model.graph.all_nodes() if _is_expanded(node)]
    for node in nodes:
        EXPANSIONS[node.op_type](_Expansion(node, taken))
    return bool(nodes)


def _is_expanded(node: ir.Node) -> bool:
    if node.op_type not in EXPANSIONS or node.domain not in (*STANDARD_DOMAINS, MICROSOFT):
        return False
    if not node.domain and node.op_type not in ("QLinearConv", "QLinearMatMul"):  # the others are no ONNX
        return False
    has_layout = node.op_type in ("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearConv")
    return not has_layout or node.attributes.get_int("channels_last", 0) == 0


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Let every reader and graph output of one value have another, under the name of the first."""
    name = old.name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    old.name = f"{name}_replaced"
    new.name = name
    new.shape = old.shape if new.shape is None else new.shape


class _Expansion:
    """One operator, in its graph until `replace`, and the edits that write it between conversions."""

    def __init__(self, node: ir.Node, taken: set[str]) -> None:
        assert node.graph is not None
        self.node, self.taken, self.graph = node, taken, node.graph

    def input(self, position: int) -> ir.Value | None:
        """Return an input of the node, or None."""
        inputs = self.node.inputs
        return inputs[position] if position < len(inputs) else None

    def new_value(self, name: str, like: ir.Value | None = None) -> ir.Value:
        """Return a new float value."""
        shape = None if like is None or like.shape is None else like.shape.copy()
        return ir.Value(name=free_name(name, self.taken), type=ir.TensorType(ir.DataType.FLOAT), shape=shape)

    def insert(self, op_type: str, inputs: Inputs, output: ir.Value, **attributes: object) -> ir.Value:
        """Put a node before the operator, and return its output."""
        attrs = ir.convenience.convert_attributes(attributes)  # type: ignore[arg-type]
        self.graph.insert_before(self.node, ir.Node("", op_type, inputs, attrs, outputs=[output]))
        return output

    def dequantize(
        self, quantized: ir.Value | None, scale: ir.Value | None, zero_point: ir.Value | None, axis: int = 0
    ) -> ir.Value | None:
        """Return a tensor dequantized; None for an input that is left out."""
        if quantized is None:
            return None
        inputs = [quantized, scale] if zero_point is None else [quantized, scale, zero_point]
        output = self.new_value(f"{quantized.name}_float", quantized)
        return self.insert(DEQUANTIZE, inputs, output, axis=axis)

    def dequantize_triple(self, first: int, axis: int = 0) -> ir.Value | None:
        """Return the tensor of three successive inputs (integers, scale, zero point) dequantized."""
        return self.dequantize(self.input(first), self.input(first + 1), self.input(first + 2), axis)

    def dequantize_bias(self, position: int) -> list[ir.Value | None]:
        """Return the int32 bias dequantized by scale(data) * scale(weight), if these are constant."""
        data_scale, weight_scale = constant_of(self.input(1)), constant_of(self.input(4))
        if data_scale is None or weight_scale is None:
            return []
        product = np.asarray(data_scale, np.float32).reshape(()) * np.asarray(weight_scale, np.float32)
        name = free_name(f"{self.node.outputs[0].name}_bias_scale", self.taken)
        product = product.reshape(-1) if weight_scale.size > 1 else product.reshape(())
        scale = add_initializer(self.graph, name, product)
        bias = self.dequantize(self.input(position), scale, None)
        return [] if bias is None else [bias]

    def replace(self, op_type: str, inputs: Inputs, result: int | None, without: str = "") -> None:
        """Replace the operator by a float one, and QuantizeLinear by the scale at index `result`, if any."""
        old, graph = self.node.outputs[0], self.graph
        attributes = [attr for name, attr in self.node.attributes.items() if name != without]
        new = self.new_value(f"{old.name}_float", old)
        node = ir.Node("", op_type, inputs, attributes, outputs=[new], name=self.node.name)
        graph.insert_before(self.node, node)
        if result is not None:
            params = [v for v in (self.input(result), self.input(result + 1)) if v is not None]
            quantized = ir.Value(name=free_name(f"{old.name}_integer", self.taken), type=old.type)
            graph.insert_after(node, ir.Node("", QUANTIZE, [new, *params], outputs=[quantized]))
            new = quantized
        replace_value(old, new)
        self.node.name = ""
        graph.remove(self.node, safe=True)


def _conv(it: _Expansion) -> None:
    bias = it.dequantize_bias(8)
    it.replace("Conv", [it.dequantize_triple(0), it.dequantize_triple(3), *bias], 6)


def _matmul(it: _Expansion) -> None:
    it.replace("MatMul", [it.dequantize_triple(0), it.dequantize_triple(3, axis=-1)], 6)


def _gemm(it: _Expansion) -> None:
    axis = 0 if it.node.attributes.get_int("transB", 0) else 1
    bias = it.dequantize_bias(6)
    inputs = [it.dequantize_triple(0), it.dequantize_triple(3, axis), *bias]
    it.replace("Gemm", inputs, None if it.input(7) is None else 7)


def _matmul_to_float(it: _Expansion) -> None:
    a = it.dequantize(it.input(0), it.input(2), it.input(4))
    b = it.dequantize(it.input(1), it.input(3), it.input(5), axis=-1)
    _replace_by_product(it, [a, b], it.input(6))


def _dynamic_matmul(it: _Expansion) -> None:
    data = it.input(0)
    assert data is not None
    outputs = [ir.Value(name=free_name(f"{data.name}_{n}", it.taken)) for n in ("integer", "scale", "zero")]
    outputs[0].type, outputs[1].type = ir.TensorType(ir.DataType.UINT8), ir.TensorType(ir.DataType.FLOAT)
    it.graph.insert_before(it.node, ir.Node("", "DynamicQuantizeLinear", [data], outputs=outputs))
    a = it.dequantize(outputs[0], outputs[1], outputs[2])
    b = it.dequantize(it.input(1), it.input(2), it.input(3), axis=-1)
    _replace_by_product(it, [a, b], it.input(4))


def _replace_by_product(it: _Expansion, inputs: Inputs, bias: ir.Value | None) -> None:
    """Replace the operator by a MatMul, and an Add of a float bias."""
    if bias is None:
        it.replace("MatMul", inputs, None)
    else:
        product = it.insert("MatMul", inputs, it.new_value(f"{it.node.outputs[0].name}_product"))
        it.replace("Add", [product, bias], None)


def _binary(op_type: str) -> Callable[[_Expansion], None]:
    return lambda it: it.replace(op_type, [it.dequantize_triple(0), it.dequantize_triple(3)], 6)


def _unary(op_type: str, without: str = "") -> Callable[[_Expansion], None]:
    return lambda it: it.replace(op_type, [it.dequantize_triple(0)], 3, without)


def _concat(it: _Expansion) -> None:
    it.replace("Concat", [it.dequantize_triple(i) for i in range(2, len(it.node.inputs), 3)], 0)


def _where(it: _Expansion) -> None:
    it.replace("Where", [it.input(0), it.dequantize_triple(1), it.dequantize_triple(4)], 7)


def _channels_last_pool(it: _Expansion) -> None:
    """Write an NhwcMaxPool between two Transposes as MaxPool; any other stays."""
    data, after = it.input(0), sole_user(it.node.outputs[0])
    before = None if data is None else data.producer()
    for node, order in ((before, (0, 2, 3, 1)), (after, (0, 3, 1, 2))):
        if (
            node is None
            or node.op_type != "Transpose"
            or tuple(node.attributes.get_ints("perm", ())) != order
        ):
            return
    assert before is not None
    assert after is not None
    old = after.outputs[0]
    pooled = ir.Value(name=free_name(f"{old.name}_pooled", it.taken), type=old.type)
    attributes = list(it.node.attributes.values())
    node = ir.Node("", "MaxPool", [before.inputs[0]], attributes, outputs=[pooled], name=it.node.name)
    it.node.name = ""
    it.graph.insert_before(it.node, node)
    replace_value(old, pooled)
    it.graph.remove([after, it.node], safe=True)


EXPANSIONS: Mapping[str, Callable[[_Expansion], None]] = {
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    "MatMulIntegerToFloat": _matmul_to_float,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearAveragePool": _unary("AveragePool"),
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool", without="channels_last"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearSoftmax": _unary("Softmax", without="opset"),
    "QLinearReduceMean": _unary("ReduceMean"),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "NhwcMaxPool": _channels_last_pool,
}
"""Operator -> the function that writes it between conversions."""
