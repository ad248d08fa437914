"""The ways to write a node that moves, selects or clips values: left out, on integers, as another operator.

Each is a writer as in `lowering.writers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import constant_of
from ..numerics.affine import Floats, QuantParams, quantize, unsigned_equivalent
from ..operators.graph import node_view
from ..operators.saturating import saturates_within
from ..operators.table import MICROSOFT, Constraint, rule_of
from .emitter import Array, Attributes, integer_type
from .writers import Task, between_conversions, data_inputs

_COORDINATES: Mapping[str, Callable[[Floats, int], Floats]] = {
    "asymmetric": lambda index, factor: index / factor,
    "half_pixel": lambda index, factor: (index + 0.5) / factor - 0.5,
}
"""Coordinate in the input of an index in the output, as ONNX defines it."""
_ROUNDED: Mapping[str, Callable[[Floats], Floats]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda place: np.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: np.floor(place + 0.5),
}
"""Rounding of a coordinate to an index, by the attribute nearest_mode."""


def pass_through(task: Task) -> bool:
    """Write the operator between conversions, or nothing if it changes no quantized value."""
    if not _changes_nothing(task):
        return between_conversions(task)
    value, params = task.node.inputs[0], task.result()
    assert value is not None
    assert params is not None
    task.emitter.store(task.node.outputs[0], task.emitter.quantized(value, params, task.node), params)
    return True


def on_integers(task: Task) -> bool:
    """Write the operator on unsigned integers; with conversions if bounds or fill are computed."""
    result = task.result()
    if result is None or _changes_nothing(task) or not _constants_are_known(task):
        return pass_through(task)
    for index in data_inputs(task):
        if task.node.inputs[index] is not None and task.params(index) not in (None, result):
            raise task.error(
                f"on integers, input {index} must have the parameters of the output; correct the plan"
            )
    return _write_on_integers(task, result, unsigned_equivalent(result))


def direct(task: Task) -> bool:
    """Write the operator on integers of the planned type if ONNX allows it, else between conversions."""
    result = task.result()
    if result is None or _changes_nothing(task):
        return pass_through(task)
    if not works_on_integers(task, result):
        return between_conversions(task)
    return _write_on_integers(task, result, result)


def _write_on_integers(task: Task, result: QuantParams, stored: QuantParams) -> bool:
    """Let an operator with constant bounds and fill value read and return integers, `stored` in these."""
    node, emitter = task.node, task.emitter
    for index in data_inputs(task):
        value = node.inputs[index]
        if value is not None and task.params(index) is not None:
            node.replace_input_with(index, emitter.quantized(value, stored, node))

    def set_scalar(index: int, number: float) -> None:
        if len(node.inputs) <= index:
            node.resize_inputs(index + 1)
        name = f"{emitter.name(node.outputs[0])}_code"
        node.replace_input_with(index, emitter.constant(name, quantize(np.float32(number), stored)))

    bounds = _clip_bounds(task)
    if bounds is not None:
        for index, bound in enumerate(bounds, start=1):
            if np.isfinite(bound):
                set_scalar(index, bound)
        node.op_type = "Clip"  # Relu of integers would clip at 0, not at the zero point
    rule = rule_of(node)
    fill = None if rule is None else rule.fill
    if fill is not None:
        view = node_view(node)
        filled = fill.value(view) if fill.applies(view) else None
        if fill.index is not None and filled is not None:
            set_scalar(fill.index, filled)
        elif fill.index is not None and len(node.inputs) > fill.index:
            node.replace_input_with(fill.index, None)  # not read in this mode, and float
        elif fill.attribute and filled is not None:
            integer = float(quantize(np.float32(filled), stored))
            node.attributes[fill.attribute] = ir.AttrFloat32(fill.attribute, integer)

    for index, value in enumerate(node.outputs):
        if task.result(index) == result:
            emitter.rename(value, f"{emitter.name(value)}_quantized")
            value.type = ir.TensorType(integer_type(stored))
            emitter.store(value, value, stored)
    return False


def channels_last(task: Task, otherwise: Callable[[Task], bool]) -> bool:
    """Write MaxPool, or a Resize that repeats elements, on integers with channels last; else call
    `otherwise`."""
    node, emitter, result = task.node, task.emitter, task.result()
    value, output = node.inputs[0], node.outputs[0]
    rank = 0 if value is None or value.shape is None else len(value.shape)
    if value is None or rank < 3 or result is None or task.params(0) != result or result.qtype.bits != 8:
        return otherwise(task)
    # Operators with their attributes, and the constant that each reads after its first input.
    steps: list[tuple[str, Attributes, Array | None]]
    if node.op_type == "MaxPool" and len(node.outputs) == 1:
        kept = {name: value for name, value in node.attributes.items() if name != "storage_order"}
        steps = [("NhwcMaxPool", kept, None)]
    elif node.op_type == "Resize" and (indices := _resize_indices(node)) is not None:
        steps = [("Gather", {"axis": axis}, index) for axis, index in indices.items()]
    else:
        return otherwise(task)
    last, first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    steps = [("Transpose", {"perm": last}, None), *steps, ("Transpose", {"perm": first}, None)]
    moved = emitter.quantized(value, result, node)
    for number, (op_type, attributes, constant) in enumerate(steps, 1):
        inputs = [moved]
        if constant is not None:
            inputs.append(emitter.constant(f"{emitter.name(output)}_indices", constant))
        is_result = number == len(steps)
        name = f"{emitter.name(output)}_{'quantized' if is_result else 'channels_last'}"
        shape = output.shape.copy() if is_result and output.shape is not None else None
        step = ir.Value(name=name, type=ir.TensorType(integer_type(result)), shape=shape)
        domain = MICROSOFT if op_type == "NhwcMaxPool" else ""
        moved = emitter.add(op_type, inputs, step, node, attributes, domain=domain)
    emitter.store(output, moved, result)
    return True


def _resize_indices(node: ir.Node) -> dict[int, npt.NDArray[np.int64]] | None:
    """Return the elements that a nearest Resize takes along each axis that grows, channels last, or None.

    Factors are whole: then coordinates are far from a rounding border, and every implementation has these.
    """
    value, output = node.inputs[0], node.outputs[0]
    place = _COORDINATES.get(node.attributes.get_string("coordinate_transformation_mode", "half_pixel"))
    rounded = _ROUNDED.get(node.attributes.get_string("nearest_mode", "round_prefer_floor"))
    if place is None or rounded is None or {"axes", "keep_aspect_ratio_policy"} & set(node.attributes):
        return None
    if value is None or value.shape is None or output.shape is None or value.shape[:2] != output.shape[:2]:
        return None
    sizes: list[int] = []
    factors: list[int] = []
    for size, wanted in zip(value.shape[2:], output.shape[2:], strict=True):
        if not isinstance(size, int) or not isinstance(wanted, int) or size < 1 or wanted % size:
            return None
        sizes.append(size)
        factors.append(wanted // size)
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    if scales is not None:
        scale_factors = constant_of(scales)
        if scale_factors is None or (scale_factors.size and scale_factors.tolist()[2:] != factors):
            return None
    return {
        axis: rounded(place(np.arange(size * factor, dtype=np.float64), factor))
        .clip(0, size - 1)
        .astype(np.int64)
        for axis, (size, factor) in enumerate(zip(sizes, factors, strict=True), start=1)
        if factor > 1
    }


def leaky_relu(task: Task) -> bool:
    """Write a Relu as LeakyRelu with slope 0."""
    result, bounds = task.result(), _clip_bounds(task)
    if result is None or _changes_nothing(task):
        return pass_through(task)
    if bounds is None or bounds[0] != 0.0 or not saturates_within(result, -np.inf, bounds[1]):
        raise task.error(
            "LeakyRelu with slope 0 is a clip from 0 upwards, and this is another; choose another"
        )
    task.node.op_type = "LeakyRelu"
    task.node.attributes["alpha"] = ir.AttrFloat32("alpha", 0.0)
    task.node.resize_inputs(1)
    return between_conversions(task)


def _changes_nothing(task: Task) -> bool:
    """Return whether the node is a Relu or Clip whose bounds saturation of its output implies anyway."""
    result, bounds = task.result(), _clip_bounds(task)
    return (
        bounds is not None
        and result is not None
        and task.params(0) == result
        and saturates_within(result, *bounds)
    )


def _clip_bounds(task: Task) -> tuple[float, float] | None:
    """Return the ends of a Relu or Clip, infinite without a bound; None for others and computed bounds."""
    node = task.node
    if node.op_type == "Relu":
        return 0.0, np.inf
    if node.op_type != "Clip":
        return None
    bounds = [-np.inf, np.inf]
    for index, value in enumerate(node.inputs[1:3]):
        if value is not None:
            array = constant_of(value)
            if array is None or array.size != 1:
                return None
            bounds[index] = float(array.reshape(()))
    return bounds[0], bounds[1]


def works_on_integers(task: Task, result: QuantParams) -> bool:
    """Return whether ONNX defines the operator on these integers, and dequantizing commutes with it."""
    import onnx.defs

    node, rule = task.node, rule_of(task.node)
    if rule is None or rule.constraint in (Constraint.OWN, Constraint.FIXED) or result.qtype.bits != 8:
        return False
    values = ((index, node.inputs[index]) for index in data_inputs(task))
    floats = (index for index, value in values if value is not None and value.dtype == ir.DataType.FLOAT)
    if any(task.params(index) != result for index in floats):
        return False
    if node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") != "nearest":
        return False
    if not _constants_are_known(task):
        return False
    if node.op_type in ("Relu", "Clip"):
        return True
    schema = onnx.defs.get_schema(node.op_type, task.opset, node.domain)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    kind = f"tensor({result.qtype.name})"
    data = schema.inputs[min(data_inputs(task)[0], len(schema.inputs) - 1)]
    return all(kind in allowed.get(port.type_str, ()) for port in (data, schema.outputs[0]))


def _constants_are_known(task: Task) -> bool:
    """Return whether the bounds of a clip, and the value that an operator fills with, can be quantized."""
    node, rule = task.node, rule_of(task.node)
    if node.op_type in ("Relu", "Clip"):
        return _clip_bounds(task) is not None
    view = node_view(node)
    if rule is None or rule.fill is None or not rule.fill.applies(view):
        return True
    return not rule.fill.is_zero and rule.fill.value(view) is not None
