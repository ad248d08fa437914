"""Jobs that each run in a process of their own, which is stopped if it takes too long."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS, PATIENCE = 60, 300.0
"""Seconds of processor time, and of the clock, after which a job hangs."""

Answer = Mapping[str, Any]
"""Everything that a job finds, as JSON holds it."""
Job = Callable[[Path], Answer]
"""Takes an empty folder of its own."""


@dataclass(frozen=True)
class Ended:
    """A job that ended: its answer, or None and the outcome ("hang", "died") with the reason."""

    label: str
    answer: Answer | None
    outcome: str
    why: str
    seconds: float


def run_each(jobs: Iterable[tuple[str, Job]], processes: int, seconds: float) -> Iterator[Ended]:
    """Run jobs, so many at the same time, and yield how they end; after some seconds no new one starts."""
    end = time.monotonic() + seconds
    waiting, running = iter(jobs), dict[int, tuple[str, Path, float]]()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number in range(1 << 60):
            job = next(waiting, None) if len(running) < processes and time.monotonic() < end else None
            if job is not None:
                here = Path(folder, str(number))
                here.mkdir()
                running[_started(job[1], here)] = (job[0], here, time.monotonic())
                continue
            if not running:
                return
            for pid, (label, here, begin) in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                taken = time.monotonic() - begin
                late = not ended and taken > PATIENCE
                if late:
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                if ended or late:
                    del running[pid]
                    yield _result(label, here, taken, None if late else status)
                    shutil.rmtree(here, ignore_errors=True)
            time.sleep(0.002)


def _result(label: str, here: Path, seconds: float, status: int | None) -> Ended:
    answer = here / "answer.json"
    if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return Ended(label, None, "hang", f"no end after {seconds:.0f} s", seconds)
    if not answer.exists():
        said = here / "stderr"
        tail = said.read_text(errors="replace")[-400:] if said.exists() else ""
        return Ended(label, None, "died", f"status {status}: {tail}", seconds)
    return Ended(label, json.loads(answer.read_text()), "", "", seconds)


def _started(job: Job, here: Path) -> int:
    """Start a process for a job and return its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        answer = json.dumps(job(here))
        (here / "answer.part").write_text(answer)
        (here / "answer.part").rename(here / "answer.json")
        code = 0
    except BaseException:
        with open(here / "stderr", "a", encoding="utf-8") as file:
            traceback.print_exc(file=file)
    finally:
        os._exit(code)
