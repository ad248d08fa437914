"""What becomes of quantization noise on its way to the outputs, estimated without data.

Noise enters where values are rounded and travels through the rest of the graph. How much an operator lets
through follows from the profile and the weights: a convolution or matrix product the mean square of its
weights, a product the power of the other factor, a function of one variable the mean square of its slope over
the values seen. One walk from the outputs to the inputs gathers these gains, as backpropagation does, so that
for every tensor it is known what a unit of noise there does to each output. Each kind of noise is taken as
independent of every other (measured on four models, the noises of single nodes add up to that of all within
2 dB), and three things keep the estimate from running away over fifty layers:

- No operator lets through more noise, relative to the signal, than it was given: what sums and products of
  noise would gain beyond that, over twelve layers of a transformer 130 dB, is not met in practice. Only
  functions of one variable may raise it, such as the logarithm or root of small values.
- A mean over n elements divides noise power by n.
- A Softmax or its decomposed form at an output is judged before it, and a Concat by its members: boxes and
  scores side by side each keep their own scale.

It distinguishes a model whose noise exceeds the signal of an output (a spectrum before a logarithm: 4 and -10
dB estimated, 3 measured) from one that is merely noisy (18 to 44 dB estimated, 9 to 46 measured, on eleven
models); it is no forecast of the last decibels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...profiles.records.profile import (
    INJECTED,
    Profile,
    SampleNoise,
    TensorNoise,
    TensorProfile,
    pooled_noise,
)
from ..model.graph import output_name
from ..numerics.affine import INT32, QuantParams
from ..numerics.density import density, mean_of, signal_power
from ..numerics.quantization_noise import expected_noise, relative_power
from ..operators.decompositions import softmax_input
from ..operators.functions import chain_of, slope_inside
from ..operators.graph import Graph, Node
from ..operators.noise_gains import NoisyInput, octaves_near_zero
from ..operators.table import CHAIN_RULE, Constraint, Rule, product_layout
from .activation_ranges import clip_outputs
from .measure import quantizable_constants, rounded_weight
from .output_kinds import fed_back, is_last_state
from .recurrence import Recurrence, recurrence_of

Floats = npt.NDArray[np.float64]

LEAST_KEPT = 1.0 / 16.0
"""Least share of its values that a clip is taken to keep: its profile does not show what was clipped."""


@dataclass(frozen=True)
class Corrections:
    """By what the gains of the node that makes a tensor are multiplied, see `measured_gains`.

    Attributes:
        rounding: for the noise of rounded activations, by tensor; 1 for those without an entry.
        weights: for that of rounded weights.
    """

    rounding: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Level:
    """How much noise there is in the input of a function of one variable, as mean squares.

    Attributes:
        rounding: of rounded activations.
        weights: of rounded weights.
    """

    rounding: float
    weights: float


@dataclass(frozen=True, eq=False)
class NoiseFlow:
    """How noise reaches the outputs.

    Attributes:
        outputs: the tensors at which it is judged, in the order of every array below.
        gains: for (name of a node, index of an input): noise power over signal power at each output for one
            unit of noise power in what the node reads there.
        reach: for a tensor: the same for noise in all that read it; none for one that reaches no output, see
            `reach_of`.
        powers: mean square of the values of every activation.
        recurrences: what recurrent nodes make of noise, by name.
        weight_reach: for a tensor: the same as `reach` for errors of the weights of the node that makes it;
            empty where noise was not measured.
        of_nodes: the gains of the single nodes that it was made of.
    """

    outputs: tuple[str, ...]
    gains: Mapping[tuple[str, int], Floats]
    reach: Mapping[str, Floats]
    powers: Mapping[str, float]
    recurrences: Mapping[str, Recurrence]
    of_nodes: NoiseGains
    weight_reach: Mapping[str, Floats] = field(default_factory=dict)

    def reach_of(self, tensor: str) -> Floats:
        """Return the reach of a tensor, zeros for one that reaches no output, as that which nobody reads."""
        found = self.reach.get(tensor)
        return np.zeros(len(self.outputs)) if found is None else found

    def gain_of(self, node: str, index: int) -> Floats:
        """Return the gain of an input of a node, zeros where nothing of it reaches an output."""
        found = self.gains.get((node, index))
        return np.zeros(len(self.outputs)) if found is None else found


class NoiseGains:
    """The gains of the nodes of a model, each computed when it is first asked for."""

    def __init__(self, graph: Graph, profile: Profile, opset: int) -> None:
        """Take the prepared model, its profile and the version of the default operator domain."""
        self.graph, self.profile, self.opset = graph, profile, opset
        self.powers = {name: signal_power(tensor) for name, tensor in profile.items()}
        self.recurrences = dict(_recurrences(graph, profile))
        self.kept_by_clips = _kept_by_clips(graph, profile)
        self._known: dict[tuple[str, int, str], float] = {}
        self._transmitted: dict[tuple[str, float], float | None] = {}
        self._white: dict[tuple[str, int], float | None] = {}
        self.corrections: Corrections | None = None
        self.steep: tuple[Node, ...] = ()
        self.levels: Mapping[str, Level] = {}

    def corrected(self, corrections: Corrections, steep: tuple[Node, ...]) -> NoiseGains:
        """Return these gains with corrections, which `forecast_flow` applies.

        Args:
            corrections: of all nodes.
            steep: functions of one variable, in graph order, whose gain depends on the level of noise.
        """
        found = copy(self)
        found.corrections, found.steep = corrections, steep
        return found

    def at_levels(self, levels: Mapping[str, Level]) -> NoiseGains:
        """Return these gains for the noise that there is in the inputs of steep functions, by node."""
        found = copy(self)
        found.levels = levels
        return found

    def of_weight_error(self, node: Node, index: int, error: float, result: str) -> float:
        """Return the noise power in an output of a node for an error of a weight, its square over that of
        it."""
        recurrence = self.recurrences.get(node.name)
        if recurrence is not None:
            of = recurrence.of_input_weight if index == 1 else recurrence.of_state_weight
            return of(error) * self.powers[result]
        white = self.white(node, 0) if index else None
        if white is None or not (source := self.powers.get(node.input(0))):
            return error * self.powers[result]
        return error * source * white

    def of(self, node: Node, index: int, name: str, result: str) -> float:
        """Return the noise power in an output of a node for one unit in its input `index`, called `name`."""
        key = (node.name, index, result)
        if key not in self._known:
            self._known[key] = self._computed(node, index, name, result)
        return self._known[key]

    def _computed(self, node: Node, index: int, name: str, result: str) -> float:
        recurrence = self.recurrences.get(node.name) if index == 0 else None
        if recurrence is not None:
            return self.powers[result] * recurrence.per_unit
        return gain(NoisyInput(node, index, name, self.graph, self.profile, self.powers, self.opset), result)

    def transmitted(self, node: Node, level: float) -> float | None:
        """Return the noise power in a function of one variable, see `NoisyInput.transmitted`."""
        key = (node.name, float(f"{level:.3g}"))
        if key not in self._transmitted:
            noisy = NoisyInput(node, 0, node.input(0), self.graph, self.profile, self.powers, self.opset)
            self._transmitted[key] = noisy.transmitted(key[1])
        return self._transmitted[key]

    def lasting(self, node: Node, index: int, name: str, result: str) -> float:
        """Return what becomes of the errors of weights: as `coloured`, at the level of such errors."""
        level = self.levels.get(node.name)
        if level is None or index:
            return self.coloured(node, index, name, result)
        return self._at(node, level.weights, name, result)

    def _at(self, node: Node, level: float, name: str, result: str) -> float:
        found = self.transmitted(node, level) if level > 0.0 else None
        return self.of(node, 0, name, result) if found is None else found / level

    def coloured(self, node: Node, index: int, name: str, result: str) -> float:
        """Return what becomes of noise that is coloured as the signal is, see `forecast_flow`."""
        if index == 0 and node.name in self.levels:
            return self._at(node, self.levels[node.name].rounding, name, result)
        if name in self.kept_by_clips:
            return self.kept_by_clips[name]
        rule, white = node.rule, self.white(node, index)
        if white is None and rule is not None and rule.is_mean:
            white = self.of(node, index, name, result)
        if white is None:
            return self.of(node, index, name, result)
        kept = self.powers[result] / self.kept_by_clips.get(result, 1.0) / self.powers[name]
        return kept if white > kept else math.sqrt(white * kept)

    def white(self, node: Node, index: int) -> float | None:
        """Return what a product lets through of white noise; None for all other nodes and inputs."""
        key = (node.name, index)
        if key not in self._white:
            rule, name = node.rule, node.input(index)
            noisy = NoisyInput(node, index, name, self.graph, self.profile, self.powers, self.opset)
            self._white[key] = None if rule is None or rule.gain is not None else _white(noisy, rule)
        return self._white[key]

    def rounding(self, node: Node, name: str) -> float:
        """Return the noise power in a node's output for one unit of rounding noise in its first input."""
        corrections = self.corrections or Corrections()
        return self.coloured(node, 0, name, node.output) * corrections.rounding.get(node.output, 1.0)

    def judged(self) -> tuple[str, ...]:
        """Return the tensors at which noise is judged: the outputs, or what they are put together from."""
        return _judged(self.graph, self.profile, self.powers)

    def results(self) -> tuple[str, ...]:
        """Return the outputs of the model that have a signal."""
        return tuple(name for name in self.graph.outputs if self.powers.get(name))


