from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.quantizer.evaluation.metrics.score import Score
from qprof_onnx.quantizer.search.candidates import (
    Base,
    Candidate,
    Forecast,
    RankedNode,
    Trial,
    best_of,
    meets,
)
from qprof_onnx.quantizer.search.plan_search import LOOKS, PlanSearch, between, quarters, rungs, thirds
from qprof_onnx.quantizer.search.trial import TimeUpError

NODES = tuple("abcdefghijklmnopqrst")
DEFAULT, OTHER, SLOW = Base("default"), Base("other"), Base("slow")
Drop = Callable[[Candidate], float]


def score(drop: float) -> Score:
    return Score(10, 10, 99.0, 99.0 - drop, drop, drop - 1.0, drop + 1.0)


def trial(candidate: Candidate, drop: float, value: float | None = None, nodes: int = 20) -> Trial:
    return Trial(candidate, score(drop), value, nodes, None, None)


def ranking(noise: Callable[[int], float] = lambda place: 2.0**-place) -> tuple[RankedNode, ...]:
    return tuple(RankedNode((name,), noise(place), 1.0) for place, name in enumerate(NODES))


def promise(candidate: Candidate) -> float:
    return (1.0 if candidate.base == SLOW else 2.0) - 0.01 * len(candidate.keep_float)


class Model:
    """A tuning run whose drops are known, which notes what it was asked for."""

    def __init__(self, drop: Drop, held_out: Drop | None = None, *, until: int | None = None) -> None:
        self.drop, self.held_out, self.until = drop, held_out or drop, until
        self.tried: list[Candidate] = []
        self.measured: list[Candidate] = []

    def tuned(self, bases=(DEFAULT,), *, is_measured: bool = False) -> PlanSearch:
        found = PlanSearch(self, 0.5, is_measured)
        found.find(bases)
        return found

    def check_time(self) -> None:
        if self.until is not None and len(self.tried) >= self.until:
            raise TimeUpError

    def forecasts(self, candidates):
        self.check_time()
        return [Forecast(c.base.name, promise(c)) for c in candidates]

    def try_candidates(self, candidates):
        self.check_time()
        self.tried += candidates
        return [self.trial(c) for c in candidates]

    def ranking(self, candidate):
        self.check_time()
        return ranking()

    def measured_objective(self, candidate):
        self.measured.append(candidate)
        return promise(candidate)

    def held_out_score(self, candidate):
        return score(self.held_out(candidate))

    def trial(self, candidate: Candidate) -> Trial:
        floats = len(candidate.keep_float)
        found = trial(candidate, self.drop(candidate), nodes=20 - floats)
        digest = f"{candidate.base.name} {candidate.keep_float}"
        return replace(found, predicted=promise(candidate), plan_digest=digest, sqnr=10.0 + 3.0 * floats)


def needs(count: int) -> Drop:
    return lambda candidate: 0.0 if len(candidate.keep_float) >= count else 2.0


def test_only_the_default_is_tried_when_it_meets_the_target() -> None:
    model = Model(needs(0))
    assert model.tuned((DEFAULT, OTHER)).chosen.candidate == Candidate(DEFAULT)
    assert model.tried == [Candidate(DEFAULT)]


def test_settings_that_promise_more_than_a_default_that_meets_the_target_are_tried(monkeypatch) -> None:
    fast = Base("fast")
    monkeypatch.setitem(globals(), "promise", lambda c: 3.0 if c.base == fast else 2.0)
    model = Model(needs(0))
    assert model.tuned((DEFAULT, OTHER, fast), is_measured=True).chosen.candidate.base == fast
    assert [candidate.base for candidate in model.tried] == [DEFAULT, fast]


def test_equal_plans_are_tried_once(monkeypatch) -> None:
    model = Model(needs(3))
    alike = (DEFAULT, Base("default", {"calibrator": "mse"}), OTHER)
    model.tuned(alike)
    assert [c.base.name for c in model.tried[:2]] == ["default", "other"]
    assert [c.base.name for c in model.tried[2:4]] == ["default", "other"]


@given(st.integers(1, 19))
def test_the_search_finds_a_rung_that_meets_the_target(count) -> None:
    outcome = Model(needs(count)).tuned()
    assert outcome.chosen is not None
    assert outcome.chosen.drop <= 0.5
    assert any(len(one.candidate.keep_float) >= count for one in outcome.trials)


def test_rungs_are_climbed_from_the_fastest_and_stop_at_the_first_that_meets_the_target() -> None:
    model = Model(needs(3))
    model.tuned()
    assert [len(candidate.keep_float) for candidate in model.tried[:4]] == [0, 1, 2, 3]
    assert max(len(candidate.keep_float) for candidate in model.tried) == 3


def test_one_of_the_settings_on_a_rung_is_enough() -> None:
    model = Model(lambda c: 0.0 if c.base == OTHER and len(c.keep_float) >= 2 else 2.0)
    assert model.tuned((DEFAULT, OTHER)).chosen.candidate == Candidate(OTHER, NODES[:2])


