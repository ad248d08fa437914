"""Running cases: each in a process of its own, with a limit of memory and time."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import run_each

from damage.cases import Base, Case
from damage.checks import CHECKS
from damage.judge import Ending, Listing, judged, listing

MEMORY = 4 << 30
"""Bytes of address space: a case that takes more has to end with a message, and not to stop the machine."""
LEFT_BY_OTHERS = ("__pycache__", "tmp/.ses")
"""Python's own folders, and the file that onnxruntime makes when it is imported."""


@dataclass(frozen=True)
class Result:
    """What became of a case: its outcome, the reason for a finding, its message."""

    case: Case
    label: str
    outcome: str
    why: str
    message: str


def run_all(
    base: Base, cases: Iterable[tuple[str, Case]], processes: int, seconds: float
) -> Iterator[Result]:
    """Run cases, and yield the results as they come."""
    known: dict[str, Case] = {}

    def jobs() -> Iterator[Any]:
        for label, case in cases:
            known[label] = case
            yield label, lambda here, label=label, case=case: _judged(base, case, here)

    for ended in run_each(jobs(), processes, seconds):
        case, found = known.pop(ended.label), ended.answer
        if found is None:
            yield Result(case, ended.label, ended.outcome, ended.why, "")
        else:
            yield Result(case, ended.label, found["outcome"], found["why"], found["message"])


def _judged(base: Base, case: Case, here: Path) -> dict[str, str]:
    """Lay out the files, run the command, and judge its end."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    work, temporary = here / "work", here / "tmp"
    temporary.mkdir()
    laid_out(base, case, work)
    os.chdir(work)
    before = listing(work, temporary)
    os.environ |= {"TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    code = _in_process(case.command, here)
    after = listing(work, temporary)
    stdout, stderr = (_read(here / name) for name in ("stdout", "stderr"))
    ending = Ending(code, stdout, stderr, _changed(case, before, after, code))
    fault = _fault(base, case, ending) if case.check and code == 0 else ""
    outcome, why = judged(case, ending, fault)
    return {"outcome": outcome, "why": why, "message": stderr[-2000:]}


def _fault(base: Base, case: Case, ending: Ending) -> str:
    """Return what is wrong with a result."""
    try:
        return CHECKS[case.check](base, case, ending)
    except Exception as error:
        return f"the check {case.check} fails: {type(error).__name__}: {error}"


def _read(path: Path) -> str:
    return path.read_bytes()[:10_000_000].decode("utf-8", "backslashreplace")


def laid_out(base: Base, case: Case, work: Path) -> None:
    """Make the folder that a case runs in."""
    shutil.copytree(base.folder, work)
    for name, content in case.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        with open(work / name, "wb") as file:
            for piece, times in content:
                file.write(piece * times)


def _changed(case: Case, before: Listing, after: Listing, code: int) -> tuple[str, ...]:
    """Return the files that a command changed and may not."""
    may = {f"work/{name}" for name in case.outputs} if code in (0, 1) else set()
    own = {name.removesuffix(".onnx") + ".qprof" for name in may if name.endswith(".onnx")}
    may |= own | {f"{folder}/plan.yaml" for folder in own}
    may |= {name.removesuffix(".yaml") + ".samples.npz" for name in may if name.endswith(".yaml")}
    names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return tuple(
        sorted(name for name in names if name not in may and not any(part in name for part in LEFT_BY_OTHERS))
    )


def _in_process(command: tuple[str, ...], here: Path) -> int:
    from qprof_onnx.cli.main import main

    tempfile.tempdir = None
    for number, name in ((1, "stdout"), (2, "stderr")):
        target = os.open(here / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, number)
    try:
        main(args=list(command), prog_name="qprof")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return code
