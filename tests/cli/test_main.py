"""The group: finding commands, the one error handler, exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from qprof_onnx.cli.main import COMMANDS
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.plugins.instrument import instrument as pipeline

from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
QPROF = [sys.executable, "-c", "from qprof_onnx.cli.main import main; main(prog_name='qprof')"]
Failing = Callable[[BaseException], Result]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Failing:
    """Return a function that runs a command whose work raises the given exception."""

    def run(error: BaseException, *before: str, **options: str) -> Result:
        def instrument(*_: object) -> None:
            raise error

        monkeypatch.setattr(pipeline, "instrument", instrument)
        return qprof(*before, "instrument", DIGITS / "model.onnx", "-o", tmp_path / "out.onnx", **options)

    return run


def test_help_lists_the_exit_codes_and_an_example() -> None:
    result = qprof("--help")
    assert result.exit_code == 0
    assert "130  interrupted with Ctrl-C" in result.output
    assert "  qprof quantize model.onnx --data samples/ -o model.int8.onnx" in result.output


def test_version_names_the_program() -> None:
    result = qprof("--version")
    assert result.exit_code == 0
    assert result.output.startswith("qprof ")


def test_an_unknown_command_suggests_the_nearest() -> None:
    result = qprof("quantise")
    assert result.exit_code == 2
    assert "No such command 'quantise'. Did you mean 'quantize'?" in result.stderr


def test_an_unknown_option_suggests_the_nearest() -> None:
    result = qprof("instrument", DIGITS / "model.onnx", "--outputs", "x.onnx")
    assert result.exit_code == 2
    assert "Did you mean '--output'?" in result.stderr


def test_an_option_of_another_tool_names_that_of_qprof() -> None:
    result = qprof("quantize", "model.onnx", "--nodes-to-exclude", "head")
    assert "'--nodes-to-exclude'. In qprof: --keep-float NAME" in result.stderr


def test_an_error_of_qprof_is_one_line_with_its_exit_code(failing: Failing) -> None:
    result = failing(ModelError("m.onnx: no graph; export it again"))
    assert (result.exit_code, result.stderr, result.stdout) == (
        2,
        "error: m.onnx: no graph; export it again\n",
        "",
    )


def test_a_module_that_is_not_installed_is_named(failing: Failing) -> None:
    name = "qprof_onnx.quantizer.plugins.report"
    result = failing(ModuleNotFoundError(f"No module named '{name}'", name=name))
    assert (result.exit_code, result.stderr) == (
        2,
        "error: quantizer.plugins.report is not installed; install all of qprof-onnx\n",
    )


def test_an_error_of_the_system_names_the_file(failing: Failing) -> None:
    result = failing(PermissionError(13, "Permission denied", "m.onnx"))
    assert (result.exit_code, result.stderr) == (
        2,
        "error: m.onnx: Permission denied; check the path and the disk\n",
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("std::bad_alloc"),
        RuntimeError("can't start new thread"),
        ImportError("numpy.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_a_system_that_gives_no_memory_is_no_fault_of_the_program(failing: Failing, error: Exception) -> None:
    result = failing(error)
    assert result.exit_code == 2
    assert re.fullmatch(
        r"error: the system gives this process no more memory \(.+\); raise its limit .*--threads\n",
        result.stderr,
    )


def test_an_unexpected_error_is_told_without_a_traceback(failing: Failing) -> None:
    result = failing(ZeroDivisionError("by zero"))
    assert result.exit_code == 70
    assert result.stderr.startswith("internal error: ZeroDivisionError: by zero; ")
    assert result.stderr.endswith("the model, in the repository that you installed qprof from\n")
    assert result.stderr.count("\n") == 1


def test_debug_lets_the_traceback_through(failing: Failing) -> None:
    assert isinstance(failing(ZeroDivisionError("by zero"), "--debug").exception, ZeroDivisionError)


def test_the_environment_can_ask_for_the_traceback(failing: Failing) -> None:
    assert isinstance(failing(ModelError("x"), QPROF_DEBUG="1").exception, ModelError)


def test_ctrl_c_is_told_in_a_plain_line(failing: Failing) -> None:
    result = failing(KeyboardInterrupt())
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_ctrl_c_that_a_compiled_module_turned_into_an_error_is_ctrl_c(failing: Failing) -> None:
    error = ImportError("initialization failed")
    error.__cause__ = KeyboardInterrupt()
    result = failing(error)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_that_ends_a_command_is_told_in_a_plain_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, code: int
) -> None:
    number = getattr(signal, name)

    def instrument(*_: object) -> None:
        signal.raise_signal(number)
        raise AssertionError("the signal was not raised")

    monkeypatch.setattr(pipeline, "instrument", instrument)
    before = signal.signal(number, signal.SIG_DFL)  # which is not that under nohup
    try:
        result = qprof("instrument", DIGITS / "model.onnx", "-o", tmp_path / "out.onnx")
        after = signal.getsignal(number)
    finally:
        signal.signal(number, before)
    assert (result.exit_code, result.stderr) == (code, f"ended by {name}\n")
    assert after is signal.SIG_DFL


def test_a_signal_that_is_ignored_stays_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As nohup wants it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        monkeypatch.setattr(pipeline, "instrument", lambda *_: signal.raise_signal(signal.SIGTERM))
        result = qprof("instrument", DIGITS / "model.onnx", "-o", tmp_path / "out.onnx")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 0


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_run_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "feeds.py").write_text(
        "import os, signal\n"
        "import numpy as np\n"
        "def interrupted():\n"
        "    yield {'image': np.zeros((1, 1, 8, 8), np.float32)}\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    while True:\n"
        "        yield {'image': np.zeros((1, 1, 8, 8), np.float32)}\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    command = [
        *QPROF,
        "dump-profile",
        DIGITS / "model.onnx",
        "--data",
        "feeds:interrupted",
        "-o",
        out / "p.yaml",
    ]
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    result = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stderr.splitlines()[-1]) == (130, "interrupted")
    assert list(out.iterdir()) == []


def test_a_reader_that_goes_away_is_no_error_message() -> None:
    # The pipe is closed before the process writes, so the first write fails.
    process = subprocess.Popen(
        [*QPROF, "instrument", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert errors == b""


def test_help_lists_the_commands_of_every_day_first_each_on_one_line() -> None:
    lines = qprof("--help").output.splitlines()
    first = lines.index("Everyday:")
    assert [line.split()[0] for line in lines[first + 1 : first + 4]] == ["quantize", "evaluate", "report"]
    listed = lines[first : lines.index("Options:")]
    assert sum(line.startswith("  ") for line in listed) == len(COMMANDS)
