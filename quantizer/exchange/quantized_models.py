"""What a quantized ONNX model of any tool says, in the names of the prepared float model."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import ModelError, PlanError, QprofError
from ..adjustments.rounded_weights import params_digest
from ..model.editing import add_initializer, free_name, sole_user, value_names
from ..model.graph import constant_of, name_of
from ..numerics.affine import (
    INT4,
    INT8,
    INT32,
    TYPES,
    UINT4,
    UINT8,
    QuantParams,
    QuantType,
    dequantize,
    quantize,
)
from ..numerics.schemas import bias_params
from ..operators.graph import Graph, Node, in_main_graph, index, node_view
from ..operators.table import (
    CONVERSIONS,
    DEQUANTIZE,
    QUANTIZE,
    STANDARD_DOMAINS,
    Constraint,
    is_clip,
    rule_of,
)
from ..plan.plan import Adjustments, RoundingOffsets
from ..plan.reasons import ReasonCode, because
from ..prepare.cleanup import drop_noops, name_nodes, name_values, remove_dead
from ..prepare.constant_folding import lift_constants
from ..prepare.float16 import widen
from ..prepare.inlining import inline_functions, unlist_initializers
from ..prepare.prepare import prepare
from ..prepare.shapes import infer_shapes
from .node_decisions import SourceNode, SourceParams, along, folded_factors, folded_params, mirror

# The parameters that a QuantizeLinear or DequantizeLinear has.


def params_of(node: ir.Node) -> QuantParams | None:
    """Return the parameters of a conversion; None where they vary, or are of a type not known here."""
    scale = constant_of(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    points = constant_of(given)
    qtype = _type(node, given)
    if scale is None or qtype is None or (given is not None and points is None):
        return None
    axis, block = _axis(node, scale)
    flat = np.asarray(scale, np.float32).reshape(-1)
    zeros = (
        np.zeros(flat.size, np.int64) if points is None else np.asarray(points).astype(np.int64).reshape(-1)
    )
    if axis is None:
        flat, zeros = flat[:1], zeros[:1]
    if zeros.size == 1:
        zeros = np.repeat(zeros, flat.size)
    try:
        return QuantParams(tuple(flat.astype(np.float64).tolist()), tuple(zeros.tolist()), qtype, axis, block)
    except PlanError:
        return None


def _type(node: ir.Node, zero_point: ir.Value | None) -> QuantType | None:
    value = node.outputs[0] if node.op_type == QUANTIZE else node.inputs[0]
    dtype = None if zero_point is None else zero_point.dtype
    if dtype is None and node.op_type == QUANTIZE and "output_dtype" in node.attributes:
        dtype = ir.DataType(node.attributes.get_int("output_dtype", 0))
    dtype = dtype if dtype is not None else None if value is None else value.dtype
    if dtype is None:
        return TYPES["uint8"]  # the default of QuantizeLinear
    return TYPES.get(dtype.name.lower())


def _axis(node: ir.Node, scale: np.ndarray) -> tuple[int | None, int | None]:
    """Return the axis of the scales, counted from the front, and the size of a block."""
    size = node.attributes.get_int("block_size", 0)
    block = size if size else None
    if scale.size == 1 and block is None:
        return None, None
    axis = node.attributes.get_int("axis", 1)
    if axis >= 0:
        return axis, block
    value = node.inputs[0]
    shape = None if value is None else value.shape
    rank = scale.ndim if block is not None else len(shape) if shape is not None else 2
    return axis % rank, block


# Operators on quantized tensors, written as the float operator between conversions.
#
# QLinearConv and its like carry scales and zero points as inputs. Written between DequantizeLinear and
# QuantizeLinear they say the same, so that one reader understands both forms. The order of their inputs
# is that
# of the ONNX standard and of onnxruntime's documentation of its own operators (ContribOperators.md,
# 1.31).

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


# Weights that operators of onnxruntime's own hold packed: MatMulNBits and GatherBlockQuantized.
#
# Their layout stands in `lowering.writers.bit_packed`.

Array = npt.NDArray[Any]


def unpacked_product(node: ir.Node) -> tuple[Array, QuantParams] | None:
    """Return the weight [K, N] of a MatMulNBits as unsigned integers, with its parameters.

    None where an input is no constant, or is grouped in another way.
    """
    size = {name: node.attributes.get_int(name, 0) for name in ("K", "N", "block_size", "bits")}
    bits = size["bits"] or 4
    packed, scales = (constant_of(node.inputs[i]) for i in (1, 2))
    given = node.inputs[3] if len(node.inputs) > 3 else None
    points = constant_of(given)
    grouped = constant_of(node.inputs[4]) if len(node.inputs) > 4 else None
    if packed is None or scales is None or bits not in (4, 8) or grouped is not None:
        return None
    if given is not None and (points is None or points.dtype != np.uint8):
        return None
    blocks = -(-size["K"] // size["block_size"])
    rows = _unpacked(packed.reshape(size["N"], -1), bits)[:, : size["K"]]
    zeros = np.full((size["N"], blocks), 1 << (bits - 1), np.int64)
    if points is not None:
        zeros = _unpacked(points.reshape(size["N"], -1), bits)[:, :blocks].astype(np.int64)
    grid = np.asarray(scales, np.float32).reshape(size["N"], blocks)
    params = _blocked(grid.T, zeros.T, bits, 0, size["block_size"])
    return _signed(rows.T, params) if points is None else (rows.T, params)


def unpacked_table(node: ir.Node) -> tuple[Array, QuantParams] | None:
    """Return the table of a GatherBlockQuantized as unsigned integers, with its parameters; None as above."""
    packed, scales = constant_of(node.inputs[0]), constant_of(node.inputs[2])
    given = node.inputs[3] if len(node.inputs) > 3 else None
    points, bits = constant_of(given), node.attributes.get_int("bits", 4)
    block, axis = node.attributes.get_int("block_size", 128), node.attributes.get_int("quantize_axis", 1)
    if packed is None or scales is None or packed.dtype != np.uint8 or (given is not None and points is None):
        return None
    rank = packed.ndim
    if axis % rank != rank - 1:
        return None
    table = _unpacked(packed, bits)
    grid = np.asarray(scales, np.float32)
    zeros = np.full(grid.shape, 1 << (bits - 1), np.int64)
    if points is not None:
        zeros = _unpacked(points, bits)[..., : grid.shape[-1]].astype(np.int64)
    params = _blocked(grid, zeros, bits, rank - 1, block)
    return _signed(table, params) if points is None else (table, params)


def _signed(values: Array, params: QuantParams) -> tuple[Array, QuantParams]:
    """Return values without zero points as signed ones around 0: the same float values."""
    half = 1 << (params.qtype.bits - 1)
    qtype = INT4 if params.qtype == UINT4 else INT8
    signed = (values.astype(np.int64) - half).astype(qtype.numpy_dtype)
    return signed, replace(params, qtype=qtype, zero_point=(0,) * len(params.scale))


def _blocked(scales: Array, zeros: Array, bits: int, axis: int, block: int) -> QuantParams:
    return QuantParams(
        tuple(scales.reshape(-1).astype(np.float64).tolist()),
        tuple(zeros.reshape(-1).tolist()),
        UINT4 if bits == 4 else UINT8,
        axis,
        block,
    )


def _unpacked(packed: Array, bits: int) -> Array:
    """Return the values of bytes along the last axis; of two in a byte the low half is the first."""
    if bits == 8:
        return packed
    halves = np.stack([packed & 15, packed >> 4], axis=-1)
    return np.asarray(halves.reshape(*packed.shape[:-1], -1))


# What is known of a quantized model while its conversions are taken out.

Read = QuantParams | None
"""Parameters in which a node reads an input; None for those that are computed at run time."""

MOVES = (Constraint.SAME, Constraint.CLAMP, Constraint.ALL_SAME)
"""What operators directly on integers do: the result has the parameters of what is read."""


@dataclass(frozen=True)
class StoredConstant:
    """A constant as the source stores it.

    Attributes:
        integers: its values.
        params: their parameters.
        is_packed: whether an operator of a runtime's own holds it.
    """

    integers: Array
    params: QuantParams
    is_packed: bool = False

    def transposed(self) -> StoredConstant:
        """Return the constant, a matrix, with its axes exchanged."""
        axis, block = self.params.axis, self.params.block_size
        if axis is None:
            return replace(self, integers=self.integers.T)
        params = replace(self.params, axis=1 - axis)
        if block is not None:
            counts = list(self.integers.shape)
            counts[axis] = -(-counts[axis] // block)
            scales = np.asarray(params.scale).reshape(counts).T
            points = np.asarray(params.zero_point, np.int64).reshape(counts).T
            flat = tuple(scales.reshape(-1).tolist()), tuple(points.reshape(-1).tolist())
            params = replace(params, scale=flat[0], zero_point=flat[1])
        return replace(self, integers=self.integers.T, params=params)


def digest_of(array: Array) -> str:
    """Return what tells the float values of constants apart."""
    floats = np.ascontiguousarray(array, np.float32) + np.float32(0.0)  # -0.0 is 0.0
    return hashlib.sha256(repr(floats.shape).encode() + floats.tobytes()).hexdigest()


@dataclass(frozen=True)
class Form:
    """What a tensor of the source is a form of: a float tensor, rounded."""

    value: ir.Value
    params: Read


@dataclass
class Walk:
    """What is known of the source so far."""

    model: ir.Model
    taken: set[str]
    integers: dict[ir.Value, Form] = field(default_factory=dict)
    floats: dict[ir.Value, Form] = field(default_factory=dict)
    scales: set[ir.Value] = field(default_factory=set)
    stored: dict[ir.Value, list[QuantParams]] = field(default_factory=dict)
    reads: list[tuple[ir.Node, ir.Value, Read]] = field(default_factory=list)
    constants: dict[str, StoredConstant] = field(default_factory=dict)
    names: list[tuple[str, ir.Value]] = field(default_factory=list)
    implementations: dict[ir.Node, str] = field(default_factory=dict)
    tanhs: set[ir.Node] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)

    def source(self, value: ir.Value) -> ir.Value:
        """Return the float tensor that a float value stands for."""
        return self.floats[value].value if value in self.floats else value

    def store(self, value: ir.Value, params: QuantParams) -> None:
        """Note that a tensor is quantized."""
        found = self.stored.setdefault(value, [])
        if params not in found:
            found.append(params)

    def constant(
        self, name: str, integers: Array, params: QuantParams, *, is_packed: bool = False
    ) -> ir.Value:
        """Return a new float constant for one that is stored as integers."""
        array = dequantize(integers, params)
        self.constants.setdefault(digest_of(array), StoredConstant(integers, params, is_packed))
        return add_initializer(self.model.graph, free_name(f"{name}_float", self.taken), array)

    def read_floats(self, node: ir.Node) -> None:
        """Let a node read the float tensors themselves; how it read them is noted."""
        for position, value in enumerate(node.inputs):
            if value is None or value not in self.floats:
                continue
            form = self.floats[value]
            self.reads.append((node, form.value, form.params))
            node.replace_input_with(position, form.value)


# Products with dynamic parameters, and with packed weights, written as the float products that they are.


def folded_constant(node: ir.Node, walk: Walk) -> bool:
    """Read Cast, Sub and Mul on a constant of integers as the DequantizeLinear that they stand for.

    Returns:
        Whether that is what the Cast begins.
    """
    integers, value = constant_of(node.inputs[0]), node.outputs[0]
    if integers is None or node.inputs[0] is None or integers.dtype.name not in TYPES or integers.ndim == 0:
        return False
    points: Array | None = None
    user = sole_user(value)
    if user is not None and user.op_type == "Sub" and user.inputs[0] is value:
        points, value = constant_of(user.inputs[1]), user.outputs[0]
        user = sole_user(value)
    if user is None or user.op_type != "Mul":
        return False
    scale = next((c for v in user.inputs if v is not value and (c := constant_of(v)) is not None), None)
    if scale is None or scale.dtype != np.float32:
        return False
    sizes = (1,) * (integers.ndim - scale.ndim) + scale.shape
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    if len(axes) > 1 or integers.dtype.name == "int32":
        return False
    params = _weight_params(integers, scale, points, axes[0] if axes else 0)
    result = user.outputs[0]
    walk.floats[result] = Form(walk.constant(name_of(result), integers, params), params)
    return True


def integer_product(node: ir.Node, walk: Walk) -> None:
    """Write sums of integer products and their Cast and Mul as the float product that they stand for."""
    data, weight = node.inputs[0], node.inputs[1]
    form, integers = walk.integers.get(data) if data is not None else None, constant_of(weight)
    if form is None or integers is None or form.params is not None:
        walk.unread[node.op_type] += 1
        return
    end = _end_of_product(node, walk)
    if end is None:
        walk.unread[node.op_type] += 1
        return
    last, scale = end
    points = constant_of(node.inputs[3]) if len(node.inputs) > 3 else None
    is_conv = node.op_type == "ConvInteger"
    params = _weight_params(integers, scale, points, 0 if is_conv else integers.ndim - 1)
    value = walk.constant(name_of(weight), integers, params)
    kind = "Conv" if is_conv else "MatMul"
    made = ir.Node(
        "", kind, [form.value, value], list(node.attributes.values()) if is_conv else [], name=node.name
    )
    node.name = ""
    made.outputs[0].name, made.outputs[0].type = (
        free_name(f"{name_of(last)}_float", walk.taken),
        ir.TensorType(ir.DataType.FLOAT),
    )
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, made)
    take_over(last, made.outputs[0])
    walk.reads += [(made, form.value, None), (made, value, params)]


def _end_of_product(node: ir.Node, walk: Walk) -> tuple[ir.Value, Array] | None:
    """Return the value in which the sums are scaled, and the scale of the weight."""
    value, scale, has_data = node.outputs[0], None, False
    while True:
        uses = list(value.uses())
        if len(uses) != 1:
            return None
        user, index = uses[0].node, uses[0].idx
        if user.op_type == "Mul":
            for factor in _factors(user.inputs[1 - index]):
                has_data |= factor in walk.scales
                constant = constant_of(factor)
                scale = constant if constant is not None else scale
        elif user.op_type != "Cast":
            return None
        value = user.outputs[0]
        if has_data and scale is not None:
            return value, np.asarray(scale, np.float32)


def _factors(value: ir.Value | None) -> list[ir.Value]:
    """Return what a factor is the product of."""
    if value is None:
        return []
    maker = value.producer()
    if maker is not None and maker.op_type == "Mul":
        return [factor for part in maker.inputs for factor in _factors(part)]
    return [value]


def _weight_params(integers: Array, scale: Array, points: Array | None, axis: int) -> QuantParams:
    flat = scale.reshape(-1).astype(np.float64)
    zeros = np.zeros(1, np.int64) if points is None else points.astype(np.int64).reshape(-1)
    zeros = np.repeat(zeros, flat.size) if zeros.size == 1 else zeros
    one = flat.size == 1
    return QuantParams(
        tuple(flat.tolist()), tuple(zeros.tolist()), TYPES[integers.dtype.name], None if one else axis
    )


def packed_product(node: ir.Node, walk: Walk) -> None:
    """Write a MatMulNBits as a MatMul with a constant, and an Add of its bias."""
    found = unpacked_product(node)
    if found is None:
        walk.unread[node.op_type] += 1
        return
    value = walk.constant(name_of(node.inputs[1]), *found, is_packed=True)
    bias = node.inputs[5] if len(node.inputs) > 5 else None
    accuracy = node.attributes.get_int("accuracy_level", 0)
    made = ir.Node("", "MatMul", [node.inputs[0], value], name=node.name)
    walk.implementations[made] = "runtime" if accuracy == 4 else "runtime-float"
    _in_place_of(node, made, bias, walk)
    walk.reads.append((made, value, found[1]))


def packed_table(node: ir.Node, walk: Walk) -> None:
    """Write a GatherBlockQuantized as a Gather from a constant."""
    found = unpacked_table(node)
    if found is None:
        walk.unread[node.op_type] += 1
        return
    value = walk.constant(name_of(node.inputs[0]), *found, is_packed=True)
    axis = ir.AttrInt64("axis", node.attributes.get_int("gather_axis", 0))
    made = ir.Node("", "Gather", [value, node.inputs[1]], [axis], name=node.name)
    walk.implementations[made] = "runtime"
    _in_place_of(node, made, None, walk)
    walk.reads.append((made, value, found[1]))


def _in_place_of(node: ir.Node, made: ir.Node, bias: ir.Value | None, walk: Walk) -> None:
    """Put a node in the place of another, and an Add of a bias after it."""
    old, graph = node.outputs[0], node.graph
    assert graph is not None
    made.outputs[0].name = free_name(f"{old.name}_float", walk.taken)
    made.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    node.name = ""
    graph.insert_before(node, made)
    end = made.outputs[0]
    if bias is not None:
        add = ir.Node("", "Add", [end, bias])
        add.outputs[0].name = free_name(f"{old.name}_sum", walk.taken)
        add.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        graph.insert_before(node, add)
        end = add.outputs[0]
    take_over(old, end)
    graph.remove(node, safe=True)
    walk.read_floats(made)


# A quantized model without its quantization: the float model inside, and what a tool chose for it.
#
# Conversions are taken out one by one, in graph order. What they said is kept: in which parameters each
# tensor
# is stored, in which parameters each node reads each of its inputs, and the integers of each constant.
# What is
# left is a float model with the dequantized weights, which can be prepared as any other.


@dataclass(frozen=True)
class DequantizedModel:
    """A float model, and what its quantized form said.

    Attributes:
        model: the float model: weights have the float values of their integers.
        stored: activation -> the parameters that it is quantized in, in graph order; several where readers
            want several.
        reads: (node, tensor) -> the parameters in which the node reads it; None for dynamic ones. A node that
            reads the float tensor has no entry.
        mixed: activations that are quantized for some readers, while others, or an output of the model, have
            the float tensor.
        constants: digest of the float values of a constant (`digest_of`) -> how the source stores it.
        names: name of a tensor of the source -> name of the tensor here that it is a form of.
        implementations: node -> implementation, where the source has an operator of a runtime's own.
        operators: how many nodes of the source were on quantized tensors, by operator.
        unread: operator -> how many conversions of the source could not be read.
    """

    model: ir.Model
    stored: Mapping[str, tuple[QuantParams, ...]]
    reads: Mapping[tuple[str, str], Read]
    mixed: frozenset[str]
    constants: Mapping[str, StoredConstant]
    names: Mapping[str, str]
    implementations: Mapping[str, str]
    operators: int
    unread: Mapping[str, int]


STEPS: tuple[Callable[[ir.Model], object], ...] = (
    *(unlist_initializers, name_nodes, inline_functions, name_nodes, name_values),
    *(lift_constants, infer_shapes, widen, drop_noops),
)
"""What is done before conversions are taken out, as in `prepare`."""


def dequantized(model: ir.Model) -> DequantizedModel:
    """Return the float model inside a quantized one, and what the quantized one says.

    Args:
        model: as it was read; it stays as it is.
    """
    work = model.clone()
    for step in STEPS:
        step(work)
    taken = value_names(work)
    operators = expand_operators(work, taken)
    walk = Walk(work, taken)
    for node in list(work.graph.all_nodes()):
        _visit(node, walk)
    raw = _take_outputs(walk)
    result = _result(walk, operators, raw)
    remove_dead(work)
    return result


def _visit(node: ir.Node, walk: Walk) -> None:
    if node.op_type == QUANTIZE:
        _quantize(node, walk)
    elif node.op_type == DEQUANTIZE:
        _dequantize(node, walk)
    elif node.op_type == "DynamicQuantizeLinear" and node.inputs[0] is not None:
        walk.integers[node.outputs[0]] = Form(walk.source(node.inputs[0]), None)
        walk.scales.add(node.outputs[1])
    elif node.op_type in ("MatMulInteger", "ConvInteger"):
        integer_product(node, walk)
    elif node.op_type == "Cast" and folded_constant(node, walk):
        pass
    elif node.op_type == "MatMulNBits":
        packed_product(node, walk)
    elif node.op_type == "GatherBlockQuantized":
        packed_table(node, walk)
    elif any(value in walk.integers for value in node.inputs if value is not None):
        _on_integers(node, walk)
    else:
        walk.read_floats(node)


def _quantize(node: ir.Node, walk: Walk) -> None:
    params, given = params_of(node), node.inputs[0]
    if given is None or params is None:
        walk.unread[node.op_type] += 1
        return
    if node in walk.tanhs:
        params = replace(params, scale=(1.0 / 128.0,), zero_point=(params.qtype.low + 128,))
    value = walk.source(given)
    constant = constant_of(value)
    if constant is not None:
        try:
            walk.constants.setdefault(digest_of(constant), StoredConstant(quantize(constant, params), params))
        except QprofError:
            walk.unread[node.op_type] += 1
            return
    else:
        walk.store(value, params)
    walk.integers[node.outputs[0]] = Form(value, params)
    walk.names.append((name_of(node.outputs[0]), value))


def _dequantize(node: ir.Node, walk: Walk) -> None:
    params, given, output = params_of(node), node.inputs[0], node.outputs[0]
    if given is None or params is None:
        walk.unread[node.op_type] += 1
        return
    integers = constant_of(given)
    if integers is not None:
        try:
            value = walk.constant(name_of(output), integers, params)
        except QprofError:
            walk.unread[node.op_type] += 1
            return
        walk.floats[output] = Form(value, params)
        return
    form = walk.integers.get(given)
    if form is None and given.is_graph_input():
        given.type, form = ir.TensorType(ir.DataType.FLOAT), Form(given, params)
        walk.store(given, params)
        walk.integers[given] = form
    form = form or _looked_up(given, params, walk)
    if form is not None and _is_tanh(node, form, params, walk):
        walk.floats[output] = form
        return
    if form is None or form.params is None or _differ(form.params, params):
        walk.unread[node.op_type] += 1
        return
    walk.floats[output] = form
    walk.names.append((name_of(output), form.value))


def _looked_up(given: ir.Value, params: QuantParams, walk: Walk) -> Form | None:
    """Return what an operator that moves values makes of a constant of integers: Gather of a table."""
    maker = given.producer()
    rule = None if maker is None else rule_of(maker)
    integers = None if maker is None or not maker.inputs else constant_of(maker.inputs[0])
    if maker is None or rule is None or integers is None or params.axis is not None:
        return None
    if rule.constraint is not Constraint.SAME or integers.dtype != params.qtype.numpy_dtype:
        return None
    value = walk.constant(name_of(maker.inputs[0]), integers, params)
    maker.replace_input_with(0, value)
    given.type, form = ir.TensorType(ir.DataType.FLOAT), Form(given, params)
    walk.reads.append((maker, value, params))
    walk.store(given, params)
    walk.integers[given] = form
    return form


def _is_tanh(node: ir.Node, form: Form, params: QuantParams, walk: Walk) -> bool:
    """Whether a tensor is read with twice its scale for tanh(x) = 2 sigmoid(2x) - 1, and make it a Tanh.

    The integers of the sigmoid in 256ths are those of tanh in 128ths, 128 less.
    """
    own, sigmoid = form.params, sole_user(node.outputs[0])
    if own is None or sigmoid is None or sigmoid.op_type != "Sigmoid":
        return False
    after = sole_user(sigmoid.outputs[0])
    result = params_of(after) if after is not None and after.op_type == QUANTIZE else None
    doubled = own.axis is None and params == replace(own, scale=(2.0 * own.scale[0],))
    if after is None or result is None or not doubled:
        return False
    if result.scale != (1.0 / 256.0,) or result.qtype.bits != 8 or result.zero_point[0] != result.qtype.low:
        return False
    sigmoid.op_type = "Tanh"
    walk.tanhs.add(after)
    return True


def _differ(own: QuantParams, other: QuantParams) -> bool:
    return (own.scale, own.zero_point, own.axis) != (other.scale, other.zero_point, other.axis)


def _on_integers(node: ir.Node, walk: Walk) -> None:
    """Let an operator on integers be one on float values; its result has the parameters of its input."""
    forms = [walk.integers[v] for v in node.inputs if v is not None and v in walk.integers]
    rule, form = rule_of(node), forms[0]
    if node.op_type in ("Shape", "Size"):
        node.replace_input_with(0, form.value)
        return
    same = all(other.params == form.params for other in forms)
    if rule is None or rule.constraint not in MOVES or form.params is None or not same:
        walk.unread[node.op_type] += 1
        walk.read_floats(node)
        return
    stored_as = ir.DataType[form.params.qtype.storage.upper()]
    for position, value in enumerate(node.inputs):
        if value is None:
            continue
        constant = constant_of(value)
        if value in walk.integers:
            walk.reads.append((node, walk.integers[value].value, form.params))
            node.replace_input_with(position, walk.integers[value].value)
        elif constant is not None and value.dtype == stored_as:
            node.replace_input_with(position, walk.constant(name_of(value), constant, form.params))
    for output in node.outputs:
        if output.dtype in (None, stored_as, ir.DataType.FLOAT):
            output.type = ir.TensorType(ir.DataType.FLOAT)
            walk.integers[output] = Form(output, form.params)
            walk.store(output, form.params)


def _take_outputs(walk: Walk) -> frozenset[ir.Value]:
    """Let the outputs of the model be the float tensors themselves, under their names.

    Returns:
        Those that are quantized for other readers, but float as outputs.
    """
    graph = walk.model.graph
    raw = frozenset(value for value in graph.outputs if value in walk.stored)
    for position, value in enumerate(graph.outputs):
        form = walk.floats.get(value)
        if form is None:
            continue
        source = form.value
        if source.is_graph_input() or source.is_initializer() or source.is_graph_output():
            continue
        name = value.name
        value.name = free_name(f"{name}_quantized", walk.taken)
        walk.names.append((name_of(source), source))
        graph.outputs[position] = source
        source.name = name
        source.shape = value.shape if source.shape is None else source.shape
        source.type = source.type or value.type
    return raw


def _result(walk: Walk, operators: int, raw: frozenset[ir.Value]) -> DequantizedModel:
    quantized = Counter(value for _, value, _ in walk.reads)
    mixed = {value for value in walk.stored if _uses(value) > quantized[value]}
    return DequantizedModel(
        model=walk.model,
        stored={name_of(value): tuple(params) for value, params in walk.stored.items()},
        reads={(name_of(node), name_of(value)): params for node, value, params in walk.reads},
        mixed=frozenset(name_of(value) for value in raw | mixed),
        constants=walk.constants,
        names={alias: name_of(value) for alias, value in walk.names},
        implementations={name_of(node): text for node, text in walk.implementations.items()},
        operators=operators,
        unread=dict(walk.unread),
    )


def _uses(value: ir.Value) -> int:
    """Return how many inputs read a tensor; asking for its shape is no reading."""
    return sum(use.node.op_type not in (*CONVERSIONS, "Shape", "Size") for use in value.uses())


# The integers of weights and biases that another tool chose, as adjustments of a plan.

FAR = 127
"""Most steps between the nearest integer and one that was chosen that offsets can say."""
OTHER_WEIGHTS = 8.0
"""SQNR (dB) below which a weight is not a rounded form of that of the float model."""


@dataclass(frozen=True)
class Weights:
    """What makes weights and biases those of the source.

    Attributes:
        roundings: node -> how far its integers are from the nearest.
        biases: node -> what is added to its bias.
        lost: node -> why its integers cannot be kept.
        others: nodes whose weights in the float model are other ones altogether.
    """

    roundings: Mapping[str, RoundingOffsets]
    biases: Mapping[str, tuple[float, ...]]
    lost: Mapping[str, str]
    others: tuple[str, ...]


def kept_weights(
    graph: Graph,
    inputs: Mapping[str, Mapping[int, QuantParams]],
    constants: Mapping[str, Mapping[int, StoredConstant]],
) -> Weights:
    """Return what a plan must say so that its quantized weights and biases are those of the source.

    Args:
        graph: the prepared float model.
        inputs: node -> parameters of its inputs, by index.
        constants: node -> what the source stores of its constants, by index.
    """
    roundings: dict[str, RoundingOffsets] = {}
    biases: dict[str, tuple[float, ...]] = {}
    lost: dict[str, str] = {}
    others: list[str] = []
    for node in graph.nodes:
        name, rule = node.name, node.rule
        for position, stored in constants.get(name, {}).items():
            array = graph.constant(node.input(position))
            params = inputs.get(name, {}).get(position)
            if array is None or array.shape != stored.integers.shape:
                continue
            if rule is not None and position == rule.bias:
                delta = _bias_delta(node, array, stored, inputs.get(name, {}))
                if delta is None:
                    lost[name] = "bias"
                elif delta:
                    biases[name] = delta
                continue
            if params is None:
                continue
            steps = stored.integers.astype(np.int64) - quantize(array, params).astype(np.int64)
            if not np.any(steps):
                continue
            if _sqnr(array, dequantize(stored.integers, params)) < OTHER_WEIGHTS:
                others.append(name)
            if not _has_offsets(graph, node, position) or np.abs(steps).max() > FAR:
                lost[name] = "weight"
                continue
            roundings[name] = RoundingOffsets(steps.astype(np.int8).tobytes(), params_digest(params))
    return Weights(roundings, biases, lost, tuple(others))


def _has_offsets(graph: Graph, node: Node, index: int) -> bool:
    """Whether a plan can say how a constant is rounded (`quantized_weights`)."""
    rule, value = node.rule, node.ir_node.inputs[index]
    weight = None if rule is None or rule.weight is None else rule.weight.index
    array = constant_of(value)
    alone = value is not None and len(value.uses()) == 1 and not value.is_graph_output()
    return weight == index and array is not None and array.ndim >= 2 and alone and in_main_graph(graph, node)


def _bias_delta(
    node: Node, array: Array, stored: StoredConstant, inputs: Mapping[int, QuantParams]
) -> tuple[float, ...] | None:
    """Return what is to be added to a bias so that its integers are those of the source; () for nothing.

    None where no float32 does it, or where its parameters are no product.
    """
    rule = node.rule
    if rule is None or rule.weight is None or 0 not in inputs or rule.weight.index not in inputs:
        return None
    params = bias_params(inputs[0], inputs[rule.weight.index])
    floats, own = np.asarray(array, np.float32), quantize(array, params)
    wanted = dequantize(stored.integers, stored.params)
    same_scale = np.allclose(stored.params.scale_array, params.scale_array, rtol=1e-5, atol=0.0)
    goal = stored.integers.astype(np.int64) if same_scale else quantize(wanted, params).astype(np.int64)
    if np.array_equal(own.astype(np.int64), goal):
        return ()
    delta = np.where(own == goal, np.float32(0.0), dequantize(goal, params) - floats).astype(np.float32)
    fits = np.array_equal(quantize(floats + delta, params).astype(np.int64), goal)
    return tuple(delta.reshape(-1).astype(np.float64).tolist()) if fits else None


def _sqnr(array: Array, other: Array) -> float:
    wanted = np.asarray(array, np.float64)
    noise = float(np.mean((wanted - other) ** 2))
    signal = float(np.mean(wanted**2))
    return np.inf if noise == 0.0 else 10.0 * float(np.log10(max(signal, 1e-300) / noise))


# Which nodes and tensors of a quantized model are those of the float model.
#
# Nodes are matched one by one, in graph order, on three grounds: the name, the name of what they make,
# and
# where they stand: the same operator, reading the same matched tensors at the same places. Nothing is
# taken
# from how names end. A clip that a tool left out, because saturation does it, is matched with nothing:
# its
# result is the tensor that it reads.


@dataclass(frozen=True)
class Matched:
    """What was found in the quantized model.

    Attributes:
        nodes: node of the float model -> node of the quantized one.
        tensors: tensor of the float model -> tensor of the quantized one.
        absorbed: clips of the float model that the quantized one leaves to saturation.
        missing: nodes of the float model that the quantized one does not have.
        unmatched: nodes of the quantized model that the float one does not have.
    """

    nodes: Mapping[str, Node]
    tensors: Mapping[str, str]
    absorbed: tuple[str, ...]
    missing: tuple[str, ...]
    unmatched: tuple[str, ...]


@dataclass
class _Search:
    """What is matched so far."""

    graph: Graph
    other: Graph
    names: Mapping[str, str]
    by_name: Mapping[str, Node]
    tensors: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    taken: set[Node] = field(default_factory=set)

    def tensor(self, name: str) -> str | None:
        """Return the tensor of the quantized model that has a name or is a form of one with it."""
        if name in self.other.values:
            return name
        found = self.names.get(name)
        return found if found in self.other.values else None


def match(graph: Graph, other: Graph, names: Mapping[str, str]) -> Matched:
    """Return which nodes and tensors of two prepared models are the same.

    Args:
        graph: the float model.
        other: the quantized model without its quantization.
        names: further names of tensors of `other`.
    """
    search = _Search(graph, other, names, {node.name: node for node in other.nodes})
    _match_inputs(search)
    absorbed: list[str] = []
    for node in graph.nodes:
        found = next((n for n in _candidates(node, search) if _fits(node, n, search)), None)
        if found is not None:
            search.nodes[node.name] = found
            search.taken.add(found)
            for own, theirs in zip(node.outputs, found.outputs, strict=False):
                if own and theirs:
                    search.tensors[own] = theirs
        elif is_clip(node) and node.input(0) in search.tensors:
            search.tensors[node.outputs[0]] = search.tensors[node.input(0)]
            absorbed.append(node.name)
        else:
            _match_results(node, search)
    missing = (n.name for n in graph.nodes if n.name not in search.nodes)
    return Matched(
        search.nodes,
        search.tensors,
        tuple(absorbed),
        tuple(name for name in missing if name not in absorbed),
        tuple(node.name for node in other.nodes if node not in search.taken),
    )


def _match_inputs(search: _Search) -> None:
    """Match the inputs: by name, the others in their order."""
    for own, theirs in zip(search.graph.inputs, search.other.inputs, strict=False):
        same = own in search.other.inputs
        search.tensors[own] = own if same else theirs


def _match_results(node: Node, search: _Search) -> None:
    """Match what a node makes that the quantized model does not have: several nodes there may make it."""
    for name in node.outputs:
        found = search.tensor(name) if name else None
        if found is not None and found not in search.tensors.values():
            search.tensors[name] = found


def _candidates(node: Node, search: _Search) -> Iterator[Node]:
    """Yield the nodes of the quantized model that may be this one, the likeliest first."""
    named = search.by_name.get(node.name)
    if named is not None:
        yield named
    result = search.tensor(node.outputs[0]) if node.outputs and node.output else None
    maker = None if result is None else search.other.producer(result)
    if maker is not None:
        yield maker
    for position in range(len(node.inputs)):
        source = search.tensors.get(node.input(position))
        if source is not None:
            yield from (reader for reader, index in search.other.consumers(source) if index == position)


def _fits(node: Node, found: Node, search: _Search) -> bool:
    """Whether a node of the quantized model is the same operator, reads the same and is still free."""
    if found in search.taken or (found.op_type, found.domain) != (node.op_type, node.domain):
        return False
    for position in range(max(len(node.inputs), len(found.inputs))):
        own, theirs = node.input(position), found.input(position)
        if (search.graph.is_constant(own) and own) or (search.other.is_constant(theirs) and theirs):
            turned = position == 1 and is_turned(node, found)
            if own and theirs and not _same_shape(own, theirs, turned, search):
                return False
        elif own in search.tensors and theirs and search.tensors[own] != theirs:
            return False
    return all(
        name in found.attributes and found.attributes[name].value == attribute.value
        for name, attribute in node.attributes.items()
        if attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS) and name in _TELLING
    )


_TELLING = ("axis", "kernel_shape", "strides", "group", "dilations", "perm", "to")
"""Attributes that tell nodes of one operator apart."""


def is_turned(node: Node, other: Node) -> bool:
    """Whether the weights of two products are each other's transpose: MatMulNBits is written for either."""
    if node.op_type != "Gemm" or other.op_type != "Gemm":
        return False
    return node.attributes.get_int("transB", 0) != other.attributes.get_int("transB", 0)


