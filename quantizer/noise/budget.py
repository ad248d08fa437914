"""A plan whose noise leaves every output audible: nodes that drown one go back to float. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.records.profile import Profile
from ..model.graph import Graph, input_name
from ..numerics.affine import QuantParams, dequantize, quantize
from ..numerics.quantization_noise import Noise, expected_noise
from ..numerics.schemas import span_params
from ..operators.operands import outputs_of
from ..operators.table import rule_of
from ..plan.plan import ON_CODES, Kind, QuantPlan
from ..ranges.activation_ranges import UsefulRange
from .first_layers import cheap_nodes
from .propagation import NoiseFlow, noise_flow

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoiseSource:
    """A place where values are rounded.

    Attributes:
        node: the node that would have to stay float for it to vanish.
        tensor: the activation or weight that is rounded.
        share: its noise power over signal power at each output of the flow.
    """

    node: str
    tensor: str
    share: Floats


@dataclass(frozen=True)
class Known:
    """What is known of a model and does not change from plan to plan.

    Attributes:
        graph, profile: of the prepared model.
        useful: see `UsefulRange`.
        errors: squared error of weights over their squares, by name and parameters, as far as asked for.
    """

    graph: Graph
    profile: Profile
    useful: UsefulRange
    errors: dict[tuple[str, QuantParams], float] = field(default_factory=dict)


def quiet_plan(
    make: Callable[[Mapping[str, str]], QuantPlan], known: Known, least: float, opset: int
) -> QuantPlan:
    """Make a plan, and make it again with the loudest nodes in float until each output is audible.

    Then what is loud and cheap at the head of the model goes back to float too, see `cheap_nodes`.

    Args:
        make: makes a plan in which the given nodes stay float, each with its reason.
        known: the model.
        least: signal over noise in dB that each output must keep, as `noise_flow` reckons it; 0 for any.
        opset: of the model.
    """
    plan = make({})
    if least <= 0.0 or not any(tensor.count for tensor in known.profile.values()):
        return plan
    flow = noise_flow(known.graph, known.profile, opset)
    allowed = 10.0 ** (-least / 10.0)
    loud: dict[str, str] = {}
    while flow.outputs:
        noise = _by_node(noise_sources(flow, plan, known))
        worst = int(np.argmax(sum(noise.values(), np.zeros(len(flow.outputs)))))
        more = _loudest(noise, worst, allowed, flow.outputs[worst], loud)
        if not more:
            cheap = cheap_nodes(known.graph, known.profile, flow, plan, noise)
            return make(loud | cheap) if cheap else plan
        loud |= more
        plan = make(loud)
    return plan


def _by_node(sources: Iterable[NoiseSource]) -> dict[str, Floats]:
    """Return what each node makes of the noise at every output."""
    found: dict[str, Floats] = {}
    for source in sources:
        found[source.node] = found.get(source.node, 0.0) + source.share
    return found


def _loudest(
    noise: Mapping[str, Floats], output: int, allowed: float, name: str, floats: Mapping[str, str]
) -> dict[str, str]:
    """Return the fewest nodes without whose noise an output keeps its signal, each with the figures."""
    by_node = {node: float(share[output]) for node, share in noise.items()}
    found: dict[str, str] = {}
    rest = total = sum(by_node.values())
    for node in sorted(by_node, key=lambda node: -by_node[node]):
        if rest <= allowed or by_node[node] <= 0.0:
            break
        if node in floats:
            continue
        found[node] = (
            f"its noise alone would leave output '{name}' {_db(by_node[node]):.1f} dB of signal over noise, "
            f"that of all quantized nodes {_db(total):.1f}, less than {_db(allowed):g}"
        )
        rest -= by_node[node]
    return found


def _db(share: float) -> float:
    return -10.0 * math.log10(share)


def noise_sources(flow: NoiseFlow, plan: QuantPlan, known: Known) -> Iterator[NoiseSource]:
    """Yield every place where a plan rounds, in graph order.

    Args:
        flow: how noise travels in this model.
        plan: the plan.
        known: the model.
    """
    for node in known.graph.nodes:
        entry = plan.nodes[node.name or ""]
        if entry.kind in ON_CODES:
            yield from _conversions(node, flow, plan, known)
        if entry.kind in (Kind.QUANTIZED, Kind.LOOKUP_TABLE):
            yield from _results(node, flow, plan, known)
        if entry.kind is Kind.DYNAMIC:
            yield from _at_run_time(node, flow, known)
        if entry.kind is not Kind.FLOAT:
            yield from _weights(node, flow, plan, known)


def _conversions(node: ir.Node, flow: NoiseFlow, plan: QuantPlan, known: Known) -> Iterator[NoiseSource]:
    """Activations that come in float, or in other codes."""
    own = plan.nodes[node.name or ""].inputs
    for index in range(len(node.inputs)):
        name = input_name(node, index)
        params = plan.params_read(node.name or "", index, name)
        gain = flow.gains.get((node.name or "", index))
        if params is None or gain is None:
            continue
        producer = known.graph.producer(name)
        in_codes = producer is not None and plan.nodes[producer.name or ""].kind in ON_CODES
        if not (in_codes and name in plan.tensors) or index in own:
            noise = expected_noise(known.profile[name], params, known.useful(name))
            yield NoiseSource(node.name or "", name, gain * _power(noise))


def _results(node: ir.Node, flow: NoiseFlow, plan: QuantPlan, known: Known) -> Iterator[NoiseSource]:
    """Activations that the node rounds when it is done."""
    for name in outputs_of(node):
        if name in plan.tensors and name in flow.reach:
            noise = expected_noise(known.profile[name], plan.tensors[name], known.useful(name))
            yield NoiseSource(node.name or "", name, flow.reach[name] * _power(noise))


def _power(noise: Noise) -> float:
    return noise.rounding_power + noise.clipping_power


def _weights(node: ir.Node, flow: NoiseFlow, plan: QuantPlan, known: Known) -> Iterator[NoiseSource]:
    """Constant weights: their rounding is as much of the result as of the weight."""
    rule, source = rule_of(node), node.inputs[0] if node.inputs else None
    through = flow.gains.get((node.name or "", 0))
    if rule is None or source is None or through is None:
        return
    for index in (weight.index for weight in rule.constants):
        name = input_name(node, index)
        weight, params = known.graph.constant(name), plan.params_read(node.name or "", index, name)
        if weight is None or params is None or not weight.any():
            continue
        if (name, params) not in known.errors:
            real = weight.astype(np.float32, copy=False)
            error = dequantize(quantize(real, params), params) - real
            known.errors[name, params] = float(np.vdot(error, error) / np.vdot(real, real))
        power = known.errors[name, params] * flow.powers[source.name or ""]
        yield NoiseSource(node.name or "", name, through * power)


def _at_run_time(node: ir.Node, flow: NoiseFlow, known: Known) -> Iterator[NoiseSource]:
    """What a dynamic node rounds, reckoned for the range of all samples; of its input and what it remembers.

    Not of products: one sample may span much less than all, and mode auto has judged them.
    """
    rule, source = rule_of(node), node.inputs[0]
    through = flow.gains.get((node.name or "", 0))
    if rule is None or rule.weight is not None or source is None or through is None:
        return
    for value in (source, node.outputs[0]):
        name = (value.name or "") if value is not None else ""
        if flow.powers.get(name):
            tensor = known.profile[name]
            noise = expected_noise(tensor, span_params(tensor.minimum, tensor.maximum))
            power = _power(noise) / flow.powers[name] * flow.powers[source.name or ""]
            yield NoiseSource(node.name or "", name, through * power)
