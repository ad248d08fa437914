"""Samples that stand out, and ranges that are still growing, from the extremes of all tensors. Pure.

Samples are taken as exchangeable: drawn alike, in any order. So every figure is the same for every order of
the samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from .extremes import Extreme, Extremes

if TYPE_CHECKING:
    from ..records.profile import TensorProfile

UNUSUAL = 0.01
"""Probability at which a sample stands out, for all samples together."""

LEAST_RUNS = 8
"""Samples from which on one of them can stand out."""

WORST = 3
"""Samples that stand out and are named."""


@dataclass(frozen=True)
class Widening:
    """By how much one sample alone widens the range of a tensor.

    Attributes:
        tensor: its name.
        sample: the name of the sample.
        digest: of the sample.
        share: of the width without it, which is extended to 0 as quantized types represent 0.
    """

    tensor: str
    sample: str
    digest: str
    share: float


@dataclass(frozen=True)
class Outlier:
    """A sample that holds the extremes of unusually many tensors.

    Attributes:
        sample: its name.
        ends: of how many ranges it made an end.
        expected: how many that are on average for a sample.
        of: of how many ends it is known which single sample made them.
        example: the tensor whose range it widens most; None where it widens none.
    """

    sample: str
    ends: int
    expected: float
    of: int
    example: Widening | None

    @property
    def sentence(self) -> str:
        """The outlier as a sentence."""
        text = (
            f"sample {self.sample} makes {self.ends} of {self.of} ends of ranges, where {self.expected:.3g} "
            "are usual"
        )
        if self.example is None:
            return text
        return f"{text}; it widens that of '{self.example.tensor}' by {_percent(self.example.share)}"


def widening(name: str, extremes: Extremes | None) -> Widening | None:
    """Return how much the sample that widens the range of a tensor most widens it; None for none."""
    if extremes is None or len(extremes.lowest) < 2 or len(extremes.highest) < 2:
        return None
    whole = _width(extremes.lowest[0].value, extremes.highest[0].value)
    found = []
    for sample in (extremes.lowest[0], extremes.highest[0]):
        low, high = _without(extremes.lowest, sample), _without(extremes.highest, sample)
        width = _width(low, high)
        share = whole / width - 1.0 if width else math.inf
        if whole > width:
            found.append(Widening(name, sample.name, sample.digest, share))
    return max(found, key=lambda w: (w.share, w.digest), default=None)


def _without(end: tuple[Extreme, ...], sample: Extreme) -> float:
    return end[1].value if end[0].digest == sample.digest else end[0].value


def _width(low: float, high: float) -> float:
    return max(high, 0.0) - min(low, 0.0)


def growth(extremes: Extremes | None) -> float | None:
    """Return by what share as many samples again are expected to widen the range of a tensor.

    Of n + 1 exchangeable samples each is the largest with probability 1 / (n + 1), and then it is above all
    others by the distance D of the two largest. So one more sample adds D / (n + 1) on average, and samples
    n + 1 to 2 n about D ln 2, with the D of the n samples as its estimate; at both ends alike. For a single
    tensor that is a rough guess: use the median of many.
    """
    if extremes is None or len(extremes.lowest) < 2 or len(extremes.highest) < 2:
        return None
    whole = _width(extremes.lowest[0].value, extremes.highest[0].value)
    inner = _width(extremes.lowest[1].value, extremes.highest[1].value)
    return (whole - inner) / whole * math.log(2.0) if whole else None


def median_growth(tensors: Mapping[str, TensorProfile]) -> float:
    """Return the median of `growth` over tensors; 0 where it is known of none."""
    found = [share for t in tensors.values() if (share := growth(t.extremes)) is not None]
    return median(found) if found else 0.0


def widenings(tensors: Mapping[str, TensorProfile], least: float) -> list[Widening]:
    """Return the ranges that one sample alone widens by a share of at least `least`, the most first."""
    found = (widening(name, tensor.extremes) for name, tensor in tensors.items())
    return sorted((w for w in found if w is not None and w.share >= least), key=lambda w: -w.share)


# Outliers --------------------------------------------------------------------------------------------------


def outliers(tensors: Mapping[str, TensorProfile], runs: int) -> tuple[Outlier, ...]:
    """Return the samples that hold the extremes of unusually many tensors, at most `WORST`, the worst first.

    Only ends of ranges are counted that one sample alone has made: after a Relu all minima are 0. Were all
    ends independent, each of `runs` samples would make a binomial number of them, on average their number
    over `runs`. They are not: a large value goes on through many layers, so that counts are spread more. How
    much more is estimated from the counts of the other samples (variance over mean, at least 1: the
    dispersion of a quasi-binomial model, McCullagh and Nelder, "Generalized Linear Models", section 4.5),
    and both the count and the number of ends are divided by it. A sample stands out where the probability of
    as many or more, times the number of samples (Bonferroni), is below `UNUSUAL`.

    Args:
        tensors: with extremes.
        runs: number of samples.
    """
    held = dict[str, list[str]]()
    names = dict[str, str]()
    for name, tensor in tensors.items():
        for extreme in _single(tensor.extremes):
            held.setdefault(extreme.digest, []).append(name)
            names[extreme.digest] = extreme.name
    of = sum(map(len, held.values()))
    if runs < LEAST_RUNS or not of:
        return ()
    counts = {digest: len(ends) for digest, ends in held.items()}
    chances = {digest: runs * _chance(counts, digest, runs) for digest in counts}
    worst = sorted((d for d in counts if chances[d] < UNUSUAL), key=lambda d: (-counts[d], d))[:WORST]
    return tuple(
        Outlier(names[d], counts[d], of / runs, of, _example(d, {n: tensors[n] for n in held[d]}))
        for d in worst
    )


def _single(extremes: Extremes | None) -> Iterator[Extreme]:
    """Yield the samples that alone made an end of a range."""
    for end in () if extremes is None else (extremes.lowest, extremes.highest):
        if len(end) > 1 and end[0].value != end[1].value:
            yield end[0]


def _example(digest: str, tensors: Mapping[str, TensorProfile]) -> Widening | None:
    found = (widening(name, tensor.extremes) for name, tensor in tensors.items())
    own = [w for w in found if w is not None and w.digest == digest]
    return max(own, key=lambda w: w.share, default=None)


def _chance(counts: Mapping[str, int], digest: str, runs: int) -> float:
    """Return the probability that a sample makes as many ends as one does, or more."""
    others = [count for other, count in counts.items() if other != digest]
    mean = sum(others) / (runs - 1)
    squares = sum((count - mean) ** 2 for count in others) + (runs - 1 - len(others)) * mean**2
    dispersion = max(1.0, squares / (runs - 2) / mean) if mean else 1.0
    trials = round(sum(counts.values()) / dispersion)
    return binomial_tail(trials, 1.0 / runs, math.ceil(counts[digest] / dispersion))


def binomial_tail(trials: int, chance: float, least: int) -> float:
    """Return the probability of at least `least` successes."""
    if least <= 0:
        return 1.0
    logs = (
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(chance)
        + (trials - k) * math.log1p(-chance)
        for k in range(least, trials + 1)
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


def _percent(share: float) -> str:
    return "all of it" if math.isinf(share) else f"{100.0 * share:.3g} %"
