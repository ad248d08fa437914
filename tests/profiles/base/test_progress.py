"""Progress: plain lines, and a bar in a notebook or where it is asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from qprof_onnx.profiles.base import progress
from qprof_onnx.profiles.base.progress import asked_for, plain_lines, stages

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def lines_of(steps: list[tuple[float, int, int | None]], unit: str = "sample") -> list[str]:
    """Return the lines written for reports (seconds since the start, samples done, total)."""
    lines: list[str] = []
    clock = iter([0.0, *(seconds for seconds, _, _ in steps)])
    report = plain_lines("profiling", lines.append, lambda: next(clock), unit)
    for _, done, total in steps:
        report(done, total)
    return lines


def test_a_plain_line_has_count_rate_and_time_left() -> None:
    assert lines_of([(6.0, 12, 48)]) == ["profiling: 12 of 48 samples, 2.0 a second, 18 s left"]


def test_the_time_left_leaves_out_the_first_sample_which_loads_the_model() -> None:
    """It said 10142 s for 13 s: the first of 1235 samples took 8 s, the others 90 a second."""
    lines = lines_of([(8.0, 1, 1235), (9.0, 91, 1235), (19.0, 991, 1235)])
    assert lines == [
        "profiling: 1 of 1235 samples, 8 s each",
        "profiling: 991 of 1235 samples, 52.2 a second, 3 s left",
    ]


def test_plain_lines_become_rarer_the_longer_it_takes() -> None:
    lines = lines_of([(second, second, 1000) for second in range(1, 101)])
    assert [int(line.split()[1]) for line in lines] == [5, 15, 35, 75]


def test_the_last_sample_is_reported_of_what_took_a_while_alone() -> None:
    assert lines_of([(0.5, 1, 2), (1.0, 2, 2)]) == []
    assert lines_of([(6.0, 1, 2), (7.0, 2, 2)])[1:] == ["profiling: 2 of 2 samples, 4 s each"]


def test_an_unknown_total_gives_no_time_left() -> None:
    assert lines_of([(5.0, 10, None)]) == ["profiling: 10 samples, 2.0 a second"]


@pytest.mark.parametrize(("done", "text"), [(1, "1 fix, 12 s each"), (3, "3 fixes, 4 s each")])
def test_one_of_what_is_counted_is_one(done: int, text: str) -> None:
    assert lines_of([(12.0, done, None)], "fix") == [f"profiling: {text}"]


def test_a_notebook_shows_progress_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asked_for(None)
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert asked_for(None) is True
    assert asked_for(False) is False


def test_progress_is_plain_lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    stages(True)("profiling")(3, 3)
    assert caplog.messages[0].startswith("profiling: 3 of 3 samples")
