"""What recurrent operators (LSTM, GRU, RNN) make of noise: onnxruntime runs each with noise and without.

Their gates saturate and their states feed back, so neither a constant gain nor a sum over steps is right: by
the bounds of the slopes (tanh at most 1, sigmoid at most 1 / 4), the noise of a trained LSTM would grow
without end, but it decays. So each node runs on the sequences that it read when noise was measured
(`SampleNoise.sequences`), in one batch with noisy copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.once import computed_once
from ...profiles.records.profile import SampleNoise
from ...profiles.runtime.providers import CPU, new_session, new_session_options
from ..operators.graph import Graph, Node

Floats = npt.NDArray[np.float32]

BATCH = 4
"""Sequences that are run, at most."""

OPSET = 14
"""Version of the operators."""

INPUT_NOISE = 1e-3
"""Power of the noise over that of the input for measuring the gain: about that of 8 bits."""

STATES = ("h", "c")
"""The inputs that are first states: the output's, and the memory's of an LSTM."""


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The gains of one recurrent node; every result is noise power over signal power at its output."""

    session: ort.InferenceSession  # the node alone, with its weights and states as inputs
    x: Floats  # sequences that it reads, [steps, batch, features]
    weights: Mapping[str, Floats]  # w, r, b

    def _run(self, *sequences: Floats, **changed: Floats) -> list[list[Floats]]:
        """Return all outputs of a batch of sequences, each split into those of `sequences`.

        The first is [steps, directions, batch, units], the others are the last state or states. First states
        are 0 if none are given.
        """
        directions, _, units = self.weights["r"].shape
        count = len(self.session.get_outputs()) - 1
        zeros = np.zeros((directions, len(sequences) * self.x.shape[1], units), np.float32)
        feeds = {**self.weights, **dict.fromkeys(STATES[:count], zeros), **changed}
        results = self.session.run(None, {**feeds, "x": np.concatenate(sequences, axis=1)})
        return [np.split(result, len(sequences), axis=-2) for result in results]

    @cached_property
    def _output(self) -> Floats:
        return self._run(self.x)[0][0]

    @cached_property
    def signal(self) -> float:
        """Power of the output."""
        return _power(self._output)

    @cached_property
    def per_unit(self) -> float:
        """The gain for a unit of noise power in every element of the input.

        The mean in dB of two bounds: for noise that differs in each step, as from rounding, and for noise
        that lasts, as from errors of weights upstream.
        """
        power = INPUT_NOISE * _power(self.x)
        in_steps, lasting = (_noise((steps, *self.x.shape[1:]), power) for steps in (len(self.x), 1))
        lost = [_power(noisy - self._output) for noisy in self._run(self.x + in_steps, self.x + lasting)[0]]
        return float(np.sqrt(lost[0] * lost[1])) / (self.signal * power)

    @computed_once
    def of_rounding(self, step: float) -> float:
        """Return the noise of rounding the input to multiples of `step`."""
        rounded = np.asarray(np.rint(self.x / step) * step, np.float32)
        return _power(self._run(rounded)[0][0] - self._output) / self.signal

    @computed_once
    def of_state(self, power: float) -> float:
        """Return the noise from noise of this power in the state that the next step reads."""
        steps, directions, *of_step = self._output.shape
        error = np.repeat(_noise((steps, 1, *of_step), power), directions, axis=1)
        states: dict[str, Floats] = {}
        lost = []
        for x, added in zip(self.x, np.concatenate([np.zeros_like(error), error], axis=2), strict=True):
            states["h"] = states["h"] + added if states else added
            (exact, noisy), *last = self._run(x[None], x[None], **states)
            states = dict(zip(STATES, (np.concatenate(parts, axis=1) for parts in last), strict=False))
            lost.append(_power(noisy - exact))
        return float(np.mean(lost)) / self.signal

    @computed_once
    def of_weight(self, name: str, error: float) -> float:
        """Return the noise of an error of the weight "w" or "r", its square over that of the weight."""
        weight = self.weights[name]
        noisy = weight + _noise(weight.shape, error * _power(weight))
        return _power(self._run(self.x, **{name: noisy})[0][0] - self._output) / self.signal


def _power(array: Floats) -> float:
    return float(np.mean(np.square(array, dtype=np.float64)))


def _noise(shape: tuple[int, ...], power: float) -> Floats:
    """Return uniform noise, the same for the same shape."""
    rng = np.random.default_rng(1)
    return np.asarray(rng.uniform(-1.0, 1.0, shape) * np.sqrt(3.0 * power), np.float32)


def recurrence_of(node: Node, graph: Graph, samples: Sequence[SampleNoise]) -> Recurrence | None:
    """Return the gains of a recurrent node; None if its weights or inputs are unknown.

    Peepholes and initial states are ignored.
    """
    w, r, bias = (_constant(node, index, graph) for index in (1, 2, 3))
    x = _sequences(samples, node.input(0))
    if w is None or r is None or not w.any() or x is None or not x.any():
        return None
    if bias is None:
        bias = np.zeros((len(r), 2 * r.shape[1]), np.float32)
    recurrence = Recurrence(_session_of(node), x, {"w": w, "r": r, "b": bias})
    return recurrence if recurrence.signal > 0.0 else None


def _sequences(samples: Sequence[SampleNoise], name: str) -> Floats | None:
    """Return the sequences of samples with one shape, or None."""
    read = [sample.sequences[name] for sample in samples if name in sample.sequences]
    alike = [array for array in read if array.ndim == 3 and array.shape == read[0].shape]
    if not alike or not np.isfinite(alike).all():
        return None
    return np.asarray(np.concatenate(alike[:BATCH], axis=1), np.float32)


def _constant(node: Node, index: int, graph: Graph) -> Floats | None:
    constant = graph.constant(node.input(index))
    return None if constant is None else constant.astype(np.float32)


def _session_of(node: Node) -> ort.InferenceSession:
    """Return a session with only a recurrent node, whose inputs are graph inputs."""
    states = STATES[: 1 + (node.op_type == "LSTM")]
    names = ("x", "w", "r", "b", *states)
    inputs = [ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT)) for name in names]
    read = [*inputs[:4], None, *inputs[4:]]  # without the lengths of sequences
    alone = ir.Node("", node.op_type, read, node.attributes.values(), num_outputs=1 + len(states))
    for place, value in enumerate(alone.outputs):
        value.name, value.type = f"y{place}", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(inputs, alone.outputs, nodes=[alone], opset_imports={"": OPSET})
    options = new_session_options()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = ir.to_proto(ir.Model(graph, ir_version=8))
    return new_session(model.SerializeToString(), options, CPU)
