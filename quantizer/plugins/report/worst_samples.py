"""The samples on which two models differ most, with excerpts of them: those whose answers changed first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.errors import QprofError
from ....profiles.samples.objects import DataLike
from ....profiles.samples.samples import folder_of, input_specs, token_decoder
from ....profiles.samples.values import Sample
from ...evaluation.compare import SampleDifference, Sums, common_part, is_float
from ...evaluation.metrics.metric import Inputs, Metric, Outputs
from ...evaluation.metrics.score import open_metric
from ...noise.class_axes import ClassAxis
from .class_names import ClassNames
from .excerpts import Excerpt, Reading, excerpt_of

NO_CLASSES = np.zeros(0, np.int64)

MAX_WORST_SAMPLES = 5
"""Samples that are kept, whatever the number of samples."""


class WorstSamples:
    """The samples on which both models differ most, of all that were added, the worst first."""

    def __init__(
        self, model: ir.Model, data: DataLike, axes: Mapping[str, ClassAxis], names: tuple[str, ...]
    ) -> None:
        self._model, self._data, self._axes = model, data, axes
        self._specs = input_specs(model)
        self._reading = Reading(ClassNames(model, names), token_decoder(data, folder_of(model)))
        self._objects: Metric | None = None  # finds the objects of a detector if no metric was asked for
        self._is_first = True
        self._excerpts: dict[str, Excerpt] = {}
        self.differences: tuple[SampleDifference, ...] = ()

    @property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """The excerpt of each."""
        return tuple(self._excerpts[one.sample] for one in self.differences)

    def add(
        self,
        sample: Sample,
        outputs: tuple[Outputs, Outputs],
        changed: Mapping[str, float],
        *,
        metric: Metric | None = None,
        true_classes: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        """Take the next sample, with the outputs of the float and of the quantized model."""
        floats, quantized = outputs
        if self._is_first:
            self._objects = _metric_of_objects(self._model, self._data, sample.arrays, floats)
            self._is_first = False
        metric = metric or self._objects
        found = words = None
        if metric is not None and metric.found is not None:
            names = {} if self._reading.names is None else self._reading.names.of_any
            found = metric.found(*outputs, names)
            objects = [one for of_row in found for one in of_row]
            share = sum(one.changed for one in objects) / len(objects) if objects else 0.0
            changed = dict.fromkeys(floats, share)
        elif metric is not None and metric.words is not None:
            words = list(zip_longest(*map(metric.words, outputs), fillvalue=""))
            share = sum(a != b for a, b in words) / len(words) if words else 0.0
            changed = dict.fromkeys(floats, share)
        changed = {**self._changed_names(floats, quantized), **{n: x for n, x in changed.items() if x}}
        pairs = ((name, floats[name], quantized[name]) for name in floats)
        difference = sample_difference(sample.name, pairs, changed)
        others = self.differences
        if sample.step is not None and difference is not None:  # of a sequence one step tells
            sequence = sample.name.rpartition("[")[0]
            own = [one for one in others if one.sample.rpartition("[")[0] == sequence]
            if own and most_different((), difference) != most_different((*own,), difference)[:1]:
                return
            others = tuple(one for one in others if one not in own)
        self.differences = most_different(others, difference)
        if difference is None or difference not in self.differences:
            return
        name = difference.output
        true = NO_CLASSES if true_classes is None else true_classes.get(name, NO_CLASSES)
        excerpt = excerpt_of(
            sample,
            self._specs,
            name,
            (floats[name], quantized[name]),
            self._axes[name],
            reading=self._reading,
            true_classes=true.tolist(),
        )
        row, told = excerpt.row or 0, dict[str, Any]()
        if found is not None and row < len(found):
            objects_changed = any(one.changed for one in found[row])
            told = {
                "float_answer": "",
                "quantized_answer": "",
                "changed": objects_changed,
                "found": found[row],
            }
        elif words is not None and row < len(words):
            a, b = words[row]
            told = {"float_answer": a, "quantized_answer": b, "changed": a != b}
        self._excerpts[sample.name] = replace(excerpt, answered=True, share="", **told) if told else excerpt
        self._excerpts = {one.sample: self._excerpts[one.sample] for one in self.differences}

    def _changed_names(self, floats: Outputs, quantized: Outputs) -> dict[str, float]:
        """Return the fraction of changed classes, for outputs that are answers only by their names."""
        changed = {}
        for name, values in floats.items():
            axis = self._reading.class_axis(self._axes[name], values.shape)
            if axis is not None and not self._axes[name].is_answer and values.shape == quantized[name].shape:
                differ = np.argmax(values, axis) != np.argmax(quantized[name], axis)
                changed[name] = float(np.mean(differ))
        return changed


FOUND = ("detect", "segment", "pose", "obb")
"""Tasks, as ultralytics calls them, of models that find objects."""


def _metric_of_objects(model: ir.Model, data: DataLike, inputs: Inputs, outputs: Outputs) -> Metric | None:
    """Return the metric that finds objects in the outputs of a detector, whose metadata has its task."""
    if model.metadata_props.get("task") not in FOUND:
        return None
    try:
        return open_metric(model, inputs, outputs, "map50", data=data)
    except QprofError:  # of boxes in no form that is known, or its library is missing
        return None


def sample_difference(
    sample: str, pairs: Iterable[tuple[str, npt.NDArray[Any], npt.NDArray[Any]]], changed: Mapping[str, float]
) -> SampleDifference | None:
    """Return how far the outputs differ on one sample, or None if no float output differs in the common
    part."""
    compared = [
        (-changed.get(name, 0.0), difference.sqnr, name)
        for name, floats, quantized in pairs
        if is_float(floats)
        and (common := common_part(floats, quantized)) is not None
        and (difference := Sums().plus(*common).difference) is not None
    ]
    most, sqnr, output = min(compared, default=(0.0, math.inf, ""))
    return None if sqnr == math.inf else SampleDifference(sample, output, sqnr, -most)


def most_different(
    worst: tuple[SampleDifference, ...], new: SampleDifference | None
) -> tuple[SampleDifference, ...]:
    """Return the samples with most changed answers first, then the lowest SQNR; equals in order."""
    if new is None:
        return worst
    ranked = sorted((*worst, new), key=lambda one: (-one.changed, one.sqnr))
    return tuple(ranked[:MAX_WORST_SAMPLES])
