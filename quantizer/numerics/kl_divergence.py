"""Clipping thresholds of least Kullback-Leibler divergence, as Glow's optimizeKL finds them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

BATCH = 1 << 15
"""Elements of a batch of windows: the working set then stays in cache."""

SMOOTHING = np.float32(1e-4)
"""Count that a bin without elements is given, taken from those that have some."""


def optimize_kl(
    counts: Counts, minimum: float, maximum: float, levels: int = 255, symmetric: bool = False
) -> tuple[float, float]:
    """Return the range whose histogram, cut to it and quantized to `levels`, diverges least from the whole.

    Bit for bit the results of Glow SPEC E.2 and E.3: every sum is one of float32 from left to right.
    `symmetric` shrinks both sides at the same pace, and returns them in the ratio of minimum to maximum,
    which are then not 0.
    """
    n = counts.size
    if n < max(levels, 1):
        return minimum, maximum
    first, last = _best_window(np.asarray(counts, np.float32).tobytes(), levels, symmetric)
    low, width = np.float32(minimum), (np.float32(maximum) - np.float32(minimum)) / np.float32(n)
    cut_low = float(low + np.float32(first) * width)
    cut_high = float(low + np.float32(last + 1) * width)
    if symmetric:
        below, above = cut_low / minimum, cut_high / maximum
        if below > above:
            cut_high = float(np.float32(below * maximum))
        else:
            cut_low = float(np.float32(above * minimum))
    return cut_low, cut_high


@lru_cache(1024)
def _best_window(counts_bytes: bytes, levels: int, symmetric: bool) -> tuple[int, int]:
    """Return first and last bin of the window that diverges least, cached: plans share most histograms."""
    counts = np.frombuffer(counts_bytes, np.float32)
    first, last = _windows(counts, levels, symmetric)
    divergence = np.concatenate(
        [_divergences(counts, a, z, levels) for a, z in _batches(first, last, levels)]
    )
    best = int(np.argmin(divergence))
    return int(first[best]), int(last[best])


def _windows(counts: Counts, levels: int, symmetric: bool) -> tuple[Indices, Indices]:
    """Return first and last bin of every window, each smaller than the one before it by two bins.

    The pair of bins with the smallest count is dropped; if symmetric, one at either end.
    """
    hist = list(counts)  # float32 scalars: their sums round as Glow's do
    a, z = 0, len(hist) - 1
    found = []
    while z - a + 1 >= levels:
        found.append((a, z))
        if symmetric or z - a < 1:
            a, z = a + 1, z - 1
            continue
        both, left, right = hist[a] + hist[z], hist[a] + hist[a + 1], hist[z] + hist[z - 1]
        if both <= left and both <= right:
            a, z = a + 1, z - 1
        elif left <= right:
            a += 2
        else:
            z -= 2
    pairs = np.array(found, np.int64)
    return pairs[:, 0], pairs[:, 1]


def _batches(first: Indices, last: Indices, levels: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield runs of windows that share the number of bins to a level, so that one reshape serves them all."""
    start = 0
    while start < first.size:
        length = int(last[start] - first[start]) + 1
        # Windows shrink by two bins, and may do so while length // levels stays what it is.
        same = (length - length // levels * levels) // 2 + 1
        stop = min(start + same, start + max(BATCH // length, 1), first.size)
        yield first[start:stop], last[start:stop]
        start = stop


def _divergences(counts: Counts, first: Indices, last: Indices, levels: int) -> Counts:
    """Return the divergence of each window [first, last]; all have the same length // levels."""
    length = last - first + 1
    shortest, longest = int(length[-1]), int(length[0])
    # Rows are padded with zeros, which change no sum; only the columns from `shortest` on hold any.
    padding = np.arange(shortest, longest) >= length[:, None]
    window = np.zeros((length.size, longest), np.float32)
    for row, a, z in zip(window, first.tolist(), last.tolist(), strict=True):
        row[: z - a + 1] = counts[a : z + 1]
    outliers = window.copy()
    outliers[:, 0] = np.add.accumulate(counts)[first]
    outliers[np.arange(length.size), length - 1] = [np.add.accumulate(counts[z:])[-1] for z in last.tolist()]
    filled = outliers != 0
    quantized = _quantized(window, levels)
    quantized *= filled
    p = _smoothed(outliers, filled, length)
    q = _smoothed(quantized, quantized != 0, length)
    p[:, shortest:][padding] = 0
    q[:, shortest:][padding] = 0
    p_total, q_total = row_sums(p)[:, None], row_sums(q)[:, None]
    empty = (p_total == 0) | (q_total == 0)
    p /= p_total + empty
    q /= q_total + empty
    used = (p > 0) & (q > 0)
    unused = ~used
    # The logarithm is rounded from float64: right to the last bit, whatever the machine's logf is.
    ratio = ((p + unused) / (q + unused)).astype(np.float64)
    term = p * np.log(ratio, out=ratio).astype(np.float32)
    term *= used
    total = row_sums(term)
    total[empty[:, 0]] = 0
    return total


def rescale_histogram(
    counts: Counts, source: tuple[float, float], destination: tuple[float, float]
) -> Counts:
    """Return the histogram over another range, with as many bins (Glow SPEC E.2, step 1).

    Each bin adds its count to the destination bins that it overlaps, in order, in whole numbers rounded half
    away from zero; a remainder is dropped. The ends are float32-exact, and `source` is not empty.
    """
    n = counts.size
    if n == 0 or source == destination:
        return counts.copy()
    bins, size = np.float32(n), np.float32
    low, width = size(source[0]), (size(source[1]) - size(source[0])) / bins
    start, step = size(destination[0]), (size(destination[1]) - size(destination[0])) / bins
    index = np.flatnonzero(counts)
    left, right = low + index.astype(size) * width, low + (index + 1).astype(size) * width
    first = np.clip(np.floor((left - start) / step), 0, n - 1).astype(np.int64)
    last = np.clip(np.ceil((right - start) / step), 0, n - 1).astype(np.int64)
    out, rest = np.zeros(n, size), counts[index].copy()
    for k in range(int((last - first).max(initial=-1)) + 1):
        into = first + k
        inside = into <= last
        begin, end = start + into.astype(size) * step, start + (into + 1).astype(size) * step
        share = np.clip((np.minimum(right, end) - np.maximum(left, begin)) / width, 0, 1)
        give = np.where(inside, np.minimum(_rounded_away(share * counts[index]), rest), size(0))
        np.add.at(out, np.where(inside, into, 0), give)
        rest -= give
    return out


def _rounded_away(values: Counts) -> Counts:
    whole = np.trunc(values)
    return np.asarray(whole + (values - whole >= np.float32(0.5)), np.float32)


def row_sums(values: Counts) -> Counts:
    """Return the float32 sum of every row of a matrix, strictly from left to right.

    Along the slow axis of an array numpy adds whole rows in order (its pairwise summation is for the fast
    axis only).
    """
    if values.shape[0] == 1:
        return np.asarray(np.add.accumulate(values, axis=1)[:, -1])
    return np.asarray(np.add.reduce(values.T.copy(), axis=0))


def _quantized(window: Counts, levels: int) -> Counts:
    """Return each level's sum spread evenly over its non-zero bins; the last level takes the remainder."""
    rows, columns = window.shape
    each = columns // levels
    levelled = window[:, : levels * each].reshape(rows, levels, each)
    total, count = levelled[:, :, 0].copy(), (levelled[:, :, 0] != 0).astype(np.float32)
    for k in range(1, each):
        total += levelled[:, :, k]
        count += levelled[:, :, k] != 0
    tail = window[:, levels * each :]
    total[:, -1] = np.add.accumulate(np.concatenate([total[:, -1:], tail], axis=1), axis=1)[:, -1]
    count[:, -1] += np.count_nonzero(tail, axis=1)
    total /= np.maximum(count, np.float32(1))
    spread = np.empty_like(window)
    spread[:, : levels * each] = np.repeat(total, each, axis=1)
    spread[:, levels * each :] = total[:, -1:]
    return spread


def _smoothed(values: Counts, filled: npt.NDArray[np.bool_], length: Indices) -> Counts:
    """Return each row with a little taken from its non-zero elements and given to its zeros."""
    nonzeros = np.count_nonzero(filled, axis=1)
    zeros = length - nonzeros
    taken = SMOOTHING * zeros.astype(np.float32) / np.maximum(nonzeros, 1).astype(np.float32)
    use = (nonzeros > 0) & (taken < 1)
    less, more = np.where(use, taken, np.float32(0)), np.where(use, SMOOTHING, np.float32(0))
    smoothed = values - filled * less[:, None]
    smoothed += ~filled * more[:, None]
    return smoothed
