"""The float model inside a quantized one, and the choices of its tool.

Conversions are removed one by one, in graph order. Their data are kept: the parameters of each tensor, the
parameters with which each node reads its inputs, and the integers of each constant. The result is a float
model with dequantized weights, which can be prepared like any other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.errors import QprofError
from ....profiles.instrumentation.subgraphs import value_names
from ...model.editing import add_initializer, free_name, sole_user
from ...model.graph import constant_of, name_of
from ...numerics.affine import (
    TYPES,
    QuantParams,
    QuantType,
    broadcast_scales,
    dequantize,
    parameter_arrays,
    quantize,
)
from ...operators.table import CONVERSIONS, DEQUANTIZE, QUANTIZE, Constraint, rule_of
from ...planning.parameters import TANH_SCALE
from ...prepare.cleanup import drop_noops, name_nodes, name_values, remove_dead
from ...prepare.constant_folding import lift_constants
from ...prepare.float16 import widen
from ...prepare.inlining import inline_functions, unlist_initializers
from ...prepare.shapes import infer_shapes
from .quantized_operators import expand_operators, replace_value

Array = npt.NDArray[Any]

FLOAT = ir.TensorType(ir.DataType.FLOAT)

NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

QUARK = ("com.amd.quark", "com.vai.quantize")
"""Domains of AMD Quark's own operators."""

MOVES = (Constraint.SAME, Constraint.CLAMP, Constraint.ALL_SAME)
"""Operators directly on integers, whose result has the parameters of the input."""


