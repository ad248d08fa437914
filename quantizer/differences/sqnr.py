"""SQNR and other differences of a quantized tensor from its float original, from streaming sums.

Only a few float64 sums for each channel are kept of a sample, so that any amount of data can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
    """What `Difference` needs, for each channel; float64 and int64 arrays of shape [channels].

    Attributes:
        signal, energy: sums of f**2 and of q**2.
        dot: sum of f * q.
        noise: sum of (f - q)**2.
        max_abs_value: largest |f|.
        max_abs_error: largest |f - q|.
        non_finite, elements: counts, as in `Difference`.
    """

    signal: Array
    energy: Array
    dot: Array
    noise: Array
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
        """Return the difference over all channels, or over those with the given indices."""
        pick = slice(None) if channels is None else channels
        signal, energy, dot, noise = (
            float(a[pick].sum()) for a in (self.signal, self.energy, self.dot, self.noise)
        )
        non_finite = int(self.non_finite[pick].sum())
        return Difference(
            sqnr=-math.inf if non_finite else decibels(signal, noise),
            cosine=_cosine(signal, energy, dot, noise),
            max_abs_error=float(self.max_abs_error[pick].max(initial=0.0)),
            max_abs_value=float(self.max_abs_value[pick].max(initial=0.0)),
            elements=int(self.elements[pick].sum()),
            non_finite=non_finite,
        )


def _cosine(signal: float, energy: float, dot: float, noise: float) -> float:
    if noise == 0.0:
        return 1.0
    if signal == 0.0 or energy == 0.0 or math.isinf(signal) or math.isinf(energy):
        return 0.0
    return min(1.0, max(-1.0, dot / math.sqrt(signal) / math.sqrt(energy)))


def sums_along(
    floats: npt.NDArray[np.generic], quantized: npt.NDArray[np.generic], axes: tuple[int | None, ...]
) -> tuple[Sums, ...]:
    """Return the sums for each of `axes`: for every index along it, or in one channel for None.

    Args:
        floats, quantized: arrays of any numeric dtype and of the same shape.
        axes: which axes have channels.
    """
    f, q = np.asarray(floats, np.float64), np.asarray(quantized, np.float64)
    finite = np.isfinite(f) & np.isfinite(q)
    non_finite = np.zeros(f.shape, np.bool_)
    if not finite.all():
        non_finite = ~finite & (f != q) & ~(np.isnan(f) & np.isnan(q))
        f, q = np.where(finite, f, 0.0), np.where(finite, q, 0.0)
    with np.errstate(over="ignore"):  # float64 values beyond 1e154: the sums then say inf
        error = f - q
        added = (f * f, q * q, f * q, error * error)
    maxima = (np.abs(f), np.abs(error))
    return tuple(
        Sums(
            *(_split(a, axis).sum(axis=(0, 2)) for a in added),
            *(_split(a, axis).max(axis=(0, 2), initial=0.0) for a in maxima),
            *(_split(a, axis).sum(axis=(0, 2), dtype=np.int64) for a in (non_finite, finite)),
        )
        for axis in axes
    )


def _split(values: npt.NDArray[Any], axis: int | None) -> npt.NDArray[Any]:
    """View as [before, channels, after]."""
    if axis is None:
        return values.reshape(1, 1, -1)
    shape = values.shape
    return values.reshape(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


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
    broken = sums.non_finite > 0
    sqnrs = [
        -math.inf if b else decibels(s, n) for s, n, b in zip(sums.signal, sums.noise, broken, strict=True)
    ]
    worst = int(np.argmin(sqnrs))
    groups = tuple(
        ChannelGroup(_runs(members), sums.difference(members)) for members in range_groups(sums.max_abs_value)
    )
    return Channels(axis, len(sqnrs), worst, sums.difference(np.array([worst], np.intp)), groups)


def range_groups(maxima: Array) -> list[npt.NDArray[np.intp]]:
    """Return the indices of channels in groups of similar largest values, widest first.

    A group starts at its widest channel and takes every one that is at most GROUP_FACTOR times smaller.
    """
    floored = np.maximum(maxima, maxima.max() * GROUP_FLOOR)
    order = np.argsort(-floored, kind="stable")
    return [np.sort(np.array(members, np.intp)) for members in _grouped(floored, order)]


def _grouped(maxima: Array, order: npt.NDArray[np.intp]) -> Iterator[list[int]]:
    members: list[int] = []
    for index in order.tolist():
        if members and maxima[index] * GROUP_FACTOR < maxima[members[0]]:
            yield members
            members = []
        members.append(index)
    yield members


def _runs(indices: npt.NDArray[np.intp]) -> tuple[tuple[int, int], ...]:
    cuts = np.flatnonzero(np.diff(indices) != 1) + 1
    return tuple((int(part[0]), int(part[-1])) for part in np.split(indices, cuts))


def range_ratio(maxima: Array) -> float:
    """Return the largest over the smallest of the channels' largest values, at most 1 / GROUP_FLOOR.

    1.0 without any signal.
    """
    top = float(maxima.max(initial=0.0))
    return 1.0 if top == 0.0 else top / max(float(maxima.min()), top * GROUP_FLOOR)
