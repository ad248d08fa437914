"""How quantization noise travels to the outputs, estimated without data.

In order: the gains of single nodes (`NoiseGains`), the power at the outputs of a unit of noise in each tensor
(`noise_flow`, `forecast_flow`), and gains corrected by measured noise (`measured_gains`).

Each rounding adds noise, which propagates through the rest of the graph. The gain of an operator follows from
the profile and the weights: for a convolution or matrix product the mean square of its weights, for a product
the power of the other factor, for a function of one variable the mean square of its slope over the observed
values. One walk from the outputs to the inputs accumulates these gains, like backpropagation. It gives the
effect of a unit of noise in every tensor on each output. Noises are assumed to be independent (in four
models, the noises of single nodes add up to the noise of all within 2 dB). Three rules keep the estimate
stable over fifty layers:

- No operator increases noise relative to the signal. The theoretical gains of sums and products beyond that,
  130 dB over twelve layers of a transformer, do not occur in practice. Only functions of one variable may
  raise it, such as the logarithm or root of small values.
- A mean over n elements divides noise power by n.
- A Softmax or its decomposed form at an output is judged before it, and a Concat by its members: boxes and
  scores each have their own scale.

It distinguishes noise above the signal of an output from less noise; it does not predict the last decibels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ...profiles.base.once import computed_once
from ...profiles.base.tuned import tuned
from ...profiles.records.profile import (
    INJECTED,
    Profile,
    SampleNoise,
    TensorNoise,
    TensorProfile,
    pooled_noise,
)
from ..model.graph import nodes_run_by, output_name
from ..numerics.affine import INT32, QuantParams
from ..numerics.density import density, signal_power
from ..numerics.quantization_noise import expected_noise, relative_weight_error
from ..operators.decompositions import softmax_input
from ..operators.functions import chain_of, slopes_inside
from ..operators.graph import Graph, Node
from ..operators.noise_gains import NoisyInput, octaves_near_zero
from ..operators.table import CHAIN_RULE, Constraint, Rule
from .activation_ranges import clip_outputs
from .measure import INFINITE_NOISE, params_of_rounded_weight, quantizable_constants
from .output_kinds import fed_back, is_last_state, scores_of_index
from .recurrence import Recurrence, recurrence_of

Floats = npt.NDArray[np.float64]

MIN_KEPT_BY_CLIP = 1.0 / 16.0
"""Least fraction of values that a clip is assumed to keep: its profile does not show clipped values."""


Level = tuple[float, float]
"""Noise power in the input of a function of one variable: of rounded activations, of rounded weights."""


class Entrance(NamedTuple):
    """Where noise enters a graph."""

    # in what a node reads; in all that read a tensor; in a tensor, by its maker's weights
    kind: Literal["input", "tensor", "weights"]
    name: str  # of the node, or the tensor
    place: int = 0  # of the input among those of the node


@dataclass(frozen=True, eq=False)
class NoiseFlow:
    """How noise reaches the outputs: noise power over signal power at each, for a unit of noise power."""

    outputs: tuple[str, ...]  # the tensors at which it is judged, in the order of every array
    gains: Mapping[tuple[str, int], Floats]  # for what a node (by name) reads at an input (by index)
    reach: Mapping[str, Floats]  # for noise in all that read a tensor; none if it reaches no output
    node_gains: NoiseGains
    # for errors of the weights of its maker; {} unless measured
    weight_reach: Mapping[str, Floats] = field(default_factory=dict)

    def share(self, entrance: Entrance) -> Floats | None:
        """Return noise power over signal power at each output for a unit of noise, or None without a path."""
        if entrance.kind == "input":
            return self.gains.get((entrance.name, entrance.place))
        return (self.reach if entrance.kind == "tensor" else self.weight_reach).get(entrance.name)

    def reach_of(self, tensor: str) -> Floats:
        """Return the reach of a tensor, zeros for one that reaches no output."""
        reach = self.reach.get(tensor)
        return np.zeros(len(self.outputs)) if reach is None else reach

    def gain_of(self, node: str, index: int) -> Floats:
        """Return the gain of an input of a node, zeros if its noise reaches no output."""
        gain = self.gains.get((node, index))
        return np.zeros(len(self.outputs)) if gain is None else gain


class NoiseGains:
    """How much noise the nodes of a model let through; each gain is computed when it is first asked for.

    `powers` are mean squares of activations; `rounding_corrections` and `weight_corrections` multiply the
    gains of the node that makes a tensor (`measured_gains`); `steep` are the functions of one variable, in
    graph order, whose gain depends on the level of noise (`levels`, by node).
    """

    def __init__(self, graph: Graph, profile: Profile, opset: int) -> None:
        """Take the prepared model, its profile and the version of the default operator domain."""
        self.graph, self.profile, self.opset = graph, profile, opset
        self.powers = {name: signal_power(tensor) for name, tensor in profile.items()}
        self.recurrences: dict[str, Recurrence] = {}
        for node in graph.nodes:
            if node.rule is not None and node.rule.is_recurrent:
                recurrence = recurrence_of(node, graph, profile.noise)
                if recurrence is not None:
                    self.recurrences[node.name] = recurrence
        self.kept_by_clips: dict[str, float] = {}
        for name in clip_outputs(graph):
            tensor = profile.get(name)
            if tensor is not None and tensor.histogram.total:
                values = density(tensor)
                ends = np.isin(values.points, (0.0, tensor.minimum, tensor.maximum))
                kept = 1.0 - float(values.point_mass[ends].sum())
                self.kept_by_clips[name] = max(kept, MIN_KEPT_BY_CLIP)
        self.is_measured = False
        self.rounding_corrections: Mapping[str, float] = {}
        self.weight_corrections: Mapping[str, float] = {}
        self.steep: tuple[Node, ...] = ()
        self.levels: Mapping[str, Level] = {}

    def at_levels(self, levels: Mapping[str, Level]) -> NoiseGains:
        """Return these gains for the noise that there is in the inputs of steep functions, by node."""
        gains = copy(self)
        gains.levels = levels
        return gains

    @computed_once
    def gain(self, node: Node, index: int, name: str, result: str) -> float:
        """Return the noise power in an output of a node for one unit in its input `index`, called `name`.

        Except for functions of one variable, no node lets through more of the noise than of the signal.
        """
        recurrence = self.recurrences.get(node.name) if index == 0 else None
        if recurrence is not None:
            return self.powers[result] * recurrence.per_unit
        rule, as_signal = node.rule, self.powers[result] / self.powers[name]
        if rule is None:
            return as_signal
        noisy = self._noisy_input(node, index, name)
        if rule.gain is not None:
            gain = rule.gain(noisy, result)
        elif rule.weight is not None:
            gain = _mean_square_weight_gain(noisy, rule)
        elif (rule.unary or rule.constraint is Constraint.CLAMP) and index == 0:
            gain = noisy.slope()
        else:
            gain = 1.0 if rule.constraint in (Constraint.SAME, Constraint.ALL_SAME) else None
        if gain is None:
            return as_signal
        return gain if rule.unary or rule.makes_probabilities else min(gain, as_signal)

    @computed_once
    def _noisy_input(self, node: Node, index: int, name: str) -> NoisyInput:
        return NoisyInput(node, index, name, self.graph, self.profile, self.powers, self.opset)

    @computed_once
    def white_gain(self, node: Node, index: int) -> float | None:
        """Return the gain of a product for white noise; None for all other nodes and inputs."""
        rule = node.rule
        if rule is None or rule.gain is not None:
            return None
        return _mean_square_weight_gain(self._noisy_input(node, index, node.input(index)), rule)

    def coloured_gain(self, node: Node, index: int, name: str, result: str) -> float:
        """Return the gain for noise that is coloured as the signal is, see `forecast_flow`."""
        if index == 0 and node.name in self.levels:
            return self._gain_at_level(node, self.levels[node.name][0], name, result)
        if name in self.kept_by_clips:
            return self.kept_by_clips[name]
        rule, white = node.rule, self.white_gain(node, index)
        if white is None and rule is not None and rule.is_mean:
            white = self.gain(node, index, name, result)
        if white is None:
            return self.gain(node, index, name, result)
        as_signal = self.powers[result] / self.kept_by_clips.get(result, 1.0) / self.powers[name]
        return as_signal if white > as_signal else math.sqrt(white * as_signal)

    def weight_noise_gain(self, node: Node, index: int, name: str, result: str) -> float:
        """Return the gain for errors of weights: as `coloured_gain`, at the level of such errors."""
        level = self.levels.get(node.name)
        if level is None or index:
            return self.coloured_gain(node, index, name, result)
        return self._gain_at_level(node, level[1], name, result)

    def _gain_at_level(self, node: Node, level: float, name: str, result: str) -> float:
        transmitted = self.transmitted(node, level) if level > 0.0 else None
        return self.gain(node, 0, name, result) if transmitted is None else transmitted / level

    def transmitted(self, node: Node, level: float) -> float | None:
        """Return the noise power in a function of one variable, see `NoisyInput.transmitted`."""
        return self._transmitted(node, float(f"{level:.3g}"))

    @computed_once
    def _transmitted(self, node: Node, level: float) -> float | None:
        return self._noisy_input(node, 0, node.input(0)).transmitted(level)

    def corrected_rounding_gain(self, node: Node, name: str) -> float:
        """Return the noise power in a node's output for one unit of rounding noise in its first input."""
        correction = self.rounding_corrections.get(node.output, 1.0)
        return self.coloured_gain(node, 0, name, node.output) * correction

    def noise_of_weight_error(self, node: Node, index: int, error: float, result: str) -> float:
        """Return the noise power in an output of a node for an error of the weight at an input.

        `error` is the square of the error over that of the weight. If the node is in a subgraph, `result` is
        an output of the node that runs it.
        """
        if node.name in self.graph.holders:
            return error * self.powers[result]
        recurrence = self.recurrences.get(node.name)
        if recurrence is not None:
            return recurrence.of_weight("w" if index == 1 else "r", error) * self.powers[result]
        white = self.white_gain(node, 0) if index else None
        if white is None or not (source := self.powers.get(node.input(0))):
            return error * self.powers[result]
        return error * source * white

    def outputs_with_signal(self) -> tuple[str, ...]:
        """Return the outputs of the model that have a signal."""
        return tuple(name for name in self.graph.outputs if self.powers.get(name))

    def judged_tensors(self) -> tuple[str, ...]:
        """Return the tensors at which noise is judged: the outputs, or the parts that they are made of.

        The members of a Concat have their own scale; noise is judged before a Softmax, and at the scores of
        an index. Fed-back states are judged by results computed from them, if there are other outputs.
        """
        graph, states = self.graph, fed_back(self.profile)
        waiting = [name for name in graph.outputs if name not in states] or list(graph.outputs)
        judged: list[str] = []
        visited: set[str] = set()
        while waiting:
            name = waiting.pop(0)
            if name in visited:
                continue
            visited.add(name)
            node = graph.producer(name)
            members: list[str] = []
            if node is not None and node.rule is not None:
                if node.rule.joins_inputs:
                    members = list(node.inputs)
                elif node.rule.makes_probabilities or node.rule.constraint is Constraint.SAME:
                    members = [node.input(0)]
                else:
                    members = [softmax_input(node, graph)]  # "" where it is none
            if (scores := scores_of_index(graph, name)) is not None:
                members = [scores]
            members = [member for member in members if self.powers.get(member)]
            if members:
                waiting += members
            elif self.powers.get(name):
                judged.append(name)
        return tuple(name for name in judged if not is_last_state(graph, name)) or tuple(judged)


