"""How much worse a quantized model is, in points, with a paired interval.

Whatever is measured becomes two scores in [0, 1] for each unit (a row, or a sample), one of the float model
and one of the quantized one; the drop is 100 times the mean of their difference. What is measured:

- *accuracy*, where there are labels: a unit is a row, a score 1 when its class is right.
- *agreement*, without labels: a unit is a row; the float model has score 1 and the quantized one the share
  of the row's answers (largest class, equal integers) that are the same. Accuracy on labelled data
  cannot drop by more than this does, since an answer has to change before it can become wrong.
- *noise*, where no output has answers: a unit is a sample; the quantized model lacks the share of the
  output's energy that is noise, at the worst group of channels of the worst output. 0.5 points are 23 dB.
- a function of the user's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import DataError, ModelError
from ..evaluation.accuracy import Z95
from ..evaluation.outputs import OutputSums, answers, is_float

Outputs = Mapping[str, npt.NDArray[Any]]
Pairs = npt.NDArray[np.float64]
"""Scores of shape [units, 2]: of the float and of the quantized model."""

Measure = Callable[[Sequence[int], Sequence[Outputs], Sequence[Outputs]], Pairs]
"""Given indices of samples and the outputs of both models on them, the scores of each unit."""


@dataclass(frozen=True)
class Judgement:
    """A quantized model against the float one on some samples.

    Attributes:
        samples, units: how many samples, and how many scores they gave.
        float_points, quantized_points: mean scores, in points (0 to 100).
        drop: float_points - quantized_points; negative when the quantized model is better.
        drop_low, drop_high: 95 % interval of the drop on more data of the same kind (`drop_interval`).
    """

    samples: int
    units: int
    float_points: float
    quantized_points: float
    drop: float
    drop_low: float
    drop_high: float


def judge(
    measure: Measure, indices: Sequence[int], floats: Sequence[Outputs], quantized: Sequence[Outputs]
) -> Judgement:
    """Return how a quantized model does on some samples.

    Raises:
        DataError, ModelError: what cannot be measured, and why.
    """
    pairs = measure(indices, floats, quantized)
    if pairs.shape[0] == 0:
        raise DataError("the samples gave nothing to judge; check the data")
    a, b = (100.0 * float(side) for side in pairs.mean(axis=0))
    low, high = drop_interval(pairs[:, 0] - pairs[:, 1])
    return Judgement(len(indices), pairs.shape[0], a, b, a - b, low, high)


def drop_interval(differences: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of paired differences in [-1, 1], in points.

    Differences of whole rows (-1, 0, 1): Bonett and Price (2012), as in `accuracy.paired_interval`: the
    normal interval after a difference of 1 and one of -1 were added. It does not shrink to nothing when
    nothing differs on a few rows. Other differences: Student's interval.
    """
    n = differences.size
    if np.isin(np.abs(differences), (0.0, 1.0)).all():
        d = np.concatenate([differences, [1.0, -1.0]])
        mean, half = float(d.mean()), Z95 * math.sqrt(float(d.var()) / d.size)
    else:
        mean, half = float(differences.mean()), 2.0
        if n > 1:
            half = student95(n - 1) * math.sqrt(float(differences.var(ddof=1)) / n)
    return 100.0 * max(-1.0, mean - half), 100.0 * min(1.0, mean + half)


