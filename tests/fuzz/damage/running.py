"""Running cases: each in a process of its own, with a limit of memory and time."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from damage.cases import Base, Case, whole, written
from damage.checks import CHECKS
from damage.digests import sealed
from damage.judge import Ending, judged, listing

MEMORY = 4 << 30
"""Bytes of address space: a case that takes more has to end with a message, and not to stop the machine."""
SECONDS, PATIENCE = 60.0, 5
"""Seconds of processor time after which a case hangs; and, on a machine that is shared, how many times as
long it may take by the clock."""
LEFT_BY_OTHERS = ("__pycache__", "tmp/.ses")
"""Python's own folders, and the file that onnxruntime makes when it is imported."""


@dataclass(frozen=True)
class Result:
    """What became of a case: its outcome, the reason for a finding, its message and its time."""

    case: Case
    label: str
    outcome: str
    why: str
    message: str
    seconds: float


def run_all(
    base: Base, cases: Iterable[tuple[str, Case]], processes: int, seconds: float
) -> Iterator[Result]:
    """Run cases, and yield the results as they come.

    Args:
        base: the undamaged files.
        cases: label and case; a label that ends with "*" runs through the real command line.
        processes: how many run at the same time.
        seconds: after which no new case starts.
    """
    end = time.monotonic() + seconds
    waiting, running = iter(cases), dict[int, tuple[str, Case, Path, float]]()
    with tempfile.TemporaryDirectory(prefix="damaged-") as folder:
        place = Path(folder)
        while True:
            while len(running) < processes and time.monotonic() < end:
                label, case = next(waiting, (None, None))
                if label is None or case is None:
                    end = 0.0
                    break
                here = place / label.replace(":", "-").rstrip("*")
                running[_started(base, case, here, label.endswith("*"))] = (
                    label,
                    case,
                    here,
                    time.monotonic(),
                )
            if not running:
                return
            for pid in list(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                label, case, here, begin = running[pid]
                late = _is_late(pid, time.monotonic() - begin)
                if not ended and late:
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                if ended or late:
                    del running[pid]
                    yield _result(label, case, here, time.monotonic() - begin, None if late else status)
                    shutil.rmtree(here, ignore_errors=True)
            time.sleep(0.002)


def _is_late(pid: int, seconds: float) -> bool:
    """Whether a case takes too long: no other case may be stopped because the machine is busy."""
    if seconds <= SECONDS or seconds > PATIENCE * SECONDS:
        return seconds > SECONDS
    with suppress(OSError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # its own, and that of its children
        return used > SECONDS
    return True


def _result(label: str, case: Case, here: Path, seconds: float, status: int | None) -> Result:
    """Return what a process left behind as a result."""
    if status is None:
        return Result(case, label, "hang", f"no end after {seconds:.0f} s", "", seconds)
    answer = here / "result.json"
    if not answer.exists():
        return Result(case, label, "died", f"status {status}: {_tail(here / 'stderr')}", "", seconds)
    document = json.loads(answer.read_text())
    return Result(case, label, document["outcome"], document["why"], document["message"], seconds)


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-400:] if path.exists() else ""


def _started(base: Base, case: Case, here: Path, real: bool) -> int:
    """Start a process for a case and return its number."""
    here.mkdir()
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        os.setsid()
        _child(base, case, here, real)
        code = 0
    except BaseException:
        with open(here / "stderr", "a", encoding="utf-8") as file:
            traceback.print_exc(file=file)
    finally:
        os._exit(code)


def _child(base: Base, case: Case, here: Path, real: bool) -> None:
    """Lay out the files, run the command, judge its end, and write that down."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    work, temporary = here / "work", here / "tmp"
    temporary.mkdir()
    laid_out(base, case, work)
    os.chdir(work)
    before = listing(work, temporary)
    begin = time.monotonic()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    code = (_by_command_line if real else _in_process)(case.command, here, environment)
    seconds = time.monotonic() - begin
    after = listing(work, temporary)
    stdout, stderr = (_read(here / name) for name in ("stdout", "stderr"))
    ending = Ending(code, stdout, stderr, _changed(case, before, after, code), seconds)
    fault = _fault(base, case, ending) if case.check and code == 0 else ""
    outcome, why = judged(case, ending, fault)
    document = {"outcome": outcome, "why": why, "message": stderr[-2000:]}
    (here / "result.tmp").write_text(json.dumps(document))
    (here / "result.tmp").rename(here / "result.json")


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
    for name in case.removed:
        (work / name).unlink()
    for name, content in case.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        with open(work / name, "wb") as file:
            for piece, times in content:
                file.write(piece * times)
    for name, edits in case.edits.items():
        text = base.text(name)
        for old, new in edits:
            if old not in text:
                raise ValueError(f"{name} holds no {old!r}: the case is out of date")
            text = text.replace(old, new, 1)
        (work / name).write_bytes(written(sealed(name, whole(text))))
    for name, target in case.links.items():
        (work / name).unlink(missing_ok=True)
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).symlink_to(target)


def _changed(
    case: Case,
    before: Mapping[str, tuple[int, int, str]],
    after: Mapping[str, tuple[int, int, str]],
    code: int,
) -> tuple[str, ...]:
    """Return the files that a command changed and may not."""
    may = {f"work/{name}" for name in case.outputs} if code in (0, 1) else set()
    may |= {name.removesuffix(".yaml") + ".samples.npz" for name in may if name.endswith(".yaml")}
    may |= {"work/progress.qprof"} if "progress.qprof" in case.command else set()
    names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return tuple(
        sorted(name for name in names if name not in may and not any(part in name for part in LEFT_BY_OTHERS))
    )


def _in_process(command: tuple[str, ...], here: Path, environment: Mapping[str, str]) -> int:
    from qprof_onnx.cli.main import main

    os.environ.update(environment)
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


def _by_command_line(command: tuple[str, ...], here: Path, environment: Mapping[str, str]) -> int:
    start = "import sys; from qprof_onnx.cli.main import main; main(prog_name='qprof')"
    with open(here / "stdout", "wb") as stdout, open(here / "stderr", "wb") as stderr:
        run = [sys.executable, "-P", "-c", start, *command]
        return subprocess.run(
            run, stdout=stdout, stderr=stderr, env=dict(environment), check=False
        ).returncode


def reproduction(case: Case, folder: Path) -> None:
    """Write the files of a case, and its command, for people."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in case.files.items():
        if sum(len(piece) * times for piece, times in content) < 1 << 20:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(written(content))
    (folder / "command.txt").write_text(f"{case.what}\nqprof {' '.join(case.command)}\n")
