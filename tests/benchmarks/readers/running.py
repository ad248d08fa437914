"""Give the cases to a reader, in its own environment, and compare what it computes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .cases import Case
from .table import Reader

HERE = Path(__file__).resolve().parent
SECONDS = 180.0
"""That a reader may take for one case."""
FLOAT_STEPS = 255
"""An output that the plan does not quantize is compared in steps of a 255th of its range."""


@dataclass(frozen=True)
class Outcome:
    """What a reader made of a case.

    Attributes:
        what: refuses (does not load), fails (does not run), crashes, wrong shape, or runs.
        said: the first words of its message.
        equal: share of the quantized values that are those of the reference, in [0, 1].
        within_one: share of those that differ by one at most.
        largest: difference in quantized values.
    """

    subject: str
    column: str
    what: str
    said: str = ""
    equal: float = 0.0
    within_one: float = 0.0
    largest: float = 0.0

    @property
    def grade(self) -> str:
        """exact, near (by one at most), differs, or why there is nothing to compare."""
        if self.what != "runs":
            return self.what
        return "exact" if self.equal == 1.0 else "near" if self.largest <= 1.0 else "differs"


class Worker:
    """A process that answers case by case."""

    def __init__(self, reader: Reader, python: Path, outputs: Path, environment: dict[str, str]) -> None:
        script, loader = HERE / "worker.py", HERE / "loaders" / f"{reader.loader}.py"
        self.process = subprocess.Popen(
            [python, script, loader, outputs, reader.loader],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def answer(self, folder: Path) -> dict[str, Any] | None:
        """Return the record of a case, None when the process ended or took too long."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{folder}\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=SECONDS)
        except (OSError, queue.Empty):
            line = ""
        record: dict[str, Any] | None = json.loads(line) if line else None
        return record

    def end(self) -> str:
        """End the process with its children; return how it had ended by itself, if it had."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        said = self._ended()
        self.listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return said

    def _ended(self) -> str:
        try:
            code: int | None = self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            code = None
        if code is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return f"no answer in {SECONDS:g} s"
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def outcomes(
    reader: Reader, python: Path, cases: Sequence[tuple[Case, Path]], environment: dict[str, str]
) -> Iterator[Outcome]:
    """Yield what the reader makes of each case; after a crash it is started anew."""
    with tempfile.TemporaryDirectory() as folder:
        worker: Worker | None = None
        for case, place in cases:
            worker = worker or Worker(reader, python, Path(folder), environment)
            record = worker.answer(place)
            if record is None:
                yield Outcome(case.subject, case.column, "crashes", worker.end())
                worker = None
            elif record["what"] != "runs":
                yield Outcome(case.subject, case.column, record["what"], short(record["said"]))
            else:
                yield compared(case, place, Path(folder) / f"{reader.loader}.npz")
        if worker is not None:
            worker.end()


def compared(case: Case, place: Path, outputs: Path) -> Outcome:
    """Compare outputs with those of the reference."""
    with np.load(place / "expected.npz") as wanted, np.load(outputs) as found:
        pairs = [(wanted[key], found.get(key)) for key in wanted]
    steps: list[npt.NDArray[Any]] = []
    for (a, b), step in zip(pairs, case.steps, strict=True):
        if b is None or a.size != b.size or a.squeeze().shape != b.squeeze().shape:
            seen = "missing" if b is None else f"of shape {list(b.shape)}, not {list(a.shape)}"
            return Outcome(case.subject, case.column, "wrong shape", f"an output is {seen}")
        steps.append(difference(a, b.reshape(a.shape), step))
    every = np.concatenate([one.ravel() for one in steps])
    shares = float((every == 0).mean()), float((every <= 1).mean())
    return Outcome(case.subject, case.column, "runs", "", *shares, float(every.max(initial=0.0)))


def difference(wanted: npt.NDArray[Any], found: npt.NDArray[Any], step: float) -> npt.NDArray[Any]:
    """Return the difference of each element in quantized values, infinite where there is no number."""
    a, b = wanted.astype(np.float64), found.astype(np.float64)
    size = step or float(np.ptp(a) if a.size else 0.0) / FLOAT_STEPS or 1.0
    with np.errstate(invalid="ignore"):
        steps: npt.NDArray[Any] = np.rint(np.abs(a - b) / size)
    steps[np.isnan(steps)] = np.inf
    steps[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    return steps


def short(text: str) -> str:
    """Return the first words of a message, without paths and line breaks."""
    words = [word for word in " ".join(text.split()).split(" ") if word.count("/") < 2]
    return " ".join(words)[:240]


def python_of(name: str, reader: Reader, environments: Path) -> Path:
    """Return the interpreter that has the reader's packages."""
    return environments / name / "bin" / "python" if reader.packages else Path(sys.executable)
