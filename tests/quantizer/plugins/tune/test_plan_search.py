from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.evaluation.metrics.score import Score
from qprof_onnx.quantizer.plugins.tune.plan_search import HALVINGS, PlanSearch, halvings
from qprof_onnx.quantizer.plugins.tune.trial import Candidate, Trial
from qprof_onnx.quantizer.plugins.tune.tune_options import QualityTarget
from qprof_onnx.quantizer.search.ranking import RankedNode

NODES = tuple("abcdefghijklmnopqrst")
DEFAULT, OTHER, SLOW, FAST = (Candidate(name) for name in ("default", "other", "slow", "fast"))
PROMISED = {"slow": 1.0, "fast": 3.0}
Drop = Callable[[Candidate], float]


def score(drop: float) -> Score:
    return Score(10, 10, 99.0, 99.0 - drop, drop, drop - 1.0, drop + 1.0)


def ranking(noise: Callable[[int], float] = lambda place: 2.0**-place) -> tuple[RankedNode, ...]:
    return tuple(RankedNode((name,), noise(place), 1.0) for place, name in enumerate(NODES))


def promise(candidate: Candidate) -> float:
    return PROMISED.get(candidate.name, 2.0) - 0.01 * len(candidate.keep_float)


class Model:
    """A tuning run whose drops are known, which notes what it was asked for; a plan is its digest."""

    def __init__(
        self,
        drop: Drop,
        *,
        until: int | None = None,
        objective: str = "latency",
        noise: Callable[[int], float] = lambda place: 2.0**-place,
        values: Callable[[Candidate], float] = promise,
        unplannable: tuple[Candidate, ...] = (),
    ) -> None:
        self.drop, self.until, self.noise = drop, until, noise
        self.values, self.unplannable = values, unplannable
        self.target = QualityTarget(0.5, objective)
        self.trials: list[Trial] = []
        self.rankings = 0

    def tuned(self, bases=(DEFAULT,)) -> Trial | None:
        self.search = PlanSearch(self, bases)
        return self.search.find()

    @property
    def tried(self) -> list[Candidate]:
        return [trial.candidate for trial in self.trials]

    def goes_on(self) -> bool:
        return self.until is None or len(self.trials) < self.until

    def prediction(self, candidate):
        return None if candidate in self.unplannable else promise(candidate)

    def ranking(self, candidate):
        self.rankings += 1
        return ranking(self.noise)

    def make(self, candidate):
        if candidate in self.unplannable:
            self.trials.append(Trial(candidate, None, None, 0, None, None, error="why"))
            raise PlanError("why")
        return self.digest_of(candidate)

    def digest(self, planned):
        return planned

    def digest_of(self, candidate: Candidate) -> str:
        return f"{candidate.settings or candidate.name} {candidate.keep_float}"

    def judge(self, candidate, planned, best):
        floats = len(candidate.keep_float)
        drop, value = self.drop(candidate), None
        if drop <= 0.5 or self.target.objective != "latency":
            value = self.values(candidate)
        trial = Trial(candidate, score(drop), value, 20 - floats, promise(candidate), 10.0 + floats, planned)
        self.trials.append(trial)
        return trial


def left(base: Candidate, count: int) -> Candidate:
    return replace(base, keep_float=NODES[:count])


def needs(count: int) -> Drop:
    return lambda candidate: 0.0 if len(candidate.keep_float) >= count else 2.0


def test_only_the_given_settings_are_tried_when_they_meet_the_target() -> None:
    model = Model(needs(0))
    assert model.tuned((DEFAULT, OTHER, SLOW)).candidate == DEFAULT
    assert model.tried == [DEFAULT]


def test_settings_whose_prediction_beats_given_ones_that_meet_the_target_are_tried() -> None:
    model = Model(needs(0))
    assert model.tuned((DEFAULT, OTHER, FAST)).candidate.name == FAST.name
    assert model.tried == [DEFAULT, FAST]


def test_the_given_settings_are_kept_where_others_are_as_fast_by_the_clock() -> None:
    model = Model(needs(0), values=lambda candidate: 2.05 if candidate.name == FAST.name else 2.0)
    assert model.tuned((DEFAULT, FAST)).candidate.name == DEFAULT.name
    assert len(model.tried) == 2


def test_of_a_size_any_gain_counts() -> None:
    values = lambda candidate: 2.05 if candidate.name == FAST.name else 2.0  # noqa: E731
    model = Model(needs(0), values=values, objective="size")
    assert model.tuned((DEFAULT, FAST)).candidate.name == FAST.name


