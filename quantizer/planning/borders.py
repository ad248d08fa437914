"""The integers that a model takes and gives: inputs and outputs (setting `io`), caches (`kv_cache`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ..numerics.affine import INT8, TYPES, QuantParams
from ..numerics.schemas import SCHEMAS, choose_params
from ..numerics.tuned import tuned
from ..operators.caches import (
    PLACES,
    CachePlace,
    channel_magnitudes,
    has_own_cache,
    new_entries,
    turns_pairs,
)
from ..operators.graph import Node
from ..plan.plan import Kind, NodePlan
from .facts import PlanningFacts

HEADROOM = tuned(
    1.4,
    figure=(
        "38.6 dB of a cache on samples that were not profiled, for 34.7 with the ranges of the "
        "samples (DECISIONS.md, 87)"
    ),
    chosen_on="a small decoder",
)
"""How much larger a channel of a cache may become than it was in the samples."""

MIN_CHANNEL_SHARE = 1.0 / 256.0
"""Share of the largest value of a cache that each of its channels is held to reach."""


def with_int8_caches(facts: PlanningFacts, nodes: Mapping[str, NodePlan]) -> dict[str, NodePlan]:
    """Return the entries of a plan, those of attentions with the parameters of the cache that they keep.

    A decoder keeps keys and values from step to step. A scale covers what was seen of all keys, or values, of
    a node: new ones and those of earlier steps.

    Raises:
        ConfigError: the model has no attention whose cache goes in and out of it, or nothing is known of its
            values.
    """
    target, graph, asked = facts.target, facts.graph, f"kv_cache {facts.config.kv_cache}"
    if facts.config.kv_cache == "float":
        return dict(nodes)
    attentions: dict[str, NodePlan] = {}
    for node in graph.nodes:
        entry = nodes[node.name]
        if entry.kind is not Kind.FLOAT or node.op_type not in target.int8_caches:
            continue
        if not has_own_cache(node, graph):
            continue
        params = {}
        for place in PLACES:
            present = node.outputs[place.present]
            if present not in facts.profile:
                raise ConfigError(
                    f"{asked}: no profile has '{present}', so its scale is not known; give a profile "
                    "or samples (--data)"
                )
            if facts.config.kv_cache == "int8-per-channel":
                params[place.past] = _params_by_channel(facts, node, place)
            else:
                seen = facts.activations.calibrated(present, INT8)
                params[place.past] = choose_params(seen.low, seen.high, SCHEMAS["symmetric"], INT8)
        attentions[node.name] = replace(entry, inputs=params)
    if not attentions:
        raise ConfigError(
            f"{asked}: the model has no {' or '.join(target.int8_caches)} whose cache is an input and "
            "an output of the model, in float32, and nothing else; use float"
        )
    return {**nodes, **attentions}


def _params_by_channel(facts: PlanningFacts, node: Node, place: CachePlace) -> QuantParams:
    """Return the parameters of a cache with a scale for each element of each head.

    Its axis is the last, and the scales are those of the first head, then of the second, and so on. They
    cover what the samples had of new keys, or values, in each channel, with `HEADROOM` but for keys that
    positions turn, whose pairs have room; where the cache itself had larger ones, all grow with the largest.

    Raises:
        ConfigError: the profile has no channels of new keys or values.
    """
    name, _ = new_entries(node, place)
    tensor, cache = facts.profile.get(name), facts.profile[node.outputs[place.present]]
    if tensor is None or tensor.channels is None:
        raise ConfigError(
            f"kv_cache int8-per-channel: the profile has no channels of '{name}'; profile the model again "
            "with this version, or use int8"
        )
    largest = channel_magnitudes(node, place, tensor.channels.magnitude)
    most = max(float(largest.max()), -cache.minimum, cache.maximum)
    largest *= most / (float(largest.max()) or 1.0)
    if not turns_pairs(node, place):
        largest = np.minimum(HEADROOM * largest, most)
    schema = SCHEMAS["symmetric"]
    scales = [
        choose_params(-bound, bound, schema, INT8).tensor_scale
        for bound in np.maximum(largest, MIN_CHANNEL_SHARE * most).reshape(-1).tolist()
    ]
    return QuantParams(np.array(scales, np.float32), np.zeros(len(scales), np.int32), INT8, axis=3)


def integer_borders(
    facts: PlanningFacts, tensors: Mapping[str, QuantParams], nodes: Mapping[str, NodePlan]
) -> dict[str, QuantParams]:
    """Return the parameters of the inputs and outputs that are integers at the border; {} with io float.

    Those of 8 bits that are quantized inside keep their scale: uint8 and int8 of the same scale hold the same
    numbers, 128 apart. Others get the range that their profile shows. Caches of keys and values are left out.

    Raises:
        ConfigError: nothing is known of a value, or no value is float32.
    """
    config = facts.config
    if config.io == "float":
        return {}
    qtype, graph = TYPES[config.io], facts.prepared.model.graph
    caches = {
        name
        for node in facts.graph.nodes
        if nodes[node.name].keeps_int8_cache
        for place in PLACES
        for name in (node.input(place.past), node.outputs[place.present])
    }
    borders: dict[str, QuantParams] = {}
    for value in (*graph.inputs, *graph.outputs):
        name = str(value.name)
        if value.dtype is not ir.DataType.FLOAT or name in caches:
            continue
        inside = tensors.get(name)
        if inside is not None and inside.axis is None and inside.qtype.bits == qtype.bits:
            moved = inside.zero_point + (qtype.low - inside.qtype.low)
            borders[name] = QuantParams(inside.scale, moved, qtype)
        elif name in facts.profile:
            seen = facts.activations.calibrated(name, qtype)
            borders[name] = choose_params(seen.low, seen.high, SCHEMAS["asymmetric"], qtype)
        else:
            raise ConfigError(
                f"io {config.io}: no profile has '{name}', so its scale is not known; give a profile or "
                "samples (--data)"
            )
    if not borders:
        raise ConfigError(f"io {config.io}: the model has no input and no output in float32; use io float")
    return borders
