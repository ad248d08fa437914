"""Blocks of code on pages: found, run in a folder, and what they print compared with what the page tells.

A block ```console holds commands after "$ " and what each prints. Commands of qprof run in this process,
others in a shell. A line "..." stands for any lines. Numbers may differ by the share TOLERANCE, as last
digits do between processors, and by anything where a line tells of times.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner
from qprof_onnx.cli.main import main

ROOT = Path(__file__).parent.parent
TOLERANCE = 0.05
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?!\.?\w)")
VERSION = re.compile(r"\b\d+\.\d+\.\d+\b")
TIMES = re.compile(r"\b(?:latency|speedup|quartiles?|seconds?|ms|us|fast|faster|slower|times float)\b")


@dataclass(frozen=True)
class Step:
    """One command of a console block, and the lines that it prints on the page."""

    command: str
    told: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """The exit code that the told lines mean: 2 for an error, 1 for a gate that did not pass, else 0."""
        text = "\n".join(self.told)
        return (
            2
            if re.search("^error: ", text, re.MULTILINE)
            else 1
            if re.search("FAILED|NOT PROVEN", text)
            else 0
        )


@dataclass(frozen=True)
class Printed:
    """What a command printed, and how it ended."""

    text: str
    exit_code: int


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page in one language; blocks of what a build executes are left out."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def steps(page: str) -> list[Step]:
    """Return the commands of the console blocks of a page, in order."""
    found = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", re.sub(r"\\\n +", "", block), flags=re.MULTILINE)[1:]:
            command, _, told = part.partition("\n")
            found.append(Step(command, tuple(told.rstrip("\n").splitlines())))
    return found


def files(page: str) -> dict[str, str]:
    """Return the files that a page shows, each in a block after <!-- file: NAME -->: name -> text."""
    return dict(re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```", page, re.DOTALL | re.MULTILINE))


def run(step: Step, folder: Path) -> Printed:
    """Run a command; the process has to be in the folder already."""
    words = shlex.split(step.command)
    if words[0] == "qprof":
        result = CliRunner().invoke(main, words[1:], prog_name="qprof")
        return Printed(result.stdout if result.exit_code < 2 else result.output, result.exit_code)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = ["bash", "-euo", "pipefail", "-c", step.command]
    done = subprocess.run(
        shell, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    return Printed(done.stdout + (done.stderr if done.returncode > 1 else ""), done.returncode)


def is_same_line(told: str, printed: str) -> bool:
    """Whether two lines say the same, but for the last digits of numbers, and for versions of libraries."""
    told, printed = (VERSION.sub("VERSION", line) for line in (told, printed))
    shapes = [NUMBER.sub("#", " ".join(line.split())) for line in (told, printed)]
    if TIMES.search(told):
        return shapes[0] == shapes[1]
    numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(line)] for line in (told, printed)]
    return shapes[0] == shapes[1] and all(
        abs(a - b) <= TOLERANCE * max(abs(a), abs(b), 0.2) for a, b in zip(*numbers, strict=True)
    )


def missing(told: tuple[str, ...], printed: str) -> list[str]:
    """Return the told lines from the first on that was not printed where it should be; none if all were."""
    lines, at, gap = printed.rstrip("\n").splitlines(), 0, False
    for index, line in enumerate(told):
        if line == "...":
            gap = True
            continue
        places = range(at, len(lines) if gap else min(at + 1, len(lines)))
        place = next((i for i in places if is_same_line(line, lines[i])), None)
        if place is None:
            return list(told[index:])
        at, gap = place + 1, False
    return [] if gap or at == len(lines) or not told else [f"and no more, but printed: {lines[at]}"]
