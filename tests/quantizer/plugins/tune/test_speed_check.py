"""The check as a whole: on a real model, and where the measurements are given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError
from qprof_onnx.profiles.records.check_samples import CheckSample
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.costs import float_regions
from qprof_onnx.quantizer.costs.predicted import Costs
from qprof_onnx.quantizer.evaluation.latency import Latency
from qprof_onnx.quantizer.plan.documents import read_profile
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.plan.provenance import plan_digest
from qprof_onnx.quantizer.planning.facts import PlanningFacts
from qprof_onnx.quantizer.planning.plan_model import PlannedModel, model_facts, plan_from
from qprof_onnx.quantizer.plugins.tune import speed_check as module
from qprof_onnx.quantizer.plugins.tune.node_times import node_times
from qprof_onnx.quantizer.plugins.tune.speed_check import (
    SpeedCheck,
    SpeedCheckOptions,
    check_speed,
)
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.cost_table import read_table
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", str(DIGITS / "calibration")
COSTS = Path(__file__).parents[4] / "configs" / "costs" / "onnxruntime-x86.1.json"


@pytest.fixture(scope="module")
def facts(profile: Path) -> PlanningFacts:
    prepared = open_prepared(MODEL)
    bound = read_profile(profile, prepared.model, prepared.identity)
    return model_facts(prepared, bound, load_recipe())


def first(facts: PlanningFacts) -> PlannedModel:
    return plan_from(facts)


def first_plan(facts: PlanningFacts) -> QuantPlan:
    return first(facts).plan


def latency(float_ms: float, quantized_ms: float) -> Latency:
    ratio = float_ms / quantized_ms
    return Latency(float_ms, quantized_ms, ratio, ratio, ratio, 5, 5, 1, 1)


class Machine:
    """A machine on which nodes cost what is told: the times of a plan are their sum."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, floats: dict[str, float], codes: dict[str, float]
    ) -> None:
        self.floats, self.codes = floats, codes
        self.weights = 0.5
        self.plans: dict[Path, QuantPlan] = {}
        monkeypatch.setattr(module._Bench, "file", self.file)
        monkeypatch.setattr(module._Bench, "written", self.written)
        monkeypatch.setattr(module._Bench, "compared", self.compared)
        monkeypatch.setattr(module._Bench, "costs", self.costs)

    def file(self, planned: PlannedModel) -> Path:
        return Path(plan_digest(planned.plan))

    def written(self, planned: PlannedModel) -> Path:
        self.plans[self.file(planned)] = planned.plan
        return self.file(planned)

    def spent(self, path: Path) -> float:
        plan = self.plans.get(path)
        if plan is None or plan.config.mode == "weight-only":
            return sum(self.floats.values()) / (1.0 if plan is None else self.weights)
        return sum(self.node_time(plan.nodes[n], n) for n in self.floats)

    def node_time(self, entry: NodePlan, name: str) -> float:
        if entry.kind in (Kind.FLOAT, Kind.WEIGHT_ONLY):
            return self.floats[name]
        return self.codes[name]

    def compared(self, first: Path, second: Path) -> Latency:
        return latency(self.spent(first), self.spent(second))

    def costs(self, planned: PlannedModel, prepared: Path, quantized: Path) -> Costs:
        return Costs(self.codes, self.floats, {}, ())


def checked(facts: PlanningFacts, **demand: float) -> tuple[QuantPlan, SpeedCheck]:
    planned, found = check_speed(MODEL, facts, first(facts), replace(SpeedCheckOptions(DATA), **demand))
    return planned.plan, found


