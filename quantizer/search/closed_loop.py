"""A plan is run before it is called done; where an output is too far from float, a more careful one is taken.

    plan ─► written ─► run on 8 + 8 calibration samples ─► every output is near enough (`output_shift`): done
                                  │                                 │
                                  │                                 └─► far nearer, and nodes are float for
                                  │                                     their noise: bolder plans
                                  └─► more careful plans, the fastest first, until one holds on both halves

An estimate says how noisy an output will be, not what that does to what it decides, and it may be wrong. What
is measured on a few samples generalises (DECISIONS.md, 68). More careful plans are of two kinds: a few nodes
in float, those whose noise as measured is worth most of their time; and a tighter noise budget of the output
that is too far off. Bolder ones have noise budgets raised by what was measured to be to spare; they are held
to half of what an output may be off, and to the SQNR that the verdict asks for. A plan is taken only if what
it gains is worth its time, by the target's table of kernel times and not by the clock: the same samples give
the same plan wherever kernels compute the same.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...profiles.samples.objects import DataLike, source_name
from ...profiles.samples.random_samples import is_random
from ..evaluation.compare import ClassAxis, class_axes
from ..evaluation.metrics.metric import Outputs
from ..evaluation.runtimes import open_session
from ..lowering.lower import lower
from ..model.saving import save_model
from ..noise.moved_probability import moved_texts
from ..plan.plan import Kind, OutputCheck
from ..plan.reasons import ReasonCode, because
from ..planning.facts import PlanningFacts
from ..planning.plan_model import PlannedModel, plan_from
from ..targets.config import DATA_FREE
from ..targets.machine import saturation_alarm
from ..targets.target import Recipe
from .engine import CANDIDATE_ERRORS
from .fallback_nodes import blamed_on_nodes
from .grades import needed_sqnr
from .integer_share import int8_share
from .options import TuningData
from .output_shift import OutputShift, output_shifts
from .ranking import ranked_nodes
from .tuning_data import ScoringSamples, outputs_of, read_samples

CHECK_SAMPLES = 16
"""Samples on which a plan is run: one half selects the plan, the other half confirms it."""

MAX_OUTPUT_ELEMENTS = 2**26
"""Elements of all outputs on all samples: 256 MB of each model, four times that of one output at a time."""

TIGHTER_BUDGETS = (0.5, 1.1, 1.5, 2.0)
"""Decibels by which the noise budget of an output is tightened, over those by which it is too far off."""

REMOVED_NOISE = (0.5, 1.0, 1.1)
"""Shares of the measured noise that plans are tried without, over the share that is too much: the nodes that
add it stay float."""

MIN_BUDGET_STEP_DB = 1.0
"""Decibels by which a noise budget is changed at least: less moves nothing, and is not worth a trial."""

MAX_FLOAT_NODES = 24
"""Nodes that are left float one by one at most: what takes more is a question of the noise budget."""

MIN_NOISE_PER_TIME = 0.08
"""Least share of the noise power that a more careful plan removes for each hundredth of float's time that it
takes longer (DECISIONS.md, 68)."""

BOLD_LIMIT = 0.5
"""Share of what an output may be off that bolder plans may use: 6 dB are left for samples that nobody ran."""

LOOSER_BUDGETS = (2.0, 1.0, 0.5)
"""By how many times the decibels that are to spare noise budgets are raised: an estimate that was too careful
once is so of what is quantized next."""

MIN_TIME_GAIN = 0.02
"""Share of float's time that a bolder plan has to save."""

MAX_CONFIRMED_GROWTH = 1.1
"""How many times as far off an output may be on the samples that confirm a plan as with the plan before."""


