"""The verdict on a quantized model: how good, how large, how fast, why, and what to try. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log10
from typing import Literal, Protocol

import numpy as np

from ...profiles.base.presentation import Presentation, Presented, Table, size_text
from ..evaluation.accuracy import Accuracy
from ..evaluation.compare import Agreement, OutputResult
from ..evaluation.evaluate import Evaluation
from ..evaluation.latency import Latency
from ..evaluation.metrics.score import Score, score_text
from ..noise.estimate_check import EstimateCheck, too_good_texts
from ..noise.output_limits import WORDS, NoiseLimits
from ..targets.config import OutputKind, settings
from .candidates import RankedNode, Settings

# Good, fair or poor: a grade for each output by what it is, and one for labels by the interval of the drop.
#
# An output is good from the SQNR on with which nothing was lost on real models (DECISIONS.md, 40), fair
# with up to `FAIR_DB` less, that is with twice the error, and poor below. Of detections the worst group
# of channels counts: the noise of small scores is hidden by large boxes. Two things say more than SQNR
# does: classes that are the same as the float model's in nearly all rows, and labels.

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


class Drop(Protocol):
    """What labels or a metric show: a drop in percentage points with its 95 % interval."""

    @property
    def drop(self) -> float:
        """As measured."""

    @property
    def drop_low(self) -> float:
        """Lower end."""

    @property
    def drop_high(self) -> float:
        """Upper end."""


@dataclass(frozen=True)
class OutputGrade:
    """How good one output is.

    Attributes:
        output: its name.
        kind: what it is, in words.
        sqnr: in dB; of detections that of the worst group of channels; None where nothing could be compared.
        needed: dB from which on it is good.
        agreement: share of equal answers, where the largest value of the output is one.
        grade: by these.
    """

    output: str
    kind: str
    sqnr: float | None
    needed: float
    agreement: float | None
    grade: Grade

    @property
    def margin(self) -> float:
        """DB above what is needed; below 0 for an output that is not good by its SQNR."""
        return -inf if self.sqnr is None else self.sqnr - self.needed

    @property
    def text(self) -> str:
        """Return what was measured, and what is needed."""
        if self.sqnr is None:
            return f"output '{self.output}': has another shape than the float model's, or nothing finite"
        same = "" if self.agreement is None else f", {100 * self.agreement:.1f} % of the answers the same"
        measured = "no difference" if self.sqnr == inf else f"{self.sqnr:.1f} dB"
        where = " in its worst channels" if self.kind == WORDS["detections"] else ""
        needs = f"{self.kind} need{'s'[: self.kind.startswith('a')]} {self.needed:.0f}"
        return f"output '{self.output}': {measured}{where}, {needs}{same}"


def needed_sqnr(limits: NoiseLimits) -> dict[str, float]:
    """Return the SQNR in dB, over its power, with which each output is good as measured; inputs of the next
    run (states) are left out where there is another output."""
    every = {name: _needed(limits, name) for name in limits.kinds}
    return {name: db for name, db in every.items() if db > -inf} or every


def _needed(limits: NoiseLimits, name: str) -> float:
    if limits.least is not None:
        return limits.least
    if limits.kinds[name] == "detections":
        return SCORES_DB
    allowed = limits.allowed(name)
    return -inf if allowed == inf else -10.0 * np.log10(allowed) + MEASURED_DB.get(limits.kinds[name], 0.0)


def output_grades(results: Iterable[OutputResult], limits: NoiseLimits) -> tuple[OutputGrade, ...]:
    """Return the grades of the outputs that were compared and are no states, the worst first.

    Args:
        results: of the outputs; those that are not float have no SQNR and are left out.
        limits: of the model.
    """
    needed = needed_sqnr(limits)
    graded = [
        _output_grade(result, limits.kinds[result.name], float(needed[result.name]))
        for result in results
        if result.is_float and result.name in needed
    ]
    return tuple(sorted(graded, key=lambda grade: (-ORDER[grade.grade], grade.margin)))


def _output_grade(result: OutputResult, kind: OutputKind, needed: float) -> OutputGrade:
    sqnr = None if result.difference is None or result.shape_mismatches else result.difference.sqnr
    if sqnr is not None and kind == "detections" and result.channels is not None:
        groups = [group.difference for group in result.channels.groups]
        sqnr = min([sqnr, *(group.sqnr for group in groups if group.max_abs_value >= LEAST_SCORE)])
    same = result.agreement if result.agreement and result.agreement.kind == "top-1" else None
    share = None if same is None else same.ratio
    return OutputGrade(result.name, WORDS[kind], sqnr, needed, share, graded(sqnr, needed, same))


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


def drop_grade(drop: Drop) -> Grade:
    """Return the grade that a drop of accuracy, or of a metric, shows; "none" where the rows are too few."""
    if drop.drop_high <= SMALL_DROP:
        return "good"
    if drop.drop_low > CERTAIN_DROP:
        return "poor" if drop.drop > LARGE_DROP else "fair"
    return "none"


def grade_of(outputs: Sequence[OutputGrade], drop: Drop | None) -> Grade:
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


# What to try where a model is not good: changes of settings, what each brings, and the best. Pure.


WORTH_DB, WORTH = 0.5, 0.25
"""Least gain of a fix, as estimated, that is worth a trial: in dB, and of what is lacking."""

MOST_NODES = 12
"""Nodes that are named one by one at most: more is a question of the noise budget."""

LEAST_STEP_DB = 3.0
"""By which a noise limit that did not reach what is needed is raised at least."""

HEADROOM_DB = 1.0
"""By which a fix aims above what is needed."""


@dataclass(frozen=True)
class Fix:
    """A change of settings, and what it brings.

    Attributes:
        settings: fields of `QuantConfig` with their new values; names of nodes are added to those given.
        check_speed: whether it is to measure speed, and keep float what is slower in int8.
        sqnr: dB of the worst output then: measured on the held-out samples, or estimated; None for unknown.
        speedup: times as fast as float then, as measured; None where it was not.
        is_measured: whether it was tried.
        grade: of the model then, where it was tried.
        drop: of the accuracy or metric then, in `drop_unit`; None without labels.
        predicted: predicted time over that of the model as it is; 1 for unknown.
        drop_unit: "percentage points", or that of the metric.
    """

    settings: Settings = field(default_factory=dict)
    check_speed: bool = False
    sqnr: float | None = None
    speedup: float | None = None
    is_measured: bool = False
    grade: Grade = "none"
    drop: float | None = None
    predicted: float = 1.0
    drop_unit: str = "percentage points"

    @property
    def options(self) -> tuple[str, ...]:
        """Return it as options of `qprof quantize`."""
        words, known = ["--check-speed"] if self.check_speed else [], settings()
        for name, value in self.settings.items():
            values = value if isinstance(value, tuple) else (value,)
            words += [word for one in values for word in (known[name].flag, _text(one))]
        return tuple(words)

    @property
    def brings(self) -> str:
        """Return what it brings, in words."""
        parts = [] if self.sqnr is None else [f"{self.sqnr:.1f} dB"]
        if self.drop is not None:
            parts.append(f"{0.0 - self.drop:+.2f} {self.drop_unit.removeprefix('percentage ')}")
        if self.speedup is not None:
            parts.append(f"{self.speedup:.2f} times as fast as float")
        if self.check_speed and not self.is_measured:
            parts.append("never slower than float")
        how = "measured" if self.is_measured else "estimated"
        return f"{', '.join(parts)} ({how})" if parts else "not estimated"


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class QualityGap:
    """What a model lacks.

    Attributes:
        sqnr: dB of its worst output, as measured.
        needed: dB that this output needs.
        calibrator: that it was made with, and
        usual_calibrator: that of its target.
        limit: the noise limit of that output in dB, as the plan kept it by its estimate.
        in_16_bits: nodes whose activations the target can have in 16 bits.
    """

    sqnr: float
    needed: float
    calibrator: str
    usual_calibrator: str
    limit: float
    in_16_bits: frozenset[str] = frozenset()


def proposals(gap: QualityGap, ranking: Sequence[RankedNode]) -> tuple[Fix, ...]:
    """Return what to try, in the order in which it is tried, each with its estimate.

    The target's own calibrator; the node that adds most noise, in float and in 16 bits; as many nodes as
    reach what is needed, those first whose noise is worth most time; and a tighter noise budget, by as much
    as the estimate was too good.

    Args:
        gap: what is wrong.
        ranking: noise of the nodes, in any order.
    """
    found: list[Fix] = []
    if gap.calibrator != gap.usual_calibrator:
        found.append(Fix({"calibrator": gap.usual_calibrator}))
    total = sum(one.noise for one in ranking)
    worst = sorted(ranking, key=lambda one: (-one.noise, one.nodes))[:1]
    found += [_kept_float(gap, total, one.nodes, one.noise) for one in worst if 0.0 < total < inf]
    wide = [one for one in worst if gap.in_16_bits.issuperset(one.nodes)]
    found += [Fix({"keep_16bit": one.nodes}) for one in wide]
    found += [_kept_float(gap, total, *kept) for kept in _enough(gap, ranking, total)]
    stricter = round(gap.limit + max(0.0, gap.needed - gap.sqnr) + HEADROOM_DB, 1)
    found.append(Fix({"min_output_sqnr": stricter}, sqnr=gap.needed))
    least = max(WORTH_DB, WORTH * (gap.needed - gap.sqnr))
    unlike: dict[tuple[str, ...], Fix] = {}
    for fix in found:
        if fix.sqnr is None or fix.sqnr >= gap.sqnr + least:
            unlike.setdefault(fix.options, fix)
    return tuple(unlike.values())


def stricter_limits(gap: QualityGap, tried: Sequence[Fix]) -> tuple[Fix, ...]:
    """Return a noise limit above those that were tried and did not reach what is needed; () for none.

    Args:
        gap: what is wrong.
        tried: the fixes so far.
    """
    limits = [fix for fix in tried if fix.is_measured and "min_output_sqnr" in fix.settings]
    highest = max(limits, key=_limit, default=None)
    if highest is None or highest.sqnr is None or highest.sqnr >= gap.needed:
        return ()
    step = max(LEAST_STEP_DB, 2.0 * (gap.needed - highest.sqnr))
    return (Fix({"min_output_sqnr": round(_limit(highest) + step, 1)}, sqnr=gap.needed),)


def _limit(fix: Fix) -> float:
    value = fix.settings["min_output_sqnr"]
    assert isinstance(value, float)
    return value


def _kept_float(gap: QualityGap, total: float, nodes: tuple[str, ...], noise: float) -> Fix:
    return Fix({"keep_float": nodes}, sqnr=without(gap.sqnr, total, noise))


def without(sqnr: float, total: float, noise: float) -> float | None:
    """Return the SQNR in dB without a part of the noise; None where hardly any would be left."""
    rest = total - noise
    return None if not 0.0 < rest < total else sqnr + 10.0 * log10(total / rest)


def _enough(
    gap: QualityGap, ranking: Sequence[RankedNode], total: float
) -> Sequence[tuple[tuple[str, ...], float]]:
    """Return the nodes, and their noise, that are to be float for what is needed; () where they are many."""
    names: list[str] = []
    noise = 0.0
    for one in sorted(ranking, key=lambda one: (-one.noise / max(one.microseconds, 1e-3), one.nodes)):
        names += one.nodes
        noise += one.noise
        after = without(gap.sqnr, total, noise)
        if len(names) > MOST_NODES or after is None:
            return ()
        if after >= gap.needed + HEADROOM_DB:
            return ((tuple(names), noise),)
    return ()


def best_fix(fixes: Collection[Fix], grade: Grade, sqnr: float | None) -> Fix | None:
    """Return the fix to apply: the best grade, then the least time as predicted, then the highest SQNR.

    Only what was measured counts, and only what betters the model: its grade, or its worst output by
    `WORTH_DB`.

    Args:
        fixes: what was tried.
        grade: of the model as it is.
        sqnr: dB of its worst output.
    """
    before = -inf if sqnr is None else sqnr
    better = [
        fix
        for fix in fixes
        if fix.is_measured
        and fix.sqnr is not None
        and (ORDER[fix.grade], -fix.sqnr) < (ORDER[grade], -before - WORTH_DB)
        and ORDER[fix.grade] <= ORDER[grade]
    ]
    return min(better, key=worth, default=None)


def worth(fix: Fix) -> tuple[object, ...]:
    """Return what fixes that were tried are ordered by, the best first."""
    return ORDER[fix.grade], fix.predicted, -(fix.sqnr or 0.0), fix.options


# What a quantized model consists of, and what it costs beside the float one. Pure.

LEAST_SHARE = 0.005
"""Share of the multiply-adds below which none are in int8, as it is printed."""

KEEP_FLOAT = "keep the float model: int8 brings nothing here"
"""What is left to say where nothing is quantized, or no plan is smaller or faster than float."""


@dataclass(frozen=True)
class FloatNodes:
    """Nodes that stay float for one reason."""

    nodes: int
    reason: str


@dataclass(frozen=True)
class Composition:
    """What a quantized model consists of.

    Attributes:
        int8_share: share of the multiply-adds that integers do, in [0, 1]; None in a mode without a profile,
            which would say how many there are.
        quantized: number of nodes that compute in integers or have quantized weights.
        floats: the nodes that stay float by reason, the most first.
        weight_only: of `quantized`, those that have quantized weights and compute in float.
    """

    int8_share: float | None
    quantized: int
    floats: tuple[FloatNodes, ...]
    weight_only: int = 0

    @property
    def is_float(self) -> bool:
        """Whether nothing is gained by integers: no arithmetic, and no weights."""
        return not self.quantized or (self.int8_share == 0.0 and not self.weight_only)


@dataclass(frozen=True)
class Cost:
    """What a quantized model costs beside the float one.

    Attributes:
        float_bytes, quantized_bytes: sizes, external data included.
        latency: None where it was not measured.
    """

    float_bytes: int
    quantized_bytes: int
    latency: Latency | None

    @property
    def is_slower(self) -> bool:
        """Whether float is faster in three of four rounds."""
        return self.latency is not None and self.latency.speedup_high < 1.0

    @property
    def is_faster(self) -> bool:
        """Whether float is slower in three of four rounds."""
        return self.latency is not None and self.latency.speedup_low > 1.0


def is_no_gain(parts: Composition, cost: Cost) -> bool:
    """Whether a fix is none: it leaves nothing in int8, or a model that is larger or slower than float."""
    return parts.is_float or cost.quantized_bytes > cost.float_bytes or cost.is_slower


def brings_nothing(parts: Composition, cost: Cost) -> bool:
    """Whether int8 gains nothing: nothing is quantized, or it is neither smaller nor faster than float."""
    return parts.is_float or (cost.quantized_bytes >= cost.float_bytes and not cost.is_faster)


def alarms_of(parts: Composition, cost: Cost) -> Iterator[str]:
    """Yield what must not go unnoticed: nothing in int8, larger or slower than float."""
    if parts.is_float:
        yield "float kept: nothing is quantized"
    elif parts.int8_share is not None and parts.int8_share < LEAST_SHARE:
        only = (
            f"only the weights of {_count(parts.weight_only, 'node')} are"
            if parts.weight_only
            else "hardly anything is"
        )
        yield f"no arithmetic in int8 (0 % of the multiply-adds): {only} quantized"
    if cost.quantized_bytes > cost.float_bytes:
        yield f"larger than float: {size_text(cost.quantized_bytes)}, float {size_text(cost.float_bytes)}"
    if cost.is_slower and cost.latency is not None:
        yield f"slower than float: {cost.latency.speedup:.2f} times as fast"


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
        alarms: what must not go unnoticed: nothing quantized, larger or slower than float, measured with
            kernels that saturate.
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
    evaluation: Evaluation,
    limits: NoiseLimits,
    composition: Composition,
    held_out: HeldOut,
    saturation: str = "",
) -> Verdict:
    """Return the verdict on a model, with neither cause nor fixes.

    Args:
        evaluation: of it, on the held-out samples.
        limits: how much noise its outputs can bear.
        composition: what computes in integers.
        held_out: the samples.
        saturation: why what was measured is worse than on the target, "" where it is not.
    """
    outputs = output_grades(evaluation.outputs, limits)
    drop = evaluation.score or evaluation.accuracy
    # Where kernels saturate the estimate is not too good: the measurement is of other arithmetic.
    untrue = too_good_texts(evaluation.estimates) if saturation else ()
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
        remarks=(*_about(held_out), *(text for text in evaluation.remarks if text not in untrue)),
    )
    alarms = [*([saturation] if saturation else []), *alarms_of(composition, found.cost)]
    found = replace(found, alarms=tuple(alarms))
    if found.grade != "good":
        return found
    if drop is not None and drop.is_at_chance:  # remarks of an evaluation begin with why
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


# The verdict as a list of facts, for people.

REASONS = 3
"""Reasons of float nodes that are shown; JSON has all."""


def facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield name and text of what stands below the sentence: size, speed, share of int8, the cause."""
    yield "size", _size(verdict)
    yield from (("speed", text) for text in _speed(verdict))
    yield "int8", _int8(verdict)
    yield from (("ALARM", alarm) for alarm in verdict.alarms)
    yield from (("remark", remark) for remark in verdict.remarks if remark not in verdict.sentence)
    if verdict.cause:
        yield "cause", verdict.cause


