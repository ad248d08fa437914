"""A model's first operations on its inputs, as far as they show the expected data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from .observations import Observation

_NORMALISING = (
    *("Sub", "Add", "Mul", "Div"),
    *("BatchNormalization", "InstanceNormalization", "LayerNormalization"),
)
"""Operators that scale or shift their input; arithmetic ones only if the other operand is constant."""

_MOVING = (
    *("Transpose", "Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather"),
    "Pad",
)
"""Operators that move elements or change their type, through which an input is followed."""

_MAX_RESPONSE = 8.0
"""Root mean square of a first convolution's outputs on noise of mean 128 and deviation 64, above which its
weights do not expect pixels 0..255: 3.0 in a detector that takes them, 12 to 1,900 in 20 other networks."""

_NOT_ON_A_LINE = (ir.DataType.STRING, ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)


def input_facts(value: ir.Value) -> tuple[bool, bool]:
    """Return whether all first uses of an input scale or shift it by constants, and whether its axes move."""
    first = list(_first_uses(value))
    normalised = bool(first) and all(_normalises(node, source) for node, source, _ in first)
    return normalised, any(moved for _, _, moved in first)


def _first_uses(value: ir.Value, moved: bool = False) -> Iterator[tuple[ir.Node, ir.Value, bool]]:
    """Yield the nodes that first compute with a value, their input, and whether axes were moved."""
    for node, _ in value.uses():
        here = moved or node.op_type == "Transpose"
        moves = node.op_type == "Concat" or (node.op_type in _MOVING and node.inputs[0] is value)
        if moves and node.outputs[0].uses():
            yield from _first_uses(node.outputs[0], here)
        else:
            yield node, value, here


def _normalises(node: ir.Node, value: ir.Value) -> bool:
    """Whether a node is of `_NORMALISING`, and all that it reads besides the value is constant.

    A convolution counts if its weights are small enough for pixels.
    """
    weight = node.inputs[1] if node.op_type == "Conv" else None
    if weight is not None and weight.const_value is not None:
        rows = weight.const_value.numpy().astype(np.float64)
        rows = rows.reshape(len(rows), -1)
        responses = np.square(128.0 * rows.sum(axis=1)) + np.square(64.0 * rows).sum(axis=1)
        return bool(responses.mean() < _MAX_RESPONSE**2)
    others = [other for other in node.inputs if other is not None and other is not value]
    producers = [other.producer() for other in others if not other.is_initializer()]
    constant = all(node is not None and node.op_type == "Constant" for node in producers)
    return node.op_type in _NORMALISING and constant


# Inputs that are not profiled as activations ---------------------------------------------------------------


def input_observations(model: ir.Model, observed: tuple[Observation, ...]) -> tuple[Observation, ...]:
    """Return observations of inputs that are no activations, such as integers; texts have no range."""
    names = {observation.name for observation in observed}
    values = [v for v in model.graph.inputs if v.name not in names and v.name not in model.graph.initializers]
    return tuple(
        Observation(str(v.name), v.dtype, v.shape, f"graph input '{v.name}'", input_only=True)
        for v in values
        if v.dtype is not None and v.dtype not in _NOT_ON_A_LINE
    )


def countable(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return an array as floats that the observers count: exact, except for integers beyond 2**53."""
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        return array
    return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
