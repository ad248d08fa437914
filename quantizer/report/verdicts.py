"""What to think of a model, in one word and one sentence. Pure.

Where it was judged on held-out samples that verdict stands. Elsewhere the outputs are graded by what was
measured and, where nothing was, by what is estimated, with the same limits. A gate that failed is told
before the grade, and does not change it.
"""

from __future__ import annotations

import math

from ...profiles.base.presentation import decibels
from ..evaluation.result import Evaluation
from ..outputs.limits import NoiseLimits
from ..verdict.grades import FAIR_DB, ORDER, Grade, grade_of, output_grades
from ..verdict.verdict import Verdict as Judgement
from .content import GateResult, OutputQuality, Speed, Verdict
from .measured import sqnr_of
from .records import NoiseBudget

GOOD_DB = 30.0
"""SQNR from which an output is good where nothing says what it needs."""

DOMINANT = 0.2
"""Share of all noise from which one node is named as its cause."""

SLOWER = 0.98
"""Speedup below which a model counts as slower than float."""


def judged_verdict(found: Judgement, gates: tuple[GateResult, ...]) -> Verdict:
    """Return the verdict of `quantize --data` as the report has it."""
    words = found.sentence.partition(": ")[2]
    causes = [*found.alarms, *([found.cause] if found.cause else []), *found.remarks]
    sentence = "; ".join([*_failed(gates), words])
    return Verdict(_level(found.grade, gates), sentence, tuple(causes), found.grade)


def measured_grade(evaluation: Evaluation, limits: NoiseLimits) -> Grade:
    """Return the grade of a model by an evaluation."""
    drop = evaluation.score or evaluation.accuracy
    return grade_of(output_grades(evaluation.outputs, limits), drop)


def verdict_of(
    outputs: tuple[OutputQuality, ...],
    gates: tuple[GateResult, ...],
    speed: Speed | None,
    budgets: tuple[NoiseBudget, ...],
    measured: Grade | None,
    *,
    doubts: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict of a report.

    Args:
        outputs: the one with the lowest SQNR first.
        gates: limits, kept or not.
        speed: of both models; None where it is not known.
        budgets: where the noise comes from, in the same order.
        measured: the grade by an evaluation; None without one, or without limits to grade by.
        doubts: signs that something is wrong with the models.
    """
    grade = _estimated_grade(outputs) if measured is None else measured
    causes = list(doubts)
    if budgets and grade != "good":
        part = budgets[0].parts[0]
        if part.share >= DOMINANT:
            causes.append(f"{part.node} makes {100 * part.share:.0f} % of the noise in '{budgets[0].output}'")
    if speed is not None and speed.speedup < SLOWER:
        causes.append(f"the quantized model is slower than the float one ({speed.how})")
        grade = "fair" if grade == "good" else grade
    words = [*_failed(gates), *_quality(outputs)]
    words += [] if speed is None else [f"{speed.speedup:.2f} times as fast as float, {speed.how}"]
    sentence = "; ".join(words) or "nothing was measured or estimated"
    return Verdict(_level(grade, gates), sentence, tuple(causes), grade)


def _level(grade: Grade, gates: tuple[GateResult, ...]) -> str:
    if any(not gate.passed for gate in gates):
        return "failed"
    if grade == "none":
        return "passed" if gates else "unknown"
    return grade


def _failed(gates: tuple[GateResult, ...]) -> list[str]:
    failed = sum(not gate.passed for gate in gates)
    return [f"{failed} of {len(gates)} gates failed"] if failed else []


def _estimated_grade(outputs: tuple[OutputQuality, ...]) -> Grade:
    """Return the grade of the worst output by its SQNR alone."""
    grades = [_by_sqnr(output) for output in outputs if sqnr_of(output) < math.inf or output.measured]
    return max(grades, key=lambda grade: ORDER[grade], default="none")


def _by_sqnr(output: OutputQuality) -> Grade:
    needed, sqnr = GOOD_DB if output.needed is None else output.needed, sqnr_of(output)
    return "good" if sqnr >= needed else "fair" if sqnr >= needed - FAIR_DB else "poor"


def _quality(outputs: tuple[OutputQuality, ...]) -> list[str]:
    """Return the lowest SQNR of an output in words, with what it needs."""
    if not outputs:
        return []
    worst = outputs[0]
    verb = "needs" if worst.kind.startswith("a") else "need"
    needs = "" if worst.needed is None else f", {worst.kind} {verb} {worst.needed:.0f}"
    if worst.measured is not None:
        return [f"output '{worst.name}' keeps {decibels(worst.measured)} dB{needs}"]
    if worst.estimated is None:
        return []
    return [f"output '{worst.name}' is expected to keep {worst.estimated:.1f} dB{needs}"]
