"""How much of a model a plan has in integers: of its bytes, and of its arithmetic; and the time that this is
taken for where a target's kernels have no times. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...profiles.records.profile import Profile, TensorProfile
from ..noise.activation_ranges import with_clip_profiles
from ..operators.graph import Graph, Node
from ..plan.plan import Kind, QuantPlan

INTEGERS_SAVE = 0.5
"""Share of float's time that integers save where a target's kernels have no times."""


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
    input where that is fixed, a recurrent node those of all its steps, and every other node its output
    elements. Outputs without a profile (shapes,
    indices) count nothing.
    """
    shares = _shares(graph, profile).items()
    return sum(share for name, share in shares if plan.nodes[name].kind.counts_as_quantized)


def arithmetic(graph: Graph, profile: Profile) -> float:
    """Return the multiplications of all nodes with a profile, counted as in `int8_share`, of all its samples
    together."""
    known = with_clip_profiles(profile, graph)
    return sum(_work(node, graph, known) or 0.0 for node in graph.nodes)


def assumed_time(plan: QuantPlan, graph: Graph, profile: Profile) -> float:
    """Return the time of a plan over float's, as if integers took half of it."""
    return 1.0 - INTEGERS_SAVE * int8_share(plan, graph, profile)


def assumed_prices(graph: Graph, profile: Profile) -> dict[str, float]:
    """Return the share of float's time that each node takes longer in float, as if integers took half."""
    return {name: INTEGERS_SAVE * share for name, share in _shares(graph, profile).items()}


def _shares(graph: Graph, profile: Profile) -> dict[str, float]:
    """Return the share of the arithmetic of each node with a profile."""
    known = with_clip_profiles(profile, graph)
    work = {node.name: done for node in graph.nodes if (done := _work(node, graph, known)) is not None}
    total = sum(work.values())
    return {name: done / total for name, done in work.items()} if total else {}


def _work(node: Node, graph: Graph, known: Mapping[str, TensorProfile]) -> float | None:
    """Return the multiplications of a node; None without a profile.

    Those of a recurrent node follow from its input: of its results the last state alone may be read.
    """
    if node.rule is not None and node.rule.is_recurrent:
        read, weights = known.get(node.input(0)), [node.constant(1), node.constant(2)]
        if read is not None and weights[0] is not None and weights[1] is not None:
            steps = float(read.count / weights[0].shape[-1])
            return steps * (weights[0].size + weights[1].size)
    if node.output not in known:
        return None
    return known[node.output].count * multiplications(node, graph)


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
