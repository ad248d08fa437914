"""The noise estimate of a plan: its roundings, their noise, and the sum at the outputs.

Pure. `propagation` describes the propagation of noise, this module its sources.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from ...profiles.base.once import computed_once
from ...profiles.base.seconds import clocked
from ...profiles.base.tuned import tuned
from ..numerics.affine import QuantParams
from ..numerics.density import density, mean_square_of_largest
from ..numerics.quantization_noise import expected_noise, relative_weight_error
from ..numerics.schemas import dynamic_params
from ..operators.functions import PointwiseChain, chain_nodes, function_of_chain
from ..operators.graph import Node
from ..operators.noise_gains import error_after
from ..operators.table import Rule, product_layout
from ..plan.plan import BIAS_CORRECTED, ROUNDS_IN_KERNEL, UNBLOCKED, Kind, QuantPlan
from .activation_ranges import ActivationRanges, is_function_of
from .constant_errors import without_constant_errors
from .propagation import STRAIGHT, Entrance, Level, NoiseFlow, NoiseGains, WeightErrors, forecast_flow

Floats = npt.NDArray[np.float64]

ROUNDING = 1.0 / 12.0
"""Power of rounding, in squares of the step."""


QUIET_SEQUENCES = tuned(20.0, figure="estimates were 10 to 23 dB too good", chosen_on="six trained LSTMs")
"""By how much the rounding of a recurrent node is more than its share of the signal, if its sequences are not
known: quiet ones lose most."""


@dataclass(frozen=True)
class RoundedValues:
    """Values that a plan rounds; the fields are those of `NoiseSource`."""

    node: str
    tensor: str
    noise: tuple[tuple[Entrance, float], ...]  # where its noise enters the graph, and its power
    is_inner: bool = False


@dataclass(frozen=True, eq=False)
class FloatFunctions:
    """Float functions that follow a quantized tensor, one after the other, one of them of one variable."""

    maker: str  # the node that makes the tensor
    tensor: str
    nodes: tuple[Node, ...]
    power: float  # noise power of the tensor's rounding
    error: float  # mean square error of the last result

    def beyond_gains(self, gains: NoiseGains) -> RoundedValues | None:
        """Return their error beyond that of the gains; None if the gains include most of it."""
        gain, source = 1.0, self.tensor
        for node in self.nodes:
            gain *= gains.corrected_rounding_gain(node, source)
            source = node.output
        if self.error <= STRAIGHT * gain * self.power:
            return None
        return RoundedValues(
            self.maker, self.tensor, ((Entrance("tensor", source), self.error - gain * self.power),)
        )


@dataclass(frozen=True, eq=False)
class NoiseSource:
    """A rounding of values."""

    node: str  # that would have to stay float for it to vanish
    tensor: str  # the activation or weight that is rounded
    share: Floats  # noise power over signal power at each output of the flow
    is_inner: bool = False  # rounded inside the node: it vanishes with the node, whatever else is quantized


@dataclass(frozen=True, eq=False)
class NoiseEstimator:
    """Estimates the noise of plans of one model."""

    activations: ActivationRanges
    gains: NoiseGains
    # the part of a rounding's noise that equalization leaves, by activation and weight
    left: Callable[[], Mapping[str, float]] = dict
    weight_errors: WeightErrors = field(default_factory=dict)

    def estimated_sqnr(self, plan: QuantPlan, others: Iterable[str] = ()) -> dict[str, float]:
        """Return the SQNR in dB, to hundredths, estimated for a plan at each output and at `others`.

        Outputs without signal or without noise are left out; each of `others` must have a signal.
        """
        outputs = tuple(dict.fromkeys([*self.gains.outputs_with_signal(), *others]))
        flow = forecast_flow(self.gains_of(plan), outputs)
        sources = chain(self.sources(flow, plan), self.dynamic_inputs(flow, plan))
        total = sum((source.share for source in sources), np.zeros(len(flow.outputs)))
        pairs = zip(flow.outputs, total.tolist(), strict=True)
        return {name: round(decibels_of(share), 2) for name, share in pairs if 0.0 < share < math.inf}

    @clocked("estimate")
    def by_node(self, flow: NoiseFlow, plan: QuantPlan) -> dict[str, Floats]:
        """Return the noise of each node of a plan over the signal at every output of a flow."""
        noise: dict[str, Floats] = {}
        for source in self.sources(flow, plan):
            noise[source.node] = noise.get(source.node, 0.0) + source.share
        return noise

    def gains_of(self, plan: QuantPlan) -> NoiseGains:
        """Return the gains at the levels of noise that a plan makes in the inputs of steep functions.

        A level is the noise of all nodes before it: one walk in graph order finds them, by the rules of
        `forecast_flow`.
        """
        levels: dict[str, Level] = {}
        gains = self.gains.at_levels(levels)
        if not gains.steep:
            return gains
        entering: dict[Entrance, float] = defaultdict(float)
        for rounding in self._roundings(gains, plan):
            for entrance, power in rounding.noise:
                entering[entrance] += power * self._left(rounding, plan)
        for rounding in self._dynamic_inputs(plan):
            for entrance, power in rounding.noise:
                entering[entrance] += power
        functions_to: dict[str, list[FloatFunctions]] = defaultdict(list)
        for functions in self._float_functions(plan):
            functions_to[functions.nodes[-1].name].append(functions)

        powers, steep = gains.powers, set(gains.steep)
        # Noise power in a tensor: of its own rounding, of all that was rounded before, of rounded weights.
        fresh: dict[str, float] = defaultdict(float)
        coloured: dict[str, float] = defaultdict(float)
        of_weights: dict[str, float] = defaultdict(float)
        for entrance, power in entering.items():
            if entrance.kind == "tensor":
                fresh[entrance.name] += power
        for node in gains.graph.nodes:
            if node in steep:
                name = node.input(0)
                levels[node.name] = fresh[name] + coloured[name], of_weights[name]
            for result in filter(powers.get, node.outputs):
                correction = gains.rounding_corrections.get(result, 1.0)
                weight_noise = entering.get(Entrance("weights", result), 0.0)
                for index, name in enumerate(node.inputs):
                    if not powers.get(name):
                        continue
                    rounding_noise = fresh[name] + entering.get(Entrance("input", node.name, index), 0.0)
                    white = gains.white_gain(node, index)
                    coloured_gain = gains.coloured_gain(node, index, name, result)
                    if white is not None:
                        coloured[result] += correction * white * rounding_noise
                    elif name in gains.kept_by_clips:
                        fresh[result] += correction * rounding_noise
                    else:
                        fresh[result] += correction * coloured_gain * rounding_noise
                    coloured[result] += correction * coloured_gain * coloured[name]
                    weight_noise += gains.weight_noise_gain(node, index, name, result) * of_weights[name]
                of_weights[result] += gains.weight_corrections.get(result, 1.0) * weight_noise
            for functions in functions_to.get(node.name, ()):
                beyond = functions.beyond_gains(gains)
                if beyond is not None:
                    fresh[node.output] += beyond.noise[0][1] * self._left(beyond, plan)
        return gains

    def sources(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield every rounding of a plan, except for inputs of dynamic products."""
        beyond = (functions.beyond_gains(flow.node_gains) for functions in self._float_functions(plan))
        roundings = chain(self._roundings(flow.node_gains, plan), filter(None, beyond))
        for rounding, source in _sources(flow, roundings):
            left = self._left(rounding, plan)
            yield source if left == 1.0 else replace(source, share=source.share * left)

    def dynamic_inputs(self, flow: NoiseFlow, plan: QuantPlan) -> Iterator[NoiseSource]:
        """Yield the rounding of the inputs of dynamic products, with one range for all samples."""
        for _, source in _sources(flow, self._dynamic_inputs(plan)):
            yield source

    def _left(self, rounding: RoundedValues, plan: QuantPlan) -> float:
        """Return the part of the noise of rounded values that equalization leaves."""
        if plan.nodes[rounding.node].kind is Kind.WEIGHT_ONLY:  # nothing is equalized for a float activation
            return 1.0
        return self.left().get(rounding.tensor, 1.0)

    def _dynamic_inputs(self, plan: QuantPlan) -> Iterator[RoundedValues]:
        yield from self._leaving_subgraphs(self._rounded_by_dynamic_products(plan))

    def _rounded_by_dynamic_products(self, plan: QuantPlan) -> Iterator[RoundedValues]:
        for node in self.activations.graph.nodes:
            rule, name = node.rule, node.inputs[0] if node.inputs else None
            if plan.nodes[node.name].kind is not Kind.DYNAMIC or not name or not self.gains.powers.get(name):
                continue
            if rule is not None and rule.weight is not None:
                tensor = self.activations.profile[name]
                power = expected_noise(tensor, dynamic_params(tensor.minimum, tensor.maximum)).power
                yield RoundedValues(node.name, name, ((Entrance("input", node.name, 0), power),))

    def _roundings(self, gains: NoiseGains, plan: QuantPlan) -> Iterator[RoundedValues]:
        """Yield the roundings of a plan, but for the inputs of dynamic products and of `_float_functions`."""
        measured = self._measured_weights(plan) if gains.is_measured else ()
        rounded = chain(self._rounded_tensors(gains, plan), self._rounded_in_kernels(plan), measured)
        yield from self._leaving_subgraphs(rounded)

    def _leaving_subgraphs(self, roundings: Iterable[RoundedValues]) -> Iterator[RoundedValues]:
        for rounding in roundings:
            inside = rounding.node in self.activations.graph.holders
            yield self._as_it_leaves(rounding) if inside else rounding

    def _as_it_leaves(self, rounding: RoundedValues) -> RoundedValues:
        """Return the rounding of a subgraph's node as noise in the results of the node that runs it."""
        powers, node = self.gains.powers, self.activations.graph.node(rounding.node)
        relative, noise = 0.0, list[tuple[Entrance, float]]()
        for entrance, power in rounding.noise:
            if entrance.kind == "weights":
                noise.append((entrance, power))
            else:
                tensor = node.input(entrance.place) if entrance.kind == "input" else entrance.name
                relative += power / powers[tensor]
        kind: Literal["weights", "tensor"] = "weights" if self.gains.is_measured else "tensor"
        leaving = ((Entrance(kind, name), relative * powers[name]) for name in self._results_outside(node))
        return replace(rounding, noise=(*noise, *(leaving if relative else ())))

    def _results_outside(self, node: Node) -> list[str]:
        """Return the results with a signal of a node, or of the node that runs it in its subgraph."""
        holder = self.activations.graph.holder(node)
        return [name for name in holder.results if self.gains.powers.get(name)]

    def _rounding_noise(self, name: str, params: QuantParams) -> float:
        """Return the noise power of quantizing an activation, the values that saturate included."""
        if params.axis is not None:  # a cache with a scale for each element of a head, which nothing leaves
            return ROUNDING * float(np.mean(np.square(params.scale, dtype=np.float64)))
        return self.activations.noise(name, params).power

    def _rounded_tensors(self, gains: NoiseGains, plan: QuantPlan) -> Iterator[RoundedValues]:
        """Yield the activations that nodes round, and their weights unless noise was measured."""
        graph = self.activations.graph
        for node in graph.nodes:
            entry = plan.nodes[node.name]
            if entry.kind.reads_quantized or entry.keeps_int8_cache:
                # Activations that come in float, or with other parameters.
                for index, name in enumerate(node.inputs):
                    params = plan.params_read(node.name, index, name)
                    if params is None or not gains.powers.get(name):
                        continue
                    producer = graph.producer(name)
                    is_quantized = producer is not None and plan.nodes[producer.name].kind.reads_quantized
                    if not (is_quantized and name in plan.tensors) or index in entry.inputs:
                        power = self._rounding_noise(name, params)
                        yield RoundedValues(node.name, name, ((Entrance("input", node.name, index), power),))
            if entry.kind in (Kind.QUANTIZED, Kind.LOOKUP_TABLE):
                for name in node.results:
                    if name in plan.tensors and gains.powers.get(name):
                        power = self._rounding_noise(name, plan.tensors[name])
                        yield RoundedValues(node.name, name, ((Entrance("tensor", name), power),))
            if entry.kind is Kind.DYNAMIC:
                yield from self._dynamic_recurrence(node)
            if entry.kind is not Kind.FLOAT and not gains.is_measured:
                yield from self._unmeasured_weights(node, plan)

    def _dynamic_recurrence(self, node: Node) -> Iterator[RoundedValues]:
        """Yield the roundings of a dynamic recurrent node's input and states, by the range of all samples."""
        rule, source = node.rule, node.inputs[0]
        recurrence = self.gains.recurrences.get(node.name)
        if rule is None or rule.weight is not None or not source or not self.gains.powers.get(source):
            return
        # The states of all steps; of a node whose first output nothing reads, the last one stands for them.
        states = [name for name in node.outputs[:2] if self.gains.powers.get(name)][:1]
        for name in (source, *states):
            tensor = self.activations.profile[name]
            params = dynamic_params(tensor.minimum, tensor.maximum)
            rounding = expected_noise(tensor, params).power
            if recurrence is None:
                power = QUIET_SEQUENCES * rounding / self.gains.powers[name] * self.gains.powers[source]
            elif name == source:
                power = recurrence.of_rounding(params.tensor_scale) / recurrence.per_unit
            else:  # the result itself is float; rounded is what the next step reads of it
                power = recurrence.of_state(rounding) / recurrence.per_unit
            entrance = Entrance("input", node.name, 0)
            yield RoundedValues(node.name, name, ((entrance, power),), is_inner=name != source)

    def _float_functions(self, plan: QuantPlan) -> Iterator[FloatFunctions]:
        """Yield the float functions of quantized tensors."""
        graph = self.activations.graph
        for maker in graph.nodes:
            if not plan.nodes[maker.name].kind.reads_quantized:
                continue
            for name in maker.results:
                if name not in plan.tensors or not self.gains.powers.get(name):
                    continue
                power = self._rounding_noise(name, plan.tensors[name])
                for reader, index in graph.consumers(name) if power > 0.0 else ():
                    nodes = self._functions_from(reader, name, plan) if index == 0 else ()
                    if any(node.rule is not None and node.rule.unary for node in nodes):
                        error = self._error_after(nodes, name, plan.tensors[name])
                        yield FloatFunctions(maker.name, name, nodes, power, error)

    def _functions_from(self, reader: Node, name: str, plan: QuantPlan) -> tuple[Node, ...]:
        """Return the float functions of a tensor one after another, from a reader of it on."""
        graph, node = self.activations.graph, reader
        functions, result = list[Node](), name
        while plan.nodes[node.name].kind is Kind.FLOAT and is_function_of(node, [result], graph):
            if not self.gains.powers.get(node.output):
                break
            functions.append(node)
            result = node.output
            readers = [reader for reader, _ in graph.consumers(result)]
            if len(readers) != 1 or graph.is_result(result):
                break
            node = readers[0]
        return tuple(functions)

    @computed_once
    def _error_after(self, functions: tuple[Node, ...], name: str, params: QuantParams) -> float:
        """Return the mean square error of functions of a quantized tensor; 0 if it cannot be computed."""
        parts = tuple(part for node in functions for part in chain_nodes(node.ir_node))
        source = self.activations.graph.values[name]
        try:
            function = function_of_chain(PointwiseChain(parts, source), self.activations.opset)
            return error_after(function, self.activations.profile[name], params)
        except PlanError:
            return 0.0

    def _rounded_in_kernels(self, plan: QuantPlan) -> Iterator[RoundedValues]:
        """Yield the roundings of activations in onnxruntime's kernel of packed weights: 8 bits in blocks.

        A block's step is its largest magnitude over 127, that of as many values drawn from the profile.
        """
        for node in self.activations.graph.nodes:
            entry = plan.nodes[node.name]
            if entry.implementation != ROUNDS_IN_KERNEL or entry.kind is not Kind.WEIGHT_ONLY:
                continue
            name = node.input(0)
            tensor = self.activations.profile.get(name)
            if tensor is None or not tensor.histogram.total or not self.gains.powers.get(name):
                continue
            sizes = [params.block_size or UNBLOCKED for params in entry.inputs.values()]
            block = max(sizes, default=UNBLOCKED)
            noise = ((Entrance("input", node.name, 0), self._rounded_in_blocks(name, block)),)
            yield RoundedValues(node.name, name, noise, is_inner=True)

    @computed_once
    def _rounded_in_blocks(self, name: str, block: int) -> float:
        largest = mean_square_of_largest(density(self.activations.profile[name]), block)
        return ROUNDING * largest / 127.0**2

    def _constant_errors(self, node: Node, rule: Rule, plan: QuantPlan) -> Iterator[tuple[int, str, float]]:
        """Yield the constant weights of a node that a plan quantizes: input index, name, relative error."""
        for index in (weight.index for weight in rule.constants):
            name = node.input(index)
            params = plan.params_read(node.name, index, name)
            error = None if params is None else self.weight_error(name, params)
            if error is not None:
                yield index, name, error

    def _unmeasured_weights(self, node: Node, plan: QuantPlan) -> Iterator[RoundedValues]:
        """Yield constant weights without measurement: rounding is as much of the result as of the weight."""
        rule, source = node.rule, node.inputs[0] if node.inputs else None
        if rule is None or not source or not self.gains.powers.get(source):
            return
        for _, name, error in self._constant_errors(node, rule, plan):
            power = error * self.gains.powers[source]
            yield RoundedValues(node.name, name, ((Entrance("input", node.name, 0), power),))

    def _measured_weights(self, plan: QuantPlan) -> Iterator[RoundedValues]:
        """Yield constant weights if noise was measured."""
        for node in self.activations.graph.nodes:
            kind, rule = plan.nodes[node.name].kind, node.rule
            results = self._results_outside(node)
            if kind is Kind.FLOAT or rule is None or not results:
                continue
            for index, name, rounding_error in self._constant_errors(node, rule, plan):
                error = rounding_error
                if plan.config.bias_correction == "auto" and kind in BIAS_CORRECTED:
                    error *= self._uncorrected(node)
                noise = (
                    (Entrance("weights", r), self.gains.noise_of_weight_error(node, index, error, r))
                    for r in results
                )
                yield RoundedValues(node.name, name, tuple(noise))

    @computed_once
    def _uncorrected(self, node: Node) -> float:
        """Return the part of the noise of a node's weight that bias correction leaves."""
        stays = node.output in self._without_constant_errors
        return 1.0 if stays else left_by_bias_correction(self.gains, node)

    @cached_property
    def _without_constant_errors(self) -> frozenset[str]:
        return without_constant_errors(self.gains.graph, self.gains.profile, self.gains.opset)

    def weight_error(self, name: str, params: QuantParams) -> float | None:
        """Return the squared error of a quantized weight over its square; None for no constant, or 0."""
        key = (name, params)
        if key not in self.weight_errors:
            weight, error = self.gains.graph.constant(name), None
            if weight is not None and weight.any():
                error = relative_weight_error(weight.astype(np.float32, copy=False), params)
            self.weight_errors[key] = error
        return self.weight_errors[key]


