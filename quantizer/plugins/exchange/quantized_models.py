"""What a quantized ONNX model of any tool says, in the names of the prepared float model.

The quantization is removed (`dequantized_model`), the nodes and tensors of the rest are matched with those of
the float model (`matching`), and their quantization becomes parameters and kinds of a plan; the integers of
constants become roundings and biases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import ModelError, PlanError
from ....profiles.base.findings import Finding
from ...adjustments.rounded_weights import params_digest
from ...model.graph import name_of
from ...numerics.affine import INT32, QuantParams, dequantize, quantize, steps_of
from ...numerics.schemas import bias_params
from ...operators.graph import Graph, Node, in_main_graph, index, node_view
from ...operators.saturating import saturates_within
from ...operators.table import Constraint, product_layout
from ...plan.plan import Adjustments, RoundingOffsets
from ...plan.provenance import read_provenance
from ...plan.reasons import ReasonCode, because
from ...prepare.prepare import prepare
from .dequantized_model import Array, DequantizedModel, StoredConstant, dequantize_model, digest_of
from .foreign import assumption, omission
from .matching import Match, is_turned, match
from .source_plan import SourceNode, SourceParams

AS_PRODUCT = QuantParams((1.0,), (0,), INT32)
"""Kind of a bias: quantized, with the parameters that products require."""

MAX_OFFSET = 127
"""Most steps between the nearest integer and one that was chosen that offsets can say."""

MIN_WEIGHT_SQNR = 8.0
"""SQNR (dB) below which a weight is not a rounded form of that of the float model."""


def source_of_model(graph: Graph, model: ir.Model, name: str, written_by: str) -> SourceParams:
    """Return the parameters that a quantized model, as read, has for a prepared float model."""
    source = dequantize_model(model)
    if not source.stored and not source.constants:
        problem = f"its quantization cannot be read: {_unread(source)}"
        raise ModelError(
            f"{name}: {problem if source.unread else 'has no quantized tensor'}; {_readable(model)}"
        )
    other = index(prepare(source.model).model)
    source = _with_moved_values(source, other)
    matched = match(graph, other, source.names)
    facts = _node_facts(graph, other, source, matched)
    if not any(node.inputs for node in facts.nodes.values()):
        if source.unread:
            raise ModelError(
                f"{name}: its quantization cannot be read: {_unread(source)}; {_readable(model)}"
            )
        raise ModelError(
            f"{name}: none of its quantized nodes is in the float model; give the float model that it was "
            "made from with --model, or the one that the tool has optimised before"
        )
    weights = _kept_integers(facts)
    writer = f" (written by {written_by})" if written_by else ""
    return SourceParams(
        tool=name,
        tensors={
            own: source.stored[theirs][0]
            for own, theirs in matched.tensors.items()
            if theirs in source.stored and theirs not in source.mixed
        },
        nodes=facts.nodes,
        reasons={n: because(ReasonCode.NOT_IN_SOURCE, source=name) for n in matched.missing},
        float_biases=True,
        adjustments=Adjustments(
            biases={**facts.added_biases, **facts.changed_biases, **weights.biases},
            roundings=weights.roundings,
        ),
        has_operators=source.has_operators,
        findings=(
            assumption(f"{name}{writer}: {len(matched.nodes)} nodes are those of the float model", name),
            *_on_nodes(name, graph, source, matched, facts.folded),
            *_on_weights(name, weights),
        ),
    )


def _with_moved_values(source: DequantizedModel, other: Graph) -> DequantizedModel:
    """Return a source whose operators that move or clip quantized values have quantized results too."""
    stored = dict(source.stored)
    completed = replace(source, stored=stored)
    for node in other.nodes:
        rule = node.rule
        if rule is None or rule.constraint not in (Constraint.SAME, Constraint.CLAMP):
            continue
        _, params = _read(node, node.input(0), completed)
        bounded = node.op_type != "Clip" and not rule.refusal(node, other)
        if params is None or params.axis is not None or not bounded:
            continue
        for name in node.results:
            if name not in stored and other.is_float(name):
                stored[name] = (params,)
    return completed


def _read(node: Node, name: str, source: DequantizedModel) -> tuple[bool, QuantParams | None]:
    """Return whether a node reads a tensor with dynamic parameters, and the parameters; None for float."""
    key = (node.name, name)
    if key in source.reads:
        return source.reads[key] is None, source.reads[key]
    return False, source.stored[name][0] if name in source.stored and name not in source.mixed else None


# What the source says of each node of the float model ------------------------------------------------------


@dataclass
class _NodeFacts:
    """The source's facts about the nodes of the float model, by node name."""

    graph: Graph
    source: DequantizedModel
    nodes: dict[str, SourceNode] = field(default_factory=dict)  # the source's decision about each
    constants: dict[str, dict[int, StoredConstant]] = field(default_factory=dict)
    added_biases: dict[str, tuple[float, ...]] = field(default_factory=dict)
    changed_biases: dict[str, tuple[float, ...]] = field(default_factory=dict)
    folded: list[str] = field(default_factory=list)  # products with the scales after them folded in


