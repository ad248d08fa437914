"""Where an output has its classes, told from the operators that make it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ..operators.facts import Classes, Values
from ..operators.table import facts_of, product_layout, rule_of
from ..operators.weight_layout import Kernel


@dataclass(frozen=True)
class ClassAxis:
    """Where an output has its classes, if it has any."""

    axis: int | None = None  # below 0 from the end; None if nobody says: a matrix then has them along axis 1
    is_answer: bool = False  # the largest value is an answer, not just the largest number of a box

    def axis_in(self, shape: tuple[int, ...]) -> int | None:
        """Return the axis in values of a shape; None if it is unknown, missing, or has one class only."""
        axis = 1 if self.axis is None and len(shape) == 2 else self.axis
        if axis is None or not -len(shape) <= axis < len(shape) or shape[axis] < 2:
            return None
        return axis % len(shape)


NO_CLASSES = ClassAxis()


def class_axes(model: ir.Model, output: str | None = None, axis: int | None = None) -> dict[str, ClassAxis]:
    """Return the class axis of each output of a float model, by name.

    The axis is that of the last Softmax, Gemm, MatMul (the last axis) or Conv (axis 1), also before a
    Sigmoid, a Transpose, a Resize and arithmetic with a constant. Labels belong to `output`: its largest
    value is always an answer, and `axis`, if given, is its class axis. Raises ConfigError if the output has
    no such axis.
    """
    axes = {str(value.name): class_axis_of(value) for value in model.graph.outputs}
    if output is None or output not in axes:
        return axes
    (value,) = (v for v in model.graph.outputs if v.name == output)
    rank = None if value.shape is None else len(value.shape)
    if axis is not None and rank is not None and not -rank <= axis < rank:
        raise ConfigError(f"class axis {axis}: output '{output}' has {rank} axes; give {-rank} to {rank - 1}")
    return {**axes, output: ClassAxis(axes[output].axis if axis is None else axis, True)}


def class_axis_of(output: ir.Value) -> ClassAxis:
    """Return the class axis of an output by its operators; see `class_axes`."""
    value, orders, apart = output, [], False
    while (node := value.producer()) is not None and (source := _source(node)) is not None:
        facts = facts_of(node)
        apart = apart or facts.classes is Classes.APART
        if facts.values is Values.PERMUTED:
            order = node.attributes.get_ints("perm")
            if order is None:
                return NO_CLASSES
            orders.append(list(order))
        value = source
    rows = output.shape is not None and len(output.shape) == 2
    if node is None:
        return ClassAxis(None, rows and apart)
    product, competes = product_layout(node), facts_of(node).classes is Classes.COMPETE
    is_matrix = product is not None and product.kernel is Kernel.NONE
    features = None if product is None else -1 if is_matrix else product.result_axis
    axis = _softmax_axis(node) if competes else features
    for order in reversed(orders):
        axis = None if axis is None else order.index(axis % len(order))
    is_answer = rows and (apart or is_matrix)
    return ClassAxis(axis, is_answer or (competes and axis is not None))


def _source(node: ir.Node) -> ir.Value | None:
    """Return the input whose axes the output of a node has too; None for an operator of another kind."""
    rule = rule_of(node)
    if facts_of(node).classes in (Classes.APART, Classes.CARRIED):
        return node.inputs[0]
    if rule is not None and rule.is_affine:
        others = [value for value in node.inputs if value is not None and not _is_constant(value)]
        return others[0] if len(others) == 1 else None
    return None


def _is_constant(value: ir.Value) -> bool:
    node = value.producer()
    return value.const_value is not None or (node is not None and facts_of(node).values is Values.CONSTANT)


def _softmax_axis(node: ir.Node) -> int | None:
    """Return the axis of a Softmax; None if, in opset 12 or older, it normalises several together."""
    body = node.graph
    opset = 0 if body is None else body.opset_imports.get("", 0)
    axis = node.attributes.get_int("axis", -1 if opset >= 13 else 1)
    shape = node.outputs[0].shape
    if opset >= 13 or axis == -1:
        return axis
    if shape is None:
        return None
    return axis if all(size == 1 for size in shape[axis + 1 :]) or axis == len(shape) - 1 else None