def _mean_square_weight_gain(noisy: NoisyInput, rule: Rule) -> float | None:
    """Return the gain of a constant weight for white noise, or None."""
    if rule.weight is None or noisy.index != 0:
        return None
    weight = noisy.constant(rule.weight.index)
    if weight is None or weight.size == 0:
        return None
    axis = rule.weight.axis(noisy.node, weight.ndim)
    return float(np.square(weight).sum()) / (weight.shape[axis] if axis is not None else 1)


# Gains of all nodes together: what a unit of noise anywhere does to the outputs --------------------------


def noise_flow(node_gains: NoiseGains, outputs: tuple[str, ...]) -> NoiseFlow:
    """Estimate how noise propagates, to choose the nodes that stay float; each output must have a signal."""
    if node_gains.is_measured:
        return forecast_flow(node_gains, outputs)
    powers = node_gains.powers
    reach = {name: unit / powers[name] for name, unit in zip(outputs, np.eye(len(outputs)), strict=True)}
    gains: dict[tuple[str, int], Floats] = {}
    for node in reversed(node_gains.graph.nodes):
        results = [name for name in node.outputs if name in reach and powers.get(name)]
        for index, name in enumerate(node.inputs if results else ()):
            if not powers.get(name):
                continue
            gains[node.name, index] = sum(
                (reach[result] * node_gains.gain(node, index, name, result) for result in results),
                np.zeros(len(outputs)),
            )
            reach[name] = reach.get(name, 0.0) + gains[node.name, index]
    return NoiseFlow(outputs, gains, reach, node_gains)


