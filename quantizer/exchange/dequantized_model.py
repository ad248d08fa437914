"""The float model inside a quantized one, and what its tool chose for it.

Conversions are taken out one by one, in graph order. What they said is kept: in which parameters each
tensor is stored, in which parameters each node reads each of its inputs, and the integers of each constant.
What is left is a float model with the dequantized weights, which can be prepared as any other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import QprofError
from ..model.editing import add_initializer, free_name, sole_user, value_names
from ..model.graph import constant_of, name_of
from ..numerics.affine import (
    TYPES,
    QuantParams,
    QuantType,
    broadcast_scales,
    dequantize,
    parameter_arrays,
    quantize,
)
from ..operators.table import (
    CONVERSIONS,
    DEQUANTIZE,
    QUANTIZE,
    Constraint,
    rule_of,
)
from ..prepare.cleanup import drop_noops, name_nodes, name_values, remove_dead
from ..prepare.constant_folding import lift_constants
from ..prepare.float16 import widen
from ..prepare.inlining import inline_functions, unlist_initializers
from ..prepare.shapes import infer_shapes
from .quantized_operators import expand_operators, take_over

Array = npt.NDArray[Any]

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
            scale, points = (a.reshape(counts).T.reshape(-1) for a in (params.scale, params.zero_point))
            params = replace(params, scale=scale, zero_point=points)
        return replace(self, integers=self.integers.T, params=params)


def digest_of(array: Array) -> str:
    """Return what tells the float values of constants apart."""
    floats = np.ascontiguousarray(array, np.float32) + np.float32(0.0)  # -0.0 is 0.0
    return hashlib.sha256(repr(floats.shape).encode() + floats.tobytes()).hexdigest()


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
        unread: what of the source could not be read, in graph order.
    """

    model: ir.Model
    stored: Mapping[str, tuple[QuantParams, ...]]
    reads: Mapping[tuple[str, str], Read]
    mixed: frozenset[str]
    constants: Mapping[str, StoredConstant]
    names: Mapping[str, str]
    implementations: Mapping[str, str]
    operators: int
    unread: tuple[Unread, ...]


@dataclass(frozen=True)
class Unread:
    """A node of the source that stays as it is.

    Attributes:
        operator, node: its operator, and its name or that of what it makes.
        reason: why, without its name.
    """

    operator: str
    node: str
    reason: str


class _UnreadError(QprofError):
    """Why a node cannot be read."""


STEPS: tuple[Callable[[ir.Model], object], ...] = (
    *(unlist_initializers, name_nodes, inline_functions, name_nodes, name_values),
    *(lift_constants, infer_shapes, widen, drop_noops),
)
"""What is done before conversions are taken out, as in `prepare`."""


def dequantize_model(model: ir.Model) -> DequantizedModel:
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
    float_outputs = _take_outputs(walk)
    result = _result(walk, operators, float_outputs)
    remove_dead(work)
    return result


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
    unread: list[Unread] = field(default_factory=list)

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


def _visit(node: ir.Node, walk: Walk) -> None:
    """Take out what a node says of quantization; what cannot be read stays, with the reason."""
    try:
        _take_out(node, walk)
    except QprofError as problem:
        reason, _, _ = str(problem).removeprefix("quantization parameters: ").partition("; ")
        walk.unread.append(Unread(node.op_type, node.name or name_of(node.outputs[0]), reason))


def _take_out(node: ir.Node, walk: Walk) -> None:
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
    given, params = node.inputs[0], params_of(node)
    assert given is not None
    if node in walk.tanhs:
        params = QuantParams((1.0 / 128.0,), (params.qtype.low + 128,), params.qtype)
    value = walk.source(given)
    constant = constant_of(value)
    if constant is not None:
        walk.constants.setdefault(digest_of(constant), StoredConstant(quantize(constant, params), params))
    else:
        walk.store(value, params)
    walk.integers[node.outputs[0]] = Form(value, params)
    walk.names.append((name_of(node.outputs[0]), value))