def _recurrences(graph: Graph, profile: Profile) -> Iterator[tuple[str, Recurrence]]:
    for node in graph.nodes:
        rule = node.rule
        found = recurrence_of(node, graph, profile) if rule is not None and rule.is_recurrent else None
        if found is not None:
            yield node.name, found


def noise_flow(gains_of: NoiseGains, outputs: tuple[str, ...]) -> NoiseFlow:
    """Estimate how noise propagates through a model, for choosing the nodes that stay float.

    Where noise was measured this is `forecast_flow`.

    Args:
        gains_of: the gains of its nodes.
        outputs: the tensors at which noise is judged; each must have a signal.
    """
    if gains_of.corrections is not None:
        return forecast_flow(gains_of, outputs)
    graph, powers = gains_of.graph, gains_of.powers
    reach = {name: unit / powers[name] for name, unit in zip(outputs, np.eye(len(outputs)), strict=True)}
    gains: dict[tuple[str, int], Floats] = {}
    for node in reversed(graph.nodes):
        results = [name for name in node.outputs if name in reach and powers.get(name)]
        if not results:
            continue
        for index in range(len(node.inputs)):
            name = node.input(index)
            if not powers.get(name):
                continue
            gains[node.name, index] = sum(
                (reach[result] * gains_of.of(node, index, name, result) for result in results),
                np.zeros(len(outputs)),
            )
            reach[name] = reach.get(name, 0.0) + gains[node.name, index]
    return NoiseFlow(outputs, gains, reach, powers, gains_of.recurrences, gains_of)


