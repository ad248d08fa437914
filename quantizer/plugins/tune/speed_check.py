"""Is the quantized model faster than float, and which plan is the fastest? Measured.

1. The plan is written and timed against the float model, in turns, on the same samples: the user's, or the
   check samples.
2. Both are run with onnxruntime's profiler, to measure each node in int8 and in float.
3. The changes of `ALTERNATIVES` are made, written and timed against the previous plan, in turns. One replaces
   it if it is faster in three of four rounds; then step 2 again, until nothing gains. A plan that was
   predicted to save too little as a whole is one of these changes.
4. If float is still faster, the whole model stays float.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_not
from pathlib import Path

import onnxruntime as ort

from ....profiles.base.errors import ConfigError, DataError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.output_files import temporary_folder
from ....profiles.runtime.states import model_samples
from ....profiles.samples.objects import source_name
from ...costs.float_regions import FloatRegion, find_float_regions, reasons_of
from ...costs.predicted import Costs
from ...evaluation.latency import Latency, measure, times_as_fast
from ...evaluation.options import QUICK, SpeedCheckOptions
from ...evaluation.runtimes import Inputs, as_programs_run, open_session, run
from ...lowering.lower import lower
from ...lowering.lowered import WrittenNames
from ...model.saving import save_model
from ...plan.provenance import plan_digest
from ...plan.reasons import ReasonCode, because
from ...planning.facts import PlanningFacts
from ...planning.known import Known
from ...planning.plan_model import PlannedModel, plan_from
from ...search.loop import Loop, Trial
from ...search.speed import SpeedCheck
from ...targets.machine import is_of_machine
from .node_costs import find_costs
from .node_times import node_times

MAX_TRIALS = 8  # plans that are made and timed at most, besides the first


def check_speed(
    float_path: Path, facts: PlanningFacts, planned: PlannedModel, options: SpeedCheckOptions
) -> tuple[PlannedModel, SpeedCheck]:
    """Return the fastest plan found, with the reasons of nodes that return to float, and the report."""
    check_options(options, planned.plan.config.target)
    samples = _feeds(facts, options)
    with temporary_folder() as folder:
        bench = _Bench(float_path, facts, options, samples, Path(folder))
        prepared = bench.folder / "prepared.onnx"
        save_model(facts.prepared.model, prepared)
        state = _Timed(planned, Change(planned.known), None, 1.0)
        before = bench.compared(float_path, bench.written(planned))
        loop: Loop[Change, PlannedModel, _Timed] = Loop(
            make=lambda change: plan_from(facts, change.known),
            digest=lambda made: plan_digest(made.plan),
            judge=bench.timed,
            goes_on=lambda: len(loop.trials) <= MAX_TRIALS,
        )
        loop.begin(planned, state)
        while True:
            costs, last = bench.costs(state.plan, prepared, bench.file(state.plan)), state
            proposers = [partial(alternative, costs=costs) for alternative in ALTERNATIVES]
            state = loop.best(last, proposers, _is_faster, ends=partial(is_not, last))
            if state is last:
                break
        change = state.change
        after = bench.compared(float_path, bench.file(state.plan)) if change.sentences else before
        check = SpeedCheck(
            options.min_speedup,
            before,
            after,
            fallback=change.regions,
            trials=len(loop.trials) - 1,
            changes=change.sentences,
            costs=costs,
        )
        planned = state.plan
        if after.speedup < 1.0:
            planned, check = _left_float(bench, check, loop.trials[0].change.known)
            told = Finding(Code.LEFT_IN_FLOAT, check.left_float)
            plan = replace(planned.plan, findings=(*planned.plan.findings, told))
            planned = replace(planned, plan=plan)
        return planned, check


def check_options(options: SpeedCheckOptions, target: str) -> None:
    """Raise ConfigError when the options make no sense for a target."""
    here = platform.machine()
    if not is_of_machine(target):
        raise ConfigError(
            f"check_speed: onnxruntime on {here}, here, does not show the speed on target {target}; "
            "choose its own target, or measure there"
        )
    if options.min_speedup is not None and not options.min_speedup > 0.0:
        raise ConfigError(f"min_speedup: {options.min_speedup:g} is not above 0; give a factor such as 1.2")


def _feeds(facts: PlanningFacts, options: SpeedCheckOptions) -> tuple[Inputs, ...]:
    """Return the samples for latency; DataError without samples."""
    count, data = options.limit or QUICK.samples, options.data
    if data is None:  # random values where the profile keeps none: time hardly depends on values
        kept = [sample.arrays for sample in facts.measured.held_samples]
        data = kept or f"random:{count}"
    samples = tuple(s.arrays for s in model_samples(data, facts.prepared.model, count, notes=False))
    if not samples:
        raise DataError(f"{source_name(data)}: no samples; there is nothing to measure speed on")
    return samples


@dataclass(frozen=True, eq=False)
class Change:
    """What makes a faster plan."""

    known: Known
    sentences: tuple[str, ...] = ()  # what is done, for people, in order
    regions: tuple[FloatRegion, ...] = ()  # nodes that fall back to float because they are slower in int8

    def more(self, sentence: str, known: Known, regions: Sequence[FloatRegion] = ()) -> Change:
        """Return it with one change more."""
        return Change(known, (*self.sentences, sentence), (*self.regions, *regions))


@dataclass(frozen=True, eq=False)
class _Bench:
    """Where models are written and timed."""

    float_path: Path
    facts: PlanningFacts
    options: SpeedCheckOptions
    feeds: tuple[Inputs, ...]
    folder: Path
    names: dict[Path, WrittenNames] = field(default_factory=dict)

    def timed(self, change: Change, planned: PlannedModel, fastest: _Timed) -> _Timed:
        """Return a plan that was written and timed against the fastest one."""
        latency = self.compared(self.file(fastest.plan), self.written(planned))
        return _Timed(planned, change, latency, fastest.cost / latency.speedup)

    def file(self, planned: PlannedModel) -> Path:
        """Return the place of a plan's model."""
        return self.folder / f"{plan_digest(planned.plan)}.onnx"

    def written(self, planned: PlannedModel) -> Path:
        path = self.file(planned)
        lowered = lower(planned.model, planned.plan)
        self.names[path] = lowered.names
        save_model(lowered.model, path)
        return path

    def compared(self, first: Path, second: Path) -> Latency:
        """Return the latency of `first` (as float) and `second` (as quantized)."""
        threads = self.options.threads
        sessions = [open_session(str(path), path.name, threads, timed=True) for path in (first, second)]
        names = [output.name for output in sessions[0].get_outputs()]

        def runner(session: ort.InferenceSession, path: Path) -> Callable[[int], object]:
            timed, feeds = as_programs_run(session, self.feeds)
            return lambda index: run(timed, names, feeds[index], path.name)

        return measure(
            runner(sessions[0], first),
            runner(sessions[1], second),
            len(self.feeds),
            replace(QUICK, threads=threads),
        )

    def costs(self, planned: PlannedModel, prepared: Path, quantized: Path) -> Costs:
        """Return the times of the nodes."""
        models = {"prepared model": prepared, "quantized model": quantized}
        floats, executed = node_times(models, self.feeds, threads=self.options.threads)
        names, graph = self.names[quantized], self.facts.prepared.graph
        return find_costs(planned.graph, planned.plan, floats, executed, names=names, prepared=graph)


