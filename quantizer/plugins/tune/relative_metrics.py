"""Metrics that need no truth: agreement and correlation of both models' outputs.

- *agreement*, if the largest value of every float output is an answer (`class_axes`), or no output is
  float: the float model scores 100, and the quantized model the fraction of equal answers in a row (largest
  class, equal integers). Accuracy on labelled data cannot drop by more than this: an answer must change to
  become wrong.
- *correlation*, for other outputs: of the quantized output with the float one, as it follows from the noise.
  Noise that is a share n of the energy leaves a correlation of 1 / sqrt(1 + n), about 1 - n / 2, and no
  correlation with the truth drops by more than that. A sample scores 100 (1 - n / 2) in the worst group of
  channels of the worst output; 0.5 percentage points are an SQNR of 20 dB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...evaluation.compare import OutputSums, answers, is_float
from ...evaluation.metrics.metric import Figures, Floats, Metric, Outputs, mean_of
from ...evaluation.metrics.relative import noise_by_output
from ...evaluation.metrics.table import MetricKind
from ...noise.class_axes import ClassAxis

AGREEMENT = MetricKind("agreement", "top-1 agreement with the float model", "", "none", "the float model")
CORRELATION = MetricKind(
    "correlation", "correlation with the float model's outputs", "", "none", "the float model"
)


def relative_metric(first: Outputs, axes: Mapping[str, ClassAxis]) -> Metric:
    """Return the metric for models without a truth: agreement if outputs are answers, else correlation."""
    return agreement_metric(axes) if are_answers(first, axes) else correlation_metric(axes)


def are_answers(outputs: Outputs, axes: Mapping[str, ClassAxis]) -> bool:
    """Return whether every float output has answers, or none is float; integers beside them hardly change."""
    floats = {name: values for name, values in outputs.items() if is_float(values)}
    return all(answers(values, axes[name])[1] is not None for name, values in floats.items())


def agreement_metric(axes: Mapping[str, ClassAxis]) -> Metric:
    """Return the metric "agreement": the share of equal answers of each row, in the worst output."""
    return Metric(
        name=AGREEMENT.name,
        title=AGREEMENT.title,
        kind=AGREEMENT,
        truth=lambda place, floats: (floats, 0),
        scored=lambda floats, outputs: _agreement_of_rows(floats, outputs, axes),
        figures=lambda shares: mean_of(100.0 * np.concatenate(list(shares))),
    )


def _agreement_of_rows(floats: Outputs, quantized: Outputs, axes: Mapping[str, ClassAxis]) -> Floats:
    """Return the share of equal answers of each row, in the worst output."""
    shares = []
    has_floats = any(is_float(values) for values in floats.values())
    for name, values in floats.items():
        _, of_float = answers(values, axes[name])
        _, of_quantized = answers(quantized[name], axes[name])
        if of_float is None or (has_floats and not is_float(values)):
            continue
        rows = values.shape[0] if values.ndim else 1
        if rows == 0 or of_float.size % rows:
            rows = 1
        if of_quantized is None or values.shape != quantized[name].shape:  # of another length
            counted = OutputSums(axes[name])
            counted.add(values, quantized[name])
            shares.append(np.full(rows, counted.same / max(counted.answers, 1)))
        else:
            same = np.asarray(of_float == of_quantized)
            shares.append(same.reshape(rows, -1).mean(axis=1) if of_float.size else np.ones(rows))
    rows = min(share.size for share in shares)
    merged = [share if share.size == rows else np.full(rows, share.mean()) for share in shares]
    return np.asarray(np.min(merged, axis=0), np.float64)


def correlation_metric(axes: Mapping[str, ClassAxis]) -> Metric:
    """Return the metric "correlation" with the float model's outputs.

    A sample's noise is divided by the mean energy of all samples in the worst group of channels, so a quiet
    sample counts little.
    """

    def figures(pairs: Sequence[tuple[Outputs, Outputs]]) -> Figures:
        floats, quantized = zip(*pairs, strict=True)
        by_output = noise_by_output(floats, quantized, axes)
        worst = max(by_output, key=lambda share: float(share.mean()))
        return mean_of(100.0 * (1.0 - np.minimum(1.0, worst / 2.0)))

    return Metric(
        name=CORRELATION.name,
        title=f"{CORRELATION.title} (0.5 is an SQNR of 20 dB)",
        kind=CORRELATION,
        truth=lambda place, floats: (floats, 0),
        scored=lambda floats, outputs: (floats, outputs),
        figures=figures,
    )