def _dequantize(node: ir.Node, walk: Walk) -> None:
    given, output = node.inputs[0], node.outputs[0]
    assert given is not None
    integers = constant_of(given)
    if integers is not None:
        integers, params = stored_constant(integers, _numbers_of(node))
        walk.floats[output] = Form(walk.constant(name_of(output), integers, params), params)
        return
    params = params_of(node)
    form = walk.integers.get(given)
    if form is None and given.is_graph_input():
        given.type, form = ir.TensorType(ir.DataType.FLOAT), Form(given, params)
        walk.store(given, params)
        walk.integers[given] = form
    form = form or _quantized_lookup(given, params, walk)
    if form is not None and _is_tanh(node, form, params, walk):
        walk.floats[output] = form
        return
    if form is None:
        raise _UnreadError(f"'{name_of(given)}' is not quantized by what is read")
    if form.params is None or _differs(form.params, params):
        raise _UnreadError(f"'{name_of(given)}' is quantized with other parameters")
    walk.floats[output] = form
    walk.names.append((name_of(output), form.value))


def _quantized_lookup(given: ir.Value, params: QuantParams, walk: Walk) -> Form | None:
    """Return what an operator that moves values makes of a constant of integers: Gather of a table."""
    maker = given.producer()
    rule = None if maker is None else rule_of(maker)
    integers = None if maker is None or not maker.inputs else constant_of(maker.inputs[0])
    if maker is None or rule is None or integers is None or params.axis is not None:
        return None
    if rule.constraint is not Constraint.SAME or integers.dtype != params.qtype.numpy_dtype:
        return None
    value = walk.constant(name_of(maker.inputs[0]), integers, params)
    if maker.op_type == "Transpose" and integers.ndim == 2:  # preparation makes it a constant of its own
        turned = StoredConstant(integers, params).transposed()
        walk.constants.setdefault(digest_of(dequantize(turned.integers, turned.params)), turned)
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
    doubled = own.axis is None and params == replace(own, scale=2.0 * own.scale)
    if after is None or after.op_type != QUANTIZE or not doubled:
        return False
    result = params_of(after)
    if result != QuantParams((1.0 / 256.0,), (result.qtype.low,), result.qtype) or result.qtype.bits != 8:
        return False
    sigmoid.op_type = "Tanh"
    walk.tanhs.add(after)
    return True


def _differs(own: QuantParams, other: QuantParams) -> bool:
    same = np.array_equal(own.scale, other.scale) and np.array_equal(own.zero_point, other.zero_point)
    return not same or own.axis != other.axis


def _on_integers(node: ir.Node, walk: Walk) -> None:
    """Let an operator on integers be one on float values; its result has the parameters of its input."""
    forms = [walk.integers[v] for v in node.inputs if v is not None and v in walk.integers]
    rule, form = rule_of(node), forms[0]
    if node.op_type in ("Shape", "Size"):
        node.replace_input_with(0, form.value)
        return
    same = all(other.params == form.params for other in forms)
    if rule is None or rule.constraint not in MOVES or form.params is None or not same:
        walk.read_floats(node)
        raise _UnreadError("it computes on integers in a way that is not known here")
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


def _result(walk: Walk, operators: int, float_outputs: frozenset[ir.Value]) -> DequantizedModel:
    quantized = Counter(value for _, value, _ in walk.reads)
    unread = (*CONVERSIONS, "Shape", "Size")  # to ask for a shape is no reading
    mixed = {
        value
        for value in walk.stored
        if sum(use.node.op_type not in unread for use in value.uses()) > quantized[value]
    }
    return DequantizedModel(
        model=walk.model,
        stored={name_of(value): tuple(params) for value, params in walk.stored.items()},
        reads={(name_of(node), name_of(value)): params for node, value, params in walk.reads},
        mixed=frozenset(name_of(value) for value in float_outputs | mixed),
        constants=walk.constants,
        names={alias: name_of(value) for alias, value in walk.names},
        implementations={name_of(node): text for node, text in walk.implementations.items()},
        operators=operators,
        unread=tuple(walk.unread),
    )