def test_equal_plans_are_tried_once() -> None:
    model = Model(needs(99))
    model.tuned(
        (
            Candidate("default", {"calibrator": "mse"}),
            Candidate("calibrator mse", {"calibrator": "mse"}),
            OTHER,
        )
    )
    assert [c.name for c in model.tried[:2]] == ["default", "other"]
    assert len({trial.plan_digest for trial in model.trials}) == len(model.trials)


def test_settings_that_are_as_good_are_tried_until_one_meets_the_target() -> None:
    model = Model(lambda candidate: 0.0 if candidate.name in ("other", "slow") else 2.0)
    assert model.tuned((DEFAULT, SLOW, OTHER, Candidate("third"))).candidate == OTHER
    assert model.tried == [DEFAULT, OTHER]


@given(st.integers(1, 19))
def test_the_least_nodes_that_meet_the_target_are_left_float(count) -> None:
    model = Model(needs(count), objective="int8-share")
    assert model.tuned().candidate == left(DEFAULT, count)
    assert len(model.tried) < 15


def test_nodes_are_left_float_for_the_settings_with_the_smallest_drop() -> None:
    model = Model(lambda c: 0.0 if len(c.keep_float) >= 2 else 1.0 + (c.name == DEFAULT.name))
    assert model.tuned((DEFAULT, OTHER)).candidate == left(OTHER, 2)
    assert model.rankings == 1


def test_some_node_is_always_left_quantized() -> None:
    model = Model(needs(99))
    model.tuned()
    assert max(len(candidate.keep_float) for candidate in model.tried) == len(NODES) - 1


def test_settings_that_promise_less_are_tried_when_nodes_in_float_do_not_help() -> None:
    model = Model(lambda candidate: 0.0 if candidate.name == SLOW.name else 2.0)
    assert model.tuned((DEFAULT, SLOW)).candidate == SLOW
    assert model.tried[-1] == SLOW


def test_the_smallest_drop_is_chosen_where_none_meets_the_target() -> None:
    model = Model(lambda candidate: 9.0 - 0.1 * len(candidate.keep_float))
    best = model.tuned((DEFAULT, OTHER))
    assert best.drop == min(trial.drop for trial in model.trials)


@given(
    drops=st.lists(st.floats(0.0, 1.0), min_size=40, max_size=40),
    until=st.integers(1, 30),
    objective=st.sampled_from(["latency", "size", "int8-share"]),
)
def test_no_plan_that_misses_is_chosen_over_one_that_meets_the_target(drops, until, objective) -> None:
    def drop(candidate: Candidate) -> float:
        return drops[(7 * len(candidate.keep_float) + len(candidate.name)) % len(drops)]

    model = Model(drop, until=until, objective=objective)
    best = model.tuned((DEFAULT, OTHER, FAST, SLOW))
    assert best in model.trials
    if any(one.drop <= 0.5 for one in model.trials):
        assert best.drop <= 0.5


@pytest.mark.parametrize("until", [1, 2, 3, 5])
def test_what_was_found_is_given_when_the_time_is_up(until) -> None:
    model = Model(needs(2), until=until)
    assert model.tuned((DEFAULT, OTHER)) in model.trials
    assert len(model.trials) <= until


def test_a_model_of_which_no_plan_can_be_made_has_no_best() -> None:
    model = Model(needs(0), unplannable=(DEFAULT, OTHER))
    assert model.tuned((DEFAULT, OTHER)) is None


def test_other_settings_are_tried_where_the_given_ones_cannot_be_planned() -> None:
    model = Model(needs(0), unplannable=(DEFAULT,))
    assert model.tuned((DEFAULT, SLOW)).candidate == SLOW


@given(st.integers(1, 30), st.floats(0.1, 3.0))
def test_each_step_has_at_most_half_the_noise_and_the_last_leaves_one_node(count, fall) -> None:
    ranked = tuple(RankedNode((str(place),), 2.0 ** (-fall * place), 1.0) for place in range(count))
    found = halvings(ranked)
    rest = [sum(one.noise for one in ranked[place:]) for place in (0, *found)]
    # 1e-12: sums of float64 in two orders
    assert all(after <= 0.5 * before + 1e-12 for before, after in pairwise(rest[:-1]))
    assert list(found) == sorted(set(found))
    assert len(found) <= HALVINGS + 1
    assert found[-1:] == ((count - 1,) if count > 1 else ())


def test_nodes_without_noise_count_as_equal() -> None:
    assert halvings(ranking(lambda place: 0.0)) == (10, 15, 18, 19)


def test_a_plan_without_quantized_nodes_does_not_meet_the_target() -> None:
    trial = Trial(DEFAULT, score(0.0), 2.0, 0, 2.0, None)
    assert not trial.meets(0.5)
    assert replace(trial, quantized_nodes=1).meets(0.5)