@dataclass(frozen=True, eq=False)
class _MeasuredPlan:
    """A plan that was written and run.

    Attributes:
        facts: what it was made from.
        planned: the plan.
        selecting, confirming: how far its outputs are from float on the samples that select the plan, and on
            those that confirm it.
        time: as predicted, over float's.
    """

    facts: PlanningFacts
    planned: PlannedModel
    selecting: tuple[OutputShift, ...]
    confirming: tuple[OutputShift, ...]
    time: float

    @property
    def shifts(self) -> tuple[OutputShift, ...]:
        """The mean of both halves."""
        return tuple(
            replace(a, value=(a.value + b.value) / 2.0)
            for a, b in zip(self.selecting, self.confirming, strict=True)
        )

    @property
    def excess(self) -> float:
        """How far the worst output is off, over its limit."""
        return _worst_excess(self.shifts)

    @property
    def holds(self) -> bool:
        """Whether every output is within its limit."""
        return self.excess <= 1.0

    def improves(self, before: _MeasuredPlan) -> bool:
        """Whether it is better than another plan, on both halves, by enough for its time."""
        if not self.excess < before.excess or not math.isfinite(self.excess):
            return False
        if _worst_excess(self.confirming) > MAX_CONFIRMED_GROWTH * _worst_excess(before.confirming):
            return False
        return self.removed(before) >= MIN_NOISE_PER_TIME * 100.0 * (self.time - before.time)

    def removed(self, before: _MeasuredPlan) -> float:
        """Return the share of the noise power of another plan that it does not have."""
        return 1.0 - (self.excess / before.excess) ** 2 if math.isfinite(before.excess) else 1.0

    def worth(self, before: _MeasuredPlan) -> float:
        """Return that share for the time that it takes; what takes less than a hundredth is free."""
        return self.removed(before) / max(self.time - before.time, 0.01)


def _worst_excess(shifts: Sequence[OutputShift]) -> float:
    return max((shift.excess for shift in shifts), default=0.0)


def can_run_on_samples(recipe: Recipe, data: DataLike) -> bool:
    """Return whether a plan is run on samples before its model is written: not where the user says how noisy
    outputs may be, nor on random samples, nor where what runs here is other arithmetic than the target's."""
    config = recipe.config
    return (
        config.mode not in DATA_FREE
        and config.min_output_sqnr is None
        and not is_random(source_name(data))
        and (config.form == "qdq" or not _saturates(recipe))
    )


def _saturates(recipe: Recipe) -> bool:
    return bool(saturation_alarm(recipe.target, recipe.config.weight_type))


def plan_held_on_samples(
    facts: PlanningFacts, planned: PlannedModel, model: Path, data: DataLike
) -> tuple[PlanningFacts, PlannedModel]:
    """Return the plan whose outputs hold as measured, or the best that was found, with what was measured.

    Args:
        facts: of the model.
        planned: the plan as it is made of these.
        model: file of the float model.
        data: calibration samples, of which `CHECK_SAMPLES` are run, or as many as have room for their
            outputs.

    Returns:
        The facts that the plan is made from, so that it can be made again, and the plan, which has what was
        measured (`PlanOrigin.checks`) and a note where an output does not hold.

    Raises:
        DataError: there are no samples. UnfitNodesError: onnxruntime does not load or run the plan's model
            for the sake of some nodes. ModelError: a model cannot be run.
    """
    count = _samples_with_room(facts)
    if not count or all(entry.kind is Kind.FLOAT for entry in planned.plan.nodes.values()):
        return facts, planned
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        session = open_session(str(model), model.name)
        samples = read_samples(session, planned.model, TuningData(data, limit=count), notes=False)
        del session
        loop = _Loop(samples, class_axes(planned.model), Path(folder))
        first = loop.run_plan(facts, planned)
        best = loop.bolder(first) if first.holds else loop.more_careful(first)
    return best.facts, _with_checks(best, first, len(samples.samples))


def _samples_with_room(facts: PlanningFacts) -> int:
    """Return how many samples are run: outputs of both models are held in memory, as float64 when compared. 0
    where not even two have room."""
    profile = facts.measured
    outputs = [profile[name].count for name in facts.prepared.graph.outputs if name in profile]
    elements = sum(outputs) / max(profile.data.samples, 1)
    fitting = int(MAX_OUTPUT_ELEMENTS / max(elements, 1.0))
    return min(CHECK_SAMPLES, fitting - fitting % 2)