def forecast_flow(node_gains: NoiseGains, outputs: tuple[str, ...]) -> NoiseFlow:
    """Return how the noise of rounding reaches the outputs, for an estimate that is to be met.

    `noise_flow` without measured noise chooses nodes, with limits that are tuned to it. Here noise is white
    at its source: the gain of the first product is the mean square of its weights, even if its gain for the
    signal is smaller. After that, noise is neither white nor distributed like the signal. It does not grow
    relative to a signal that a product weakens. If weights that fit the signal strengthen it, noise grows by
    the mean in dB of both gains. A mean over elements counts as a product.

    A tensor that only a clip reads has the power before the clip, which lets through a part of it, but all of
    the noise of rounding the values in the clip's range.
    """
    powers, zeros = node_gains.powers, np.zeros(len(outputs))
    units = zip(outputs, np.eye(len(outputs)), strict=True)
    # What a unit of noise in a tensor comes to at the outputs: of noise that has passed a product (coloured),
    # that rounding the tensor has just made (fresh), and that errors of weights upstream made (of_weights).

    coloured = {name: unit / powers[name] for name, unit in units}
    fresh, of_weights = dict(coloured), dict(coloured)
    weight_reach: dict[str, Floats] = {}
    gains: dict[tuple[str, int], Floats] = {}
    for node in reversed(node_gains.graph.nodes):
        results = [name for name in node.outputs if name in coloured and powers.get(name)]
        rounding = {r: node_gains.rounding_corrections.get(r, 1.0) for r in results}
        after = {r: coloured[r] * rounding[r] for r in results}
        fresh_after = {r: fresh[r] * rounding[r] for r in results}
        weights_after = {r: of_weights[r] * node_gains.weight_corrections.get(r, 1.0) for r in results}
        weight_reach |= weights_after
        for index, name in enumerate(node.inputs if results else ()):
            if not powers.get(name):
                continue
            coloured_gains = {r: node_gains.coloured_gain(node, index, name, r) for r in results}
            white = node_gains.white_gain(node, index)
            if white is not None:
                gain = sum((after[r] * white for r in results), zeros)
            elif name in node_gains.kept_by_clips:
                gain = sum(fresh_after.values(), zeros)
            else:
                gain = sum((fresh_after[r] * coloured_gains[r] for r in results), zeros)
            gains[node.name, index] = gain
            fresh[name] = fresh.get(name, zeros) + gain
            coloured_gain = sum((after[r] * coloured_gains[r] for r in results), zeros)
            coloured[name] = coloured.get(name, zeros) + coloured_gain
            weight_gain = (
                weights_after[r] * node_gains.weight_noise_gain(node, index, name, r) for r in results
            )
            of_weights[name] = of_weights.get(name, zeros) + sum(weight_gain, zeros)
    return NoiseFlow(outputs, gains, fresh, node_gains, weight_reach if node_gains.is_measured else {})


