"""Is the quantized model faster than float, and which of its nodes had better stay float? Measured.

1. The plan is written and timed against the float model, in turns, on the same samples.
2. Both are run with onnxruntime's profiler; `float_regions` finds the nodes that cost more in int8, with
their
   conversions, than in float.
3. A plan without these is made, written and timed against the plan before, in turns. It takes its place when
   it is faster in three of four rounds. If it is not, the regions with the larger half of the gain are tried.
4. From 2 again, until nothing gains.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnxruntime as ort

from ...profiles.base.errors import ConfigError, DataError
from ...profiles.base.numbers import check_finite
from ...profiles.samples.objects import DataLike, source_name
from ...profiles.samples.samples import input_specs, open_samples
from ..costs.float_regions import FloatRegion, find_float_regions
from ..costs.records import Costs
from ..costs.slower_nodes import reasons_of
from ..lowering.lower import lower
from ..lowering.written import WrittenNames
from ..model.saving import save_model
from ..plan.plan import QuantPlan
from ..plan.reasons import ReasonCode
from ..planning.facts import PlanningFacts
from ..planning.plan_model import PlannedModel, plan_from
from ..runtime.latency import QUICK, Latency, measure
from ..runtime.node_times import node_times
from ..runtime.sessions import Inputs, open_session, run
from .node_costs import find_costs

TRIALS = 8
"""Plans that are made and timed at most, besides the first."""

PROCESSORS = {"onnxruntime-x86": ("x86_64", "AMD64"), "onnxruntime-arm": ("aarch64", "arm64")}
"""What the name of a target begins with, and the machines on which onnxruntime's times are its times."""


