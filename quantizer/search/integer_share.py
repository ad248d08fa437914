"""The fraction of a model in integers: of its bytes, and of its arithmetic; and an estimate of the time if a
target has no kernel times. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...profiles.records.profile import Profile, TensorProfile
from ..noise.activation_ranges import with_clip_profiles
from ..operators.graph import Graph, Node
from ..operators.weight_layout import Kernel
from ..plan.plan import QuantPlan

INTEGERS_SAVE = 0.5  # share of float's time that integers save where a target's kernels have no times


def saved_bytes(plan: QuantPlan, graph: Graph) -> float:
    """Return the bytes that the quantized constants of a plan need less than in float."""
    sizes = {name: graph.shape(name) for name in plan.tensors if graph.is_constant(name)}
    return sum(
        math.prod(int(dim or 1) for dim in shape) * (4.0 - plan.tensors[name].qtype.bits / 8.0)
        for name, shape in sizes.items()
        if shape is not None
    )


def planned_bytes(plan: QuantPlan, graph: Graph) -> float:
    """Return the bytes of a model's constants as planned."""
    tensors = (value.const_value for name, value in graph.values.items() if graph.is_constant(name))
    return sum(tensor.nbytes for tensor in tensors if tensor is not None) - saved_bytes(plan, graph)


def int8_share(plan: QuantPlan, graph: Graph, profile: Profile) -> float:
    """Return the share of the arithmetic that is done in integers or other types of few bits, in [0, 1]."""
    shares = _shares(graph, profile).items()
    return sum(share for name, share in shares if plan.nodes[name].kind.counts_as_quantized)


def arithmetic(graph: Graph, profile: Profile) -> float:
    """Return the multiplications of all profiled nodes in all samples, counted as in `int8_share`."""
    known = with_clip_profiles(profile, graph)
    return sum(multiplications(node, graph, known) or 0.0 for node in graph.nodes)


def assumed_time(plan: QuantPlan, graph: Graph, profile: Profile) -> float:
    """Return the time of a plan over float's, as if integers took half of it."""
    return 1.0 - INTEGERS_SAVE * int8_share(plan, graph, profile)


def assumed_prices(graph: Graph, profile: Profile) -> dict[str, float]:
    """Return the share of float's time that each node takes longer in float, as if integers took half."""
    return {name: INTEGERS_SAVE * share for name, share in _shares(graph, profile).items()}


def _shares(graph: Graph, profile: Profile) -> dict[str, float]:
    """Return the share of the arithmetic of each node with a profile."""
    known = with_clip_profiles(profile, graph)
    counted = {node.name: multiplications(node, graph, known) for node in graph.nodes}
    work = {name: done for name, done in counted.items() if done is not None}
    total = sum(work.values())
    return {name: done / total for name, done in work.items()} if total else {}


def multiplications(node: Node, graph: Graph, known: Mapping[str, TensorProfile]) -> float | None:
    """Return a node's multiplications in all samples; elements if no product; None without a profile."""
    layout = None if node.rule is None else node.rule.weight
    if node.rule is not None and node.rule.is_recurrent:
        # They follow from the input: of the results the last state alone may be read.
        read, weights = known.get(node.input(0)), [node.constant(1), node.constant(2)]
        if read is not None and weights[0] is not None and weights[1] is not None:
            steps = float(read.count / weights[0].shape[-1])
            return steps * (weights[0].size + weights[1].size)
    if node.output not in known:
        return None
    made = float(known[node.output].count)
    if layout is None or not layout.is_product:
        return made
    shape = _sizes(node.input(layout.index), graph, known)
    axes = layout.axes(node, tuple(dim or 1 for dim in shape))
    if shape and None not in shape:
        if layout.kernel is Kernel.SCATTERS and node.input(0) in known:
            return float(known[node.input(0)].count) * math.prod(axes.shape) / axes.input_channels
        if layout.kernel is Kernel.GATHERS:
            return made * math.prod(axes.shape) / axes.output_channels
    data = _sizes(node.input(0), graph, known)
    inner = shape[axes.input] if shape and axes.input is not None else None
    return made * (inner or (data[-1] if data else None) or 1)


def _sizes(name: str, graph: Graph, known: Mapping[str, TensorProfile]) -> tuple[int | None, ...]:
    """Return the sizes of a tensor, as the model or else all samples have them; () for an unknown rank."""
    of_run = known[name].shape if name in known else None
    declared = graph.shape(name)
    if declared is None or of_run is None or len(declared) != len(of_run):
        sizes = of_run if declared is None else declared
    else:
        sizes = tuple(mine or other for mine, other in zip(declared, of_run, strict=True))
    return tuple(dim if isinstance(dim, int) else None for dim in sizes or ())
