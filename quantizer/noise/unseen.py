"""What ranges cost samples that did not choose them, measured on the samples that did.

No value of a sample that chose the ranges is beyond them, but some of a new sample are, and then its outputs
are further off. So each sample is run in float once more as if it were new: its activations end where those
of the other samples end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import DataError
from ...profiles.runtime.providers import CPU
from ...profiles.samples.values import Sample
from ..plan.plan import QuantPlan
from .measure import NoiseRuns, noise_runs, unmeasurable

Array = npt.NDArray[Any]
Ends = Mapping[str, tuple[float, float]]
"""The lowest and the highest value of activations, by name."""


def range_errors(
    model: ir.Model, ranges: Ends, samples: Sequence[Sample], provider: str = CPU
) -> list[dict[str, Array]]:
    """Return what float outputs of each sample would change by if the others had chosen the ranges.

    Outputs that would not change are left out; so are all of a model that cannot be measured. Raises
    ModelError or DataError if onnxruntime refuses the model or a sample.
    """
    if len(samples) < 2 or not ranges or unmeasurable(model):
        return [{} for _ in samples]
    outputs = [str(value.name) for value in model.graph.outputs]
    with noise_runs(model, {*ranges, *outputs}, provider) as runs:
        floats, seen = [], list[Ends]()
        for sample in samples:
            arrays = {name: tensor.array for name, tensor in runs.float_tensors(sample).items()}
            seen.append({name: _ends(array) for name, array in arrays.items() if name in ranges})
            floats.append({name: arrays[name] for name in outputs if name in arrays})
        places = zip(samples, floats, ends_of_others(seen, ranges), strict=True)
        return [_errors(runs, sample, own, ends) for sample, own, ends in places]


def _errors(runs: NoiseRuns, sample: Sample, own: Mapping[str, Array], ends: Ends) -> dict[str, Array]:
    """Return by how much outputs change if activations are clipped to some ends."""
    if not any(math.isfinite(end) for pair in ends.values() for end in pair):
        return {}
    try:
        outputs = {**own, **runs.clipped_outputs(sample, ends, own.keys())}
    except DataError:  # clipping has led to shapes or indices that do not fit
        return {}
    clipped = {
        name: np.clip(array, *ends.get(name, (-math.inf, math.inf))) for name, array in outputs.items()
    }
    return {name: array - own[name] for name, array in clipped.items() if array.shape == own[name].shape}


def plan_ranges(plan: QuantPlan) -> Ends:
    """Return the range of each tensor that a plan quantizes with one scale."""
    return {name: params.tensor_ends for name, params in plan.tensors.items() if params.axis is None}


def ends_of_others(seen: Sequence[Ends], ranges: Ends) -> list[Ends]:
    """Return the ends of each sample's activations by the others; infinite if they would not clip it.

    They would if the sample alone made the range so wide. A range that ends before theirs was not made by it.
    """
    found: list[dict[str, tuple[float, float]]] = [{} for _ in seen]
    for name in seen[0]:
        low, high = ranges[name]
        below = -_of_others(-np.array([ends[name][0] for ends in seen]), -low)
        above = _of_others(np.array([ends[name][1] for ends in seen]), high)
        for at, pair in enumerate(zip(below.tolist(), above.tolist(), strict=True)):
            found[at][name] = pair
    return list(found)


def _of_others(highest: Array, end: float) -> Array:
    """Return the largest value of all other samples, where a sample exceeds it, and the range too."""
    second = np.sort(highest)[-2]
    return np.where((highest > second) & (second < end), second, np.inf)


def _ends(array: Array) -> tuple[float, float]:
    return (float(array.min()), float(array.max())) if array.size else (math.inf, -math.inf)