_Timed = Trial[PlannedModel, Change, Latency | None]
"""A plan that was timed against the one before it, the first against none; the cost is over the first's."""


def _is_faster(plan: _Timed, _: _Timed) -> bool:
    """Whether a plan is faster than the fastest before it in three of four rounds."""
    return plan.measured is not None and plan.measured.speedup_low > 1.0


def predicted_to_save_too_little(fastest: _Timed, costs: Costs) -> Iterator[Change]:
    """Yield the plan in integers if the model only has int8 weights because of a small predicted gain."""
    code, entries = ReasonCode.MODEL_SAVES_TOO_LITTLE, fastest.plan.plan.nodes.values()
    count = sum(entry.stays_float and entry.float_reason.code is code for entry in entries)
    if count:
        sentence = f"{count} nodes that were predicted to save too little are quantized"
        yield fastest.change.more(sentence, replace(fastest.change.known, timed=True))


def slower_regions(fastest: _Timed, costs: Costs) -> Iterator[Change]:
    """Yield all regions that are slower in int8 back in float; then those with the larger half of it."""
    planned, known = fastest.plan, fastest.change.known
    found = find_float_regions(planned.graph, planned.plan, planned.source_facts.profile, costs)
    regions = [region for region in found if region.gain_ms > 0.0]
    while regions:
        count = sum(len(region.nodes) for region in regions)
        sentence = f"{count} nodes that are slower in int8 fall back to float"
        floats = reasons_of(regions, ReasonCode.SLOWER_IN_INT8)
        yield fastest.change.more(sentence, known.with_floats(floats), regions)
        # The first regions with half of the expected gain, at least one less than all.
        half, gain, kept = sum(region.gain_ms for region in regions) / 2.0, 0.0, 0
        while gain < half:
            gain += regions[kept].gain_ms
            kept += 1
        regions = regions[: min(kept, len(regions) - 1)]


ALTERNATIVES = (predicted_to_save_too_little, slower_regions)
"""What is tried, in this order, until a change is faster; then again from the first."""


def _left_float(bench: _Bench, check: SpeedCheck, known: Known) -> tuple[PlannedModel, SpeedCheck]:
    """Return the model in float."""
    reason = because(
        ReasonCode.SLOWER_IN_INT8,
        int8_ms=check.after.quantized_ms,
        float_ms=check.after.float_ms,
    )
    nodes = {node.name: reason for node in bench.facts.prepared.graph.nodes}
    planned = plan_from(bench.facts, replace(known, unfit=nodes))  # unfit nodes have no int8 weights either
    after = bench.compared(bench.float_path, bench.written(planned))
    lost = f"the whole model is left in float: int8 was {times_as_fast(check.after.speedup)} as float"
    return planned, replace(check, after=after, fallback=(), left_float=lost, costs=None)
