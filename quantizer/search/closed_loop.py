"""Runs a plan on samples; if an output exceeds its limit, replaces the plan by a more careful one.

    plan ─► written ─► run on check samples ─► every output is near enough (`output_shift`): done
                               │                                 │
                               │                                 └─► far nearer, and nodes are float for
                               │                                     their noise: a bolder plan
                               └─► more careful plans, one after another, until one holds

An estimate predicts the noise of an output, not the effect on its answers, and it may be wrong. Measurements
on a few samples generalise (DECISIONS.md, 68). More careful plans are proposed in this order, for the reasons
in DECISIONS.md, 91:

    formats       with a size limit, float is a format too, if it fits; without one, weights have 8 bits
                  instead of 4, if the user gave a limit or the model is destroyed
    nodes         nodes stay float if their measured noise justifies their time, until too few are left
    weights       nothing computes in integers, if that justifies its time
    float         nothing is quantized, if the model would still be destroyed, or gains almost nothing for
                  its loss

A poor plan is replaced at any cost in time: by a plan with less error if that is faster than float, or by
weight-only quantization if that is not poor.

A bolder plan has looser noise budgets for all outputs. It must stay within half of the limit of an output,
and meet the SQNR of the verdict, or be as good as the first plan. The same samples give the same plan if
kernels compute the same. Check samples also chose the ranges, so measurements on them are not a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import onnxruntime as ort

from ...profiles.base.errors import DataError, ModelError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.progress import counted
from ...profiles.base.seconds import clocked
from ...profiles.base.tuned import tuned
from ...profiles.records.profile import Profile
from ...profiles.samples.objects import DataLike, source_name
from ...profiles.samples.random_samples import is_random
from ...profiles.samples.samples import input_specs
from ..evaluation.grades import needed_sqnr
from ..evaluation.metrics.metric import Outputs
from ..evaluation.output_shift import FAIR, Measure, OutputShift, output_shifts
from ..evaluation.runtimes import open_model, open_session
from ..lowering.lower import lower
from ..lowering.lowered import LoweredModel
from ..model.saving import has_external_data, in_memory, written_bytes
from ..noise.output_limits import NoiseLimits
from ..operators.graph import Graph
from ..plan.plan import DESTROYED, Kind, OutputCheck, QuantPlan
from ..plan.provenance import plan_digest
from ..plan.reasons import FloatReason, ReasonCode, because
from ..planning.facts import PlanningFacts
from ..planning.known import Known
from ..planning.plan_model import PlannedModel, plan_from
from ..targets.config import FEW_BITS, size_in_bytes
from ..targets.loading import weight_only_settings, with_settings
from ..targets.machine import runs_here
from .fallback_nodes import blamed_on_nodes
from .integer_share import arithmetic, assumed_time, planned_bytes
from .loop import Loop, Proposer, Trial
from .ranking import ranked_nodes
from .run_samples import RunSamples, outputs_of, run_samples
from .worth import MIN_GAIN

CHECK_SAMPLES, MOST_CHECK_SAMPLES = 16, 128
INCOMPARABLE_SAMPLES = 2  # for outputs that cannot be compared: faults are all that is looked for
MAX_OUTPUT_ELEMENTS = 2**26  # of all outputs on all samples: 256 MB of each model, four times that as float64

ENOUGH_ARITHMETIC = tuned(
    2.0**31,
    figure=(
        "a voice detector is 2.7 times as far off as it may be: of 100 draws of 16 samples 41 say that it is "
        "too far off, of 128 samples 81 (DECISIONS.md, 105)"
    ),
    chosen_on="a voice detector and a speller; 16 of 31 trained models have more than 16 samples by it",
)
"""Multiplications of the float model on more samples than `CHECK_SAMPLES`: about 40 ms."""

STATE_STEPS = tuned(
    4,
    figure=(
        "typical errors of a voice detector are 5.4 % in single steps, 7.5 % on average in whole recordings, "
        "and 6.0, 7.2, 7.5 and 7.9 % in the second to the fifth step with the same input"
    ),
    chosen_on="a voice detector",
)
"""Steps that a small model with states takes from each check sample: an error in a state adds to the next."""

# Nodes that stay float for their measured noise.
REMOVED_NOISE = 1.1  # share of the excess noise that a plan is tried without
LEAST_SHARE = 0.01  # of the measured noise that a node has at least, or it is none of those
MIN_NOISE_PER_TIME = 0.08
"""Least share of the noise power that a more careful plan removes for each hundredth of float's time that it
takes longer (DECISIONS.md, 68)."""

# Bolder plans.
BOLD_LIMIT = 0.5  # share of what an output may be off: 6 dB are left for samples that nobody ran
MIN_TIME_GAIN = 0.02  # share of float's time that a bolder plan has to save
MIN_BUDGET_STEP_DB = 1.0  # by which noise budgets are raised at least: less is not worth a trial
LOOSER_BUDGET = 0.5  # share of the decibels to spare by which it is looser

SPARE_ROOM = (0.0, 0.01, 0.03)  # shares of the size left free of float weights, until the model fits
LARGEST_FIGURE = 1e6  # above which a figure is not told from another one
AS_FLOAT = "as the float model"  # the change to a plan in which nothing is quantized


@dataclass(frozen=True, eq=False)
class Change:
    """What makes another plan."""

    facts: PlanningFacts  # what it is made from
    known: Known  # likewise
    words: str = ""  # how it differs from the first plan; "" for the first
    most: float | None = None  # time over float's that it may take; None: what the best one's noise is worth


class UnfitSamplesError(DataError):
    """The float model does not take the check samples."""


Shifts = tuple[OutputShift, ...]


class _Checked(Trial[PlannedModel, Change, Shifts]):
    """A plan that was written and run, with the shifts of its outputs from float; its cost is predicted."""

    @property
    def facts(self) -> PlanningFacts:
        """What it was made from."""
        return self.change.facts

    @property
    def shifts(self) -> Shifts:
        """How far its outputs are from float."""
        return self.measured

    @property
    def excess(self) -> float:
        """How far the worst output is off, over its limit."""
        return _worst_excess(self.shifts)

    @property
    def holds(self) -> bool:
        """Whether every output is within its limit."""
        return self.excess <= 1.0

    @property
    def is_poor(self) -> bool:
        """Whether an output is so far off that the verdict would be "poor"."""
        return self.excess > FAIR

    @property
    def is_destroyed(self) -> bool:
        """Whether an output is beyond doubt worth nothing."""
        return self.excess >= DESTROYED

    @property
    def is_worth_nothing(self) -> bool:
        """Whether an output is destroyed, or the plan does not hold and is hardly faster than float."""
        return self.is_destroyed or (not self.holds and self.cost > 1.0 - MIN_GAIN)

    def improves(self, before: _Checked) -> bool:
        """Whether it is better than another plan, by enough for its time and size."""
        if not self.excess < before.excess:
            return False
        if before.is_destroyed or (before.is_worth_nothing and _gains_nothing(before, self)):
            return True
        if self.change.words == AS_FLOAT:
            return False
        if before.is_poor and (self.cost <= 1.0 - MIN_GAIN or not self.is_poor):
            return True
        if self.holds and _is_assumed(self.facts):  # what is promised is not given up for an assumption
            return True
        return self.removed(before) >= MIN_NOISE_PER_TIME * 100.0 * (self.cost - before.cost)

    def removed(self, before: _Checked) -> float:
        """Return the share of the noise power of another plan that it does not have."""
        return 1.0 - (self.excess / before.excess) ** 2 if math.isfinite(before.excess) else 1.0


def _worst_excess(shifts: Sequence[OutputShift]) -> float:
    return max((shift.excess for shift in shifts), default=0.0)


def _worst(shifts: Sequence[OutputShift]) -> OutputShift:
    return max(shifts, key=lambda shift: shift.excess)


def samples_to_run(graph: Graph, profile: Profile, runs: int) -> int:
    """Return how many samples a plan is run on: few show no rare events, such as another turn of a loop."""
    each = arithmetic(graph, profile) / max(runs, 1)
    enough = int(ENOUGH_ARITHMETIC / each) if each else 0
    return min(MOST_CHECK_SAMPLES, max(CHECK_SAMPLES, enough - enough % 2))


def why_not_run(data: DataLike) -> str:
    """Return why a plan cannot be run on check samples before its model is written; "" if it can."""
    return "the samples are random values" if is_random(source_name(data)) else ""


def plan_held_on_samples(
    facts: PlanningFacts, planned: PlannedModel, model: Path, data: DataLike, *, joined: int = 0
) -> tuple[PlanningFacts, PlannedModel, LoweredModel | None]:
    """Return the plan whose outputs hold as measured, or the best found, with its facts and model, if any.

    `joined` counts the samples before they were joined to batches, or is 0. Raises UnfitSamplesError.
    """
    count = _samples_with_room(facts)
    if facts.noise_limits.compares_nothing:
        count = min(count, INCOMPARABLE_SAMPLES)
    is_float = all(entry.kind is Kind.FLOAT for entry in planned.plan.nodes.values())
    if not count or is_float:
        return facts, planned, None
    loop = _opened(model, planned, data, count, facts.noise_limits)
    first = loop.begun(facts, planned)
    config = facts.config
    asked = config.mode != "weight-only" or config.asks_quality or config.has_size
    if first.holds:
        best = loop.bolder(first)
    else:  # how many bits weights have is the user's wish, unless a limit or nothing is left of an output
        best = loop.more_careful(first) if asked or first.is_destroyed else first
    ran = joined or len(loop.samples.samples)
    held = _checked(best.plan, best.shifts, ran)
    held = held.with_findings(_findings(best, first, counted(ran, None, "calibration sample")))
    lowered = (lowered for plan, lowered in loop.written if plan is best.plan.plan)
    return best.facts, held, next(lowered, None)


def measured_on_samples(
    planned: PlannedModel, limits: NoiseLimits, model: Path, data: DataLike, joined: int = 0
) -> PlannedModel:
    """Return a plan that was read, unchanged, with the figures of its outputs on check samples."""
    loop = _opened(model, planned, data, MOST_CHECK_SAMPLES, limits)
    return _checked(planned, loop.shifts(planned, limits), joined or len(loop.samples.samples))


def _samples_with_room(facts: PlanningFacts) -> int:
    """Return how many samples are run, or 0 if not even two have room in memory."""
    profile = facts.measured
    outputs = [profile[name].count for name in facts.prepared.graph.outputs if name in profile]
    elements = sum(outputs) / max(profile.data.samples, 1)
    fitting = int(MAX_OUTPUT_ELEMENTS / max(elements, 1.0))
    return min(MOST_CHECK_SAMPLES, fitting - fitting % 2)


@clocked("run")
def _opened(
    model: Path, planned: PlannedModel, data: DataLike, count: int, limits: NoiseLimits
) -> _CheckedPlans:
    """Return the runner of plans on the first `count` samples; of many, states take several steps of each."""
    session = open_session(str(model), model.name)
    try:
        samples = run_samples(session, planned.model, data, count)
        checked = _CheckedPlans(samples)
        fed = {spec.name: spec.fed_by for spec in input_specs(planned.model)}
        states = {name: by for name, by in fed.items() if limits.kinds.get(by) == "state"}
        keep_shape = all(
            sample.arrays[name].shape == outputs[by].shape
            for sample, outputs in zip(samples.samples, samples.float_outputs, strict=True)
            for name, by in states.items()
        )
        if states and keep_shape and len(samples.samples) > CHECK_SAMPLES:
            checked = replace(checked, states=states)
            further = checked.further_outputs(session, samples.float_outputs, "float model")
            checked = replace(checked, float_further=tuple(further))
        return checked
    except (DataError, ModelError) as error:
        raise UnfitSamplesError(str(error)) from error


@dataclass(frozen=True, eq=False)
class _CheckedPlans:
    """Plans of one model that run on check samples; the best and the last are kept with their models."""

    samples: RunSamples
    states: Mapping[str, str] = field(default_factory=dict)  # input -> output fed to it in the next step
    float_further: tuple[Outputs, ...] = ()  # of the float model in the steps after the first, step by step
    written: list[tuple[QuantPlan, LoweredModel]] = field(default_factory=list)  # best and last

    @cached_property
    def loop(self) -> Loop[Change, PlannedModel, _Checked]:
        """The loop over plans, equal ones once."""
        return Loop(
            make=lambda change: plan_from(change.facts, change.known),
            digest=lambda planned: plan_digest(planned.plan),
            judge=self._judged,
        )

    def begun(self, facts: PlanningFacts, planned: PlannedModel) -> _Checked:
        """Return the first plan, written and run."""
        return self.loop.begin(planned, self._measured(Change(facts, planned.known), planned))

    def _judged(self, change: Change, planned: PlannedModel, best: _Checked) -> _Checked | None:
        """Return a plan that was written and run; None if it takes longer than it may."""
        most = change.most
        if most is None:  # what removes all noise is worth no more, unless nothing is left to lose
            most = best.cost + 1.0 / (100.0 * MIN_NOISE_PER_TIME)
            most = math.inf if best.is_destroyed else max(most, 1.0 - MIN_GAIN) if best.is_poor else most
        return None if _time(planned, change.facts) > most else self._measured(change, planned)

    def _measured(self, change: Change, planned: PlannedModel) -> _Checked:
        limits, config = change.facts.noise_limits, change.facts.config
        if config.has_size:  # the plan itself has no limits then
            limits = replace(limits, min_output_sqnr=config.min_output_sqnr)
        shifts = self.shifts(planned, limits)
        if change.words and all(entry.kind is Kind.FLOAT for entry in planned.plan.nodes.values()):
            change = replace(change, words=AS_FLOAT)  # weights may be too small to be quantized alone
        return _Checked(planned, change, shifts, _time(planned, change.facts))

    @clocked("run")
    def shifts(self, planned: PlannedModel, limits: NoiseLimits) -> Shifts:
        """Write and run a plan, and return how far its outputs are from float."""
        name, plan = "quantized model", planned.plan
        dequantized = not runs_here(plan.config.target)
        if dequantized and plan.config.form != "qdq":
            plan = replace(plan, config=replace(plan.config, form="qdq"))
        lowered = lower(planned.model, plan)
        with blamed_on_nodes(planned, lowered):
            file_bytes = in_memory(lowered.model)
            session = (
                open_model(lowered.model, name, dequantized=dequantized)
                if file_bytes is None
                else open_session(file_bytes, name, dequantized=dequantized)
            )
            outputs = outputs_of(session, self.samples.samples, name)
            outputs += self.further_outputs(session, outputs, name)
        self.written[1:] = [(plan, replace(lowered, file_bytes=file_bytes))]
        count = len(self.samples.samples)
        floats = [*self.samples.float_outputs, *self.float_further]
        inputs = [self.samples.samples[at % count].arrays for at in range(len(floats))]
        return self._shifts(floats, outputs, inputs, limits)

    def further_outputs(
        self, session: ort.InferenceSession, outputs: Sequence[Outputs], name: str
    ) -> list[Outputs]:
        """Return the outputs in `STATE_STEPS` steps of each sample but the first, each with own states."""
        further, before = list[Outputs](), outputs
        for _ in range(STATE_STEPS - 1 if self.states else 0):
            samples = [
                replace(sample, arrays={**sample.arrays, **{of: own[by] for of, by in self.states.items()}})
                for sample, own in zip(self.samples.samples, before, strict=True)
            ]
            before = outputs_of(session, samples, name)
            further += before
        return further

    def _shifts(
        self,
        floats: Sequence[Outputs],
        outputs: Sequence[Outputs],
        inputs: Sequence[Outputs],
        limits: NoiseLimits,
    ) -> Shifts:
        """Return `output_shifts`, in SQNR if the user gave a limit in it; decibels show no lost column."""
        given, limits = limits.min_output_sqnr, replace(limits, min_output_sqnr=None)
        shifts = output_shifts(floats, outputs, limits, inputs)
        if given is None:
            return shifts
        most = 10.0 ** (-given / 20.0) if given > 0.0 else LARGEST_FIGURE
        return tuple(
            replace(s, measure=Measure.NOISE, value=10.0 ** (-s.sqnr / 20.0), limit=most)
            if s.sqnr is not None
            and math.isfinite(s.sqnr)
            and not (given > 0.0 and s.measure is Measure.COLUMNS and s.worst >= 1.0)
            else s
            for s in shifts
        )

    def _takes(self, is_better: bool) -> bool:
        """Keep the model that was written last if it is of the best plan; return whether it is."""
        if is_better:
            self.written[0] = self.written[-1]
        return is_better

    def _fits(self, facts: PlanningFacts) -> bool:
        """Whether the model that was written last is no larger than it may be."""
        if not facts.config.has_size:
            return True
        _, lowered = self.written[-1]
        size = written_bytes(lowered.model, has_external_data(facts.prepared.model))
        return size <= size_in_bytes(facts.config.fit_size)

    def more_careful(self, first: _Checked) -> _Checked:
        """Return the first of the more careful plans that holds, or the best of all."""
        proposers: tuple[Proposer[_Checked, Change], ...] = (
            _in_other_formats,
            self._without_noisy_nodes,
            self._with_weights_alone,
            self._as_float,
        )
        if first.facts.config.has_size:  # it decides all else
            proposers = (_in_other_formats, self._with_weights_alone, self._as_float)
        return self.loop.best(
            first,
            proposers,
            keeps=lambda plan, best: self._takes(plan.improves(best) and self._fits(plan.facts)),
            ends=lambda plan: plan.holds,
        )

    @property
    def _measured_noise(self) -> FloatReason:
        return because(ReasonCode.MEASURED_NOISE, samples=len(self.samples.samples))

    def _with_weights_alone(self, best: _Checked) -> Iterator[Change]:
        """Yield the plan without arithmetic in integers, unless the noise is not worth the time of float."""
        pays = best.cost + 1.0 / (100.0 * MIN_NOISE_PER_TIME) > 1.0 - MIN_GAIN
        if not (pays or best.is_poor or _is_assumed(best.facts)):
            return
        kinds = best.plan.plan.nodes.items()
        in_integers = [name for name, entry in kinds if entry.kind.counts_as_quantized]
        known = best.change.known.with_floats(dict.fromkeys(in_integers, self._measured_noise))
        yield Change(best.facts, known, "with only weights quantized", most=math.inf)

    def _as_float(self, best: _Checked) -> Iterator[Change]:
        """Yield the plan in which nothing is quantized, in place of a useless one."""
        if best.is_worth_nothing:
            names = (node.name for node in best.facts.prepared.graph.nodes)
            known = replace(best.change.known, unfit=dict.fromkeys(names, self._measured_noise))
            yield Change(best.facts, known, AS_FLOAT, most=math.inf)

    def bolder(self, first: _Checked) -> _Checked:
        """Return the plan that gives more nodes to integers, or the first if it does not pay."""
        needed = needed_sqnr(first.facts.noise_limits)
        before = {shift.output: shift for shift in first.shifts}

        def is_near(shift: OutputShift) -> bool:
            sqnr, own = math.inf if shift.sqnr is None else shift.sqnr, before.get(shift.output)
            if shift.excess <= BOLD_LIMIT and sqnr >= needed.get(shift.output, 0.0):
                return True
            return own is not None and shift.excess <= own.excess and (own.sqnr is None or sqnr >= own.sqnr)

        def keeps(plan: _Checked, best: _Checked) -> bool:
            return self._takes(plan.cost < best.cost and all(map(is_near, plan.shifts)))

        return self.loop.best(first, (_with_looser_budget,), keeps)

    def _without_noisy_nodes(self, best: _Checked) -> Iterator[Change]:
        """Yield the plan with as few nodes in float as needed, whose measured noise justifies their time."""
        limits = best.facts.noise_limits

        def noise(floats: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
            inputs = [sample.arrays for sample in self.samples.samples[: len(floats)]]
            return min(_worst_excess(self._shifts(floats, outputs, inputs, limits)), LARGEST_FIGURE) ** 2

        if best.facts.config.mode == "weight-only":
            return
        ranked = ranked_nodes(best.plan, self.samples, noise=noise)
        total = sum(one.noise for one in ranked)
        if not 0.0 < total < math.inf:
            return
        predicted = best.plan.plan.origin.time
        whole = math.inf if predicted is None else predicted.float_us  # what has no price is free
        if _is_assumed(best.facts):
            whole = 1.0  # prices are shares of float's time
        worth = math.inf if best.is_destroyed else 1.0 / (100.0 * MIN_NOISE_PER_TIME)
        names, left = set[str](), min(REMOVED_NOISE * (1.0 - best.excess**-2.0), 0.98)
        for one in ranked:
            share = one.noise / total
            if left > 0.0 and share >= max(one.microseconds / whole / worth, LEAST_SHARE):
                names.update(one.nodes)
                left -= share
        own = [node.name for node in best.facts.prepared.graph.nodes if node.name in names]
        if own:
            known = best.change.known
            unfit = {**known.unfit, **dict.fromkeys(own, self._measured_noise)}
            yield Change(best.facts, replace(known, unfit=unfit), "with more nodes in float")


def _in_other_formats(first: _Checked) -> Iterator[Change]:
    """Yield facts with other formats of weights, as far as the settings allow."""
    facts, config, known = first.facts, first.facts.config, first.change.known
    if config.has_size:  # with less room each time: added bytes are estimates
        for share in SPARE_ROOM:
            spare = known.size_error + share * size_in_bytes(config.fit_size)
            with_floats = replace(known, floats_fit=True, size_error=spare)
            yield Change(facts, with_floats, "with float weights if they fit", most=math.inf)
    elif config.weight_type in FEW_BITS and (config.asks_quality or first.is_destroyed):
        recipe = replace(facts.recipe, config=config)
        if (settings := weight_only_settings(recipe)) is not None:
            recipe = with_settings(recipe, settings, "weights")
            yield Change(replace(facts, recipe=recipe), known, "with weights of 8 bits")


def _with_looser_budget(first: _Checked) -> Iterator[Change]:
    """Yield facts with looser limits for all outputs, by half of the spare decibels."""
    floats = [entry for entry in first.plan.plan.nodes.values() if entry.stays_float]
    about_noise = (ReasonCode.NOISE_BUDGET, ReasonCode.NOISE_LIMIT)
    is_noisy = any(entry.float_reason.code in about_noise for entry in floats)
    spare = -20.0 * math.log10(max(first.excess / BOLD_LIMIT, 1e-3))
    given = first.facts.config.min_output_sqnr is not None
    compared = [s.output for s in first.shifts if not s.incomparable]  # of the others nothing was measured
    if given or not is_noisy or not compared or spare < MIN_BUDGET_STEP_DB:
        return
    # In halves, so that the last digits of what a machine computes decide nothing.
    decibels = dict.fromkeys(compared, math.floor(2.0 * LOOSER_BUDGET * spare) / 2.0)
    known = replace(first.change.known, looser={**first.change.known.looser, **decibels})
    yield Change(first.facts, known, "with more nodes quantized", most=first.cost - MIN_TIME_GAIN)


def _gains_nothing(plan: _Checked, other: _Checked) -> bool:
    """Whether a plan is neither faster nor smaller than another one by `MIN_GAIN`."""
    size, of = (planned_bytes(one.plan.plan, one.plan.graph) for one in (plan, other))
    return plan.cost > other.cost - MIN_GAIN and size > (1.0 - MIN_GAIN) * of


def _is_assumed(facts: PlanningFacts) -> bool:
    """Whether times are estimated from the arithmetic, because the target has no kernel times."""
    return facts.recipe.costs is None


def _time(planned: PlannedModel, facts: PlanningFacts) -> float:
    """Return the predicted time of a plan over float's; as if integers took half without a table of times."""
    predicted = planned.plan.origin.time
    if predicted is not None and predicted.float_us:
        return predicted.planned_us / predicted.float_us
    return assumed_time(planned.plan, planned.graph, facts.profile)