def _same_shape(own: str, theirs: str, turned: bool, search: _Search) -> bool:
    a, b = search.graph.values[own].shape, search.other.values[theirs].shape
    return a is None or b is None or tuple(a) == (tuple(b)[::-1] if turned else tuple(b))


@dataclass
class _Found:
    """What is found of the nodes of the float model.

    Attributes:
        nodes: what the source decided about each.
        constants: node -> how the source stores its constants, by input index.
        float_biases: node -> the bias that it has in the source in float.
        added_biases: node -> the bias that it has in the source alone.
        folded: products whose weights have scales folded in that follow them in the source.
    """

    nodes: dict[str, SourceNode] = field(default_factory=dict)
    constants: dict[str, dict[int, StoredConstant]] = field(default_factory=dict)
    float_biases: dict[str, Array] = field(default_factory=dict)
    added_biases: dict[str, Array] = field(default_factory=dict)
    folded: list[str] = field(default_factory=list)


def source_of_model(graph: Graph, model: ir.Model, name: str, written_by: str) -> SourceParams:
    """Return what a quantized model says of a float model.

    Args:
        graph: the prepared float model.
        model: the quantized model, as it was read.
        name: what messages call it.
        written_by: the tool that its file names, "" where it names none.

    Raises:
        ModelError: it is not quantized, or not a quantized form of that float model.
    """
    source = dequantized(model)
    if not source.stored and not source.constants:
        raise ModelError(
            f"{name}: has no quantized tensor that can be read; give a model with QuantizeLinear and "
            "DequantizeLinear or with QLinear operators, or a file of parameters"
        )
    other = index(prepare(source.model).model)
    source = _with_moved_values(source, other)
    matched = match(graph, other, source.names)
    found = _found(graph, other, source, matched)
    if not any(node.inputs for node in found.nodes.values()):
        raise ModelError(
            f"{name}: none of its quantized nodes is in the float model; give the float model that it was "
            "made from with --float, or the one that the tool has optimised before"
        )
    weights = kept_weights(graph, {n: node.inputs for n, node in found.nodes.items()}, found.constants)
    writer = f" (written by {written_by})" if written_by else ""
    tensors = {own: source.stored[theirs][0] for own, theirs in _stored(source, matched)}
    return SourceParams(
        tool=name,
        tensors=tensors,
        nodes=found.nodes,
        reasons={n: because(ReasonCode.NOT_IN_SOURCE, source=name) for n in matched.missing},
        float_biases=True,
        adjustments=Adjustments(
            biases={**_corrected(graph, found), **weights.biases}, roundings=weights.roundings
        ),
        has_operators=source.operators > 0,
        notes=(
            f"{name}{writer}: {len(matched.nodes)} nodes are those of the float model",
            *_notes_on_nodes(name, source, matched, found),
            *_notes_on_weights(name, weights),
        ),
    )