def forecast_flow(gains_of: NoiseGains, outputs: tuple[str, ...]) -> NoiseFlow:
    """Return how the noise of rounding reaches the outputs, for an estimate that is to be kept.

    It differs in two ways from `noise_flow`, by which nodes are chosen, with limits that are tuned to it.

    Noise is white where it enters, whatever the signal there: the first product after it lets through the
    mean square of its weights, also where that is more than it lets through of the signal (differences of
    neighbours, inputs with a mean that its weights cancel). From there on noise is neither white nor quite as
    the signal: it does not grow beside a signal that a product weakens, and where weights that fit the signal
    strengthen that, noise grows by the mean in dB of both. A mean over elements is such a product too.

    A tensor that only a clip reads has the profile of the clip's output. Its power is that before the clip,
    which lets through a part of it, but all of the noise of rounding what it keeps.

    Args:
        gains_of: the gains of its nodes.
        outputs: the tensors at which noise is judged; each must have a signal.
    """
    graph, powers = gains_of.graph, gains_of.powers
    corrections = gains_of.corrections or Corrections()
    units, none = zip(outputs, np.eye(len(outputs)), strict=True), np.zeros(len(outputs))
    coloured = {name: unit / powers[name] for name, unit in units}
    fresh, lasting = dict(coloured), dict(coloured)
    weight_reach: dict[str, Floats] = {}
    gains: dict[tuple[str, int], Floats] = {}
    for node in reversed(graph.nodes):
        results = [name for name in node.outputs if name in coloured and powers.get(name)]
        made = [_times(reach, results, corrections.rounding) for reach in (coloured, fresh)]
        of_weights = _times(lasting, results, corrections.weights)
        weight_reach |= of_weights
        for index in range(len(node.inputs)) if results else ():
            name = node.input(index)
            if powers.get(name):
                shared = {r: gains_of.coloured(node, index, name, r) for r in results}
                white = gains_of.white(node, index)
                if white is not None:
                    found = _summed(made[0], dict.fromkeys(results, white), none)
                else:
                    keeps = name in gains_of.kept_by_clips
                    found = _summed(made[1], dict.fromkeys(results, 1.0) if keeps else shared, none)
                gains[node.name, index] = found
                fresh[name] = fresh.get(name, none) + found
                coloured[name] = coloured.get(name, none) + _summed(made[0], shared, none)
                kept = {r: gains_of.lasting(node, index, name, r) for r in results}
                lasting[name] = lasting.get(name, none) + _summed(of_weights, kept, none)
    return NoiseFlow(
        outputs,
        gains,
        fresh,
        powers,
        gains_of.recurrences,
        gains_of,
        weight_reach if gains_of.corrections is not None else {},
    )


