"""What is read of another tool's file, before it is bound to a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...profiles.records.histogram import EqualBins
from ..numerics.affine import QuantParams


@dataclass(frozen=True)
class ForeignRanges:
    """What a calibrator of another tool recorded.

    Attributes:
        ranges: smallest and largest value by tensor name of the float model, per tensor; finite, low <= high.
            Of Glow they are by Glow's names.
        tool: who wrote it, for people: "TensorRT 10.3 (EntropyCalibration2)".
        notes: what was assumed or left out, one sentence each.
        histograms: those that the file holds; usually none. Their ends are those of the values that were
            seen, and may differ from the range, which the calibrator chose.
    """

    ranges: Mapping[str, tuple[float, float]]
    tool: str
    notes: tuple[str, ...] = ()
    histograms: Mapping[str, EqualBins] = field(default_factory=dict)


@dataclass(frozen=True)
class ForeignParams:
    """Scales and zero points that another tool chose.

    Attributes:
        tensors: parameters of activations and constants, by tensor name of the float model.
        tool: who wrote it, for people.
        notes: what was assumed or left out, one sentence each.
        axis_unknown: constants with a scale for each channel or block, of which the file does not say along
            which axis; that in `tensors` is a stand-in until `with_axes` has seen the model.
    """

    tensors: Mapping[str, QuantParams]
    tool: str
    notes: tuple[str, ...] = ()
    axis_unknown: frozenset[str] = frozenset()