def _with_moved_values(source: DequantizedModel, other: Graph) -> DequantizedModel:
    """Return a source whose results of operators that only move or clip quantized values are quantized too.

    Tools that quantize in front of products alone write no conversion after these; the values are such that
    one would change none of them.
    """
    stored = dict(source.stored)
    full = replace(source, stored=stored)
    for node in other.nodes:
        rule = node.rule
        if rule is None or rule.constraint not in (Constraint.SAME, Constraint.CLAMP):
            continue
        dynamic, params = _read(node, node.input(0), full)
        bounded = node.op_type != "Clip" and not rule.refusal(node, other)
        if dynamic or params is None or params.axis is not None or not bounded:
            continue
        for name in (name for name in node.results if name not in stored and other.is_float(name)):
            stored[name] = (params,)
    return full


def _stored(source: DequantizedModel, matched: Matched) -> Iterator[tuple[str, str]]:
    """Yield the activations that are stored quantized, by their names in both models."""
    for own, theirs in matched.tensors.items():
        if theirs in source.stored and theirs not in source.mixed:
            yield own, theirs


def _found(graph: Graph, other: Graph, source: DequantizedModel, matched: Matched) -> _Found:
    found = _Found()
    before = {name_of(node): node_view(node) for node in source.model.graph}
    for node in graph.nodes:
        name, theirs = node.name, matched.nodes.get(node.name)
        if theirs is None:
            found.nodes[name] = SourceNode(dict(_as_stored(node, source, matched)))
            continue
        inputs: dict[int, QuantParams] = {}
        is_dynamic = False
        for position in range(min(len(node.inputs), len(theirs.inputs))):
            read = theirs.input(position)
            if other.is_constant(read):
                original = before.get(theirs.name)
                params = _note_constant(found, node, position, other.constant(read), (source, original))
                if position == 1 and params is not None and is_turned(node, theirs):
                    turned = found.constants[name][position].transposed()
                    found.constants[name][position], params = turned, turned.params
            else:
                dynamic, params = _read(theirs, read, source)
                is_dynamic |= dynamic
            if params is not None:
                inputs[position] = params
        added = _added_bias(node, theirs, other)
        if added is not None:
            position, found.added_biases[name] = added
            if digest_of(found.added_biases[name]) in source.constants:
                inputs[position] = AS_PRODUCT
        how = source.implementations.get(theirs.name, "")
        found.nodes[name] = SourceNode(inputs, is_dynamic, how)
    return found


