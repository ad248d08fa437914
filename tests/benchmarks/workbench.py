"""A model in the work folder: its samples, its int8 variants as commands make them, their scores and times.

What a command took and said is kept beside each variant; it is made again when the code behind it has
changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models
from frame import HERE, WORK, write_atomically
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors
from record import Feed, Judged, Split, judge, make_data, session

Record = dict[str, Any]
Run = Callable[[Feed], object]
LIMIT = 1800  # seconds that one command may take
RUNTIME_ERRORS = (  # what onnxruntime says of a model that it cannot load or run; they share no base class
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)
QPROF = (sys.executable, "-c", "from qprof_onnx.cli.entry import run; run()")
FLOAT = "float"


@dataclass(frozen=True)
class Runtime:
    """How a model file is loaded for scoring, and for timing; both take a number of threads."""

    session: Callable[[Path, int], Any] = session
    run: Callable[[Path, int], Run] = lambda path, threads: _run_of(session(path, threads))


def _run_of(opened: Any) -> Run:
    return lambda feed: opened.run(None, feed)


ONNXRUNTIME = Runtime()


@dataclass(frozen=True)
class Variant:
    """One way to an int8 model.

    Attributes:
        label: name of its file.
        attempts: each a list of commands; the first that gives a model which loads is taken. Words may hold
            {model}, {data}, {tuning}, {out}, {profile} (that of variant "qprof") and {metric}; the word
            {profiling} stands for the options that the model's own infinities ask for.
        sources: files that decide about the result, beside the samples and the commands.
        environment: of the commands, beside that of this process.
        runtime: which it is for.
        suffix: of the file.
    """

    label: str
    attempts: Sequence[Sequence[Sequence[str]]]
    sources: Sequence[Path]
    environment: Mapping[str, str] | None = None
    runtime: Runtime = ONNXRUNTIME
    suffix: str = ".onnx"


def sources_of_qprof(checkout: Path | None = None) -> list[Path]:
    """Return the files that decide about what qprof writes, of the installed one or of another checkout."""
    rooms = ("profiles", "quantizer", "cli", "configs")
    if checkout is None:
        specs = [importlib.util.find_spec(f"qprof_onnx.{room}") for room in rooms]
        folders = [Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()]
    else:
        folders = [checkout / room for room in rooms]
    files = (file for folder in folders for file in sorted(folder.rglob("*")))
    return [file for file in files if file.suffix in {".py", ".yaml", ".c"}]


def qprof(label: str = "qprof", *options: str) -> Variant:
    """Return a variant of the installed qprof: the profile of the default and these options of `quantize`."""
    return Variant(label, [[_quantize("{profile}", *options)]], sources_of_qprof())


def qprof_whole(label: str = "qprof", checkout: Path | None = None, options: Sequence[str] = ()) -> Variant:
    """Return qprof's default with a profile of its own, of the installed version or of another checkout."""
    environment = {} if checkout is None else {"PYTHONPATH": str(checkout / ".typing")}
    dump = (*QPROF, "dump-profile", "{model}", "--data", "{data}", "-o", "{out}.yaml", "{profiling}")
    return Variant(
        label, [[dump, _quantize("{out}.yaml", *options)]], sources_of_qprof(checkout), environment
    )


def _quantize(profile: str, *options: str) -> tuple[str, ...]:
    files = ("--profile", profile, "-o", "{out}", "--save-plan", "{out}.plan.yaml")
    return (*QPROF, "quantize", "{model}", *files, *options)


