"""One output of both models, compared while the samples stream by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from .sqnr import Channels, Difference, Sums, channels_of, range_ratio, sums_along

AnyArray = npt.NDArray[Any]


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
        agreement: None for a float output without classes (see `class_outputs`, `class_axis`).
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
    """What is kept of one output; `OutputSums()` before the first sample.

    Attributes:
        dtype: of the float model's values.
        total: sums over all elements.
        by_axis: sums for each channel, by axis; an axis whose size changed between samples is dropped.
        kind, same, answers: of the agreement.
        mismatches: samples whose shapes differed.
    """

    dtype: str = ""
    total: Sums | None = None
    by_axis: Mapping[int, Sums] = field(default_factory=dict)
    kind: str = ""
    same: int = 0
    answers: int = 0
    mismatches: int = 0

    def added(self, floats: AnyArray, quantized: AnyArray) -> OutputSums:
        """Return the sums with one sample more."""
        kind, mine = answers(floats)
        theirs = answers(quantized)[1]
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
        axes = channel_axes(floats.shape) if first else tuple(a for a in self.by_axis if a < floats.ndim)
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


def answers(values: AnyArray) -> tuple[str, AnyArray | None]:
    """Return the kind of answer (as in `Agreement`) and the answers, flat in C order; ("", None) for none.

    There is one for every position outside the class axis, or one for each element of a non-float output.
    """
    if not is_float(values):
        return "equal", values.reshape(-1)
    axis = class_axis(values.shape)
    return ("", None) if axis is None else ("top-1", np.argmax(values, axis=axis).reshape(-1))


def class_axis(shape: tuple[int, ...]) -> int | None:
    """Return the axis that has the classes, or None.

    Axis 1 of [batch, classes], the last of three ([batch, positions, classes]); with more axes the smaller of
    axis 1 (images, channels first) and the last (channels last). An axis of size 1 has no classes.
    """
    if len(shape) < 2:
        return None
    axis = len(shape) - 1
    if len(shape) > 3 and shape[1] <= shape[-1]:
        axis = 1
    return axis if shape[axis] > 1 else None


def channel_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes whose indices may be channels of their own: the class axis, and axis 1 of three.

    A detector may have boxes and scores next to each other along either.
    """
    axis = class_axis(shape)
    axes = () if axis is None else (axis,)
    return (1, *axes) if len(shape) == 3 and shape[1] > 1 else axes


_ACTIVATIONS = ("Softmax", "LogSoftmax", "Sigmoid")


def class_outputs(model: ir.Model) -> frozenset[str]:
    """Return the names of outputs of shape [rows, classes] that end in Softmax, LogSoftmax, Sigmoid, Gemm or
    MatMul, the latter with or without an Add.

    Other outputs may be boxes, embeddings or images, whose largest value means nothing.
    """
    return frozenset(
        output.name or ""
        for output in model.graph.outputs
        if output.shape is not None and len(output.shape) == 2 and _ends_in_classes(output)
    )


def _ends_in_classes(output: ir.Value) -> bool:
    last = output.producer()
    if last is None:
        return False
    if last.op_type == "Add":
        return any(value is not None and _maker(value) == "MatMul" for value in last.inputs)
    return last.op_type in (*_ACTIVATIONS, "Gemm", "MatMul")


def _maker(value: ir.Value) -> str:
    node = value.producer()
    return "" if node is None else node.op_type
