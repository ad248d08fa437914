"""The score of a quantized model beside that of the float one on the same samples, and the loss."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import ConfigError, DataError, ModelError, nearest
from ....profiles.base.findings import Finding
from ....profiles.base.json_values import NOT_IN_JSON
from ....profiles.samples.objects import ChosenSamples, DataLike
from ....profiles.samples.values import Sample
from .intervals import UNKNOWN, Z95, Interval, bootstrap_interval, drop_interval, rows_to_show
from .metric import Figures, Floats, Inputs, Metric, MetricSource, Outputs
from .table import MetricKind, check_metric, named_metric
from .truth import Labels
from .user_functions import MetricFunction, user_metric

# From a request to a metric with its truth ---------------------------------------------------------------


def open_metric(
    model: ir.Model,
    inputs: Inputs,
    first: Outputs,
    metric: str | MetricFunction | None = None,
    given: str | os.PathLike[str] | Labels | None = None,
    *,
    output: str | None = None,
    class_axis: int | None = None,
    data: DataLike | None = None,
) -> Metric:
    """Return a metric (None: top-1) with its given truth, by the float model's arrays on the first sample."""
    labels = given if isinstance(given, Labels) else None
    truth = None if given is None or isinstance(given, Labels) else os.fspath(given)
    check_output(output, first)
    if isinstance(metric, str):
        check_metric(metric)
    named = named_metric(metric or "top-1") if metric is None or isinstance(metric, str) else None
    if named is not None:
        name = named.kind.maker.partition(":")[2]
        maker: Callable[[MetricSource], Metric] = getattr(named.kind.module.load(), name)
        whole = data.data if isinstance(data, ChosenSamples) else data
        source = MetricSource(named, truth, output, class_axis, model, inputs, first, whole, labels)
        opened = maker(source)
        return replace(opened, digest=source.digest(opened.reading or opened.reads))
    assert metric is not None
    if given is not None:
        raise ConfigError(
            "--labels and --metric: they exclude each other; a metric of yours reads its own labels"
        )
    return user_metric(metric)


def check_output(output: str | None, outputs: Collection[str]) -> None:
    """Raise ModelError if an output is not among those of the model; None is the first of them."""
    if output is not None and output not in outputs:
        raise ModelError(
            f"output '{output}': the model has no output of this name; its outputs are {', '.join(outputs)}."
            f"{nearest(output, outputs)}"
        )


def reads_truth(metric: str | MetricFunction | None) -> bool:
    """Return whether a metric is one of the table, which reads a file of truth."""
    if not isinstance(metric, str):
        return False
    check_metric(metric)
    return named_metric(metric) is not None


