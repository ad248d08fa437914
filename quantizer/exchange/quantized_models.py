"""What a quantized ONNX model of any tool says, in the names of the prepared float model.

The quantization is taken out of it (`dequantized_model`), the nodes and tensors of what is left are matched
with those of the float model (`matching`), and what was said of them becomes parameters and kinds of a plan;
the integers of its constants become roundings and biases (`kept_integers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ..model.graph import name_of
from ..numerics.affine import (
    INT32,
    QuantParams,
)
from ..operators.graph import Graph, Node, index, node_view
from ..operators.saturating import saturates_within
from ..operators.table import (
    Constraint,
)
from ..plan.plan import Adjustments
from ..plan.reasons import ReasonCode, because
from ..prepare.prepare import prepare
from .dequantized_model import Array, DequantizedModel, StoredConstant, Unread, dequantize_model, digest_of
from .folded_scales import broadcast_to_axis, folded_factors, folded_params, mirror
from .kept_integers import Weights, kept_weights
from .matching import Matched, is_turned, match
from .node_decisions import SourceNode, SourceParams


@dataclass
class _NodeFacts:
    """What is found of the nodes of the float model.

    Attributes:
        nodes: what the source decided about each.
        constants: node -> how the source stores its constants, by input index.
        float_biases: node -> the bias that it has in the source in float.
        added_biases: node -> the bias that it has in the source alone.
        folded: products whose weights have scales folded in that follow them in the source.
    """

    nodes: dict[str, SourceNode] = field(default_factory=dict)
    constants: dict[str, dict[int, StoredConstant]] = field(default_factory=dict)
    float_biases: dict[str, Array] = field(default_factory=dict)
    added_biases: dict[str, Array] = field(default_factory=dict)
    folded: list[str] = field(default_factory=list)


def source_of_model(graph: Graph, model: ir.Model, name: str, written_by: str) -> SourceParams:
    """Return what a quantized model says of a float model.

    Args:
        graph: the prepared float model.
        model: the quantized model, as it was read.
        name: what messages call it.
        written_by: the tool that its file names, "" where it names none.

    Raises:
        ModelError: it is not quantized, or not a quantized form of that float model.
    """
    source = dequantize_model(model)
    if not source.stored and not source.constants:
        found = f"what it says of quantization cannot be read: {_listed(source.unread)}"
        raise ModelError(
            f"{name}: {found if source.unread else 'has no quantized tensor'}; give a model with "
            "QuantizeLinear and DequantizeLinear or with QLinear operators, or a file of parameters"
        )
    other = index(prepare(source.model).model)
    source = _with_moved_values(source, other)
    matched = match(graph, other, source.names)
    facts = _node_facts(graph, other, source, matched)
    if not any(node.inputs for node in facts.nodes.values()):
        raise ModelError(
            f"{name}: none of its quantized nodes is in the float model; give the float model that it was "
            "made from with --float, or the one that the tool has optimised before"
        )
    weights = kept_weights(graph, {n: node.inputs for n, node in facts.nodes.items()}, facts.constants)
    writer = f" (written by {written_by})" if written_by else ""
    tensors = {
        own: source.stored[theirs][0]
        for own, theirs in matched.tensors.items()
        if theirs in source.stored and theirs not in source.mixed
    }
    return SourceParams(
        tool=name,
        tensors=tensors,
        nodes=facts.nodes,
        reasons={n: because(ReasonCode.NOT_IN_SOURCE, source=name) for n in matched.missing},
        float_biases=True,
        adjustments=Adjustments(
            biases={**_added_to_biases(graph, facts), **weights.biases}, roundings=weights.roundings
        ),
        has_operators=source.operators > 0,
        notes=(
            f"{name}{writer}: {len(matched.nodes)} nodes are those of the float model",
            *_notes_on_nodes(name, graph, source, matched, facts),
            *_notes_on_weights(name, weights),
        ),
    )


def _with_moved_values(source: DequantizedModel, other: Graph) -> DequantizedModel:
    """Return a source whose results of operators that only move or clip quantized values are quantized too.

    Tools that quantize in front of products alone write no conversion after these; the values are such that
    one would change none of them.
    """
    stored = dict(source.stored)
    full = replace(source, stored=stored)
    for node in other.nodes:
        rule = node.rule
        if rule is None or rule.constraint not in (Constraint.SAME, Constraint.CLAMP):
            continue
        dynamic, params = _read(node, node.input(0), full)
        bounded = node.op_type != "Clip" and not rule.refusal(node, other)
        if dynamic or params is None or params.axis is not None or not bounded:
            continue
        for name in (name for name in node.results if name not in stored and other.is_float(name)):
            stored[name] = (params,)
    return full


def _node_facts(graph: Graph, other: Graph, source: DequantizedModel, matched: Matched) -> _NodeFacts:
    facts = _NodeFacts()
    before = {name_of(node): node_view(node) for node in source.model.graph}
    for node in graph.nodes:
        name, theirs = node.name, matched.nodes.get(node.name)
        if theirs is None:
            facts.nodes[name] = SourceNode(dict(_as_stored(node, source, matched)))
            continue
        inputs: dict[int, QuantParams] = {}
        is_dynamic = False
        for position in range(min(len(node.inputs), len(theirs.inputs))):
            read = theirs.input(position)
            if other.is_constant(read):
                original = before.get(theirs.name)
                params = _note_constant(facts, node, position, other.constant(read), (source, original))
                if position == 1 and params is not None and is_turned(node, theirs):
                    turned = facts.constants[name][position].transposed()
                    facts.constants[name][position], params = turned, turned.params
            else:
                dynamic, params = _read(theirs, read, source)
                is_dynamic |= dynamic
            if params is not None:
                inputs[position] = params
        added = _added_bias(node, theirs, other)
        if added is not None:
            position, facts.added_biases[name] = added
            if digest_of(facts.added_biases[name]) in source.constants:
                inputs[position] = AS_PRODUCT
        how = source.implementations.get(theirs.name, "")
        facts.nodes[name] = SourceNode(inputs, is_dynamic, how)
    return facts


def _added_bias(node: Node, theirs: Node, other: Graph) -> tuple[int, Array] | None:
    """Return where a node of the source has a bias that the float model does not have, and the bias."""
    rule = node.rule
    if rule is None or rule.bias is None or node.input(rule.bias):
        return None
    array = other.constant(theirs.input(rule.bias)) if theirs.input(rule.bias) else None
    return None if array is None else (rule.bias, array)


def _as_stored(node: Node, source: DequantizedModel, matched: Matched) -> Iterator[tuple[int, QuantParams]]:
    """Yield the parameters of what a node reads that several nodes of the source stand for.

    Nothing where its result is not quantized there.
    """
    names = [matched.tensors.get(name, "") for name in node.outputs]
    if not names or any(name not in source.stored for name in names):
        return
    for position in range(len(node.inputs)):
        stored = source.stored.get(matched.tensors.get(node.input(position), ""))
        if stored:
            yield position, stored[0]


def _read(node: Node, name: str, source: DequantizedModel) -> tuple[bool, QuantParams | None]:
    """Return whether a node reads a tensor with dynamic parameters, and the parameters; None for float."""
    key = (node.name, name)
    if key in source.reads:
        return source.reads[key] is None, source.reads[key]
    stored = source.stored.get(name)
    return False, None if stored is None or name in source.mixed else stored[0]


def _note_constant(
    facts: _NodeFacts,
    node: Node,
    position: int,
    array: Array | None,
    origin: tuple[DequantizedModel, Node | None],
) -> QuantParams | None:
    """Note how the source stores a constant, and return its parameters; of a float bias, note what it is."""
    name, rule, (source, original) = node.name, node.rule, origin
    if array is None or array.dtype != np.float32:
        return None
    stored = source.constants.get(digest_of(array))
    if rule is not None and position == rule.bias:
        if stored is not None and name not in facts.folded:
            facts.constants.setdefault(name, {})[position] = stored
            return stored.params
        facts.float_biases[name] = array
        return AS_PRODUCT if name in facts.folded else None
    if stored is None and rule is not None and rule.weight is not None and position == rule.weight.index:
        stored = _with_folded_scales(node, array, (source, original))
        facts.folded += [name] * (stored is not None)
    if stored is None or stored.integers.shape != array.shape:
        return None
    facts.constants.setdefault(name, {})[position] = stored
    return stored.params


AS_PRODUCT = QuantParams((1.0,), (0,), INT32)
"""Of a bias: quantized; its parameters are those that products take."""


def _with_folded_scales(
    node: Node, array: Array, origin: tuple[DequantizedModel, Node | None]
) -> StoredConstant | None:
    """Return how a weight is stored after the scales that follow its product are folded in.

    None where the weight is not that of the source times a number for each output channel.
    """
    (source, original), rule = origin, node.rule
    if original is None or rule is None or rule.weight is None or len(original.inputs) <= rule.weight.index:
        return None
    before = original.constant(rule.weight.index)
    stored = None if before is None else source.constants.get(digest_of(before))
    axis = rule.weight.axis(node, array.ndim)
    if before is None or stored is None or before.shape != array.shape or axis is None:
        return None
    factors = folded_factors(before, array, axis)
    params = None if factors is None else folded_params(stored.params, factors, axis)
    if factors is None or params is None:
        return None
    integers = stored.integers.astype(np.int64)
    falls = broadcast_to_axis(factors, axis, array.ndim) < 0.0
    integers = np.where(falls, mirror(stored.params) - integers, integers)
    kept = np.clip(integers, params.qtype.low, params.qtype.high).astype(stored.integers.dtype)
    return StoredConstant(kept, params)


def _added_to_biases(graph: Graph, facts: _NodeFacts) -> dict[str, tuple[float, ...]]:
    """Return what float biases of the source have more than those of the float model."""
    deltas = {name: _numbers(array) for name, array in facts.added_biases.items()}
    for node in graph.nodes:
        name, rule = node.name, node.rule
        if name not in facts.float_biases or rule is None or rule.bias is None:
            continue
        own, theirs = graph.constant(node.input(rule.bias)), facts.float_biases[name]
        if (
            own is not None
            and own.shape == theirs.shape
            and not np.allclose(own, theirs, rtol=1e-5, atol=1e-6)
        ):
            deltas[name] = _numbers(theirs - own)
    return deltas


def _numbers(array: Array) -> tuple[float, ...]:
    return tuple(np.asarray(array, np.float32).reshape(-1).astype(np.float64).tolist())


def _notes_on_nodes(
    name: str, graph: Graph, source: DequantizedModel, matched: Matched, facts: _NodeFacts
) -> Iterator[str]:
    """Yield what was assumed and left out of nodes and activations."""
    saturated = [clip.name for clip in matched.absorbed if _saturates(clip, graph, source, matched)]
    added = [clip.name for clip in matched.absorbed if clip.name not in saturated]
    if saturated:
        yield f"{len(saturated)} activation functions that {name} leaves to saturation are pass-through nodes"
    if added:
        yield (
            f"{len(added)} activation functions are not computed by {name}, whose parameters do not saturate "
            f"there{_such(added)}: the plan has them, and so other results"
        )
    if matched.missing:
        yield f"{len(matched.missing)} nodes of the float model are not in {name}{_such(matched.missing)}"
    if matched.unmatched:
        yield (
            f"{len(matched.unmatched)} nodes of {name} are not in the prepared float model"
            f"{_such(matched.unmatched)}: what it says of them is left out"
        )
    several = [n for n, params in source.stored.items() if len(params) > 1]
    if several:
        yield (
            f"{len(several)} tensors of {name} are quantized in more than one way{_such(several)}: readers "
            "keep theirs"
        )
    if facts.folded:
        yield (
            f"{len(facts.folded)} products have the scales folded into their weights that follow them in "
            f"{name}{_such(facts.folded)}: their scales are multiplied, and what was rounded between is not"
        )
    if source.unread:
        unread = _listed(source.unread)
        yield f"what {name} says in these operators could not be read and is left out: {unread}"


def _saturates(clip: Node, graph: Graph, source: DequantizedModel, matched: Matched) -> bool:
    """Whether the parameters that the source stores the result of a clip in do what the clip does."""
    rule, stored = clip.rule, source.stored.get(matched.tensors[clip.output])
    if rule is None or rule.effective_range is None or rule.refusal(clip, graph) or not stored:
        return False
    return saturates_within(stored[0], *rule.effective_range(clip, graph))


def _listed(unread: Sequence[Unread]) -> str:
    """Return how many nodes of each operator could not be read, and why the first could not."""
    first = {one.operator: one for one in reversed(unread)}
    counts = Counter(one.operator for one in unread)
    return ", ".join(
        f"{counts[operator]} {operator} (such as '{first[operator].node}': {first[operator].reason})"
        for operator in sorted(counts)
    )


def _notes_on_weights(name: str, weights: Weights) -> Iterator[str]:
    """Yield what was kept and left out of the integers of constants."""
    if weights.roundings:
        yield f"{len(weights.roundings)} weights have the integers of {name}, which are not the nearest"
    if weights.biases:
        yield f"{len(weights.biases)} biases have the integers of {name}"
    if weights.lost:
        yield (
            f"the integers of {len(weights.lost)} constants cannot be kept{_such(weights.lost)}: they are "
            "rounded to the nearest"
        )
    if weights.others:
        yield (
            f"{len(weights.others)} weights of {name} are not rounded forms of those of the float model"
            f"{_such(weights.others)}: give the float model that was quantized, with the changes that the "
            "tool made before"
        )


def _such(names: Mapping[str, object] | tuple[str, ...] | list[str]) -> str:
    return f", such as '{next(iter(names))}'"