def _times(
    reach: Mapping[str, Floats], names: Iterable[str], factors: Mapping[str, float]
) -> dict[str, Floats]:
    return {name: reach[name] * factors.get(name, 1.0) for name in names}


def _summed(reach: Mapping[str, Floats], gains: Mapping[str, float], none: Floats) -> Floats:
    return sum((reach[name] * gain for name, gain in gains.items()), none)


def _kept_by_clips(graph: Graph, profile: Profile) -> dict[str, float]:
    """Return the share of its values that a clip keeps, for each tensor that has the profile of its clip."""
    found = {}
    for name in clip_outputs(graph):
        tensor = profile.get(name)
        if tensor is not None and tensor.histogram.total:
            values = density(tensor)
            ends = np.isin(values.points, (0.0, tensor.minimum, tensor.maximum))
            found[name] = max(1.0 - float(values.point_mass[ends].sum()), LEAST_KEPT)
    return found


def _judged(graph: Graph, profile: Profile, powers: Mapping[str, float]) -> tuple[str, ...]:
    """Return the tensors at which noise is judged: the outputs, or what they are put together from.

    Where there are others, states are none of them: they are judged by what is made of them.
    """
    found: dict[str, None] = {}
    states = fed_back(profile)
    waiting = [name for name in graph.outputs if name not in states] or list(graph.outputs)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        parts = [part for part in _parts(graph, name) if powers.get(part)]
        if parts:
            waiting += parts
        elif powers.get(name):
            found[name] = None
    return tuple(name for name in found if not is_last_state(graph, name)) or tuple(found)