@dataclass(frozen=True)
class StoredConstant:
    """A constant as the source stores it: its integers and their parameters."""

    integers: Array
    params: QuantParams
    is_folded: bool = False  # dequantized by Cast and Mul, when a model is loaded

    def transposed(self) -> StoredConstant:
        """Return the constant, a matrix, with its axes exchanged."""
        params, axis, block = self.params, self.params.axis, self.params.block_size
        if axis is not None:
            params = replace(params, axis=1 - axis)
        if axis is not None and block is not None:
            counts = list(self.integers.shape)
            counts[axis] = -(-counts[axis] // block)
            scale, points = (a.reshape(counts).T.reshape(-1) for a in (params.scale, params.zero_point))
            params = replace(params, scale=scale, zero_point=points)
        return replace(self, integers=self.integers.T, params=params)


def digest_of(array: Array) -> str:
    """Return a digest of the float values of constants."""
    floats = np.ascontiguousarray(array, np.float32) + np.float32(0.0)  # -0.0 is 0.0
    return hashlib.sha256(repr(floats.shape).encode() + floats.tobytes()).hexdigest()


@dataclass(frozen=True)
class DequantizedModel:
    """A float model, and the parameters of its quantized form."""

    model: ir.Model  # the float model: weights have the float values of their integers
    stored: Mapping[str, tuple[QuantParams, ...]]  # activation -> its parameters, several for several readers
    reads: Mapping[tuple[str, str], QuantParams | None]  # (node, tensor) -> read in; None for dynamic
    mixed: frozenset[str]  # quantized for some readers, float for others
    constants: Mapping[str, StoredConstant]  # by `digest_of`
    names: Mapping[str, str]
    implementations: Mapping[str, str]
    has_operators: bool  # whether the source has operators on quantized tensors
    few_bits: str  # the type of 16 bits that some floats have; "" for none
    unread: Mapping[str, Sequence[str]]  # operator -> nodes, as "'NAME': REASON"


class _UnreadError(QprofError):
    """Why a node cannot be read."""


def dequantize_model(model: ir.Model) -> DequantizedModel:
    """Return the float model inside a copy of a quantized one, and the parameters of the quantized one."""
    work = model.clone()
    preparation: tuple[Callable[[ir.Model], object], ...] = (
        *(unlist_initializers, name_nodes, inline_functions, name_nodes, name_values),
        lift_constants,
    )
    for step in preparation:
        step(work)
    taken = value_names(work)
    infer_shapes(work)
    made = (value.dtype for n in work.graph.all_nodes() if n.op_type != "Cast" for value in n.outputs)
    few_bits = next((dtype.name.lower() for dtype in made if dtype in NARROW), "")
    widen(work)
    drop_noops(work)
    has_operators = expand_operators(work, taken)

    walk, unread = _Walk(work, taken), dict[str, list[str]]()
    for node in list(work.graph.all_nodes()):
        try:
            if node.domain in QUARK:
                raise _UnreadError("operators of Quark are not read; write the model in those of ONNX")
            _take_out(node, walk)
        except QprofError as problem:
            reason, _, _ = str(problem).removeprefix("quantization parameters: ").partition("; ")
            name = node.name or name_of(node.outputs[0])
            unread.setdefault(node.op_type, []).append(f"'{name}': {reason}")
    mixed = {value for value in work.graph.outputs if value in walk.stored}
    _return_float_tensors(walk)

    quantized_reads = Counter(value for _, value, _ in walk.reads)
    no_readers = (*CONVERSIONS, "Shape", "Size")  # to ask for a shape is no reading
    for value in walk.stored:
        if sum(use.node.op_type not in no_readers for use in value.uses()) > quantized_reads[value]:
            mixed.add(value)
    dequantized = DequantizedModel(
        model=work,
        stored={name_of(value): tuple(params) for value, params in walk.stored.items()},
        reads={(name_of(node), name_of(value)): params for node, value, params in walk.reads},
        mixed=frozenset(map(name_of, mixed)),
        constants=walk.constants,
        names={alias: name_of(value) for alias, value in walk.names},
        implementations={name_of(node): text for node, text in walk.implementations.items()},
        has_operators=has_operators,
        few_bits=few_bits,
        unread=unread,
    )
    remove_dead(work)
    return dequantized


@dataclass(frozen=True)
class _Rounded:
    """A float tensor, and its parameters of rounding; None for those computed at run time."""

    value: ir.Value
    params: QuantParams | None


@dataclass
class _Walk:
    """The state of the walk over the source; other fields are as in `DequantizedModel`, by values."""

    model: ir.Model
    taken: set[str]
    integers: dict[ir.Value, _Rounded] = field(default_factory=dict)
    floats: dict[ir.Value, _Rounded] = field(default_factory=dict)
    scales: set[ir.Value] = field(default_factory=set)  # of activations, computed by DynamicQuantizeLinear
    stored: dict[ir.Value, list[QuantParams]] = field(default_factory=dict)
    reads: list[tuple[ir.Node, ir.Value, QuantParams | None]] = field(default_factory=list)
    constants: dict[str, StoredConstant] = field(default_factory=dict)
    names: list[tuple[str, ir.Value]] = field(default_factory=list)
    implementations: dict[ir.Node, str] = field(default_factory=dict)
    tanhs: set[ir.Node] = field(default_factory=set)

    def source(self, value: ir.Value) -> ir.Value:
        """Return the float tensor that a float value stands for."""
        return self.floats[value].value if value in self.floats else value

    def store(self, value: ir.Value, params: QuantParams) -> None:
        """Note that a tensor is quantized."""
        of_value = self.stored.setdefault(value, [])
        if params not in of_value:
            of_value.append(params)

    def hold_integers(self, value: ir.Value, params: QuantParams) -> _Rounded:
        """Make a tensor of integers the float tensor that it stands for."""
        value.type = FLOAT
        self.integers[value] = _Rounded(value, params)
        self.store(value, params)
        return self.integers[value]

    def new_value(self, name: str) -> ir.Value:
        """Return a new float value."""
        return ir.Value(name=free_name(name, self.taken), type=FLOAT)

    def new_constant(
        self, name: str, integers: Array, params: QuantParams, *, is_folded: bool = False
    ) -> ir.Value:
        """Return a new float constant for one that is stored as integers."""
        array = dequantize(integers, params)
        self.constants.setdefault(digest_of(array), StoredConstant(integers, params, is_folded))
        return add_initializer(self.model.graph, free_name(f"{name}_float", self.taken), array)

    def note_transposed(self, integers: Array, params: QuantParams) -> None:
        """Record the transposed form of a matrix, which preparation makes another constant."""
        turned = StoredConstant(integers, params).transposed()
        self.constants.setdefault(digest_of(dequantize(turned.integers, turned.params)), turned)

    def read_floats(self, node: ir.Node) -> None:
        """Let a node read the float tensors themselves; note the parameters with which it read them."""
        for position, value in enumerate(node.inputs):
            if value is not None and value in self.floats:
                rounded = self.floats[value]
                self.reads.append((node, rounded.value, rounded.params))
                node.replace_input_with(position, rounded.value)


def _take_out(node: ir.Node, walk: _Walk) -> None:
    """Remove a node's quantization; raise QprofError and leave the node unchanged if it cannot be read."""
    if node.op_type == QUANTIZE:
        _read_quantize(node, walk)
    elif node.op_type == DEQUANTIZE:
        _read_dequantize(node, walk)
    elif node.op_type == "DynamicQuantizeLinear" and node.inputs[0] is not None:
        walk.integers[node.outputs[0]] = _Rounded(walk.source(node.inputs[0]), None)
        walk.scales.add(node.outputs[1])
    elif node.op_type in ("MatMulInteger", "ConvInteger"):
        _read_integer_product(node, walk)
    elif node.op_type == "Cast" and _read_cast_constant(node, walk):
        pass
    elif node.op_type == "MatMulNBits":
        _read_packed_product(node, walk)
    elif node.op_type == "GatherBlockQuantized":
        _read_packed_table(node, walk)
    elif any(value in walk.integers for value in node.inputs if value is not None):
        _read_on_integers(node, walk)
    else:
        walk.read_floats(node)


def _read_quantize(node: ir.Node, walk: _Walk) -> None:
    data, params = node.inputs[0], _params_of(node)
    assert data is not None
    if node in walk.tanhs:
        params = QuantParams((TANH_SCALE,), (params.qtype.low + 128,), params.qtype)
    if _are_sums(data):
        raise _UnreadError("it rounds integer sums whose scale is not known")
    value = walk.source(data)
    constant = constant_of(value)
    if constant is not None:
        walk.constants.setdefault(digest_of(constant), StoredConstant(quantize(constant, params), params))
    else:
        walk.store(value, params)
    walk.integers[node.outputs[0]] = _Rounded(value, params)
    walk.names.append((name_of(node.outputs[0]), value))


def _are_sums(value: ir.Value) -> bool:
    """Whether a value is a sum of unread integer products, perhaps with addends and a scale."""
    maker: ir.Node | None = value.producer()
    while maker is not None and maker.op_type in ("Cast", "Mul", "Add"):
        made = [one.producer() for one in maker.inputs if one is not None and constant_of(one) is None]
        maker = made[0] if len(made) == 1 else None
    return maker is not None and maker.op_type in ("MatMulInteger", "ConvInteger")


def _read_dequantize(node: ir.Node, walk: _Walk) -> None:
    data, output = node.inputs[0], node.outputs[0]
    assert data is not None
    integers = constant_of(data)
    if integers is not None:
        integers, params = stored_constant(integers, _written_params(node))
        walk.floats[output] = _Rounded(walk.new_constant(name_of(output), integers, params), params)
        if integers.ndim == 2 and any(use.node.op_type == "Transpose" for use in output.uses()):
            walk.note_transposed(integers, params)
        return
    params = _params_of(node)
    rounded = walk.integers.get(data)
    if rounded is None and data.is_graph_input():
        rounded = walk.hold_integers(data, params)
    rounded = rounded or _moved_table(data, params, walk)
    if rounded is not None and _is_tanh(node, rounded, params, walk):
        walk.floats[output] = rounded
        return
    if rounded is None:
        raise _UnreadError(f"'{name_of(data)}' is not quantized by a known operator")
    own = rounded.params
    if (
        own is None
        or own.axis != params.axis
        or not np.array_equal(own.scale, params.scale)
        or not np.array_equal(own.zero_point, params.zero_point)
    ):
        raise _UnreadError(f"'{name_of(data)}' is quantized with other parameters")
    walk.floats[output] = rounded
    walk.names.append((name_of(output), rounded.value))


def _moved_table(data: ir.Value, params: QuantParams, walk: _Walk) -> _Rounded | None:
    """Return the result of an operator that moves the values of a constant of integers: Gather of a table."""
    maker = data.producer()
    rule = None if maker is None else rule_of(maker)
    integers = None if maker is None or not maker.inputs else constant_of(maker.inputs[0])
    if maker is None or rule is None or integers is None or params.axis is not None:
        return None
    if rule.constraint is not Constraint.SAME or integers.dtype != params.qtype.numpy_dtype:
        return None
    value = walk.new_constant(name_of(maker.inputs[0]), integers, params)
    if maker.op_type == "Transpose" and integers.ndim == 2:
        walk.note_transposed(integers, params)
    maker.replace_input_with(0, value)
    walk.reads.append((maker, value, params))
    return walk.hold_integers(data, params)


def _is_tanh(node: ir.Node, rounded: _Rounded, params: QuantParams, walk: _Walk) -> bool:
    """Whether a tensor is read with twice its scale, as sigmoid for a Tanh; if so, write a Tanh."""
    own, sigmoid = rounded.params, sole_user(node.outputs[0])
    if own is None or sigmoid is None or sigmoid.op_type != "Sigmoid":
        return False
    after = sole_user(sigmoid.outputs[0])
    doubled = own.axis is None and params == replace(own, scale=2.0 * own.scale)
    if after is None or after.op_type != QUANTIZE or not doubled:
        return False
    result = _params_of(after)
    if result != QuantParams((1.0 / 256.0,), (result.qtype.low,), result.qtype) or result.qtype.bits != 8:
        return False
    sigmoid.op_type = "Tanh"
    walk.tanhs.add(after)
    return True


def _read_on_integers(node: ir.Node, walk: _Walk) -> None:
    """Let an operator on integers be one on float values; its result has the parameters of its input."""
    tensors = [walk.integers[v] for v in node.inputs if v is not None and v in walk.integers]
    if node.op_type in ("Shape", "Size"):
        node.replace_input_with(0, tensors[0].value)
        return
    rule, params = rule_of(node), tensors[0].params
    same = all(tensor.params == params for tensor in tensors)
    if rule is None or rule.constraint not in MOVES or params is None or not same:
        walk.read_floats(node)
        raise _UnreadError("it computes on integers in a way that is not known here")
    stored_as = ir.DataType[params.qtype.storage.upper()]
    for position, value in enumerate(node.inputs):
        constant = constant_of(value)
        if value is not None and value in walk.integers:
            walk.reads.append((node, walk.integers[value].value, params))
            node.replace_input_with(position, walk.integers[value].value)
        elif value is not None and constant is not None and value.dtype == stored_as:
            node.replace_input_with(position, walk.new_constant(name_of(value), constant, params))
    for output in node.outputs:
        if output.dtype in (None, stored_as, ir.DataType.FLOAT):
            walk.hold_integers(output, params)


def _return_float_tensors(walk: _Walk) -> None:
    """Let the outputs of the model be the float tensors themselves, under their names."""
    outputs = walk.model.graph.outputs
    for position, value in enumerate(outputs):
        if value not in walk.floats:
            continue
        source = walk.floats[value].value
        if source.is_graph_input() or source.is_initializer() or source.is_graph_output():
            continue
        name = value.name
        value.name = free_name(f"{name}_quantized", walk.taken)
        walk.names.append((name_of(source), source))
        outputs[position] = source
        source.name = name
        source.shape = value.shape if source.shape is None else source.shape
        source.type = source.type or value.type


# Products with dynamic parameters, and with packed weights: the float products that they are -------------


def _read_cast_constant(node: ir.Node, walk: _Walk) -> bool:
    """Read Cast, Sub and Mul on constant integers as DequantizeLinear; return whether they are there."""
    integers, value = _moved_constant(node.inputs[0]), node.outputs[0]
    if integers is None or integers.dtype.name not in TYPES or integers.ndim == 0:
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
    integers, params = _stored_weight(integers, scale, points, axes[0] if axes else 0)
    output = user.outputs[0]
    constant = walk.new_constant(name_of(output), integers, params, is_folded=True)
    walk.floats[output] = _Rounded(constant, params)
    return True


def _read_integer_product(node: ir.Node, walk: _Walk) -> None:
    """Write sums of integer products and their Cast and Mul as the float product that they stand for."""
    data, weight = node.inputs[0], node.inputs[1]
    rounded, integers = walk.integers.get(data) if data is not None else None, constant_of(weight)
    if rounded is None or integers is None or rounded.params is not None:
        raise _UnreadError("its activations are not those of DynamicQuantizeLinear, or its weight varies")

    # The value in which the sums are scaled, by the scale of the data and that of the weight.
    result, scale, has_data_scale = node.outputs[0], None, False
    while scale is None or not has_data_scale:
        uses = list(result.uses())
        user = uses[0].node if len(uses) == 1 else None
        if user is None or user.op_type not in ("Mul", "Cast"):
            raise _UnreadError("its sums are not scaled only by Cast and Mul")
        for factor in _factors(user.inputs[1 - uses[0].idx]) if user.op_type == "Mul" else ():
            has_data_scale |= factor in walk.scales
            constant = constant_of(factor)
            scale = constant if constant is not None else scale
        result = user.outputs[0]

    points = constant_of(node.inputs[3]) if len(node.inputs) > 3 else None
    is_conv = node.op_type == "ConvInteger"
    axis = 0 if is_conv else integers.ndim - 1
    integers, params = _stored_weight(integers, np.asarray(scale, np.float32), points, axis)
    value = walk.new_constant(name_of(weight), integers, params)
    product = ir.Node(
        "",
        "Conv" if is_conv else "MatMul",
        [rounded.value, value],
        list(node.attributes.values()) if is_conv else [],
        outputs=[walk.new_value(f"{name_of(result)}_float")],
        name=node.name,
    )
    node.name = ""
    assert node.graph is not None
    node.graph.insert_before(node, product)
    replace_value(result, product.outputs[0])
    walk.reads += [(product, rounded.value, None), (product, value, params)]


def _factors(value: ir.Value | None) -> Iterator[ir.Value]:
    """Yield the factors of a product, or the value itself; a Cast between them, to float16, changes none."""
    maker = None if value is None else value.producer()
    if maker is not None and maker.op_type in ("Mul", "Cast"):
        for part in maker.inputs:
            yield from _factors(part)
    elif value is not None:
        yield value


def _stored_weight(
    integers: Array, scale: Array, points: Array | None, axis: int
) -> tuple[Array, QuantParams]:
    """Return a weight with one scale, or one for each channel along an axis; without zero points for 0."""
    scale = scale.reshape(-1)
    zeros = np.zeros(1, np.int64) if points is None else points.astype(np.int64).reshape(-1)
    zeros = np.repeat(zeros, scale.size) if zeros.size == 1 else zeros
    channels = None if scale.size == 1 else axis
    return stored_constant(integers, WrittenParams(scale, zeros, TYPES[integers.dtype.name], channels))


def _read_packed_product(node: ir.Node, walk: _Walk) -> None:
    """Write a MatMulNBits as MatMul with a constant [K, N] and Add; raise QprofError if it cannot be read."""
    size = {name: node.attributes.get_int(name, 0) for name in ("K", "N", "block_size", "bits")}
    bits, block = size["bits"] or 4, size["block_size"]
    packed, scales, points = (_constant_at(node, i) for i in (1, 2, 3))
    if bits not in (2, 4, 8) or min(size["K"], size["N"], block) < 1:
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
    integers, params = _stored_blocks(
        rows.T, scales.reshape(size["N"], blocks).T, zeros, bits, axis=0, block=block
    )

    value = walk.new_constant(name_of(node.inputs[1]), integers, params)
    name, bias = name_of(node.outputs[0]), node.inputs[5] if len(node.inputs) > 5 else None
    product = ir.Node(
        "", "MatMul", [node.inputs[0], value], outputs=[walk.new_value(f"{name}_float")], name=node.name
    )
    nodes = [product]
    if bias is not None:
        outputs = [walk.new_value(f"{name}_sum")]
        nodes.append(ir.Node("", "Add", [product.outputs[0], bias], outputs=outputs))
    accuracy = node.attributes.get_int("accuracy_level", 0)
    walk.implementations[product] = "runtime" if accuracy == 4 else "runtime-float"
    _put_in_place(node, nodes, walk)
    walk.reads.append((product, value, params))


def _read_packed_table(node: ir.Node, walk: _Walk) -> None:
    """Write a GatherBlockQuantized as a Gather from a constant; raise QprofError if it cannot be read."""
    packed, scales, points = _constant_at(node, 0), _constant_at(node, 2), _constant_at(node, 3)
    bits, block = node.attributes.get_int("bits", 4), node.attributes.get_int("block_size", 128)
    if packed is None or scales is None or packed.dtype != np.uint8 or bits not in (4, 8):
        raise _UnreadError("its table is not one of 4 or 8 bits in uint8")
    if node.attributes.get_int("quantize_axis", 1) % packed.ndim != packed.ndim - 1:
        raise _UnreadError("its blocks are not along its last axis")
    zeros = None if points is None else _unpacked(points, bits)[..., : scales.shape[-1]]
    table = _unpacked(packed, bits)
    integers, params = _stored_blocks(table, scales, zeros, bits, axis=packed.ndim - 1, block=block)

    value = walk.new_constant(name_of(node.inputs[0]), integers, params)
    axis = ir.AttrInt64("axis", node.attributes.get_int("gather_axis", 0))
    outputs = [walk.new_value(f"{name_of(node.outputs[0])}_float")]
    gather = ir.Node("", "Gather", [value, node.inputs[1]], [axis], outputs=outputs, name=node.name)
    walk.implementations[gather] = "runtime"
    _put_in_place(node, [gather], walk)
    walk.reads.append((gather, value, params))


def _put_in_place(node: ir.Node, new: Sequence[ir.Node], walk: _Walk) -> None:
    """Replace a node by others; the first of these has its name and its inputs."""
    graph = node.graph
    assert graph is not None
    node.name = ""
    graph.insert_before(node, new)
    replace_value(node.outputs[0], new[-1].outputs[0])
    graph.remove(node, safe=True)
    walk.read_floats(new[0])


def _constant_at(node: ir.Node, position: int) -> Array | None:
    """Return an input that is a constant; None for one that is left out."""
    value = node.inputs[position] if position < len(node.inputs) else None
    constant = _moved_constant(value)
    if value is not None and constant is None:
        raise _UnreadError(f"its input {position} is not a constant")
    return constant


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


def _unpacked(packed: Array, bits: int) -> Array:
    """Return the values of bytes along the last axis, lowest bits first (layout: `lowering.bit_packed`)."""
    parts = [(packed >> place) & ((1 << bits) - 1) for place in range(0, 8, bits)]
    return np.asarray(np.stack(parts, axis=-1).reshape(*packed.shape[:-1], -1))


def _stored_blocks(
    table: Array, scales: Array, points: Array | None, bits: int, *, axis: int, block: int
) -> tuple[Array, QuantParams]:
    """Return integers with a scale for each block along `axis`; unsigned ones may become signed."""
    scale = np.asarray(scales, np.float32).reshape(-1)
    if points is not None:
        zeros = points.astype(np.int64).reshape(-1)
        return stored_constant(table, WrittenParams(scale, zeros, TYPES[f"uint{bits}"], axis, block))
    qtype, half = TYPES[f"int{bits}"], 1 << (bits - 1)
    signed = (table.astype(np.int64) - half).astype(qtype.numpy_dtype)
    zeros = np.zeros(scale.size, np.int64)
    return stored_constant(signed, WrittenParams(scale, zeros, qtype, axis, block))


# Parameters of conversions -------------------------------------------------------------------------------


class WrittenParams(NamedTuple):
    """Parameters as a file has them, whose scales may be negative or 0."""

    scale: Array  # float32, [scales]
    zero_point: Array  # [scales]
    qtype: QuantType  # type of the integers
    axis: int | None = None  # of the channels or blocks; None for one scale
    block_size: int | None = None  # elements of a block; None for none


def _params_of(node: ir.Node) -> QuantParams:
    """Return the parameters of a conversion; raise QprofError if they vary or are invalid."""
    return QuantParams(*_written_params(node))


def _written_params(node: ir.Node) -> WrittenParams:
    """Return a conversion's parameters as written; raise QprofError if they vary or have an unknown type."""
    points, data = _constant_at(node, 2), node.inputs[0]
    scale = _constant_at(node, 1)
    dtype = None if points is None or node.inputs[2] is None else node.inputs[2].dtype
    if dtype is None and node.op_type == QUANTIZE and "output_dtype" in node.attributes:
        dtype = ir.DataType(node.attributes.get_int("output_dtype", 0))
    if dtype is None:
        integers = node.outputs[0] if node.op_type == QUANTIZE else data
        dtype = None if integers is None else integers.dtype
    qtype = TYPES.get("uint8" if dtype is None else dtype.name.lower())  # the default of QuantizeLinear
    if qtype is None or qtype.is_float:
        raise _UnreadError(f"its type {dtype.name.lower() if dtype else ''} is not read")
    if scale is None or data is None:
        raise _UnreadError("it has no scale or no input")

    block = node.attributes.get_int("block_size", 0) or None
    axis: int | None = node.attributes.get_int("axis", 1)
    if scale.size == 1 and block is None:
        axis = None
    elif axis is not None and axis < 0:
        rank = scale.ndim if block is not None else len(data.shape) if data.shape is not None else 2
        axis %= rank

    flat = np.asarray(scale, np.float32).reshape(-1)
    zeros = np.zeros(flat.size, np.int64) if points is None else points.astype(np.int64).reshape(-1)
    if axis is None:
        flat, zeros = flat[:1], zeros[:1]
    if zeros.size == 1:
        zeros = np.repeat(zeros, flat.size)
    return WrittenParams(flat, zeros, qtype, axis, block)


def stored_constant(integers: Array, written: WrittenParams) -> tuple[Array, QuantParams]:
    """Return a constant with the same float values whose scales are all positive.

    A scale -s with zero point z equals the scale s of mirrored integers: low + high - q for each q, and for
    z. A scale of 0 represents only 0: any scale is equivalent, with z for each q. onnxruntime writes both.
    """
    scale, qtype = written.scale, written.qtype
    params = QuantParams(*written._replace(scale=np.where(scale == 0.0, np.float32(1.0), np.abs(scale))))
    if (scale > 0.0).all():
        return integers, params
    ends, shape = qtype.low + qtype.high, integers.shape
    params = replace(params, zero_point=np.where(scale < 0.0, ends - params.zero_point, params.zero_point))
    sign, zero_point = broadcast_scales(np.sign(scale), params, shape), parameter_arrays(params, shape)[1]
    wide = integers.astype(np.int64)
    mirrored = np.where(sign < 0.0, ends - wide, np.where(sign == 0.0, zero_point, wide))
    return mirrored.astype(integers.dtype), params
