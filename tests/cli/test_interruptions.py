"""Signals that come at bad moments: none is lost, and none leaves a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from qprof_onnx.cli.main import main
from qprof_onnx.profiles.base.output_files import temporary_folder
from qprof_onnx.quantizer.plugins.instrument import instrument as pipeline

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
            return CliRunner().invoke(main, words, prog_name="qprof")
        finally:
            signal.signal(signal.SIGINT, before)

    return run


@pytest.mark.parametrize("name", ENDS)
def test_a_signal_in_a_destructor_is_not_lost(doing: Doing, name: str) -> None:
    """Python drops what a destructor raises, and a callback of a weak reference, as imports have."""

    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(getattr(signal, name))

    result = doing(Interrupted)
    assert (result.exit_code, result.stderr) == ENDS[name]


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("called", ["mkdir", "rmdir"])
def test_a_signal_while_a_temporary_folder_is_made_or_removed_leaves_none(
    doing: Doing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, called: str
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    real = getattr(os, called)

    def interrupted(*arguments: Any, **options: Any) -> None:
        if called == "mkdir":
            real(*arguments, **options)
        signal.raise_signal(getattr(signal, name))
        if called == "rmdir":
            real(*arguments, **options)

    def work() -> None:
        monkeypatch.setattr(os, called, interrupted)
        with temporary_folder():
            pass

    result = doing(work)
    monkeypatch.undo()
    assert (result.exit_code, result.stderr) == ENDS[name]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_error_after_a_signal_is_the_interruption(doing: Doing) -> None:
    """Compiled modules drop the exception of a signal, print it, and raise an ImportError of their own."""

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as error:
            sys.excepthook(type(error), error, None)
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


IMPORTS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from qprof_onnx.cli.entry import run
WANTED = sys.argv.pop(1)

def interrupt(event, arguments):
    if event == "import" and arguments[0] == WANTED:
        class Interrupted:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)
        Interrupted()

sys.addaudithook(interrupt)
run()
"""


@pytest.mark.parametrize("module", ["click", "numpy._core._multiarray_umath"])
def test_ctrl_c_in_a_callback_of_an_import_is_a_plain_line(tmp_path: Path, module: str) -> None:
    words = [module, "instrument", str(DIGITS / "model.onnx"), "-o", str(tmp_path / "out.onnx")]
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTS, *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == ENDS["SIGINT"]
    assert not list(tmp_path.iterdir())