# Gains corrected by the noise that was measured while the model ran ---------------------------------------

MAX_CORRECTION = 1e4
"""Most by which a gain is corrected, and its inverse the least: 40 dB."""


WeightErrors = dict[tuple[str, QuantParams], float | None]
"""Squared errors of quantized constants over their squares, by name and parameters; None for all zeros."""


def measured_gains(
    graph: Graph,
    profile: Profile,
    opset: int,
    samples: Sequence[SampleNoise],
    weight_errors: WeightErrors | None = None,
) -> NoiseGains:
    """Return the gains of the nodes of a model, corrected by measured noise if there are samples.

    Gains of single nodes assume that every noise is independent of every other. But errors of weights are the
    same in each sample, gates saturate, and sums cancel: after fifty layers an estimate is off by 20 dB
    either way. So the noise that the gains predict for the result of a node, from the measured noise of its
    inputs, is compared with the noise measured there, and its gains are multiplied by the ratio.

    Errors of weights are relative to the signal of each sample: their ratio is that of the sums over all
    samples. A plan rounds every sample by the same step, but the measurement each by its own level: so a
    node's ratio for rounding is the mean of its ratios in each sample.

    Constants whose errors are computed join `weight_errors`.
    """
    weight_errors = {} if weight_errors is None else weight_errors
    gains = NoiseGains(graph, profile, opset)
    if not samples:
        return gains
    pooled = pooled_noise(samples)
    measured = _measured_noise(gains, samples, pooled)
    rounding: dict[str, float] = {}
    weights: dict[str, float] = {}
    steep = tuple(_steep_functions(gains, measured))
    for node in graph.nodes:
        for result in node.outputs:
            if not gains.powers.get(result) or result not in measured:
                continue
            # The noise that the gains predict for the result: in each sample, and in all of them together.
            of_rounding = np.zeros(len(samples) + 1)
            of_weights = _noise_of_own_weights(gains, node, result, weight_errors)
            if node in steep:
                injected, before, by_weights = np.nan_to_num(measured[node.input(0)])
                of_rounding += [gains.transmitted(node, level) or 0.0 for level in injected + before]
                of_weights += gains.transmitted(node, by_weights[-1]) or 0.0
            for index, name in enumerate(() if node in steep else node.inputs):
                if gains.powers.get(name) and name in measured:
                    # NaN, what was not measured of an input, leaves the ratio unknown.
                    injected, before, by_weights = measured[name]
                    coloured = gains.coloured_gain(node, index, name, result)
                    white = gains.white_gain(node, index)
                    of_rounding += coloured * before + (coloured if white is None else white) * injected
                    of_weights += coloured * float(by_weights[-1])
            if node.facts is CHAIN_RULE:
                of_rounding += _noise_rounded_inside_chain(gains, node, samples, pooled)
            _, rounding_noise, weight_noise = measured[result]
            is_known = ~np.isnan(rounding_noise[:-1]) & ~np.isnan(of_rounding[:-1])
            by_sample = _correction(rounding_noise, of_rounding)[:-1][is_known]
            rounding[result] = float(by_sample.mean()) if is_known.any() else 1.0
            if node in steep:  # of all samples: what it makes of a level, it makes for values of all of them
                together = float(_correction(rounding_noise[-1:], of_rounding[-1:])[0])
                rounding[result] = max(together, 1.0)  # where a plan has 0, the measurement has half a step
            weights[result] = float(_correction(weight_noise[-1:], np.array([of_weights]))[0])
    gains.is_measured = True
    gains.rounding_corrections, gains.weight_corrections, gains.steep = rounding, weights, steep
    return gains


