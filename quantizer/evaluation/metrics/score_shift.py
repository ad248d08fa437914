"""By how much the scores of a quantized model moved, and which threshold stands for one of the float model.

A program takes answers from a score on: boxes from 0.25, classes from 0.5. Where quantization moves all
scores a little, the same threshold lets other answers through, though their order is hardly worse. The
threshold that lets as many answers of the quantized model through as one of the float model, on the same
samples, keeps precision and recall as far as the order allows. To say what it is worth, it is chosen on every
second picture or row and judged on the others, and the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from .intervals import bootstrap_interval
from .metric import Floats

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of one model, each with a score."""

    unit: Ints  # picture or row of each
    scores: Floats
    item: Ints  # the true box, or the row, that each is about; -1 for none
    right: npt.NDArray[np.bool_]
    wanted: Floats  # true ones of each unit

    def of_units(self, units: npt.NDArray[np.bool_]) -> Answers:
        """Return the answers of some of the units; the others have none, and nothing is wanted there."""
        kept = units[self.unit]
        some = self.unit[kept], self.scores[kept], self.item[kept], self.right[kept]
        return Answers(*some, np.where(units, self.wanted, 0.0))

    def counts(self, threshold: float) -> tuple[float, float, float]:
        """Return how many answers have at least this score, how many of them are right, and all wanted."""
        passed = self.scores >= threshold
        return float(passed.sum()), float(self.right[passed].sum()), float(self.wanted.sum())


@dataclass(frozen=True)
class ThresholdShift:
    """A threshold of the float model, and the one of the quantized model that lets as many answers through.

    Attributes:
        threshold: of the float model.
        precision, f1: of the float model there, in percent.
        unchanged_precision, unchanged_f1: of the quantized model at the same threshold.
        quantized_threshold: of the quantized model, of all samples.
        quantized_precision, quantized_f1: of the quantized model at a threshold that was chosen on other
            samples in the same way.
    """

    threshold: float
    precision: float
    f1: float
    unchanged_precision: float
    unchanged_f1: float
    quantized_threshold: float
    quantized_precision: float
    quantized_f1: float

    @property
    def pays(self) -> bool:
        """Whether the same threshold loses MIN_LOST_POINTS, and the other one regains half of that."""
        for of_float, unchanged, moved in (
            (self.f1, self.unchanged_f1, self.quantized_f1),
            (self.precision, self.unchanged_precision, self.quantized_precision),
        ):
            keeps_f1 = self.quantized_f1 > self.unchanged_f1 - MIN_LOST_POINTS / 2.0
            if of_float - unchanged >= MIN_LOST_POINTS and keeps_f1:
                return of_float - moved <= (of_float - unchanged) / 2.0
        return False

    @property
    def lost(self) -> tuple[str, float, float, float]:
        """F1 or precision, which loses more: float's, the quantized model's, that at the other threshold."""
        figures = (
            ("F1", self.f1, self.unchanged_f1, self.quantized_f1),
            ("precision", self.precision, self.unchanged_precision, self.quantized_precision),
        )
        return max(figures, key=lambda figure: figure[1] - figure[2])

    @property
    def stays(self) -> bool:
        """Whether the quantized model loses less than MIN_LOST_POINTS at the same threshold."""
        _, of_float, unchanged, _ = self.lost
        return of_float - unchanged < MIN_LOST_POINTS


MIN_LOST_POINTS = 0.5
"""Points of F1 or precision from which on a threshold is worth changing."""


@dataclass(frozen=True)
class ScoreShift:
    """By how much the scores of a quantized model moved.

    Attributes:
        of: what has a score.
        pairs: how many answers of both models to the same thing were compared, whose mean score is at least
            the lowest of the thresholds.
        mean: the quantized model's score less the float model's, on average.
        low, high: 95 % interval of that; infinite where it is of one picture or row.
        spread: standard deviation of the differences.
        thresholds: usual thresholds, and what stands for them.
    """

    of: Literal["boxes", "rows"]
    pairs: int
    mean: float
    low: float
    high: float
    spread: float
    thresholds: tuple[ThresholdShift, ...]

    @property
    def text(self) -> str:
        """The shift in one line, and whether thresholds can stay."""
        of = "objects that both find" if self.of == "boxes" else "rows with the same answer"
        mean, low, high = (0.0 + round(value, 3) for value in (self.mean, self.low, self.high))  # no -0.000
        known = f" ({low:+.3f} to {high:+.3f})" if math.isfinite(high - low) else ""
        moved = f"{mean:+.3f} on average{known}, of {self.pairs} {of}"
        stay = " and ".join(f"{one.threshold:g}" for one in self.thresholds if one.stays)
        parts = [moved, f"threshold {stay} can stay" if stay else ""]
        for one in self.thresholds:
            if not one.stays and not one.pays:
                figure, of_float, unchanged, _ = one.lost
                parts.append(
                    f"at threshold {one.threshold:g} {figure} is {unchanged:.1f} % (float: {of_float:.1f} %) "
                    "and another one is no better"
                )
        return "; ".join(filter(None, parts))

    @property
    def advice(self) -> Iterator[str]:
        """The change that is worth it, a sentence for each threshold."""
        for one in self.thresholds:
            if one.pays:
                figure, of_float, unchanged, moved = one.lost
                where = "lower" if self.mean < 0.0 else "higher"
                yield (
                    f"scores are {abs(self.mean):.2g} {where}: use threshold {one.quantized_threshold:.3g} "
                    f"instead of {one.threshold:g} ({figure} {moved:.1f} % instead of {unchanged:.1f} %; "
                    f"float has {of_float:.1f} %)"
                )