def presentation_of(verdict: Verdict) -> Presentation:
    """Return the facts, and what to try, as keywords of `quantize`."""
    applied = [] if verdict.applied is None else [("fixed", _keywords(verdict.applied))]
    tries = tuple((_keywords(fix), fix.brings) for fix in verdict.fixes)
    tables = (Table(("try quantize(..., )", "brings"), tries, left=2),) if tries else ()
    return Presentation((*facts(verdict), *applied), tables)


def _keywords(fix: Fix) -> str:
    """Return the change of settings as Python writes it; SpeedCheckOptions is a name of the package."""
    words = ["speed=SpeedCheckOptions()"] if fix.check_speed else []
    for name, value in fix.settings.items():
        words.append(f"{name}={list(value) if isinstance(value, tuple) else value!r}")
    return ", ".join(words)


def _size(verdict: Verdict) -> str:
    ratio = verdict.float_bytes / max(verdict.quantized_bytes, 1)
    return (
        f"{size_text(verdict.float_bytes)} -> {size_text(verdict.quantized_bytes)}, {ratio:.2f} times smaller"
    )


def _speed(verdict: Verdict) -> Iterator[str]:
    found = verdict.latency
    if found is None:
        yield "not measured"
    else:
        threads = _count(found.threads, "thread")
        yield (
            f"{found.speedup:.2f} times as fast as float ({found.speedup_low:.2f} to "
            f"{found.speedup_high:.2f}; {threads}, this processor)"
        )


def _int8(verdict: Verdict) -> str:
    """Return the share of the arithmetic, and why the rest is float."""
    parts = verdict.composition
    share = f"{_count(parts.quantized, 'node')} quantized"
    if parts.int8_share is not None:
        share = f"{100 * parts.int8_share:.0f} % of the multiply-adds"
    count = sum(group.nodes for group in parts.floats)
    if not count:
        return f"{share}; no node stays float"
    reasons = "; ".join(f"{group.nodes}: {group.reason}" for group in parts.floats[:REASONS])
    return f"{share}; {count} node{'s stay' if count > 1 else ' stays'} float, of them {reasons}"