def _node_facts(graph: Graph, other: Graph, source: DequantizedModel, matched: Match) -> _NodeFacts:
    facts = _NodeFacts(graph, source)
    originals = {name_of(node): node_view(node) for node in source.model.graph}  # before preparation
    for node in graph.nodes:
        theirs = matched.nodes.get(node.name)
        if theirs is None:
            facts.nodes[node.name] = SourceNode(_inputs_of_fused(node, source, matched))
            continue
        inputs: dict[int, QuantParams] = {}
        is_dynamic = False
        for position in range(min(len(node.inputs), len(theirs.inputs))):
            name = theirs.input(position)
            if other.is_constant(name):
                array, original = other.constant(name), originals.get(theirs.name)
                params = _note_constant(facts, node, position, array, original)
                if position == 1 and params is not None and is_turned(node, theirs):
                    turned = facts.constants[node.name][position].transposed()
                    facts.constants[node.name][position], params = turned, turned.params
            else:
                dynamic, params = _read(theirs, name, source)
                is_dynamic |= dynamic
            if params is not None:
                inputs[position] = params
        place = None if node.rule is None else node.rule.bias
        if place is not None and not node.input(place) and theirs.input(place):
            bias = other.constant(theirs.input(place))
            if bias is not None:
                facts.added_biases[node.name] = _numbers(bias)
                if digest_of(bias) in source.constants:
                    inputs[place] = AS_PRODUCT
        _note_following_bias(facts, node, other, matched)
        implementation = source.implementations.get(theirs.name, "")
        stored = facts.constants.get(node.name, {})
        if not is_dynamic and inputs.keys() <= stored.keys():  # with quantized weights alone
            implementation = "folded" if any(one.is_folded for one in stored.values()) else implementation
        facts.nodes[node.name] = SourceNode(inputs, is_dynamic, implementation)
    return facts


def _note_following_bias(facts: _NodeFacts, node: Node, other: Graph, matched: Match) -> None:
    """Record the difference of the bias of an Add after a product: the source's minus the float model's."""
    layout = product_layout(node)
    place = None if layout is None or not node.has_constant(layout.index) else layout.bias_place(node.ir_node)
    if place is None or place[0] is node.ir_node:
        return
    holder, position = name_of(place[0]), place[1]
    if holder not in matched.nodes:
        return
    own = facts.graph.constant(name_of(place[0].inputs[position]))
    array = other.constant(matched.nodes[holder].input(position))
    if own is None or array is None or own.shape != array.shape or digest_of(array) in facts.source.constants:
        return
    if not np.allclose(own, array, rtol=1e-5, atol=1e-6):
        facts.changed_biases[node.name] = _numbers(np.subtract(array, own, dtype=np.float32))


def _inputs_of_fused(node: Node, source: DequantizedModel, matched: Match) -> dict[int, QuantParams]:
    """Return input parameters of a node that the source writes as several; {} if its result stays float."""
    names = [matched.tensors.get(name, "") for name in node.outputs]
    if not names or any(name not in source.stored for name in names):
        return {}
    inputs = {i: matched.tensors.get(node.input(i), "") for i in range(len(node.inputs))}
    return {i: source.stored[name][0] for i, name in inputs.items() if source.stored.get(name)}


