"""Products with dynamic parameters, and with packed weights, written as the float products that they are."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...model.editing import free_name, sole_user
from ...model.graph import constant_of, name_of
from ...numerics.affine import TYPES, QuantParams
from .expansions import take_over
from .packed_weights import unpacked_product, unpacked_table
from .walk import Array, Form, Walk


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
