"""What is printed, and streams that cannot be written."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from qprof_onnx.cli.console import plain_table
from qprof_onnx.profiles.base.errors import escaped
from qprof_onnx.profiles.records.store import load_profile

from .running import qprof

DATA = Path(__file__).parents[1] / "data"
QPROF = [sys.executable, "-c", "from qprof_onnx.cli.entry import run; run()"]
FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b]0;title\x07", r"\x1b[31mred\x1b]0;title\x07"),
        ("a\nb\tc\rd\x00", r"a\nb\tc\rd\x00"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        (os.fsdecode(b"\xff.onnx"), r"\xff.onnx"),
        ("na\u00efve \u6f22 \u2581", "na\u00efve \u6f22 \u2581"),
    ],
)
def test_control_characters_are_shown_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_ends_of_lines_stay_where_there_are_lines() -> None:
    assert escaped("a\nb\x1b", lines=True) == "a\nb\\x1b"


def test_a_table_has_one_line_for_each_row() -> None:
    assert plain_table(["name"], [["a\nb\x1b"]]) == "name\na\\nb\\x1b"


def test_names_reach_the_terminal_escaped(tmp_path: Path) -> None:
    name = "\x1b[31m\x1b]0;title\x07"
    text = (DATA / "profile-small.yaml").read_text().replace('"input":', f"{json.dumps(name)}:")
    text = text.replace("  input:", f"  {json.dumps(name)}:")
    (tmp_path / "p.yaml").write_text(text)
    assert name in load_profile(tmp_path / "p.yaml")
    for arguments in ([], ["\x1bx"]):
        done = qprof("show", str(tmp_path / "p.yaml"), *arguments)
        assert "\x1b" not in done.output
        assert "\\x1b" in done.output


def shell(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = f"{shlex.join([*QPROF, *arguments])} {redirection}"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        (">&-", "error: standard output is closed; send it to a file or a pipe\n"),
        pytest.param(
            ">/dev/full",
            "error: standard output: cannot be written: No space left on device; send it elsewhere\n",
            marks=FULL,
        ),
    ],
)
def test_a_result_that_cannot_be_printed_is_an_error(redirection: str, message: str) -> None:
    done = shell(redirection, "schema")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize("redirection", ["2>&-", pytest.param("2>/dev/full", marks=FULL)])
def test_a_stderr_that_cannot_be_written_stops_nothing(redirection: str) -> None:
    assert shell(redirection, "schema").returncode == 0
    assert shell(redirection, "show", "absent.yaml").returncode == 2


@FULL
def test_a_help_that_cannot_be_printed_is_an_error() -> None:
    done = shell(">/dev/full", "--help")
    assert done.returncode == 2
    assert done.stderr.startswith("error: No space left on device; ")


def test_ctrl_c_while_modules_are_imported_is_told_in_a_plain_line() -> None:
    code = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from qprof_onnx.cli.entry import run\n"
        "run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
