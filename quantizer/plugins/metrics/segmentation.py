"""Mean IoU of masks of classes: over all pixels together, the mean over the classes that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import DataError, ModelError
from ...evaluation.compare import is_float
from ...evaluation.metrics.metric import Figures, Floats, Metric, MetricSource, Outputs, of_sums
from ...evaluation.metrics.truth import Place, read_npy
from ...noise.class_axes import class_axes
from .truth_files import array_truth, read_picture

Masks = npt.NDArray[np.int64]
"""Class of each pixel, [rows, height, width]."""


def mean_iou(source: MetricSource) -> Metric:
    """Return the mean intersection over union of classes; the float model's masks replace a missing truth."""
    output, ignore = source.output_name, int(source.metric.options["ignore"] or 0)
    axis, threshold, assumed = _classes(source)
    files = (
        None if source.truth is None else array_truth(source.truth, {".npy": read_npy, ".png": read_picture})
    )

    def masks(outputs: Outputs) -> Masks:
        values = outputs[output]
        if axis is not None:
            return np.asarray(np.argmax(values, axis=axis), np.int64)
        mask = values > threshold if is_float(values) else values
        return np.asarray(mask[:, 0] if mask.ndim == 4 else mask, np.int64)

    def truth(place: Place, floats: Outputs) -> tuple[Any, int]:
        float_masks = masks(floats)
        if files is None:
            return float_masks, 0
        true, rows = files[0](place, len(float_masks))
        true = true[None] if true.ndim == float_masks.ndim - 1 else true
        if true.shape != float_masks.shape:
            raise DataError(
                f"{source.truth}, sample {place.name}: its mask has shape {list(true.shape)}, the output's "
                f"{list(float_masks.shape)}; give masks of the output's size"
            )
        return true.astype(np.int64), rows

    def scored(true: Masks, outputs: Outputs) -> list[tuple[Floats, Floats]]:
        predicted = masks(outputs)
        if predicted.shape != true.shape:
            raise ModelError(f"output '{output}': has another shape than in the float model; fix its shapes")
        return [_overlap(a, b, ignore) for a, b in zip(true, predicted, strict=True)]

    return Metric(
        *source.called,
        f"{source.metric.title} of output '{output}'",
        reading=f"{output} {source.class_axis}",
        reads=output,
        truth=truth,
        scored=scored,
        figures=_figures,
        finish=(lambda rows, cut: None) if files is None else files[1],
        assumed=assumed,
    )


def _classes(source: MetricSource) -> tuple[int | None, float, tuple[str, ...]]:
    """Return the axis of the classes, or None and the threshold of a mask of two; and the assumptions."""
    output = source.output_name
    values, given = source.first_outputs[output], source.metric.options["threshold"]
    channels = values.shape[1] if values.ndim == 4 else 1
    if given is None and is_float(values):
        axis = class_axes(source.model, output, source.class_axis)[output].axis_in(values.shape)
        axis = 1 if axis is None and channels > 1 else axis
        if axis is not None:
            return axis, 0.0, (f"miou: the classes of output '{output}' are along axis {axis}",)
    if channels > 1 or values.ndim not in (3, 4):
        raise ModelError(
            f"output '{output}': shape {list(values.shape)} is not a mask [rows, classes, height, width]; "
            "choose another with --scored-output, or its axis with --class-axis"
        )
    if not is_float(values):
        return None, 0.0, ()
    shares = float(values.min(initial=0.0)) >= 0.0 and float(values.max(initial=0.0)) <= 1.0
    threshold = float(given) if given is not None else 0.5 if shares else 0.0
    return None, threshold, (f"miou: output '{output}' is class 1 above {threshold:g}, else class 0",)


def _overlap(true: Masks, predicted: Masks, ignore: int) -> tuple[Floats, Floats]:
    """Return the pixels of each class that both masks have, and that either has."""
    counted = (true != ignore) & (true >= 0)
    true, predicted = true[counted], predicted[counted]
    classes = 1 + int(max(true.max(initial=0), predicted.max(initial=0)))
    both = np.bincount(true[true == predicted], minlength=classes)
    either = np.bincount(true, minlength=classes) + np.bincount(predicted, minlength=classes) - both
    return both.astype(np.float64), either.astype(np.float64)


def _figures(samples: Sequence[list[tuple[Floats, Floats]]]) -> Figures:
    """Return the mean IoU from the pixels of each row: those in both masks, then those in either."""
    rows = [row for sample in samples for row in sample]
    classes = max(both.size for both, _ in rows)
    sums = np.array([[np.pad(part, (0, classes - part.size)) for part in row] for row in rows])

    def figure(totals: Floats) -> Floats:
        both, either = totals[:, :classes], totals[:, classes:]
        present = either > 0.0
        ious = np.where(present, both / np.where(present, either, 1.0), 0.0)
        return np.asarray(100.0 * ious.sum(axis=1) / np.maximum(1, present.sum(axis=1)), np.float64)

    return of_sums(sums.reshape(len(rows), 2 * classes), figure)
