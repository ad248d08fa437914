"""The objectives of a tuning as they follow from a plan: predicted speed, size, share of int8. Pure."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ...profiles.records.profile import Profile
from ..costs.predicted import CostModel, total_microseconds
from ..model.graph import Graph, name_of, output_name
from ..operators.table import rule_of
from ..plan.plan import QuantPlan
from ..planning.plan_model import PlannedModel
from ..ranges.clipped_activations import with_clip_profiles


def predicted_objective(planned: PlannedModel, objective: str, profile: Profile, float_bytes: int) -> float:
    """Return the value of an objective as it is predicted of a plan, larger is better.

    Args:
        planned: a plan with the facts that it was made from.
        objective: one of `OBJECTIVES`.
        profile: of the prepared model.
        float_bytes: size of the float model.
    """
    if objective == "size":
        return float_bytes / max(1.0, float_bytes - saved_bytes(planned.plan, planned.graph))
    facts = planned.facts
    if objective == "int8-share" or facts is None or facts.recipe.costs is None:
        return int8_share(planned.plan, planned.graph, profile)
    model = CostModel(planned.graph, facts.profile, facts.recipe.costs)
    total = total_microseconds(model.costs(planned.plan), planned.graph, planned.plan)
    return sum(model.floating.values()) / max(total, 1e-3)


def saved_bytes(plan: QuantPlan, graph: Graph) -> float:
    """Return the bytes that the quantized constants of a plan need less than in float."""
    sizes = {name: graph.shape(name) for name in plan.tensors if graph.is_constant(name)}
    return sum(
        math.prod(int(dim or 1) for dim in shape) * (4.0 - plan.tensors[name].qtype.bits / 8.0)
        for name, shape in sizes.items()
        if shape is not None
    )


def int8_share(plan: QuantPlan, graph: Graph, profile: Profile) -> float:
    """Return the share of the arithmetic that is done in integers, in [0, 1].

    A node with a constant weight counts its multiplications (elements of the output times elements of the
    weight for each output channel), a product of two activations those along the last axis of its first
    input where that is fixed, and every other node its output elements. Outputs without a profile (shapes,
    indices) count nothing.
    """
    done, total, profile = 0.0, 0.0, with_clip_profiles(profile, graph)
    for node in graph.nodes:
        name = output_name(node)
        if name not in profile:
            continue
        work = float(profile[name].count) * multiplications(node, graph)
        total += work
        done += work if plan.nodes[name_of(node)].kind.counts_as_quantized else 0.0
    return done / total if total else 0.0


def multiplications(node: ir.Node, graph: Graph) -> float:
    """Return the multiplications for each element of the output."""
    rule = rule_of(node)
    if rule is None or rule.weight is None:
        return 1.0
    value = node.inputs[rule.weight.index]
    weight = None if value is None else graph.constant(name_of(value))
    if weight is not None:
        axis = rule.weight.axis(node, weight.ndim)
        return float(weight.size) / (1 if axis is None else weight.shape[axis])
    first = node.inputs[0]
    shape = None if first is None else graph.shape(name_of(first))
    inner = shape[-1] if shape else None
    return 1.0 if inner is None else float(np.int64(inner))
