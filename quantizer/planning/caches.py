"""The scales of keys and values that a decoder keeps from step to step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...profiles.base.errors import ConfigError
from ..numerics.affine import INT8
from ..numerics.schemas import SCHEMAS, choose_params
from ..operators.caches import PLACES, has_own_cache
from ..plan.plan import Kind, NodePlan
from .facts import PlanningFacts


def with_int8_caches(facts: PlanningFacts, nodes: Mapping[str, NodePlan]) -> dict[str, NodePlan]:
    """Return the entries of a plan, those of attentions with the parameters of the cache that they keep.

    A scale covers what was seen of all keys, or values, of a node: new ones and those of earlier steps.

    Raises:
        ConfigError: the target has no such attention, the model has none whose cache goes in and out of it,
            or nothing is known of its values.
    """
    if facts.config.kv_cache == "float":
        return dict(nodes)
    target = facts.target
    if not target.int8_caches:
        raise ConfigError(f"kv_cache int8: {target.name} has no attention with such a cache; use float")
    found = dict(_caches(facts, nodes))
    if not found:
        raise ConfigError(
            f"kv_cache int8: the model has no {' or '.join(target.int8_caches)} whose cache is an input and "
            "an output of the model, in float32, and nothing else; use float"
        )
    return {**nodes, **found}


def _caches(facts: PlanningFacts, nodes: Mapping[str, NodePlan]) -> Iterator[tuple[str, NodePlan]]:
    for node in facts.graph.nodes:
        entry = nodes[node.name]
        if entry.kind is not Kind.FLOAT or node.op_type not in facts.target.int8_caches:
            continue
        params = {}
        for place in PLACES if has_own_cache(node, facts.graph) else ():
            present = node.outputs[place.present]
            if present not in facts.profile:
                raise ConfigError(
                    f"kv_cache int8: no profile has '{present}', so its scale is not known; give a profile "
                    "or samples (--data)"
                )
            known = facts.activations.calibrated(present, INT8)
            params[place.past] = choose_params(known.low, known.high, SCHEMAS["symmetric"], INT8)
        if params:
            yield node.name, replace(entry, inputs=params)
