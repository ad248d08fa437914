"""A size for the whole model (setting `fit_size`): the format of each weight.

Each weight gets one of the target's formats: the combination that fits with the least noise at the outputs,
which is a knapsack problem with a choice for each weight. The noise of a format is the measured noise of the
weight in its most exact format, scaled by the rounding error of each format. Without a measurement, all
weights have the same noise per error. A shared constant has one format that all its readers support, and its
bytes count once. Float is one of the formats once a run has shown that the others are too noisy
(`Known.floats_fit`).

How many bytes the graph itself takes, only the written model tells: plans are written until one fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import ConfigError
from ....profiles.base.presentation import size_text
from ...lowering.lower import lower
from ...model.saving import has_external_data, written_bytes
from ...noise.estimator import NoiseEstimator
from ...noise.propagation import forecast_flow
from ...numerics.affine import INT8
from ...numerics.schemas import SCHEMAS
from ...operators.graph import Graph, Node
from ...operators.weight_layout import WeightLayout
from ...plan.plan import RUNTIME_WEIGHTS, Implementation, Kind, QuantPlan
from ...plan.reasons import ReasonCode, because
from ...planning.facts import PlanningFacts
from ...planning.known import Known
from ...planning.plan_model import PlannedModel, plan_from
from ...planning.planner import decide
from ...planning.stored_weights import Storage, table_storage, weight_storage, written_name
from ...targets.config import size_in_bytes
from ...targets.weight_formats import WeightFormat, formats_of
from .packed_bytes import unblocked_size

NODE_BYTES = 500
"""Bytes that a packed weight adds to the graph: names, shapes, attributes."""

METADATA_BYTES = 2000
"""Bytes of the records in a written model's metadata."""

SCALE_BYTES = 4

ZERO_POINT_BYTES = 80
"""Bytes that zero points of blocks add to the graph, a name in three places; 8-bit weights do not need
them."""

SIZED_PLANS = 8
"""Plans that are written to fit a size, of which one does."""

SIZE_TOLERANCE = 1000
"""A difference of one part in this many of the requested size does not justify another plan."""

SIZE_STEPS = 10_000
"""Steps into which the size left over by the smallest formats is divided, to count sizes of weights."""

SAMPLED_ELEMENTS = 1 << 15
"""Elements of a weight, in whole channels, on which the errors of its formats are compared."""


@dataclass(frozen=True)
class FormatChoice:
    """A format that a weight can have."""

    format: WeightFormat | None  # None for float
    size: float  # bytes of the weight
    noise: float  # at the outputs, over their signal


Choices = Sequence[FormatChoice]
"""The formats that all readers of a weight take, by size; each has less noise than those before."""


def with_chosen_formats(facts: PlanningFacts, known: Known) -> Known:
    """Return `Known` with the formats of weights.

    Nodes that stay float because the size has room for that join its floats. Raises ConfigError if the model
    exceeds `fit_size` in its smallest formats.
    """
    config, graph = facts.config, facts.graph
    plan = decide(facts, replace(known, formats=_references(facts)))
    weights = _weights(facts, plan, known)
    sizes = {name: 0.0 for names in weights for name in names}
    sizes |= {names[-1]: choices[0].size for names, choices in weights.items()}
    least, limit = _estimated_size(facts, plan, sizes) + known.size_error, size_in_bytes(config.fit_size)
    if limit < least < math.inf:
        raise beyond_size(facts, least)
    places = quietest(tuple(weights.values()), limit - least)
    chosen = {
        name: choices[at].format
        for (names, choices), at in zip(weights.items(), places, strict=True)
        for name in names
    }
    kept = {name for name, of in chosen.items() if of is None}
    fitting = {
        node.name: because(ReasonCode.FITS_IN_FLOAT, size=config.fit_size)
        for node in graph.nodes
        if not kept.isdisjoint(_stored_constants(node, plan))
    }
    formats = {name: replace(of, why="to fit the size") for name, of in chosen.items() if of is not None}
    return replace(known, formats=formats, floats={**fitting, **known.floats})


