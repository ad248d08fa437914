"""Signals end a command, whatever it does."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import Result
from qprof_onnx.quantizer.plugins.instrument import instrument as pipeline

from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
ENDS = {"SIGINT": (130, "interrupted\n"), "SIGTERM": (143, "ended by SIGTERM\n")}
Doing = Callable[[Callable[[], object]], Result]


@pytest.fixture
def doing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Doing:
    """Return a function that runs a command whose work is the given one, and then would last long."""

    def run(work: Callable[[], object]) -> Result:
        def instrument(*_: object) -> None:
            work()
            for _ in range(500):
                time.sleep(0.01)

        monkeypatch.setattr(pipeline, "instrument", instrument)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may let us ignore it
        try:
            words = ["instrument", str(DIGITS / "model.onnx"), "-o", str(tmp_path / "out.onnx")]
            return qprof(*words)
        finally:
            signal.signal(signal.SIGINT, before)

    return run


def test_an_error_after_a_signal_is_the_interruption(doing: Doing) -> None:
    """Compiled modules drop the exception of a signal, and raise an ImportError of their own."""

    def work() -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise ImportError("numpy._core.multiarray failed to import") from None

    result = doing(work)
    assert (result.exit_code, result.stderr) == ENDS["SIGTERM"]


def test_a_signal_wakes_a_thread_that_waits(doing: Doing) -> None:
    """As it waits for samples that other threads run."""

    def work() -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        threading.Event().wait(20.0)

    begun = time.monotonic()
    assert doing(work).exit_code == 143
    assert time.monotonic() - begun < 15.0