def _checked(planned: PlannedModel, shifts: Sequence[OutputShift], samples: int) -> PlannedModel:
    """Return a plan with the measured figures of its outputs, in place of the expected ones."""
    plan = planned.plan
    checks = tuple(
        OutputCheck(
            s.output,
            s.measure.value,
            round(min(s.value, LARGEST_FIGURE), 6),
            round(s.limit, 6),
            samples,
            round(s.sqnr, 2) if s.sqnr is not None and math.isfinite(s.sqnr) else None,
            s.fault,
            s.measured,
        )
        for s in shifts
    )
    return replace(planned, plan=replace(plan, origin=replace(plan.origin, checks=checks)))


def _findings(best: _Checked, first: _Checked, samples: str) -> list[Finding]:
    """Return the findings on the change of the best plan from the first, and on a missed limit."""
    findings = []
    further = "--set min_output_sqnr=DB and qprof tune go further"
    if best is not first and first.holds:
        worst = _worst(best.shifts)
        sentence = f"run on {samples}, less noise than estimated: more nodes are quantized ({worst.text})"
        findings.append(Finding(Code.NOISY_PLAN, sentence, worst.output))
    elif best is not first:
        worst = _worst(first.shifts)
        after = next((shift.text for shift in best.shifts if shift.output == worst.output), "as float")
        change = f"{best.change.words} {after}"
        sentence = f"run on {samples}, the first plan was too noisy ({worst.text}): {change}"
        has_wider = best.facts.config.weight_type != first.facts.config.weight_type
        code = Code.WIDER_WEIGHTS if has_wider else Code.NOISY_PLAN
        findings.append(Finding(code, sentence, worst.output))
    if not best.holds:
        worst = _worst(best.shifts)
        poor = "that is poor, and " if best.is_poor else ""
        sentence = (
            f"{worst.text}, on {samples}: {poor}no plan that was tried meets the limit at a reasonable cost"
        )
        remedy = "give a larger size" if best.facts.config.has_size else further
        findings.append(Finding(Code.LIMIT_EXCEEDED, sentence, worst.output, remedy=remedy))
    elif (changing := next((s for s in best.shifts if s.changes), None)) is not None:
        sentence = f"output '{changing.output}': {changing.alike}, on {samples}: that is fair"
        findings.append(Finding(Code.LIMIT_EXCEEDED, sentence, changing.output, remedy=further))
    return findings
