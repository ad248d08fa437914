"""The verdict on a quantized model: quality, size, speed, cause and fixes. Pure.

`verdict_of` combines the grades (`evaluation.grades`) with the composition and cost of the model;
`with_fixes` adds changes to try (`fixes`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from ...profiles.base.findings import Code, Finding, Severity, gravest_first, of_severity
from ...profiles.base.json_values import NOT_IN_JSON
from ...profiles.base.presentation import Presentation, Presented, Table, counted, size_text
from ...profiles.base.tuned import tuned
from ...profiles.records.profile import Profile
from ..costs.float_regions import NOISY, UNPROFITABLE, without_int8
from ..evaluation.cost import Cost
from ..evaluation.evaluate import ACCURACY, VOID, Evaluation
from ..evaluation.gates import truth_doubts
from ..evaluation.grades import NARROW, ORDER, WANTED_DROP, Decision
from ..evaluation.latency import EVEN_RATIO, Latency, times_as_fast
from ..evaluation.metrics.score import Score, score_text
from ..evaluation.output_shift import Grade, OutputShift
from ..noise.output_limits import WORDS
from ..operators.graph import Graph
from ..operators.table import channel_layout
from ..plan.other_formats import other_formats
from ..plan.plan import Implementation, Kind, QuantPlan
from ..plan.reasons import ReasonCode
from ..targets.config import FLOAT_TYPES, settings
from ..targets.loading import Settings
from .attribution import Attribution
from .integer_share import int8_share
from .speed import SPEED

MIN_INT8_SHARE = 0.005
"""A smaller fraction of multiply-adds in int8 is printed as none."""

OPERATORS_TOLD = 3
"""Operators of products that a composition names, the most frequent first."""

FEW_ROWS, TOO_FEW_ROWS = 16, 8
"""Held-out rows below which a verdict says that they are few, and below which it is good so far only."""


@dataclass(frozen=True)
class FloatNodes:
    """Nodes that stay float for reasons of one code."""

    code: ReasonCode
    nodes: int  # how many there are
    reason: str  # the common reason, with names, and figures with their range


def float_nodes(plan: QuantPlan) -> tuple[FloatNodes, ...]:
    """Return the nodes that stay float by the code of their reason, the most first."""
    return tuple(FloatNodes(code, len(names), reason) for code, reason, names in plan.float_nodes())


@dataclass(frozen=True)
class Composition:
    """The kinds of the nodes and weights of a quantized model."""

    # fraction of the multiply-adds in integers or in floats of few bits, in [0, 1]; None in mode weight-only,
    # and without a profile, which is needed to count them
    int8_share: float | None
    quantized: int  # nodes that compute in integers or have quantized weights
    weight_only: int = 0  # of `quantized`, those that have quantized weights and compute in float
    caches: int = 0  # float nodes that keep keys and values in int8; none of `quantized`
    nodes: int = 0  # in all
    wider: str = ""  # formats of weights that differ from the setting, see `other_formats`
    float_type: str = ""  # the floating-point type of products, "" for integers
    products: Mapping[str, int] = field(default_factory=dict)  # operators that multiply, with their numbers
    int8_products: int = 0  # how many of these `int8_share` counts
    runs_in_float: bool = False  # whether a run computes only in float, from weights made float once
    why_float: str = ""  # why arithmetic in int8 is left out: noise, time or both; "" if it is not

    def source_of(self, speedup: float | None) -> str:
        """Return the cause of a speedup, if that is not int8; "" for a model that is not faster."""
        if not self.runs_in_float or speedup is None or speedup <= EVEN_RATIO:
            return ""
        return "; rewritten float operators gain this, not int8"

    def has_floats_speed(self, cost: Cost) -> bool:
        """Whether a run computes as in float, and no known time differs from float's by more than chance."""
        # If nothing is quantized, a gain that was measured and not predicted is chance.
        is_gain = cost.latency is not None and cost.latency.speedup > 1.0
        known = replace(cost, latency=None) if is_gain and not self.quantized else cost
        return self.runs_in_float and known.is_even

    @property
    def uses_integers(self) -> bool:
        """Whether arithmetic, weights or a cache are in integers."""
        computes = self.int8_products or (self.quantized and self.int8_share != 0.0)
        return bool(self.caches or self.weight_only or computes)

    @property
    def is_weights_only(self) -> bool:
        """Whether weights are quantized and all arithmetic is float."""
        return self.weight_only == self.quantized > 0

    @property
    def text(self) -> str:
        """Return the share of the arithmetic, and of the products: other nodes are many and take little."""
        nodes = _count(max(self.nodes, self.quantized), "node")
        weights = f"weights only, of {self.weight_only} of {nodes}"
        if self.why_float:
            return f"{weights if self.weight_only else 'nothing'}: {self.why_float}"
        if not (self.quantized or self.caches):
            return "nothing"
        if self.is_weights_only:
            return "; ".join(filter(None, [f"{weights}; arithmetic in float", self.wider]))
        if self.int8_share is None:
            return f"{self.quantized} of {nodes} quantized"
        share = f"{100 * self.int8_share:.0f} % of the arithmetic"
        share += f" in {self.float_type}" if self.float_type else ""
        products = _count(sum(self.products.values()), "product")
        operators = ", ".join(sorted(self.products, key=lambda name: -self.products[name])[:OPERATORS_TOLD])
        some = f"{self.int8_products} of {products} ({operators})"
        if self.int8_products and self.int8_share < MIN_INT8_SHARE:  # in loops nobody counts the runs
            return some
        return f"{share}, {some}" if self.products else share


