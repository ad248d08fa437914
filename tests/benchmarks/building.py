"""Int8 models built by commands: what each took, what it said, and whether it must be built again."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors
from record import session, write_atomically

HERE = Path(__file__).resolve().parent
Record = dict[str, Any]
LIMIT = 1800  # seconds that one command may take
RUNTIME_ERRORS = (  # what onnxruntime says of a model that it cannot load or run; they share no base class
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)


def build(
    out: Path,
    attempts: Sequence[Sequence[Sequence[str]]],
    digest: str,
    environment: Mapping[str, str] | None = None,
    opener: Callable[[Path, int], object] = session,
) -> None:
    """Run the commands of the first attempt that works; time and memory are those of this attempt.

    `opener` loads the result with one thread: a model that it refuses is an error of the attempt.
    """
    if is_current(out, digest):
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    before: list[str] = []
    for commands in attempts:
        out.unlink(missing_ok=True)
        record = {"digest": digest, **_attempt(out, commands, environment), "failed_before": list(before)}
        record["error"] = record["error"] or _not_loaded(out, opener)
        if not record["error"]:
            break
        before.append(record["error"])
    save(out, record)


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run one command whose time does not matter.

    Raises:
        RuntimeError: it failed; with the last line of what it said.
    """
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=LIMIT)
    if run.returncode != 0:
        raise RuntimeError(sentence(run.stderr.strip() or run.stdout))


def _not_loaded(file: Path, opener: Callable[[Path, int], object]) -> str | None:
    """Return what the runtime says of a model that it cannot load."""
    try:
        opener(file, 1)
    except (*RUNTIME_ERRORS, RuntimeError) as problem:  # OpenVINO raises RuntimeError
        return f"does not run: {sentence(str(problem))}"
    return None


def _attempt(
    out: Path, commands: Sequence[Sequence[str]], environment: Mapping[str, str] | None = None
) -> Record:
    record: Record = {"error": None, "seconds": 0.0, "peak_mb": 0.0, "steps": []}
    step = out.with_suffix(".step.json")
    for command in commands:
        measured = [sys.executable, str(HERE / "measured.py"), str(step), str(LIMIT), *command]
        run = subprocess.run(measured, capture_output=True, text=True, check=True, env=environment)
        taken = json.loads(step.read_text(encoding="utf-8"))
        step.unlink()
        record["steps"].append(taken)
        record["seconds"] += taken["seconds"]
        record["peak_mb"] = max(record["peak_mb"], taken["peak_mb"])
        if taken["exit"] < 0:
            return {**record, "error": f"stopped after {taken['seconds']:.0f} s by signal {-taken['exit']}"}
        if taken["exit"] != 0:
            return {**record, "error": sentence(run.stderr.strip() or taken["printed"])}
    return {**record, "size": out.stat().st_size, "file": digest_of(out)}


def save(out: Path, record: Record) -> None:
    """Keep what is known of a model beside it."""
    write_atomically(out.with_suffix(".json"), json.dumps(record, indent=1).encode())


def sentence(message: str) -> str:
    """Return the last line of an error, without the paths of this machine."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    words = (lines[-1] if lines else "no message").split(" ")
    return " ".join(word for word in words if "/" not in word)[:300]


def digest_of(*files: Path) -> str:
    """Return the SHA-256 of files, one after the other."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_current(out: Path, digest: str) -> bool:
    """Tell whether a model was built, or tried, from what the digest stands for."""
    file = out.with_suffix(".json")
    return file.exists() and bool(json.loads(file.read_text(encoding="utf-8"))["digest"] == digest)