def student95(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t; 1 % off at 3 degrees of freedom, less above.

    Abramowitz and Stegun 26.7.5, three terms; for 1 and 2 degrees it is too far off, and they are given.
    """
    if freedom <= 2:
        return (12.7062, 4.3027)[freedom - 1]
    z, v = Z95, float(freedom)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / v + second / v**2 + third / v**3


def accuracy_measure(output: str, labels: npt.NDArray[np.int64], starts: Sequence[int]) -> Measure:
    """Return the measure of top-1 accuracy of an output.

    Args:
        output: its name.
        labels: class of every row of all samples.
        starts: row at which each sample begins.
    """

    def measure(indices: Sequence[int], floats: Sequence[Outputs], quantized: Sequence[Outputs]) -> Pairs:
        pairs = []
        for index, f, q in zip(indices, floats, quantized, strict=True):
            mine, theirs = classes(f[output], output), classes(q[output], output)
            wanted = labels[starts[index] : starts[index] + mine.size]
            right = theirs == wanted if theirs.size == wanted.size else np.zeros(wanted.size, bool)
            pairs.append(np.stack([mine == wanted, right], axis=1).astype(np.float64))
        return np.concatenate(pairs)

    return measure


def classes(values: npt.NDArray[Any], output: str) -> npt.NDArray[np.int64]:
    """Return the class of every row of an output.

    Raises:
        ModelError: it has no class axis.
    """
    found = answers(values)[1]
    if found is None or found.dtype.kind not in "iub":
        raise ModelError(
            f"output '{output}': {values.dtype} of shape {list(values.shape)} has no class axis to compare "
            "with labels; choose another output, or give --metric"
        )
    return found.astype(np.int64)


def has_answers(outputs: Outputs) -> bool:
    """Return whether agreement can be measured: some float output has a class axis, or none is float.

    Integer outputs beside float ones (a length, a mask) hardly ever change, and do not count.
    """
    floats = [values for values in outputs.values() if is_float(values)]
    return not floats or any(answers(values)[1] is not None for values in floats)


def agreement(indices: Sequence[int], floats: Sequence[Outputs], quantized: Sequence[Outputs]) -> Pairs:
    """Measure the share of equal answers in each row, at the worst output."""
    return np.concatenate([_row_agreement(f, q) for f, q in zip(floats, quantized, strict=True)])


def _row_agreement(floats: Outputs, quantized: Outputs) -> Pairs:
    shares = []
    only_floats = any(is_float(values) for values in floats.values())
    for name, values in floats.items():
        mine, theirs = answers(values)[1], answers(quantized[name])[1]
        if mine is None or (only_floats and not is_float(values)):
            continue
        rows = values.shape[0] if values.ndim else 1
        if rows == 0 or mine.size % rows:
            rows = 1
        same = np.zeros(mine.size, bool)
        if theirs is not None and values.shape == quantized[name].shape:
            same = np.asarray(mine == theirs)
        shares.append(same.reshape(rows, -1).mean(axis=1) if mine.size else np.ones(rows))
    rows = min(share.size for share in shares)
    merged = [share if share.size == rows else np.full(rows, share.mean()) for share in shares]
    worst = np.min(merged, axis=0)
    return np.stack([np.ones(rows), worst], axis=1)


def noise(indices: Sequence[int], floats: Sequence[Outputs], quantized: Sequence[Outputs]) -> Pairs:
    """Measure the share of energy that is not noise in each sample, at the worst group of channels."""
    return np.array([(1.0, 1.0 - _noise_share(f, q)) for f, q in zip(floats, quantized, strict=True)])


def _noise_share(floats: Outputs, quantized: Outputs) -> float:
    worst = math.inf
    for name, values in floats.items():
        if not is_float(values):
            continue
        found = OutputSums().added(values, quantized[name]).result(name)
        groups = () if found.channels is None else found.channels.groups
        decibels = [d.sqnr for d in (found.difference, *(g.difference for g in groups)) if d is not None]
        worst = min([worst, *decibels] if not found.shape_mismatches else [-math.inf])
    return 1.0 if worst == -math.inf else min(1.0, 10.0 ** (-worst / 10.0))


def metric_measure(function: Callable[[Sequence[Outputs], Sequence[int]], object], name: str) -> Measure:
    """Return the measure that a user's function gives.

    Args:
        function: takes the outputs of one model (dicts from output name to array) and the indices of
            the samples in the data; returns a score for each sample in points: 0 to 100, higher is better.
        name: how messages call it.
    """

    def scores(outputs: Sequence[Outputs], indices: Sequence[int]) -> npt.NDArray[np.float64]:
        try:
            found = np.asarray(function(outputs, indices), np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"--metric {name}: gave no numbers ({error}); return one score for each sample"
            ) from error
        if found.shape != (len(indices),) or not ((found >= 0.0) & (found <= 100.0)).all():
            raise DataError(
                f"--metric {name}: gave {_short(found)} for {len(indices)} samples; "
                "return one score for each sample, from 0 to 100"
            )
        return found / 100.0

    def measure(indices: Sequence[int], floats: Sequence[Outputs], quantized: Sequence[Outputs]) -> Pairs:
        return np.stack([scores(floats, indices), scores(quantized, indices)], axis=1)

    return measure


def _short(found: npt.NDArray[np.float64]) -> str:
    if found.size and found.ndim == 1:
        return f"{found.size} scores from {found.min():g} to {found.max():g}"
    return f"an array of shape {list(found.shape)}"
