"""A metric: outputs and a truth become a figure; one concept for `evaluate` and `tune`.

A metric of the table is a function from `MetricSource` to `Metric`. Sample by sample it reads the labels and
stores the needed parts of the outputs. At the end it makes `Figures`, which can be computed for any weights
of the units, so that intervals come from resampling the units.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.errors import ConfigError
from ....profiles.base.findings import Code, Finding
from ....profiles.samples.objects import DataLike
from ....profiles.samples.picture_files import box_files, is_data_yaml
from ....profiles.samples.values import Box, Sample
from ..compare import is_float
from .table import MetricKind, NamedMetric
from .truth import Labels, Place, table_and_column

Floats = npt.NDArray[np.float64]

Outputs = Mapping[str, npt.NDArray[Any]]
"""Outputs of a model on one sample, by name."""

Inputs = Mapping[str, npt.NDArray[Any]]
"""Inputs of a model in one sample, by name."""


@dataclass(frozen=True)
class Found:
    """An object in a picture, in either model or both; boxes are x0, y0, x1, y1 in pixels of the input."""

    name: str  # of its class
    float_box: Box | None
    quantized_box: Box | None
    float_score: float | None
    quantized_score: float | None
    changed: bool  # whether its score is sufficient in one of the models alone


FoundObjects = Callable[[Outputs, Outputs, Mapping[int, str]], Sequence[tuple[Found, ...]]]
"""Outputs of the float and of the quantized model, and names of classes -> the objects of each row."""


def names_in_metadata(model: ir.Model, key: str = "names") -> dict[int, str]:
    """Return class names by number under a key of a model's metadata, a list, dict or lines; {} for none."""
    text = model.metadata_props.get(key, "")
    try:
        names = ast.literal_eval(text)  # JSON of texts is read by it too
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        names = text.splitlines() if "\n" in text.strip() else None
    if not isinstance(names, dict):
        return dict(enumerate(map(str, names))) if isinstance(names, list | tuple) else {}
    return names_by_number(names)


def names_by_number(names: Mapping[object, object]) -> dict[int, str]:
    """Return the names of a dict whose keys are numbers, or numbers as text, as in JSON; {} for another."""
    keys = [str(key) for key in names]
    if not all(key.isascii() and key.isdigit() and len(key) < 10 for key in keys):
        return {}
    return {int(key): str(name) for key, name in zip(keys, names.values(), strict=True)}


def class_word(names: Mapping[int, str], number: int) -> str:
    """Return the name of a class, or its number if it is unnamed."""
    return names.get(number) or f"class {number}"


@dataclass(frozen=True, eq=False)
class Figures:
    """The figures of a metric from the outputs of one model on all samples."""

    units: int
    figure: Callable[[Floats], Floats]  # weights [repeats, units] -> the figure of each repeat
    scores: Floats | None = None  # of each unit, if the figure is their mean
    # [units, counts]: units with the same counts do not differ between two models
    counts: Floats | None = None

    @property
    def value(self) -> float:
        """The figure, in the unit of the metric."""
        return float(self.figure(np.ones((1, self.units)))[0])


def mean_of(scores: Floats) -> Figures:
    """Return figures that are the mean of the units' scores, float64 of shape [units]."""

    def figure(weights: Floats) -> Floats:
        return np.asarray(weights @ scores / weights.sum(axis=1), np.float64)

    return Figures(scores.size, figure, scores)


def of_sums(sums: Floats, function: Callable[[Floats], Floats]) -> Figures:
    """Return figures by a function of weighted sums [repeats, counts] of counts [units, counts]."""
    return Figures(len(sums), lambda weights: function(weights @ sums), counts=sums)


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric, opened with its truth."""

    name: str
    kind: MetricKind
    title: str
    # -> truth of a sample, and how many rows of the file it used
    truth: Callable[[Place, Outputs], tuple[Any, int]]
    scored: Callable[[Any, Outputs], Any]  # truth, outputs of one model -> what is kept of them
    figures: Callable[[Sequence[Any]], Figures]  # what was kept of all samples -> the figures
    # takes the number of all rows, and whether samples were left out; raises DataError
    finish: Callable[[int, bool], None] = lambda rows, cut: None
    reading: str = ""  # how outputs are read, for the digest; "" if `reads` says it
    reads: str = ""  # output that it scores; "" for any
    digest: str = ""
    assumed: tuple[str, ...] = ()
    # the figures if the truth of each row were another's; None if rows can be exchanged one by one
    at_random: Callable[[Sequence[Any]], Figures] | None = None
    # what was kept of the float model -> what guessing scores, and whether the model is no better
    chance: Callable[[Sequence[Any]], tuple[float, bool]] | None = None
    # what was kept of both models -> what to do with them
    advice: Callable[[Sequence[Any], Sequence[Any]], Iterable[Finding]] = lambda floats, quantized: ()
    found: FoundObjects | None = None
    # the answer of each row, if numbers do not say as much
    words: Callable[[Outputs], Sequence[str]] | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was assumed."""
        return tuple(Finding(Code.METRIC_ASSUMED, sentence) for sentence in self.assumed)

    def truth_of(
        self, sample: Sample, outputs: Outputs, samples_before: int, rows_before: int
    ) -> tuple[Any, int]:
        """Return the truth about a sample, by its position if it was drawn, and the file's rows it used."""
        if sample.position is None:
            return self.truth(Place(samples_before, sample.name, rows_before, sample), outputs)
        _, rows = self.truth(Place(sample.position, sample.name, 0, sample), outputs)
        first = sample.first_row(rows, samples_before, rows_before)
        return self.truth(Place(sample.position, sample.name, first, sample), outputs)


@dataclass(frozen=True, eq=False)
class MetricSource:
    """The request that a metric of the table is opened with."""

    metric: NamedMetric
    truth: str | None
    output: str | None
    class_axis: int | None
    model: ir.Model
    first_inputs: Inputs
    first_outputs: Outputs
    data: DataLike | None = None
    labels: Labels | None = None

    @property
    def output_name(self) -> str:
        """The output that is scored."""
        return next(iter(self.first_outputs)) if self.output is None else self.output

    @property
    def values_output(self) -> str:
        """The output that is scored by its values: the first that is float, unless the user names another."""
        floats = (name for name, values in self.first_outputs.items() if is_float(values))
        return self.output_name if self.output is not None else next(floats, self.output_name)

    @property
    def called(self) -> tuple[str, MetricKind]:
        """The name and the kind of the metric."""
        return self.metric.text, self.metric.kind

    def required_truth(self) -> str:
        """Return the file of the labels; ConfigError if a metric needs it and it is missing."""
        if self.truth is None:
            raise ConfigError(
                f"metric '{self.metric.text}': needs labels: {self.metric.kind.truth}; give it with --labels"
            )
        return self.truth

    def digest(self, reading: str) -> str:
        """Return the digest of name, options, how outputs are read, and the bytes of the truth."""
        named = self.metric
        digest = hashlib.sha256(repr((named.kind.name, named.number, sorted(named.options.items()))).encode())
        digest.update(reading.encode())
        if named.kind.truth != "none" and self.labels is not None:
            digest.update(self.labels.classes.tobytes())
        if named.kind.truth != "none" and self.truth is not None:
            table, column = table_and_column(self.truth)
            path = Path(table)
            digest.update(column.encode())
            if is_data_yaml(self.truth):
                files = [boxes for _, boxes in box_files(self.truth).values() if boxes.is_file()]
            else:
                files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
            for file in sorted(files):
                digest.update(file.name.encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()[:16]
