"""Caches of keys and values in int8 (setting `kv_cache`): which a model has, with which scales. Pure.

An attention of onnxruntime keeps its cache itself and reads the scales; the parameters are those of its node
(`operators.caches`). Of a cache in standard operators (`operators.concat_caches`) the input and the output
are borders of the model, and the nodes that append to it have the parameters of what they read as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ConfigError
from ...profiles.base.tuned import tuned
from ...profiles.records.profile import Dim
from ..numerics.affine import INT8, QuantParams
from ..numerics.schemas import SCHEMAS, choose_params
from ..operators.caches import (
    ATTENTION,
    PLACES,
    CachePlace,
    channel_magnitudes,
    has_own_cache,
    new_entries,
    turns_pairs,
)
from ..operators.concat_caches import ConcatCache, concat_caches, turning_of, unfit_cache
from ..operators.graph import Graph, Node
from ..plan.plan import Kind, NodePlan
from ..targets.target import Target
from .facts import PlanningFacts

Floats = npt.NDArray[np.float64]

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


def check_has_cache(graph: Graph, target: Target, setting: str) -> None:
    """Raise ConfigError if a setting asks for int8 caches and the target has none for this model."""
    if setting == "float" or _attentions(graph, target) or _concat_caches(graph, target):
        return
    operators = " or ".join(target.int8_caches)
    reason = unfit_cache(graph) if "Concat" in target.int8_caches else ""
    reason = reason or (
        f"the model has no {operators} that reads a cache from an input of the model and gives it back as an "
        "output, in float32; use float"
    )
    raise ConfigError(f"kv_cache {setting}: {reason}")


def _attentions(graph: Graph, target: Target) -> list[Node]:
    nodes = (node for node in graph.nodes if node.op_type in target.int8_caches)
    return [node for node in nodes if has_own_cache(node, graph)]


def _concat_caches(graph: Graph, target: Target) -> tuple[ConcatCache, ...]:
    return concat_caches(graph) if "Concat" in target.int8_caches else ()


def with_int8_caches(
    facts: PlanningFacts, nodes: Mapping[str, NodePlan]
) -> tuple[dict[str, NodePlan], dict[str, QuantParams]]:
    """Return a plan's entries with the parameters of int8 caches, and those of inputs and outputs.

    A decoder stores keys and values from step to step. A scale covers all observed keys, or values, of a
    node: new ones and those of earlier steps. The inputs and outputs are caches in standard operators. Raises
    ConfigError if the target stores no cache of the model in int8, or its values are not profiled.
    """
    setting = facts.config.kv_cache
    check_has_cache(facts.graph, facts.target, setting)
    if setting == "float":
        return dict(nodes), {}
    found, borders = dict(nodes), dict[str, QuantParams]()
    for node in _attentions(facts.graph, facts.target):
        if nodes[node.name].kind is Kind.FLOAT:
            params = {place.past: _params_of_attention(facts, node, place) for place in PLACES}
            found[node.name] = replace(nodes[node.name], inputs=params)
    for cache in _concat_caches(facts.graph, facts.target):
        own = _params(facts, cache)
        borders |= {name: own for name in (cache.past, cache.present) if name}
        for node in cache.appends:
            found[node.name] = replace(nodes[node.name], inputs=dict.fromkeys(range(len(node.inputs)), own))
    return found, borders


def cached_names(
    graph: Graph, nodes: Mapping[str, NodePlan], borders: Mapping[str, QuantParams]
) -> tuple[str, ...]:
    """Return the model's inputs and outputs that are int8 caches, in their order."""
    of_attentions = {
        name
        for node in graph.nodes
        if nodes[node.name].keeps_int8_cache and node.op_type == ATTENTION
        for place in PLACES
        for name in (node.input(place.past), node.outputs[place.present])
    }
    return tuple(name for name in (*graph.inputs, *graph.outputs) if name in borders or name in of_attentions)


