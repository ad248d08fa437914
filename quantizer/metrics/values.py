"""A metric, and what it finds: one concept for `evaluate` and `tune`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.samples.objects import DataLike
from .labels import Labels
from .table import MetricKind, NamedMetric

Floats = npt.NDArray[np.float64]

Outputs = Mapping[str, npt.NDArray[Any]]
"""Outputs of a model on one sample, by name."""

Inputs = Mapping[str, npt.NDArray[Any]]
"""Inputs of a model in one sample, by name."""


@dataclass(frozen=True)
class Place:
    """Which of the samples one is.

    Attributes:
        index: among the samples, from 0.
        name: of the sample: that of its file.
        row: rows before it.
    """

    index: int
    name: str
    row: int = 0


@dataclass(frozen=True, eq=False)
class Figures:
    """What a metric finds in the outputs of one model on all samples.

    Attributes:
        units: rows, samples or pictures that are scored.
        figure: weights of the units, float64 of shape [repeats, units] -> the figure for each, [repeats].
        scores: score of each unit where the figure is their mean; None elsewhere.
    """

    units: int
    figure: Callable[[Floats], Floats]
    scores: Floats | None = None

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
    """Return figures that follow from sums over the units.

    Args:
        sums: float64 of shape [units, counts].
        function: sums of shape [repeats, counts] -> figure of each repeat.
    """
    return Figures(len(sums), lambda weights: function(weights @ sums))


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric, opened with its truth.

    Attributes:
        name: as it was asked for.
        title: for people.
        kind: what its figure means.
        truth: place of a sample and the float model's outputs on it -> the truth about it, in whatever form
            the metric has it, and how many rows of the file it used.
        scored: that truth and the outputs of one model -> what is kept of them.
        figures: what was kept of all samples -> what it amounts to.
        finish: called with the number of all rows, and whether samples were left out at the end; raises
            DataError where the truth is about more or fewer.
        digest: of the truth and of the options.
        assumed: sentences about what was assumed of outputs and truth.
    """

    name: str
    title: str
    kind: MetricKind
    truth: Callable[[Place, Outputs], tuple[Any, int]]
    scored: Callable[[Any, Outputs], Any]
    figures: Callable[[Sequence[Any]], Figures]
    finish: Callable[[int, bool], None] = lambda rows, cut: None
    digest: str = ""
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MetricSource:
    """What a metric of the table is opened with.

    Attributes:
        asked: the metric with its options.
        truth: file or folder; None where none was given, or it is `labels`.
        output: name of the output that is scored; None for the first (that fits).
        class_axis: axis of its classes; None for what its operator says.
        model: the float model.
        inputs: its inputs in the first sample.
        first: its outputs on it.
        data: all samples that these were chosen from; None where nobody knows.
        labels: the truth, where it is labels that were read already.
    """

    asked: NamedMetric
    truth: str | None
    output: str | None
    class_axis: int | None
    model: ir.Model
    inputs: Inputs
    first: Outputs
    data: DataLike | None = None
    labels: Labels | None = None

    @property
    def output_name(self) -> str:
        """The output that is scored."""
        return next(iter(self.first)) if self.output is None else self.output