def score_shift(
    of: Literal["boxes", "rows"], floats: Answers, quantized: Answers, thresholds: Sequence[float]
) -> ScoreShift | None:
    """Return by how much scores moved on the same units, or None if there is nothing to compare."""
    units = len(floats.wanted)
    # Unit and both scores of each item that both models have an answer to.
    places = [np.flatnonzero(answers.item >= 0) for answers in (floats, quantized)]
    _, mine, theirs = np.intersect1d(
        floats.item[places[0]], quantized.item[places[1]], assume_unique=True, return_indices=True
    )
    mine, theirs = places[0][mine], places[1][theirs]
    unit, before, after = floats.unit[mine], floats.scores[mine], quantized.scores[theirs]
    near = (before + after) / 2.0 >= min(thresholds)  # both count alike: none is chosen for being high
    unit, moved = unit[near], (after - before)[near]
    if not moved.size:
        return None
    sums, counts = (np.bincount(unit, weights, units) for weights in (moved, None))

    def mean(weights: Floats) -> Floats:
        return np.asarray((weights @ sums) / np.maximum(weights @ counts, 1.0), np.float64)

    interval = bootstrap_interval(mean, units, 1.0)
    shifts = tuple(
        _threshold_shift(floats, quantized, threshold)
        for threshold in thresholds
        if floats.counts(threshold)[0]
    )
    return ScoreShift(
        of, moved.size, float(moved.mean()), interval.low, interval.high, float(moved.std()), shifts
    )


def _threshold_shift(floats: Answers, quantized: Answers, threshold: float) -> ThresholdShift:
    # The other threshold is chosen on one half of the units and tested on the other, and the other way round.
    even = np.arange(len(floats.wanted)) % 2 == 0
    counts = np.zeros(3)
    for chosen_on, tested_on in ((even, ~even), (~even, even)):
        chosen = equivalent_threshold(floats.of_units(chosen_on), quantized.of_units(chosen_on), threshold)
        counts += quantized.of_units(tested_on).counts(chosen)
    precision, f1 = _precision_and_f1(*floats.counts(threshold))
    unchanged_precision, unchanged_f1 = _precision_and_f1(*quantized.counts(threshold))
    quantized_precision, quantized_f1 = _precision_and_f1(*counts)
    return ThresholdShift(
        threshold=threshold,
        precision=precision,
        f1=f1,
        unchanged_precision=unchanged_precision,
        unchanged_f1=unchanged_f1,
        quantized_threshold=equivalent_threshold(floats, quantized, threshold),
        quantized_precision=quantized_precision,
        quantized_f1=quantized_f1,
    )


def equivalent_threshold(floats: Answers, quantized: Answers, threshold: float) -> float:
    """Return the threshold that lets as many answers of the quantized model through, or as nearly as it can.

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


def _precision_and_f1(passed: float, right: float, wanted: float) -> tuple[float, float]:
    both = passed + wanted
    return 100.0 * right / passed if passed else 100.0, 200.0 * right / both if both else 100.0


# Rows of a classifier ------------------------------------------------------------------------------------

ROW_THRESHOLDS = (0.5, 0.9)
"""Usual thresholds of the probability of a class."""


@dataclass(frozen=True, eq=False)
class Confidences:
    """How sure a model is of each row of a sample, for both meanings that its values may have."""

    of_probabilities: Floats  # highest value of each row, flat in C order
    of_logits: Floats  # highest probability of each row, by a softmax
    in_unit: bool  # no value is below 0 or above 1


def confidences(values: npt.NDArray[np.generic], axis: int) -> Confidences:
    """Return how sure a model is of each row of an output with classes along an axis."""
    rows = np.moveaxis(np.asarray(values, np.float64), axis, -1).reshape(-1, values.shape[axis])
    highest = rows.max(axis=1)
    with np.errstate(invalid="ignore"):  # inf - inf
        exponents = np.exp(rows - highest[:, None])
    return Confidences(highest, 1.0 / exponents.sum(axis=1), not ((rows < 0.0) | (rows > 1.0)).any())


@dataclass(frozen=True, eq=False)
class Rows:
    """The answers of one model for the rows of a sample."""

    right: npt.NDArray[np.bool_]
    classes: Ints
    scores: Confidences | None


def shift_of_rows(floats: Sequence[Rows], quantized: Sequence[Rows]) -> ScoreShift | None:
    """Return by how much the probabilities of classes moved, on rows with the same answer of both models.

    Values are probabilities if all of the float model are from 0 to 1, and logits else, for both models.
    """
    scores = [[sample.scores for sample in side if sample.scores is not None] for side in (floats, quantized)]
    if not floats or len(scores[0]) < len(floats) or len(scores[1]) < len(quantized):
        return None
    has_logits = not all(sample.in_unit for sample in scores[0])
    classes = [np.concatenate([sample.classes for sample in side]) for side in (floats, quantized)]
    if classes[0].size != classes[1].size:
        return None
    rows = np.arange(classes[0].size)
    same = np.where(classes[0] == classes[1], rows, -1)
    answers = [
        Answers(
            unit=rows,
            scores=np.concatenate([one.of_logits if has_logits else one.of_probabilities for one in of_side]),
            item=same,
            right=np.concatenate([sample.right for sample in side]),
            wanted=np.ones(rows.size),
        )
        for side, of_side in zip((floats, quantized), scores, strict=True)
    ]
    return score_shift("rows", answers[0], answers[1], ROW_THRESHOLDS)
