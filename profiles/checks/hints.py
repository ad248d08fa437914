"""What a profile tells about the data that it was made of, in sentences with what to do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .input_checks import input_hints
from .outliers import LEAST_RUNS, median_growth, outliers, widenings

if TYPE_CHECKING:
    from ..records.profile import Profile, TensorProfile

STILL_GROWING = 0.05
"""Share by which as many samples again may widen the median range: a twentieth costs 0.4 dB."""

ONE_SAMPLE = 0.4
"""Share by which one sample alone may widen a range: 0.4 costs 3 dB, half a bit."""

FEW = 8
"""Fewer samples are few: a profile of 8 can be made in seconds, and of fewer nothing can be told."""


@dataclass(frozen=True)
class Hint:
    """Something about the data that should be looked at.

    Attributes:
        code: the kind of hint, one word or several with hyphens.
        text: what was noticed, and what to do.
    """

    code: str
    text: str


def hints_of(profile: Profile) -> tuple[Hint, ...]:
    """Return what should be looked at in the data of a profile; nothing where it has no record of runs."""
    return tuple(Hint(code, text) for code, text in _found(profile)) if profile.runs else ()


def _found(profile: Profile) -> Iterator[tuple[str, str]]:
    for name, given in profile.inputs.items():
        yield from input_hints(name, given, profile.runs, len(profile.inputs) == 1)
    if equal := equal_runs(profile):
        yield "equal-samples", f"all {equal} samples are equal: give samples that differ, as real data do"
    elif profile.data.samples < FEW:
        samples = "1 sample is" if profile.data.samples == 1 else f"{profile.data.samples} samples are"
        yield "few-samples", f"{samples} few: ranges of so few are seldom those of more; give at least 32"
    unusual = outliers(profile, profile.runs)
    if profile.runs >= LEAST_RUNS and not equal:
        yield from _growing(dict(profile), {outlier.sample for outlier in unusual})
    for outlier in unusual:
        yield "outlier", f"{outlier.sentence}: look at it"


def equal_runs(profile: Profile) -> int:
    """Return how many samples (or batches) there are where all are equal; 0 where they differ, or for one.

    Extremes have each sample once, by its digest. Where there is one alone, and the digest of the data is a
    multiple of its digest, all samples are that one.
    """
    tensors = [*profile.values(), *(given.tensor for given in profile.inputs.values())]
    ends = [end for t in tensors if t.extremes for end in (t.extremes.lowest, t.extremes.highest)]
    digests = {extreme.digest for end in ends for extreme in end}
    if profile.runs < 2 or len(digests) != 1:
        return 0
    (digest,) = digests
    total = profile.runs * int(digest, 16) % (1 << 128)
    return profile.runs if total == int(profile.data.digest, 16) else 0


def _growing(tensors: dict[str, TensorProfile], named: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what ranges say about the number of samples, but for the samples that are named anyway."""
    share = median_growth(tensors)
    if share > STILL_GROWING:
        yield (
            "growing",
            f"ranges are still growing: as many samples again would widen them by about {100 * share:.2g} % "
            "(the median tensor); take more samples",
        )
    wide = widenings(tensors, ONE_SAMPLE)
    if wide and wide[0].sample not in named:
        worst = wide[0]
        by = f"by {100 * worst.share:.3g} %" if worst.share < 100.0 else "many times"
        more = f", and {len(wide) - 1} more ranges are widened so" if len(wide) > 1 else ""
        yield (
            "one-sample",
            f"sample {worst.sample} alone widens the range of '{worst.tensor}' {by}{more}: take more "
            "samples, or look at this one",
        )