def plan_of_written_size(facts: PlanningFacts, known: Known) -> PlannedModel:
    """Return the plan whose written model meets `fit_size`.

    The written size corrects the planner's estimate: first with the smallest formats, then as planned, while
    the model is too large or leaves more room than estimated. Other formats have other estimate errors, so at
    most `SIZED_PLANS` plans bisect between one that fits and one that does not. If the smallest formats do
    not fit, the most exact ones may: if weights are small, a format can add more to the graph than the
    weight. Raises ConfigError if the model in its smallest formats is too large.
    """
    external, limit = has_external_data(facts.prepared.model), size_in_bytes(facts.config.fit_size)
    fitting: PlannedModel | None = None
    error, least, most = math.inf, -math.inf, math.inf  # errors of plans that are too large, that fit
    step, smallest = 0.0, math.inf
    for _ in range(SIZED_PLANS):
        planned = plan_from(facts, replace(known, size_error=error))
        size = written_bytes(lower(planned.model, planned.plan).model, external)
        exact = size - _estimated_size(facts, planned.plan)
        if size <= limit:
            fitting, most = planned, error
            if most - max(exact, least) <= limit / SIZE_TOLERANCE:
                return fitting
            error = exact if exact > least else (least + most) / 2.0
        elif fitting is None and error == math.inf:
            smallest, error = size, -math.inf  # where what a format adds to the graph is most of a weight
        elif fitting is None:
            raise beyond_size(facts, min(smallest, size))
        else:
            least = error
            step += size - limit + limit / SIZE_TOLERANCE  # more each time, for plans that stay the same
            error = (least + most) / 2.0 if most < math.inf else error + step
    assert fitting is not None
    return fitting


def beyond_size(facts: PlanningFacts, size: float) -> ConfigError:
    """Return the error that a model has more bytes than `fit_size` in the smallest formats of the target."""
    tenths = 100 if size < 1e6 else 100_000  # what `size_text` tells, rounded up: so much is enough
    return ConfigError(
        f"--max-size {facts.config.fit_size} (fit_size): in the smallest formats that {facts.target.name} "
        f"takes the model has {size_text(math.ceil(size / tenths) * tenths)}; give more"
    )


def quietest(weights: Sequence[Choices], room: float) -> list[int]:
    """Return the index of each weight's choice so that all fit and together leave the least noise.

    A knapsack, by dynamic programming, in `SIZE_STEPS` parts of the room (bytes beyond those of all first
    choices), rounded up. Bytes that the rounding leaves go to the next better formats that fit.
    """
    if sum(choices[-1].size - choices[0].size for choices in weights) <= room:
        return [len(choices) - 1 for choices in weights]
    most = np.zeros(SIZE_STEPS + 1)
    taken = np.zeros((len(weights), SIZE_STEPS + 1), np.int16)
    sizes = [
        [
            math.ceil((c.size - choices[0].size) * SIZE_STEPS / room) if room > 0.0 else SIZE_STEPS + 1
            for c in choices
        ]
        for choices in weights
    ]
    for choices, needed, best in zip(weights, sizes, taken, strict=True):
        before = most.copy()
        for place, (choice, size) in enumerate(zip(choices, needed, strict=True)):
            if place and size <= SIZE_STEPS:
                together = before[: SIZE_STEPS + 1 - size] + (choices[0].noise - choice.noise)
                best[size:][together > most[size:]] = place
                most[size:] = np.maximum(most[size:], together)
    places, left = [0] * len(weights), SIZE_STEPS
    for number in reversed(range(len(weights))):
        places[number] = int(taken[number, left])
        left -= sizes[number][places[number]] if places[number] else 0
    rest = room - sum(choices[p].size - choices[0].size for choices, p in zip(weights, places, strict=True))
    for number, choices in enumerate(weights):
        at = choices[places[number]].size
        fitting = [p for p in range(places[number] + 1, len(choices)) if choices[p].size - at <= rest]
        if fitting:
            places[number] = fitting[-1]
            rest -= choices[fitting[-1]].size - at
    return places


def _readers(graph: Graph) -> dict[str, list[tuple[Node, WeightLayout]]]:
    """Return the nodes that read each constant as their weight, with its layout."""
    readers: dict[str, list[tuple[Node, WeightLayout]]] = {}
    for node in graph.nodes:
        for weight in () if node.rule is None else node.rule.constants:
            if graph.is_constant(node.input(weight.index)):
                readers.setdefault(node.input(weight.index), []).append((node, weight))
    return readers


def _storages(
    facts: PlanningFacts, shape: Sequence[int], readers: Iterable[tuple[Node, WeightLayout]]
) -> dict[tuple[str, int], Storage]:
    """Return the ways to store a constant for all of its readers, in the form for the last reader."""
    found: dict[tuple[str, int], Storage] | None = None
    for node, weight in readers:
        own: dict[tuple[str, int], Storage] = {}
        for asked in formats_of(facts.target, node.op_type):
            if asked.qtype.is_float and facts.config.rounding != "nearest":
                continue  # rounding with samples is for integers
            if node.rule is not None and node.rule.is_lookup:
                stored = table_storage(node, shape, facts, asked)
                if stored is None and asked.qtype.storage == INT8.name and not asked.block_size:
                    whole = replace(asked, qtype=INT8)
                    stored = Storage(whole, weight.axis(node, len(shape)), Implementation.INTEGER)
            else:
                stored = weight_storage(node, weight, shape, facts, asked)
            if stored is not None and stored.key[0] == written_name(asked.qtype) and not stored.remark:
                own.setdefault(stored.key, stored)
        found = own if found is None else {key: own[key] for key in found if key in own}
    return found or {}


