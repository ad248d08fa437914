"""What recurrent operators (LSTM, GRU, RNN) make of noise: onnxruntime runs each with noise and without.

Their gates saturate and their states return, so that no gain for all levels and no sum over steps is right:
bounds of the slopes (tanh at most 1, sigmoid at most 1 / 4) say that the noise of a trained LSTM grows
without end, where it decays.

A profile knows how the elements of the input are spread over all samples, not where in a sequence they stood.
Elements of normal distribution say that all steps have one level. Where they are more spread than that, the
level is taken to change from step to step: one range for a whole sequence then loses the small ones, which
make as much of the output as large ones when the gates are saturated. If in truth each sample has a level of
its own, ranges that are computed for each sample keep more (29 dB for five decades of levels), but one range
for all does not. Of the two mistakes, an estimate that is too good is the worse one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.once import computed_once
from ...profiles.records.profile import Profile, TensorProfile
from ...profiles.runtime.providers import CPU, new_session, new_session_options
from ..numerics.density import ChannelDensity, channel_density, density, signal_power
from ..operators.graph import Graph, Node

Floats = npt.NDArray[np.float32]

NORMAL_SPREAD = np.pi**2 / 8.0
"""Variance of the natural logarithm of the magnitude of normally distributed values."""


def drawn_sequences(features: ChannelDensity, shape: tuple[int, int, int]) -> Floats:
    """Return sequences [steps, batch, features] each of whose features is spread as its density.

    A feature takes the quantiles of its density, each once. Their order depends on a level of each step, as
    far as the magnitudes within a feature are more spread than normal values (`NORMAL_SPREAD`), and on
    chance.
    """
    rng = np.random.default_rng(0)
    count = shape[0] * shape[1]
    quantiles = _quantiles(features, (np.arange(count) + 0.5) / count)
    logs = np.log(np.abs(quantiles), where=quantiles != 0.0, out=np.full_like(quantiles, np.nan))
    several = np.count_nonzero(quantiles, axis=0) > 1
    spread = float(np.mean(np.nanvar(logs[:, several], axis=0))) if several.any() else 0.0
    shared = max(1.0 - NORMAL_SPREAD / spread, 0.0) if spread else 0.0
    level, own = rng.standard_normal((count, 1)), rng.standard_normal(quantiles.shape)
    order = np.argsort(np.argsort(np.sqrt(shared) * level + np.sqrt(1.0 - shared) * own, axis=0), axis=0)
    return np.asarray(np.take_along_axis(quantiles, order, axis=0).reshape(shape), np.float32)


def feature_densities(tensor: TensorProfile, count: int) -> ChannelDensity:
    """Return the densities of the features of an input: without records of channels, all as the tensor's."""
    channels = channel_density(tensor)
    if channels is not None and channels.power.size == count:
        return channels
    whole, each = density(tensor), np.ones(count)
    low, high = (np.append(ends, whole.points) for ends in (whole.edges[:-1], whole.edges[1:]))
    mass = np.tile(np.append(whole.mass, whole.point_mass), (count, 1))
    ends = tensor.minimum * each, tensor.maximum * each
    return ChannelDensity(low, high, mass, *ends, signal_power(tensor) * each)


