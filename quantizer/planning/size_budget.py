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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ..noise.estimator import NoiseEstimator
from ..noise.propagation import forecast_flow
from ..numerics.affine import QuantParams
from ..operators.graph import Graph, Node
from ..plan.plan import RUNTIME_WEIGHTS, Kind, QuantPlan, unblocked_size
from ..plan.reasons import FloatReasons
from ..targets.config import FEW_BITS, size_in_bytes
from .facts import PlanningFacts
from .hybrid import MIN_TABLE_ELEMENTS
from .planner import decide

NODE_BYTES = 500
"""That a packed weight adds to the graph: names and shapes of what is read in its place, attributes."""

METADATA_BYTES = 2000
"""Of the records in a written model's metadata."""

SCALE_BYTES = 4

ZERO_POINT_BYTES = 80
"""That zero points of blocks add to the graph, a name in three places; weights in 8 bits have none."""

SIZE_STEPS = 10_000
"""Of the room for 8 bits, in which the sizes of weights are counted."""


@dataclass(frozen=True)
class StoredOnce:
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


def eight_bit_nodes(facts: PlanningFacts, floats: FloatReasons) -> frozenset[str]:
    """Return the nodes whose weights have 8 bits where 4 were asked for.

    Args:
        facts: the model; `eight_bit_nodes` of it has none yet.
        floats: nodes that stay float, each with the reason.

    Raises:
        ConfigError: with 4 bits throughout the model takes more than `fit_size`, or that is for another mode.
    """
    config, graph = facts.config, facts.graph
    if not config.has_few_bits:
        if config.has_size:
            raise ConfigError(
                "fit_size: chooses between 4 and 8 bits of weights; leave it out, or use --as mixed with "
                "--max-size"
            )
        return frozenset()
    ends = _ends(graph)
    if not config.has_size:
        return frozenset() if config.fit_size else ends
    if config.tolerance is not None:
        raise ConfigError(
            f"fit_size {config.fit_size}, tolerance {config.tolerance:g}: either a size or a tolerance "
            "decides which weights have 8 bits; leave one of them out"
        )
    if config.min_output_sqnr:
        raise ConfigError(
            f"fit_size {config.fit_size}, min_output_sqnr {config.min_output_sqnr:g}: either a size or a "
            "quality decides which weights have 8 bits; leave one of them out"
        )

    plan, limit = decide(facts, floats), size_in_bytes(config.fit_size)
    readers: dict[str, list[str]] = {}  # of the weights that have 4 bits
    for node in graph.nodes:
        for name in _stored(node, plan):
            if plan.tensors[name].qtype.name in FEW_BITS:
                readers.setdefault(name, []).append(node.name)
    twins = _twins(graph, readers)
    size = _size(facts.prepared.model, graph, plan, twins.values()) + facts.size_error
    if size > limit:
        raise ConfigError(
            f"fit_size {config.fit_size}: with 4 bits throughout the model takes {size / 1e6:.3g} MB; give "
            "more, or larger blocks with --set block_size=64"
        )
    noise, weights = _noise(facts, plan), list[StoredOnce]()
    for name in (name for name in readers if name not in twins.values()):
        nodes = (*readers[name], *(readers[twins[name]] if name in twins else ()))
        last = readers[twins.get(name, name)][0]  # what is stored once is stored as the product has it
        added = _eight_bit_bytes(name, graph, last, plan) - _bytes_of(_shape(graph, name), plan.tensors[name])
        share = sum(noise.get(node, 0.0) for node in nodes)
        weights.append(StoredOnce(nodes, added, share, not ends.isdisjoint(nodes)))
    weights.sort(key=lambda one: (-one.noise / one.added, not one.is_end, one.added))
    chosen = noisiest(weights, limit - size)
    for one in weights:
        if one not in chosen and sum(other.added for other in (*chosen, one)) <= limit - size:
            chosen.append(one)
    return frozenset(node for one in chosen for node in one.nodes)


def noisiest(weights: Sequence[StoredOnce], room: float) -> list[StoredOnce]:
    """Return the weights whose noise is largest together and that fit: a knapsack, by dynamic programming.

    Sizes are counted in parts of the room, rounded up; there are `SIZE_STEPS` of them.
    """
    most, taken = np.zeros(SIZE_STEPS + 1), np.zeros((len(weights), SIZE_STEPS + 1), bool)
    sizes = [math.ceil(one.added * SIZE_STEPS / room) if room > 0.0 else SIZE_STEPS + 1 for one in weights]
    for one, size, better in zip(weights, sizes, taken, strict=True):
        if size <= SIZE_STEPS:
            together = most[: SIZE_STEPS + 1 - size] + one.noise
            better[size:] = together > most[size:]
            most[size:] = np.maximum(most[size:], together)
    chosen, left = list[StoredOnce](), SIZE_STEPS
    for one, size, better in zip(weights[::-1], sizes[::-1], taken[::-1], strict=True):
        if better[left]:
            chosen.append(one)
            left -= size
    return chosen


def estimated_size(facts: PlanningFacts, plan: QuantPlan) -> float:
    """Return about how many bytes the model takes as planned, `PlanningFacts.size_error` left out."""
    names = [name for node in facts.graph.nodes for name in _stored(node, plan)]
    twins = _twins(facts.graph, dict.fromkeys(names))
    return _size(facts.prepared.model, facts.graph, plan, twins.values())


