"""RMSE, MAE and R2 of numbers against the true ones, over all their elements together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import DataError, ModelError
from ...evaluation.metrics.metric import Figures, Floats, Metric, MetricSource, Outputs, of_sums
from ...evaluation.metrics.truth import Place, read_npy
from .truth_files import array_truth


def rmse(source: MetricSource) -> Metric:
    """Return the root of the mean square error."""
    return _metric(source, lambda sums: np.sqrt(sums[:, 1] / sums[:, 0]))


def mae(source: MetricSource) -> Metric:
    """Return the mean absolute error."""
    return _metric(source, lambda sums: sums[:, 2] / sums[:, 0])


def r2(source: MetricSource) -> Metric:
    """Return the coefficient of determination in percent: 1 less square error over variance."""

    def figure(sums: Floats) -> Floats:
        variance = sums[:, 4] - sums[:, 3] ** 2 / sums[:, 0]  # of numbers near 0: `figures` shifts them
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(100.0 * (1.0 - sums[:, 1] / variance), np.float64)

    return _metric(source, figure)


def _metric(source: MetricSource, figure: Callable[[Floats], Floats]) -> Metric:
    file, output = source.required_truth(), source.values_output
    of_sample, check_rows = array_truth(file, {".npy": read_npy, ".csv": read_table, ".txt": read_table})

    def truth(place: Place, floats: Outputs) -> tuple[Any, int]:
        shape = floats[output].shape
        true, rows = of_sample(place, shape[0] if shape else 1)
        if true.size != floats[output].size:
            raise DataError(
                f"{file}, sample {place.name}: {list(true.shape)} true numbers for output '{output}' of "
                f"shape {list(shape)}; give one for each element"
            )
        return true.reshape(shape).astype(np.float64), rows

    def scored(true: npt.NDArray[np.float64], outputs: Outputs) -> Floats:
        """Return sums for each row: elements, square error, absolute error; mean and spread of the truth."""
        if outputs[output].shape != true.shape:
            raise ModelError(f"output '{output}': has another shape than in the float model; fix its shapes")
        rows = max(1, true.shape[0] if true.ndim else 1)
        error = (outputs[output].astype(np.float64) - true).reshape(rows, -1)
        flat = true.reshape(rows, -1)
        mean = flat.mean(axis=1) if flat.shape[1] else np.zeros(rows)
        return np.stack(
            [
                np.full(rows, float(flat.shape[1])),
                (error**2).sum(axis=1),
                np.abs(error).sum(axis=1),
                mean,
                ((flat - mean[:, None]) ** 2).sum(axis=1),
            ],
            axis=1,
        )

    def figures(kept: Sequence[Floats]) -> Figures:
        # True numbers less their mean: squares of large numbers that hardly vary have no digit left for it.
        sums = np.concatenate(list(kept))
        count, mean = sums[:, 0], sums[:, 3]
        away = mean - (count @ mean) / max(count.sum(), 1.0)
        sums = np.column_stack([sums[:, :3], count * away, sums[:, 4] + count * away**2])
        return of_sums(sums, figure)

    return Metric(
        *source.called,
        f"{source.metric.title} of output '{output}'",
        reads=output,
        truth=truth,
        scored=scored,
        figures=figures,
        finish=check_rows,
    )


def read_table(file: Path) -> npt.NDArray[Any]:
    """Return the numbers of a text file, a row a line, separated by commas or spaces, without a heading."""
    lines = [line for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    rows = [[cell.strip() for cell in (line.split(",") if "," in line else line.split())] for line in lines]
    if rows and not all(map(_is_number, rows[0])):
        rows = rows[1:]
    return np.array([[float(cell) for cell in row] for row in rows], np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
