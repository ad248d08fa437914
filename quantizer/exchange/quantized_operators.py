"""Operators on quantized tensors, written as the float operator between conversions.

QLinearConv and its like carry scales and zero points as inputs. Written between DequantizeLinear and
QuantizeLinear they say the same, so that one reader understands both forms. The order of their inputs is
that of the ONNX standard and of onnxruntime's documentation of its own operators (ContribOperators.md,
1.31).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ..model.editing import add_initializer, free_name
from ..model.graph import constant_of
from ..operators.table import (
    DEQUANTIZE,
    QUANTIZE,
    STANDARD_DOMAINS,
)

Inputs = Sequence[ir.Value | None]


class Expansion:
    """The nodes that one operator is written as.

    Args:
        node: the operator, which stays in its graph until `replaced`.
        taken: names of values that are not free.
    """

    def __init__(self, node: ir.Node, taken: set[str]) -> None:
        assert node.graph is not None
        self.node, self.taken, self.graph = node, taken, node.graph

    def at(self, position: int) -> ir.Value | None:
        """Return an input, None where the node has none there."""
        inputs = self.node.inputs
        return inputs[position] if position < len(inputs) else None

    def value(self, name: str, like: ir.Value | None = None) -> ir.Value:
        """Return a new float value."""
        shape = None if like is None or like.shape is None else like.shape.copy()
        return ir.Value(name=free_name(name, self.taken), type=ir.TensorType(ir.DataType.FLOAT), shape=shape)

    def add(
        self, op_type: str, inputs: Inputs, output: ir.Value, attributes: Mapping[str, object]
    ) -> ir.Value:
        """Put a node before the operator, and return its output."""
        attrs = ir.convenience.convert_attributes(dict(attributes))  # type: ignore[arg-type]
        node = ir.Node("", op_type, inputs, attrs, outputs=[output])
        self.graph.insert_before(self.node, node)
        return output

    def dequantized(
        self, quantized: ir.Value | None, scale: ir.Value | None, zero_point: ir.Value | None, axis: int = 0
    ) -> ir.Value | None:
        """Return a tensor dequantized; None for an input that is left out."""
        if quantized is None:
            return None
        inputs = [quantized, scale] if zero_point is None else [quantized, scale, zero_point]
        output = self.value(f"{quantized.name}_float", quantized)
        return self.add(DEQUANTIZE, inputs, output, {"axis": axis})

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """Return a new initialiser."""
        return add_initializer(self.graph, free_name(name, self.taken), array)

    def replaced(
        self,
        op_type: str,
        inputs: Inputs,
        result: tuple[ir.Value | None, ir.Value | None] | None,
        attributes: Mapping[str, ir.Attr],
    ) -> None:
        """Replace the operator by a float one, with a QuantizeLinear after it where `result` is given."""
        old = self.node.outputs[0]
        name, graph = self.node.name, self.graph
        output = self.value(f"{old.name}_float", old)
        made = ir.Node("", op_type, inputs, list(attributes.values()), outputs=[output], name=name)
        graph.insert_before(self.node, made)
        new = output
        if result is not None:
            quantized = ir.Value(name=free_name(f"{old.name}_integer", self.taken), type=old.type)
            node = ir.Node("", QUANTIZE, [output, *(v for v in result if v is not None)], outputs=[quantized])
            graph.insert_after(made, node)
            new = quantized
        take_over(old, new)
        self.node.name = ""
        graph.remove(self.node, safe=True)


def take_over(old: ir.Value, new: ir.Value) -> None:
    """Let every reader and graph output of one value have another, under the name of the first."""
    name = old.name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    old.name = f"{name}_replaced"
    new.name = name
    new.shape = old.shape if new.shape is None else new.shape


def _attributes(node: ir.Node, *without: str) -> dict[str, ir.Attr]:
    return {name: attr for name, attr in node.attributes.items() if name not in without}


def _conv(it: Expansion) -> None:
    scale = _product_scale(it, it.at(1), it.at(4))
    bias = it.dequantized(it.at(8), scale, None) if it.at(8) is not None and scale is not None else None
    inputs = [it.dequantized(*_triple(it, 0)), it.dequantized(*_triple(it, 3))]
    it.replaced(
        "Conv", [*inputs, *([] if bias is None else [bias])], (it.at(6), it.at(7)), _attributes(it.node)
    )


def _matmul(it: Expansion) -> None:
    inputs = [it.dequantized(*_triple(it, 0)), it.dequantized(*_triple(it, 3), axis=-1)]
    it.replaced("MatMul", inputs, (it.at(6), it.at(7)), {})


def _gemm(it: Expansion) -> None:
    axis = 0 if it.node.attributes.get_int("transB", 0) else 1
    scale = _product_scale(it, it.at(1), it.at(4))
    bias = it.dequantized(it.at(6), scale, None) if it.at(6) is not None and scale is not None else None
    inputs = [it.dequantized(*_triple(it, 0)), it.dequantized(*_triple(it, 3), axis=axis)]
    result = None if it.at(7) is None else (it.at(7), it.at(8))
    it.replaced("Gemm", [*inputs, *([] if bias is None else [bias])], result, _attributes(it.node))


def _to_float(it: Expansion) -> None:
    inputs = [
        it.dequantized(it.at(0), it.at(2), it.at(4)),
        it.dequantized(it.at(1), it.at(3), it.at(5), axis=-1),
    ]
    _with_bias(it, inputs, it.at(6))


def _dynamic_matmul(it: Expansion) -> None:
    a = it.at(0)
    assert a is not None
    outputs = [ir.Value(name=free_name(f"{a.name}_{n}", it.taken)) for n in ("integer", "scale", "zero")]
    outputs[0].type, outputs[1].type = ir.TensorType(ir.DataType.UINT8), ir.TensorType(ir.DataType.FLOAT)
    it.graph.insert_before(it.node, ir.Node("", "DynamicQuantizeLinear", [a], outputs=outputs))
    inputs = [
        it.dequantized(outputs[0], outputs[1], outputs[2]),
        it.dequantized(it.at(1), it.at(2), it.at(3), axis=-1),
    ]
    _with_bias(it, inputs, it.at(4))


def _with_bias(it: Expansion, inputs: Inputs, bias: ir.Value | None) -> None:
    if bias is None:
        it.replaced("MatMul", inputs, None, {})
        return
    product = it.add("MatMul", inputs, it.value(f"{it.node.outputs[0].name}_product"), {})
    it.replaced("Add", [product, bias], None, {})


def _binary(op_type: str) -> Callable[[Expansion], None]:
    def expand(it: Expansion) -> None:
        inputs = [it.dequantized(*_triple(it, 0)), it.dequantized(*_triple(it, 3))]
        it.replaced(op_type, inputs, (it.at(6), it.at(7)), {})

    return expand


def _unary(op_type: str, *without: str) -> Callable[[Expansion], None]:
    def expand(it: Expansion) -> None:
        inputs = [it.dequantized(*_triple(it, 0))]
        it.replaced(op_type, inputs, (it.at(3), it.at(4)), _attributes(it.node, *without))

    return expand


def _concat(it: Expansion) -> None:
    inputs = [it.dequantized(*_triple(it, i)) for i in range(2, len(it.node.inputs), 3)]
    it.replaced("Concat", inputs, (it.at(0), it.at(1)), _attributes(it.node))


def _where(it: Expansion) -> None:
    inputs = [it.at(0), it.dequantized(*_triple(it, 1)), it.dequantized(*_triple(it, 4))]
    it.replaced("Where", inputs, (it.at(7), it.at(8)), {})


def _triple(it: Expansion, first: int) -> tuple[ir.Value | None, ir.Value | None, ir.Value | None]:
    return it.at(first), it.at(first + 1), it.at(first + 2)


def _product_scale(it: Expansion, data: ir.Value | None, weight: ir.Value | None) -> ir.Value | None:
    """Return the scale of the int32 bias of a product, as a constant; None where it is not known."""
    a, b = constant_of(data), constant_of(weight)
    if a is None or b is None:
        return None
    product = np.asarray(a, np.float32).reshape(()) * np.asarray(b, np.float32)
    return it.constant(
        f"{it.node.outputs[0].name}_bias_scale", product.reshape(-1) if b.size > 1 else product.reshape(())
    )


def _channels_last_pool(it: Expansion) -> None:
    """Write NhwcMaxPool as MaxPool between two Transpose."""
    data, old = it.at(0), it.node.outputs[0]
    assert data is not None
    first = ir.Value(name=free_name(f"{old.name}_channels", it.taken), type=data.type)
    pooled = ir.Value(name=free_name(f"{old.name}_pooled", it.taken), type=data.type)
    last = ir.Value(name=free_name(f"{old.name}_last", it.taken), type=data.type)
    it.add("Transpose", [data], first, {"perm": [0, 3, 1, 2]})
    node = ir.Node("", "MaxPool", [first], list(it.node.attributes.values()), outputs=[pooled])
    node.name, it.node.name = it.node.name, ""
    it.graph.insert_before(it.node, node)
    it.add("Transpose", [pooled], last, {"perm": [0, 2, 3, 1]})
    take_over(old, last)
    it.graph.remove(it.node, safe=True)


EXPANSIONS: Mapping[str, Callable[[Expansion], None]] = {
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearAveragePool": _unary("AveragePool"),
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool", "channels_last"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearSoftmax": _unary("Softmax", "opset"),
    "QLinearReduceMean": _unary("ReduceMean"),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "NhwcMaxPool": _channels_last_pool,
}
"""Operator -> what writes it between conversions."""

_CHANNELS_LAST = ("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearConv")


def expand_operators(model: ir.Model, taken: set[str]) -> int:
    """Write every operator on quantized tensors of a model between conversions, in place; return how many.

    Args:
        model: a quantized model whose constants are initialisers.
        taken: names of its values; those of new ones are added.
    """
    found = [node for node in model.graph.all_nodes() if _is_expanded(node)]
    for node in found:
        EXPANSIONS[node.op_type](Expansion(node, taken))
    return len(found)


def _is_expanded(node: ir.Node) -> bool:
    own = node.op_type in ("QLinearConv", "QLinearMatMul")
    domains = (*STANDARD_DOMAINS, "com.microsoft")
    last = node.op_type in _CHANNELS_LAST and node.attributes.get_int("channels_last", 0) != 0
    return node.op_type in EXPANSIONS and node.domain in domains and (own or bool(node.domain)) and not last
