"""Caches of keys and values in int8 (setting `kv_cache`): which a model has, with which scales.

An attention of onnxruntime manages its cache itself and reads the scales; its node has the parameters. For a
cache in standard operators (`concat_caches`), the input and the output are borders of the model, and the
nodes that append to it have the parameters of their inputs too.

Source: GroupQueryAttention in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from ....profiles.base.errors import ConfigError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.tuned import tuned
from ...numerics.affine import INT8, QuantParams
from ...numerics.schemas import SCHEMAS, choose_params
from ...operators.graph import Graph, Node
from ...operators.table import MICROSOFT
from ...plan.formats import Format, Part
from ...plan.reasons import FloatReasons, ReasonCode, because
from .concat_caches import ConcatCache, Turning, concat_caches, turning_of

if TYPE_CHECKING:
    from ...lowering.lowered import LoweredModel
    from ...plan.plan import QuantPlan
    from ...planning.facts import PlanningFacts
    from ...prepare.prepare import PreparedModel
    from ...targets.target import Recipe, Target

Floats = npt.NDArray[np.float64]

ATTENTION = "GroupQueryAttention"
"""The operator that can keep its cache in integers."""

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


@dataclass(frozen=True)
class CachePlace:
    """The inputs, output and attribute of an attention that belong to its cache of keys, or of values."""

    past: int  # input with the cache of earlier steps
    present: int  # output with the new keys or values appended to it
    scale: int  # input with the scale of an integer cache
    type_attribute: str  # says whether a tensor or a channel has a scale of its own
    new: int  # input with what is appended, before positions turn it


PLACES = (CachePlace(3, 1, 12, "k_quant_type", 1), CachePlace(4, 2, 13, "v_quant_type", 2))
"""The cache of keys and that of values of `ATTENTION`."""


def has_own_cache(node: Node, graph: Graph) -> bool:
    """Whether an attention is the only reader of its cache, a float input and output of the model."""
    if (node.domain, node.op_type) != (MICROSOFT, ATTENTION):
        return False
    for place in PLACES:
        past = node.input(place.past)
        present = node.outputs[place.present] if place.present < len(node.outputs) else ""
        if past not in graph.inputs or present not in graph.outputs or node.input(place.scale):
            return False
        others = (reader for name in (past, present) for reader, _ in graph.consumers(name))
        is_shared = any(reader is not node and not reader.facts.reads_shape_only for reader in others)
        is_shared = is_shared or node.inputs.count(past) != 1
        if is_shared or not graph.is_float(past) or not graph.is_float(present):
            return False
    return True


def recorded(graph: Graph) -> dict[str, int | None]:
    """Return the activations that hold keys and values, each with the axis of its channels or None."""
    axes: dict[str, int | None] = {}
    for node in graph.nodes:
        if has_own_cache(node, graph):
            axes |= {_new_entries(node, place)[0]: -1 for place in PLACES}
    for cache in concat_caches(graph):
        for name in cache.sources:
            shape = graph.shape(name)
            turning = turning_of(graph, name, shape[-1] or 0) if shape and cache.channels == -1 else None
            axes.setdefault(name, cache.channels)
            if turning is not None and turning.source:
                axes.setdefault(turning.source, cache.channels)
        axes |= {node.output: axes.get(node.output) for node in cache.appends}
    return axes


def check_has_cache(prepared: PreparedModel, recipe: Recipe) -> None:
    """Raise ConfigError if the target stores no cache of the model in int8."""
    graph, operators = prepared.graph, recipe.target.int8_caches
    if _attentions(graph, recipe.target) or _concat_caches(graph, recipe.target):
        return
    raise ConfigError(
        f"kv_cache {recipe.config.kv_cache}: the model has no {' or '.join(operators)} that reads a cache "
        "from an input of the model and gives it back as an output, in float32; use float"
    )


def _attentions(graph: Graph, target: Target) -> list[Node]:
    nodes = (node for node in graph.nodes if node.op_type in target.int8_caches)
    return [node for node in nodes if has_own_cache(node, graph)]


def _concat_caches(graph: Graph, target: Target) -> tuple[ConcatCache, ...]:
    return concat_caches(graph) if "Concat" in target.int8_caches else ()


def _appending(graph: Graph, recipe: Recipe) -> FloatReasons:
    """Return the nodes that append to an int8 cache, which stay float."""
    caches = _concat_caches(graph, recipe.target)
    return {node.name: because(ReasonCode.INT8_CACHE) for cache in caches for node in cache.appends}


def with_int8_caches(facts: PlanningFacts, plan: QuantPlan) -> QuantPlan:
    """Return a plan with the parameters of int8 caches; inputs and outputs are those in standard operators.

    A decoder stores keys and values from step to step. A scale covers all observed keys, or values, of a
    node: new ones and those of earlier steps. Raises ConfigError if they are not profiled.
    """
    check_has_cache(facts.prepared, facts.recipe)
    nodes, borders, held = dict(plan.nodes), dict(plan.borders), set[str]()
    for node in _attentions(facts.graph, facts.target):
        if nodes[node.name].stays_float:
            params = {place.past: _params_of_attention(facts, node, place) for place in PLACES}
            nodes[node.name] = replace(nodes[node.name], inputs=params)
            held |= {name for p in PLACES for name in (node.input(p.past), node.outputs[p.present])}
    for cache in _concat_caches(facts.graph, facts.target):
        own = _params(facts, cache)
        borders |= dict.fromkeys((cache.past, cache.present), own)
        for node in cache.appends:
            nodes[node.name] = replace(nodes[node.name], inputs=dict.fromkeys(range(len(node.inputs)), own))
    held |= borders.keys()
    taken, given = ([n for n in names if n in held] for names in (facts.graph.inputs, facts.graph.outputs))
    sentence = (
        f"keys and values are int8: inputs {_listed(taken)} and outputs {_listed(given)}; "
        "your program must allocate them as int8 and pass them on unchanged"
    )
    every = (*taken, *given)
    findings = [Finding(Code.INT8_CACHES, sentence, every[0], {"tensors": len(every)})] if every else []
    return replace(plan, nodes=nodes, borders=borders, findings=(*plan.findings, *findings))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def stored_caches(model: str | bytes) -> dict[str, npt.NDArray[np.float32]]:
    """Return the scales of inputs and outputs of a file (path or bytes) that are int8 caches, by name.

    Each broadcasts with (batch, heads, steps, elements of a head). Those of an attention whose scales are no
    constants are left out.
    """
    if isinstance(model, bytes):
        proto, folder = onnx.load_from_string(model), ""
    else:  # weights in other files stay there
        proto, folder = onnx.load(model, load_external_data=False), str(Path(model).parent)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    caches: dict[str, npt.NDArray[np.float32]] = {}
    for node in proto.graph.node:
        if node.op_type != ATTENTION:
            continue
        heads = next((a.i for a in node.attribute if a.name == "kv_num_heads"), 1)
        for place in PLACES:
            scale = constants.get(node.input[place.scale]) if place.scale < len(node.input) else None
            if scale is not None:
                scales = onnx.numpy_helper.to_array(scale, folder).astype(np.float32)
                scales = scales.reshape(()) if scales.size == 1 else scales.reshape(1, heads, 1, -1)
                caches |= {node.input[place.past]: scales, node.output[place.present]: scales}
    return caches


# Their parameters ----------------------------------------------------------------------------------------


def _params(facts: PlanningFacts, cache: ConcatCache) -> QuantParams:
    """Return the parameters of a standard-operator cache: one scale, or one for each element of a head."""
    graph = facts.graph
    names = [name for name in (*cache.sources, cache.present) if name in facts.profile]
    seen = {name: facts.profile[name] for name in names if facts.profile[name].count}
    if not seen:
        raise _unknown(facts, cache.sources[0])
    if facts.config.kv_cache == "int8":
        return _params_of_tensor(facts, seen)
    most = max(max(-tensor.minimum, tensor.maximum) for tensor in seen.values())
    rank = len(graph.shape(cache.past) or ())
    magnitudes = [
        tensor.channels.magnitude
        for name, tensor in seen.items()
        if tensor.channels is not None
        and (shape := graph.shape(name)) is not None
        and tensor.channels.axis % len(shape) == len(shape) + cache.channels
    ]
    if not magnitudes:
        raise _without_channels(cache.sources[0])
    largest: Floats = np.max(magnitudes, axis=0)
    turnings = (turning_of(graph, name, len(largest)) for name in cache.sources)
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
    return _params_of_channels(largest, most, axis=rank + cache.channels)


def _params_of_attention(facts: PlanningFacts, node: Node, place: CachePlace) -> QuantParams:
    """Return the parameters of a cache of an attention: one scale, or one for each element, head after head.

    They cover the observed new keys, or values, in each channel, times `HEADROOM` except for keys whose pairs
    positions turn, which have room; if the cache had larger values, all scales grow with the largest.
    """
    present = node.outputs[place.present]
    if present not in facts.profile:
        raise _unknown(facts, present)
    if facts.config.kv_cache == "int8":
        return _params_of_tensor(facts, [present])
    name, _ = _new_entries(node, place)
    tensor, cache = facts.profile.get(name), facts.profile[present]
    if tensor is None or tensor.channels is None:
        raise _without_channels(name)
    largest = channel_magnitudes(node, place, tensor.channels.magnitude)
    most = max(float(largest.max()), -cache.minimum, cache.maximum)
    largest *= most / (float(largest.max()) or 1.0)
    if not _turns_pairs(node, place):
        largest = np.minimum(HEADROOM * largest, most)
    return _params_of_channels(largest, most, axis=3)


def _new_entries(node: Node, place: CachePlace) -> tuple[str, int]:
    """Return the tensor with the new keys, or values, and the head with which they begin in it."""
    if node.input(place.new):
        return node.input(place.new), 0
    heads, stored = _heads(node)
    return node.input(0), heads + (place.new - 1) * stored


def _heads(node: Node) -> tuple[int, int]:
    """Return how many heads an attention has, and how many of them have keys and values of their own."""
    heads, stored = (node.attributes.get_int(name, 1) or 1 for name in ("num_heads", "kv_num_heads"))
    return heads, stored


def _turns_pairs(node: Node, place: CachePlace) -> bool:
    """Whether positions turn the entries of a cache: the keys of an attention with `do_rotary`."""
    return place is PLACES[0] and node.attributes.get_int("do_rotary", 0) == 1


def channel_magnitudes(node: Node, place: CachePlace, magnitudes: Floats) -> Floats:
    """Return the largest magnitudes in a cache, (heads, elements), by the channels of `_new_entries`."""
    heads, stored = _heads(node)
    _, first = _new_entries(node, place)
    each = len(magnitudes) // (stored if node.input(place.new) else heads + 2 * stored)
    own = magnitudes[first * each : (first + stored) * each].reshape(stored, each)
    if not _turns_pairs(node, place):
        return own.copy()
    size = node.attributes.get_int("rotary_embedding_dim", each) or each
    return Turning(size, bool(node.attributes.get_int("rotary_interleaved", 0))).envelope(own)


def _params_of_tensor(facts: PlanningFacts, names: Collection[str]) -> QuantParams:
    """Return parameters with one scale for all that several tensors were observed to hold."""
    ranges = [facts.activations.calibrated(name, INT8) for name in names]
    low, high = min(found.low for found in ranges), max(found.high for found in ranges)
    return choose_params(low, high, SCHEMAS["symmetric"], INT8)


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


# For the core --------------------------------------------------------------------------------------------


def _write_attentions(model: ir.Model, plan: QuantPlan) -> None:
    from .cache_writer import write_attention_caches  # profiling asks this module too, and writes nothing

    write_attention_caches(model, plan)


def _write(lowered: LoweredModel, plan: QuantPlan) -> LoweredModel:
    from .cache_writer import write_concat_caches

    write_concat_caches(lowered.model, plan)
    return lowered


FORMAT = Format(
    check=check_has_cache,
    recorded=recorded,
    floats=_appending,
    part=lambda facts, *_: Part(finish=partial(with_int8_caches, facts)),
    write_nodes=_write_attentions,
    write=_write,
)
