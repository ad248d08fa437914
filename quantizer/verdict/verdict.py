"""The verdict on a quantized model: how good, how large, how fast, why, and what to try. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...profiles.base.presentation import Presentation, Presented
from ..evaluation.accuracy import Accuracy
from ..evaluation.result import Evaluation
from ..metrics.score import Score, score_text
from ..noise.estimate_check import EstimateCheck
from ..outputs.limits import NoiseLimits
from ..runtime.latency import Latency
from .composition import KEEP_FLOAT, Composition, Cost, alarms_of, brings_nothing
from .fixes import Fix
from .grades import Grade, OutputGrade, grade_of, output_grades
from .wording import presentation_of

FEW, TOO_FEW = 16, 8
"""Held-out rows below which a verdict says that they are few, and below which it is good so far only."""

SHOWN = 3
"""Outputs and reasons that are shown."""


@dataclass(frozen=True)
class HeldOut:
    """The samples that a model was judged on.

    Attributes:
        samples, rows: how many; a sample that is a batch has several rows, one that is none counts as one.
        of_samples: how many there are in all, those that the profile was made from included.
        seen: whether the profile was made from the same samples.
        source: where they come from, as the user named it.
    """

    samples: int
    rows: int
    of_samples: int
    seen: bool
    source: str

    @property
    def text(self) -> str:
        """Return which samples they are."""
        if self.seen:
            return f"the {_count(self.samples, 'sample')} that the profile was made from"
        if self.rows != self.samples:
            return f"{self.rows} held-out rows"
        return _count(self.samples, "held-out sample")

    @property
    def few_text(self) -> str:
        """Return how few they are, where these cannot show that a model is good; else ""."""
        if self.rows >= TOO_FEW:
            return ""
        return f"judged on {_count(self.rows, 'row' if self.rows != self.samples else 'sample')} only"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s'[: number != 1]}"


@dataclass(frozen=True, repr=False)
class Verdict(Presented):
    """How good a quantized model is, and what to try.

    Attributes:
        grade: "good", "fair" or "poor"; "none" where there is no telling.
        outputs: the grade of each output, the worst first.
        estimates: of the outputs, held against what was measured.
        accuracy: by labels; None without.
        metric, score: title of the metric that was asked for, and both models by it; None without.
        held_out: the samples that it was judged on.
        float_bytes, quantized_bytes: sizes, external data included.
        latency: None where it was not measured, or says nothing of the target.
        composition: what computes in integers, and why the rest does not.
        alarms: what must not go unnoticed: nothing quantized, larger or slower than float.
        remarks: what else to know of the verdict.
        cause: what costs most, where the model is not good; "" elsewhere.
        fixes: what to try, and what it brings, the best first.
        applied: the fix that was applied (`--fix auto`); None for none.
    """

    grade: Grade
    outputs: tuple[OutputGrade, ...]
    estimates: tuple[EstimateCheck, ...]
    accuracy: Accuracy | None
    metric: str
    score: Score | None
    held_out: HeldOut
    float_bytes: int
    quantized_bytes: int
    latency: Latency | None
    composition: Composition
    alarms: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    cause: str = ""
    fixes: tuple[Fix, ...] = ()
    applied: Fix | None = None

    @property
    def cost(self) -> Cost:
        """Sizes and speed."""
        return Cost(self.float_bytes, self.quantized_bytes, self.latency)

    @property
    def worst(self) -> OutputGrade | None:
        """The output that decides."""
        return self.outputs[0] if self.outputs else None

    @property
    def sqnr(self) -> float | None:
        """SQNR in dB of that output."""
        return None if self.worst is None else self.worst.sqnr

    @property
    def sentence(self) -> str:
        """Return the grade and what it rests on, in one line."""
        if self.grade == "none" and self.remarks:
            return f"none: {self.remarks[0]}"
        parts = [] if self.worst is None else [self.worst.text + self._expected(self.worst.output)]
        parts += [] if self.accuracy is None else [accuracy_text(self.accuracy)]
        parts += [] if self.score is None else [metric_text(self.metric, self.score)]
        facts = "; ".join(parts) or "nothing that is float could be compared"
        if self.grade == "good" and self.held_out.few_text:
            return f"good so far: {self.held_out.few_text}; {facts}"
        on = "" if self.accuracy is not None else f" (on {self.held_out.text})"
        return f"{self.grade}: {facts}{on}"

    def headline(self) -> str:
        """Return the sentence."""
        return self.sentence

    def presentation(self) -> Presentation:
        """Return size, speed, share of int8, what costs most, and what to try."""
        return presentation_of(self)

    def _expected(self, output: str) -> str:
        found = next((check for check in self.estimates if check.output == output), None)
        return "" if found is None else f"; the plan expected {found.low:.0f} to {found.high:.0f}"


def accuracy_text(found: Accuracy) -> str:
    """Return both accuracies and their difference with its 95 % interval."""
    return (
        f"accuracy {found.float_percent:.2f} -> {found.quantized_percent:.2f} % of {found.rows} held-out "
        f"rows ({0.0 - found.drop:+.2f} points, {0.0 - found.drop_high:+.2f} to {0.0 - found.drop_low:+.2f})"
    )


def metric_text(title: str, found: Score) -> str:
    """Return both scores and the change, with its 95 % interval."""
    change = f"{0.0 - found.drop:+.2f}, {0.0 - found.drop_high:+.2f} to {0.0 - found.drop_low:+.2f}"
    return f"{title} {score_text(found)} ({change} {found.drop_unit})"


def verdict_of(
    evaluation: Evaluation, limits: NoiseLimits, composition: Composition, held_out: HeldOut
) -> Verdict:
    """Return the verdict on a model, with neither cause nor fixes.

    Args:
        evaluation: of it, on the held-out samples.
        limits: how much noise its outputs can bear.
        composition: what computes in integers.
        held_out: the samples.
    """
    outputs = output_grades(evaluation.outputs, limits)
    drop = evaluation.score or evaluation.accuracy
    found = Verdict(
        grade_of(outputs, drop),
        outputs,
        evaluation.estimates,
        evaluation.accuracy,
        evaluation.metric_title,
        evaluation.score,
        held_out,
        evaluation.float_bytes,
        evaluation.quantized_bytes,
        evaluation.latency,
        composition,
        remarks=(*_about(held_out), *evaluation.remarks),
    )
    found = replace(found, alarms=tuple(alarms_of(composition, found.cost)))
    if found.grade != "good":
        return found
    if drop is not None and drop.is_worthless:  # remarks of an evaluation begin with why
        return no_verdict(found, evaluation.remarks[0])
    return replace(found, grade="fair") if composition.is_float else found


def no_verdict(found: Verdict, reason: str) -> Verdict:
    """Return a verdict that there is none, and why."""
    remarks = tuple(dict.fromkeys((reason, *found.remarks)))
    return replace(found, grade="none", remarks=remarks, cause="", fixes=())


def with_fixes(found: Verdict, cause: str, fixes: Sequence[Fix]) -> Verdict:
    """Return a verdict with its cause and fixes; where nothing helps, it says to keep the float model."""
    keep = (
        (KEEP_FLOAT,) if not fixes and found.alarms and brings_nothing(found.composition, found.cost) else ()
    )
    remarks = tuple(dict.fromkeys((*keep, *found.remarks)))
    return replace(found, cause=cause, fixes=tuple(fixes), remarks=remarks)


def _about(held_out: HeldOut) -> Sequence[str]:
    if held_out.seen:
        return ("judged on the samples of the profile, which flatters: give others with --holdout-data",)
    if held_out.rows < FEW:
        few = _count(held_out.samples, "held-out sample")
        return (f"few samples: {few} of {held_out.of_samples}; more make the verdict surer",)
    return ()


@dataclass(frozen=True)
class Judged:
    """What was found on samples that were held out, with what it rests on.

    Attributes:
        verdict: the verdict.
        evaluation: both models compared.
        profile: file of the profile; "" where none was kept, or the mode needs none.
        profile_reused: whether it was there already.
    """

    verdict: Verdict
    evaluation: Evaluation
    profile: str = ""
    profile_reused: bool = False
