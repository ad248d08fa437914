"""Model + profile + recipe -> plan. Pure: no data is run and nothing is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ..profiles.profile import ModelId, Profile
from .affine import TYPES, QuantParams, unsigned_twin
from .calibrators import Range, calibrate
from .candidates import Choice, Limits, activation_names, outputs_of
from .config import QuantConfig
from .graph import Graph
from .groups import find_groups
from .noise import expected_noise
from .plan import Group, Kind, NodePlan, QuantPlan
from .rules import Rule, rule_of
from .schemes import SCHEMES, bias_params, channel_params, choose_params, weight_for_bias
from .selection import select
from .targets import Recipe


def make_plan(
    graph: Graph,
    profile: Profile,
    recipe: Recipe,
    model: ModelId,
    notes: tuple[str, ...] = (),
    *,
    start_everywhere: bool = False,
) -> QuantPlan:
    """Decide everything about one model.

    Args:
        graph: the prepared model.
        profile: its profile, bound to its tensor names.
        recipe: what was asked for and what the runtime can execute.
        model: identity of the prepared model.
        notes: remarks of earlier steps that the user should see.
        start_everywhere: let integers start at light operators too, whatever their neighbours are.

    Raises:
        ConfigError: the settings name something that the model does not have.
    """
    config = recipe.config
    ranges = _ranges(graph, profile, config)
    noisy = _noisy(graph, profile, ranges, config)
    limits = Limits(profile, recipe.target, config.tables, config.keep_float, noisy)
    choices = select(graph, limits, start_everywhere=start_everywhere)
    groups = find_groups(graph, choices, ranges, config.resolution)
    activations = _activation_params(graph, choices, groups, config)
    tensors: dict[str, QuantParams] = dict(activations)
    nodes: dict[str, NodePlan] = {}
    for node in graph.nodes:
        choice = choices[node.name or ""]
        overrides: dict[int, QuantParams] = {}
        for index, params in _constant_params(node, choice, graph, activations, recipe).items():
            name = _input_name(node, index)
            if tensors.setdefault(name, params) != params:
                overrides[index] = params
        shared = _share_params(node, choice, graph, tensors)
        kind = choice.kind
        if kind is Kind.MOVE and not shared:
            kind = Kind.INTEGER  # a clip with parameters of its own is a conversion, not a move
        spelling = choice.spelling or (recipe.target.spellings.get(node.op_type, "") if shared else "")
        nodes[node.name or ""] = NodePlan(kind, choice.reason, overrides, spelling)
    if recipe.target.unsigned_codes:
        tensors, nodes, more = _unsigned(graph, tensors, nodes)
        notes = (*notes, *more)
    return QuantPlan(model, config, tensors, nodes, notes, groups=_shared(groups, activations))


def _input_name(node: ir.Node, index: int) -> str:
    value = node.inputs[index] if index < len(node.inputs) else None
    return (value.name or "") if value is not None else ""


def _share_params(node: ir.Node, choice: Choice, graph: Graph, tensors: Mapping[str, QuantParams]) -> bool:
    """Whether all activations that a quantized node reads and makes are in the same codes."""
    if not choice.quantized or choice.rule is None:
        return False
    names = [*activation_names(node, choice.rule, graph), *outputs_of(node)]
    first = tensors.get(names[0])
    return first is not None and all(tensors.get(name) == first for name in names)


def _unsigned(
    graph: Graph, tensors: Mapping[str, QuantParams], nodes: Mapping[str, NodePlan]
) -> tuple[dict[str, QuantParams], dict[str, NodePlan], tuple[str, ...]]:
    """Store signed activations, and the constants that they meet, as their unsigned twins."""
    weights = set()
    for node in graph.nodes:
        rule = rule_of(node)
        if rule is not None:
            weights |= {_input_name(node, i) for i in (rule.bias, rule.weight and rule.weight.index) if i}
    twins = {
        name: unsigned_twin(params) if graph.constant(name) is None or name not in weights else params
        for name, params in tensors.items()
    }
    entries = {}
    for node in graph.nodes:
        entry, rule = nodes[node.name or ""], rule_of(node)
        data = rule.activations(node) if rule is not None else ()
        inputs = {i: unsigned_twin(p) if i in data else p for i, p in entry.inputs.items()}
        entries[node.name or ""] = replace(entry, inputs=inputs)
    changed = sum(twins[name] != params for name, params in tensors.items())
    note = f"{changed} signed tensors are stored as their unsigned twins, which the runtime's kernels want"
    return twins, entries, (note,) if changed else ()


def _ranges(graph: Graph, profile: Profile, config: QuantConfig) -> dict[str, Range]:
    """Return the calibrated range of every float activation that was seen."""
    scheme, qtype = SCHEMES[config.schema], TYPES[config.activation_type]
    ranges: dict[str, Range] = {}
    for name, tensor in profile.items():
        if tensor.dtype != "float" or tensor.count == 0:
            continue
        producer = graph.producer(name)
        choice = calibrate(tensor, config.calibrator, scheme, qtype)
        rule = None if producer is None else rule_of(producer)
        if rule is not None and rule.bounds is not None:
            choice = _within(choice, rule.bounds)
        ranges[name] = _within(choice, useful_range(graph, name))
    return ranges


def _within(span: Range, limits: tuple[float, float]) -> Range:
    """Cut a range; 0 stays in it."""
    return Range(min(max(span.low, limits[0]), 0.0), max(min(span.high, limits[1]), 0.0))


def useful_range(graph: Graph, name: str) -> tuple[float, float]:
    """Return the interval outside which no reader of a tensor tells one value from another."""
    uses = graph.consumers(name)
    if not uses or name in graph.outputs or graph.is_captured(name):
        return -math.inf, math.inf
    low, high = math.inf, -math.inf
    for reader, index in uses:
        rule = rule_of(reader)
        if rule is None or rule.useful is None or index != 0:
            return -math.inf, math.inf
        first, last = rule.useful(reader, graph)
        low, high = min(low, first), max(high, last)
    return low, high


def _noisy(
    graph: Graph, profile: Profile, ranges: Mapping[str, Range], config: QuantConfig
) -> dict[str, str]:
    """Return the activations whose codes would drown the signal, each with the figures."""
    if config.min_sqnr <= 0.0:
        return {}
    noisy: dict[str, str] = {}
    for name, span in ranges.items():
        params = choose_params(span.low, span.high, SCHEMES[config.schema], TYPES[config.activation_type])
        noise = expected_noise(profile[name], params)
        if noise.sqnr_db < config.min_sqnr:
            noisy[name] = (
                f"tensor '{name}' would keep {noise.sqnr_db:.1f} dB of signal over noise in "
                f"{config.activation_type}, less than {config.min_sqnr:g}"
            )
    return noisy


def _shared(groups: Iterable[Group], params: Mapping[str, QuantParams]) -> tuple[Group, ...]:
    """Return the groups of two and more, without members that got parameters of their own after all."""
    kept = []
    for group in groups:
        first = params[group.winners[0]]
        members = {name: own for name, own in group.members.items() if params[name] == first}
        if len(members) > 1:
            kept.append(replace(group, members=members))
    return tuple(kept)


def _activation_params(
    graph: Graph, choices: Mapping[str, Choice], groups: Iterable[Group], config: QuantConfig
) -> dict[str, QuantParams]:
    scheme, qtype = SCHEMES[config.schema], TYPES[config.activation_type]
    params: dict[str, QuantParams] = {}
    for group in groups:
        chosen = choose_params(*group.range, scheme, qtype)
        params.update(dict.fromkeys(group.members, chosen))
    for node in graph.nodes:  # the sigmoid table gives tanh in 128ths, whatever was profiled
        if choices[node.name or ""].spelling == "sigmoid":
            zero_point = 0 if qtype.signed else 128
            fixed = QuantParams((1.0 / 128.0,), (zero_point,), qtype)
            params = _spread_params(graph, choices, params, node.outputs[0].name or "", fixed)
    order = [*graph.inputs, *(v.name for n in graph.nodes for v in n.outputs)]
    return {name: params[name] for name in order if name in params}


def _spread_params(
    graph: Graph, choices: Mapping[str, Choice], params: dict[str, QuantParams], name: str, fixed: QuantParams
) -> dict[str, QuantParams]:
    """Give `fixed` to a tensor and to all that is merely moved from it."""
    params = {**params, name: fixed}
    for reader, _ in graph.consumers(name):
        if choices[reader.name or ""].kind is Kind.MOVE:
            for value in reader.outputs:
                if value.name in params:
                    params = _spread_params(graph, choices, params, value.name, fixed)
    return params


def _constant_params(
    node: ir.Node, choice: Choice, graph: Graph, activations: Mapping[str, QuantParams], recipe: Recipe
) -> dict[int, QuantParams]:
    """Return the parameters of the constant inputs of a quantized node: weight, bias, constant operands."""
    rule, config = choice.rule, recipe.config
    if not choice.quantized or rule is None:
        return {}
    found: dict[int, QuantParams] = {}
    for index in rule.activations(node):
        constant = graph.constant(_input_name(node, index))
        if constant is not None and choice.kind is Kind.INTEGER:
            found[index] = choose_params(
                float(constant.min()),
                float(constant.max()),
                SCHEMES[config.schema],
                TYPES[config.activation_type],
            )
    if rule.weight is not None:
        weight = graph.constant(_input_name(node, rule.weight.index))
        if weight is not None:
            found |= _weight_and_bias(node, rule, graph, activations, config)
    if rule.bias is not None and recipe.target.bias == "float":
        found.pop(rule.bias, None)
    return found


def _weight_and_bias(
    node: ir.Node, rule: Rule, graph: Graph, activations: Mapping[str, QuantParams], config: QuantConfig
) -> dict[int, QuantParams]:
    assert rule.weight is not None
    constant = graph.constant(_input_name(node, rule.weight.index))
    assert constant is not None
    weight = constant.astype(np.float32, copy=False)
    scheme, qtype = SCHEMES[config.weight_schema], TYPES[config.weight_type]
    axis = rule.weight.axis(node, weight.ndim) if config.granularity == "channel" else None
    params = channel_params(weight, axis, scheme, qtype)
    bias = None
    if rule.bias is not None and rule.bias < len(node.inputs):
        bias = graph.constant(_input_name(node, rule.bias))
    if bias is None or rule.bias is None:
        return {rule.weight.index: params}
    data = activations[_input_name(node, 0)]
    params = weight_for_bias(data, params, bias.astype(np.float32, copy=False))
    return {rule.weight.index: params, rule.bias: bias_params(data, params)}
