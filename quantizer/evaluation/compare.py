"""SQNR and other differences of quantized outputs from float ones, from streaming sums for each channel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ..noise.class_axes import NO_CLASSES, ClassAxis, class_axes
from ..numerics.quantization_noise import decibels

Array = npt.NDArray[np.float64]

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
        cosine: cosine similarity of both, in [-1, 1]; 1.0 when both are all zero, 0.0 when one is.
        max_abs_error: largest absolute difference.
        max_abs_value: largest absolute float value.
        elements: how many were compared.
        non_finite: elements that are NaN or Inf in one of the two and not the same in the other; they are in
            no sum.
    """

    sqnr: float
    cosine: float
    max_abs_error: float
    max_abs_value: float
    elements: int
    non_finite: int


@dataclass(frozen=True, eq=False)
class Sums:
    """The sums of `Difference` for each channel; float64 and int64 arrays [channels]."""

    signal: Array  # f**2
    energy: Array  # q**2
    dot: Array  # f * q
    noise: Array  # (f - q)**2
    max_abs_value: Array
    max_abs_error: Array
    non_finite: npt.NDArray[np.int64]
    elements: npt.NDArray[np.int64]

    def added(self, other: Sums) -> Sums:
        """Return the sums over both sets of elements; both must have the same channels."""
        return Sums(
            self.signal + other.signal,
            self.energy + other.energy,
            self.dot + other.dot,
            self.noise + other.noise,
            np.maximum(self.max_abs_value, other.max_abs_value),
            np.maximum(self.max_abs_error, other.max_abs_error),
            self.non_finite + other.non_finite,
            self.elements + other.elements,
        )

    def difference(self, channels: npt.NDArray[np.intp] | None = None) -> Difference:
        """Return the difference over all channels, or over those with some indices."""
        chosen = slice(None) if channels is None else channels
        signal, energy, dot, noise = (
            float(sums[chosen].sum()) for sums in (self.signal, self.energy, self.dot, self.noise)
        )
        cosine = 1.0
        if noise != 0.0:
            has_angle = 0.0 < signal < math.inf and 0.0 < energy < math.inf
            cosine = dot / math.sqrt(signal) / math.sqrt(energy) if has_angle else 0.0
        non_finite = int(self.non_finite[chosen].sum())
        return Difference(
            sqnr=-math.inf if non_finite else decibels(signal, noise),
            cosine=min(1.0, max(-1.0, cosine)),
            max_abs_error=float(self.max_abs_error[chosen].max(initial=0.0)),
            max_abs_value=float(self.max_abs_value[chosen].max(initial=0.0)),
            elements=int(self.elements[chosen].sum()),
            non_finite=non_finite,
        )


def sums_along(
    floats: npt.NDArray[np.generic], quantized: npt.NDArray[np.generic], axes: tuple[int | None, ...]
) -> tuple[Sums, ...]:
    """Return the sums of two arrays of one shape for every index along each of `axes`, or in one channel for
    None."""
    f, q = np.asarray(floats, np.float64), np.asarray(quantized, np.float64)
    finite = np.isfinite(f) & np.isfinite(q)
    non_finite = np.zeros(f.shape, np.bool_)
    if not finite.all():
        non_finite = ~finite & (f != q) & ~(np.isnan(f) & np.isnan(q))
        f, q = np.where(finite, f, 0.0), np.where(finite, q, 0.0)
    with np.errstate(over="ignore"):  # float64 values beyond 1e154: the sums then say inf
        error = f - q
        products = (f * f, q * q, f * q, error * error)
    maxima = (np.abs(f), np.abs(error))
    sums = []
    for axis in axes:
        by_channel: tuple[int, ...] = (1, 1, f.size)  # elements before, channels, elements after
        if axis is not None:
            by_channel = (math.prod(f.shape[:axis]), f.shape[axis], math.prod(f.shape[axis + 1 :]))
        sums.append(
            Sums(
                *(a.reshape(by_channel).sum(axis=(0, 2)) for a in products),
                *(a.reshape(by_channel).max(axis=(0, 2), initial=0.0) for a in maxima),
                *(a.reshape(by_channel).sum(axis=(0, 2), dtype=np.int64) for a in (non_finite, finite)),
            )
        )
    return tuple(sums)