# Products with dynamic parameters, and with packed weights: the float products that they are -------------


def folded_constant(node: ir.Node, walk: Walk) -> bool:
    """Read Cast, Sub and Mul on a constant of integers as the DequantizeLinear that they stand for.

    Returns:
        Whether that is what the Cast begins.
    """
    integers, value = _moved_constant(node.inputs[0]), node.outputs[0]
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
    integers, params = _weight(integers, scale, points, axes[0] if axes else 0)
    result = user.outputs[0]
    walk.floats[result] = Form(walk.constant(name_of(result), integers, params), params)
    return True


def integer_product(node: ir.Node, walk: Walk) -> None:
    """Write sums of integer products and their Cast and Mul as the float product that they stand for."""
    data, weight = node.inputs[0], node.inputs[1]
    form, integers = walk.integers.get(data) if data is not None else None, constant_of(weight)
    if form is None or integers is None or form.params is not None:
        raise _UnreadError("its activations are not those of DynamicQuantizeLinear, or its weight varies")
    last, scale = _end_of_product(node, walk)
    points = constant_of(node.inputs[3]) if len(node.inputs) > 3 else None
    is_conv = node.op_type == "ConvInteger"
    integers, params = _weight(integers, scale, points, 0 if is_conv else integers.ndim - 1)
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


def _end_of_product(node: ir.Node, walk: Walk) -> tuple[ir.Value, Array]:
    """Return the value in which the sums are scaled, and the scale of the weight."""
    value, scale, has_data = node.outputs[0], None, False
    while True:
        uses = list(value.uses())
        if len(uses) != 1:
            raise _UnreadError("its sums are not scaled by Cast and Mul alone")
        user, index = uses[0].node, uses[0].idx
        if user.op_type == "Mul":
            for factor in _factors(user.inputs[1 - index]):
                has_data |= factor in walk.scales
                constant = constant_of(factor)
                scale = constant if constant is not None else scale
        elif user.op_type != "Cast":
            raise _UnreadError("its sums are not scaled by Cast and Mul alone")
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


def _weight(integers: Array, scale: Array, points: Array | None, axis: int) -> tuple[Array, QuantParams]:
    flat = scale.reshape(-1)
    zeros = np.zeros(1, np.int64) if points is None else points.astype(np.int64).reshape(-1)
    zeros = np.repeat(zeros, flat.size) if zeros.size == 1 else zeros
    qtype, where = TYPES[integers.dtype.name], None if flat.size == 1 else axis
    return stored_constant(integers, (flat, zeros, qtype, where, None))


def packed_product(node: ir.Node, walk: Walk) -> None:
    """Write a MatMulNBits as a MatMul with a constant, and an Add of its bias."""
    integers, params = unpacked_product(node)
    value = walk.constant(name_of(node.inputs[1]), integers, params, is_packed=True)
    bias = node.inputs[5] if len(node.inputs) > 5 else None
    accuracy = node.attributes.get_int("accuracy_level", 0)
    made = ir.Node("", "MatMul", [node.inputs[0], value], name=node.name)
    walk.implementations[made] = "runtime" if accuracy == 4 else "runtime-float"
    _in_place_of(node, made, bias, walk)
    walk.reads.append((made, value, params))


def packed_table(node: ir.Node, walk: Walk) -> None:
    """Write a GatherBlockQuantized as a Gather from a constant."""
    integers, params = unpacked_table(node)
    value = walk.constant(name_of(node.inputs[0]), integers, params, is_packed=True)
    axis = ir.AttrInt64("axis", node.attributes.get_int("gather_axis", 0))
    made = ir.Node("", "Gather", [value, node.inputs[1]], [axis], name=node.name)
    walk.implementations[made] = "runtime"
    _in_place_of(node, made, None, walk)
    walk.reads.append((made, value, params))


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


# Packed weights of MatMulNBits and GatherBlockQuantized; their layout stands in `lowering.bit_packed` ----


