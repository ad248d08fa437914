"""Good, fair or poor: a grade of each output by its kind, and one of labels by the loss. Pure.

An output is good if its error (`output_shift`) is within its limit, fair up to `FAIR` times the limit, and
poor beyond. For detections the worst group of channels counts too, because large boxes hide the noise of
small scores. If answers equal the float model's in nearly all rows, that decides; if more than half a percent
of many rows or sequences change, the output is not good. Outputs that cannot be compared sample by sample
have no grade.

The user cares about the score, by labels or a metric; outputs replace it if it is unknown (`decision_of`,
DECISIONS.md, 104):

=======================================  ====================================================================
an output is destroyed                   poor, at any score
an output that the score does not read   the model is at best as good as that output
the score's 95 % interval ends at most   the score decides: good with a measured drop of up to `WANTED_DROP`,
at `NARROW` times the wanted drop, or    fair with up to `FAIR` times that, poor beyond
begins above `SURE` times that
it is wider, or there is no score        the worst output decides; with a measured drop of more than `FAIR`
                                         times the wanted one the model is fair at best, and with none
                                         beyond chance and outputs up to `DOUBTED` times their limits off
                                         at worst
=======================================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, log10
from typing import Literal

import numpy as np

from ...profiles.base.conversion import OutputKind
from ...profiles.base.json_values import NOT_IN_JSON
from ...profiles.base.tuned import tuned
from ..noise.output_limits import WORDS, NoiseLimits
from .compare import Agreement, OutputResult
from .metrics.score import Score
from .output_shift import FAIR, SAME_GOOD, SCORES_DB, Grade, Measure, OutputShift, shows_same

ORDER: Mapping[Grade, int] = {"good": 0, "fair": 1, "none": 2, "poor": 3}

MEASURED_DB: Mapping[OutputKind, float] = {"decision": 3.0, "embedding": 3.0, "signal": -3.0}
"""What a measured SQNR needs more than an estimated one: estimates of decisions are 3 dB too careful in the
median, those of signals 2 to 3 dB too good (`noise.output_limits`)."""

FAIR_DB = 6.0
"""dB below the limit within which an output is fair: twice the error."""

WANTED_DROP = tuned(1.0, figure="none: a point", chosen_on="by hand")
"""Drop of a score, in its unit, up to which a model is good."""

NARROW = tuned(
    2.0,
    figure=(
        "of models that lose up to a point, 16 % instead of 24 are called fair or poor on 32 samples, 22 "
        "instead of 27 on 4 to 32, and none more of those that lose two points is called good (7,800 draws)"
    ),
    chosen_on="ten trained models with weights of 2 to 8 bits, and of onnxruntime; their tuning splits",
)
"""Times the wanted drop at which the interval of a score ends that is narrow enough to decide."""

SURE = 0.5
"""Times the wanted drop at which the interval of a drop begins that is surely there, however wide it is."""


DOUBTED = tuned(
    4.0,
    figure=(
        "if an open score shows no loss, 13 % of the models at 2 to 4 times their limit lose more than two "
        "points, as many as up to twice the limit; 43 % beyond (433, 295 and 135 of 7,800 draws)"
    ),
    chosen_on="ten trained models with weights of 2 to 8 bits, and of onnxruntime; their tuning splits",
)
"""Times its limit up to which an output is fair, if a score shows no loss but cannot decide."""


def needed_sqnr(limits: NoiseLimits) -> dict[str, float]:
    """Return the SQNR in dB that makes each output good as measured, without states beside other outputs."""
    every = {name: _needed(limits, name) for name in limits.kinds}
    return {name: db for name, db in every.items() if db > -inf} or every


def _needed(limits: NoiseLimits, name: str) -> float:
    if limits.min_output_sqnr is not None:
        return limits.min_output_sqnr
    kind = limits.planned_kind(name)
    if kind == "detections":
        return SCORES_DB
    allowed = limits.allowed(name)
    return -inf if allowed == inf else -10.0 * np.log10(allowed) + MEASURED_DB.get(kind, 0.0)


def output_grades(
    results: Iterable[OutputResult], limits: NoiseLimits, shifts: Iterable[OutputShift]
) -> tuple[OutputShift, ...]:
    """Return the graded outputs, the worst first; integers only if there is no float output."""
    results, in_unit = list(results), {shift.output: shift for shift in shifts}
    only_integers = not any(result.is_float for result in results)
    graded = []
    for result in results:
        shift = in_unit.get(result.name)
        if shift is not None and (shift.fault or result.name in limits.kinds):
            graded.append(_graded(shift, limits.kinds.get(result.name, "values")))
        elif only_integers and (same := result.agreement) is not None:
            count = result.shape_mismatches
            lengths = f"of another length on {count} sample{'s'[: count != 1]}" if count else ""
            shift = OutputShift(result.name, Measure.NONE, 0.0, 1.0, None, answers=same, aside=lengths)
            graded.append(replace(shift, grade=_at_best("none", same)))
    return tuple(sorted(graded, key=lambda one: (-ORDER[one.grade], one.margin)))


def _graded(shift: OutputShift, kind: OutputKind) -> OutputShift:
    """Return an output graded by its figure, or by equal answers if these are more telling."""
    grade: Grade = "good" if shift.excess <= 1.0 else "fair" if shift.excess <= FAIR else "poor"
    if shift.incomparable and not shift.fault:
        grade = "none"
    if not shift.fault and (shift.sqnr is None or shift.sqnr > 0.0):
        grade = _at_best(grade, shift.answers)
    if shift.changes:
        grade = max(grade, "fair", key=ORDER.__getitem__)
    worst = shift.worst_group if grade in ("good", "fair") else None
    if worst is not None:
        grade = max(grade, "fair" if worst >= SCORES_DB - FAIR_DB else "poor", key=ORDER.__getitem__)
    return replace(shift, kind=WORDS[kind], worst_group=worst, grade=grade)


def _at_best(grade: Grade, same: Agreement | None) -> Grade:
    """Return the better of a grade and that of equal answers; few, or very different ones, show nothing."""
    if same is None or not shows_same(same):
        return grade
    return min(grade, "good" if same.ratio >= SAME_GOOD else "fair", key=ORDER.__getitem__)


@dataclass(frozen=True)
class Decision:
    """The grade of a model, and the figure that it rests on.

    Attributes:
        grade: of the model.
        by: "score" or "outputs", whichever decides; "" without either.
        outputs: the grade by the outputs only.
        so_far: whether it is good only by the score, and more samples could show a loss beyond the limit.
        overruled: why an output overrules the score: it is destroyed, or worse and not read by the score; ""
            if no output does.
    """

    grade: Grade
    by: Literal["score", "outputs", ""]
    outputs: Grade
    so_far: bool = False
    overruled: str = field(default="", metadata=NOT_IN_JSON)


def drop_grade(drop: Score) -> Grade:
    """Return the grade of a drop of accuracy or of a metric; "none" if its interval is too wide to decide."""
    if drop.drop_high <= WANTED_DROP:
        return "good"
    if drop.drop_low > SURE * WANTED_DROP:
        return "poor" if drop.drop > FAIR * WANTED_DROP else "fair"
    if drop.drop_high <= NARROW * WANTED_DROP:
        return "good" if drop.drop <= WANTED_DROP else "fair"
    return "none"


def decision_of(outputs: Sequence[OutputShift], drop: Score | None, scored: str = "") -> Decision:
    """Return the grade of a model, and its source; a score covers the output `scored`, or all."""
    worst: Grade = max((o.grade for o in outputs), key=lambda grade: ORDER[grade], default="none")
    if drop is None:
        return Decision(worst, "outputs" if outputs else "", worst)
    for output in outputs:
        if output.is_destroyed:
            overruled = f"output '{output.output}' is useless, regardless of the score"
            return Decision("poor", "outputs", worst, overruled=overruled)
    read = [output for output in outputs if not scored or output.output == scored]
    # An output without a grade, such as a label made from probabilities, leaves it to the others.
    decision = _decision_by_score(read or outputs, drop)
    others = [output for output in outputs if output not in read and output.grade in ("fair", "poor")]
    other = max(others, key=lambda output: ORDER[output.grade], default=None)
    if other is not None and ORDER[other.grade] >= ORDER[decision.grade]:
        overruled = f"output '{other.output}' is {other.grade}, and the score does not read it"
        return Decision(other.grade, "outputs", worst, overruled=overruled)
    return replace(decision, outputs=worst)


def _decision_by_score(outputs: Sequence[OutputShift], drop: Score) -> Decision:
    """Return the grade of the outputs that a score reads, and the deciding figure."""
    worst: Grade = max((o.grade for o in outputs), key=lambda grade: ORDER[grade], default="none")
    shown = drop_grade(drop)
    if shown != "none":
        unsure = drop.drop_high > WANTED_DROP and worst != "good"
        return Decision(shown, "score", worst, shown == "good" and unsure)
    if drop.drop > FAIR * WANTED_DROP and worst in ("good", "none"):
        return Decision("fair", "score", worst)
    shows_no_loss = drop.drop <= WANTED_DROP and drop.drop_low <= 0.0 and isfinite(drop.drop_high)
    least = min((output.margin for output in outputs if output.grade == "poor"), default=inf)
    if worst == "poor" and shows_no_loss and least >= -20.0 * log10(DOUBTED):
        return Decision("fair", "outputs", worst)
    return Decision(worst, "outputs" if outputs else "", worst)