def _parts(graph: Graph, name: str) -> list[str]:
    """Return the tensors of which `name` holds the very values, or probabilities; none where it is judged."""
    node = graph.producer(name)
    if node is None or node.rule is None:
        return []
    if node.rule.joins_inputs:
        return list(node.inputs)
    if node.rule.makes_probabilities or node.rule.constraint is Constraint.SAME:
        return [node.input(0)]
    source = softmax_input(node, graph)
    return [source] if source else []


def gain(noisy: NoisyInput, result: str) -> float:
    """Return the noise power in the output `result` for one unit of noise power in one input."""
    rule = noisy.node.rule
    kept = noisy.powers[result] / noisy.powers[noisy.source]  # as the signal
    if rule is None:
        return kept
    if rule.gain is not None:
        found = rule.gain(noisy, result)
    elif rule.weight is not None:
        found = _white(noisy, rule)
    elif (rule.unary or rule.constraint is Constraint.CLAMP) and noisy.index == 0:
        found = noisy.slope()
    else:
        found = 1.0 if rule.constraint in (Constraint.SAME, Constraint.ALL_SAME) else None
    if found is None:
        return kept
    return found if rule.unary or rule.makes_probabilities else min(found, kept)


def _white(noisy: NoisyInput, rule: Rule) -> float | None:
    """Return what a constant weight lets through of white noise; None where there is none."""
    if rule.weight is None or noisy.index != 0:
        return None
    weight = noisy.constant(rule.weight.index)
    if weight is None or weight.size == 0:
        return None
    axis = rule.weight.axis(noisy.node, weight.ndim)
    return float(np.square(weight).sum()) / (weight.shape[axis] if axis is not None else 1)


# Gains of noise, corrected by the noise that was measured while the model ran -----------------------------

MOST = 1e4
"""Most by which a gain is corrected, and its inverse the least: 40 dB."""


def measured_gains(graph: Graph, profile: Profile, opset: int, samples: Sequence[SampleNoise]) -> NoiseGains:
    """Return the gains of the nodes of a model, corrected by measured noise.

    The gains of single nodes follow from profile and weights, and take every noise as independent of every
    other. But errors of weights are the same at each place and in each sample, gates and softmaxes saturate,
    and sums cancel: after fifty layers such an estimate is off by 20 dB either way. A profile may hold how
    much noise each tensor had when all activations were rounded by a known step, and how much when all
    weights were in int8. What the gains predict for the result of a node, from the noise that was measured in
    its inputs, is held against what was measured there, and the gains of the node are multiplied by the
    ratio. So a plan that rounded as the measurement did would be estimated to have just the noise that was
    measured, at each tensor.

    Errors of weights are relative to the signal of each sample, as the measurement has them: the ratio is
    that of the sums over all samples. A plan rounds every sample by the same step, but the measurement each
    by its own level. So what a node makes of rounding is the mean of what it made of it in each sample: of a
    normalisation or a logarithm, which make as much of small values as of large ones, quiet samples count.

    Args:
        graph, profile, opset: of the prepared model.
        samples: noise as it was measured, of each sample; empty for gains that are not corrected.
    """
    gains = NoiseGains(graph, profile, opset)
    if not samples:
        return gains
    pooled = pooled_noise(samples)
    measured = _measured(gains, samples, pooled)
    rounding, weights = {}, {}
    steep = tuple(_steep(gains, measured))
    for node in graph.nodes:
        for result in node.outputs:
            if not gains.powers.get(result) or result not in measured:
                continue
            of_rounding, of_weights = np.zeros(len(samples) + 1), _own(gains, node, result)
            if node in steep:
                injected, before, by_weights = np.nan_to_num(measured[node.input(0)])
                of_rounding += [gains.transmitted(node, level) or 0.0 for level in injected + before]
                of_weights += gains.transmitted(node, by_weights[-1]) or 0.0
            for index, name in enumerate(() if node in steep else node.inputs):
                if gains.powers.get(name) and name in measured:
                    # NaN, what was not measured of an input, leaves the ratio unknown.
                    injected, before, by_weights = measured[name]
                    coloured, white = gains.coloured(node, index, name, result), gains.white(node, index)
                    of_rounding += coloured * before + (coloured if white is None else white) * injected
                    of_weights += coloured * float(by_weights[-1])
            if node.facts is CHAIN_RULE:
                of_rounding += _inside_chain(gains, node, samples, pooled)
            _, found, found_of_weights = measured[result]
            seen = ~np.isnan(found[:-1]) & ~np.isnan(of_rounding[:-1])
            rounding[result] = float(_ratio(found, of_rounding)[:-1][seen].mean()) if seen.any() else 1.0
            if node in steep:  # of all samples: what it makes of a level, it makes for values of all of them
                together = float(_ratio(found[-1:], of_rounding[-1:])[0])
                rounding[result] = max(together, 1.0)  # where a plan has 0, the measurement has half a step
            weights[result] = float(_ratio(found_of_weights[-1:], np.array([of_weights]))[0])
    return gains.corrected(Corrections(rounding, weights), steep)