def _sources(
    flow: NoiseFlow, roundings: Iterable[RoundedValues]
) -> Iterator[tuple[RoundedValues, NoiseSource]]:
    """Yield the roundings that reach an output, with their share of the noise there."""
    for rounding in roundings:
        shares = [(flow.share(entrance), power) for entrance, power in rounding.noise]
        reaching = [share * power for share, power in shares if share is not None]
        if reaching:
            share = sum(reaching[1:], reaching[0])
            yield rounding, NoiseSource(rounding.node, rounding.tensor, share, rounding.is_inner)


def decibels_of(share: float) -> float:
    """Return noise over signal as an SQNR in dB."""
    return -10.0 * math.log10(share)


def left_by_bias_correction(gains: NoiseGains, node: Node) -> float:
    """Return the part of a rounded weight's noise that bias correction cannot remove.

    It removes the error of the mean input; the variance of each input channel remains of its power. An error
    is assumed to be as large as the largest weight of its output channel, over which a step is shared.
    """
    layout, tensor = product_layout(node), gains.profile.get(node.input(0))
    if layout is None or tensor is None or tensor.channels is None or layout.bias_place(node.ir_node) is None:
        return 1.0
    weight = gains.graph.constant(node.input(layout.index))
    mean, power = (np.asarray(v, np.float64) for v in (tensor.channels.mean, tensor.channels.power))
    if weight is None:
        return 1.0
    blocks = layout.axes(node, weight.shape).blocks(weight)
    if blocks.shape[0] * blocks.shape[2] != mean.size:
        return 1.0
    steps = np.square(np.abs(blocks).max(axis=(2, 3)), dtype=np.float64)  # of each output channel
    whole = float(np.einsum("go,gi->", steps, power.reshape(blocks.shape[0], -1)))
    varying = np.maximum(power - np.square(mean), 0.0).reshape(blocks.shape[0], -1)
    return float(np.einsum("go,gi->", steps, varying)) / whole if whole > 0.0 else 1.0