def _correction(measured: Floats, expected: Floats) -> Floats:
    """Return measured over expected noise, within `MAX_CORRECTION`; 1 if either is unknown."""
    is_known = ~np.isnan(measured) & (expected > 0.0)
    ratio = np.divide(measured, expected, out=np.ones_like(expected), where=is_known)
    return np.where(is_known, np.clip(ratio, 1.0 / MAX_CORRECTION, MAX_CORRECTION), 1.0)


STRAIGHT = tuned(2.0, figure="none: 3 dB", chosen_on="by hand", holds=(1.6, 2.5))
"""Largest factor by which the transmitted noise may differ from proportion, from the measured level down to
`LEVEL_RANGE` of it, if a gain is assumed to be constant."""

LEVEL_RANGE = 1e-3
"""The range of levels, 30 dB."""


def _steep_functions(gains: NoiseGains, measured: Mapping[str, Floats]) -> Iterator[Node]:
    """Yield the functions of one variable whose gain depends on the level of noise, in graph order.

    A logarithm has nothing more to lose of a value that is below the noise already: less noise than was
    measured does more harm than the ratio of both suggests.
    """
    for node in gains.graph.nodes:
        rule, name = node.rule, node.input(0) if node.inputs else ""
        if rule is None or not rule.unary or name not in measured or not gains.powers.get(node.output):
            continue
        injected, before, _ = np.nan_to_num(measured[name])
        level = float(injected[-1] + before[-1])
        transmitted = gains.transmitted(node, level) if level > 0.0 else None
        if transmitted is not None and transmitted > 0.0:
            in_proportion = (gains.transmitted(node, LEVEL_RANGE * level) or 0.0) / LEVEL_RANGE
            if not transmitted / STRAIGHT <= in_proportion <= STRAIGHT * transmitted:
                yield node


MAX_COPY_NOISE = tuned(10.0, figure="none", chosen_on="by hand", holds=(8.0, 12.5))
"""Noise over signal in the rounded copy beyond which the measurement does not apply to a plan: between float
products, no plan rounds as much as the copy."""