def _references(facts: PlanningFacts) -> dict[str, WeightFormat]:
    """Return the format of each weight for estimating its noise: the widest, preferably of integers."""
    found = {}
    for name, readers in _readers(facts.graph).items():
        storages = _storages(facts, _constant_shape(facts.graph, name), readers)
        if storages:
            formats = (one.format for one in storages.values())
            found[name] = max(formats, key=lambda f: (f.qtype.bits, not f.qtype.is_float, -f.block_size))
    return found


def _weights(facts: PlanningFacts, plan: QuantPlan, known: Known) -> dict[tuple[str, ...], Choices]:
    """Return the possible formats of each weight of a plan, by its constants, of which the last is stored."""
    graph, all_readers = facts.graph, _readers(facts.graph)
    stored = _ways_of(graph, plan)
    noise, twins, weights = _noise(facts, plan), _twins_of(graph, stored), dict[tuple[str, ...], Choices]()
    for name in (name for name in stored if name not in twins.values()):
        names = (name, twins[name]) if name in twins else (name,)
        readers = [reader for one in names for reader in all_readers[one]]
        shape = _constant_shape(graph, names[-1])
        storages = _storages(facts, shape, readers)
        errors = {key: _error(facts, names[-1], readers[-1], one) for key, one in storages.items()}
        params = plan.tensors[names[-1]]
        reference = errors.get((written_name(params.qtype), params.block_size or 0), 0.0)
        share = sum(noise.get(one, 0.0) for one in names) / reference if noise and reference else 1.0
        sizes = {key: _stored_bytes(shape, one) for key, one in storages.items()}
        choices, least = list[FormatChoice](), math.inf
        for key in sorted(storages, key=lambda key: (sizes[key], errors[key])):
            if errors[key] < least:
                least = errors[key]
                choices.append(FormatChoice(storages[key].format, sizes[key], share * least))
        is_only_one = all(len(_stored_constants(node, plan)) == 1 for node, _ in readers)
        if choices and known.floats_fit and is_only_one:
            choices.append(FormatChoice(None, _float_bytes(facts, names[-1]), 0.0))
        if choices:
            weights[names] = choices
    return weights