STRAIGHT = 2.0
"""By which factor what a function lets through may differ from that in proportion to the noise, from the
measured level down to `LEVELS` of it, for its gain to be taken as the same at all levels."""

LEVELS = 1e-3
"""The range of levels, 30 dB."""


def _steep(gains: NoiseGains, measured: Mapping[str, Floats]) -> Iterator[Node]:
    """Yield the functions of one variable whose gain depends on the level of noise, in graph order.

    A logarithm has nothing more to lose of a value that is below the noise already, and most may be where
    they span decades: so what it lets through grows by less than the noise in its input, and less noise than
    was measured does more harm than the ratio of both says.
    """
    for node in gains.graph.nodes:
        rule, name = node.rule, node.input(0) if node.inputs else ""
        if rule is None or not rule.unary or name not in measured or not gains.powers.get(node.output):
            continue
        injected, before, _ = np.nan_to_num(measured[name])
        level = float(injected[-1] + before[-1])
        found = gains.transmitted(node, level) if level > 0.0 else None
        if found is not None and found > 0.0:
            less = (gains.transmitted(node, LEVELS * level) or 0.0) / LEVELS
            if not found / STRAIGHT <= less <= STRAIGHT * found:
                yield node


LOST = 10.0
"""Noise over signal in the copy with rounded activations beyond which what is measured there is no noise of a
plan: between products that stay float no plan rounds what the copy rounds."""


def _measured(
    gains: NoiseGains, samples: Sequence[SampleNoise], pooled: Mapping[str, TensorNoise]
) -> dict[str, Floats]:
    """Return the measured noise in each tensor, [3, samples + 1], the last column for all samples together.

    The rows are what its own rounding added, what it had before that, and what it had where weights were
    rounded; NaN where that was not measured. All are scaled to the signal of the profile: of a few samples
    noise is relative to theirs. A tensor that only a clip reads has the profile of the clip's output.
    """
    clipped = clip_outputs(gains.graph)
    unknown, found = TensorNoise(None, None, None), {}
    for name, together in pooled.items():
        profiled = clipped.get(name, name)
        power, other = gains.powers.get(profiled), pooled.get(profiled)
        if power and other is not None and other.signal:
            noises = [*(sample.tensors.get(name, unknown) for sample in samples), together]
            figures = [(noise.injected, noise.activation_noise, noise.weight_noise) for noise in noises]
            found[name] = np.array(figures, np.float64).T * (power / other.signal)
            # Where the copy lost its signal, as behind a divisor rounded away, it says nothing of a plan.
            found[name][1][found[name][1] > LOST * power] = np.nan
            found[name][0] *= _rounded_share(gains.profile[profiled], INJECTED * power)
    return found


