"""The noise estimate of a plan: where it rounds, how much noise that is, and what it comes to at the outputs.

Pure. `propagation` says how noise travels; this module says where it enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from ..numerics.affine import QuantParams
from ..numerics.density import density, mean_of, mean_square_of_largest
from ..numerics.quantization_noise import expected_noise, relative_power, weight_error
from ..numerics.schemas import dynamic_params
from ..operators.functions import PointwiseChain, chain_nodes, function_of_chain
from ..operators.graph import Node
from ..operators.noise_gains import error_after
from ..operators.saturating import Saturation, correction_of, gate_params
from ..operators.table import Rule, product_layout
from ..plan.plan import BIAS_CORRECTED, ROUNDS_IN_KERNEL, UNBLOCKED, Kind, QuantPlan
from .activation_ranges import ActivationRanges, is_function_of
from .propagation import STRAIGHT, Level, NoiseFlow, NoiseGains, forecast_flow

Floats = npt.NDArray[np.float64]

ROUNDING = 1.0 / 12.0
"""Power of rounding, in squares of the step."""

QUIET_SEQUENCES = 10.0
"""By how much the rounding of a recurrent node's input is more than on drawn sequences, none of which is of
low level as a whole: of six trained LSTMs the estimates were 10 to 23 dB too good."""


@dataclass(frozen=True, eq=False)
class NoiseSource:
    """A place where values are rounded.

    Attributes:
        node: the node that would have to stay float for it to vanish.
        tensor: the activation or weight that is rounded.
        share: its noise power over signal power at each output of the flow.
        is_inner: whether it is rounded on the way to the result of the node, so that it vanishes with the
            node, whatever else is quantized.
    """

    node: str
    tensor: str
    share: Floats
    is_inner: bool = False


@dataclass(frozen=True, eq=False)
class NoiseEstimator:
    """Estimates the noise of plans of one model.

    Attributes:
        activations: of the model.
        gains: how its nodes pass noise on.
        left: returns, by activation and weight, the part of the noise of its rounding that is left once the
            channels are equalized; all of it for others.
        weight_errors: see `weight_error`; each computed when first needed, as all that follows.
        after_functions: the error of float functions of a quantized tensor, by its name, its parameters and
            the result.
        uncorrected: what `left_by_bias_correction` is for a node, by name.
    """

    activations: ActivationRanges
    gains: NoiseGains
    left: Callable[[], Mapping[str, float]] = dict
    weight_errors: dict[tuple[str, QuantParams], float | None] = field(default_factory=dict)
    after_functions: dict[tuple[str, QuantParams, str], float] = field(default_factory=dict, init=False)
    uncorrected: dict[str, float] = field(default_factory=dict, init=False)

    def estimated_sqnr(self, plan: QuantPlan, others: Iterable[str] = ()) -> dict[str, float]:
        """Return the SQNR in dB, to hundredths, that a plan is estimated to keep at each output of the model.

        Outputs without signal or without noise are left out.

        Args:
            plan: of the model.
            others: further tensors, each with a signal.
        """
        outputs = tuple(dict.fromkeys([*self.gains.outputs_with_signal(), *others]))
        flow = forecast_flow(self.gains_of(plan), outputs)
        sources = chain(self.sources(flow, plan), self.dynamic_inputs(flow, plan))
        total = sum((source.share for source in sources), np.zeros(len(flow.outputs)))
        pairs = zip(flow.outputs, total.tolist(), strict=True)
        return {name: round(decibels_of(share), 2) for name, share in pairs if 0.0 < share < math.inf}

    def by_node(self, flow: NoiseFlow, plan: QuantPlan) -> dict[str, Floats]:
        """Return what each node of a plan adds to the noise over the signal at every output of a flow."""
        noise: dict[str, Floats] = {}
        for source in self.sources(flow, plan):
            noise[source.node] = noise.get(source.node, 0.0) + source.share
        return noise

    def gains_of(self, plan: QuantPlan) -> NoiseGains:
        """Return the gains at the levels of noise that a plan makes in the inputs of steep functions."""
        levels: dict[str, Level] = {}
        for node in self.gains.steep:
            name = node.input(0)
            flow = forecast_flow(self.gains.at_levels(levels), (name,))
            rounding = weights = np.zeros(1)
            for source in chain(self.dynamic_inputs(flow, plan), self.sources(flow, plan)):
                if self.activations.graph.is_constant(source.tensor):
                    weights = weights + source.share
                else:
                    rounding = rounding + source.share
            power = self.gains.powers[name]
            levels[node.name] = Level(float(rounding[0]) * power, float(weights[0]) * power)
        return self.gains.at_levels(levels)

    def sources(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield every place where a plan rounds, with the part of the noise that equalization leaves.

        The inputs of dynamic products are none of them, see `dynamic_inputs`.

        Args:
            flow: how noise travels in this model.
            plan: of the model.
        """
        before_equalization = chain(
            self._rounded_tensors(flow, plan),
            self._after_float_functions(flow, plan),
            self._rounded_in_kernels(flow, plan),
            self._measured_weights(flow, plan) if flow.weight_reach else (),
        )
        for source in before_equalization:
            kind = plan.nodes[source.node].kind
            if kind is Kind.WEIGHT_ONLY:  # its activation is float, so that nothing is equalized for it
                yield source
                continue
            left = self.left().get(source.tensor)
            yield source if left is None else replace(source, share=source.share * left)

    def dynamic_inputs(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield the rounding of what dynamic products read, with one range for all samples.

        A sample that spans less has less noise, but no node is chosen by this: it is the estimate to be kept.
        """
        for node in self.activations.graph.nodes:
            rule, name = node.rule, node.input(0)
            through = flow.gains.get((node.name, 0))
            if plan.nodes[node.name].kind is not Kind.DYNAMIC or through is None:
                continue
            if rule is not None and rule.weight is not None:
                tensor = self.activations.profile[name]
                noise = expected_noise(tensor, dynamic_params(tensor.minimum, tensor.maximum))
                yield NoiseSource(node.name, name, through * (noise.rounding_power + noise.clipping_power))

    def _rounding_noise(self, name: str, params: QuantParams) -> float:
        """Return the noise power of quantizing an activation, the values that saturate included."""
        noise = self.activations.noise(name, params)
        return noise.rounding_power + noise.clipping_power

    def _rounded_tensors(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield the activations that nodes round, and their weights where no noise was measured."""
        graph = self.activations.graph
        for node in graph.nodes:
            entry = plan.nodes[node.name]
            if entry.kind.reads_quantized or entry.keeps_int8_cache:
                # Activations that come in float, or with other parameters.
                for index, name in enumerate(node.inputs):
                    params = plan.params_read(node.name, index, name)
                    gain = flow.gains.get((node.name, index))
                    if params is None or gain is None:
                        continue
                    producer = graph.producer(name)
                    is_quantized = producer is not None and plan.nodes[producer.name].kind.reads_quantized
                    if not (is_quantized and name in plan.tensors) or index in entry.inputs:
                        yield NoiseSource(node.name, name, gain * self._rounding_noise(name, params))
            if entry.kind in (Kind.QUANTIZED, Kind.LOOKUP_TABLE):
                for name in node.results:
                    if name in plan.tensors and name in flow.reach:
                        power = self._rounding_noise(name, plan.tensors[name])
                        yield NoiseSource(node.name, name, flow.reach[name] * power)
                name, power = node.results[0], inner_rounding(node, plan, self.activations)
                if power > 0.0 and name in flow.reach:
                    yield NoiseSource(node.name, name, flow.reach[name] * power, is_inner=True)
            if entry.kind is Kind.DYNAMIC:
                yield from self._dynamic_recurrence(node, flow)
            if entry.kind is not Kind.FLOAT and not flow.weight_reach:
                yield from self._unmeasured_weights(node, flow, plan)

    def _dynamic_recurrence(self, node: Node, flow: NoiseFlow) -> Iterator[NoiseSource]:
        """Yield what a dynamic recurrent node rounds of its input and states, by the range of all samples.

        Products are left out: one sample may span much less than all, and mode auto has checked them.
        """
        rule, source = node.rule, node.inputs[0]
        through, recurrence = flow.gains.get((node.name, 0)), self.gains.recurrences.get(node.name)
        if rule is None or rule.weight is not None or not source or through is None or recurrence is None:
            return
        # The states of all steps; of a node whose first output nothing reads, the last one stands for them.
        states = [name for name in node.outputs[:2] if self.gains.powers.get(name)][:1]
        for name in (source, *states):
            if self.gains.powers.get(name):
                tensor = self.activations.profile[name]
                params = dynamic_params(tensor.minimum, tensor.maximum)
                if name == source:
                    lost = recurrence.of_rounding(params.tensor_scale)
                else:
                    noise = expected_noise(tensor, params)
                    # The result itself is float; rounded is what the next step reads of it.
                    lost = recurrence.of_state(noise.rounding_power + noise.clipping_power)
                lost *= QUIET_SEQUENCES
                yield NoiseSource(
                    node.name, name, through * (lost / recurrence.per_unit), is_inner=name != source
                )

    def _after_float_functions(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield what float functions of quantized tensors make of their errors beyond what the gains say."""
        graph = self.activations.graph
        for maker in graph.nodes:
            if not plan.nodes[maker.name].kind.reads_quantized:
                continue
            for name in maker.results:
                if name not in plan.tensors or name not in flow.reach:
                    continue
                power = self._rounding_noise(name, plan.tensors[name])
                for reader, index in graph.consumers(name) if power > 0.0 else ():
                    beyond = self._beyond_gains(reader, name, plan, flow, power) if index == 0 else None
                    if beyond is not None:
                        result, noise = beyond
                        yield NoiseSource(maker.name, name, flow.reach_of(result) * noise)

    def _beyond_gains(
        self, reader: Node, name: str, plan: QuantPlan, flow: NoiseFlow, power: float
    ) -> tuple[str, float] | None:
        """Return the last result of float functions of a tensor, and its noise beyond what gains tell."""
        graph, node = self.activations.graph, reader
        functions, result, gain = list[Node](), name, 1.0
        while plan.nodes[node.name].kind is Kind.FLOAT and is_function_of(node, [result], graph):
            if not self.gains.powers.get(node.output):
                break
            functions.append(node)
            gain *= flow.node_gains.corrected_rounding_gain(node, result)
            result = node.output
            readers = [reader for reader, _ in graph.consumers(result)]
            if len(readers) != 1 or graph.is_result(result):
                break
            node = readers[0]
        if not any(n.rule is not None and n.rule.unary for n in functions):
            return None
        key = (name, plan.tensors[name], result)
        if key not in self.after_functions:
            chain_parts = tuple(part for n in functions for part in chain_nodes(n.ir_node))
            try:
                function = function_of_chain(
                    PointwiseChain(chain_parts, graph.values[name]), self.activations.opset
                )
                error = error_after(function, self.activations.profile[name], plan.tensors[name])
            except PlanError:
                error = 0.0
            self.after_functions[key] = error
        error = self.after_functions[key]
        return (result, error - gain * power) if error > STRAIGHT * gain * power else None

    def _rounded_in_kernels(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield what onnxruntime's kernel of packed weights rounds of its activations: 8 bits, a scale for
        each block of a row.

        The step is the largest magnitude of a block over 127. What that is in the mean is that of as many
        values drawn from the profile: a little too much where values of a block are alike.
        """
        for node in self.activations.graph.nodes:
            entry, through = plan.nodes[node.name], flow.gains.get((node.name, 0))
            tensor = self.activations.profile.get(node.input(0)) if node.inputs else None
            if entry.implementation != ROUNDS_IN_KERNEL or entry.kind is not Kind.WEIGHT_ONLY:
                continue
            if through is None or tensor is None or not tensor.histogram.total:
                continue
            sizes = [params.block_size or UNBLOCKED for params in entry.inputs.values()]
            largest = mean_square_of_largest(density(tensor), max(sizes, default=UNBLOCKED))
            share = through * (ROUNDING * largest / 127.0**2)
            yield NoiseSource(node.name, node.input(0), share, is_inner=True)

    def _constant_errors(self, node: Node, rule: Rule, plan: QuantPlan) -> Iterator[tuple[int, str, float]]:
        """Yield the constant weights of a node that a plan quantizes: input index, name, relative error."""
        for index in (weight.index for weight in rule.constants):
            name = node.input(index)
            params = plan.params_read(node.name, index, name)
            error = None if params is None else self.weight_error(name, params)
            if error is not None:
                yield index, name, error

    def _unmeasured_weights(self, node: Node, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield constant weights without measurement: rounding is as much of the result as of the weight."""
        rule, source = node.rule, node.inputs[0] if node.inputs else None
        through, recurrence = flow.gains.get((node.name, 0)), self.gains.recurrences.get(node.name)
        if rule is None or not source or through is None:
            return
        for index, name, error in self._constant_errors(node, rule, plan):
            if recurrence is None:
                power = error * self.gains.powers[source]
            elif index == 1:
                power = recurrence.of_input_weight(error) / recurrence.per_unit
            else:
                power = recurrence.of_state_weight(error) / recurrence.per_unit
            yield NoiseSource(node.name, name, through * power)

    def _measured_weights(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield constant weights where noise was measured."""
        for node in self.activations.graph.nodes:
            kind, rule = plan.nodes[node.name].kind, node.rule
            results = [name for name in node.results if name in flow.weight_reach]
            if kind is Kind.FLOAT or rule is None or not results:
                continue
            for index, name, rounding_error in self._constant_errors(node, rule, plan):
                error = rounding_error
                if plan.config.bias_correction == "auto" and kind in BIAS_CORRECTED:
                    if node.name not in self.uncorrected:
                        self.uncorrected[node.name] = left_by_bias_correction(self.gains, node)
                    error *= self.uncorrected[node.name]
                shares = (
                    flow.weight_reach[r] * self.gains.noise_of_weight_error(node, index, error, r)
                    for r in results
                )
                yield NoiseSource(node.name, name, sum(shares, np.zeros(len(flow.outputs))))

    def weight_error(self, name: str, params: QuantParams) -> float | None:
        """Return the squared error of a quantized weight over its square; None for no constant, or 0."""
        key = (name, params)
        if key not in self.weight_errors:
            weight, error = self.gains.graph.constant(name), None
            if weight is not None and weight.any():
                exact = weight.astype(np.float32, copy=False)
                error = relative_power(weight_error(exact, params), exact)
            self.weight_errors[key] = error
        return self.weight_errors[key]


def decibels_of(share: float) -> float:
    """Return noise over signal as an SQNR in dB."""
    return -10.0 * math.log10(share)


def inner_rounding(node: Node, plan: QuantPlan, activations: ActivationRanges) -> float:
    """Return the noise power in the result of a node from the rounding of its gate or correction.

    HardSwish multiplies its gate, and the rounding of it, by x; where the gate is 0 or 1 it is exact. PRelu
    adds its correction where x is negative.

    Args:
        node: of the model.
        plan: its plan; 0 is returned for a node whose implementation is not "saturating".
        activations: of the model.
    """
    name, entry = node.input(0), plan.nodes[node.name]
    params, tensor = plan.params_read(node.name, 0, name), activations.profile.get(name)
    if entry.implementation != "saturating" or params is None or tensor is None or not tensor.histogram.total:
        return 0.0
    values = density(tensor)
    saturation = None if node.rule is None else node.rule.saturation
    if saturation is Saturation.GATED:
        step = gate_params(params.qtype).tensor_scale
        return ROUNDING * step**2 * mean_of(values, lambda x: np.square(x) * (np.abs(x) < 3.0))
    if saturation is Saturation.CORRECTED:
        read = plan.params_read(node.name, 1, node.input(1))
        found = None if read is None else correction_of(params, read)
        if found is not None:
            below_zero = mean_of(values, lambda x: np.less(x, 0.0).astype(np.float64))
            return ROUNDING * found.params.tensor_scale**2 * below_zero
    return 0.0


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