def composition_of(plan: QuantPlan, graph: Graph, profile: Profile | None) -> Composition:
    """Return the kinds of the nodes and weights of the quantized model of a plan."""
    kinds = Counter(entry.kind for entry in plan.nodes.values())
    products = [node for node in graph.nodes if channel_layout(node) is not None]
    entries, folded = plan.nodes.values(), (Kind.WEIGHT_ONLY, Implementation.FOLDED)
    in_float = all(e.kind is Kind.FLOAT or (e.kind, e.implementation) == folded for e in entries)
    return Composition(
        None if profile is None or plan.config.mode == "weight-only" else int8_share(plan, graph, profile),
        len(plan.nodes) - kinds[Kind.FLOAT],
        kinds[Kind.WEIGHT_ONLY],
        plan.int8_caches,
        len(plan.nodes),
        other_formats(plan, graph),
        plan.config.activation_type if plan.config.activation_type in FLOAT_TYPES else "",
        products=Counter(node.op_type for node in products),
        int8_products=sum(plan.nodes[node.name].kind.counts_as_quantized for node in products),
        runs_in_float=in_float and not plan.int8_caches,
        why_float=_why_float(plan),
    )


def _why_float(plan: QuantPlan) -> str:
    """Return why nothing computes in int8: time or noise, and the reason that most nodes have."""
    slow, noisy = without_int8(plan)
    if not (slow or noisy):
        return ""
    words = "be too noisy" if noisy else "save too little time"
    if slow and noisy:
        words += f" in {_count(noisy, 'node')}, and save too little time in {slow}"
    code, reason, nodes = next(one for one in plan.float_nodes() if one[0] in (*UNPROFITABLE, *NOISY))
    node = "" if code is ReasonCode.MODEL_SAVES_TOO_LITTLE else f"{nodes[0]}: "
    return f"int8 arithmetic would {words} ({node}{reason})"


MIN_SAVED = tuned(
    0.05,
    figure="of 32 models as built the least gains are 0 and 5.9 % of the size: at half nothing changes, at "
    "double one model of pitch is written in float",
    chosen_on="by hand",
    holds=(0.01, 0.058),
)
"""Share of its size, or of its time, that a model has to save."""


