"""SQNR and equal answers of quantized outputs and float ones, from streaming sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ..noise.class_axes import NO_CLASSES, ClassAxis, class_axes
from ..numerics.quantization_noise import decibels

Array = npt.NDArray[np.float64]
AnyArray = npt.NDArray[Any]

GROUP_FACTOR = 16.0
"""Channels whose largest values differ by more than this factor are in different groups: a shared 8-bit scale
would leave the smaller one 4 of its 8 bits."""

GROUP_FLOOR = GROUP_FACTOR**-4
"""Largest values below this fraction of the overall largest count as equal to it."""


@dataclass(frozen=True)
class Difference:
    """The difference of a quantized tensor from the float one, over all samples.

    Attributes:
        sqnr: signal-to-quantization-noise ratio in dB, 10 log10(sum f**2 / sum (f - q)**2). `inf` when
            nothing differs; `-inf` when the float tensor is all zero and the other is not, or
            when `non_finite` is not 0.
        max_abs_value: largest absolute float value.
        non_finite: elements that are NaN or Inf in one of the two and not the same in the other; they are in
            no sum.
    """

    sqnr: float
    max_abs_value: float
    non_finite: int


@dataclass(frozen=True)
class Sums:
    """The sums of `Difference` over all elements of a tensor, sample by sample."""

    signal: float = 0.0  # of f**2
    noise: float = 0.0  # of (f - q)**2
    max_abs_value: float = 0.0
    non_finite: int = 0
    elements: int = 0  # those that are finite in both

    def plus(self, floats: AnyArray, quantized: AnyArray) -> Sums:
        """Return the sums with those of one more pair of arrays of one shape."""
        f, q, finite, non_finite = _finite_pair(floats, quantized)
        with np.errstate(over="ignore"):  # float64 values beyond 1e154: the sums then say inf
            signal, noise = float((f * f).sum()), float(((f - q) ** 2).sum())
        return Sums(
            self.signal + signal,
            self.noise + noise,
            max(self.max_abs_value, float(np.abs(f).max(initial=0.0))),
            self.non_finite + non_finite,
            self.elements + finite,
        )

    @property
    def difference(self) -> Difference | None:
        """The difference; None if nothing was compared."""
        if not self.elements + self.non_finite:
            return None
        sqnr = -math.inf if self.non_finite else decibels(self.signal, self.noise)
        return Difference(sqnr, self.max_abs_value, self.non_finite)


def _finite_pair(floats: AnyArray, quantized: AnyArray) -> tuple[Array, Array, int, int]:
    """Return float64 values, 0 if one is not finite; the numbers of finite and of other differing ones."""
    f, q = np.asarray(floats, np.float64), np.asarray(quantized, np.float64)
    finite = np.isfinite(f) & np.isfinite(q)
    if finite.all():
        return f, q, f.size, 0
    non_finite = ~finite & (f != q) & ~(np.isnan(f) & np.isnan(q))
    return np.where(finite, f, 0.0), np.where(finite, q, 0.0), int(finite.sum()), int(non_finite.sum())


def by_range(
    floats: Sequence[AnyArray], quantized: Sequence[AnyArray], axis: int | None
) -> Iterator[tuple[float, Array, Array]]:
    """Yield largest value, signals and noises by sample of channels of about one range; None: one channel."""
    maxima, signal, noise = [], [], []
    for pair in zip(floats, quantized, strict=True):
        f, q, _, _ = _finite_pair(*pair)
        sizes: tuple[int, ...] = (f.size, 1, 1)  # elements before, channels, elements after
        if axis is not None:
            at = axis % f.ndim
            sizes = (math.prod(f.shape[:at]), f.shape[at], math.prod(f.shape[at + 1 :]))
        maxima.append(np.abs(f).reshape(sizes).max(axis=(0, 2), initial=0.0))
        signal.append((f * f).reshape(sizes).sum(axis=(0, 2)))
        noise.append(((f - q) ** 2).reshape(sizes).sum(axis=(0, 2)))
    largest = np.max(maxima, axis=0)
    for members in range_groups(largest):
        of_signal, of_noise = (np.array([one[members].sum() for one in of]) for of in (signal, noise))
        yield float(largest[members].max()), of_signal, of_noise


def range_groups(maxima: Array) -> list[npt.NDArray[np.intp]]:
    """Return the indices of channels in groups within GROUP_FACTOR of the widest of each, widest first."""
    floored = np.maximum(maxima, maxima.max() * GROUP_FLOOR)
    groups: list[list[int]] = []
    for index in np.argsort(-floored, kind="stable").tolist():
        if not groups or floored[index] * GROUP_FACTOR < floored[groups[-1][0]]:
            groups.append([])
        groups[-1].append(index)
    return [np.sort(np.array(members, np.intp)) for members in groups]


def range_ratio(maxima: Array) -> float:
    """Return the largest over the smallest largest value, at most 1 / GROUP_FLOOR; 1.0 without any signal."""
    top = float(maxima.max(initial=0.0))
    return 1.0 if top == 0.0 else top / max(float(maxima.min()), top * GROUP_FLOOR)


def column_axis(
    values: Sequence[AnyArray], classes: ClassAxis, free: frozenset[int] = frozenset()
) -> int | None:
    """Return the axis of columns, each its own quantity, by classes or differing ranges; None for none."""
    shape = values[0].shape
    axes = [
        axis
        for axis in channel_axes(shape, classes)
        if axis % len(shape) not in free
        and all(v.ndim == len(shape) and v.shape[axis] == shape[axis] for v in values)
    ]

    def ratio(axis: int) -> float:
        rest = tuple(a for a in range(len(shape)) if a != axis)
        return range_ratio(np.max([np.abs(v).max(axis=rest, initial=0.0) for v in values], axis=0))

    return max(axes, key=lambda axis: (ratio(axis), axis)) if len(axes) > 1 else next(iter(axes), None)


# One output of both models, compared while the samples stream by -----------------------------------------


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
        agreement: None for a float output whose largest value is no answer (see `class_axes`).
        shape_mismatches: samples whose shapes differed; of them the common part is in the differences (see
            `common_part`), and every answer of the longer one in `Agreement.total`.
    """

    name: str
    dtype: str
    difference: Difference | None
    agreement: Agreement | None
    shape_mismatches: int

    @property
    def is_float(self) -> bool:
        """Whether the output is floating-point, so that it has an SQNR when anything could be compared."""
        return self.dtype.startswith(("float", "bfloat"))