def _inside_chain(
    gains: NoiseGains, node: Node, samples: Sequence[SampleNoise], pooled: Mapping[str, TensorNoise]
) -> Floats:
    """Return the noise in the result of a chain from what was rounded inside of it while noise was measured.

    A chain that is planned as one node rounds nothing there: the noise of that is not what the chain makes of
    the noise that it is given. One figure for each sample and one for all together, scaled to the profile.
    """
    chain, total = chain_of(node.ir_node), np.zeros(len(samples) + 1)
    source, signal = gains.profile.get(node.input(0)), pooled[node.output].signal
    if source is None or not signal:
        return total
    values, unknown = density(source), TensorNoise(None, None, None)
    for inner in (output_name(part) for part in chain.nodes[:-1]):
        if inner in pooled:
            slope = slope_inside(chain, inner, gains.opset)
            squared = mean_of(values, lambda x, slope=slope: np.square(slope(x)))  # type: ignore[misc]
            noises = [*(sample.tensors.get(inner, unknown) for sample in samples), pooled[inner]]
            total += squared * np.array([noise.injected for noise in noises])
    return total * gains.powers[node.output] / signal


def _rounded_share(tensor: TensorProfile, injected: float) -> float:
    """Return which part of the noise of rounding a tensor has by a step that all values are larger than.

    A value below half a step loses itself, no more. Where most are, as of powers of a spectrum, rounding
    brings far less noise than the step says. The share counts below a half.
    """
    step = np.array([math.sqrt(12.0 * injected)], np.float32)  # as `measure.FloatTensor.step`
    if not step[0] > 0.0 or not np.isfinite(step[0]):
        return 1.0
    params = QuantParams(step, np.zeros(1, np.int32), INT32)
    noise = expected_noise(tensor, params, known=octaves_near_zero(density(tensor)))
    share = noise.rounding_power / injected
    return share if share < 1.0 / STRAIGHT else 1.0


def _own(gains: NoiseGains, node: Node, result: str) -> float:
    """Return the noise that the weights of a node bring into its result in int8, as they were measured."""
    total = 0.0
    for index, layout in quantizable_constants(node.ir_node):
        exact = node.constant(index)
        rounded = None if exact is None else rounded_weight(node.ir_node, layout, exact)
        if exact is not None and rounded is not None and exact.any():
            share = relative_power(rounded - exact, exact)
            total += gains.of_weight_error(node, index, share, result)
    return total


def _ratio(measured: Floats, expected: Floats) -> Floats:
    """Return measured over expected noise, within `MOST`; 1 where either is not known."""
    known = ~np.isnan(measured) & (expected > 0.0)
    ratio = np.divide(measured, expected, out=np.ones_like(expected), where=known)
    return np.where(known, np.clip(ratio, 1.0 / MOST, MOST), 1.0)


def left_by_bias_correction(gains: NoiseGains, node: Node) -> float:
    """Return the part of the noise of a rounded weight that bias correction cannot take away.

    It takes the error of the mean input. What is left of the power of each input channel is its variance. An
    error is taken to be as large as the largest weight of its output channel, over which a step is shared.
    """
    layout, tensor = product_layout(node), gains.profile.get(node.input(0))
    if layout is None or tensor is None or tensor.channels is None or layout.bias_place(node.ir_node) is None:
        return 1.0
    weight = gains.graph.constant(node.input(layout.index))
    mean, power = (np.asarray(v, np.float64) for v in (tensor.channels.mean, tensor.channels.power))
    if weight is None:
        return 1.0
    blocks = layout.axes(node, weight.shape).blocks(np.asarray(weight, np.float64))
    if blocks.shape[0] * blocks.shape[2] != mean.size:
        return 1.0
    steps = np.square(np.abs(blocks).max(axis=(2, 3)))  # of each output channel
    whole = float(np.einsum("go,gi->", steps, power.reshape(blocks.shape[0], -1)))
    varying = np.maximum(power - np.square(mean), 0.0).reshape(blocks.shape[0], -1)
    return float(np.einsum("go,gi->", steps, varying)) / whole if whole > 0.0 else 1.0