def brings_nothing(composition: Composition, cost: Cost) -> bool:
    """Whether int8 gains nothing: nothing is quantized, or it is hardly smaller and hardly faster."""
    return not composition.uses_integers or cost.gain < MIN_SAVED


AGAINST = (
    *(Code.SATURATING_KERNELS, Code.NOTHING_QUANTIZED, Code.NO_INT8_ARITHMETIC),
    *(Code.LARGER_THAN_FLOAT, Code.FLOAT_IS_FASTER),
)
"""Findings that speak against a quantized model, whatever its grade is."""

USE_FLOAT = "use the float model"

NOTHING_TO_QUANTIZE = Finding(
    Code.NOTHING_QUANTIZED,
    "there is nothing to quantize: the model has no product, such as Conv or MatMul",
    remedy=USE_FLOAT,
)


def against(composition: Composition, cost: Cost) -> Iterator[Finding]:
    """Yield the findings against the model: nothing in int8, larger or slower than float."""
    if not composition.uses_integers:
        why = f": {composition.why_float}" if composition.why_float else ""
        yield Finding(Code.NOTHING_QUANTIZED, f"nothing is quantized{why}", remedy=USE_FLOAT)
    elif (
        composition.int8_share is not None
        and composition.int8_share < MIN_INT8_SHARE
        and not composition.int8_products
        and not composition.why_float
    ):
        sentence = "no arithmetic in int8: only weights, or keys and values, are quantized"
        yield Finding(Code.NO_INT8_ARITHMETIC, sentence, figures={"int8_share": composition.int8_share})
    if cost.is_larger and composition.uses_integers:
        yield cost.larger()
    if cost.is_slower and cost.latency is not None and not composition.has_floats_speed(cost):
        sentence = f"slower than float: {times_as_fast(cost.latency.speedup)}"
        has_plan = composition.nodes > 0  # else another tool made the model
        is_of_use = SPEED.is_installed and has_plan and not composition.is_weights_only
        remedy = "--check-speed keeps slower nodes in float" if is_of_use else ""
        yield Finding(
            Code.FLOAT_IS_FASTER, sentence, figures={"speedup": cost.latency.speedup}, remedy=remedy
        )