@dataclass(frozen=True)
class Score:
    """The score of a quantized model and of the float one on the same samples.

    Attributes:
        samples: how many samples.
        rows: how many units were scored: rows, queries, or samples as a whole.
        float_score, quantized_score: of both models, in `unit`.
        drop: how much worse the quantized model is, in `drop_unit`; negative when it is better.
        drop_low, drop_high: 95 % interval of the drop on more data of the same kind (`drop_interval`,
            `bootstrap_interval`); infinite for a single unit, or if the labels do not show that the float
            model is better than chance (`score_of`).
        unit: "%", "dB", or "" for the unit of the output.
        drop_unit: "percentage points", "points" (of a function of the user), "dB", or "% of float's".
        higher_is_better: whether a larger score is the better one.
        chance: score of a model without knowledge of the data: the float model with the labels of other rows;
            0 if unknown.
        is_at_chance: whether the float model is not surely better than that, so that nothing can be lost.
        spread, added: inputs of the interval (`Interval`).
        least: percent below which the float model's own score is doubtful.
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
    is_at_chance: bool = False
    spread: float = math.inf
    added: float = 0.0
    least: float = field(default=10.0, metadata=NOT_IN_JSON)

    @property
    def has_something_right(self) -> bool:
        """Whether the float model has more right than by accident."""
        right = self.float_score if self.higher_is_better else 100.0 - self.float_score
        return self.unit != "%" or right > (MAX_ACCIDENTAL_PERCENT if self.is_at_chance else 0.0)

    @property
    def interval(self) -> str:
        """The interval of the drop in words, or that there is none, as of few rows."""
        if not math.isfinite(self.drop_high - self.drop_low):
            return "no 95 % interval"
        return f"95 % interval {self.drop_low:.2f} to {self.drop_high:.2f}"

    def rows_to_show(self, limit: float) -> int | None:
        """Return the approximate number of rows that would show a drop below a limit, or None."""
        if not math.isfinite(self.drop_high):
            return None
        beyond = (self.drop_high - self.drop) * self.rows - Z95 * self.spread * math.sqrt(self.rows)
        return rows_to_show(self.drop, self.spread, self.added, limit, 0.0 if self.added else beyond)


def score_text(score: Score) -> str:
    """Return both figures with their unit, as in "71.20 % float, 70.90 % quantized"."""
    unit = f" {score.unit}" if score.unit else ""
    digits = ".6g" if score.drop_unit.startswith("%") else ".2f"
    return f"{score.float_score:{digits}}{unit} float, {score.quantized_score:{digits}}{unit} quantized"


MAX_ACCIDENTAL_PERCENT = 2.0
"""A score in percent that the truth of something else may give: boxes of another class, as mAP counts the
least likely."""

MIN_UNITS_OF_TRUTH = 4
"""Units from which labels can be rejected."""


def score_of(
    kind: MetricKind,
    samples: int,
    floats: Figures,
    quantized: Figures,
    at_random: tuple[Figures, Figures] | None = None,
    *,
    guessed: tuple[float, bool] | None = None,
) -> Score:
    """Return the score of a quantized model.

    A loss is meaningful only if the float model scores surely better (at 95 %) with the truth of its rows
    than with that of other rows: `at_random` has both figures, None for a metric without a truth of rows;
    `guessed` is a metric's own answer (`Metric.chance`).
    """
    if floats.units == 0:
        raise DataError("the samples: have no rows to score; check the data")
    float_score, quantized_score = floats.value, quantized.value
    if kind.drop_unit == "points" and 0.0 < float_score <= 1.0 and quantized_score <= 1.0:
        given = f"--metric {kind.name}: gives the float model {float_score:.3g} of 100 points"
        raise DataError(f"{given}; if its scores are from 0 to 1, multiply them by 100")
    chance = 0.0 if at_random is None else at_random[1].value
    if guessed is not None:
        chance, is_at_chance = guessed
        is_unfit = is_at_chance
    elif at_random is None:
        is_unfit = is_at_chance = kind.higher_is_better and kind.drop == "points" and float_score <= 0.0
    else:
        own, other = at_random
        is_unfit = not _interval(kind, own, other, chance).low > 0.0
        is_at_chance = is_unfit and own.units >= MIN_UNITS_OF_TRUTH
    interval = UNKNOWN if is_unfit else _interval(kind, floats, quantized, chance)
    low, high = interval.low, interval.high
    if kind.drop_unit == "percentage points" and kind.higher_is_better and math.isfinite(high - low):
        # The float score of other samples differs, so that only 100 points limit the drop.
        low, high = max(low, -100.0), min(high, 100.0)
    return Score(
        samples=samples,
        rows=floats.units,
        float_score=float_score,
        quantized_score=quantized_score,
        drop=float(_drops(kind, np.array([float_score]), np.array([quantized_score]))[0]),
        drop_low=low,
        drop_high=high,
        unit=kind.unit,
        drop_unit=kind.drop_unit,
        higher_is_better=kind.higher_is_better,
        chance=chance if math.isfinite(chance) else 0.0,
        is_at_chance=is_at_chance,
        spread=interval.spread,
        added=interval.added,
        least=kind.least,
    )


def _interval(kind: MetricKind, floats: Figures, quantized: Figures, chance: float) -> Interval:
    """Return the 95 % interval of the drop; the largest drop that there can be is down to `chance`."""
    to_chance = float(np.abs(_drops(kind, np.array([floats.value]), np.array([chance]))[0]))
    largest_drop = 100.0 if kind.drop == "points" else to_chance if chance else math.inf
    if floats.scores is not None and quantized.scores is not None and kind.drop != "relative":
        return drop_interval(_drops(kind, floats.scores, quantized.scores), largest_drop)
    differing = None
    if floats.counts is not None and quantized.counts is not None:
        same = floats.counts.shape == quantized.counts.shape
        differing = int((floats.counts != quantized.counts).any(axis=1).sum()) if same else floats.units

    def drops(weights: Floats) -> Floats:
        return _drops(kind, floats.figure(weights), quantized.figure(weights))

    return bootstrap_interval(drops, floats.units, largest_drop, differing)


def _drops(kind: MetricKind, floats: Floats, quantized: Floats) -> Floats:
    """Return how much worse the second figures are; inf if the first is a number and the second is not."""
    lost = floats - quantized if kind.higher_is_better else quantized - floats
    if kind.drop == "relative":
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = np.where(lost == 0.0, 0.0, 100.0 * lost / np.abs(floats))
    return np.where(np.isnan(quantized) & ~np.isnan(floats), math.inf, lost)


class OtherRows:
    """Gives each row the truth of another one of its sample or before it, the same each time."""

    MAX_KEPT_ROWS = 8

    def __init__(self) -> None:
        self._draw = random.Random(0)
        self._kept: list[Any] = []
        self._rows = 0

    def scored(self, metric: Metric, truth: Any, floats: Outputs) -> Any:
        """Return the stored data of a sample with the labels of other rows; None without such rows."""
        if not metric.kind.maker or metric.at_random is not None or metric.chance is not None:
            return None
        other_truth = self.truth(truth)
        return None if other_truth is None else metric.scored(other_truth, floats)

    def truth(self, truth: Any) -> Any:
        """Return the truth of other rows in place of a sample's own rows; None if none came yet."""
        is_array = isinstance(truth, np.ndarray)
        rows = [truth] if is_array and not truth.ndim else list(truth)
        drawn = []
        for at, row in enumerate(rows):
            others = len(self._kept) + len(rows) - 1
            if not others:
                break
            place = self._draw.randrange(others)
            in_sample = place - len(self._kept)
            other = self._kept[place] if in_sample < 0 else rows[in_sample + (in_sample >= at)]
            for axis, size in enumerate(np.shape(row) if is_array else ()):
                # A row of another sample may have another size: it is cut off, or begun anew.
                other = np.take(other, np.arange(size), axis=axis, mode="wrap")
            drawn.append(other)
        for row in rows:  # a reservoir: each row so far is kept with the same probability
            self._rows += 1
            if len(self._kept) < self.MAX_KEPT_ROWS:
                self._kept.append(row)
            elif (place := self._draw.randrange(self._rows)) < self.MAX_KEPT_ROWS:
                self._kept[place] = row
        if len(drawn) < len(rows):
            return None
        return drawn if not is_array else np.asarray(drawn, truth.dtype).reshape(truth.shape)


