"""Which threshold of a quantized detector stands for one of the float model.

A program accepts boxes above a score, such as 0.25. If quantization moves all scores a little, the same
threshold accepts other boxes, although their order is hardly worse. A threshold that accepts as many boxes of
the quantized model as of the float model, on the same samples, keeps precision and recall as far as the order
allows. To evaluate it, it is chosen on every second picture and judged on the others, and vice versa.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....profiles.base.findings import Code, Finding
from ...evaluation.metrics.metric import Floats

MIN_LOST_POINTS = 0.5
"""Points of F1 from which on a threshold is worth changing."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Boxes of one model, each with a score."""

    unit: npt.NDArray[np.int64]  # picture of each
    scores: Floats
    right: npt.NDArray[np.bool_]
    wanted: Floats  # true ones of each picture

    def of_units(self, units: npt.NDArray[np.bool_]) -> Answers:
        """Return the boxes of some of the pictures; the others have neither boxes nor labels."""
        kept = units[self.unit]
        some = self.unit[kept], self.scores[kept], self.right[kept]
        return Answers(*some, np.where(units, self.wanted, 0.0))

    def counts(self, threshold: float) -> Floats:
        """Return how many boxes have at least this score, how many of them are right, and all wanted."""
        passed = self.scores >= threshold
        return np.array([passed.sum(), self.right[passed].sum(), self.wanted.sum()], np.float64)


def moved_thresholds(floats: Answers, quantized: Answers, thresholds: Sequence[float]) -> Iterator[Finding]:
    """Yield each threshold at which F1 is lost that another one gives back, at least half of it."""
    even = np.arange(len(floats.wanted)) % 2 == 0
    for threshold in thresholds:
        of_float, unchanged = (_f1(side.counts(threshold)) for side in (floats, quantized))
        tested = np.zeros(3)
        for chosen_on, tested_on in ((even, ~even), (~even, even)):
            sides = floats.of_units(chosen_on), quantized.of_units(chosen_on)
            tested += quantized.of_units(tested_on).counts(equivalent_threshold(*sides, threshold))
        moved, lost = _f1(tested), of_float - unchanged
        if lost >= MIN_LOST_POINTS and of_float - moved <= lost / 2.0:
            other = equivalent_threshold(floats, quantized, threshold)
            sentence = (
                f"scores moved: use threshold {other:.3g} instead of {threshold:g} (F1 {moved:.1f} % instead "
                f"of {unchanged:.1f} %; float has {of_float:.1f} %)"
            )
            yield Finding(Code.SCORES_MOVED, sentence, figures={"threshold": threshold, "instead": other})


def equivalent_threshold(floats: Answers, quantized: Answers, threshold: float) -> float:
    """Return the threshold that lets as many boxes of the quantized model through, or as nearly as it can.

    Many scores of integers are equal: it lies in the middle between two that there are.
    """
    of_float = floats.counts(threshold)[0]
    if quantized.counts(threshold)[0] == of_float:
        return threshold
    values, counts = np.unique(-quantized.scores, return_counts=True)
    if not of_float or not values.size:
        return threshold
    last = int(np.argmin(np.abs(np.cumsum(counts) - of_float)))
    below = -values[last + 1] if last + 1 < len(values) else -values[last]
    return float((-values[last] + below) / 2.0)


def _f1(counts: Floats) -> float:
    passed, right, wanted = counts.tolist()
    return 200.0 * right / (passed + wanted) if passed + wanted else 100.0