def _ends(graph: Graph) -> frozenset[str]:
    """Return the nodes that look entries of tables up, and the products that no other weight follows.

    There are none in a model without a large table.
    """
    tables, last, followed = dict[str, int](), set[str](), set[str]()
    for node in reversed(graph.nodes):
        rule = node.rule
        weights = [] if rule is None else [node.input(weight.index) for weight in rule.constants]
        sizes = [graph.elements(name) for name in weights if graph.is_constant(name)]
        leads_on = any(name in followed for name in node.results)
        if sizes and rule is not None and rule.is_lookup:
            tables[node.name] = max(sizes)
        elif sizes:
            last.update(() if leads_on else (node.name,))
            leads_on = True
        followed.update(node.inputs if leads_on else ())
    has_table = max(tables.values(), default=0) >= MIN_TABLE_ELEMENTS
    return frozenset({*tables, *last}) if has_table else frozenset()


def _stored(node: Node, plan: QuantPlan) -> list[str]:
    """Return the constants of a node that are stored quantized."""
    entry, rule = plan.nodes[node.name], node.rule
    if entry.kind is not Kind.WEIGHT_ONLY or rule is None:
        return []
    return [name for w in rule.constants if (name := node.input(w.index)) in plan.tensors]


def _shape(graph: Graph, name: str) -> tuple[int, ...]:
    tensor = graph.values[name].const_value
    assert tensor is not None
    return tuple(tensor.shape.numpy())


def _twins(graph: Graph, names: Iterable[str]) -> dict[str, str]:
    """Return the matrices that are others transposed: a table -> the weight of the last product."""
    arrays = {
        name: array for name in names if (array := graph.constant(name)) is not None and array.ndim == 2
    }
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, array in arrays.items():
        by_shape.setdefault(array.shape, []).append(name)
    twins: dict[str, str] = {}
    for shape, alike in by_shape.items():
        for name in alike:
            for other in by_shape.get(shape[::-1], ()):
                if other == name or name in twins.values():
                    continue
                array, turned = arrays[name], arrays[other].T
                if np.array_equal(array[:1], turned[:1]) and np.array_equal(array, turned):
                    twins.setdefault(name, other)
    return twins


def _size(model: ir.Model, graph: Graph, plan: QuantPlan, twins: Collection[str]) -> float:
    """Return about how many bytes the model takes as planned."""
    bare = model.clone()
    for part in bare.graphs():
        part.initializers.clear()
    packed = sum(node.kind is Kind.WEIGHT_ONLY for node in plan.nodes.values())
    size = float(METADATA_BYTES + NODE_BYTES * packed + ir.to_proto(bare).ByteSize())
    for name, value in graph.values.items():
        tensor = value.const_value
        if graph.is_constant(name) and tensor is not None and name not in twins:
            params = plan.tensors.get(name)
            size += tensor.nbytes if params is None else _bytes_of(tensor.shape.numpy(), params)
    return size


def _bytes_of(shape: Sequence[int], params: QuantParams) -> float:
    """Return the bytes of a constant with parameters, scales and zero points included."""
    elements, bits = math.prod(shape), params.qtype.bits
    if params.block_size is None or params.axis is None:
        return elements * bits / 8.0 + SCALE_BYTES * params.scale.size
    rows, size = elements / shape[params.axis], shape[params.axis]
    blocks = -(-size // params.block_size)
    usual = 0 if params.qtype.signed else 1 << (bits - 1)
    scale_bytes = SCALE_BYTES if params.qtype.scales is None else 1
    values = rows * blocks * (params.block_size * bits / 8.0 + scale_bytes)
    has_points = bool(np.any(params.zero_point != usual))
    return values + (ZERO_POINT_BYTES + rows * -(-blocks * bits // 8) if has_points else 0)


def _eight_bit_bytes(name: str, graph: Graph, reader: str, plan: QuantPlan) -> float:
    """Return the bytes of a constant in blocks with 8 bits, as a node reads it."""
    shape, rule = _shape(graph, name), graph.node(reader).rule
    elements, size = math.prod(shape), shape[plan.tensors[name].axis or 0]
    is_lookup = rule is not None and rule.is_lookup
    if is_lookup or plan.nodes[reader].implementation not in RUNTIME_WEIGHTS:
        return elements + SCALE_BYTES * elements / size
    block = unblocked_size(size)
    return elements / size * -(-size // block) * (block + SCALE_BYTES)


def _noise(facts: PlanningFacts, plan: QuantPlan) -> dict[str, float]:
    """Return the noise of the weights of each node at the outputs over their signal; {} where unmeasured.

    Caches of keys and values, and other states, count as much as the answers do, all of them together.
    """
    profile, graph = facts.profile, facts.graph
    if not profile.noise:
        return {}
    estimator = NoiseEstimator(facts.activations, facts.noise_gains)
    flow = forecast_flow(estimator.gains_of(plan), facts.noise_gains.outputs_with_signal())
    kinds = facts.noise_limits.kinds
    states = np.array([kinds.get(name) == "state" for name in flow.outputs], bool)
    weights = sum((kind / kind.sum() for kind in (states, ~states) if kind.any()), np.zeros(states.size))
    noise: dict[str, float] = {}
    for source in estimator.sources(flow, plan):
        if graph.is_constant(source.tensor):
            noise[source.node] = noise.get(source.node, 0.0) + float(source.share @ weights)
    return noise
