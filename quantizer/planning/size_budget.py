"""Which weights of a model in 4 bits have 8 instead: those that take most noise away for their bytes. Pure.

Without `fit_size` a model with an embedding table has 8 bits in its tables, and in the products that no other
weight follows: what makes the words of a language model, and what scores them. Their errors reach the output
unmixed; and a table that is the last product too is stored once.

With it the model begins in 4 bits throughout, and those weights are widened that fit and whose noise at the
outputs is largest together: noise as measured when the model was profiled. Where nothing was measured all
have the same noise for their signal, so the tables and the last product come first and then the smaller
weights. What is stored once is widened together, and its bytes count once.

How many bytes the graph itself takes, only the written model tells: `PlanningFacts.size_error` has by how
much the estimate of one was off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ..noise.estimator import NoiseEstimator
from ..noise.propagation import forecast_flow, measured_gains
from ..numerics.affine import QuantParams
from ..operators.graph import Graph, Node
from ..plan.plan import RUNTIME_WEIGHTS, Kind, QuantPlan, unblocked_size
from ..targets.config import size_in_bytes
from ..targets.target import FEW_BITS
from .facts import PlanningFacts

BYTES_OF_A_NODE = 500
"""That a packed weight adds to the graph: names and shapes of what is read in its place, attributes."""

BYTES_OF_RECORDS = 2000
"""Of metadata."""

LEAST_TABLE = 16384
"""Fewest elements of an embedding table that is quantized whatever the mode."""

SCALE_BYTES = 4

POINT_BYTES = 80
"""That zero points of blocks add to the graph, a name in three places; weights in 8 bits have none."""


PARTS = 10_000
"""Of the room for 8 bits, in which the sizes of weights are counted."""


@dataclass(frozen=True)
class Group:
    """Weights that are stored once, or one alone.

    Attributes:
        nodes: names of all that read them.
        added: bytes that 8 bits take more.
        noise: at the outputs, over their signal, that 8 bits take away.
        is_end: whether a table or the last product is among them.
    """

    nodes: tuple[str, ...]
    added: float
    noise: float
    is_end: bool


def wide_nodes(facts: PlanningFacts, make: Callable[[PlanningFacts], QuantPlan]) -> frozenset[str]:
    """Return the nodes whose weights have 8 bits where 4 were asked for.

    Args:
        facts: the model.
        make: makes its plan with weights of 4 bits.

    Raises:
        ConfigError: with 4 bits throughout the model takes more than `fit_size`, or that is for another mode.
    """
    config = facts.config
    in_few = config.mode == "weight-only" and config.weight_type in FEW_BITS
    if not in_few:
        if config.has_size:
            raise ConfigError(
                "fit_size: chooses between 4 and 8 bits, in mode weight-only; add --mode weight-only "
                "--weight-type int4"
            )
        return frozenset()
    ends = _ends(facts.graph)
    if not config.has_size:
        return frozenset() if config.fit_size else ends
    if config.min_output_sqnr:
        raise ConfigError(
            f"fit_size {config.fit_size}, min_output_sqnr {config.min_output_sqnr:g}: either a size or a "
            "quality decides which weights have 8 bits; leave one of them out"
        )
    plan, limit = make(facts), size_in_bytes(config.fit_size)
    readers: dict[str, list[str]] = {}
    for node in facts.graph.nodes:
        for name in _few(node, plan, facts.graph):
            readers.setdefault(name, []).append(node.name)
    twins = _twins(facts.graph, readers)
    groups = sorted(
        _groups(facts, plan, ends, readers, twins),
        key=lambda group: (-group.noise / group.added, not group.is_end, group.added),
    )
    size = _size(facts.prepared.model, facts.graph, plan, twins.values()) + facts.size_error
    if size > limit:
        raise ConfigError(
            f"fit_size {config.fit_size}: with 4 bits throughout the model takes {size / 1e6:.3g} MB; give "
            "more, or larger blocks with --block-size"
        )

    chosen = noisiest(groups, limit - size)
    for group in groups:
        if group not in chosen and sum(one.added for one in (*chosen, group)) <= limit - size:
            chosen.append(group)
    return frozenset(node for group in chosen for node in group.nodes)


def noisiest(groups: Sequence[Group], room: float) -> list[Group]:
    """Return the groups whose noise is largest together and that fit: a knapsack, by dynamic programming.

    Sizes are counted in parts of the room, rounded up; there are `PARTS` of them.
    """
    most, taken = np.zeros(PARTS + 1), np.zeros((len(groups), PARTS + 1), bool)
    sizes = [math.ceil(group.added * PARTS / room) if room > 0.0 else PARTS + 1 for group in groups]
    for group, size, better in zip(groups, sizes, taken, strict=True):
        if size <= PARTS:
            together = most[: PARTS + 1 - size] + group.noise
            better[size:] = together > most[size:]
            most[size:] = np.maximum(most[size:], together)
    found, left = list[Group](), PARTS
    for group, size, better in zip(groups[::-1], sizes[::-1], taken[::-1], strict=True):
        if better[left]:
            found.append(group)
            left -= size
    return found


def estimated_size(facts: PlanningFacts, plan: QuantPlan) -> float:
    """Return about how many bytes the model takes as planned, `PlanningFacts.size_error` left out."""
    names = [name for node in facts.graph.nodes for name in _stored(node, plan, facts.graph)]
    twins = _twins(facts.graph, dict.fromkeys(names))
    return _size(facts.prepared.model, facts.graph, plan, twins.values())


def _ends(graph: Graph) -> frozenset[str]:
    """Return the nodes that look entries of tables up, and the products that no other weight follows.

    There are none in a model without a large table.
    """
    tables, last, followed = dict[str, int](), set[str](), set[str]()
    for node in reversed(graph.nodes):
        rule = node.rule
        sizes = (
            []
            if rule is None
            else [a.size for w in rule.constants if (a := node.constant(w.index)) is not None]
        )
        leads_on = any(name in followed for name in node.results)
        if sizes and rule is not None and rule.is_lookup:
            tables[node.name] = max(sizes)
        elif sizes:
            last.update(() if leads_on else (node.name,))
            leads_on = True
        followed.update(node.inputs if leads_on else ())
    return frozenset({*tables, *last}) if max(tables.values(), default=0) >= LEAST_TABLE else frozenset()


def _groups(
    facts: PlanningFacts,
    plan: QuantPlan,
    ends: frozenset[str],
    readers: Mapping[str, Sequence[str]],
    twins: Mapping[str, str],
) -> Iterator[Group]:
    """Yield the weights that have 4 bits."""
    noise, graph = _noise(facts, plan), facts.graph
    for name in (one for one in readers if one not in twins.values()):
        nodes = (*readers[name], *(readers[twins[name]] if name in twins else ()))
        last = readers[twins.get(name, name)][0]  # what is stored once is stored as the product has it
        shape, params = _shape(graph, name), plan.tensors[name]
        added = _wide_bytes(shape, params, graph.node(last), plan) - _bytes_of(shape, params)
        share = sum(noise.get(node, 0.0) for node in nodes)
        yield Group(nodes, added, share, not ends.isdisjoint(nodes))


def _stored(node: Node, plan: QuantPlan, graph: Graph) -> list[str]:
    """Return the constants of a node that are stored quantized."""
    entry, rule = plan.nodes[node.name], node.rule
    if entry.kind is not Kind.WEIGHT_ONLY or rule is None:
        return []
    return [name for w in rule.constants if (name := node.input(w.index)) in plan.tensors]


def _few(node: Node, plan: QuantPlan, graph: Graph) -> list[str]:
    """Return the constants of a node that have 4 bits."""
    return [name for name in _stored(node, plan, graph) if plan.tensors[name].qtype.name in FEW_BITS]


def _is_lookup(node: Node) -> bool:
    return node.rule is not None and node.rule.is_lookup


def _shape(graph: Graph, name: str) -> tuple[int, ...]:
    tensor = graph.values[name].const_value
    assert tensor is not None
    return tuple(tensor.shape.numpy())


def _twins(graph: Graph, names: Iterable[str]) -> dict[str, str]:
    """Return the matrices that are others transposed: a table -> the weight of the last product."""
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        array = graph.constant(name)
        by_shape.setdefault(() if array is None else array.shape, []).append(name)
    found: dict[str, str] = {}
    for shape, some in by_shape.items():
        for name in some:
            array = graph.constant(name)
            for other in by_shape.get(shape[::-1], ()) if len(shape) == 2 else ():
                turned = graph.constant(other)
                if other == name or name in found.values() or array is None or turned is None:
                    continue
                if np.array_equal(array[:1], turned.T[:1]) and np.array_equal(array, turned.T):
                    found.setdefault(name, other)
    return found


def _size(model: ir.Model, graph: Graph, plan: QuantPlan, twins: Collection[str]) -> float:
    """Return about how many bytes the model takes as planned."""
    bare = model.clone()
    for part in bare.graphs():
        part.initializers.clear()
    packed = sum(node.kind is Kind.WEIGHT_ONLY for node in plan.nodes.values())
    size = float(BYTES_OF_RECORDS + BYTES_OF_A_NODE * packed + ir.to_proto(bare).ByteSize())
    for name, value in graph.values.items():
        if graph.is_constant(name) and value.const_value is not None and name not in twins:
            params = plan.tensors.get(name)
            tensor = value.const_value
            size += tensor.nbytes if params is None else _bytes_of(tensor.shape.numpy(), params)
    return size


def _bytes_of(shape: Sequence[int], params: QuantParams) -> float:
    """Return what a constant takes with parameters, scales and zero points included."""
    elements, bits = math.prod(shape), params.qtype.bits
    if params.block_size is None or params.axis is None:
        return elements * bits / 8.0 + SCALE_BYTES * params.scale.size
    rows, size = elements / shape[params.axis], shape[params.axis]
    blocks = -(-size // params.block_size)
    usual = 0 if params.qtype.signed else 1 << (bits - 1)
    found = rows * blocks * (params.block_size * bits / 8.0 + SCALE_BYTES)
    return found + (POINT_BYTES + rows * -(-blocks * bits // 8) if np.any(params.zero_point != usual) else 0)


def _wide_bytes(shape: Sequence[int], params: QuantParams, node: Node, plan: QuantPlan) -> float:
    """Return what a constant in blocks takes with 8 bits."""
    elements, axis = math.prod(shape), params.axis or 0
    if _is_lookup(node) or plan.nodes[node.name].implementation not in RUNTIME_WEIGHTS:
        return elements + SCALE_BYTES * elements / shape[axis]
    block = unblocked_size(shape[axis])
    return elements / shape[axis] * -(-shape[axis] // block) * (block + SCALE_BYTES)


def _noise(facts: PlanningFacts, plan: QuantPlan) -> dict[str, float]:
    """Return the noise of the weights of each node at the outputs over their signal; {} where unmeasured.

    Caches of keys and values, and other states, count as much as the answers do, all of them together.
    """
    profile, graph = facts.profile, facts.graph
    if not profile.noise:
        return {}
    gains = measured_gains(graph, profile, facts.activations.opset, profile.noise)
    estimator = NoiseEstimator(facts.activations, gains)
    flow = forecast_flow(estimator.gains_of(plan), gains.outputs_with_signal())
    kinds = facts.noise_limits.kinds
    states = np.array([kinds.get(name) == "state" for name in flow.outputs])
    weights = sum((kind / kind.sum() for kind in (states, ~states) if kind.any()), np.zeros(states.size))
    found: dict[str, float] = {}
    for source in estimator.sources(flow, plan):
        if graph.is_constant(source.tensor):
            found[source.node] = found.get(source.node, 0.0) + float(source.share @ weights)
    return found
