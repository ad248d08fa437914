"""One output of both models, compared while the samples stream by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ModelError
from .sqnr import Channels, Difference, Sums, channels_of, range_ratio, sums_along

AnyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class ClassAxis:
    """Where an output has its classes, if it has any.

    Attributes:
        axis: of the classes, below 0 from the end, as the operator that computes the output says, or the
            user; None where nobody says. A matrix then has them along axis 1, its only one besides the rows.
        is_answer: whether the class of the largest value is an answer, and not just the largest number of an
            embedding, a box or an image.
    """

    axis: int | None = None
    is_answer: bool = False

    def axis_in(self, shape: tuple[int, ...]) -> int | None:
        """Return the axis in values of a shape; None where it is unknown, missing, or has one class only."""
        axis = 1 if self.axis is None and len(shape) == 2 else self.axis
        if axis is None or not -len(shape) <= axis < len(shape) or shape[axis] < 2:
            return None
        return axis % len(shape)


NO_CLASSES = ClassAxis()


@dataclass(frozen=True)
class Agreement:
    """How often both models give the same answer.

    Attributes:
        kind: "top-1" (the largest along the class axis of a float output; the first of equals), or "equal"
            (the elements of an integer, boolean or string output).
        same, total: answers that are the same, and all.
        ratio: same / total, in [0, 1].
    """

    kind: str
    same: int
    total: int
    ratio: float


@dataclass(frozen=True)
class OutputResult:
    """How one output compares.

    Attributes:
        name: of the output.
        dtype: of the float model's, as NumPy writes it; "" when no sample arrived.
        difference: over all elements; None for an output that is not floating-point, and when nothing could
            be compared.
        channels: the same by channel; None without a channel axis (see `channel_axes`).
        agreement: None for a float output whose largest value is no answer (see `class_axes`).
        shape_mismatches: samples whose shapes differed; they are in `Agreement.total` and in no difference.
    """

    name: str
    dtype: str
    difference: Difference | None
    channels: Channels | None
    agreement: Agreement | None
    shape_mismatches: int

    @property
    def is_float(self) -> bool:
        """Whether the output is floating-point, so that it has an SQNR when anything could be compared."""
        return self.dtype.startswith(("float", "bfloat"))


@dataclass(frozen=True, eq=False)
class OutputSums:
    """What is kept of one output; `OutputSums(classes)` before the first sample.

    Attributes:
        classes: where the output has its classes.
        dtype: of the float model's values.
        total: sums over all elements.
        by_axis: sums for each channel, by axis; an axis whose size changed between samples is dropped.
        kind, same, answers: of the agreement.
        mismatches: samples whose shapes differed.
    """

    classes: ClassAxis = NO_CLASSES
    dtype: str = ""
    total: Sums | None = None
    by_axis: Mapping[int, Sums] = field(default_factory=dict)
    kind: str = ""
    same: int = 0
    answers: int = 0
    mismatches: int = 0

    def added(self, floats: AnyArray, quantized: AnyArray) -> OutputSums:
        """Return the sums with one sample more."""
        kind, mine = answers(floats, self.classes)
        theirs = answers(quantized, self.classes)[1]
        counted = replace(
            self,
            dtype=str(floats.dtype),
            kind=kind or self.kind,
            answers=self.answers + (0 if mine is None else mine.size),
        )
        if floats.shape != quantized.shape:
            return replace(counted, mismatches=self.mismatches + 1)
        if mine is not None and theirs is not None:
            counted = replace(counted, same=self.same + int((mine == theirs).sum()))
        if not is_float(floats):
            return counted
        first = self.total is None
        axes = tuple(a for a in self.by_axis if a < floats.ndim)
        axes = channel_axes(floats.shape, self.classes) if first else axes
        total, *along = sums_along(floats, quantized, (None, *axes))
        by_axis = {
            axis: sums if first else self.by_axis[axis].added(sums)
            for axis, sums in zip(axes, along, strict=True)
            if first or sums.elements.size == self.by_axis[axis].elements.size
        }
        return replace(
            counted, total=total if self.total is None else self.total.added(total), by_axis=by_axis
        )

    def result(self, name: str) -> OutputResult:
        """Return the comparison of the output called `name`."""
        difference = None if self.total is None else self.total.difference()
        if difference is not None and difference.elements + difference.non_finite == 0:
            difference = None
        # The axis along which the ranges differ most; the last of equals, which mostly has the classes.
        axis = max(self.by_axis, key=lambda a: (range_ratio(self.by_axis[a].max_abs_value), a), default=None)
        channels = None if axis is None or difference is None else channels_of(self.by_axis[axis], axis)
        agreement = None
        if self.answers:
            agreement = Agreement(self.kind, self.same, self.answers, self.same / self.answers)
        return OutputResult(name, self.dtype, difference, channels, agreement, self.mismatches)


def is_float(values: AnyArray) -> bool:
    """Return whether the values are floating-point numbers; bfloat16 counts."""
    return values.dtype.kind == "f" or values.dtype.name in ("bfloat16",)


def answers(values: AnyArray, classes: ClassAxis) -> tuple[str, AnyArray | None]:
    """Return the kind of answer (as in `Agreement`) and the answers, flat in C order; ("", None) for none.

    There is one for every position outside the class axis, or one for each element of a non-float output.
    """
    if not is_float(values):
        return "equal", values.reshape(-1)
    axis = classes.axis_in(values.shape) if classes.is_answer else None
    return ("", None) if axis is None else ("top-1", np.argmax(values, axis=axis).reshape(-1))


def classes_of(values: AnyArray, classes: ClassAxis, where: str) -> npt.NDArray[np.int64]:
    """Return the class of every row of an output that labels belong to, flat in C order.

    Args:
        values: of the output: float with classes along an axis, or the integer classes themselves.
        classes: where it has its classes.
        where: what messages call the output.

    Raises:
        ModelError: it has no classes, or nobody says along which axis.
    """
    found = answers(values, replace(classes, is_answer=True))[1]
    if found is None or found.dtype.kind not in "iub":
        raise ModelError(
            f"{where}: {values.dtype} of shape {list(values.shape)} has no class axis to compare with "
            "labels; choose another output, or name its axis with --class-axis"
        )
    return found.astype(np.int64)


def class_count(values: AnyArray, classes: ClassAxis) -> int | None:
    """Return how many classes an output has; None where that is unknown, as for integer classes."""
    axis = classes.axis_in(values.shape) if is_float(values) else None
    return None if axis is None else values.shape[axis]


def declared_class_count(model: ir.Model, output: str | None, axis: int | None) -> int | None:
    """Return how many classes an output has by the model's own shapes; None where they do not say.

    Args:
        model: the float model.
        output: the output that labels belong to; None for the first.
        axis: of its classes, as the user says; None for what its operator says.

    Raises:
        ConfigError: the output has no such axis.
    """
    value = next((v for v in model.graph.outputs if output in (None, v.name)), None)
    if value is None or value.shape is None or value.dtype is None or not value.dtype.is_floating_point():
        return None
    sizes = [size if isinstance(size, int) else 0 for size in value.shape]
    at = class_axes(model, value.name, axis)[str(value.name)].axis_in(tuple(sizes))
    return None if at is None else sizes[at]


def channel_axes(shape: tuple[int, ...], classes: ClassAxis) -> tuple[int, ...]:
    """Return the axes whose indices may be channels of their own: that of the classes, where it is known.

    Else axis 1 and the last: a detector may have boxes and scores next to each other along either.
    """
    axis = classes.axis_in(shape)
    if axis is not None:
        return (axis,)
    return tuple(a for a in dict.fromkeys((1, len(shape) - 1)) if 0 < a < len(shape) and shape[a] > 1)


_SOFTMAX = ("Softmax", "LogSoftmax", "Hardmax")
_PRODUCTS = {"Gemm": -1, "MatMul": -1, "Conv": 1, "ConvTranspose": 1}
"""Operators that compute classes from features, and the axis along which they have them."""
_WITH_CONSTANT = ("Add", "Sub", "Mul", "Div")
_THROUGH = ("Identity", "Cast", "Dropout", "Sigmoid", "Resize", "Upsample", "Transpose")


def class_axes(model: ir.Model, output: str | None = None, axis: int | None = None) -> dict[str, ClassAxis]:
    """Return where the outputs of a model have their classes, by name.

    The axis is that of the last Softmax, Gemm, MatMul (the last axis) or Conv (axis 1), also before
    a Sigmoid, a Transpose, a Resize and arithmetic with a constant. The largest value is an answer after a
    Softmax, and after a Sigmoid, Gemm or MatMul of shape [rows, classes]: others may be boxes,
    embeddings or images, whose largest value means nothing.

    Args:
        model: the float model.
        output: the output that labels belong to, whose largest value is an answer whatever it ends in.
        axis: of its classes, as the user says; None for what its operator says.

    Raises:
        ConfigError: the output has no such axis.
    """
    opset = model.opset_imports.get("", 0)
    found = {str(value.name): _class_axis(value, opset) for value in model.graph.outputs}
    if output is None or output not in found:
        return found
    (value,) = (v for v in model.graph.outputs if v.name == output)
    rank = None if value.shape is None else len(value.shape)
    if axis is not None and rank is not None and not -rank <= axis < rank:
        raise ConfigError(f"class axis {axis}: output '{output}' has {rank} axes; give {-rank} to {rank - 1}")
    return {**found, output: ClassAxis(found[output].axis if axis is None else axis, True)}


def _class_axis(output: ir.Value, opset: int) -> ClassAxis:
    value, orders, passed = output, [], set()
    while (node := value.producer()) is not None and (source := _source(node)) is not None:
        passed.add(node.op_type)
        if node.op_type == "Transpose":
            order = node.attributes.get_ints("perm")
            if order is None:
                return NO_CLASSES
            orders.append(list(order))
        value = source
    rows = output.shape is not None and len(output.shape) == 2
    if node is None or node.domain not in ("", "ai.onnx"):
        return ClassAxis(None, rows and "Sigmoid" in passed)
    axis = _softmax_axis(node, opset) if node.op_type in _SOFTMAX else _PRODUCTS.get(node.op_type)
    for order in reversed(orders):
        axis = None if axis is None else order.index(axis % len(order))
    is_answer = rows and ("Sigmoid" in passed or node.op_type in ("Gemm", "MatMul"))
    return ClassAxis(axis, is_answer or (node.op_type in _SOFTMAX and axis is not None))


def _source(node: ir.Node) -> ir.Value | None:
    """Return the input whose axes the output of a node has too; None for an operator of another kind."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type in _THROUGH:
        return node.inputs[0]
    if node.op_type in _WITH_CONSTANT:
        others = [value for value in node.inputs if value is not None and not _is_constant(value)]
        return others[0] if len(others) == 1 else None
    return None


def _is_constant(value: ir.Value) -> bool:
    node = value.producer()
    return value.const_value is not None or (node is not None and node.op_type == "Constant")


def _softmax_axis(node: ir.Node, opset: int) -> int | None:
    """Return the axis of a Softmax; None where opset 12 or older normalises several axes together."""
    axis = node.attributes.get_int("axis", -1 if opset >= 13 else 1)
    shape = node.outputs[0].shape
    if opset >= 13 or axis == -1:
        return axis
    if shape is None:
        return None
    return axis if all(size == 1 for size in shape[axis + 1 :]) or axis == len(shape) - 1 else None