def _added_bias(node: Node, theirs: Node, other: Graph) -> tuple[int, Array] | None:
    """Return where a node of the source has a bias that the float model does not have, and the bias."""
    rule = node.rule
    if rule is None or rule.bias is None or node.input(rule.bias):
        return None
    array = other.constant(theirs.input(rule.bias)) if theirs.input(rule.bias) else None
    return None if array is None else (rule.bias, array)


def _as_stored(node: Node, source: DequantizedModel, matched: Matched) -> Iterator[tuple[int, QuantParams]]:
    """Yield the parameters of what a node reads that several nodes of the source stand for.

    Nothing where its result is not quantized there.
    """
    names = [matched.tensors.get(name, "") for name in node.outputs]
    if not names or any(name not in source.stored for name in names):
        return
    for position in range(len(node.inputs)):
        stored = source.stored.get(matched.tensors.get(node.input(position), ""))
        if stored:
            yield position, stored[0]


def _read(node: Node, name: str, source: DequantizedModel) -> tuple[bool, QuantParams | None]:
    """Return whether a node reads a tensor with dynamic parameters, and the parameters; None for float."""
    key = (node.name, name)
    if key in source.reads:
        return source.reads[key] is None, source.reads[key]
    stored = source.stored.get(name)
    return False, None if stored is None or name in source.mixed else stored[0]