@dataclass(frozen=True)
class HeldOut:
    """The samples that a model was judged on."""

    samples: int  # their number
    rows: int  # of them; a batch has several rows, any other sample one
    of_samples: int  # how many there are in all, those that the profile was made from included
    seen: bool  # whether the profile was made from the same samples
    source: str  # as the user named it
    sequences: tuple[int, int] = (0, 0)  # number of theirs, and of all; (0, 0) if samples are independent
    are_held_out: bool = True  # whether nothing was chosen by them, as far as known

    @property
    def text(self) -> str:
        """Return which samples they are."""
        if self.seen:
            return f"the {counted(self.samples, self.rows)} that the profile was made from"
        count = counted(self.samples, self.rows)
        if self.are_held_out:
            count = count.replace(" ", " held-out ", 1)
        held_out, of = self.sequences
        return f"{count}, {held_out} of {of} sequences" if of else count

    @property
    def few_text(self) -> str:
        """Return their number, if they are too few to show that a model is good, or were seen; else ""."""
        if self.seen:
            return f"judged on the profile's own sample{'s' * (self.samples > 1)} only"
        if self.rows >= TOO_FEW_ROWS:
            return ""
        return f"judged on {counted(self.samples, self.rows)} only"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that make a verdict on them unsure."""
        if self.seen:
            advice = "give others with --holdout-data" if self.are_held_out else "give others"
            sentence = "judged on the samples of the profile, so the figures are too good"
            return (Finding(Code.SEEN_SAMPLES, sentence, self.source, remedy=advice),)
        if self.rows < FEW_ROWS:
            few = _count(self.samples, "held-out sample")
            figures = {"samples": self.samples, "of": self.of_samples}
            sentence = f"few samples: {few} of {self.of_samples}" if self.are_held_out else "few samples"
            remedy = "more samples make the verdict more certain"
            return (Finding(Code.FEW_HELD_OUT, sentence, self.source, figures, remedy),)
        return ()


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s'[: number != 1]}"


@dataclass(frozen=True)
class Fix:
    """A change of settings, and the model that it makes, as measured on the held-out samples.

    Attributes:
        settings: fields of `QuantConfig` with their new values; names of nodes are added to those given.
        sqnr: SQNR in dB of the worst output with the fix; None if nothing differs, and before it is tried.
        speedup: times as fast as float with the fix; None if it was not measured, or is unclear.
        grade: of the model then.
        figure: how far its worst output is from float then, in words; "" for no output.
        speed: its speed, in the words of its verdict; "" if unknown.
        drop: of the accuracy or metric then, in `drop_unit`; None without labels.
        predicted: time over float's as predicted.
        drop_unit: "percentage points", or that of the metric.
        bytes: of the model.
        lost: the speedup without the fix, if that is higher, in words; "" if it is not.
        is_rise: whether a drop is a rise of the score, as of perplexity. Not in JSON.
    """

    settings: Settings = field(default_factory=dict)
    sqnr: float | None = None
    speedup: float | None = None
    grade: Grade = "none"
    figure: str = ""
    speed: str = ""
    drop: float | None = None
    predicted: float = 1.0
    drop_unit: str = "percentage points"
    bytes: int = 0
    lost: str = ""
    is_rise: bool = field(default=False, metadata=NOT_IN_JSON)

    @property
    def words(self) -> Settings:
        """Return it as keywords of `quantize`; a word for 8 bits implies all that it changes."""
        asked = self.settings.get("mode"), self.settings.get("weight_type")
        words = {("weight-only", "int8"): "weight-only-8", ("static", "int8"): "int8"}
        return {"config": words[asked]} if asked in words else self.settings

    @property
    def options(self) -> tuple[str, ...]:
        """Return it as options of `qprof quantize`."""
        known = settings()
        given = (known[n].given(v) if n in known else ("--as", str(v)) for n, v in self.words.items())
        return tuple(chain.from_iterable(given))

    @property
    def brings(self) -> str:
        """Return the figures of its model, in words."""
        size, drop = size_text(self.bytes) if self.bytes else "", ""
        if self.drop is not None:
            rise = 0.0 + self.drop if self.is_rise else 0.0 - self.drop
            drop = f"{rise:+.2f} {self.drop_unit.removeprefix('percentage ')}"
        figures = filter(None, [self.grade, self.figure, drop, self.speed, size])
        return f"{', '.join(figures)} (measured){self.lost}"

    def with_figures(self, verdict: Verdict, than: Verdict | None = None) -> Fix:
        """Return it with the figures of the model that it makes, and the loss of speed beside another."""
        scored, predicted, latency = verdict.score, verdict.predicted, verdict.latency
        in_integers = 1.0 - 0.5 * (verdict.composition.int8_share or 0.0)  # as if these took half
        words = "" if latency is None else latency.words or verdict.cost.speed
        known = 1.0 if verdict.has_floats_speed else verdict.cost.speedup
        before = None if than is None or than.latency is None else than.cost.speedup
        is_lost = known is not None and before is not None and before > EVEN_RATIO * max(known, 1.0)
        return replace(
            self,
            sqnr=verdict.sqnr,
            speedup=None if latency is None or latency.is_unclear else latency.speedup,
            grade=verdict.grade,
            figure="" if verdict.worst is None else re.sub(r" \(limit [^)]*\)", "", verdict.worst.measured),
            speed="the speed of float" if verdict.has_floats_speed and (latency or predicted) else words,
            drop=None if scored is None else scored.drop,
            drop_unit=Fix.drop_unit if scored is None else scored.drop_unit,
            predicted=in_integers if predicted is None else 1.0 / max(predicted, 1e-9),
            bytes=verdict.quantized_bytes,
            lost=f"; {before:.2f} times as fast without it" if is_lost else "",
            is_rise=scored is not None and not scored.higher_is_better,
        )


NO_GRADE = (*VOID, Code.NO_VERDICT, Code.DOUBTFUL_TRUTH, Code.NOTHING_QUANTIZED)
"""Findings that say why there is no grade."""


@dataclass(frozen=True, repr=False)
class Verdict(Presented):
    """The grade of a quantized model, with its cause and the fixes to try.

    Attributes:
        grade: "good", "fair" or "poor"; "none" if it cannot be judged.
        decision: whether the score or the outputs decide, and the grade by the outputs.
        outputs: the grade of each output, the worst first.
        metric, score: title of the metric, and the scores of both models; None without one.
        held_out: the samples that it was judged on.
        float_bytes, quantized_bytes: sizes, external data included.
        latency: latency of both models; None if it was not measured, or does not apply to the target.
        predicted: times as fast as float, by the times that the plan was made with; None without.
        composition: the parts in integers, and the reasons for the rest.
        findings: notes and warnings, the gravest first, such as the main cause (`main-cause`).
        fixes: changes to try with their results, the best first.
        applied: the fix that was applied (`--fix auto`); None for none.
        attribution: the noise of the nodes, if the model is not good; None if it was not run. Not in JSON.
        printed: predicted times as fast as float on this processor; None if unknown. Not in JSON.
        simulated: the target, if float arithmetic stood in for its kernels; "" if not. Not in JSON.
    """

    grade: Grade
    decision: Decision
    outputs: tuple[OutputShift, ...]
    metric: str
    score: Score | None
    held_out: HeldOut
    float_bytes: int
    quantized_bytes: int
    latency: Latency | None
    predicted: float | None
    composition: Composition
    findings: tuple[Finding, ...] = ()
    fixes: tuple[Fix, ...] = ()
    applied: Fix | None = None
    attribution: Attribution | None = field(default=None, metadata=NOT_IN_JSON)
    printed: float | None = field(default=None, metadata=NOT_IN_JSON)
    simulated: str = field(default="", metadata=NOT_IN_JSON)

    @property
    def cause(self) -> tuple[Finding, ...]:
        """The finding on the main cost, or () if the model is good or has no main cause."""
        return tuple(finding for finding in self.findings if finding.code is Code.MAIN_CAUSE)

    @property
    def against(self) -> tuple[Finding, ...]:
        """The findings that speak against the model, regardless of its grade."""
        return tuple(finding for finding in self.findings if finding.code in AGAINST)

    @property
    def is_deployable(self) -> bool:
        """Whether it is good, and nothing speaks against the model or its samples."""
        codes = {*VOID, Code.NON_FINITE, Code.SEEN_SAMPLES} & {one.code for one in self.findings}
        return self.grade == "good" and not (self.fixes or self.against or codes)

    @property
    def cost(self) -> Cost:
        """Sizes and speed."""
        return Cost(self.float_bytes, self.quantized_bytes, self.latency, self.predicted, self.printed)

    @property
    def worst(self) -> OutputShift | None:
        """The output that decides."""
        return self.outputs[0] if self.outputs else None

    @property
    def sqnr(self) -> float | None:
        """SQNR in dB of that output."""
        return None if self.worst is None else self.worst.deciding_sqnr

    @property
    def sentence(self) -> str:
        """Return the grade and its measure, in one line."""
        if self.grade == "none":
            by_code = {one.code: one for one in reversed(self.findings)}
            if (why := next((by_code[code] for code in NO_GRADE if code in by_code), None)) is not None:
                return f"none: {why.sentence if self.fixes else why}"
        parts = [self.scores, "" if self.worst is None else self.worst.text]
        facts = "; ".join(filter(None, parts)) or "nothing that is float could be compared"
        on = "" if self.metric == ACCURACY else f" (on {self.held_out.text})"
        parts = [f"{facts}{on}", self.why]
        facts = "; ".join(filter(None, reversed(parts) if self.is_vain else parts))
        facts += f"; computed in float arithmetic, not by kernels of {self.simulated}" * bool(self.simulated)
        is_few = self.grade == "good" and bool(self.held_out.few_text)
        if is_few or (self.grade == "good" and self.decision.so_far):
            facts = "; ".join(filter(None, [self.held_out.few_text if is_few else "", facts]))
            return f"good so far{self._remark}: {facts}"
        return f"{self.grade}{self._remark}: {facts}"

    @property
    def scores(self) -> str:
        """Return both scores and the change, in words; "" without a score."""
        if (score := self.score) is None:
            return ""
        if self.metric != ACCURACY:
            return f"{self.metric} {score_text(score)} ({_change(score, score.drop_unit)})"
        rows = "held-out rows" if self.held_out.are_held_out else "rows"
        rows = "rows of the profile" if self.held_out.seen else rows
        both = f"{score.float_score:.2f} -> {score.quantized_score:.2f} %"
        return f"accuracy {both} of {score.rows} {rows} ({_change(score, 'points')})"

    @property
    def is_vain(self) -> bool:
        """Whether it is fair only as int8 brings nothing."""
        return self.grade == "fair" and self.decision.grade == "good"

    @property
    def is_unsure(self) -> bool:
        """Whether an output speaks against the model, and the score, if known, does not."""
        scored, by = self.score, self.decision.by
        if scored is None or by != "outputs" or self.decision.overruled:
            return False
        return self.grade in ("fair", "poor") and scored.drop <= WANTED_DROP

    @property
    def score_to_try(self) -> str:
        """Return the options of a score that may decide over outputs that are not good; "" for none."""
        worst, is_good = self.worst, self.is_vain or self.grade in ("good", "none")
        if self.score is not None or worst is None or worst.is_destroyed or is_good:
            return ""
        classes = SCORED_BY[WORDS["decision"]] if worst.aside else ""
        return "--labels FILE --metric cer" if worst.sequences else classes or SCORED_BY.get(worst.kind, "")

    @property
    def why(self) -> str:
        """Return whether the score or the output decides, and why, if their grades differ; else ""."""
        scored, decision = self.score, self.decision
        if self.is_vain:
            if not self.composition.uses_integers:
                return "nothing in it is quantized"
            faster = "" if self.cost.speedup is None else " and hardly faster"
            return f"the model is hardly smaller{faster} than float"
        if scored is None or self.worst is None or self.grade != decision.grade:
            return ""
        if decision.overruled:
            return decision.overruled
        if decision.by == "outputs":
            counted = _count(scored.rows, "row" if self.metric == ACCURACY else "sample")
            return f"the output decides: the score of {counted} is not conclusive" if self.is_unsure else ""
        return "the score decides" if decision.so_far or decision.grade != decision.outputs else ""

    @property
    def has_floats_speed(self) -> bool:
        """Whether the model has float's computation and, as far as that is known, speed."""
        return self.composition.has_floats_speed(self.cost)

    @property
    def seems_slower(self) -> bool:
        """Whether float is faster, or seems so on a busy machine."""
        measured = 1.0 if self.latency is None else self.latency.speedup
        seems = EVEN_RATIO * (self.cost.speedup or measured) < 1.0
        return (self.cost.is_slower or seems) and not self.has_floats_speed

    @property
    def _remark(self) -> str:
        """Return a note that all arithmetic is float, and that float is faster, or as fast; else ""."""
        latency, floats = self.latency, self.has_floats_speed
        is_level = floats or (latency is not None and latency.words != "" and latency.is_even)
        is_weights, is_slower = self.composition.is_weights_only, self.cost.is_slower and not floats
        speed = "slower than float" if is_slower else "not faster" if is_level and is_weights else ""
        remarks = ", ".join(filter(None, ["weights only" * is_weights, speed]))
        return f" ({remarks})" if remarks else ""

    @property
    def untold_findings(self) -> tuple[Finding, ...]:
        """The findings that neither the sentence nor a fix tells."""
        by_fix = {Code.FLOAT_IS_FASTER} if self.fixes else set()
        return tuple(f for f in self.findings if f.sentence not in self.sentence and f.code not in by_fix)

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield name and text of size, speed and share of int8."""
        yield "size", self.cost.size
        source = self.composition.source_of(self.cost.speedup if self.latency is not None else self.printed)
        yield "speed", self.cost.speed_line(source, floats_speed=self.has_floats_speed)
        yield "int8", self.composition.text

    def headline(self) -> str:
        """Return the sentence."""
        return self.sentence

    def presentation(self) -> Presentation:
        """Return the facts, and the fixes to try, as keywords of `quantize`."""
        applied = [] if self.applied is None else [("fixed", _keywords(self.applied))]
        tries = tuple((_keywords(fix), fix.brings) for fix in self.fixes)
        tables = (Table(("try quantize(..., )", "brings"), tries, left=2),) if tries else ()
        return Presentation((*self.figures(), *applied), tables, self.untold_findings)


def _change(score: Score, unit: str) -> str:
    """Return by how much a score rises, with its 95 % interval, or "within chance" if that contains 0."""
    rise = [0.0 + drop for drop in (score.drop, score.drop_low, score.drop_high)]
    if score.higher_is_better:
        rise = [0.0 - drop for drop in (score.drop, score.drop_high, score.drop_low)]
    within = score.drop_low <= 0.0 <= score.drop_high
    return f"{rise[0]:+.2f} {unit}, {'within chance' if within else f'{rise[1]:+.2f} to {rise[2]:+.2f}'}"


def _keywords(fix: Fix) -> str:
    """Return the change of settings as Python writes it."""
    return ", ".join(
        f"{name}={list(value) if isinstance(value, tuple) else value!r}" for name, value in fix.words.items()
    )


def verdict_of(
    evaluation: Evaluation,
    composition: Composition,
    held_out: HeldOut,
    *,
    predicted: float | None = None,
    printed: float | None = None,
) -> Verdict:
    """Return the verdict on a model by its evaluation on held-out samples, with neither cause nor fixes.

    `predicted` is its speedup by the times that the plan was made with, `printed` that on this processor.
    """
    outputs, decision = evaluation.grades, evaluation.decision
    # Doubts are told by the evaluation's gate.
    known = of_severity(evaluation.findings, Severity.WARNING, Severity.NOTE)
    verdict = Verdict(
        decision.grade,
        decision,
        outputs,
        evaluation.metric_title,
        evaluation.score,
        held_out,
        evaluation.float_bytes,
        evaluation.quantized_bytes,
        evaluation.latency,
        predicted,
        composition,
        printed=printed,
        simulated=evaluation.simulated,
    )
    has_none = verdict.grade == "none" and bool(outputs) and bool(outputs[0].incomparable)
    incomparable = outputs[0].text if has_none else ""
    on_samples = () if incomparable or evaluation.void else held_out.findings  # more are of no use then
    have_moved = decision.by == "outputs" and decision.grade in ("fair", "poor")
    if have_moved and outputs[0].kind == WORDS["detections"]:
        # If the scores of a detector moved, another threshold comes first: it costs neither time nor size.
        codes = {Code.SCORES_MOVED: Code.MAIN_CAUSE}
        known = tuple(replace(one, code=codes.get(one.code, one.code)) for one in known)
    findings = [*against(composition, verdict.cost), *on_samples, *known]
    verdict = replace(verdict, findings=gravest_first(findings))
    if evaluation.void:
        return no_verdict(verdict, *evaluation.void)
    is_same = all(output.is_same for output in outputs)
    if verdict.grade in ("none", "good") and not composition.uses_integers and is_same:
        return replace(verdict, grade="none")
    if verdict.grade == "none":
        reason = incomparable or (outputs[0].text if outputs else "no output could be compared")
        remedy = "judge the model by --metric or --labels"
        if evaluation.score is not None:
            reason = f"{verdict.scores} is not conclusive"
            enough = evaluation.score.rows_to_show(NARROW * WANTED_DROP)
            rows = f"about {enough} rows would be, if they differ as often"
            remedy = rows if enough else "give more samples"
        return no_verdict(verdict, Finding(Code.NO_VERDICT, reason, remedy=remedy))
    if verdict.grade != "good":
        return verdict
    if evaluation.score is not None and evaluation.score.is_at_chance:
        return no_verdict(verdict, *truth_doubts(evaluation.score))
    return replace(verdict, grade="fair") if brings_nothing(composition, verdict.cost) else verdict


def no_verdict(verdict: Verdict, *reasons: Finding) -> Verdict:
    """Return a verdict of grade "none" with the reasons, which replace an earlier verdict."""
    said = {Code.MAIN_CAUSE, Code.NO_VERDICT, *(reason.code for reason in reasons)}
    others = [finding for finding in verdict.findings if finding.code not in said]
    return replace(verdict, grade="none", findings=gravest_first([*reasons, *others]), fixes=())


SCORED_BY: Mapping[str, str] = {
    WORDS["detections"]: "--metric map50, also without labels",
    WORDS["decision"]: "--labels FILE",
    WORDS["embedding"]: "--labels FILE --metric recall@1",
    WORDS["signal"]: "--labels FOLDER --metric psnr",
    WORDS["values"]: "--labels FILE --metric mae",
}
"""The metric that fits an output, by its kind; for texts it is `cer`."""


def with_fixes(
    verdict: Verdict,
    cause: Sequence[Finding],
    fixes: Sequence[Fix],
    tried: Sequence[Verdict] = (),
    left: str = "",
) -> Verdict:
    """Return a verdict with its cause and fixes, or a finding: how many were `tried`, or why none was."""
    known = [*verdict.findings, *(() if verdict.cause else cause)]
    verdict = replace(verdict, findings=gravest_first(known), fixes=tuple(fixes))
    vain = verdict.grade != "none" and brings_nothing(verdict.composition, verdict.cost)
    if fixes or not (vain or verdict.cost.is_slower or verdict.grade in ("fair", "poor")):
        return verdict
    sentence, code = f"no other settings were tried: {left}", Code.NO_BETTER_PLAN
    if not left:
        sentence = "qprof knows no other settings to try"
        if tried:
            slow = any(one.seems_slower and ORDER[one.grade] < ORDER[verdict.grade] for one in tried)
            number = f"{len(tried)} other plan{'s were' if len(tried) > 1 else ' was'}"
            sentence = f"{number} tried: none is better{' and as fast as float' * slow}"
        sentence += "".join(f"; the noisiest layer is {one.subject}" for one in cause if one.subject)
        if vain or (verdict.grade == "poor" and not verdict.is_unsure):
            sentence, code = f"keep the float model: {sentence}", Code.KEEP_FLOAT
    advice = "" if vain or not verdict.score_to_try else f"a score may decide: {verdict.score_to_try}"
    reason = Finding(code, sentence, remedy=advice)
    return replace(verdict, findings=gravest_first([reason, *verdict.findings]))


@dataclass(frozen=True)
class Judged:
    """The evaluation on held-out samples; `profile` is its file, or "" if none was kept or needed."""

    verdict: Verdict
    evaluation: Evaluation
    profile: str = ""
