"""Which weights of a model in 4 bits have 8 instead: those that take most noise away for their bytes. Pure.

Without `fit_size` a model with an embedding table has 8 bits in its tables, and in the products that no other
weight follows: what makes the words of a language model, and what scores them. Their errors reach the output
unmixed; and a table that is the last product too is stored once.

With it the model begins in 4 bits throughout, and weights are widened while there is room, those first whose
noise at the outputs is largest for the bytes that 8 bits add: noise as measured when the model was profiled.
Where nothing was measured all have the same noise for their signal, so the tables and the last product come
first and then the smaller weights. What is stored once is widened together, and its bytes count once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ..noise.propagation import forecast_flow, measured_gains
from ..noise.sources import NoiseEstimator, WeightErrors
from ..numerics.affine import QuantParams
from ..operators.graph import Graph, Node
from ..plan.plan import UNBLOCKED, Kind, QuantPlan
from ..targets.config import LEAST, size_in_bytes
from ..targets.target import FEW_BITS
from .facts import PlanningFacts

BYTES_OF_A_NODE = 500
"""That a packed weight adds to the graph: names and shapes of what is read in its place, attributes."""

BYTES_OF_RECORDS = 2000
"""Of metadata."""

LEAST_TABLE = 16384
"""Fewest elements of an embedding table that is quantized whatever the mode."""

SCALE_BYTES = 4
"""Of a scale. A weight in 8 bits has one for each channel, which is written for each `UNBLOCKED` elements."""


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
        if config.fit_size not in ("", LEAST):
            raise ConfigError(
                "fit_size: chooses between 4 and 8 bits, in mode weight-only; add --mode weight-only "
                "--weight-type int4"
            )
        return frozenset()
    ends = _ends(facts.graph)
    if config.fit_size in ("", LEAST):
        return frozenset() if config.fit_size else ends
    plan, limit = make(facts), size_in_bytes(config.fit_size)
    readers: dict[str, list[str]] = {}
    for node in facts.graph.nodes:
        for name in _few(node, plan, facts.graph):
            readers.setdefault(name, []).append(node.name)
    twins = _twins(facts.graph, readers)
    groups = _groups(facts, plan, ends, readers, twins)
    size = _size(facts.prepared.model, facts.graph, plan, twins.values())
    if size > limit:
        raise ConfigError(
            f"fit_size {config.fit_size}: with 4 bits throughout the model takes {size / 1e6:.3g} MB; give "
            "more, or larger blocks with --block-size"
        )
    chosen: set[str] = set()
    for group in sorted(groups, key=lambda g: (g.noise <= 0.0, -g.noise / g.added, not g.is_end, g.added)):
        if size + group.added <= limit:
            size += group.added
            chosen.update(group.nodes)
    return frozenset(chosen)


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
    noise = _noise(facts, plan)
    for name in (one for one in readers if one not in twins.values()):
        nodes = (*readers[name], *(readers[twins[name]] if name in twins else ()))
        array = facts.graph.constant(name)
        assert array is not None
        added = _bytes_of(array.shape, None) - _bytes_of(array.shape, plan.tensors[name])
        share = sum(noise.get(node, 0.0) for node in nodes)
        yield Group(nodes, added, share, not ends.isdisjoint(nodes))


def _few(node: Node, plan: QuantPlan, graph: Graph) -> list[str]:
    """Return the constants of a node that have 4 bits."""
    entry, rule = plan.nodes[node.name], node.rule
    if entry.kind is not Kind.WEIGHT_ONLY or rule is None:
        return []
    names = [node.input(w.index) for w in rule.constants]
    return [n for n in names if (p := plan.tensors.get(n)) is not None and p.qtype.name in FEW_BITS]


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


def _bytes_of(shape: Sequence[int], params: QuantParams | None) -> float:
    """Return what a constant takes with parameters, or in 8 bits, scales and zero points included."""
    elements = math.prod(shape)
    if len(shape) != 2 and params is not None and params.block_size is None:
        return elements + SCALE_BYTES * params.scale.size
    if params is None or params.block_size is None:
        return elements * (1.0 + SCALE_BYTES / max(1, min(UNBLOCKED, *shape)))
    bits, points = params.qtype.bits, params.qtype.bits if params.zero_point.any() else 0
    return elements * (bits + (8.0 * SCALE_BYTES + points) / params.block_size) / 8.0


def _noise(facts: PlanningFacts, plan: QuantPlan) -> dict[str, float]:
    """Return the noise of the weights of each node at the outputs over their signal; {} where unmeasured.

    Caches of keys and values, and other states, count as much as the answers do, all of them together.
    """
    profile, graph = facts.profile, facts.graph
    if not profile.noise:
        return {}
    gains = measured_gains(graph, profile, facts.activations.opset, profile.noise)
    estimator = NoiseEstimator(facts.activations, gains, WeightErrors(graph))
    flow = forecast_flow(estimator.gains_of(plan), gains.results())
    kinds = facts.noise_limits.kinds
    states = np.array([kinds.get(name) == "state" for name in flow.outputs])
    weights = sum((kind / kind.sum() for kind in (states, ~states) if kind.any()), np.zeros(states.size))
    found: dict[str, float] = {}
    for source in estimator.sources(flow, plan):
        if graph.is_constant(source.tensor):
            found[source.node] = found.get(source.node, 0.0) + float(source.share @ weights)
    return found