@dataclass(eq=False)
class OutputSums:
    """The sums of one output, sample by sample."""

    classes: ClassAxis = NO_CLASSES  # where it has its classes
    dtype: str = ""  # of the float model's values
    total: Sums = Sums()
    kind: str = ""  # of the agreement
    same: int = 0
    answers: int = 0
    mismatches: int = 0  # samples whose shapes differed

    def add(self, floats: AnyArray, quantized: AnyArray) -> float:
        """Take one sample more; return the share of its answers that changed, 0 without answers."""
        kind, of_float = answers(floats, self.classes)
        _, of_quantized = answers(quantized, self.classes)
        longest = max(0 if each is None else each.size for each in (of_float, of_quantized))
        self.dtype, self.kind = str(floats.dtype), kind or self.kind
        self.answers += longest
        self.mismatches += floats.shape != quantized.shape
        same, common = 0, common_part(floats, quantized)
        if common is not None:
            if floats.shape != quantized.shape:
                of_float, of_quantized = (answers(values, self.classes)[1] for values in common)
            if of_float is not None and of_quantized is not None:
                same = int((of_float == of_quantized).sum())
            self.same += same
            if is_float(floats):
                self.total = self.total.plus(*common)
        return 1.0 - same / longest if longest else 0.0

    def result(self, name: str) -> OutputResult:
        """Return the comparison of the output called `name`."""
        agreement = None
        if self.answers:
            agreement = Agreement(self.kind, self.same, self.answers, self.same / self.answers)
        return OutputResult(name, self.dtype, self.total.difference, agreement, self.mismatches)


def common_part(floats: AnyArray, quantized: AnyArray) -> tuple[AnyArray, AnyArray] | None:
    """Return the values of two outputs at the same places, each axis cut to the shorter of both, or None."""
    if floats.shape == quantized.shape:
        return floats, quantized
    common = tuple(slice(min(sizes)) for sizes in zip(floats.shape, quantized.shape, strict=False))
    if floats.ndim != quantized.ndim or not floats[common].size:
        return None
    return floats[common], quantized[common]


def is_float(values: AnyArray) -> bool:
    """Return whether the values are an array of floating-point numbers; bfloat16 counts."""
    if not isinstance(values, np.ndarray):  # a sequence, or maps
        return False
    return values.dtype.kind == "f" or values.dtype.name in ("bfloat16",)


def answers(values: AnyArray, classes: ClassAxis) -> tuple[str, AnyArray | None]:
    """Return the kind of answer (as in `Agreement`), and the answers flat in C order; ("", None) for none."""
    if not is_float(values):
        return "equal", values.reshape(-1)
    axis = classes.axis_in(values.shape) if classes.is_answer else None
    return ("", None) if axis is None else ("top-1", np.argmax(values, axis=axis).reshape(-1))


def classes_of(values: AnyArray, classes: ClassAxis, where: str) -> npt.NDArray[np.int64]:
    """Return the class of every row of an output with labels, flat in C order, or raise ModelError."""
    _, of_rows = answers(values, replace(classes, is_answer=True))
    if of_rows is None or of_rows.dtype.kind not in "iub":
        raise ModelError(
            f"{where}: {values.dtype} of shape {list(values.shape)} has no class axis to compare with "
            "labels; choose another output, or name its axis with --class-axis"
        )
    return of_rows.astype(np.int64)


def class_count(values: AnyArray, classes: ClassAxis) -> int | None:
    """Return the number of classes of an output, or None if it is unknown, as for integer classes."""
    axis = classes.axis_in(values.shape) if is_float(values) else None
    return None if axis is None else values.shape[axis]


def declared_class_count(model: ir.Model, output: str | None, axis: int | None) -> int | None:
    """Return the class count of an output (None: the first) by the model's own shapes, or None if open."""
    value = next((v for v in model.graph.outputs if output in (None, v.name)), None)
    if value is None or value.shape is None or value.dtype is None or not value.dtype.is_floating_point():
        return None
    sizes = [size if isinstance(size, int) else 0 for size in value.shape]
    at = class_axes(model, value.name, axis)[str(value.name)].axis_in(tuple(sizes))
    return None if at is None else sizes[at]


def channel_axes(shape: tuple[int, ...], classes: ClassAxis) -> tuple[int, ...]:
    """Return the axis of the classes, or if it is unknown, axis 1 and the last: each may have channels."""
    axis = classes.axis_in(shape)
    if axis is not None:
        return (axis,)
    return tuple(a for a in dict.fromkeys((1, len(shape) - 1)) if 0 < a < len(shape) and shape[a] > 1)


@dataclass(frozen=True)
class SampleDifference:
    """How far the outputs differ on one sample."""

    sample: str  # its name
    output: str  # the float output with the most changed answers, or with the largest difference
    sqnr: float  # in dB, of that output on this sample; -inf for noise without a signal
    changed: float = 0.0  # share of its answers, or of the objects that were found, that are others, 0 to 1