def _note_constant(
    found: _Found,
    node: Node,
    position: int,
    array: Array | None,
    origin: tuple[DequantizedModel, Node | None],
) -> QuantParams | None:
    """Note how the source stores a constant, and return its parameters; of a float bias, note what it is."""
    name, rule, (source, original) = node.name, node.rule, origin
    if array is None or array.dtype != np.float32:
        return None
    stored = source.constants.get(digest_of(array))
    if rule is not None and position == rule.bias:
        if stored is not None and name not in found.folded:
            found.constants.setdefault(name, {})[position] = stored
            return stored.params
        found.float_biases[name] = array
        return AS_PRODUCT if name in found.folded else None
    if stored is None and rule is not None and rule.weight is not None and position == rule.weight.index:
        stored = _with_folded_scales(node, array, (source, original))
        found.folded += [name] * (stored is not None)
    if stored is None or stored.integers.shape != array.shape:
        return None
    found.constants.setdefault(name, {})[position] = stored
    return stored.params


AS_PRODUCT = QuantParams((1.0,), (0,), INT32)
"""Of a bias: quantized; its parameters are those that products take."""


def _with_folded_scales(
    node: Node, array: Array, origin: tuple[DequantizedModel, Node | None]
) -> StoredConstant | None:
    """Return how a weight is stored after the scales that follow its product are folded in.

    None where the weight is not that of the source times a number for each output channel.
    """
    (source, original), rule = origin, node.rule
    if original is None or rule is None or rule.weight is None or len(original.inputs) <= rule.weight.index:
        return None
    before = original.constant(rule.weight.index)
    stored = None if before is None else source.constants.get(digest_of(before))
    axis = rule.weight.axis(node, array.ndim)
    if before is None or stored is None or before.shape != array.shape or axis is None:
        return None
    factors = folded_factors(before, array, axis)
    params = None if factors is None else folded_params(stored.params, factors, axis)
    if factors is None or params is None:
        return None
    integers = stored.integers.astype(np.int64)
    falls = along(factors, axis, array.ndim) < 0.0
    integers = np.where(falls, mirror(stored.params) - integers, integers)
    kept = np.clip(integers, params.qtype.low, params.qtype.high).astype(stored.integers.dtype)
    return StoredConstant(kept, params)


