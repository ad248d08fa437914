"""Seconds of processor by stage: nested stages add up, and a stage that fails is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from qprof_onnx.profiles.base import seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that lets time pass; no stage has run before."""
    now = [2.0]

    def passes(more: float) -> None:
        now[0] += more

    monkeypatch.setattr(seconds, "_spent", {})
    monkeypatch.setattr(seconds.time, "process_time", lambda: now[0])
    return passes


def test_a_stage_is_timed_without_the_stages_inside_of_it(clock: Callable[[float], None]) -> None:
    inner = seconds.clocked("run")(lambda: clock(3.0))

    @seconds.clocked("decide")
    def outer() -> None:
        clock(1.0)
        inner()
        inner()

    outer()
    clock(0.5)
    assert seconds.seconds_text() == "start 2.00 (1), run 6.00 (2), decide 1.00 (1), rest 0.50"


def test_a_stage_that_fails_is_counted(clock: Callable[[float], None]) -> None:
    @seconds.clocked("read")
    def fails() -> None:
        clock(1.0)
        raise ValueError("unread")

    with pytest.raises(ValueError, match="unread"):
        fails()
    assert seconds.seconds_text() == "start 2.00 (1), read 1.00 (1), rest 0.00"
