"""How much lower a quantized model scores than the float one, in percentage points, with a paired interval.

A metric gives two scores in [0, 1] for each row (or for each sample, where a sample is scored as a whole):
one of the float model and one of the quantized one. The drop is 100 times the mean of their differences.
The metrics are:

- *accuracy*, where there are labels: a row scores 1 when its class is right.
- *agreement*, without labels, where the largest value of every float output is an answer (`class_axes`), or
  no output is float: the float model scores 1, and the quantized one the share of the row's answers (largest
  class, equal integers) that are the same. Accuracy on labelled data cannot drop by more than this does:
  an answer has to change before it can become wrong.
- *correlation*, for other outputs: of the quantized output with the float one, as it follows from the noise.
  Noise that is a share n of the energy leaves a correlation of 1 / sqrt(1 + n), about 1 - n / 2, and no
  correlation with the truth drops by more than that. A sample scores 1 - n / 2 in the worst group of
  channels of the worst output; 0.5 percentage points are an SQNR of 20 dB.
- a function of the user's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import DataError
from ..evaluation.accuracy import Z95
from ..evaluation.outputs import ClassAxis, OutputSums, answers, classes_of, is_float
from ..evaluation.sqnr import Sums, sums_along

Floats = npt.NDArray[np.float64]

Outputs = Mapping[str, npt.NDArray[Any]]
"""Outputs of a model on one sample, by name."""

Pairs = npt.NDArray[np.float64]
"""Scores of shape [rows, 2], in [0, 1]: of the float and of the quantized model."""

ValuePair = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""One output on one sample, of the float and of the quantized model."""

Metric = Callable[[Sequence[int], Sequence[Outputs], Sequence[Outputs]], Pairs]
"""Takes indices of samples and the outputs of the float and of the quantized model on them."""


@dataclass(frozen=True)
class Score:
    """The score of a quantized model and of the float one on the same samples.

    Attributes:
        samples: how many samples.
        rows: how many scores they gave: one for each row, or for each sample that is scored as a whole.
        float_percent, quantized_percent: mean scores in percent.
        drop: float_percent - quantized_percent, in percentage points; negative when the quantized model is
            better.
        drop_low, drop_high: 95 % interval of the drop on more data of the same kind (`drop_interval`).
    """

    samples: int
    rows: int
    float_percent: float
    quantized_percent: float
    drop: float
    drop_low: float
    drop_high: float


def score_outputs(
    metric: Metric,
    indices: Sequence[int],
    float_outputs: Sequence[Outputs],
    quantized_outputs: Sequence[Outputs],
) -> Score:
    """Return the score of a quantized model on some samples.

    Args:
        metric: gives the scores.
        indices: of the samples in the data.
        float_outputs, quantized_outputs: of both models on these samples.

    Raises:
        DataError, ModelError: the outputs cannot be scored, and why.
    """
    pairs = metric(indices, float_outputs, quantized_outputs)
    if pairs.shape[0] == 0:
        raise DataError("the samples: have no rows to score; check the data")
    a, b = (100.0 * float(side) for side in pairs.mean(axis=0))
    low, high = drop_interval(pairs[:, 0] - pairs[:, 1])
    return Score(len(indices), pairs.shape[0], a, b, a - b, low, high)