def _is_infinite(noise: TensorNoise, figure: float | None) -> bool:
    """Whether a figure of a sample stands for infinite noise; figures are recorded with five digits."""
    return bool(noise.signal and figure is not None and figure >= 0.999 * INFINITE_NOISE * noise.signal)


def _measured_noise(
    gains: NoiseGains, samples: Sequence[SampleNoise], pooled: Mapping[str, TensorNoise]
) -> dict[str, Floats]:
    """Return the measured noise in each tensor, [3, samples + 1], the last column for all samples together.

    The rows are the noise that its own rounding added, the noise before that, and the noise with rounded
    weights, scaled to the signal of the profile; NaN if not measured.
    """
    clipped_to = clip_outputs(gains.graph)
    unknown, measured = TensorNoise(None, None, None), {}
    for name, together in pooled.items():
        profiled = clipped_to.get(name, name)
        power, profiled_noise = gains.powers.get(profiled), pooled.get(profiled)
        if not power or profiled_noise is None or not profiled_noise.signal:
            continue
        noises = [*(sample.tensors.get(name, unknown) for sample in samples), together]
        figures = [(noise.injected, noise.activation_noise, noise.weight_noise) for noise in noises]
        rows = np.array(figures, np.float64).T * (power / profiled_noise.signal)
        # Where the copy lost its signal, as behind a divisor rounded away, it says nothing of a plan.
        rows[1][rows[1] > MAX_COPY_NOISE * power] = np.nan
        # But where it is NaN or infinite, so may a plan be: that is more noise than any.
        for row in (1, 2):
            each = [_is_infinite(n, own[row]) for n, own in zip(noises[:-1], figures[:-1], strict=True)]
            rows[row][[*each, any(each)]] = INFINITE_NOISE * power
        rows[0] *= _rounded_share(gains.profile[profiled], INJECTED * power)
        measured[name] = rows
    return measured


def _noise_rounded_inside_chain(
    gains: NoiseGains, node: Node, samples: Sequence[SampleNoise], pooled: Mapping[str, TensorNoise]
) -> Floats:
    """Return the noise in a chain's result from roundings inside it while noise was measured.

    A chain that is planned as one node rounds nothing there. One figure for each sample and one for all
    together.
    """
    chain, total = chain_of(node.ir_node), np.zeros(len(samples) + 1)
    source, signal = gains.profile.get(node.input(0)), pooled[node.output].signal
    if source is None or not signal:
        return total
    inner = [name for name in map(output_name, chain.nodes[:-1]) if name in pooled]
    if not inner:
        return total
    (values, mass), unknown = density(source).middles, TensorNoise(None, None, None)
    slopes = slopes_inside(chain, inner, gains.opset)(values)
    for name, row in zip(inner, np.nan_to_num(np.square(slopes), posinf=0.0, neginf=0.0), strict=True):
        squared = float(mass @ row)
        noises = [*(sample.tensors.get(name, unknown) for sample in samples), pooled[name]]
        total += squared * np.array([noise.injected for noise in noises])
    return total * gains.powers[node.output] / signal


def _rounded_share(tensor: TensorProfile, injected: float) -> float:
    """Return the part of its nominal noise that a tensor gets from a step larger than most values.

    A value below half a step loses itself, no more. The share counts below a half.
    """
    step = np.array([math.sqrt(12.0 * injected)], np.float32)  # as `measure.FloatTensor.step`
    if not step[0] > 0.0 or not np.isfinite(step[0]):
        return 1.0
    params = QuantParams(step, np.zeros(1, np.int32), INT32)
    noise = expected_noise(tensor, params, values=octaves_near_zero(density(tensor)))
    share = noise.rounding_power / injected
    return share if share < 1.0 / STRAIGHT else 1.0


def _noise_of_own_weights(gains: NoiseGains, node: Node, result: str, known: WeightErrors) -> float:
    """Return the noise that the weights of a node bring into its result in int8, as they were measured."""
    total = 0.0
    for run in nodes_run_by(node.ir_node):
        for index, layout, value, exact in quantizable_constants(run):
            params = params_of_rounded_weight(run, layout, exact)
            if params is None or not exact.any():
                continue
            key = (str(value.name), params)
            share = known.get(key)
            if share is None:
                share = known[key] = relative_weight_error(exact, params)
            total += gains.noise_of_weight_error(gains.graph.node(str(run.name)), index, share, result)
    return total
