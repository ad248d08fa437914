"""The samples on which two models differ most, with excerpts of them: those whose answers changed first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import QprofError
from ...profiles.samples.exported import LETTERBOX_TASKS
from ...profiles.samples.objects import DataLike
from ...profiles.samples.values import InputSpec, Sample
from ..noise.class_axes import ClassAxis
from .compare import SampleDifference, most_different, sample_difference
from .excerpts import Excerpt, Reading, excerpt_of
from .metrics.metric import Inputs, Metric, Outputs
from .metrics.score import MetricRequest, open_metric

NO_CLASSES = np.zeros(0, np.int64)


def metric_of_objects(model: ir.Model, data: DataLike, inputs: Inputs, outputs: Outputs) -> Metric | None:
    """Return the metric that finds objects in the outputs of a detector, or None for another model.

    Ultralytics writes the task into the metadata of the float model. Inputs and outputs are those of the
    first sample.
    """
    if model.metadata_props.get("task") not in LETTERBOX_TASKS:
        return None
    try:
        return open_metric(MetricRequest("map50", data=data), model, inputs, outputs)
    except QprofError:  # of boxes in no form that is known, or its library is missing
        return None


class WorstSamples:
    """The samples on which both models differ most, of all that were added.

    Args:
        specs: of the inputs.
        axes: where each output has its classes.
        reading: names of classes, and texts of tokens.
    """

    def __init__(self, specs: Sequence[InputSpec], axes: Mapping[str, ClassAxis], reading: Reading) -> None:
        self._specs, self._axes, self._reading = specs, axes, reading
        self._worst: tuple[SampleDifference, ...] = ()
        self._excerpts: dict[str, Excerpt] = {}

    @property
    def differences(self) -> tuple[SampleDifference, ...]:
        """How far the models differ on each, the worst first."""
        return self._worst

    @property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """The excerpt of each, the worst first."""
        return tuple(self._excerpts[one.sample] for one in self._worst)

    def add(
        self,
        sample: Sample,
        outputs: tuple[Outputs, Outputs],
        changed: Mapping[str, float],
        *,
        metric: Metric | None = None,
        true_classes: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        """Take the next sample, with the outputs of the float and of the quantized model.

        `changed` is the share of the answers of each output that changed, 0 to 1. A metric may put answers in
        words, or find objects. `true_classes` are those of the rows, by output.
        """
        found = words = None
        if metric is not None and metric.found is not None:
            names = {} if self._reading.names is None else self._reading.names.of_any
            found = metric.found(*outputs, names)
            objects = [one for of_row in found for one in of_row]
            share = sum(one.changed for one in objects) / len(objects) if objects else 0.0
            changed = dict.fromkeys(outputs[0], share)
        elif metric is not None and metric.words is not None:
            words = list(zip_longest(*map(metric.words, outputs), fillvalue=""))
            share = sum(a != b for a, b in words) / len(words) if words else 0.0
            changed = dict.fromkeys(outputs[0], share)
        floats, quantized = outputs
        changed = {**self._changed_names(floats, quantized), **{n: x for n, x in changed.items() if x}}
        pairs = ((name, floats[name], quantized[name]) for name in floats)
        difference = sample_difference(sample.name, pairs, changed)
        others = self._worst
        if sample.step is not None and difference is not None:  # of a sequence one step tells
            sequence = sample.name.rpartition("[")[0]
            own = [one for one in others if one.sample.rpartition("[")[0] == sequence]
            if own and most_different((), difference) != most_different((*own,), difference)[:1]:
                return
            others = tuple(one for one in others if one not in own)
        self._worst = most_different(others, difference)
        if difference is None or difference not in self._worst:
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
        row = excerpt.row or 0
        if found is not None and row < len(found):
            changes = any(one.changed for one in found[row])
            excerpt = replace(
                excerpt,
                float_answer="",
                quantized_answer="",
                answered=True,
                changed=changes,
                share="",
                found=found[row],
            )
        elif words is not None and row < len(words):
            a, b = words[row]
            excerpt = replace(
                excerpt, float_answer=a, quantized_answer=b, answered=True, changed=a != b, share=""
            )
        self._excerpts[sample.name] = excerpt
        self._excerpts = {one.sample: self._excerpts[one.sample] for one in self._worst}

    def _changed_names(self, floats: Outputs, quantized: Outputs) -> dict[str, float]:
        """Return the share of the classes that changed, of outputs that are answers for their names alone."""
        changed = {}
        for name, values in floats.items():
            axis = self._reading.class_axis(self._axes[name], values.shape)
            if axis is not None and not self._axes[name].is_answer and values.shape == quantized[name].shape:
                differ = np.argmax(values, axis) != np.argmax(quantized[name], axis)
                changed[name] = float(np.mean(differ))
        return changed
