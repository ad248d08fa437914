"""Good, fair or poor: a grade of each output by its kind, and one of labels by the loss. Pure.

An output is good while it is no further from float than its limit, by the figure that decides whether a plan
holds (`output_shift`), fair with up to `FAIR` times that, and poor beyond. Of detections the worst
group of channels counts too: the noise of small scores is hidden by large boxes. Answers that are the same as
the float model's in nearly all rows say more; answers that change in more than half a percent of many rows,
or of the sequences, speak against "good". What cannot be compared sample by sample has no grade.

A score, by labels or a metric, is what the user wants, and outputs stand for it where it is not known
(`decision_of`, DECISIONS.md, 104):

=======================================  ====================================================================
an output is destroyed                   poor, whatever the score is
an output that the score does not read   the model is at best as good as that output
the score's 95 % interval ends at most   the score decides: good with a measured drop of up to `WANTED_DROP`,
at `NARROW` times the wanted drop, or    fair with up to `FAIR` times that, poor beyond
begins above `SURE` times that
it is wider, or there is no score        the worst output decides; with a measured drop of more than `FAIR`
                                         times the wanted one the model is fair at best, and with none
                                         beyond chance and outputs up to `DOUBTED` times their limits off
                                         at worst
=======================================  ====================================================================

Where an output was not judged in its unit, as in a comparison that knows nothing of its meaning, its SQNR
counts (DECISIONS.md, 40).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isnan, log10
from typing import Literal

import numpy as np

from ...profiles.base.conversion import OutputKind
from ...profiles.base.json_values import NOT_IN_JSON
from ...profiles.base.presentation import deciding_digits
from ...profiles.base.tuned import tuned
from ..noise.output_limits import WORDS, NoiseLimits
from ..plan.plan import SAME_DB
from .accuracy import Accuracy
from .compare import Agreement, OutputResult
from .metrics.score import Score
from .output_faults import LEAST_SCORE
from .output_shift import FAIR, SAME_GOOD, OutputShift, shows_same

Grade = Literal["good", "fair", "poor", "none"]

ORDER: Mapping[Grade, int] = {"good": 0, "fair": 1, "none": 2, "poor": 3}

MEASURED_DB: Mapping[OutputKind, float] = {"decision": 3.0, "embedding": 3.0, "signal": -3.0}
"""What a measured SQNR needs more than an estimated one: estimates of decisions are 3 dB too careful in the
median, those of signals 2 to 3 dB too good (`noise.output_limits`)."""

SCORES_DB = 15.0
"""SQNR that each group of channels of detections needs: a detector with scores of 15 to 17 dB lost no boxes,
one with 0.2 nearly all, and over all channels, boxes included, they have 43, 35 and 33 dB."""

FAIR_DB = 6.0
"""dB below what is needed within which an output is fair: twice the error."""

WANTED_DROP = tuned(
    1.0,
    figure="none: a point",
    chosen_on="by hand",
)
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
        "where an open score shows no loss, 13 % of the models lose more than two points that are 2 to "
        "4 times their limit off, as of those up to twice; 43 % beyond (433, 295 and 135 of 7,800 draws)"
    ),
    chosen_on="ten trained models with weights of 2 to 8 bits, and of onnxruntime; their tuning splits",
)
"""Times its limit that an output may be off and be fair, where a score shows no loss and cannot decide."""


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
        figures: what was measured in the unit of the output, and what is wanted; "" where it was not.
        sequences: share of sequences of which all answers are equal; None without sequences.
        destroyed: whether it is beyond doubt worth nothing: broken, `DESTROYED` times its limit off, or poor
            with more noise than signal.
        decibels: the SQNR with its interval, in words; "" where it has none.
        alike: how many answers and sequences are the same, in words.
    """

    output: str
    kind: str
    sqnr: float | None
    needed: float
    agreement: float | None
    grade: Grade
    other_lengths: int = 0
    figures: str = ""
    sequences: float | None = None
    destroyed: bool = False
    decibels: str = field(default="", metadata=NOT_IN_JSON)
    alike: str = field(default="", metadata=NOT_IN_JSON)

    @property
    def margin(self) -> float:
        """DB above the needed SQNR; below 0 for an output that is not good by its SQNR."""
        return -inf if self.sqnr is None else self.sqnr - self.needed

    @property
    def is_doubted(self) -> bool:
        """Whether a score that shows no loss makes it doubtful that this output is poor."""
        return self.margin >= -20.0 * log10(DOUBTED)

    @property
    def is_same(self) -> bool:
        """Whether nothing differs but the last bits of a float; without an SQNR, no answer differs."""
        if self.sqnr is None:
            return self.agreement == 1.0 and not self.other_lengths
        return self.sqnr >= SAME_DB

    @property
    def _decibels(self) -> str:
        return "no difference" if self.is_same else self.decibels or f"{self.sqnr:.1f} dB"

    @property
    def measured(self) -> str:
        """Return the measured figure alone, and the SQNR."""
        decibels = "" if self.sqnr is None else self._decibels
        figure = self.figures.partition(" (wanted")[0]
        return ", ".join(filter(None, [figure, "" if decibels in figure else decibels]))

    @property
    def text(self) -> str:
        """Return the measured figure, and the needed one."""
        if self.figures:
            known = self.sqnr is not None and isfinite(self.sqnr) and " dB" not in self.figures
            measured = ", ".join(filter(None, [self.figures, self._decibels if known else "", self.alike]))
            return f"output '{self.output}': {measured}"
        count = self.other_lengths
        lengths = f", of another length on {count} sample{'s'[: count != 1]}" if count else ""
        if not self.kind and self.agreement is not None:
            return f"output '{self.output}': {100 * self.agreement:.1f} % of the elements the same{lengths}"
        if self.sqnr is None:
            return f"output '{self.output}': has nothing in common with the float model's, or nothing finite"
        same = "" if self.agreement is None else f", {100 * self.agreement:.1f} % of the answers the same"
        shown, needed = deciding_digits(self.sqnr, self.needed, (1, 0), is_least=True)
        measured = "no difference" if self.is_same else f"signal-to-noise {shown} dB"
        where = " in its worst channels" if self.kind == WORDS["detections"] else ""
        return f"output '{self.output}': {measured}{where} (wanted: {needed}){same}{lengths}"