def drop_interval(differences: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of paired differences in [-1, 1], in percentage points.

    Differences of right and wrong rows (-1, 0, 1): Bonett and Price (2012), as in `accuracy.paired_interval`:
    the normal interval after a difference of 1 and one of -1 were added. It does not shrink to zero when
    a few rows show no difference. Other differences: Student's interval.
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

    Abramowitz and Stegun 26.7.5, three terms; it is too inaccurate for 1 and 2 degrees, which are tabulated.
    """
    if freedom <= 2:
        return (12.7062, 4.3027)[freedom - 1]
    z, v = Z95, float(freedom)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / v + second / v**2 + third / v**3


def accuracy_metric(
    output: str, labels: npt.NDArray[np.int64], starts: Sequence[int], axis: ClassAxis
) -> Metric:
    """Return the metric "top-1 accuracy" of an output.

    Args:
        output: its name.
        labels: class of every row of all samples.
        starts: row at which each sample begins.
        axis: where the output has its classes.
    """

    def metric(indices: Sequence[int], floats: Sequence[Outputs], quantized: Sequence[Outputs]) -> Pairs:
        pairs = []
        for index, f, q in zip(indices, floats, quantized, strict=True):
            of_float, of_quantized = (classes_of(o[output], axis, f"output '{output}'") for o in (f, q))
            truth = labels[starts[index] : starts[index] + of_float.size]
            right = of_quantized == truth if of_quantized.size == truth.size else np.zeros(truth.size, bool)
            pairs.append(np.stack([of_float == truth, right], axis=1).astype(np.float64))
        return np.concatenate(pairs)

    return metric


def are_answers(outputs: Outputs, axes: Mapping[str, ClassAxis]) -> bool:
    """Return whether agreement says what there is to say: every float output has answers, or none is float.

    Integer outputs beside float ones (a length, a mask) hardly ever change, so they are not counted.
    """
    floats = {name: values for name, values in outputs.items() if is_float(values)}
    return all(answers(values, axes[name])[1] is not None for name, values in floats.items())


def agreement_metric(axes: Mapping[str, ClassAxis]) -> Metric:
    """Return the metric "agreement": the share of equal answers of each row, in the worst output.

    Args:
        axes: where each output has its classes.
    """

    def metric(indices: Sequence[int], floats: Sequence[Outputs], quantized: Sequence[Outputs]) -> Pairs:
        return np.concatenate([_agreeing(f, q, axes) for f, q in zip(floats, quantized, strict=True)])

    return metric


def _agreeing(floats: Outputs, quantized: Outputs, axes: Mapping[str, ClassAxis]) -> Pairs:
    shares = []
    only_floats = any(is_float(values) for values in floats.values())
    for name, values in floats.items():
        of_float, of_quantized = answers(values, axes[name])[1], answers(quantized[name], axes[name])[1]
        if of_float is None or (only_floats and not is_float(values)):
            continue
        rows = values.shape[0] if values.ndim else 1
        if rows == 0 or of_float.size % rows:
            rows = 1
        same = np.zeros(of_float.size, bool)
        if of_quantized is not None and values.shape == quantized[name].shape:
            same = np.asarray(of_float == of_quantized)
        shares.append(same.reshape(rows, -1).mean(axis=1) if of_float.size else np.ones(rows))
    rows = min(share.size for share in shares)
    merged = [share if share.size == rows else np.full(rows, share.mean()) for share in shares]
    worst = np.min(merged, axis=0)
    return np.stack([np.ones(rows), worst], axis=1)


def correlation_metric(axes: Mapping[str, ClassAxis]) -> Metric:
    """Return the metric "correlation" with the float model's outputs.

    The worst group of channels is that of all samples together; a sample's noise is measured against the mean
    energy that the samples have in it, so that a quiet sample (an image without objects) counts as little as
    it matters.

    Args:
        axes: where each output has its classes.
    """

    def metric(indices: Sequence[int], floats: Sequence[Outputs], quantized: Sequence[Outputs]) -> Pairs:
        worst = max(_all_shares(floats, quantized, axes), key=lambda share: float(share.mean()))
        return np.stack([np.ones(worst.size), 1.0 - np.minimum(1.0, worst / 2.0)], axis=1)

    return metric


def noise_share(
    floats: Sequence[Outputs], quantized: Sequence[Outputs], axes: Mapping[str, ClassAxis]
) -> float:
    """Return the noise over the energy in the worst group of channels of the worst float output.

    Of a model without float outputs the share of elements that differ in the worst output.

    Args:
        floats, quantized: outputs of both models on the same samples.
        axes: where each output has its classes.
    """
    shares = _all_shares(floats, quantized, axes)
    if shares:
        return max(float(share.mean()) for share in shares)
    differ = [[float(np.mean(f[n] != q[n])) for n in f] for f, q in zip(floats, quantized, strict=True)]
    return float(np.max(np.mean(differ, axis=0), initial=0.0))


def _all_shares(
    floats: Sequence[Outputs], quantized: Sequence[Outputs], axes: Mapping[str, ClassAxis]
) -> list[Floats]:
    """Return `_noise_shares` of each float output."""
    both = list(zip(floats, quantized, strict=True))
    names = [name for name, values in floats[0].items() if is_float(values)]
    return [_noise_shares([(f[n], q[n]) for f, q in both], axes[n]) for n in names]


def _noise_shares(pairs: Sequence[ValuePair], axis: ClassAxis) -> Floats:
    """Return the noise of an output in each sample over its mean energy, in the worst group of channels.

    Inf in all samples where one has another shape, NaN or Inf, or noise without any signal.
    """
    sums = OutputSums(axis)
    for floats, quantized in pairs:
        sums = sums.added(floats, quantized)
    result = sums.result("")
    if result.shape_mismatches or result.difference is None:
        return np.full(len(pairs), math.inf if result.shape_mismatches else 0.0)
    if result.difference.sqnr == -math.inf:
        return np.full(len(pairs), math.inf)
    groups = () if result.channels is None else result.channels.groups
    axes = (None, None if result.channels is None else result.channels.axis)
    whole, along = zip(*(sums_along(floats, quantized, axes) for floats, quantized in pairs), strict=True)
    shares = [_shares(whole, np.zeros(1, np.intp))]
    for group in groups:
        members = np.concatenate([np.arange(first, last + 1) for first, last in group.runs])
        shares.append(_shares(along, members))
    return max(shares, key=lambda share: float(share.mean()))


def _shares(sums: Sequence[Sums], members: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """Return the noise of some channels in each sample over the mean energy that they have."""
    noise = np.array([s.noise[members].sum() for s in sums])
    signal = float(np.mean([s.signal[members].sum() for s in sums]))
    return noise / signal if signal > 0.0 else np.where(noise > 0.0, math.inf, 0.0)


def user_metric(function: Callable[[Sequence[Outputs], Sequence[int]], object], name: str) -> Metric:
    """Return the metric that a user's function computes.

    Args:
        function: takes the outputs of one model (dicts from output name to array) and the indices of
            the samples in the data; returns a score for each sample: 0 to 100, higher is better.
        name: of the function, for messages.
    """

    def scores(outputs: Sequence[Outputs], indices: Sequence[int]) -> npt.NDArray[np.float64]:
        try:
            values = np.asarray(function(outputs, indices), np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"--metric {name}: returned no numbers ({error}); return one score for each sample"
            ) from error
        if values.shape != (len(indices),) or not ((values >= 0.0) & (values <= 100.0)).all():
            raise DataError(
                f"--metric {name}: returned {_short(values)} for {len(indices)} samples; "
                "return one score for each sample, from 0 to 100"
            )
        return values / 100.0

    def metric(indices: Sequence[int], floats: Sequence[Outputs], quantized: Sequence[Outputs]) -> Pairs:
        return np.stack([scores(floats, indices), scores(quantized, indices)], axis=1)

    return metric


def _short(values: npt.NDArray[np.float64]) -> str:
    if values.size and values.ndim == 1:
        return f"{values.size} scores from {values.min():g} to {values.max():g}"
    return f"an array of shape {list(values.shape)}"
