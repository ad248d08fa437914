"""The score of a quantized model beside that of the float one on the same samples, and what was lost."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import ConfigError, DataError, ModelError, nearest
from ....profiles.samples.objects import ChosenSamples, DataLike
from ....profiles.samples.values import Sample
from ..compare import class_axes
from .intervals import bootstrap_interval, drop_interval, is_near_chance
from .relative import relative_metric
from .table import MetricKind, check_metric_name, named_metric
from .truth import Figures, Floats, Inputs, Labels, Metric, MetricSource, Outputs, Place
from .user_functions import MetricFunction, user_metric

# From what was asked for to a metric with its truth.


@dataclass(frozen=True, eq=False)
class MetricRequest:
    """A metric as it was asked for.

    Attributes:
        metric: a name of the table with options, "module:function", or a function; None for top-1 accuracy
            where there are labels, and what needs no truth elsewhere (`relative_metric`).
        truth: file or folder that the metric reads, or its labels; None for none.
        output: name of the output that is scored; None for the first.
        class_axis: axis of its classes; None for what its operator says.
        data: the samples, which may say how pictures were put into the input; None where nobody knows.
    """

    metric: str | MetricFunction | None = None
    truth: str | os.PathLike[str] | Labels | None = None
    output: str | None = None
    class_axis: int | None = None
    data: DataLike | None = None


def open_metric(request: MetricRequest, model: ir.Model, inputs: Inputs, first: Outputs) -> Metric:
    """Return a metric with its truth.

    Args:
        request: which one.
        model: the float model.
        inputs: its inputs in the first sample.
        first: its outputs on it.

    Raises:
        ConfigError: there is no such metric or option, the truth that it needs is missing, or it reads none.
        DataError: the truth cannot be read. ModelError: there is no such output, or it cannot be scored so.
    """
    metric, output, class_axis = request.metric, request.output, request.class_axis
    labels = request.truth if isinstance(request.truth, Labels) else None
    truth = None if request.truth is None or isinstance(request.truth, Labels) else os.fspath(request.truth)
    if output is not None and output not in first:
        raise ModelError(
            f"output '{output}': the model has none of this name; its outputs are {', '.join(first)}."
            f"{nearest(output, first)}"
        )
    if metric is None and truth is None and labels is None:
        chosen = (output or next(iter(first))) if class_axis is not None else None
        return relative_metric(first, class_axes(model, chosen, class_axis))
    if isinstance(metric, str):
        check_metric_name(metric)
    asked = named_metric(metric or "top-1") if metric is None or isinstance(metric, str) else None
    if asked is not None:
        maker: Callable[[MetricSource], Metric] = _maker(asked.kind.maker)
        data = request.data.data if isinstance(request.data, ChosenSamples) else request.data
        return maker(MetricSource(asked, truth, output, class_axis, model, inputs, first, data, labels))
    assert metric is not None
    if request.truth is not None:
        raise ConfigError(
            "--labels and --metric: they exclude each other; a metric of yours reads its own labels"
        )
    return user_metric(metric)


def reads_truth(metric: str | MetricFunction | None) -> bool:
    """Return whether a metric is one of the table, which reads a file of truth.

    Raises:
        ConfigError: the text is neither a name nor "module:function".
    """
    if not isinstance(metric, str):
        return False
    check_metric_name(metric)
    return named_metric(metric) is not None


def _maker(text: str) -> Callable[[MetricSource], Metric]:
    module, _, name = text.partition(":")
    found: Callable[[MetricSource], Metric] = getattr(import_module(f".{module}", __package__), name)
    return found


@dataclass(frozen=True)
class Score:
    """The score of a quantized model and of the float one on the same samples.

    Attributes:
        samples: how many samples.
        rows: how many units were scored: rows, queries, or samples as a whole.
        float_score, quantized_score: of both models, in `unit`.
        drop: how much worse the quantized model is, in `drop_unit`; negative when it is better.
        drop_low, drop_high: 95 % interval of the drop on more data of the same kind (`drop_interval`,
            `bootstrap_interval`); infinite where one unit alone was scored, or the float model is near
            chance.
        unit: "%", "dB", or "" for the unit of the output.
        drop_unit: "percentage points", "dB", or "% of float's".
        higher_is_better: whether a larger score is the better one.
        chance: percent that guessing scores, such as 100 / classes of top-1 accuracy; 0 for unknown.
    """

    samples: int
    rows: int
    float_score: float
    quantized_score: float
    drop: float
    drop_low: float
    drop_high: float
    unit: str = "%"
    drop_unit: str = "percentage points"
    higher_is_better: bool = True
    chance: float = 0.0

    @property
    def is_at_chance(self) -> bool:
        """Whether the float model is not surely better than guessing, so that nothing can be lost."""
        if not self.higher_is_better or self.unit != "%":
            return False
        return is_near_chance(self.float_score / 100.0 * self.rows, self.rows, self.chance / 100.0)


def with_chance(score: Score, chance: float) -> Score:
    """Return the score of rows that are right or wrong, of which guessing has `chance` percent right."""
    found = replace(score, chance=chance)
    return replace(found, drop_low=-math.inf, drop_high=math.inf) if found.is_at_chance else found


def score_text(score: Score) -> str:
    """Return both figures with their unit, as in "71.20 % float, 70.90 % quantized"."""
    unit = f" {score.unit}" if score.unit else ""
    digits = ".6g" if score.drop_unit.startswith("%") else ".2f"
    return f"{score.float_score:{digits}}{unit} float, {score.quantized_score:{digits}}{unit} quantized"


def score_of(kind: MetricKind, samples: int, floats: Figures, quantized: Figures) -> Score:
    """Return the score of a quantized model.

    Args:
        kind: what the figures mean.
        samples: how many there were.
        floats, quantized: what a metric found in the outputs of both models.

    Raises:
        DataError: there is nothing to score.
    """
    if floats.units == 0:
        raise DataError("the samples: have no rows to score; check the data")
    a, b = floats.value, quantized.value
    drop = float(_drops(kind, np.array([a]), np.array([b]))[0])
    if floats.scores is not None and quantized.scores is not None and kind.drop != "relative":
        limit = 100.0 if kind.drop == "points" else math.inf
        low, high = drop_interval(_drops(kind, floats.scores, quantized.scores), limit)
    else:
        low, high = bootstrap_interval(
            lambda weights: _drops(kind, floats.figure(weights), quantized.figure(weights)), floats.units
        )
    better = kind.higher_is_better
    if better and kind.unit == "%" and a <= 0.0:  # nothing to lose
        low, high = -math.inf, math.inf
    return Score(samples, floats.units, a, b, drop, low, high, kind.unit, kind.drop_unit, better)


def _drops(kind: MetricKind, floats: Floats, quantized: Floats) -> Floats:
    """Return how much worse the second figures are; inf where the first is a number and the second is not."""
    lost = floats - quantized if kind.higher_is_better else quantized - floats
    if kind.drop == "relative":
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = np.where(lost == 0.0, 0.0, 100.0 * lost / np.abs(floats))
    return np.where(np.isnan(quantized) & ~np.isnan(floats), math.inf, lost)


# Scoring two models with a metric while the samples stream by.


class ScoreRun:
    """What a metric keeps of both models' outputs, sample by sample.

    Args:
        opened: the first sample and the float model's outputs on it -> the metric with its truth.
    """

    def __init__(self, opened: Callable[[Sample, Outputs], Metric]) -> None:
        self._opened = opened
        self._metric: Metric | None = None
        self._floats: list[Any] = []
        self._quantized: list[Any] = []
        self._row = 0

    def add(self, sample: Sample, floats: Outputs, quantized: Outputs) -> None:
        """Take the outputs of both models on the next sample.

        Raises:
            ConfigError, DataError, ModelError: the metric, its truth or the outputs are wrong, and why.
        """
        metric = self._metric or self._opened(sample, floats)
        self._metric = metric
        truth, rows = metric.truth(Place(len(self._floats), sample.name, self._row), floats)
        self._floats.append(metric.scored(truth, floats))
        self._quantized.append(metric.scored(truth, quantized))
        self._row += rows

    def result(self, cut: bool) -> tuple[Metric, Score]:
        """Return the metric and the score, after one sample at least.

        Args:
            cut: whether samples were left out at the end.

        Raises:
            DataError: the truth is about another number of rows; there is nothing to score.
        """
        metric = self._metric
        assert metric is not None
        metric.finish(self._row, cut)
        found = (metric.figures(kept) for kept in (self._floats, self._quantized))
        return metric, score_of(metric.kind, len(self._floats), *found)
