"""How much of a model a plan has in integers: of its bytes, and of its arithmetic. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...profiles.records.profile import Profile
from ..noise.activation_ranges import with_clip_profiles
from ..operators.graph import Graph, Node
from ..plan.plan import Kind, QuantPlan


def saved_bytes(plan: QuantPlan, graph: Graph) -> float:
    """Return the bytes that the quantized constants of a plan need less than in float."""
    sizes = {name: graph.shape(name) for name in plan.tensors if graph.is_constant(name)}
    return sum(
        math.prod(int(dim or 1) for dim in shape) * (4.0 - plan.tensors[name].qtype.bits / 8.0)
        for name, shape in sizes.items()
        if shape is not None
    )


def int8_share(plan: QuantPlan, graph: Graph, profile: Profile) -> float:
    """Return the share of the arithmetic that is done in integers or other types of few bits, in [0, 1].

    A node with a constant weight counts its multiplications (elements of the output times elements of the
    weight for each output channel), a product of two activations those along the last axis of its first
    input where that is fixed, and every other node its output elements. Outputs without a profile (shapes,
    indices) count nothing.
    """
    done, total, profile = 0.0, 0.0, with_clip_profiles(profile, graph)
    for node in graph.nodes:
        name = node.output
        if name not in profile:
            continue
        work = float(profile[name].count) * multiplications(node, graph)
        total += work
        done += work if plan.nodes[node.name].kind.counts_as_quantized else 0.0
    return done / total if total else 0.0


def float_share(plan: QuantPlan, graph: Graph, profile: Profile) -> tuple[str, float]:
    """Return the floating-point type of few bits of products, "" for none, and its part of `int8_share`."""
    types = {node.name: plan.float_type_of(node.name, node.inputs) for node in graph.nodes}
    name = next(filter(None, types.values()), "")
    if not name:
        return "", 0.0
    others = {key: replace(entry, kind=Kind.FLOAT) for key, entry in plan.nodes.items() if not types[key]}
    return name, int8_share(replace(plan, nodes={**plan.nodes, **others}), graph, profile)


def multiplications(node: Node, graph: Graph) -> float:
    """Return the multiplications for each element of the output."""
    rule = node.rule
    if rule is None or rule.weight is None:
        return 1.0
    weight = node.constant(rule.weight.index)
    if weight is not None:
        axis = rule.weight.axis(node, weight.ndim)
        return float(weight.size) / (1 if axis is None else weight.shape[axis])
    shape = graph.shape(node.inputs[0]) if node.inputs[0] else None
    inner = shape[-1] if shape else None
    return 1.0 if inner is None else float(np.int64(inner))