def plus(sums: Sums | None, floats: npt.NDArray[Any], quantized: npt.NDArray[Any]) -> Sums:
    """Return the sums over all elements with those of one more pair of arrays of one shape."""
    (more,) = sums_along(floats, quantized, (None,))
    return more if sums is None else sums.added(more)


@dataclass(frozen=True)
class ChannelGroup:
    """Channels of about the same range, compared by themselves.

    Attributes:
        runs: their indices as (first, last) pairs, both included, ascending.
        difference: over these channels.
    """

    runs: tuple[tuple[int, int], ...]
    difference: Difference

    @property
    def text(self) -> str:
        """The indices as text, such as "0-3, 17"; a long list is cut short."""
        shown = [f"{a}-{b}" if a < b else f"{a}" for a, b in self.runs[:4]]
        return ", ".join(shown) + (", ..." if len(self.runs) > 4 else "")


@dataclass(frozen=True)
class Channels:
    """One output, channel by channel.

    Attributes:
        axis: which axis has the channels.
        count: how many.
        worst: index of the channel with the lowest SQNR (the first of equals).
        worst_difference: that channel alone.
        groups: channels grouped by range, widest first; more than one only where the ranges differ by more
            than GROUP_FACTOR. There the total says little about the small channels.
    """

    axis: int
    count: int
    worst: int
    worst_difference: Difference
    groups: tuple[ChannelGroup, ...]


def channels_of(sums: Sums, axis: int) -> Channels:
    """Return the comparison of each channel that `sums` were taken for."""
    sqnrs = [
        -math.inf if non_finite else decibels(signal, noise)
        for signal, noise, non_finite in zip(sums.signal, sums.noise, sums.non_finite, strict=True)
    ]
    worst = int(np.argmin(sqnrs))
    groups = []
    for members in range_groups(sums.max_abs_value):
        runs = np.split(members, np.flatnonzero(np.diff(members) != 1) + 1)
        ends = tuple((int(run[0]), int(run[-1])) for run in runs)
        groups.append(ChannelGroup(ends, sums.difference(members)))
    return Channels(axis, len(sqnrs), worst, sums.difference(np.array([worst], np.intp)), tuple(groups))


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


# One output of both models, compared while the samples stream by -----------------------------------------

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
        agreement: None for a float output whose largest value is no answer (see `class_axes`).
        shape_mismatches: samples whose shapes differed; of them the common part is in the differences (see
            `common_part`), and every answer of the longer one in `Agreement.total`.
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


@dataclass(eq=False)
class OutputSums:
    """The sums of one output, sample by sample."""

    classes: ClassAxis = NO_CLASSES  # where it has its classes
    dtype: str = ""  # of the float model's values
    total: Sums | None = None  # over all elements
    # axis -> sums for each channel; an axis whose size changed between samples is dropped
    by_axis: Mapping[int, Sums] = field(default_factory=dict)
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
            of_float, of_quantized = (answers(values, self.classes)[1] for values in common)
            if of_float is not None and of_quantized is not None:
                same = int((of_float == of_quantized).sum())
            self.same += same
            if is_float(floats):
                self._add_common(*common)
        return 1.0 - same / longest if longest else 0.0

    def _add_common(self, floats: AnyArray, quantized: AnyArray) -> None:
        """Add the sums of values of one shape."""
        is_first = self.total is None
        known = channel_axes(floats.shape, self.classes) if is_first else self.by_axis
        axes = tuple(axis for axis in known if axis < floats.ndim)
        total, *along = sums_along(floats, quantized, (None, *axes))
        self.total = total if self.total is None else self.total.added(total)
        self.by_axis = {
            axis: sums if is_first else self.by_axis[axis].added(sums)
            for axis, sums in zip(axes, along, strict=True)
            if is_first or sums.elements.size == self.by_axis[axis].elements.size
        }

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
    """Return the class count of an output (None: the first) by the model's own shapes, or None if they leave
    it open."""
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
    """How far the outputs differ on one sample.

    Attributes:
        sample: its name.
        output: the float output of which most answers changed, or else that differs most.
        sqnr: of that output on this sample alone, in dB; -inf for noise without a signal.
        changed: share of its answers, or of the objects that were found, that are others, 0 to 1.
    """

    sample: str
    output: str
    sqnr: float
    changed: float = 0.0