@dataclass(frozen=True, eq=False)
class _Loop:
    """Plans of one model that are written and run.

    Attributes:
        samples: with the outputs of the float model.
        axes: where these have their classes.
        folder: where models are written.
    """

    samples: ScoringSamples
    axes: Mapping[str, ClassAxis]
    folder: Path

    def run_plan(self, facts: PlanningFacts, planned: PlannedModel) -> _MeasuredPlan:
        """Write and run a plan."""
        path, name = self.folder / "trial.onnx", "quantized model"
        lowered = lower(planned.model, planned.plan)
        with blamed_on_nodes(planned, lowered):
            save_model(lowered.model, path)
            session = open_session(str(path), name, dequantized=_saturates(facts.recipe))
            outputs = outputs_of(session, self.samples.samples, name)
        floats, limits = self.samples.float_outputs, facts.noise_limits
        halves = [output_shifts(floats[begin::2], outputs[begin::2], limits, self.axes) for begin in (0, 1)]
        if len(self.samples.samples) < 2:
            halves[1] = halves[0]
        both = {shift.output for shift in halves[0]} & {shift.output for shift in halves[1]}
        halves = [tuple(shift for shift in half if shift.output in both) for half in halves]
        return _MeasuredPlan(facts, planned, halves[0], halves[1], _time(planned, facts))

    def more_careful(self, first: _MeasuredPlan) -> _MeasuredPlan:
        """Return the fastest of the more careful plans that holds, or the best of all.

        Where none holds, budgets are tightened once more from the one that gains most for its time.
        """
        better = self._better(first, (*self._without_noisy_nodes(first), *_with_tighter_budgets(first)))
        if better and not any(plan.holds for plan in better):
            base = max(better, key=lambda plan: plan.worth(first))
            again = self._better(base, _with_tighter_budgets(base))
            better += [plan for plan in again if plan.improves(first)]
        holding = [plan for plan in better if plan.holds]
        if holding:
            return min(holding, key=lambda plan: plan.time)
        return min([first, *better], key=lambda plan: plan.excess)

    def bolder(self, first: _MeasuredPlan) -> _MeasuredPlan:
        """Return the fastest of the plans that give more nodes to integers, or the first where none pays.

        Only where nodes are float for noise that the estimate expects, and the measurement leaves room.
        """
        floats = [entry for entry in first.planned.plan.nodes.values() if entry.stays_float]
        about_noise = (ReasonCode.NOISE_BUDGET, ReasonCode.NOISE_LIMIT)
        is_noisy = any(entry.float_reason.code in about_noise for entry in floats)
        spare = -20.0 * math.log10(max(first.excess / BOLD_LIMIT, 1e-3))
        if not is_noisy or not first.shifts or spare < MIN_BUDGET_STEP_DB:
            return first
        needed = needed_sqnr(first.facts.noise_limits)
        for facts, planned in self._planned(first, _with_looser_budgets(first, spare)):
            if _time(planned, facts) > first.time - MIN_TIME_GAIN:
                break
            try:
                measured = self.run_plan(facts, planned)
            except CANDIDATE_ERRORS:
                continue
            shifts = (*measured.selecting, *measured.confirming)
            if _worst_excess(shifts) <= BOLD_LIMIT and all(
                s.sqnr >= needed.get(s.output, 0.0) for s in shifts
            ):
                return measured
        return first

    def _better(self, first: _MeasuredPlan, candidates: Iterable[PlanningFacts]) -> list[_MeasuredPlan]:
        """Return the plans that are better than the first, as far as the fastest that holds."""
        better = []
        for facts, planned in self._planned(first, candidates):
            try:
                measured = self.run_plan(facts, planned)
            except CANDIDATE_ERRORS:
                continue
            if measured.improves(first):
                better.append(measured)
                if measured.holds:
                    break
        return better

    def _planned(
        self, first: _MeasuredPlan, candidates: Iterable[PlanningFacts]
    ) -> list[tuple[PlanningFacts, PlannedModel]]:
        """Return the plans of candidates, the fastest first, each once, without those that take too long."""
        distinct: dict[frozenset[str], tuple[float, PlanningFacts, PlannedModel]] = {}
        for facts in candidates:
            try:
                planned = plan_from(facts)
            except CANDIDATE_ERRORS:
                continue
            distinct.setdefault(_floats(planned), (_time(planned, facts), facts, planned))
        distinct.pop(_floats(first.planned), None)
        most = first.time + 1.0 / (100.0 * MIN_NOISE_PER_TIME)  # what removes all noise is worth no more
        order = sorted((entry for entry in distinct.values() if entry[0] <= most), key=lambda entry: entry[0])
        return [(facts, planned) for _, facts, planned in order]

    def _without_noisy_nodes(self, first: _MeasuredPlan) -> Iterator[PlanningFacts]:
        """Yield facts in which the nodes stay float that have some shares of the measured noise."""

        def noise(floats: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
            return _worst_excess(output_shifts(floats, outputs, first.facts.noise_limits, self.axes)) ** 2

        ranked = ranked_nodes(
            first.planned,
            self.samples.subset(range(0, len(self.samples.samples), 2)),
            noise=noise,
            dequantized=_saturates(first.facts.recipe),
        )
        total = sum(one.noise for one in ranked)
        if not 0.0 < total < math.inf:
            return
        reason = because(ReasonCode.MEASURED_NOISE, samples=len(self.samples.samples))
        names: list[str] = []
        removed, needed = 0.0, 1.0 - first.excess**-2.0
        shares = [min(share * needed, 0.98) for share in REMOVED_NOISE]
        for one in ranked:  # those first whose noise is worth most time
            names += one.nodes
            removed += one.noise / total
            if len(names) > MAX_FLOAT_NODES:
                return
            if shares and removed >= shares[0]:
                shares = [share for share in shares if share > removed]
                own = [node.name for node in first.facts.prepared.graph.nodes if node.name in names]
                yield replace(first.facts, unfit={**first.facts.unfit, **dict.fromkeys(own, reason)})


def _with_tighter_budgets(first: _MeasuredPlan) -> Iterator[PlanningFacts]:
    """Yield facts in which the outputs that are too far off have tighter noise budgets."""
    off = {s.output: 20.0 * math.log10(min(s.excess, 1e3)) for s in first.shifts if s.excess > 1.0}
    for times in TIGHTER_BUDGETS:
        # In halves, so that the last digits of what a machine computes decide nothing.
        decibels = {
            n: max(math.ceil(2.0 * times * needed) / 2.0, MIN_BUDGET_STEP_DB) for n, needed in off.items()
        }
        yield replace(first.facts, quieter={**first.facts.quieter, **decibels})


def _with_looser_budgets(first: _MeasuredPlan, spare: float) -> Iterator[PlanningFacts]:
    """Yield facts in which all outputs may have more noise, by some times the decibels that are to spare."""
    for times in LOOSER_BUDGETS:
        # In halves, as budgets are tightened.
        decibels = {s.output: -math.floor(2.0 * times * spare) / 2.0 for s in first.shifts}
        yield replace(first.facts, quieter={**first.facts.quieter, **decibels})


def _floats(planned: PlannedModel) -> frozenset[str]:
    return frozenset(name for name, entry in planned.plan.nodes.items() if entry.kind is Kind.FLOAT)


def _time(planned: PlannedModel, facts: PlanningFacts) -> float:
    """Return the predicted time of a plan over float's; as if integers took half without a table of times."""
    predicted = planned.plan.origin.time
    if predicted is not None and predicted.float_us:
        return predicted.planned_us / predicted.float_us
    return 1.0 - 0.5 * int8_share(planned.plan, planned.graph, facts.profile)


def _with_checks(best: _MeasuredPlan, first: _MeasuredPlan, samples: int) -> PlannedModel:
    plan = best.planned.plan
    checks = tuple(
        OutputCheck(s.output, s.measure.value, round(s.value, 6), round(s.limit, 6), samples)
        for s in best.shifts
    )
    expected = set(moved_texts(plan.origin.moves))  # what was measured takes their place
    plan = replace(plan, notes=tuple(note for note in plan.notes if note not in expected))
    planned = replace(best.planned, plan=replace(plan, origin=replace(plan.origin, checks=checks)))
    notes = []
    if best is not first and first.holds:
        worst = max(best.shifts, key=lambda shift: shift.excess)
        notes.append(
            f"run on {samples} calibration samples, less noise than estimated: more nodes are quantized "
            f"({worst.text}), for {100.0 * (best.time - first.time):+.1f} % of float's time as predicted"
        )
    elif best is not first:
        worst = max(first.shifts, key=lambda shift: shift.excess)
        after = next(shift for shift in best.shifts if shift.output == worst.output)
        notes.append(
            f"run on {samples} calibration samples, the first plan was too noisy ({worst.text}): with more "
            f"nodes in float {after.text}, for {100.0 * (best.time - first.time):+.1f} % of float's time as "
            "predicted"
        )
    if not best.holds:
        worst = max(best.shifts, key=lambda shift: shift.excess)
        notes.append(
            f"{worst.text}, on {samples} calibration samples: no plan that was tried holds at a price worth "
            "it; --min-output-sqnr and qprof tune go further"
        )
    return planned.with_notes(notes)