def unpacked_product(node: ir.Node) -> tuple[Array, QuantParams]:
    """Return the weight [K, N] of a MatMulNBits, with its parameters.

    Raises:
        QprofError: an input is no constant, is of another size, or is grouped in another way.
    """
    size = {name: node.attributes.get_int(name, 0) for name in ("K", "N", "block_size", "bits")}
    bits, block = size["bits"] or 4, size["block_size"]
    packed, scales, points = (_constant_at(node, i) for i in (1, 2, 3))
    if bits not in (4, 8) or min(size["K"], size["N"], block) < 1:
        raise _UnreadError(
            f"no weight of {bits} bits with K, N and block_size {list(size.values())[:3]} is read"
        )
    if _constant_at(node, 4) is not None:
        raise _UnreadError("its rows are grouped by an index")
    blocks = -(-size["K"] // block)
    if packed is None or packed.size * 8 != size["N"] * blocks * block * bits:
        raise _UnreadError(f"its weight is not {size['N']} x {blocks} blocks of {block}")
    if scales is None or scales.size != size["N"] * blocks:
        raise _UnreadError(f"its scales are not {size['N']} x {blocks}")
    if points is not None and (points.dtype != np.uint8 or points.size != size["N"] * -(-blocks * bits // 8)):
        raise _UnreadError(f"its zero points are not {size['N']} x {blocks} integers of {bits} bits")
    rows = _unpacked(packed.reshape(size["N"], -1), bits)[:, : size["K"]]
    zeros = None if points is None else _unpacked(points.reshape(size["N"], -1), bits)[:, :blocks].T
    return _blocked(rows.T, scales.reshape(size["N"], blocks).T, zeros, bits, (0, block))


def unpacked_table(node: ir.Node) -> tuple[Array, QuantParams]:
    """Return the table of a GatherBlockQuantized, with its parameters.

    Raises:
        QprofError: an input is no constant, or its blocks are not along the last axis.
    """
    packed, scales, points = _constant_at(node, 0), _constant_at(node, 2), _constant_at(node, 3)
    bits, block = node.attributes.get_int("bits", 4), node.attributes.get_int("block_size", 128)
    if packed is None or scales is None or packed.dtype != np.uint8 or bits not in (4, 8):
        raise _UnreadError("its table is not one of 4 or 8 bits in uint8")
    if node.attributes.get_int("quantize_axis", 1) % packed.ndim != packed.ndim - 1:
        raise _UnreadError("its blocks are not along its last axis")
    zeros = None if points is None else _unpacked(points, bits)[..., : scales.shape[-1]]
    return _blocked(_unpacked(packed, bits), scales, zeros, bits, (packed.ndim - 1, block))


def _constant_at(node: ir.Node, position: int) -> Array | None:
    """Return an input that is a constant; None for one that is left out."""
    given = node.inputs[position] if position < len(node.inputs) else None
    found = _moved_constant(given)
    if given is not None and found is None:
        raise _UnreadError(f"its input {position} is no constant")
    return found


def _moved_constant(value: ir.Value | None) -> Array | None:
    """Return a constant, or a Reshape or Transpose of one: tied weights are one initialiser so."""
    maker = None if value is None else value.producer()
    if value is None or maker is None or maker.domain or maker.op_type not in ("Reshape", "Transpose"):
        return constant_of(value)
    array, order = constant_of(maker.inputs[0]), maker.attributes.get("perm")
    if array is None or value.shape is None or not value.shape.is_static():
        return None
    if maker.op_type == "Transpose":
        return array.transpose(None if order is None else order.as_ints())
    return array.reshape(value.shape.numpy())


def _blocked(
    table: Array, scales: Array, points: Array | None, bits: int, blocks: tuple[int, int]
) -> tuple[Array, QuantParams]:
    """Return unsigned integers with their parameters; those without zero points as signed ones around 0.

    Args:
        table, scales: as `stored_constant` has them.
        points: one for each scale; None for the middle of the type.
        bits: of the integers.
        blocks: axis, and elements of a block.
    """
    qtype, scale = TYPES[f"uint{bits}"], np.asarray(scales, np.float32).reshape(-1)
    if points is not None:
        return stored_constant(table, (scale, points.astype(np.int64).reshape(-1), qtype, *blocks))
    qtype, half = TYPES[f"int{bits}"], 1 << (bits - 1)
    signed = (table.astype(np.int64) - half).astype(qtype.numpy_dtype)
    return stored_constant(signed, (scale, np.zeros(scale.size, np.int64), qtype, *blocks))


def _unpacked(packed: Array, bits: int) -> Array:
    """Return the values of bytes along the last axis; of two in a byte the low half is the first."""
    if bits == 8:
        return packed
    halves = np.stack([packed & 15, packed >> 4], axis=-1)
    return np.asarray(halves.reshape(*packed.shape[:-1], -1))


# Parameters of conversions -------------------------------------------------------------------------------


Numbers = tuple[Array, Array, QuantType, int | None, int | None]
"""Scales (float32) and zero points, [scales] each; type, axis and block, as the file has them."""


def params_of(node: ir.Node) -> QuantParams:
    """Return the parameters of a conversion.

    Raises:
        QprofError: they vary, are of a type not known here, or are none.
    """
    return QuantParams(*_numbers_of(node))


def _numbers_of(node: ir.Node) -> Numbers:
    scale, points, qtype = _constant_at(node, 1), _constant_at(node, 2), _type(node)
    if scale is None or node.inputs[0] is None:
        raise _UnreadError("it has no scale or no input")
    axis, block = _axis(node, scale)
    flat = np.asarray(scale, np.float32).reshape(-1)
    zeros = np.zeros(flat.size, np.int64) if points is None else points.astype(np.int64).reshape(-1)
    if axis is None:
        flat, zeros = flat[:1], zeros[:1]
    if zeros.size == 1:
        zeros = np.repeat(zeros, flat.size)
    return flat, zeros, qtype, axis, block


def stored_constant(integers: Array, numbers: Numbers) -> tuple[Array, QuantParams]:
    """Return a constant with the same float values whose scales are all positive.

    A scale -s with zero point z is the scale s of mirrored integers: low + high - q for each q, and for z. A
    scale of 0 has the value 0 alone: any scale does, with z for each q. onnxruntime's symmetric quantizers
    write both: the element of the largest size of a block gets the lowest integer, whatever its sign.

    Args:
        integers: of the constant.
        numbers: what the file says of them.

    Raises:
        PlanError: a scale is not finite, or a number does not fit the type or the shape.
    """
    scale, points, qtype, axis, block = numbers
    params = QuantParams(np.where(scale == 0.0, np.float32(1.0), np.abs(scale)), points, qtype, axis, block)
    if (scale > 0.0).all():
        return integers, params
    ends, shape = qtype.low + qtype.high, integers.shape
    params = replace(params, zero_point=np.where(scale < 0.0, ends - params.zero_point, params.zero_point))
    sign, zero_point = broadcast_scales(np.sign(scale), params, shape), parameter_arrays(params, shape)[1]
    wide = integers.astype(np.int64)
    mirrored = np.where(sign < 0.0, ends - wide, np.where(sign == 0.0, zero_point, wide))
    return mirrored.astype(integers.dtype), params


def _type(node: ir.Node) -> QuantType:
    zero_point = node.inputs[2] if len(node.inputs) > 2 else None
    value = node.outputs[0] if node.op_type == QUANTIZE else node.inputs[0]
    dtype = None if zero_point is None else zero_point.dtype
    if dtype is None and node.op_type == QUANTIZE and "output_dtype" in node.attributes:
        dtype = ir.DataType(node.attributes.get_int("output_dtype", 0))
    dtype = dtype if dtype is not None else None if value is None else value.dtype
    if dtype is None:
        return TYPES["uint8"]  # the default of QuantizeLinear
    qtype = TYPES.get(dtype.name.lower())
    if qtype is None:
        raise _UnreadError(f"its type {dtype.name.lower()} is not read")
    return qtype


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
