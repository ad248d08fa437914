"""Embeddings: the angle to the float model's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import ModelError
from ...evaluation.compare import is_float
from ...evaluation.metrics.metric import Floats, Metric, MetricSource, Outputs, mean_of
from ...evaluation.metrics.truth import Place


def cosine(source: MetricSource) -> Metric:
    """Return the cosine similarity of each row with the float model's, in percent."""
    output = source.values_output
    first = source.first_outputs[output]
    if not is_float(first) or unit_rows(first).shape[1] < 2:
        raise ModelError(
            f"output '{output}': {first.dtype} of shape {list(first.shape)} has no directions to compare by "
            "cosine; choose an output of float vectors with --scored-output"
        )

    def truth(place: Place, floats: Outputs) -> tuple[Any, int]:
        return unit_rows(floats[output]), 0

    def scored(float_rows: Floats, outputs: Outputs) -> Floats:
        rows = unit_rows(outputs[output])
        if rows.shape != float_rows.shape:
            return np.zeros(len(float_rows))
        return np.asarray(100.0 * np.nan_to_num((float_rows * rows).sum(axis=1)), np.float64)

    return Metric(
        *source.called,
        f"{source.metric.title}, output '{output}'",
        reads=output,
        truth=truth,
        scored=scored,
        figures=lambda kept: mean_of(np.concatenate(list(kept))),
    )


def unit_rows(values: npt.NDArray[Any]) -> Floats:
    """Return the rows of an output as vectors of length 1; zeros stay zeros."""
    rows = values.astype(np.float64).reshape(values.shape[0] if values.ndim else 1, -1)
    with np.errstate(all="ignore"):  # a row that is not finite stays so
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.where(lengths > 0.0, lengths, 1.0), np.float64)