def _note_constant(
    facts: _NodeFacts, node: Node, position: int, array: Array | None, original: Node | None
) -> QuantParams | None:
    """Record how the source stores a constant, return its parameters; for a float bias record its addend."""
    name, rule = node.name, node.rule
    if array is None or array.dtype != np.float32:
        return None
    stored = facts.source.constants.get(digest_of(array))
    if rule is not None and position == rule.bias:
        if stored is not None and name not in facts.folded:
            facts.constants.setdefault(name, {})[position] = stored
            return stored.params
        own, layout = facts.graph.constant(node.input(position)), product_layout(node)
        if layout is None or not node.has_constant(layout.index):  # float values are those of the float model
            return None
        if own is not None and own.shape == array.shape and not np.allclose(own, array, rtol=1e-5, atol=1e-6):
            facts.changed_biases[name] = _numbers(array - own)
        return AS_PRODUCT if name in facts.folded else None
    if stored is None and rule is not None and rule.weight is not None and position == rule.weight.index:
        stored = _with_folded_scales(node, array, facts.source, original)
        facts.folded += [name] * (stored is not None)
    if stored is None or stored.integers.shape != array.shape:
        return None
    facts.constants.setdefault(name, {})[position] = stored
    return stored.params


def _with_folded_scales(
    node: Node, array: Array, source: DequantizedModel, original: Node | None
) -> StoredConstant | None:
    """Return the stored weight with the scales after its product folded in; None if it is no multiple."""
    rule = node.rule
    if original is None or rule is None or rule.weight is None:
        return None
    before, axis = original.constant(rule.weight.index), rule.weight.axis(node, array.ndim)
    stored = None if before is None else source.constants.get(digest_of(before))
    if before is None or stored is None or axis is None:
        return None
    folded = _with_folded_factors(stored.params, before, array, axis)
    if folded is None:
        return None
    params, is_mirrored = folded
    integers = stored.integers.astype(np.int64)
    integers = np.where(is_mirrored, _mirror(stored.params) - integers, integers)
    kept = np.clip(integers, params.qtype.low, params.qtype.high).astype(stored.integers.dtype)
    return StoredConstant(kept, params)


def _with_folded_factors(
    params: QuantParams, before: Array, after: Array, axis: int
) -> tuple[QuantParams, Array] | None:
    """Return the parameters of a weight after folding a factor into each output channel, and a mask, or None.

    Scales are multiplied by the factors; integers and zero point of a negative one are mirrored (`_mirror`),
    as the mask says, which broadcasts to the weight. `axis`, of the output channels, is not negative.
    """
    if before.shape != after.shape or params.axis not in (None, axis) or params.block_size:
        return None
    # The factor of each channel by least squares; 1 for a channel of zeros.
    others, wide = tuple(i for i in range(before.ndim) if i != axis), before.astype(np.float64)
    size = np.sum(wide**2, axis=others, keepdims=True)
    factors = np.sum(wide * after, axis=others, keepdims=True) / np.where(size == 0.0, 1.0, size)
    factors[(size == 0.0) | (factors == 0.0)] = 1.0
    nearly = 1e-6 * float(np.abs(after).max(initial=0.0))
    if not np.allclose(before * factors, after, rtol=1e-3, atol=nearly):
        return None
    scales = np.asarray(params.scale_array.astype(np.float64) * np.abs(factors.reshape(-1)), np.float32)
    if not np.all(np.isfinite(scales) & (scales > 0.0)):
        return None
    points = np.broadcast_to(params.zero_point, scales.shape)
    points = np.where(factors.reshape(-1) < 0.0, _mirror(params) - points, points)
    return replace(params, scale=scales, zero_point=points, axis=axis), factors < 0.0


def _mirror(params: QuantParams) -> int:
    """Return the sum of an integer and of that which stands for its negative value in mirrored parameters."""
    if params.qtype.signed and not params.zero_point.any():
        return 0
    return int(params.qtype.low) + int(params.qtype.high)


