"""A model in the work folder: its samples, its int8 variants as commands make them, their scores and times.

What a command took and said is kept beside each variant; it is made again when the code behind it has
changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import models
from frame import HERE, PARTS, WORK, write_atomically
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
OF_A_MODEL = {".onnx", ".data", ".xml", ".bin"}
"""Suffixes of the files of a written model."""
SAMPLES = 8
"""Samples of the evaluation split that times are taken on, at most."""
TURN = 0.02
"""Seconds that the float model runs in a turn."""
ROUNDS = 15
"""Turns of each model, at least."""


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
            {model}, {data}, {out}, {folder} (that of built models) and {profile} (that of variant "qprof").
        sources: files that decide about the result, beside the samples and the commands.
        runtime: which it is for.
        suffix: of the file.
        exits: codes that a command may end with.
        part: of the work that it is.
    """

    label: str
    attempts: Sequence[Sequence[Sequence[str]]]
    sources: Sequence[Path]
    runtime: Runtime = ONNXRUNTIME
    suffix: str = ".onnx"
    exits: Collection[int] = (0,)
    part: str = "build"


def sources_of_qprof() -> list[Path]:
    """Return the files that decide about what qprof writes."""
    specs = [
        importlib.util.find_spec(f"qprof_onnx.{room}") for room in ("profiles", "quantizer", "cli", "configs")
    ]
    folders = [Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()]
    files = (file for folder in folders for file in sorted(folder.rglob("*")))
    return [file for file in files if file.suffix in {".py", ".yaml", ".c"}]


def qprof(label: str, *options: str) -> Variant:
    """Return a variant of the installed qprof: the profile of the default and these options of `quantize`."""
    return Variant(label, [[(*QPROF, *_quantize("{profile}"), *options)]], sources_of_qprof(), exits=(0, 1))


def qprof_whole(label: str = "qprof") -> Variant:
    """Return qprof's default with a profile of its own."""
    dump = (*QPROF, "dump-profile", "{model}", "--data", "{data}", "-o", "{out}.yaml")
    commands = [dump, (*QPROF, *_quantize("{out}.yaml"))]
    return Variant(label, [commands], sources_of_qprof(), exits=(0, 1))


def qprof_with_data(label: str) -> Variant:
    """Return qprof's default with the samples at hand: `quantize --data`."""
    files = ("--data", "{data}", "-o", "{out}", "--save-plan", "{out}.plan.yaml")
    return Variant(label, [[(*QPROF, "quantize", "{model}", *files)]], sources_of_qprof(), exits=(0, 1))


def _quantize(profile: str) -> tuple[str, ...]:
    return ("quantize", "{model}", "--profile", profile, "-o", "{out}", "--save-plan", "{out}.plan.yaml")