def figures_at_random(
    metric: Metric, floats: Sequence[Any], at_random: Sequence[Any]
) -> tuple[Figures, Figures] | None:
    """Return the figures with the truth of the rows, and with that of other rows, for `score_of`."""
    if metric.at_random is not None:
        return metric.figures(floats), metric.at_random(floats)
    pairs = [pair for pair in zip(floats, at_random, strict=True) if pair[1] is not None]
    if not pairs:
        return None
    own, others = zip(*pairs, strict=True)
    return metric.figures(own), metric.figures(others)


# Two models are scored while the samples stream by -------------------------------------------------------


class ScoreRun:
    """The outputs of both models as a metric keeps them, sample by sample; the first one opens the metric."""

    def __init__(self, open_with: Callable[[Sample, Outputs], Metric]) -> None:
        self._open_with = open_with
        self._metric: Metric | None = None
        self._floats: list[Any] = []
        self._quantized: list[Any] = []
        self._at_random: list[Any] = []
        self._others = OtherRows()
        self._row = 0

    def add(self, sample: Sample, floats: Outputs, quantized: Outputs) -> Any:
        """Take the outputs of both models on the next sample, and return its truth."""
        metric = self._metric = self._metric or self._open_with(sample, floats)
        truth, rows = metric.truth_of(sample, floats, len(self._floats), self._row)
        self._floats.append(metric.scored(truth, floats))
        self._quantized.append(metric.scored(truth, quantized))
        self._at_random.append(self._others.scored(metric, truth, floats))
        self._row += rows
        return truth

    @property
    def metric(self) -> Metric | None:
        """The metric; None before the first sample."""
        return self._metric

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Assumptions of the metric, and advice on both models."""
        if self._metric is None:
            return ()
        return (*self._metric.advice(self._floats, self._quantized), *self._metric.findings)

    def result(self, cut: bool) -> tuple[Metric, Score]:
        """Return the metric and the score; `cut`: samples were left out at the end."""
        metric = self._metric
        assert metric is not None
        metric.finish(self._row, cut)
        floats, quantized = (metric.figures(kept) for kept in (self._floats, self._quantized))
        at_random = figures_at_random(metric, self._floats, self._at_random)
        guessed = None if metric.chance is None else metric.chance(self._floats)
        return metric, score_of(metric.kind, len(self._floats), floats, quantized, at_random, guessed=guessed)
