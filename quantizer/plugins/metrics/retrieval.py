"""Embeddings: queries that find their documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import DataError
from ...evaluation.metrics.metric import Figures, Floats, Metric, MetricSource, Outputs, mean_of
from ...evaluation.metrics.truth import Place, load_labels
from .cosine import unit_rows


def recall(source: MetricSource) -> Metric:
    """Return the share of queries with a document of theirs among the K nearest."""
    most = source.metric.number
    return _rank_metric(source, lambda ranks: np.asarray(100.0 * (ranks <= most), np.float64))


def mean_reciprocal_rank(source: MetricSource) -> Metric:
    """Return the mean of 1 over the place of the first document that belongs to the query."""
    return _rank_metric(source, lambda ranks: np.asarray(100.0 / ranks, np.float64))


def _rank_metric(source: MetricSource, score: Callable[[Floats], Floats]) -> Metric:
    """Return a metric of the rank of the first document of each query."""
    file, output, among = source.required_truth(), source.values_output, source.metric.options["among"]
    among = None if among is None else int(among)
    pairs = load_labels(file)

    def truth(place: Place, floats: Outputs) -> tuple[Any, int]:
        rows = len(unit_rows(floats[output]))
        return pairs.classes[place.row : place.row + rows], rows

    def scored(numbers: npt.NDArray[np.int64], outputs: Outputs) -> tuple[npt.NDArray[np.int64], Floats]:
        rows = unit_rows(outputs[output])
        return numbers, rows if len(rows) == numbers.size else np.zeros((numbers.size, rows.shape[1]))

    def figures(kept: Sequence[tuple[npt.NDArray[np.int64], Floats]], of_next: bool = False) -> Figures:
        numbers = np.concatenate([numbers for numbers, _ in kept])
        rows = np.concatenate([rows for _, rows in kept])
        return mean_of(score(_ranks(numbers, rows, among, file, of_next)))

    return Metric(
        *source.called,
        f"{source.metric.title}, output '{output}'",
        reads=output,
        truth=truth,
        scored=scored,
        figures=figures,
        finish=lambda rows, cut: pairs.check_rows(rows, cut=cut),
        at_random=lambda kept: figures(kept, of_next=True),
    )


def _ranks(
    numbers: npt.NDArray[np.int64], rows: Floats, among: int | None, where: str, of_next: bool = False
) -> Floats:
    """Return the place of the first document of each query, from 1; ties count against it.

    `numbers` are the pairs of the rows, each with its query first. Blocks of `among` pairs are searched
    together. With `of_next`, each query looks for the documents of the next one.
    """
    pairs, queries = np.unique(numbers, return_index=True)
    queries = np.sort(queries)
    documents = np.setdiff1d(np.arange(numbers.size), queries)
    without_document = np.setdiff1d(pairs, numbers[documents])
    if without_document.size:
        raise DataError(
            f"{where}: pair {int(without_document[0])} has one row, a query without a document; give at "
            "least two rows the same number (a tuning sample contains both)"
        )
    blocks = np.array_split(queries, max(1, queries.size // among)) if among else [queries]
    ranks = []
    for block in blocks:
        searched = documents[np.isin(numbers[documents], numbers[block])]
        similarity = rows[block] @ rows[searched].T
        similarity = np.where(np.isnan(similarity), -2.0, similarity)
        own = np.roll(numbers[block], -int(of_next))[:, None] == numbers[searched]
        best = np.where(own, similarity, -np.inf).max(axis=1, keepdims=True)
        ranks.append(1.0 + ((similarity >= best) & ~own).sum(axis=1))
    return np.concatenate(ranks)
