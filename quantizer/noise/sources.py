"""Where a plan rounds, how much noise that is, and what it comes to at the outputs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from ..numerics.affine import QuantParams
from ..numerics.density import density, mean_of, mean_square_of_largest
from ..numerics.quantization_noise import Noise, expected_noise, relative_power, weight_error
from ..numerics.schemas import dynamic_params
from ..operators.functions import PointwiseChain, chain_nodes, function_of_chain
from ..operators.graph import Graph, Node
from ..operators.noise_gains import error_after
from ..operators.saturating import Saturation, correction_of, gate_params
from ..plan.plan import BIAS_CORRECTED, ON_CODES, ROUNDS_IN_KERNEL, UNBLOCKED, Kind, QuantPlan
from .activation_ranges import ActivationRanges, is_function_of
from .propagation import STRAIGHT, Level, NoiseFlow, NoiseGains, forecast_flow, left_by_bias_correction

Floats = npt.NDArray[np.float64]


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
    """What the noise of plans of one model is estimated from.

    Attributes:
        activations: of the model.
        gains: how its nodes pass noise on.
        errors: of its weights.
        left: by activation and weight, the part of the noise of its rounding that is left once the channels
            are equalized; all of it for others.
        after: the error of float functions of a quantized tensor, by its name, its parameters and the result.
        uncorrected: what `left_by_bias_correction` is for a node, by name; each computed when first needed.
    """

    activations: ActivationRanges
    gains: NoiseGains
    errors: WeightErrors
    left: Mapping[str, float] = field(default_factory=dict)
    after: dict[tuple[str, QuantParams, str], float] = field(default_factory=dict, init=False)
    uncorrected: dict[str, float] = field(default_factory=dict, init=False)

    def sources(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield every place where a plan rounds, see `noise_sources`."""
        for source in self._before_equalization(flow, plan):
            left = self.left.get(source.tensor)
            yield source if left is None else replace(source, share=source.share * left)

    def _before_equalization(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        yield from noise_sources(flow, plan, self.activations, self.errors)
        yield from self._after_functions(flow, plan)
        yield from rounded_in_kernels(flow, plan, self.activations)
        if flow.weight_reach:
            for node in self.activations.graph.nodes:
                if plan.nodes[node.name].kind is not Kind.FLOAT:
                    yield from self._of_weights(node, flow, plan)

    def _after_functions(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield what float functions of quantized tensors make of their errors beyond what the gains say."""
        graph = self.activations.graph
        for maker in graph.nodes:
            if plan.nodes[maker.name].kind not in ON_CODES:
                continue
            for name in (name for name in maker.results if name in plan.tensors):
                power = (
                    _power(self.activations.noise(name, plan.tensors[name])) if name in flow.reach else 0.0
                )
                for reader, index in graph.consumers(name) if power > 0.0 else ():
                    further = self._beyond(reader, name, plan, flow, power) if index == 0 else None
                    if further is not None:
                        yield NoiseSource(maker.name, name, flow.reach_of(further[0]) * further[1])

    def _beyond(
        self, reader: Node, name: str, plan: QuantPlan, flow: NoiseFlow, power: float
    ) -> tuple[str, float] | None:
        """Return the last result of float functions of a tensor, and its noise beyond what gains tell."""
        graph, opset, node = self.activations.graph, self.activations.opset, reader
        nodes, source, gain = list[Node](), name, 1.0
        while plan.nodes[node.name].kind is Kind.FLOAT and is_function_of(node, [source], graph):
            if not flow.powers.get(node.output):
                break
            nodes.append(node)
            gain *= flow.of_nodes.rounding(node, source)
            source = node.output
            further = [n for n, _ in graph.consumers(source)]
            if len(further) != 1 or graph.is_result(source):
                break
            node = further[0]
        if not any(n.rule is not None and n.rule.unary for n in nodes):
            return None
        key = (name, plan.tensors[name], source)
        if key not in self.after:
            chain = PointwiseChain(
                tuple(p for n in nodes for p in chain_nodes(n.ir_node)), graph.values[name]
            )
            try:
                function = function_of_chain(chain, opset)
                self.after[key] = error_after(function, self.activations.profile[name], plan.tensors[name])
            except PlanError:
                self.after[key] = 0.0
        found = self.after[key]
        return (source, found - gain * power) if found > STRAIGHT * gain * power else None

    def gains_of(self, plan: QuantPlan) -> NoiseGains:
        """Return the gains at the levels of noise that a plan makes in the inputs of steep functions."""
        levels: dict[str, Level] = {}
        for node in self.gains.steep:
            name = node.input(0)
            flow = forecast_flow(self.gains.at_levels(levels), (name,))
            parts = ([s.share for s in some] for some in self._both(flow, plan))
            rounding, weights = (float(sum(part, np.zeros(1))[0]) * flow.powers[name] for part in parts)
            levels[node.name] = Level(rounding, weights)
        return self.gains.at_levels(levels)

    def _both(self, flow: NoiseFlow, plan: QuantPlan) -> tuple[list[NoiseSource], list[NoiseSource]]:
        """Return where a plan rounds activations, and where weights."""
        graph = self.activations.graph
        rounding, weights = list(dynamic_inputs(flow, plan, self.activations)), list[NoiseSource]()
        for source in self.sources(flow, plan):
            (weights if graph.is_constant(source.tensor) else rounding).append(source)
        return rounding, weights

    def _of_weights(self, node: Node, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Constant weights, where noise was measured."""
        rule, results = node.rule, [name for name in node.results if name in flow.weight_reach]
        for index in () if rule is None or not results else (weight.index for weight in rule.constants):
            name = node.input(index)
            params = plan.params_read(node.name, index, name)
            error = None if params is None else self.errors.of(name, params)
            if error is None:
                continue
            if plan.config.bias_correction == "auto" and plan.nodes[node.name].kind in BIAS_CORRECTED:
                error *= self._left_by_bias_correction(node)
            found = (
                flow.weight_reach[r] * self.gains.of_weight_error(node, index, error, r) for r in results
            )
            yield NoiseSource(node.name, name, sum(found, np.zeros(len(flow.outputs))))

    def _left_by_bias_correction(self, node: Node) -> float:
        name = node.name
        if name not in self.uncorrected:
            self.uncorrected[name] = left_by_bias_correction(self.gains, node)
        return self.uncorrected[name]

    def by_node(self, flow: NoiseFlow, plan: QuantPlan) -> dict[str, Floats]:
        """Return what each node of a plan adds to the noise over the signal at every output of a flow."""
        found: dict[str, Floats] = {}
        for source in self.sources(flow, plan):
            found[source.node] = found.get(source.node, 0.0) + source.share
        return found

    def estimated_sqnr(self, plan: QuantPlan, others: Iterable[str] = ()) -> dict[str, float]:
        """Return the SQNR in dB, to hundredths, that a plan is estimated to keep at each output of the model.

        Outputs without signal or without noise are left out.

        Args:
            plan: of the model.
            others: further tensors, each with a signal.
        """
        outputs = tuple(dict.fromkeys([*self.gains.results(), *others]))
        flow = forecast_flow(self.gains_of(plan), outputs)
        sources = chain(self.sources(flow, plan), dynamic_inputs(flow, plan, self.activations))
        total = sum((source.share for source in sources), np.zeros(len(flow.outputs)))
        pairs = zip(flow.outputs, total.tolist(), strict=True)
        return {name: round(decibels_of(share), 2) for name, share in pairs if 0.0 < share < math.inf}


def decibels_of(share: float) -> float:
    """Return noise over signal as an SQNR in dB."""
    return -10.0 * math.log10(share)


class WeightErrors:
    """Squared errors of quantized weights over their squares, each computed when it is first asked for."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[tuple[str, QuantParams], float | None] = {}

    def of(self, name: str, params: QuantParams) -> float | None:
        """Return the error of a constant with these parameters; None for one that is no constant, or 0."""
        if (name, params) not in self._known:
            self._known[name, params] = self._computed(name, params)
        return self._known[name, params]

    def _computed(self, name: str, params: QuantParams) -> float | None:
        weight = self._graph.constant(name)
        if weight is None or not weight.any():
            return None
        exact = weight.astype(np.float32, copy=False)
        return relative_power(weight_error(exact, params), exact)


def noise_sources(
    flow: NoiseFlow, plan: QuantPlan, activations: ActivationRanges, errors: WeightErrors
) -> Iterator[NoiseSource]:
    """Yield every place where a plan rounds, in graph order.

    Args:
        flow: how noise travels in this model.
        plan: the plan.
        activations: of the model.
        errors: of its weights.
    """
    for node in activations.graph.nodes:
        entry = plan.nodes[node.name]
        if entry.kind in ON_CODES or entry.keeps_int8_cache:
            yield from _conversions(node, flow, plan, activations)
        if entry.kind in (Kind.QUANTIZED, Kind.LOOKUP_TABLE):
            yield from _results(node, flow, plan, activations)
            yield from _inside(node, flow, plan, activations)
        if entry.kind is Kind.DYNAMIC:
            yield from _at_run_time(node, flow, activations)
        if entry.kind is not Kind.FLOAT and not flow.weight_reach:
            yield from _weights(node, flow, plan, errors)


def _conversions(
    node: Node, flow: NoiseFlow, plan: QuantPlan, activations: ActivationRanges
) -> Iterator[NoiseSource]:
    """Activations that come in float, or with other parameters."""
    own = plan.nodes[node.name].inputs
    for index in range(len(node.inputs)):
        name = node.input(index)
        params = plan.params_read(node.name, index, name)
        gain = flow.gains.get((node.name, index))
        if params is None or gain is None:
            continue
        producer = activations.graph.producer(name)
        quantized = producer is not None and plan.nodes[producer.name].kind in ON_CODES
        if not (quantized and name in plan.tensors) or index in own:
            noise = activations.noise(name, params)
            yield NoiseSource(node.name, name, gain * _power(noise))


def _results(
    node: Node, flow: NoiseFlow, plan: QuantPlan, activations: ActivationRanges
) -> Iterator[NoiseSource]:
    """Activations that the node rounds when it is done."""
    for name in node.results:
        if name in plan.tensors and name in flow.reach:
            noise = activations.noise(name, plan.tensors[name])
            yield NoiseSource(node.name, name, flow.reach[name] * _power(noise))


def _inside(
    node: Node, flow: NoiseFlow, plan: QuantPlan, activations: ActivationRanges
) -> Iterator[NoiseSource]:
    """What the node rounds on the way to its result."""
    name = node.results[0]
    power = inner_rounding(node, plan, activations)
    if power > 0.0 and name in flow.reach:
        yield NoiseSource(node.name, name, flow.reach[name] * power, is_inner=True)


ROUNDING = 1.0 / 12.0
"""Power of rounding, in squares of the step."""


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


def _power(noise: Noise) -> float:
    return noise.rounding_power + noise.clipping_power


def _weights(node: Node, flow: NoiseFlow, plan: QuantPlan, errors: WeightErrors) -> Iterator[NoiseSource]:
    """Constant weights: their rounding is as much of the result as of the weight."""
    rule, source = node.rule, node.inputs[0] if node.inputs else None
    through = flow.gains.get((node.name, 0))
    if rule is None or not source or through is None:
        return
    for index in (weight.index for weight in rule.constants):
        name = node.input(index)
        params = plan.params_read(node.name, index, name)
        error = None if params is None else errors.of(name, params)
        if error is None:
            continue
        recurrence = flow.recurrences.get(node.name)
        if recurrence is None:
            power = error * flow.powers[source]
        elif index == 1:
            power = recurrence.of_input_weight(error) / recurrence.per_unit
        else:
            power = recurrence.of_state_weight(error) / recurrence.per_unit
        yield NoiseSource(node.name, name, through * power)


def rounded_in_kernels(
    flow: NoiseFlow, plan: QuantPlan, activations: ActivationRanges
) -> Iterator[NoiseSource]:
    """Yield what onnxruntime's kernel of packed weights rounds of its activations: 8 bits, a scale for each
    block of a row.

    The step is the largest magnitude of a block over 127. What that is in the mean is that of as many values
    drawn from the profile: a little too much where values of a block are alike.
    """
    for node in activations.graph.nodes:
        entry, through = plan.nodes[node.name], flow.gains.get((node.name, 0))
        tensor = activations.profile.get(node.input(0)) if node.inputs else None
        if entry.implementation != ROUNDS_IN_KERNEL or entry.kind is not Kind.WEIGHT_ONLY:
            continue
        if through is None or tensor is None or not tensor.histogram.total:
            continue
        sizes = [params.block_size or UNBLOCKED for params in entry.inputs.values()]
        largest = mean_square_of_largest(density(tensor), max(sizes, default=UNBLOCKED))
        yield NoiseSource(node.name, node.input(0), through * (ROUNDING * largest / 127.0**2), is_inner=True)


QUIET_SEQUENCES = 10.0
"""By how much the rounding of a recurrent node's input is more than on drawn sequences, none of which is of
low level as a whole: of six trained LSTMs the estimates were 10 to 23 dB too good."""


def _at_run_time(node: Node, flow: NoiseFlow, activations: ActivationRanges) -> Iterator[NoiseSource]:
    """What a dynamic node rounds, estimated for the range of all samples; of its input and its states.

    Not of products: one sample may span much less than all, and mode auto has checked them.
    """
    rule, source = node.rule, node.inputs[0]
    through = flow.gains.get((node.name, 0))
    if rule is None or rule.weight is not None or not source or through is None:
        return
    recurrence = flow.recurrences.get(node.name)
    if recurrence is None:
        return
    # The states of all steps; of a node whose first output nothing reads, the last one stands for them.
    states = [name for name in node.outputs[:2] if flow.powers.get(name)][:1]
    for name in (source, *states):
        if flow.powers.get(name):
            tensor = activations.profile[name]
            params = dynamic_params(tensor.minimum, tensor.maximum)
            if name == source:
                lost = recurrence.of_rounding(params.tensor_scale)
            else:
                noise = expected_noise(tensor, params)
                # The result itself is float; rounded is what the next step reads of it.
                lost = recurrence.of_state(_power(noise))
            lost *= QUIET_SEQUENCES
            yield NoiseSource(
                node.name, name, through * (lost / recurrence.per_unit), is_inner=name != source
            )


def dynamic_inputs(flow: NoiseFlow, plan: QuantPlan, activations: ActivationRanges) -> Iterator[NoiseSource]:
    """Yield the rounding of what dynamic products read, with one range for all samples.

    A sample that spans less has less noise, but no node is chosen by this: it is the estimate to be kept.
    """
    for node in activations.graph.nodes:
        rule, name = node.rule, node.input(0)
        through = flow.gains.get((node.name, 0))
        if plan.nodes[node.name].kind is not Kind.DYNAMIC or through is None:
            continue
        if rule is not None and rule.weight is not None:
            tensor = activations.profile[name]
            noise = expected_noise(tensor, dynamic_params(tensor.minimum, tensor.maximum))
            yield NoiseSource(node.name, name, through * _power(noise))