def test_a_node_that_is_slower_goes_back_with_its_figures(
    facts: PlanningFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = first_plan(facts)
    name = next(n for n, entry in plan.nodes.items() if entry.kind is Kind.QUANTIZED)
    floats = dict.fromkeys(plan.nodes, 100.0)
    Machine(monkeypatch, floats, {**dict.fromkeys(plan.nodes, 50.0), name: 400.0})
    changed, found = checked(facts)
    assert [region.nodes for region in found.fallback] == [(name,)]
    assert changed.nodes[name].reason == "slower in int8: 0.4 ms against 0.1 ms float"
    assert changed.config == plan.config
    assert found.after.speedup > found.before.speedup


def test_nothing_changes_when_integers_gain_everywhere(
    facts: PlanningFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = first_plan(facts)
    Machine(monkeypatch, dict.fromkeys(plan.nodes, 100.0), dict.fromkeys(plan.nodes, 50.0))
    changed, found = checked(facts)
    assert (found.trials, found.fallback) == (0, ())
    assert found.costs is not None
    assert found.costs.integer == dict.fromkeys(plan.nodes, 50.0)
    assert replace(changed, findings=()) == replace(plan, findings=())


@pytest.mark.parametrize(("codes", "kept"), [(50.0, True), (150.0, False)])
def test_a_plan_that_was_predicted_to_save_too_little_is_timed_and_kept_where_it_is_faster(
    facts: PlanningFacts, monkeypatch: pytest.MonkeyPatch, codes: float, kept: bool
) -> None:
    recipe = replace(load_recipe(), measured=read_table(COSTS))
    facts = replace(facts, recipe=recipe)
    quantized = first_plan(facts)
    monkeypatch.setattr(float_regions, "MIN_SAVED_SHARE", 0.9)
    plan = first_plan(facts)
    assert [n for n, e in plan.nodes.items() if e.kind.counts_as_quantized] == []
    Machine(monkeypatch, dict.fromkeys(plan.nodes, 100.0), dict.fromkeys(plan.nodes, codes))
    changed, found = checked(facts)
    assert changed.nodes == (quantized if kept else plan).nodes
    assert any("predicted to save too little" in change for change in found.changes) is kept


def test_what_does_not_gain_when_it_is_measured_is_left_in_int8(
    facts: PlanningFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = first_plan(facts)
    names = [n for n, entry in plan.nodes.items() if entry.kind is Kind.QUANTIZED]
    machine = Machine(monkeypatch, dict.fromkeys(plan.nodes, 100.0), dict.fromkeys(plan.nodes, 50.0))
    wrong = Costs({**machine.codes, names[0]: 400.0, names[-1]: 300.0}, machine.floats, {}, ())
    monkeypatch.setattr(module._Bench, "costs", lambda *_: wrong)
    changed, found = checked(facts)
    assert found.trials == 2  # both together, then the better of them
    assert found.fallback == ()
    assert changed.config.keep_float == ()


def test_a_model_that_float_runs_faster_is_left_in_float(
    facts: PlanningFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = first_plan(facts)
    machine = Machine(monkeypatch, dict.fromkeys(plan.nodes, 100.0), dict.fromkeys(plan.nodes, 150.0))
    costs = Costs({}, machine.floats, {"x": 250.0}, ())
    monkeypatch.setattr(module._Bench, "costs", lambda *_: costs)
    changed, found = checked(facts, min_speedup=1.0)
    assert (found.passed, found.after.speedup) == (True, 1.0)
    assert found.left_float == "the whole model is left in float: int8 was 0.67 times as fast as float"
    assert found.left_float in map(str, changed.findings)
    assert {entry.kind for entry in changed.nodes.values()} == {Kind.FLOAT}


@pytest.mark.parametrize("keeps", [True, False])
def test_without_samples_those_of_the_profile_are_timed_or_random_ones(
    facts: PlanningFacts, *, keeps: bool
) -> None:
    kept = (CheckSample("digest", {"image": np.full((1, 1, 8, 8), 7.0, np.float32)}),) if keeps else ()
    facts = replace(facts, measured=replace(facts.measured, held_samples=kept))
    (feed,) = module._feeds(facts, SpeedCheckOptions(limit=1))
    assert feed["image"].shape == (1, 1, 8, 8)
    assert (feed["image"] == 7.0).all() == keeps


def test_every_executed_node_of_a_real_model_finds_its_owner(facts: PlanningFacts, tmp_path: Path) -> None:
    """On the machine of the test: all the time is charged to nodes and tensors of the model."""
    bench = module._Bench(MODEL, facts, SpeedCheckOptions(DATA), (_feed(),), tmp_path)
    planned = first(facts)
    plan = planned.plan
    floating = replace(plan, tensors={}, nodes=_all_float(plan))
    prepared = bench.written(replace(planned, plan=floating))
    quantized = bench.written(planned)
    floats, codes = node_times({"a": prepared, "b": quantized}, bench.feeds, seconds=0.0)
    found = module.find_costs(planned.graph, plan, floats, codes, names=bench.names[quantized])
    assert not {"", *found.integer, *found.floating} - set(plan.nodes) - {""}
    assert "" not in found.integer
    assert sum(found.floating.values()) == pytest.approx(sum(e.microseconds for e in floats), rel=1e-9)
    charged = sum(found.integer.values()) + sum(found.border.values())
    assert charged == pytest.approx(sum(e.microseconds for e in codes), rel=1e-9)
    assert found.unfused == ()


def _feed() -> dict[str, object]:
    from qprof_onnx.profiles.samples.samples import input_specs, open_samples

    return dict(next(iter(open_samples(DATA, input_specs(open_prepared(MODEL).model), 1))).arrays)


def _all_float(plan: QuantPlan) -> dict[str, object]:
    return {
        name: replace(entry, kind=Kind.FLOAT, because="float", inputs={}, implementation="")
        for name, entry in plan.nodes.items()
    }


def test_the_plan_that_was_saved_needs_no_data(profile: Path, tmp_path: Path) -> None:
    plan, out, again = tmp_path / "plan.yaml", tmp_path / "q.onnx", tmp_path / "r.onnx"
    result = write_quantized(MODEL, profile, out, save_plan=plan, speed=SpeedCheckOptions(DATA, limit=1))
    assert result.speed is not None
    write_quantized(MODEL, None, again, plan=plan)
    assert again.read_bytes() == out.read_bytes()


def test_a_target_that_cannot_be_measured_here_is_refused(facts: PlanningFacts) -> None:
    glow = model_facts(facts.prepared, facts.measured, load_recipe("glow"))
    with pytest.raises(ConfigError, match="does not show the speed on target glow"):
        check_speed(MODEL, glow, first(glow), SpeedCheckOptions(DATA))


@pytest.mark.parametrize("speedup", [0.0, -1.0, float("nan")])
def test_a_demand_that_is_no_ratio_is_refused(facts: PlanningFacts, speedup: float) -> None:
    with pytest.raises(ConfigError, match=r"min_speedup: .* (is not above 0|is not finite)"):
        checked(facts, min_speedup=speedup)


def test_no_samples_are_told(facts: PlanningFacts, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        check_speed(MODEL, facts, first(facts), SpeedCheckOptions(str(tmp_path)))
