"""Scoring two models with a metric while the samples stream by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...profiles.readers.values import Sample
from .score import Score, score_of
from .values import Metric, Outputs, Place


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
