"""Progress of commands: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import pytest
from qprof_onnx.cli.console import Stages, progress
from qprof_onnx.profiles.base import progress as progress_lines
from qprof_onnx.profiles.base.findings import Code, Finding


def test_progress_goes_to_stderr_and_is_plain_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_lines, "SECONDS_BETWEEN_LINES", 0.0)
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
        stage.note(Finding(Code.OUTPUT_KIND, "said in between"))
        report(2, 2)
        stage("planning")
    captured = capsys.readouterr().err
    assert "note: [output-kind] said in between\n" in captured
    assert captured.index("1 of 2") < captured.index("said in between") < captured.index("2 of 2")
    assert captured.index("2 of 2") < captured.index("planning")