def test_steps_below_a_rung_that_costs_much_are_tried() -> None:
    model = Model(needs(12))
    outcome = model.tuned()
    assert min(len(one.candidate.keep_float) for one in outcome.trials if meets(one, 0.5)) == 12
    assert len(model.tried) < 25


def test_no_rung_leaves_all_nodes_float() -> None:
    model = Model(needs(99))
    model.tuned()
    assert max(len(candidate.keep_float) for candidate in model.tried) == len(NODES) - 1


def test_settings_that_promise_less_are_tried_when_no_rung_is_better() -> None:
    model = Model(lambda candidate: 0.0 if candidate.base == SLOW else 2.0)
    assert model.tuned((DEFAULT, SLOW)).chosen.candidate == Candidate(SLOW)
    assert model.tried[-1] == Candidate(SLOW)


def test_a_plan_that_misses_on_held_out_samples_is_left_for_a_higher_rung() -> None:
    outcome = Model(needs(0), held_out=needs(3)).tuned()
    assert outcome.chosen.candidate.keep_float == NODES[:3]
    assert outcome.holdout.drop == 0.0
    assert len(outcome.verified) == 4


def test_held_out_samples_are_looked_at_a_few_times_only() -> None:
    outcome = Model(needs(0), held_out=needs(99)).tuned((DEFAULT, OTHER))
    assert len(outcome.verified) == LOOKS
    assert outcome.holdout.drop > 0.5


def test_the_held_out_samples_are_looked_at_once_when_they_meet_the_target() -> None:
    assert len(Model(needs(4)).tuned().verified) == 1


def test_only_finalists_are_measured_and_the_default_among_them() -> None:
    model = Model(lambda c: 0.0 if c.keep_float or c.base == DEFAULT else 2.0)
    outcome = model.tuned(is_measured=True)
    assert len(model.measured) == 1
    assert outcome.chosen.value == 2.0
    model = Model(needs(12))
    model.tuned(is_measured=True)
    assert len(model.measured) == 3


@pytest.mark.parametrize("until", [1, 2, 3, 5])
def test_what_was_found_is_verified_when_the_time_is_up(until) -> None:
    model = Model(needs(2), until=until)
    outcome = model.tuned((DEFAULT, OTHER))
    assert outcome.chosen is not None
    assert outcome.holdout is not None


@given(st.integers(1, 30), st.floats(0.1, 3.0))
def test_each_rung_has_at_most_half_the_noise_and_the_last_leaves_one_node(count, fall) -> None:
    ranked = tuple(RankedNode((str(place),), 2.0 ** (-fall * place), 1.0) for place in range(count))
    found = rungs(ranked)
    rest = [sum(one.noise for one in ranked[place:]) for place in (0, *found)]
    # 1e-12: sums of float64 in two orders
    assert all(after <= 0.5 * before + 1e-12 for before, after in pairwise(rest[:-1]))
    assert list(found) == sorted(set(found))
    assert found[-1:] == ((count - 1,) if count > 1 else ())


def test_nodes_without_noise_count_as_equal() -> None:
    assert rungs(ranking(lambda place: 0.0)) == (10, 15, 18, 19)


@given(st.integers(-1, 20), st.integers(0, 30))
def test_thirds_lie_inside(low, gap) -> None:
    assert all(low < place < low + gap for place in thirds(low, low + gap))
    assert bool(thirds(low, low + gap)) == (gap > 1)


@given(st.integers(0, 50), st.integers(0, 200))
def test_finer_steps_lie_between_two_rungs(low, gap) -> None:
    found = between(low, low + gap)
    assert len(found) <= 8
    assert all(low < count < low + gap for count in found)
    assert len(found) >= min(4, max(0, gap - 1))


@given(st.integers(1, 30))
def test_quarters_leave_out_each_node_once(count) -> None:
    ranked = tuple(RankedNode((str(place),), 1.0, 1.0) for place in range(count))
    groups = quarters(ranked)
    assert len(groups) <= 4
    assert sorted(one.nodes[0] for group in groups for one in set(ranked) - set(group)) == sorted(
        one.nodes[0] for one in ranked
    )


def test_a_plan_without_quantized_nodes_does_not_meet_the_target() -> None:
    assert not meets(trial(Candidate(DEFAULT), 0.0, nodes=0), 0.5)


def test_the_best_of_those_that_meet_the_target_is_chosen() -> None:
    a, b, c = (Candidate(Base(name)) for name in "abc")
    trials = [trial(a, 0.4, 1.5), trial(b, 0.1, 1.2), trial(c, 3.0)]
    assert best_of(trials, 0.5) == trials[0]
    assert best_of(trials, 0.5, tie=0.25) == trials[1]
    assert best_of(trials, 0.05) is trials[1]
    assert best_of([], 0.5) is None


def test_of_plans_that_are_as_fast_the_one_with_the_least_noise_is_chosen() -> None:
    a, b = (replace(trial(Candidate(Base(n)), 0.0, 2.0), sqnr=s) for n, s in (("a", 20.0), ("b", 30.0)))
    assert best_of([a, replace(b, value=1.99)], 0.5, tie=0.05) == replace(b, value=1.99)