def _numbers(array: Array) -> tuple[float, ...]:
    return tuple(np.asarray(array, np.float32).reshape(-1).astype(np.float64).tolist())


# The integers of weights and biases, as adjustments of a plan ----------------------------------------------


@dataclass(frozen=True)
class _KeptIntegers:
    """Corrections that give quantized weights and biases the source's integers, by nodes."""

    roundings: dict[str, RoundingOffsets] = field(default_factory=dict)
    biases: dict[str, tuple[float, ...]] = field(default_factory=dict)  # addend of a bias
    lost: dict[str, None] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


def _kept_integers(facts: _NodeFacts) -> _KeptIntegers:
    graph, kept = facts.graph, _KeptIntegers()
    for node in graph.nodes:
        name, rule, inputs = node.name, node.rule, facts.nodes[node.name].inputs
        for position, stored in facts.constants.get(name, {}).items():
            array, params = graph.constant(node.input(position)), inputs.get(position)
            if array is None or array.shape != stored.integers.shape:
                continue
            if rule is not None and position == rule.bias:
                delta = _bias_delta(node, array, stored, inputs)
                if delta is None:
                    kept.lost[name] = None
                elif delta:
                    kept.biases[name] = delta
                continue
            if params is None:
                continue
            nearest = quantize(array, params)
            if np.array_equal(stored.integers.astype(np.float32), nearest.astype(np.float32)):
                continue
            if _sqnr(array, dequantize(stored.integers, params)) < MIN_WEIGHT_SQNR:
                kept.others.append(name)
            steps = steps_of(stored.integers, params.qtype) - steps_of(nearest, params.qtype)
            if not _has_offsets(graph, node, position) or np.abs(steps).max() > MAX_OFFSET:
                kept.lost[name] = None
                continue
            kept.roundings[name] = RoundingOffsets(steps.astype(np.int8).tobytes(), params_digest(params))
    return kept


def _has_offsets(graph: Graph, node: Node, position: int) -> bool:
    """Whether a plan can store rounding offsets of a constant (`quantized_weights`)."""
    value, array = node.ir_node.inputs[position], node.constant(position)
    is_weight = node.rule is not None and node.rule.weight is not None and node.rule.weight.index == position
    alone = value is not None and len(value.uses()) == 1 and not value.is_graph_output()
    return is_weight and array is not None and array.ndim >= 2 and alone and in_main_graph(graph, node)


def _bias_delta(
    node: Node, array: Array, stored: StoredConstant, inputs: Mapping[int, QuantParams]
) -> tuple[float, ...] | None:
    """Return the addend that gives a bias the source's integers; () if it needs none, None if none does."""
    rule = node.rule
    if rule is None or rule.weight is None or 0 not in inputs or rule.weight.index not in inputs:
        return None
    try:
        params = bias_params(inputs[0], inputs[rule.weight.index])
    except PlanError:
        return None
    floats, own = np.asarray(array, np.float32), quantize(array, params)
    same_scale = np.allclose(stored.params.scale_array, params.scale_array, rtol=1e-5, atol=0.0)
    goal = stored.integers if same_scale else quantize(dequantize(stored.integers, stored.params), params)
    goal = goal.astype(np.int64)
    if np.array_equal(own.astype(np.int64), goal):
        return ()
    delta = np.where(own == goal, np.float32(0.0), dequantize(goal, params) - floats).astype(np.float32)
    fits = np.array_equal(quantize(floats + delta, params).astype(np.int64), goal)
    return _numbers(delta) if fits else None


def _sqnr(array: Array, other: Array) -> float:
    wanted = np.asarray(array, np.float64)
    noise = float(np.mean((wanted - other) ** 2))
    signal = float(np.mean(wanted**2))
    return np.inf if noise == 0.0 else 10.0 * float(np.log10(max(signal, 1e-300) / noise))


# What was assumed and left out ----------------------------------------------------------------------