def _corrected(graph: Graph, found: _Found) -> dict[str, tuple[float, ...]]:
    """Return what float biases of the source have more than those of the float model."""
    deltas = {name: _numbers(array) for name, array in found.added_biases.items()}
    for node in graph.nodes:
        name, rule = node.name, node.rule
        if name not in found.float_biases or rule is None or rule.bias is None:
            continue
        own, theirs = graph.constant(node.input(rule.bias)), found.float_biases[name]
        if (
            own is not None
            and own.shape == theirs.shape
            and not np.allclose(own, theirs, rtol=1e-5, atol=1e-6)
        ):
            deltas[name] = _numbers(theirs - own)
    return deltas


def _numbers(array: Array) -> tuple[float, ...]:
    return tuple(np.asarray(array, np.float32).reshape(-1).astype(np.float64).tolist())


def _notes_on_nodes(name: str, source: DequantizedModel, matched: Matched, found: _Found) -> Iterator[str]:
    """Yield what was assumed and left out of nodes and activations."""
    if matched.absorbed:
        yield (
            f"{len(matched.absorbed)} activation functions that {name} leaves to saturation are pass-through "
            "nodes"
        )
    if matched.missing:
        yield f"{len(matched.missing)} nodes of the float model are not in {name}{_such(matched.missing)}"
    if matched.unmatched:
        yield (
            f"{len(matched.unmatched)} nodes of {name} are not in the prepared float model"
            f"{_such(matched.unmatched)}: what it says of them is left out"
        )
    several = [n for n, params in source.stored.items() if len(params) > 1]
    if several:
        yield (
            f"{len(several)} tensors of {name} are quantized in more than one way{_such(several)}: readers "
            "keep theirs"
        )
    if found.folded:
        yield (
            f"{len(found.folded)} products have the scales folded into their weights that follow them in "
            f"{name}{_such(found.folded)}: their scales are multiplied, and what was rounded between is not"
        )
    if source.unread:
        listed = ", ".join(f"{count} {op}" for op, count in sorted(source.unread.items()))
        yield f"what {name} says in these operators could not be read and is left out: {listed}"


def _notes_on_weights(name: str, weights: Weights) -> Iterator[str]:
    """Yield what was kept and left out of the integers of constants."""
    if weights.roundings:
        yield f"{len(weights.roundings)} weights have the integers of {name}, which are not the nearest"
    if weights.biases:
        yield f"{len(weights.biases)} biases have the integers of {name}"
    if weights.lost:
        yield (
            f"the integers of {len(weights.lost)} constants cannot be kept{_such(weights.lost)}: they are "
            "rounded to the nearest"
        )
    if weights.others:
        yield (
            f"{len(weights.others)} weights of {name} are not rounded forms of those of the float model"
            f"{_such(weights.others)}: give the float model that was quantized, with the changes that the "
            "tool made before"
        )


def _such(names: Mapping[str, object] | tuple[str, ...] | list[str]) -> str:
    return f", such as '{next(iter(names))}'"