def _quantiles(channels: ChannelDensity, ranks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return values of each channel, [ranks, channels], that have these ranks by their magnitude."""
    low = np.maximum(channels.low, channels.minimum[:, None])
    high = np.maximum(np.minimum(channels.high, channels.maximum[:, None]), low)
    squares = (low * low + low * high + high * high) / 3.0
    power = np.sum(channels.mass * squares, axis=1)
    unit = np.sqrt(np.divide(channels.power, power, out=np.ones_like(power), where=power > 0.0))
    by_size = np.argsort(np.abs(channels.low + channels.high), kind="stable")
    columns = []
    for first, last, mass, factor in zip(low, high, channels.mass, unit, strict=True):
        upto = np.cumsum(mass[by_size])
        places = np.minimum(np.searchsorted(upto, ranks * upto[-1]), upto.size - 1)
        bins = by_size[places]
        within = np.clip((upto[places] - ranks * upto[-1]) / np.maximum(mass[bins], 1e-300), 0.0, 1.0)
        # Of a bin below zero, the magnitude falls with the value.
        share = np.where(first[bins] + last[bins] >= 0.0, 1.0 - within, within)
        columns.append(factor * (first[bins] + (last[bins] - first[bins]) * share))
    return np.stack(columns, axis=1)


MAX_STEPS, BATCH = 64, 4
"""Steps of the drawn sequences, at most, and their number."""

OPSET = 14
"""Version of the operators."""

INPUT_NOISE = 1e-3
"""Power of the noise over that of the input from which the gain is taken: what 8 bits leave, about."""


STATES = ("h", "c")
"""The inputs that are first states: the output's, and the memory's of an LSTM."""


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The gains of one recurrent node; every result is noise power over signal power at its output."""

    session: ort.InferenceSession  # the node alone, with its weights and states as inputs
    # x, drawn [steps, batch, features], w, r, b, and the first states, which are 0
    feeds: Mapping[str, Floats]

    @property
    def x(self) -> Floats:
        """The drawn input."""
        return self.feeds["x"]

    def _run(self, **changed: Floats) -> list[Floats]:
        """Return all outputs [steps, directions, batch, units], and the last state or states."""
        return list(self.session.run(None, {**self.feeds, **changed}))

    @cached_property
    def _output(self) -> Floats:
        return self._run()[0]

    @cached_property
    def signal(self) -> float:
        """Power of the output."""
        return _power(self._output)

    def _lost(self, **changed: Floats) -> float:
        return _power(self._run(**changed)[0] - self._output) / self.signal

    @cached_property
    def per_unit(self) -> float:
        """The gain for a unit of noise power in every element of the input.

        The mean in dB of two bounds: for noise that differs in each step, as from rounding, and for noise
        that lasts, as from errors of weights upstream.
        """
        power = INPUT_NOISE * _power(self.x)
        in_steps, lasting = (_noise((steps, *self.x.shape[1:]), power) for steps in (len(self.x), 1))
        return float(np.sqrt(self.of_error(in_steps) * self.of_error(lasting))) / power

    def of_error(self, error: Floats) -> float:
        """Return the noise of an error that is added to the input."""
        return self._lost(x=self.x + error)

    @computed_once
    def of_rounding(self, step: float) -> float:
        """Return the noise of rounding the input to multiples of `step`."""
        return self._lost(x=_rounded(self.x, step))

    @computed_once
    def of_state(self, power: float) -> float:
        """Return the noise from noise of this power in the state that the next step reads."""
        steps, directions, *of_step = self._output.shape
        error = np.repeat(_noise((steps, 1, *of_step), power), directions, axis=1)
        return _power(self._by_steps(error) - self._by_steps(np.zeros_like(error))) / self.signal

    def _by_steps(self, error: Floats) -> Floats:
        """Return the outputs of single steps, with an error added to the state that each reads."""
        states = {name: self.feeds[name] for name in STATES if name in self.feeds}
        outputs = []
        for x, added in zip(self.x, error, strict=True):
            states["h"] = states["h"] + added
            output, *last = self._run(x=x[None], **states)
            states = dict(zip(STATES, last, strict=False))
            outputs.append(output[0])
        return np.stack(outputs)

    @computed_once
    def of_input_weight(self, error: float) -> float:
        """Return the noise of an error of W, its square over that of W."""
        return self._lost(w=_with_error(self.feeds["w"], error))

    @computed_once
    def of_state_weight(self, error: float) -> float:
        """Return the noise of an error of R, its square over that of R."""
        return self._lost(r=_with_error(self.feeds["r"], error))


def _rounded(values: Floats, step: float) -> Floats:
    return np.asarray(np.rint(values / step) * step, np.float32)


def _power(array: Floats) -> float:
    return float(np.mean(np.square(array, dtype=np.float64)))


def _noise(shape: tuple[int, ...], power: float) -> Floats:
    """Return uniform noise, the same for the same shape."""
    rng = np.random.default_rng(1)
    return np.asarray(rng.uniform(-1.0, 1.0, shape) * np.sqrt(3.0 * power), np.float32)


def _with_error(weight: Floats, error: float) -> Floats:
    return weight + _noise(weight.shape, error * _power(weight))


def recurrence_of(node: Node, graph: Graph, profile: Profile) -> Recurrence | None:
    """Return the gains of a recurrent node; None if its weights or its input are not known.

    Peepholes and initial states are ignored.
    """
    source = profile.get(node.input(0))
    w, r, bias = (_constant(node, index, graph) for index in (1, 2, 3))
    if w is None or r is None or not w.any() or source is None or not source.histogram.total:
        return None
    directions, gates, units = r.shape
    steps = min(source.shape[0] if source.shape and source.shape[0] else MAX_STEPS, MAX_STEPS)
    x = drawn_sequences(feature_densities(source, w.shape[2]), (steps, BATCH, w.shape[2]))
    feeds = {"x": x, "w": w, "r": r}
    feeds["b"] = np.zeros((directions, 2 * gates), np.float32) if bias is None else bias
    feeds |= dict.fromkeys(
        STATES[: 1 + (node.op_type == "LSTM")], np.zeros((directions, BATCH, units), np.float32)
    )
    recurrence = Recurrence(_session_of(node, list(feeds)), feeds)
    return recurrence if x.any() and recurrence.signal > 0.0 else None


def _constant(node: Node, index: int, graph: Graph) -> Floats | None:
    constant = graph.constant(node.input(index))
    return None if constant is None else constant.astype(np.float32)


def _session_of(node: Node, names: list[str]) -> ort.InferenceSession:
    """Return a session of a recurrent node alone, all whose inputs are the graph's."""
    inputs = [ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT)) for name in names]
    read = [*inputs[:4], None, *inputs[4:]]  # without the lengths of sequences
    alone = ir.Node("", node.op_type, read, node.attributes.values(), num_outputs=len(names) - 3)
    for place, value in enumerate(alone.outputs):
        value.name, value.type = f"y{place}", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(inputs, alone.outputs, nodes=[alone], opset_imports={"": OPSET})
    options = new_session_options()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = ir.to_proto(ir.Model(graph, ir_version=8))
    return new_session(model.SerializeToString(), options, CPU)
