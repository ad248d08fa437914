"""First layers: products at the head of a model that are cheap in float and add much noise in int8. Pure.

Where a model begins with few channels, a product takes little of the time and may add much of the noise:
what it loses is lost to all that follows. Only the outermost products are considered, those before which all
is float already: one of them in float moves the border and adds no conversions.

Noise is compared with the variance of an output, not with its power: a constant offset, such as an image's
mean brightness, carries no information.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from ...profiles.records.profile import Profile
from ..model.graph import Graph, name_of, output_name
from ..noise.propagation import NoiseFlow
from ..numerics.density import density, mean_of
from ..operators.table import rule_of
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReason, ReasonCode, because

Floats = npt.NDArray[np.float64]

LOW_NOISE_DB = 36.0
"""Variance of an output over its noise, as estimated, from which nothing is gained by less noise. nudenet,
whose scores are few and decided at rare places, has 28 to 31 with all its layers in int8 and loses 1.9
points, and 0.3 with its first layer in float, at the same speed (tuning split)."""

TIMES_ITS_COST = 2.0
"""Least ratio of a node's part of the noise to its part of the multiplications. At 4 one of two profiles of
nudenet left its first layer in int8; at 2 no other model changed (tuning splits)."""

MOST_PRODUCTS = 0.05
"""Part of all quantized multiplications that may go back to float in all."""


def cheap_nodes(
    graph: Graph, profile: Profile, flow: NoiseFlow, plan: QuantPlan, noise: Mapping[str, Floats]
) -> dict[str, FloatReason]:
    """Return products at the head of the model that are better in float, each with the figures.

    Args:
        graph, profile: of the model.
        flow: how its noise travels.
        plan: its plan.
        noise: by node, its noise power over signal power at each output of the flow.
    """
    total = sum(noise.values(), np.zeros(len(flow.outputs)))
    varying = varying_part(profile, flow)
    level = np.divide(total, varying, out=np.zeros_like(total), where=varying > 0.0)
    if not level.size or level.max() <= 10.0 ** (-LOW_NOISE_DB / 10.0):
        return {}
    worst = int(np.argmax(level))
    products = _products(graph, profile, plan)
    all_products = sum(products.values())
    found: dict[str, FloatReason] = {}
    spent = 0.0
    after = _after_quantized(graph, products, found)
    for name in products:
        part = float(noise[name][worst] / total[worst]) if name in noise else 0.0
        cost = products[name] / all_products
        if name in after or part < TIMES_ITS_COST * cost or spent + cost > MOST_PRODUCTS:
            continue
        spent += cost
        found[name] = because(
            ReasonCode.CHEAP_FIRST_LAYER,
            noise_share=100.0 * part,
            output=flow.outputs[worst],
            level=-10.0 * math.log10(level[worst]),
            cost_share=100.0 * cost,
        )
        after = _after_quantized(graph, products, found)
    return found


def varying_part(profile: Profile, flow: NoiseFlow) -> Floats:
    """Return the variance of each output of a flow over its power."""
    return np.array([_variance(profile, name) / flow.powers[name] for name in flow.outputs])


def _variance(profile: Profile, name: str) -> float:
    seen = density(profile[name])
    return mean_of(seen, np.square) - mean_of(seen, lambda x: x) ** 2


def _products(graph: Graph, profile: Profile, plan: QuantPlan) -> dict[str, float]:
    """Return the number of multiplications of each quantized node with a constant weight, in graph order."""
    found = {}
    for node in graph.nodes:
        rule, name = rule_of(node), output_name(node)
        if plan.nodes[name_of(node)].kind is not Kind.QUANTIZED or rule is None or rule.weight is None:
            continue
        value = node.inputs[rule.weight.index]
        weight = None if value is None else graph.constant(name_of(value))
        if weight is not None and name in profile:
            axis = rule.weight.axis(node, weight.ndim)
            outputs = 1 if axis is None else weight.shape[axis]
            found[name_of(node)] = float(profile[name].count) * weight.size / max(outputs, 1)
    return found


def _after_quantized(graph: Graph, products: Collection[str], floats: Collection[str]) -> set[str]:
    """Return the nodes after a quantized product."""
    after: set[str] = set()
    reached: set[str] = set()
    for node in graph.nodes:
        name = name_of(node)
        if any(value is not None and value.name in reached for value in node.inputs):
            after.add(name)
        if name in after or (name in products and name not in floats):
            reached |= {name_of(value) for value in node.outputs}
    return after