class Workbench:
    """A model, its samples and its variants, in a folder of its own in the work folder."""

    def __init__(self, name: str, work: Path) -> None:
        self.model, self.work, self.folder = models.load(name), work, work / name
        os.environ[WORK] = str(work)
        self.data = make_data(self.model, work)
        self.path = self.model.path(self.folder)

    def split(self, name: str) -> Split:
        """Return a split by its name.

        Raises:
            SystemExit: the model has no samples to tune on.
        """
        split = self.data.evaluation if name == "evaluation" else self.data.tuning
        if split is None:
            raise SystemExit(f"{self.model.name} has no tuning split")
        return split

    def forget(self) -> None:
        """Drop what was built and timed, so that time and memory are measured again."""
        for name in ("built", "times"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def file(self, label: str, suffix: str = ".onnx") -> Path:
        """Return where a variant is, or goes; the float model where that is asked for."""
        return self.path if label == FLOAT else self.folder / "built" / f"{label}{suffix}"

    def profile(self) -> Path:
        """Return the profile of variant "qprof", which is built if it is not there."""
        file = self.file("qprof").with_name("qprof.onnx.yaml")
        if not file.exists():
            self.build(qprof_whole())
        return file

    def record(self, label: str) -> Record:
        """Return what is known of a variant that was built, or tried; {} of any other."""
        if label == FLOAT:
            return {"error": None, "file": digest_of(self.path)}
        return read_json(self.folder / "built" / f"{label}.json")

    def works(self, label: str) -> bool:
        """Tell whether a variant was built, and runs as far as is known."""
        record = self.record(label)
        return bool(record) and not record["error"]

    def build(self, variant: Variant) -> Record:
        """Build a variant unless that was done, and return what is known of it.

        Time and memory are those of the attempt that worked, of the last one where none did.
        """
        out = self.file(variant.label, variant.suffix)
        kept, digest = self.folder / "built" / f"{variant.label}.json", self._digest(variant)
        if read_json(kept).get("digest") == digest:
            return read_json(kept)
        out.parent.mkdir(parents=True, exist_ok=True)
        before: list[str] = []
        record: Record = {}
        for commands in variant.attempts:
            out.unlink(missing_ok=True)
            record = {
                "digest": digest,
                **self._attempt(variant, commands, out),
                "failed_before": list(before),
            }
            if not record["error"]:
                try:
                    variant.runtime.session(out, 1)
                except (*RUNTIME_ERRORS, RuntimeError) as problem:  # OpenVINO raises RuntimeError
                    record["error"] = f"does not run: {sentence(str(problem))}"
            if not record["error"]:
                break
            before.append(record["error"])
        write_atomically(kept, json.dumps(record, indent=1).encode())
        return record

    def _digest(self, variant: Variant) -> str:
        words = repr(
            [[self._words(variant, command) for command in commands] for commands in variant.attempts]
        )
        found = digest_of(self.folder / "data.json", *variant.sources)
        return hashlib.sha256((found + words).encode()).hexdigest()

    def _words(self, variant: Variant, command: Sequence[str]) -> list[str]:
        data, out = self.data, self.file(variant.label, variant.suffix)
        places = {
            "model": str(self.path),
            "data": str(data.calibration),
            "tuning": str(data.calibration if data.tuning is None else data.tuning.folder),
            "out": str(out),
            "profile": str(self.profile()) if "{profile}" in command else "",
            "metric": f"metrics:{self.model.name.replace('-', '_')}",
        }
        whole = (
            self.model.profiling if word == "{profiling}" else (word.format(**places),) for word in command
        )
        return [word for words in whole for word in words]

    def _attempt(self, variant: Variant, commands: Sequence[Sequence[str]], out: Path) -> Record:
        record: Record = {"error": None, "seconds": 0.0, "peak_mb": 0.0, "steps": []}
        for command in commands:
            taken = measured(self._words(variant, command), variant.environment)
            record["steps"].append(taken)
            record["seconds"] += taken["seconds"]
            record["peak_mb"] = max(record["peak_mb"], taken["peak_mb"])
            if taken["exit"] < 0:
                return {
                    **record,
                    "error": f"stopped after {taken['seconds']:.0f} s by signal {-taken['exit']}",
                }
            if taken["exit"] != 0:
                return {**record, "error": sentence(taken["said"].strip() or taken["printed"])}
        whole = [file for file in out.parent.glob(f"{out.name}*") if ".yaml" not in file.name]
        return {**record, "size": sum(file.stat().st_size for file in whole), "file": digest_of(out)}

    def judged(
        self, label: str, split: Split, runtime: Runtime = ONNXRUNTIME, suffix: str = ".onnx"
    ) -> Judged | str:
        """Judge a variant, or the float model, on a split unless that was done; say why where that fails."""
        record = self.record(label)
        if not record or record["error"]:
            return str(record.get("error", "was not built"))
        kept = self.folder / "judged" / split.name / f"{label}.json"
        known = read_json(kept)
        if known.get("file") != record["file"]:
            known = {"file": record["file"], "judged": None, "error": None}
            try:
                files = self.path, self.file(label, suffix)
                found = judge(self.model, files, split, runtime.session)
                known["judged"] = found.record()
            except (*RUNTIME_ERRORS, RuntimeError) as problem:
                known["error"] = f"does not run: {sentence(str(problem))}"
            write_atomically(kept, json.dumps(known).encode())
        return str(known["error"]) if known["error"] else Judged.of_record(known["judged"])

    def times(
        self,
        name: str,
        runs: Mapping[str, tuple[Path, Runtime]],
        seconds: float,
        threads: int = 1,
        again: bool = False,
    ) -> dict[str, float]:
        """Return the median milliseconds of each of some models, in turns, unless the same were timed.

        Args:
            name: under which the times are kept.
            runs: name -> a model's file and its runtime.
            seconds: how long all of it may take, about.
            threads: of each runtime.
            again: time even what was timed.
        """
        kept = self.folder / "times" / f"{name}.json"
        files = {label: digest_of(path) for label, (path, _) in runs.items()}
        known = read_json(kept)
        if again or known.get("files") != files:
            opened = {label: runtime.run(path, threads) for label, (path, runtime) in runs.items()}
            spent = interleaved(opened, next(self.data.evaluation.feeds()), seconds)
            known = {"files": files, "milliseconds": spent}
            write_atomically(kept, json.dumps(known).encode())
        found: dict[str, float] = known["milliseconds"]
        return found


def interleaved(runs: Mapping[str, Run], feed: Feed, seconds: float) -> dict[str, float]:
    """Return the median milliseconds of each of several runs, so that a busy moment hits them alike.

    Rounds go on for about the given time, at least 9 and at most 400 of them; the order turns by one
    every round.
    """
    names, times = list(runs), {name: list[float]() for name in runs}
    for run in runs.values():
        for _ in range(2):
            run(feed)
    start, done = time.perf_counter(), 0
    while done < 9 or (done < 400 and time.perf_counter() - start < seconds):
        for name in names[done % len(names) :] + names[: done % len(names)]:
            before = time.perf_counter()
            runs[name](feed)
            times[name].append(time.perf_counter() - before)
        done += 1
    return {name: statistics.median(values) * 1000 for name, values in times.items()}


def thread_seconds(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return what each of several runs takes of the thread, in turns, round by round."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            before = time.thread_time()
            run()
            spent[name].append(time.thread_time() - before)
    return spent


def measured(
    command: Sequence[str], environment: Mapping[str, str] | None = None, limit: float = LIMIT
) -> Record:
    """Run a command, for so many seconds at most, and return what it took: see measured.py.

    `said` is what it wrote to standard error.
    """
    words = [sys.executable, str(HERE / "measured.py"), str(limit), *command]
    run = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if run.returncode:
        raise SystemExit(f"measured.py: {run.stderr}")
    return {**json.loads(run.stdout.splitlines()[-1]), "said": run.stderr}


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


def read_json(file: Path) -> Record:
    """Return what a file holds; {} without one."""
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}
