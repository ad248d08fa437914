"""What recurrent operators (LSTM, GRU, RNN) make of noise, estimated from weights and profile.

Their gates saturate and their states return, so that two things differ from products:

- The output does not grow with the input. Where the levels of an input span decades, its power is that of the
  largest, while steps of every level make as much of the output: noise that is small beside the power may be
  all that is left of the small levels. With k the level at which the gates saturate (preactivations of power
  1: one over the root of the mean square of a row of W), a step of level x gives an output as min(x, k).
  Noise passes with the mean square slope of a gate whose preactivation has deviation x / k, which falls as
  min(1, k / x). The levels are taken to be those of the elements in the profile.
- What is lost in one step is read again in the next. The noise of a step returns with a power gain of rho,
  and in all there is the sum of the powers of rho, one for each step. It follows from R and the biases:
  with states and slopes of tanh at most 1, slopes of a sigmoid at most 1 / 4, and gates that are half open
  (forget gate and update gate: as their biases say).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.records.profile import Profile, TensorProfile
from ..model.graph import Graph, input_name
from ..numerics.density import Density, density, mean_of

Floats = npt.NDArray[np.float64]

STEPS = 1000
"""Steps of a sequence whose length the profile does not know."""
_W, _R, _B = 1, 2, 3


@dataclass(frozen=True, eq=False)
class Recurrence:
    """What one recurrent node makes of noise; every result is noise power over signal power at its output.

    Attributes:
        levels: how the elements of its input are spread.
        knee: level of the input at which the gates saturate.
        accumulation: sum of the powers of rho: how much more noise all steps make than one.
    """

    levels: Density
    knee: float
    accumulation: float

    @property
    def signal(self) -> float:
        """Power of the output, in the square of the input's unit."""
        return mean_of(self.levels, lambda x: np.square(np.minimum(np.abs(x), self.knee)))

    def _passed(self, x: Floats) -> Floats:
        return np.asarray(np.minimum(1.0, self.knee / np.maximum(np.abs(x), self.knee)))

    def per_unit(self) -> float:
        """Return what a unit of noise power in every element of the input becomes."""
        return self.accumulation * mean_of(self.levels, self._passed) / self.signal

    def of_rounding(self, step: float) -> float:
        """Return what rounding the input to multiples of `step` becomes; an element may be lost, no more."""
        power = step * step / 12.0
        lost = mean_of(self.levels, lambda x: self._passed(x) * np.minimum(np.square(x), power))
        return self.accumulation * lost / self.signal

    def of_weight(self, error: float) -> float:
        """Return what an error of W, its square over that of W, becomes: it grows with the level."""
        return (
            self.accumulation
            * error
            * mean_of(self.levels, lambda x: self._passed(x) * np.square(x))
            / self.signal
        )


def recurrence_of(node: ir.Node, graph: Graph, profile: Profile) -> Recurrence | None:
    """Return what a recurrent node makes of noise; None where its weights or its input are not known."""
    arrays = [graph.constant(input_name(node, index)) for index in (_W, _R)]
    source, result = (profile.get(name) for name in (input_name(node, 0), node.outputs[0].name or ""))
    w, r = (None if array is None else array.astype(np.float64) for array in arrays)
    if w is None or r is None or not w.any() or source is None or not source.histogram.total:
        return None
    found = Recurrence(density(source), float((np.square(w).sum() / (w.shape[0] * w.shape[1])) ** -0.5), 1.0)
    if found.signal <= 0.0:
        return None
    rho = _returned(node, r, _bias(node, graph, r), result)
    steps = source.shape[0] if source.shape and source.shape[0] else STEPS
    return Recurrence(found.levels, found.knee, float(min(steps, 1.0 / (1.0 - rho) if rho < 1.0 else steps)))


def _bias(node: ir.Node, graph: Graph, r: Floats) -> Floats:
    """Return the sums of both biases, [directions, gates, units]; zeros where there are none."""
    gates, units = r.shape[1] // r.shape[2], r.shape[2]
    array = graph.constant(input_name(node, _B)) if len(node.inputs) > _B and input_name(node, _B) else None
    if array is None:
        return np.zeros((r.shape[0], gates, units))
    return np.asarray(array.astype(np.float64).reshape(r.shape[0], 2, gates, units).sum(axis=1))


def _returned(node: ir.Node, r: Floats, bias: Floats, result: TensorProfile | None) -> float:
    """Return rho: how much of the noise power in a step's result is in that of the next."""
    white = float(np.square(r).sum() / (r.shape[0] * r.shape[1]))
    if node.op_type == "LSTM":  # gates in the order input, output, forget, cell
        memory = float(np.mean(1.0 / (1.0 - np.square(_sigmoid(bias[:, 2])))))
        return white * (memory * (1 / 4 + 1 / 16 + 1 / 16) / 4 + 1 / 16)
    if node.op_type == "GRU":  # update, reset, hidden
        update = _sigmoid(bias[:, 0])
        open_ = float(np.mean(np.square(1.0 - update)))
        return float(np.mean(np.square(update))) + white * (open_ * (1 / 4 + 1 / 16) + 1 / 16)
    slope = 1.0 if result is None or not result.histogram.total else _tanh_slope(result)
    return white * slope


def _tanh_slope(result: TensorProfile) -> float:
    """Return the mean square slope of the tanh that made these values."""
    return mean_of(density(result), lambda y: np.square(1.0 - np.square(np.minimum(np.abs(y), 1.0))))


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(x, -30.0, 30.0))))
