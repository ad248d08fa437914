import time
from itertools import count

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.evaluation.latency import MIN_ROUNDS, Run, measure, run_clock
from qprof_onnx.quantizer.evaluation.options import LatencySettings


class Machine:
    """A clock that only runs of models move."""

    def __init__(self, float_seconds: float, quantized_seconds: float) -> None:
        self.now = 0.0
        self.log: list[tuple[str, int]] = []
        self.seconds = {"float": float_seconds, "quantized": quantized_seconds}

    def run(self, which: str):
        def run(index: int) -> None:
            self.log.append((which, index))
            self.now += self.seconds[which]

        return run

    def clock(self) -> float:
        return self.now

    def measure(self, samples: int, rounds: int):
        settings = LatencySettings(rounds=rounds)
        return measure(self.run("float"), self.run("quantized"), samples, settings, clock=self.clock)


def test_speedup_is_float_over_quantized() -> None:
    found = Machine(0.040, 0.010).measure(samples=2, rounds=6)
    assert found.float_ms == pytest.approx(40.0, rel=1e-9)  # float64 sums of the fake clock
    assert found.speedup == pytest.approx(4.0, rel=1e-9)
    assert (found.rounds, found.runs, found.samples, found.threads) == (6, 12, 2, 1)


def test_models_take_turns_on_the_same_samples() -> None:
    machine = Machine(0.040, 0.010)
    machine.measure(samples=2, rounds=1)
    warm_up = 4  # one run of each model on each sample
    assert machine.log[warm_up:] == [("float", 0), ("quantized", 0), ("float", 1), ("quantized", 1)]


def test_the_model_that_begins_alternates_from_round_to_round() -> None:
    machine = Machine(0.040, 0.010)
    machine.measure(samples=1, rounds=4)
    begins = [which for which, _ in machine.log[2:]]
    assert begins == ["float", "quantized", "quantized", "float"] * 2


def test_fast_models_run_several_times_in_their_turn_equally_often() -> None:
    machine = Machine(0.002, 0.001)
    found = machine.measure(samples=1, rounds=1)
    assert machine.log[4:] == [("float", 0)] * 2 + [("quantized", 0)] * 2
    assert found.float_ms == pytest.approx(2.0, rel=1e-9)


def test_slow_models_stop_when_the_time_is_up() -> None:
    assert Machine(10.0, 10.0).measure(samples=1, rounds=30).rounds == MIN_ROUNDS


def test_rounds_end_early_when_the_speedup_is_known_to_the_precision_that_is_asked() -> None:
    exact = LatencySettings(rounds=30, precision=0.05)
    machine = Machine(0.040, 0.010)
    found = measure(machine.run("float"), machine.run("quantized"), 1, exact, clock=machine.clock)
    assert (found.rounds, found.speedup) == (MIN_ROUNDS, pytest.approx(4.0, rel=1e-9))
    assert Machine(0.040, 0.010).measure(samples=1, rounds=30).rounds == 30


@pytest.mark.parametrize("seconds", [0.012, 0.030])
def test_rounds_go_on_while_they_differ_or_leave_open_which_model_is_faster(seconds: float) -> None:
    machine, turns = Machine(0.012, seconds), count()

    def disturbed(index: int) -> None:
        machine.now += seconds * (1.0 + 0.2 * (next(turns) % 3))

    settings = LatencySettings(rounds=20, precision=0.05)
    assert measure(machine.run("float"), disturbed, 1, settings, clock=machine.clock).rounds == 20


@pytest.mark.parametrize(
    ("before", "further"),
    [
        ([(0.04, 0.01), (0.08, 0.02)] * 3, 0),
        ([(0.04, 0.01)] * 3, MIN_ROUNDS - 3),
        ([(0.04, 0.01), (0.04, 0.02)] * 3, 7),  # they differ
        ([(0.004, 0.001)] * 9, MIN_ROUNDS),  # shorter than a turn
        ([(0.04, 0.01)] * 6 + [(0.004, 0.001)], MIN_ROUNDS),  # one of them is
    ],
)
def test_runs_on_samples_are_rounds_that_others_follow_if_need_be(before, further: int) -> None:
    machine, exact = Machine(0.040, 0.010), LatencySettings(rounds=30, precision=0.05)
    found = measure(machine.run("float"), machine.run("quantized"), 1, exact, before, clock=machine.clock)
    assert len(machine.log) == (2 + 2 * further if further else 0)  # with one pass before
    assert found.samples == (1 if further == MIN_ROUNDS else len(before))
    assert found.speedup == pytest.approx(4.0, rel=1e-9)


def test_a_slow_model_runs_once_before_it_is_timed() -> None:
    machine = Machine(0.040, 0.005)
    machine.measure(samples=1, rounds=1)
    assert machine.log[:-2] == [("float", 0), ("quantized", 0), ("quantized", 0)]


def test_the_median_ignores_one_disturbed_round() -> None:
    machine = Machine(0.040, 0.010)
    runs = 0

    def disturbed(index: int) -> None:
        nonlocal runs
        runs += 1
        machine.now += 5.0 if runs == 4 else 0.010

    found = measure(machine.run("float"), disturbed, 1, LatencySettings(rounds=9), clock=machine.clock)
    assert found.quantized_ms == pytest.approx(10.0, rel=1e-9)
    assert found.speedup_low == pytest.approx(4.0, rel=1e-9)


def test_times_and_speedup_agree_where_the_machine_is_busy_in_some_rounds() -> None:
    machine, loads = (
        Machine(0.040, 0.010),
        iter([1.0] * 4 + [1.0, 3.0, 1.0, 1.0, 4.0, 1.0, 2.0, 5.0, 1.0, 1.0]),
    )

    def busy(seconds: float) -> Run:
        def run(index: int) -> None:
            machine.now += seconds * next(loads, 1.0)

        return run

    found = measure(busy(0.040), busy(0.010), 1, LatencySettings(rounds=5), clock=machine.clock)
    assert found.speedup_low < found.speedup < found.speedup_high
    assert found.float_ms / found.quantized_ms == pytest.approx(found.speedup, rel=1e-12)


@pytest.mark.skipif(time.get_clock_info("thread_time").resolution > 1e-6, reason="a coarse clock")
def test_one_thread_is_timed_by_its_processor_time_which_waiting_does_not_raise() -> None:
    clock = run_clock(1)
    start = clock()
    time.sleep(0.05)
    assert clock() - start < 0.04
    assert run_clock(2) is run_clock(0) is time.perf_counter


def test_one_round_has_no_spread() -> None:
    found = Machine(0.040, 0.020).measure(samples=1, rounds=1)
    assert found.speedup_low == found.speedup_high == found.speedup


@pytest.mark.parametrize(("settings", "said"), [({"rounds": 0}, "rounds"), ({"threads": 0}, "threads")])
def test_numbers_that_make_no_sense_are_refused(settings: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=f"{said}: "):
        LatencySettings(**settings)