class Workbench:
    """A model, its samples and its variants, in a folder of its own in the work folder.

    Only the given parts of the work are done (`frame.PARTS`); of the others what was kept is given.
    """

    def __init__(self, name: str, work: Path, parts: Collection[str] = PARTS, *, again: bool = False) -> None:
        self.model, self.work, self.folder = models.load(name), work, work / name
        self.parts, self.again = parts, again
        self.stale: set[str] = set()  # variants that were built by other code, and are as if not built
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

    def file(self, label: str, suffix: str = ".onnx") -> Path:
        """Return where a variant is, or goes; the float model where that is asked for."""
        return self.path if label == FLOAT else self.folder / "built" / f"{label}{suffix}"

    def profile(self) -> Path:
        """Return the profile of variant "qprof", which is built where that was not done."""
        self.build(qprof_whole())
        return self.file("qprof").with_name("qprof.onnx.yaml")

    def record(self, label: str) -> Record:
        """Return what is known of a variant that was built, or tried; {} of any other."""
        if label == FLOAT:
            return {"error": None, "file": digest_of(self.path), "size": self.path.stat().st_size}
        if label in self.stale:
            return {}
        return read_json(self.folder / "built" / f"{label}.json")

    def works(self, label: str) -> bool:
        """Tell whether a variant was built, and runs as far as is known."""
        record = self.record(label)
        return bool(record) and not record["error"]

    def build(self, variant: Variant) -> Record:
        """Build a variant unless that was done, and return what is known of it.

        Time and memory are those of the attempt that worked, of the last one where none did.
        """
        kept, known = self.folder / "built" / f"{variant.label}.json", self.record(variant.label)
        digest = self._digest(variant)
        if known.get("digest") == digest:
            return known
        if variant.part not in self.parts:
            self.stale.add(variant.label)
            return {}
        out = self.file(variant.label, variant.suffix)
        out.parent.mkdir(parents=True, exist_ok=True)
        record: Record = {}
        for commands in variant.attempts:
            for old in out.parent.glob(f"{variant.label}.*"):
                old.unlink()
            record = {"digest": digest, **self._attempt(variant, commands, out)}
            if not record["error"]:
                try:
                    variant.runtime.session(out, 1)
                except (*RUNTIME_ERRORS, RuntimeError) as problem:  # OpenVINO raises RuntimeError
                    record["error"] = f"does not run: {sentence(str(problem))}"
            if not record["error"]:
                break
        write_atomically(kept, json.dumps(record, indent=1).encode())
        return record

    def _digest(self, variant: Variant) -> str:
        words = repr(
            [
                [
                    [Path(program).name, *(word.replace(str(HERE), "") for word in rest)]
                    for program, *rest in commands
                ]
                for commands in variant.attempts
            ]
        )
        found = digest_of(self.path, self.folder / "data.json", *variant.sources)
        return hashlib.sha256((found + words).encode()).hexdigest()

    def _words(self, variant: Variant, command: Sequence[str]) -> list[str]:
        places = {
            "model": str(self.path),
            "data": str(self.data.calibration),
            "out": str(self.file(variant.label, variant.suffix)),
            "folder": str(self.folder / "built"),
            "profile": str(self.profile()) if "{profile}" in command else "",
        }
        return [word.format(**places) for word in command]

    def _attempt(self, variant: Variant, commands: Sequence[Sequence[str]], out: Path) -> Record:
        record: Record = {"error": None, "steps": []}
        for command in commands:
            taken = measured(self._words(variant, command))
            record["steps"].append(taken)
            if taken["exit"] < 0:
                return {
                    **record,
                    "error": f"stopped after {taken['seconds']:.0f} s by signal {-taken['exit']}",
                }
            if taken["exit"] not in variant.exits:
                return {**record, "error": sentence(taken["said"].strip() or taken["printed"])}
        if not out.exists():
            return {**record, "error": sentence(taken["said"].strip() or taken["printed"])}
        whole = [file for file in out.parent.glob(f"{variant.label}.*") if file.suffix in OF_A_MODEL]
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
            if "score" not in self.parts:
                return "was not judged"
            known = {"file": record["file"], "judged": None, "error": None}
            try:
                files = self.path, self.file(label, suffix)
                found = judge(self.model, files, split, runtime.session)
                known["judged"] = found.record()
            except (*RUNTIME_ERRORS, RuntimeError) as problem:
                known["error"] = f"does not run: {sentence(str(problem))}"
            write_atomically(kept, json.dumps(known).encode())
        return str(known["error"]) if known["error"] else Judged.of_record(known["judged"])

    def times(self, name: str, runs: Mapping[str, tuple[Path, Runtime]], seconds: float) -> dict[str, Record]:
        """Return what `turns` measures of some models, unless the same files were timed before.

        Args:
            name: under which the times are kept.
            runs: name -> a model's file and its runtime; the first is that of the float model.
            seconds: how long all of it may take, about.
        """
        kept = self.folder / "times" / f"{name}.json"
        known, found = read_json(kept), dict[str, Record]()
        files = {label: digest_of(path) for label, (path, _) in runs.items()}
        if known.get("files") != files or ("time" in self.parts and self.again):
            if "time" not in self.parts:
                return {}
            opened = {label: runtime.run(path, 1) for label, (path, runtime) in runs.items()}
            feeds = list(islice(self.data.evaluation.feeds(), SAMPLES))
            known = {"files": files, "times": turns(opened, feeds, seconds)}
            write_atomically(kept, json.dumps(known).encode())
        found |= known["times"]
        return found


def turns(runs: Mapping[str, Run], feeds: Sequence[Feed], seconds: float) -> dict[str, Record]:
    """Return milliseconds of a sample, and the ratio to the first, of models that run in turns.

    Time is that of the process's threads, which a busy machine disturbs less than that of the clock. A turn
    is so many samples, so often, that the first model runs for TURN seconds; the order moves on by one every
    round. At least ROUNDS rounds are run, then as many as fit into the seconds.
    """
    first, *_ = labels = list(runs)

    def turn(label: str, times: int, some: Sequence[Feed]) -> float:
        before = time.process_time()
        for _ in range(times):
            for feed in some:
                runs[label](feed)
        return (time.process_time() - before) / times / len(some)

    for label in labels:
        turn(label, 1, feeds[:1])
    one = max(1e-6, turn(first, 2, feeds[:1]))
    some = feeds[: max(1, min(len(feeds), round(TURN / one)))]
    repeats = max(1, round(TURN / (one * len(some))))
    rounds: list[dict[str, float]] = []
    start = time.perf_counter()
    while len(rounds) < ROUNDS or time.perf_counter() - start < seconds:
        place = len(rounds) % len(labels)
        rounds.append({label: turn(label, repeats, some) for label in labels[place:] + labels[:place]})
    found = {}
    for label in labels:
        low, middle, high = statistics.quantiles([each[label] / each[first] for each in rounds], n=4)
        spent = statistics.median(each[label] for each in rounds) * 1e3
        found[label] = {"ms": spent, "ratio": middle, "quartiles": [low, high], "rounds": len(rounds)}
    return found


def measured(command: Sequence[str]) -> Record:
    """Run a command, for LIMIT seconds at most, and return what it took: see measured.py.

    `said` is what it wrote to standard error.
    """
    words = [sys.executable, str(HERE / "measured.py"), str(LIMIT), *command]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
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
