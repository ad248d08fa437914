"""The ways to write a node that moves, selects or clips values: left out, on integers, as another operator.

Each is a writer as in `lowering.writers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import constant_of
from ..numerics.affine import QuantParams, quantize
from ..operators.conditions import Fill, FillSource
from ..operators.graph import node_view
from ..operators.saturating import saturates_within
from ..operators.table import MICROSOFT, Constraint, rule_of
from .emitter import Array, Attributes, integer_type, new_value
from .writers import Task, between_conversions, data_inputs, unsigned

Step = tuple[str, Attributes, tuple[Array, ...]]
"""A node to write: its operator and attributes, and the constants that it reads after its first input."""

_Numbers = npt.NDArray[np.float64]

_COORDINATES: Mapping[str, Callable[[_Numbers, int], _Numbers]] = {
    "asymmetric": lambda index, factor: index / factor,
    "half_pixel": lambda index, factor: (index + 0.5) / factor - 0.5,
}
"""Coordinate in the input of an index in the output, as ONNX defines it."""
_ROUNDED: Mapping[str, Callable[[_Numbers], _Numbers]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda place: np.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: np.floor(place + 0.5),
}


def pass_through(task: Task) -> bool:
    """Write the operator between conversions, or not at all where it changes no quantized value."""
    if not _changes_nothing(task):
        return between_conversions(task)
    value, params = task.node.inputs[0], task.result()
    assert value is not None
    assert params is not None
    task.emitter.store(task.node.outputs[0], task.emitter.quantized(value, params, task.node), params)
    return True


def on_integers(task: Task) -> bool:
    """Write the operator directly on integers, unsigned ones (see `unsigned`).

    A node whose bounds or fill value are computed at run time stays between conversions.
    """
    result = task.result()
    if result is None or _changes_nothing(task) or not _constants_are_known(task):
        return pass_through(task)
    for index in data_inputs(task):
        if task.node.inputs[index] is not None and task.params(index) not in (None, result):
            raise task.error(
                f"on integers, input {index} must have the parameters of the output; correct the plan"
            )
    return _write_on_integers(task, result, unsigned(result))


def direct(task: Task) -> bool:
    """Write the operator on integers of the planned type if ONNX allows it, else between conversions."""
    result = task.result()
    if result is None or _changes_nothing(task):
        return pass_through(task)
    if not _works_on_integers(task, result):
        return between_conversions(task)
    return _write_on_integers(task, result, result)


def direct_or_cast(task: Task) -> bool:
    """As `direct`, but MaxPool of the quantized values as float numbers, between two Cast.

    Few readers of ONNX have MaxPool of integers: OpenCV 5.0 refuses it, and IREE 3.13 takes uint8 for int8.
    Every quantized value is exact in float32, and so is the largest of them. In onnxruntime 1.31 models take
    no longer than with MaxPool of integers: digits 0.99 to 1.00, nudenet 0.97 to 0.99, resnet50 0.94 to 0.98.
    """
    node, emitter, result = task.node, task.emitter, task.result()
    value, output = node.inputs[0], node.outputs[0]
    if node.op_type != "MaxPool" or len(node.outputs) > 1 or value is None or result is None:
        return direct(task)
    if task.params(0) != result or not _works_on_integers(task, result):
        return direct(task)
    name, float32 = emitter.name(output), ir.DataType.FLOAT
    made = emitter.quantized(value, result, node)
    made = emitter.add("Cast", [made], new_value(f"{name}_float", float32, value), node, {"to": int(float32)})
    made = emitter.add(
        "MaxPool", [made], new_value(f"{name}_largest", float32, output), node, dict(node.attributes)
    )
    quantized = new_value(f"{name}_quantized", integer_type(result), output)
    emitter.store(
        output, emitter.add("Cast", [made], quantized, node, {"to": int(integer_type(result))}), result
    )
    return True


def _write_on_integers(task: Task, result: QuantParams, own: QuantParams) -> bool:
    node, emitter = task.node, task.emitter
    for index in data_inputs(task):
        value = node.inputs[index]
        if value is not None and task.params(index) is not None:
            node.replace_input_with(index, emitter.quantized(value, own, node))
    _quantize_constants(task, own)
    for value in node.outputs:
        if task.tensors.get(emitter.name(value)) == result:
            emitter.rename(value, f"{emitter.name(value)}_quantized")
            value.type = ir.TensorType(integer_type(own))
            emitter.store(value, value, own)
    return False


def channels_last(task: Task, otherwise: Callable[[Task], bool]) -> bool:
    """Write MaxPool or Resize directly on integers whose last axis is the channels.

    Args:
        task: of a MaxPool or a Resize whose input and output have the same parameters.
        otherwise: writes what this cannot: a Resize that does not repeat elements, or of unknown size.
    """
    node, emitter, result = task.node, task.emitter, task.result()
    value, output = node.inputs[0], node.outputs[0]
    rank = 0 if value is None or value.shape is None else len(value.shape)
    if value is None or rank < 3 or result is None or task.params(0) != result or result.qtype.bits != 8:
        return otherwise(task)
    steps: list[Step] | None = None
    if node.op_type == "MaxPool" and len(node.outputs) == 1:
        kept = {name: value for name, value in node.attributes.items() if name != "storage_order"}
        steps = [("NhwcMaxPool", kept, ())]
    elif node.op_type == "Resize":
        steps = _channels_last_resize(node)
    if steps is None:
        return otherwise(task)
    last, first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    steps = [("Transpose", {"perm": last}, ()), *steps, ("Transpose", {"perm": first}, ())]
    made = emitter.quantized(value, result, node)
    for number, (op_type, attributes, indices) in enumerate(steps):
        others = [emitter.constant(f"{emitter.name(output)}_indices", array) for array in indices]
        is_result = number == len(steps) - 1
        name = f"{emitter.name(output)}_{'quantized' if is_result else 'channels_last'}"
        shape = output.shape.copy() if is_result and output.shape is not None else None
        step = ir.Value(name=name, type=ir.TensorType(integer_type(result)), shape=shape)
        domain = MICROSOFT if op_type == "NhwcMaxPool" else ""
        made = emitter.add(op_type, [made, *others], step, node, attributes, domain=domain)
    emitter.store(output, made, result)
    return True


def _channels_last_resize(node: ir.Node) -> list[Step] | None:
    """Return a Gather for each axis of a Resize by whole factors, None for another Resize.

    With a whole factor the coordinates of elements are either exact in float32 or far from where they are
    rounded, so that these are the indices of every implementation.
    """
    place = _COORDINATES.get(node.attributes.get_string("coordinate_transformation_mode", "half_pixel"))
    rounded = _ROUNDED.get(node.attributes.get_string("nearest_mode", "round_prefer_floor"))
    factors = _whole_factors(node)
    if place is None or rounded is None or factors is None:
        return None
    steps: list[Step] = []
    for axis, (size, factor) in enumerate(factors, start=1):
        if factor > 1:
            index = (
                rounded(place(np.arange(size * factor, dtype=np.float64), factor))
                .clip(0, size - 1)
                .astype(np.int64)
            )
            steps.append(("Gather", {"axis": axis}, (index,)))
    return steps


def _whole_factors(node: ir.Node) -> list[tuple[int, int]] | None:
    """Return size and factor of each axis after batch and channels, None where one is not whole or known."""
    value, output = node.inputs[0], node.outputs[0]
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    given = constant_of(scales)
    if value is None or value.shape is None or output.shape is None or (scales is not None and given is None):
        return None
    if {"axes", "keep_aspect_ratio_policy"} & set(node.attributes) or value.shape[:2] != output.shape[:2]:
        return None
    factors: list[tuple[int, int]] = []
    for size, wanted in zip(value.shape[2:], output.shape[2:], strict=True):
        if not isinstance(size, int) or not isinstance(wanted, int) or size < 1 or wanted % size:
            return None
        factors.append((size, wanted // size))
    if given is not None and given.size and given.tolist()[2:] != [factor for _, factor in factors]:
        return None
    return factors


def leaky_relu(task: Task) -> bool:
    """Write a Relu as LeakyRelu with slope 0."""
    result, span = task.result(), _clip_range(task)
    if result is None or _changes_nothing(task):
        return pass_through(task)
    if span is None or span[0] != 0.0 or not saturates_within(result, -np.inf, span[1]):
        raise task.error(
            "LeakyRelu with slope 0 is a clip from 0 upwards, and this is another; choose another"
        )
    task.node.op_type = "LeakyRelu"
    task.node.attributes["alpha"] = ir.AttrFloat32("alpha", 0.0)
    task.node.resize_inputs(1)
    return between_conversions(task)


def _quantize_constants(task: Task, params: QuantParams) -> None:
    """Quantize the bounds of Relu and Clip, and the value that an operator fills with."""
    node = task.node
    if node.op_type in ("Relu", "Clip"):
        span = _clip_range(task)
        assert span is not None
        for index, bound in zip((1, 2), span, strict=True):
            if np.isfinite(bound):
                _set_scalar(task, index, bound, params)
        node.op_type = "Clip"  # Relu of integers would clip at 0, not at the zero point
    fill = _fill(task)
    if fill is None:
        return
    view = node_view(node)
    value = fill.value(view) if fill.applies(view) else None
    if fill.source is FillSource.INPUT and value is None and len(node.inputs) > fill.index:
        node.replace_input_with(fill.index, None)  # not read in this mode, and float
    elif fill.source is FillSource.INPUT and value is not None:
        _set_scalar(task, fill.index, value, params)
    elif fill.source is FillSource.ATTRIBUTE and value is not None:
        integer = float(quantize(np.float32(value), params))
        node.attributes[fill.attribute] = ir.AttrFloat32(fill.attribute, integer)


def _fill(task: Task) -> Fill | None:
    """Return what an operator fills with, None for one that makes no value by itself."""
    rule = rule_of(task.node)
    return None if rule is None else rule.fill


def _set_scalar(task: Task, index: int, value: float, params: QuantParams) -> None:
    node = task.node
    if len(node.inputs) <= index:
        node.resize_inputs(index + 1)
    name = f"{task.emitter.name(node.outputs[0])}_code"
    node.replace_input_with(index, task.emitter.constant(name, quantize(np.float32(value), params)))


def _changes_nothing(task: Task) -> bool:
    """Return whether the node is a Relu or Clip whose bounds saturation of its output implies anyway."""
    result, span = task.result(), _clip_range(task)
    return (
        span is not None
        and result is not None
        and task.params(0) == result
        and saturates_within(result, *span)
    )


def _clip_range(task: Task) -> tuple[float, float] | None:
    """Return the smallest and largest output of a Relu or Clip, infinite without a bound.

    None for any other operator, and for bounds that are not constants.
    """
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


def _works_on_integers(task: Task, result: QuantParams) -> bool:
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
    node, fill = task.node, _fill(task)
    if node.op_type in ("Relu", "Clip"):
        return _clip_range(task) is not None
    view = node_view(node)
    if fill is None or not fill.applies(view):
        return True
    return fill.source is not FillSource.ZERO and fill.value(view) is not None