def needed_sqnr(limits: NoiseLimits) -> dict[str, float]:
    """Return the SQNR in dB, over its power, that makes each output good as measured. Inputs of the next run
    (states) are left out if there is another output."""
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
    results: Iterable[OutputResult], limits: NoiseLimits, shifts: Iterable[OutputShift] = ()
) -> tuple[OutputGrade, ...]:
    """Return the grades of the outputs that were compared and are no states, the worst first.

    Outputs that are not float have no SQNR, and count only if no output is float. `shifts` are distances from
    float in the output's unit, if it was judged so.
    """
    needed, results = needed_sqnr(limits), list(results)
    in_unit = {shift.output: shift for shift in shifts}
    only_integers = not any(result.is_float for result in results)
    graded = []
    for result in results:
        kind, shift = limits.kinds.get(result.name, "values"), in_unit.get(result.name)
        if shift is not None and (shift.fault or result.name in needed):
            graded.append(_grade_in_unit(result, kind, shift))
        elif result.is_float and result.name in needed:
            graded.append(_output_grade(result, kind, float(needed[result.name])))
        elif only_integers and result.agreement is not None:
            graded.append(_integer_grade(result, result.agreement))
    return tuple(sorted(graded, key=lambda grade: (-ORDER[grade.grade], grade.margin)))


def _grade_in_unit(result: OutputResult, kind: OutputKind, shift: OutputShift) -> OutputGrade:
    """Return the grade of an output by its figure, and by equal answers where these show more."""
    answers, sequences = shift.answers, shift.sequences
    grade: Grade = "good" if shift.excess <= 1.0 else "fair" if shift.excess <= FAIR else "poor"
    if shift.incomparable and not shift.fault:
        grade = "none"
    else:
        if not shift.fault and (isnan(shift.sqnr) or shift.sqnr > 0.0):
            grade = _at_best(grade, answers)
        if shift.changes:
            grade = max(grade, "fair", key=lambda one: ORDER[one])
    sqnr = None if isnan(shift.sqnr) else shift.sqnr
    needed = 0.0 if sqnr is None or shift.ratio == 0.0 else sqnr + 20.0 * log10(min(shift.ratio, 1e9))
    if kind == "detections" and result.channels is not None and grade in ("good", "fair"):
        groups = [group for group in result.channels.groups if group.difference.max_abs_value >= LEAST_SCORE]
        worst = min((group.difference.sqnr for group in groups), default=inf)
        if worst < SCORES_DB:
            sqnr, needed = worst, SCORES_DB
            grade = max(grade, graded(worst, SCORES_DB, None), key=lambda one: ORDER[one])
    return OutputGrade(
        result.name,
        WORDS[kind],
        sqnr,
        needed,
        None if answers is None else answers.ratio,
        grade,
        result.shape_mismatches,
        shift.figures,
        None if sequences is None else sequences.ratio,
        destroyed=shift.is_destroyed or (grade == "poor" and sqnr is not None and sqnr <= 0.0),
        decibels=shift.decibels if sqnr == shift.sqnr else "",
        alike=shift.alike,
    )