def _error(facts: PlanningFacts, name: str, reader: tuple[Node, WeightLayout], storage: Storage) -> float:
    """Return the squared error of a constant over its squares, on `SAMPLED_ELEMENTS` of it."""
    key, errors = (name, storage.key, storage.axis, storage.format.schema), facts.on.format_errors
    if key not in errors:
        node, weight = reader
        array = facts.graph.constant(name)
        assert array is not None
        axis = weight.axis(node, array.ndim)
        if axis is not None and array.size > SAMPLED_ELEMENTS:
            channels = array.shape[axis]
            count = max(1, channels * SAMPLED_ELEMENTS // array.size)
            array = array.take(np.arange(count) * channels // count, axis)
        _, sqnr = storage.params_of(array.astype(np.float32, copy=False))
        errors[key] = 10.0 ** (-sqnr / 10.0)
    return errors[key]


def _estimated_size(facts: PlanningFacts, plan: QuantPlan, sizes: Mapping[str, float] | None = None) -> float:
    """Return about how many bytes the model takes as planned, with some constants of other `sizes`."""
    graph, bare = facts.graph, facts.prepared.model.clone()
    for part in bare.graphs():
        part.initializers.clear()
    packed = sum(node.kind is Kind.WEIGHT_ONLY for node in plan.nodes.values())
    size = float(METADATA_BYTES + NODE_BYTES * packed + ir.to_proto(bare).ByteSize())
    ways = _ways_of(graph, plan)
    twins = _twins_of(graph, ways)
    for name, value in graph.values.items():
        tensor = value.const_value
        if not graph.is_constant(name) or tensor is None or name in twins:
            continue
        params = plan.tensors.get(name)
        if sizes and name in sizes:
            size += sizes[name]
        elif params is None:
            size += _float_bytes(facts, name)
        else:
            schema = SCHEMAS["symmetric"]
            usual = 0 if params.qtype.signed else 1 << (params.qtype.bits - 1)
            if np.any(params.zero_point != usual):
                schema = SCHEMAS["asymmetric"]
            own = WeightFormat(params.qtype, params.block_size or 0, schema)
            size += _stored_bytes(
                _constant_shape(graph, name), Storage(own, params.axis, ways.get(name, Implementation.USUAL))
            )
    return size


def _stored_constants(node: Node, plan: QuantPlan) -> list[str]:
    """Return the constants of a node that are stored quantized."""
    entry, rule = plan.nodes[node.name], node.rule
    if entry.kind is not Kind.WEIGHT_ONLY or rule is None:
        return []
    return [name for w in rule.constants if (name := node.input(w.index)) in plan.tensors]


def _constant_shape(graph: Graph, name: str) -> tuple[int, ...]:
    """Return the shape of a constant of a graph."""
    tensor = graph.values[name].const_value
    assert tensor is not None
    return tuple(tensor.shape.numpy())


def _ways_of(graph: Graph, plan: QuantPlan) -> dict[str, str]:
    """Return the constants that are stored quantized, each with its last reader's implementation."""
    entries = ((node, plan.nodes[node.name].implementation) for node in graph.nodes)
    return {name: way for node, way in entries for name in _stored_constants(node, plan)}


def _twins_of(graph: Graph, ways: Mapping[str, str]) -> dict[str, str]:
    """Return the matrices that are stored as others transposed: a table -> the weight of the last product.

    DequantizeLinear before a product cannot read a table.
    """
    matrices = {name: graph.constant(name) for name, way in ways.items() if way != Implementation.USUAL}
    arrays = {name: array for name, array in matrices.items() if array is not None and array.ndim == 2}
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, array in arrays.items():
        by_shape.setdefault(array.shape, []).append(name)
    twins: dict[str, str] = {}
    for shape, alike in by_shape.items():
        for name in alike:
            for other in by_shape.get(shape[::-1], ()):
                if other == name or name in twins.values():
                    continue
                array, turned = arrays[name], arrays[other].T
                if np.array_equal(array[:1], turned[:1]) and np.array_equal(array, turned):
                    twins.setdefault(name, other)
    return twins


def _float_bytes(facts: PlanningFacts, name: str) -> float:
    """Return the bytes of a constant that is not quantized."""
    tensor = facts.graph.values[name].const_value
    assert tensor is not None
    narrow = facts.config.is_float16 and tensor.dtype is ir.DataType.FLOAT
    return tensor.nbytes / 2.0 if narrow else float(tensor.nbytes)


def _stored_bytes(shape: Sequence[int], storage: Storage) -> float:
    """Return the bytes of a constant, with those of its scales and zero points."""
    qtype, block, axis = storage.format.qtype, storage.format.block_size, storage.axis
    elements, bits = math.prod(shape), qtype.bits
    if axis is None:
        return elements * bits / 8.0 + SCALE_BYTES
    if not block and storage.implementation not in RUNTIME_WEIGHTS:
        return elements * bits / 8.0 + SCALE_BYTES * shape[axis]
    # Blocks, of which the last is filled up; a packed weight has them in any case, along its other axis.
    size = shape[axis] if block else elements // shape[axis]
    block = block or unblocked_size(size)
    rows, blocks = elements / size, -(-size // block)
    scale_bytes = SCALE_BYTES if qtype.scales is None else 1
    values = rows * blocks * (block * bits / 8.0 + scale_bytes)
    has_points = not storage.format.schema.symmetric and not qtype.is_float
    return values + (ZERO_POINT_BYTES + rows * -(-blocks * bits // 8) if has_points else 0)


def _noise(facts: PlanningFacts, plan: QuantPlan) -> dict[str, float]:
    """Return the noise of each weight at the outputs over their signal; {} if it was not measured.

    All caches of keys and values, and other states, together count as much as all answers.
    """
    profile, graph = facts.profile, facts.graph
    if not profile.noise:
        return {}
    estimator = NoiseEstimator(facts.activations, facts.noise_gains)
    flow = forecast_flow(estimator.gains_of(plan), facts.noise_gains.outputs_with_signal())
    kinds = facts.noise_limits.kinds
    states = np.array([kinds.get(name) == "state" for name in flow.outputs], bool)
    weights = sum((kind / kind.sum() for kind in (states, ~states) if kind.any()), np.zeros(states.size))
    noise: dict[str, float] = {}
    for source in estimator.sources(flow, plan):
        if graph.is_constant(source.tensor):
            noise[source.tensor] = noise.get(source.tensor, 0.0) + float(source.share @ weights)
    return noise
