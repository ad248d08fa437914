"""A table of costs is read as it was written, and times between its points are interpolated in log space."""

from __future__ import annotations

from pathlib import Path

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.targets.cost_table import (
    Conditions,
    CostTable,
    Surface,
    costs_of,
    parse_table,
    read_table,
    save_table,
    table_text,
)

CONDITIONS = Conditions("onnxruntime-x86", "a processor", "onnxruntime 1.0", 2)
KERNELS = {"Add:float": ((10.0, 1.0), (1000.0, 10.25)), "Run": ((1.0, 2.0),)}
TABLE = CostTable(CONDITIONS, KERNELS, ("a model", "another"), 0.15)


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    save_table(TABLE, tmp_path / "costs.json")
    read = read_table(tmp_path / "costs.json")
    assert (read.conditions, read.kernels) == (TABLE.conditions, TABLE.kernels)
    assert (read.held, read.error) == (TABLE.held, TABLE.error)


def test_a_table_that_was_held_against_no_model_states_no_error() -> None:
    text = table_text(TABLE).replace('"held": ["a model", "another"],\n', "")
    assert parse_table(text, "costs.json").error == 0.0


def test_a_table_has_a_line_for_each_kernel() -> None:
    assert sum(line.startswith(' "') for line in table_text(TABLE).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a table of costs"),
        (table_text(TABLE).replace('"format": 1', '"format": 2'), "has format 2"),
        (table_text(TABLE).replace("[10,1]", "[10,1,1]"), "no common length"),
    ],
)
def test_what_is_no_table_is_refused_with_what_to_do(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"{problem}.*qprof targets NAME --measure"):
        parse_table(text, "costs.json")


def test_a_kernel_that_was_not_measured_has_no_time() -> None:
    assert TABLE.microseconds("Mul:float", (10.0,)) is None


def test_between_two_points_the_time_follows_a_power_of_the_size() -> None:
    surface = Surface([(10.0, 1.0), (1000.0, 100.0)])
    assert surface.at((100.0,)) == pytest.approx(10.0)


def test_beyond_the_points_time_grows_in_proportion_at_most() -> None:
    surface = Surface([(10.0, 1.0), (100.0, 1000.0)])
    assert surface.at((1000.0,)) == pytest.approx(10_000.0)


def test_beyond_the_points_work_adds_what_it_added_between_the_last_two() -> None:
    steps = Surface([(16.0, 10.0 + 16.0 * 2.0), (64.0, 10.0 + 64.0 * 2.0)])
    assert steps.at((500.0,)) == pytest.approx(10.0 + 500.0 * 2.0)
    assert Surface([(16.0, 9.0), (64.0, 8.0)]).at((500.0,)) == pytest.approx(8.0)


def test_sizes_are_known_that_are_no_further_from_measured_ones_than_these_from_each_other() -> None:
    channels = [(size, work, size * work) for size in (16.0, 64.0) for work in (1.0, 10.0)]
    surface = Surface(channels)
    known = [size for size in (2.0, 5.0, 16.0, 30.0, 200.0, 400.0) if surface.knows((size, 1e6))]
    assert known == [5.0, 16.0, 30.0, 200.0]
    assert not Surface([(16.0, 1.0, 5.0)]).knows((32.0, 1.0))


def test_what_is_guessed_are_the_times_alone_of_sizes_that_are_far() -> None:
    table = CostTable(CONDITIONS, {"Conv:float": ((4.0, 1.0, 1.0), (8.0, 1.0, 2.0))})
    assert table.guessed.microseconds("Conv:float", (6.0, 1.0)) == 0.0
    assert table.guessed.microseconds("Conv:float", (64.0, 1.0)) == pytest.approx(16.0)
    assert table.guessed.guess("Conv:float", (4.0, 1.0)) == pytest.approx(1.0)


def test_below_the_points_time_falls_by_their_slope_and_never_rises() -> None:
    assert Surface([(10.0, 5.0), (100.0, 5.0)]).at((1.0,)) == pytest.approx(5.0)
    assert Surface([(10.0, 9.0), (100.0, 5.0)]).at((1.0,)) == pytest.approx(9.0)


def test_a_ragged_grid_has_an_end_for_each_slice() -> None:
    surface = Surface([(1.0, 10.0, 1.0), (1.0, 100.0, 10.0), (100.0, 10.0, 2.0)])
    assert surface.at((100.0, 100.0)) == pytest.approx(20.0)
    assert surface.at((10.0, 10.0)) == pytest.approx(2.0**0.5)


def test_a_slice_that_ends_before_a_size_is_not_asked_where_its_neighbours_reach_it() -> None:
    """Convolutions of 16 to 8 channels, measured of 8 and 24 channels, and of 16 only to 62 and more."""
    others = [(8.0, 8.0, 9.0), (8.0, 72.0, 9.0), (24.0, 8.0, 9.0), (24.0, 72.0, 9.0)]
    surface = Surface([*others, (16.0, 62.0, 7.0)])
    assert surface.at((16.0, 8.0)) == pytest.approx(9.0)
    assert surface.at((16.0, 62.0)) == pytest.approx(7.0)


def test_points_that_are_near_make_no_slope_between_them() -> None:
    surface = Surface([(1000.0, 10.0), (1001.0, 20.0), (2000.0, 20.0), (4000.0, 40.0)])
    assert surface.at((16_000.0,)) == pytest.approx(160.0)
    assert 10.0 < surface.at((1000.5,)) < 20.0


def test_the_packaged_table_says_its_conditions() -> None:
    table = costs_of("onnxruntime-x86")
    assert table is not None
    assert (table.conditions.target, table.conditions.threads) == ("onnxruntime-x86", 1)


def test_a_target_without_a_table_has_none() -> None:
    assert costs_of("glow") is None
