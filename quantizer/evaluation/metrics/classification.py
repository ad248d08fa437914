"""Top-k accuracy: rows whose class is among the first k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import ConfigError
from ....profiles.samples.batches import fixed_batch
from ....profiles.samples.samples import input_specs
from ...noise.class_axes import ClassAxis, class_axes
from ..compare import class_count, classes_of, is_float
from .intervals import is_near_chance
from .metric import Metric, MetricSource, Outputs, mean_of
from .truth import Place, load_labels

Rows = tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""For the rows of a sample: whether a model's answer is right, the answer, the true class."""


def top_k(source: MetricSource) -> Metric:
    """Return top-k accuracy of one output against the class of each row."""
    labels = load_labels(source.labels or source.required_truth())
    output, k = source.output_name, source.metric.number
    axis = class_axes(source.model, output, source.class_axis)[output]
    where, batch = f"output '{output}'", fixed_batch(input_specs(source.model))
    classes = class_count(source.first_outputs[output], axis)
    if k > 1 and classes and classes <= k:
        raise ConfigError(
            f"metric top-{k}: {where} has {classes} classes, so that each row is right; give a smaller number"
        )

    def truth(place: Place, floats: Outputs) -> tuple[Any, int]:
        rows = classes_of(floats[output], axis, where).size
        labels.check_classes(class_count(floats[output], axis))
        return labels.classes[place.row : place.row + rows], rows

    def scored(classes: npt.NDArray[np.int64], outputs: Outputs) -> Rows:
        right, said, true = labelled_rows(outputs[output], axis, classes, where)
        if k > 1 and (said >= 0).all():
            right = _ranks(outputs[output], axis, classes, where) < k
        return right, said, true

    return Metric(
        *source.called,
        f"{source.metric.title} of output '{output}'",
        reading=f"{output} {source.class_axis}",
        reads=output,
        truth=truth,
        scored=scored,
        figures=lambda samples: mean_of(100.0 * np.concatenate([right for right, _, _ in samples])),
        # Rows that fill no batch of the model are left out.
        finish=lambda rows, cut: labels.check_rows(rows, cut=cut or 0 < labels.classes.size - rows < batch),
        chance=lambda samples: chance_of(samples, k / classes if classes else 0.0),
    )


def labelled_rows(
    values: npt.NDArray[Any], classes: ClassAxis, true: npt.NDArray[np.int64], where: str
) -> Rows:
    """Return a model's answers for the rows of a sample; none is right if their number is another."""
    answers = classes_of(values, classes, where)
    if answers.size != true.size:
        return np.zeros(true.size, np.bool_), np.full(true.size, -1), true
    return answers == true, answers, true


def chance_of(samples: Sequence[Rows], by_classes: float) -> tuple[float, bool]:
    """Return the percent of rows that guessing has right, and whether the model has surely no more.

    The score of guessing is `by_classes`; for labels that look shuffled, the score of random pairs.
    """
    right, said, true = (np.concatenate(each) for each in zip(*samples, strict=True))
    classes, rows, count = np.unique(np.concatenate([true, said])), true.size, int(right.sum())
    shares, others = ((of[:, None] == classes).mean(axis=0) for of in (true, said))
    paired, most = float(shares @ others), float(np.minimum(shares, others).sum())
    is_shuffled = is_near_chance(count, rows, paired) and not is_near_chance(round(most * rows), rows, paired)
    chance = max(by_classes, paired) if is_shuffled and count < most * rows else by_classes
    return 100.0 * chance, is_near_chance(count, rows, chance)


def _ranks(
    values: npt.NDArray[Any], classes: ClassAxis, wanted: npt.NDArray[np.int64], where: str
) -> npt.NDArray[np.int64]:
    """Return how many classes come before the wanted one in each row; the first of equals, NaN last."""
    axis = classes.axis_in(values.shape)
    if not is_float(values) or axis is None:
        return np.where(classes_of(values, classes, where)[: wanted.size] == wanted, 0, 1 << 30)
    rows = np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis])[: wanted.size]
    own = np.take_along_axis(rows, wanted[:, None], axis=1)
    earlier = np.arange(rows.shape[1]) < wanted[:, None]
    before = ((rows > own) | ((rows == own) & earlier)).sum(axis=1)
    return np.asarray(np.where(np.isnan(own[:, 0]), 1 << 30, before), np.int64)