def _at_best(grade: Grade, same: Agreement | None) -> Grade:
    """Return the better of a grade and that of equal answers; few, or very different ones, show nothing."""
    if same is None or not shows_same(same):
        return grade
    return min(grade, "good" if same.ratio >= SAME_GOOD else "fair", key=lambda one: ORDER[one])


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
    if shows_same(same):
        grade = "good" if same.ratio >= SAME_GOOD else "fair"
    return OutputGrade(result.name, "", None, 0.0, same.ratio, grade, result.shape_mismatches)


def graded(sqnr: float | None, needed: float, same: Agreement | None) -> Grade:
    """Return the grade of an output by its SQNR, or by equal answers if they show more.

    SQNR is in dB, None if nothing could be compared. An output is good from `needed` dB on.
    """
    grade: Grade = "poor"
    if sqnr is not None and sqnr >= needed - FAIR_DB:
        grade = "good" if sqnr >= needed else "fair"
    # Without any signal left all answers may be the same.
    return _at_best(grade, same) if sqnr is not None and sqnr > 0.0 else grade


@dataclass(frozen=True)
class Decision:
    """The grade of a model, and the figure that it rests on.

    Attributes:
        grade: of the model.
        by: whether the score decides or the outputs do; "" where there is neither.
        outputs: the grade by the outputs alone.
        so_far: whether it is good by the score alone, and more samples could show that more is lost than is
            wanted.
        overruled: why an output decides whatever the score is: it is destroyed, or worse and not read by the
            score; "" if none does.
    """

    grade: Grade
    by: Literal["score", "outputs", ""]
    outputs: Grade
    so_far: bool = False
    overruled: str = field(default="", metadata=NOT_IN_JSON)


def drop_grade(drop: Accuracy | Score) -> Grade:
    """Return the grade of a drop of accuracy or of a metric; "none" if its interval is too wide to decide."""
    if drop.drop_high <= WANTED_DROP:
        return "good"
    if drop.drop_low > SURE * WANTED_DROP:
        return "poor" if drop.drop > FAIR * WANTED_DROP else "fair"
    if drop.drop_high <= NARROW * WANTED_DROP:
        return "good" if drop.drop <= WANTED_DROP else "fair"
    return "none"


def decision_of(outputs: Sequence[OutputGrade], drop: Accuracy | Score | None, scored: str = "") -> Decision:
    """Return the grade of a model, and its source: labels or a metric if known, else the worst output.

    A destroyed output always decides. The score covers only the output `scored`, or all if that is "".
    """
    worst: Grade = max((o.grade for o in outputs), key=lambda grade: ORDER[grade], default="none")
    if drop is None:
        return Decision(worst, "outputs" if outputs else "", worst)
    for output in outputs:
        if output.destroyed:
            overruled = f"output '{output.output}' is worth nothing, whatever the score is"
            return Decision("poor", "outputs", worst, overruled=overruled)
    read = [output for output in outputs if not scored or output.output == scored]
    decision = _decision_by_score(read, drop)
    others = [output for output in outputs if output not in read and output.grade in ("fair", "poor")]
    other = max(others, key=lambda output: ORDER[output.grade], default=None)
    if other is not None and ORDER[other.grade] >= ORDER[decision.grade]:
        overruled = f"output '{other.output}' is {other.grade}, and the score does not read it"
        return Decision(other.grade, "outputs", worst, overruled=overruled)
    return replace(decision, outputs=worst)


def _decision_by_score(outputs: Sequence[OutputGrade], drop: Accuracy | Score) -> Decision:
    """Return the grade of the outputs that a score reads, and the deciding figure."""
    worst: Grade = max((o.grade for o in outputs), key=lambda grade: ORDER[grade], default="none")
    shown = drop_grade(drop)
    if shown != "none":
        unsure = drop.drop_high > WANTED_DROP and worst != "good"
        return Decision(shown, "score", worst, shown == "good" and unsure)
    if drop.drop > FAIR * WANTED_DROP and worst in ("good", "none"):
        return Decision("fair", "score", worst)
    shows_no_loss = drop.drop <= WANTED_DROP and drop.drop_low <= 0.0 and isfinite(drop.drop_high)
    if worst == "poor" and shows_no_loss and all(o.is_doubted for o in outputs if o.grade == "poor"):
        return Decision("fair", "outputs", worst)
    return Decision(worst, "outputs" if outputs else "", worst)
