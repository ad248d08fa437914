"""Good, fair or poor: a grade of each output by what it is, and one of labels by how much was lost. Pure.

An output is good from the SQNR on with which nothing was lost on real models (DECISIONS.md, 40), fair with up
to `FAIR_DB` less, that is with twice the error, and poor below. Of detections the worst group of channels
counts: the noise of small scores is hidden by large boxes. Two things say more than SQNR does: classes that
are the same as the float model's in nearly all rows, and labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from ..evaluation.accuracy import Accuracy
from ..evaluation.compare import Agreement, OutputResult
from ..evaluation.metrics.score import Score
from ..noise.output_limits import WORDS, NoiseLimits
from ..targets.config import OutputKind

Grade = Literal["good", "fair", "poor", "none"]

ORDER: Mapping[Grade, int] = {"good": 0, "fair": 1, "none": 2, "poor": 3}

MEASURED_DB: Mapping[OutputKind, float] = {"decision": 3.0, "embedding": 3.0, "signal": -3.0}
"""What a measured SQNR needs more than an estimated one: estimates of decisions are 3 dB too careful in the
median, those of signals 2 to 3 dB too good (`noise.output_limits`)."""

SCORES_DB = 15.0
"""SQNR that each group of channels of detections needs: a detector with scores of 15 to 17 dB lost no boxes,
one with 0.2 nearly all, and over all channels, boxes included, they have 43, 35 and 33 dB."""

LEAST_SCORE = 0.05
"""Value that a group of channels of detections reaches, or it holds no candidate that counts."""

FAIR_DB = 6.0
"""dB below what is needed within which an output is fair: twice the error."""

SAME_GOOD, SAME_FAIR, LEAST_ANSWERS = 0.995, 0.98, 200
"""Share of equal answers with which at most half a point, and two points, of accuracy can be lost, and the
fewest answers that show it."""

SMALL_DROP, CERTAIN_DROP, LARGE_DROP = 1.0, 0.5, 2.0
"""Points: a drop that is surely below the first is good; one that is surely above the second is fair, or poor
if it was more than the third."""


@dataclass(frozen=True)
class OutputGrade:
    """How good one output is.

    Attributes:
        output: its name.
        kind: what it is, in words; "" of one that is not float.
        sqnr: in dB; of detections that of the worst group of channels; None where nothing could be compared.
        needed: dB from which on it is good.
        agreement: share of equal answers, where the largest value of the output is one.
        grade: by these.
        other_lengths: samples on which it has another length than float's, compared on their common part.
    """

    output: str
    kind: str
    sqnr: float | None
    needed: float
    agreement: float | None
    grade: Grade
    other_lengths: int = 0

    @property
    def margin(self) -> float:
        """DB above what is needed; below 0 for an output that is not good by its SQNR."""
        return -inf if self.sqnr is None else self.sqnr - self.needed

    @property
    def text(self) -> str:
        """Return what was measured, and what is needed."""
        count = self.other_lengths
        lengths = f", of another length on {count} sample{'s'[: count != 1]}" if count else ""
        if not self.kind and self.agreement is not None:
            return f"output '{self.output}': {100 * self.agreement:.1f} % of the elements the same{lengths}"
        if self.sqnr is None:
            return f"output '{self.output}': has nothing in common with the float model's, or nothing finite"
        same = "" if self.agreement is None else f", {100 * self.agreement:.1f} % of the answers the same"
        measured = "no difference" if self.sqnr == inf else f"signal-to-noise {self.sqnr:.1f} dB"
        where = " in its worst channels" if self.kind == WORDS["detections"] else ""
        return f"output '{self.output}': {measured}{where} (wanted: {self.needed:.0f}){same}{lengths}"


def needed_sqnr(limits: NoiseLimits) -> dict[str, float]:
    """Return the SQNR in dB, over its power, with which each output is good as measured; inputs of the next
    run (states) are left out where there is another output."""
    every = {name: _needed(limits, name) for name in limits.kinds}
    return {name: db for name, db in every.items() if db > -inf} or every


def _needed(limits: NoiseLimits, name: str) -> float:
    if limits.min_output_sqnr is not None:
        return limits.min_output_sqnr
    if limits.kinds[name] == "detections":
        return SCORES_DB
    allowed = limits.allowed(name)
    return -inf if allowed == inf else -10.0 * np.log10(allowed) + MEASURED_DB.get(limits.kinds[name], 0.0)


def output_grades(results: Iterable[OutputResult], limits: NoiseLimits) -> tuple[OutputGrade, ...]:
    """Return the grades of the outputs that were compared and are no states, the worst first.

    Args:
        results: of the outputs; those that are not float have no SQNR, and count where no output is float.
        limits: of the model.
    """
    needed, results = needed_sqnr(limits), list(results)
    graded = [
        _output_grade(result, limits.kinds[result.name], float(needed[result.name]))
        for result in results
        if result.is_float and result.name in needed
    ]
    if not any(result.is_float for result in results):
        graded = [_integer_grade(result, result.agreement) for result in results if result.agreement]
    return tuple(sorted(graded, key=lambda grade: (-ORDER[grade.grade], grade.margin)))


def _output_grade(result: OutputResult, kind: OutputKind, needed: float) -> OutputGrade:
    sqnr = None if result.difference is None else result.difference.sqnr
    if sqnr is not None and kind == "detections" and result.channels is not None:
        groups = [group.difference for group in result.channels.groups]
        sqnr = min([sqnr, *(group.sqnr for group in groups if group.max_abs_value >= LEAST_SCORE)])
    same = result.agreement if result.agreement and result.agreement.kind == "top-1" else None
    share = None if same is None else same.ratio
    grade = graded(sqnr, needed, same)
    return OutputGrade(result.name, WORDS[kind], sqnr, needed, share, grade, result.shape_mismatches)


def _integer_grade(result: OutputResult, same: Agreement) -> OutputGrade:
    """Return the grade of tokens or classes; "none" where many differ, which need not be worse ones."""
    grade: Grade = "none"
    if same.total >= LEAST_ANSWERS and same.ratio >= SAME_FAIR:
        grade = "good" if same.ratio >= SAME_GOOD else "fair"
    return OutputGrade(result.name, "", None, 0.0, same.ratio, grade, result.shape_mismatches)


def graded(sqnr: float | None, needed: float, same: Agreement | None) -> Grade:
    """Return the grade of an output: by its SQNR, or by equal answers where these show more.

    Args:
        sqnr: in dB, None where nothing could be compared.
        needed: dB from which on it is good.
        same: how often both models give the same answer, where there is one.
    """
    grades: list[Grade] = ["poor"]
    if sqnr is not None and sqnr >= needed - FAIR_DB:
        grades = ["good" if sqnr >= needed else "fair"]
    # Without any signal left all answers may be the same; few answers, or very different ones, show nothing.
    has_signal = sqnr is not None and sqnr > 0.0
    if has_signal and same is not None and same.total >= LEAST_ANSWERS and same.ratio >= SAME_FAIR:
        grades.append("good" if same.ratio >= SAME_GOOD else "fair")
    return min(grades, key=lambda grade: ORDER[grade])


def drop_grade(drop: Accuracy | Score) -> Grade:
    """Return the grade that a drop of accuracy, or of a metric, shows; "none" where the rows are too few."""
    if drop.drop_high <= SMALL_DROP:
        return "good"
    if drop.drop_low > CERTAIN_DROP:
        return "poor" if drop.drop > LARGE_DROP else "fair"
    return "none"


def grade_of(outputs: Sequence[OutputGrade], drop: Accuracy | Score | None) -> Grade:
    """Return the grade of a model: by labels or a metric where these decide, else of the worst output.

    Where the rows are too few to decide, a drop of more than `LARGE_DROP` as measured is fair at best.
    """
    shown: Grade = "none" if drop is None else drop_grade(drop)
    if shown != "none":
        return shown
    worst: Grade = max((o.grade for o in outputs), key=lambda grade: ORDER[grade], default="none")
    if drop is not None and drop.drop > LARGE_DROP and worst in ("good", "none"):
        return "fair"
    return worst
