"""Progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import pytest
from qprof_onnx.cli import console
from qprof_onnx.cli.console import Stages, plain_lines, progress


def lines_of(steps: list[tuple[float, int, int | None]]) -> list[str]:
    """Return the lines written for reports (seconds since the start, samples done, total)."""
    lines: list[str] = []
    clock = iter([0.0, *(seconds for seconds, _, _ in steps)])
    report = plain_lines("profiling", lines.append, lambda: next(clock))
    for _, done, total in steps:
        report(done, total)
    return lines


def test_a_plain_line_has_count_rate_and_time_left() -> None:
    assert lines_of([(6.0, 12, 48)]) == ["profiling: 12 of 48 samples, 2.0 a second, 18 s left"]


def test_plain_lines_become_rarer_the_longer_it_takes() -> None:
    lines = lines_of([(second, second, 1000) for second in range(1, 101)])
    assert [int(line.split()[1]) for line in lines] == [5, 15, 35, 75]


def test_the_last_sample_is_reported_of_what_took_a_while_alone() -> None:
    assert lines_of([(0.5, 1, 2), (1.0, 2, 2)]) == []
    assert lines_of([(6.0, 1, 2), (7.0, 2, 2)])[1:] == ["profiling: 2 of 2 samples, 0.3 a second"]


def test_an_unknown_total_gives_no_time_left() -> None:
    assert lines_of([(5.0, 10, None)]) == ["profiling: 10 samples, 2.0 a second"]


def test_progress_goes_to_stderr_and_is_plain_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    with progress("profiling") as report:
        report(3, 3)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("profiling: 3 of 3 samples")


def test_a_terminal_gets_a_bar_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    with progress("profiling") as report:
        report(1, 4)
        report(4, 4)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "4 of 4 samples" in captured.err


def test_a_stage_ends_the_one_before_and_a_remark_is_not_in_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    with Stages() as stage:
        report = stage("reading")
        report(1, 2)
        stage.note("said in between")
        report(2, 2)
        stage("planning")
    captured = capsys.readouterr().err
    assert "note: said in between\n" in captured
    assert captured.index("1 of 2") < captured.index("said in between") < captured.index("2 of 2")
    assert captured.index("2 of 2") < captured.index("planning")