def _params(facts: PlanningFacts, cache: ConcatCache) -> QuantParams:
    """Return the parameters of a standard-operator cache: one scale, or one for each element of a head."""
    names = [name for name in (*cache.sources, cache.present) if name in facts.profile]
    seen = {name: facts.profile[name] for name in names if facts.profile[name].count}
    if not seen:
        raise _unknown(facts, cache.sources[0])
    if facts.config.kv_cache == "int8":
        ranges = [facts.activations.calibrated(name, INT8) for name in seen]
        low, high = min(found.low for found in ranges), max(found.high for found in ranges)
        return choose_params(low, high, SCHEMAS["symmetric"], INT8)
    most = max(max(-tensor.minimum, tensor.maximum) for tensor in seen.values())
    magnitudes = [
        tensor.channels.magnitude
        for name, tensor in seen.items()
        if tensor.channels is not None
        and _is_axis(tensor.channels.axis, cache.channels, facts.graph.shape(name))
    ]
    if not magnitudes:
        raise _without_channels(cache.sources[0])
    largest: Floats = np.max(magnitudes, axis=0)
    turnings = (turning_of(facts.graph, name, len(largest)) for name in cache.sources)
    turning = next(filter(None, turnings), None) if cache.channels == -1 else None
    if turning is None:
        largest = np.minimum(HEADROOM * largest, most)
    else:
        # Of pairs before they are turned: afterwards both elements are as large as it is long.
        unturned = facts.profile.get(turning.source)
        before = None if unturned is None or unturned.channels is None else unturned.channels.magnitude
        if before is None or before.shape != largest.shape or not before.any():
            before = largest
        largest = np.maximum(largest, turning.envelope(before))
    largest *= max(1.0, most / (float(largest.max()) or 1.0))
    rank = len(facts.graph.shape(cache.past) or ())
    return _params_of_channels(largest, most, axis=rank + cache.channels)


def _is_axis(axis: int, wanted: int, shape: Sequence[Dim] | None) -> bool:
    """Whether an axis of a shape is another one that is counted from the end."""
    return shape is not None and axis % len(shape) == len(shape) + wanted


def _params_of_attention(facts: PlanningFacts, node: Node, place: CachePlace) -> QuantParams:
    """Return the parameters of a cache of an attention: one scale, or one for each element of each head.

    The axis of these is the last, and the scales are those of the first head, then of the second, and so on.
    They cover the observed new keys, or values, in each channel, times `HEADROOM` except for keys whose pairs
    positions turn, which have room; if the cache had larger values, all scales grow with the largest.
    """
    present = node.outputs[place.present]
    if present not in facts.profile:
        raise _unknown(facts, present)
    if facts.config.kv_cache == "int8":
        seen = facts.activations.calibrated(present, INT8)
        return choose_params(seen.low, seen.high, SCHEMAS["symmetric"], INT8)
    name, _ = new_entries(node, place)
    tensor, cache = facts.profile.get(name), facts.profile[present]
    if tensor is None or tensor.channels is None:
        raise _without_channels(name)
    largest = channel_magnitudes(node, place, tensor.channels.magnitude)
    most = max(float(largest.max()), -cache.minimum, cache.maximum)
    largest *= most / (float(largest.max()) or 1.0)
    if not turns_pairs(node, place):
        largest = np.minimum(HEADROOM * largest, most)
    return _params_of_channels(largest, most, axis=3)


def _params_of_channels(largest: Floats, most: float, axis: int) -> QuantParams:
    """Return parameters with a scale for each channel, given its largest magnitude and that of all."""
    bounds = np.maximum(largest, MIN_CHANNEL_SHARE * most).reshape(-1).tolist()
    scales = [choose_params(-bound, bound, SCHEMAS["symmetric"], INT8).tensor_scale for bound in bounds]
    return QuantParams(np.array(scales, np.float32), np.zeros(len(scales), np.int32), INT8, axis=axis)


def _unknown(facts: PlanningFacts, name: str) -> ConfigError:
    return ConfigError(
        f"kv_cache {facts.config.kv_cache}: no profile has '{name}', so its scale is not known; give a "
        "profile or samples (--data)"
    )


def _without_channels(name: str) -> ConfigError:
    return ConfigError(
        f"kv_cache int8-per-channel: the profile has no channels of '{name}'; profile the model again with "
        "this version, or use int8"
    )