@dataclass(frozen=True)
class SpeedDemand:
    """What the speed is checked on, and what is asked of it.

    Attributes:
        data: folder of samples, "module:function", or an object of Python (`open_samples`).
        limit: number of samples used, from the first; None for those of `QUICK`.
        threads: threads inside an operator.
        min_speedup: float latency over quantized latency that must be reached; None for no demand.
    """

    data: DataLike
    limit: int | None = None
    threads: int = 1
    min_speedup: float | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for a number that is not finite."""
        check_finite(self)


@dataclass(frozen=True)
class SpeedCheck:
    """What was found.

    Attributes:
        demand: what was asked for.
        before: float against the plan as it was made.
        after: float against the plan as it is now; `before` when nothing was taken back.
        fallback: the regions that fell back to float, in this order.
        trials: plans that were made and timed besides the first.
        reasons: where the time goes, in sentences, when float is faster still; else empty.
        unfused: nodes that the plan has in integers and onnxruntime computes in float nevertheless.
    """

    demand: SpeedDemand
    before: Latency
    after: Latency
    fallback: tuple[FloatRegion, ...]
    trials: int
    reasons: tuple[str, ...]
    unfused: tuple[str, ...]

    @property
    def slower(self) -> bool:
        """Whether float is faster."""
        return self.after.speedup < 1.0

    @property
    def passed(self) -> bool:
        """Whether the demand is met: by the lower quartile, as in `Gate`."""
        return self.demand.min_speedup is None or self.after.speedup_low >= self.demand.min_speedup


@dataclass(frozen=True, eq=False)
class Subject:
    """What is checked.

    Attributes:
        float_path: file of the float model as the user has it.
        facts: what plans are made from.
    """

    float_path: Path
    facts: PlanningFacts


@dataclass(frozen=True, eq=False)
class _Bench:
    """Where models are written and timed."""

    subject: Subject
    demand: SpeedDemand
    feeds: tuple[Inputs, ...]
    folder: Path
    names: dict[Path, WrittenNames] = field(default_factory=dict)

    def written(self, planned: PlannedModel, name: str) -> Path:
        path = self.folder / f"{name}.onnx"
        lowered = lower(planned.model, planned.plan)
        self.names[path] = lowered.names
        save_model(lowered.model, path)
        return path

    def compared(self, first: Path, second: Path) -> Latency:
        """Return the latency of `first` (as float) and `second` (as quantized)."""
        sessions = [open_session(str(path), path.name, self.demand.threads) for path in (first, second)]
        names = [output.name for output in sessions[0].get_outputs()]

        def runner(session: ort.InferenceSession, path: Path) -> Callable[[int], object]:
            return lambda index: run(session, names, self.feeds[index], path.name)

        return measure(
            runner(sessions[0], first),
            runner(sessions[1], second),
            len(self.feeds),
            replace(QUICK, threads=self.demand.threads),
        )

    def costs(self, planned: PlannedModel, prepared: Path, quantized: Path) -> Costs:
        models = {"prepared model": prepared, "quantized model": quantized}
        floats, codes = node_times(models, self.feeds, threads=self.demand.threads)
        names, prepared_graph = self.names[quantized], self.subject.facts.prepared.graph
        return find_costs(planned.graph, planned.plan, floats, codes, names=names, prepared=prepared_graph)


def check_demand(demand: SpeedDemand, target: str) -> None:
    """Raise ConfigError when the demand makes no sense for a target."""
    here = platform.machine()
    if not any(target.startswith(name) and here in machines for name, machines in PROCESSORS.items()):
        raise ConfigError(
            f"check_speed: onnxruntime on {here}, here, says nothing about the speed on target {target}; "
            "choose its own target, or measure there"
        )
    if demand.min_speedup is not None and not demand.min_speedup > 0.0:
        raise ConfigError(f"min_speedup: {demand.min_speedup:g} is not above 0; give a factor such as 1.2")


def check_speed(
    subject: Subject, planned: PlannedModel, demand: SpeedDemand
) -> tuple[PlannedModel, SpeedCheck]:
    """Return the fastest plan that was found, with the reasons of what it takes back, and the report.

    Args:
        subject: the model.
        planned: the plan to start from: the one that is made of the subject.
        demand: the samples, and what is asked for.

    Raises:
        ConfigError: the demand makes no sense. DataError: there are no samples.
        ModelError: a model cannot be run.
    """
    check_demand(demand, planned.plan.config.target)
    specs = input_specs(subject.facts.prepared.model)
    samples = list(open_samples(demand.data, specs, demand.limit or QUICK.samples))
    if not samples:
        raise DataError(f"{source_name(demand.data)}: no samples; there is nothing to measure speed on")
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        bench = _Bench(subject, demand, tuple(sample.arrays for sample in samples), Path(folder))
        return _searched(bench, planned)


def _searched(bench: _Bench, planned: PlannedModel) -> tuple[PlannedModel, SpeedCheck]:
    prepared = bench.folder / "prepared.onnx"
    save_model(bench.subject.facts.prepared.model, prepared)
    path = bench.written(planned, "plan-0")
    before = bench.compared(bench.subject.float_path, path)
    taken: tuple[FloatRegion, ...] = ()
    trials = 0
    while True:
        costs = bench.costs(planned, prepared, path)
        regions = _gainful_regions(planned, costs)
        accepted = False
        while regions and trials < TRIALS and not accepted:
            trials += 1
            slower = reasons_of((*taken, *regions), ReasonCode.SLOWER_IN_INT8)
            changed = plan_from(bench.subject.facts, slower)
            candidate = bench.written(changed, f"plan-{trials}")
            accepted = bench.compared(path, candidate).speedup_low > 1.0
            if accepted:
                planned, path, taken = changed, candidate, (*taken, *regions)
            else:
                regions = _better_half(regions)
        if not accepted:
            break
    after = bench.compared(bench.subject.float_path, path) if taken else before
    reasons = _reasons(planned.plan, costs) if after.speedup < 1.0 else ()
    found = SpeedCheck(bench.demand, before, after, taken, trials, reasons, costs.unfused)
    notes = (*planned.plan.notes, *notes_of(found))
    return replace(planned, plan=replace(planned.plan, notes=notes)), found


def _gainful_regions(planned: PlannedModel, costs: Costs) -> tuple[FloatRegion, ...]:
    """Return the regions of a plan that are expected to gain by float."""
    assert planned.facts is not None
    regions = find_float_regions(planned.graph, planned.plan, planned.facts.profile, costs)
    return tuple(region for region in regions if region.gain_ms > 0.0)


def _better_half(regions: Sequence[FloatRegion]) -> tuple[FloatRegion, ...]:
    """Return the first regions with half of the expected gain, at least one less than all."""
    half, sum_so_far = sum(region.gain_ms for region in regions) / 2.0, 0.0
    for number, region in enumerate(regions):
        sum_so_far += region.gain_ms
        if sum_so_far >= half:
            return tuple(regions[: min(number + 1, len(regions) - 1)])
    return ()


def notes_of(found: SpeedCheck) -> tuple[str, ...]:
    """Return what the plan remembers of the check."""
    where = f"onnxruntime {ort.__version__}, {found.after.threads} thread{'s'[: found.after.threads != 1]}"
    notes = [f"measured {found.after.speedup:.2f} times as fast as float ({where})"]
    if found.fallback:
        count = sum(len(region.nodes) for region in found.fallback)
        notes.append(
            f"{count} nodes fall back to float, being slower in int8: {found.before.speedup:.2f} times "
            "as fast as float before"
        )
    if found.slower:
        notes.append(f"FLOAT IS FASTER: {'; '.join(found.reasons)}")
    if found.unfused:
        names = ", ".join(found.unfused[:3])
        notes.append(
            f"{len(found.unfused)} nodes are planned in integers, but onnxruntime computes them in float: "
            f"{names}"
        )
    return tuple(notes)


def _reasons(plan: QuantPlan, costs: Costs) -> tuple[str, ...]:
    """Return where a quantized model that is slower than float spends more than it saves."""
    slower: dict[str, float] = {}
    for name in plan.nodes:
        lost = costs.integer.get(name, 0.0) - costs.floating.get(name, 0.0)
        if lost > 0.0:
            slower[name] = lost
    saved = sum(costs.floating.values()) - sum(costs.integer.values()) + sum(slower.values())
    reasons = [f"integers save {saved / 1e3:.3g} ms"]
    if costs.border:
        reasons.append(f"{len(costs.border)} conversions cost {sum(costs.border.values()) / 1e3:.3g} ms")
    if slower:
        worst = max(slower, key=lambda name: slower[name])
        reasons.append(
            f"{len(slower)} nodes are slower by {sum(slower.values()) / 1e3:.3g} ms, most '{worst}'"
        )
    return tuple(reasons)