def _on_nodes(
    name: str, graph: Graph, source: DequantizedModel, matched: Match, folded: Collection[str]
) -> Iterator[Finding]:
    saturated: list[str] = []  # clips that the parameters of their results do
    added: list[str] = []
    for clip in matched.absorbed:
        rule, stored = clip.rule, source.stored.get(matched.tensors[clip.output])
        saturates = (
            rule is not None
            and rule.effective_range is not None
            and not rule.refusal(clip, graph)
            and stored
            and saturates_within(stored[0], *rule.effective_range(clip, graph))
        )
        (saturated if saturates else added).append(clip.name)
    if saturated:
        sentence = (
            f"{len(saturated)} activation functions that {name} leaves to saturation are pass-through nodes"
        )
        yield assumption(sentence, name, nodes=len(saturated))
    if added:
        sentence = (
            f"{len(added)} activation functions are not computed by {name}, whose parameters do not saturate "
            f"there{_such(added)}: the plan has them, and so other results"
        )
        yield assumption(sentence, name, nodes=len(added))
    if matched.missing:
        missing = matched.missing
        sentence = f"{len(missing)} nodes of the float model are not in {name}{_such(missing)}"
        yield omission(sentence, name, nodes=len(missing))
    if matched.unmatched:
        sentence = (
            f"{len(matched.unmatched)} nodes of {name} are not in the prepared float model"
            f"{_such(matched.unmatched)}: their parameters are skipped"
        )
        yield omission(sentence, name, nodes=len(matched.unmatched))
    several = [n for n, params in source.stored.items() if len(params) > 1]
    if several:
        sentence = (
            f"{len(several)} tensors of {name} are quantized in more than one way{_such(several)}: readers "
            "keep theirs"
        )
        yield assumption(sentence, name, tensors=len(several))
    if folded:
        sentence = (
            f"{len(folded)} products have the scales folded into their weights that follow them in "
            f"{name}{_such(folded)}: their scales are multiplied, and the rounding between is lost"
        )
        yield assumption(sentence, name, nodes=len(folded))
    if source.few_bits:
        sentence = f"floats of {name} are {source.few_bits}, and float32 here"
        remedy = "set float_type: float16 in the plan, in form qdq for a target that takes it"
        yield omission(sentence, name, remedy)
    if source.unread:
        sentence = f"these operators of {name} could not be read and are skipped: {_unread(source)}"
        yield omission(sentence, name)


def _on_weights(name: str, weights: _KeptIntegers) -> Iterator[Finding]:
    if weights.roundings:
        sentence = f"{len(weights.roundings)} weights have the integers of {name}, which are not the nearest"
        yield assumption(sentence, name, weights=len(weights.roundings))
    if weights.biases:
        sentence = f"{len(weights.biases)} biases have the integers of {name}"
        yield assumption(sentence, name, biases=len(weights.biases))
    if weights.lost:
        sentence = (
            f"the integers of {len(weights.lost)} constants cannot be kept{_such(weights.lost)}: they are "
            "rounded to the nearest"
        )
        yield omission(sentence, name, constants=len(weights.lost))
    if weights.others:
        sentence = (
            f"{len(weights.others)} weights of {name} are not rounded forms of those of the float model"
            f"{_such(weights.others)}"
        )
        remedy = "give the float model that was quantized, with the changes that the tool made before"
        yield omission(sentence, name, remedy, weights=len(weights.others))


def _readable(model: ir.Model) -> str:
    """Return advice for a model without readable quantization; for one of qprof, to give its plan."""
    written = read_provenance(model)
    form = "" if written is None else written.form
    if form in ("integer", "primitives"):
        return f"it is of form {form}, whose arithmetic has no scales: give the plan that qprof made it from"
    return (
        "give a model with QuantizeLinear and DequantizeLinear or with QLinear operators, or a file of "
        "parameters"
    )


def _unread(source: DequantizedModel) -> str:
    """Return how many nodes of each operator could not be read, and why the first could not."""
    return ", ".join(
        f"{len(nodes)} {operator} (such as {nodes[0]})" for operator, nodes in sorted(source.unread.items())
    )


def _such(names: Collection[str]) -> str:
    return f", such as '{next(iter(names))}'"
