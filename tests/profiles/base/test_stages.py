"""Seconds of processor by stage: nested stages add up, and a stage that fails is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from qprof_onnx.profiles.base import stages


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that lets time pass; no stage has run before."""
    now = [2.0]

    def passes(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(stages, "_spent", {})
    monkeypatch.setattr(stages.time, "process_time", lambda: now[0])
    return passes


def test_a_stage_is_timed_without_the_stages_inside_of_it(clock: Callable[[float], None]) -> None:
    inner = stages.stage("run")(lambda: clock(3.0))

    @stages.stage("decide")
    def outer() -> None:
        clock(1.0)
        inner()
        inner()

    outer()
    clock(0.5)
    assert stages.stages_text() == "start 2.00 (1), run 6.00 (2), decide 1.00 (1), rest 0.50"


def test_a_stage_that_fails_is_counted(clock: Callable[[float], None]) -> None:
    @stages.stage("read")
    def fails() -> None:
        clock(1.0)
        raise ValueError("unread")

    with pytest.raises(ValueError, match="unread"):
        fails()
    assert stages.stages_text() == "start 2.00 (1), read 1.00 (1), rest 0.00"
