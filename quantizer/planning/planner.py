"""Model + profile + recipe -> plan. Pure: no data is run and nothing is written."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from ...profiles.records.profile import ModelId, Profile
from ..model.graph import Graph, input_name
from ..noise.budget import Known, quiet_plan
from ..numerics.affine import QuantParams, unsigned_twin
from ..operators.operands import activation_names, outputs_of
from ..operators.table import rule_of
from ..plan.plan import ON_CODES, Group, Kind, NodePlan, QuantPlan
from ..ranges.activation_ranges import Spans, find_spans, range_of
from ..ranges.calibrators import Range
from ..ranges.clipped_activations import as_seen
from ..targets.config import DATA_FREE, with_limit
from ..targets.target import Recipe
from .candidates import Choice, Limits
from .hybrid import all_float, find_hybrids
from .mixed_precision import judge_noise, wide_note, wide_type
from .parameters import activation_params, constant_params, touches_wide
from .selection import select
from .shared_scales import find_groups


def make_plan(
    graph: Graph,
    profile: Profile,
    recipe: Recipe,
    model: ModelId,
    notes: tuple[str, ...] = (),
    *,
    start_everywhere: bool = False,
    fixed: Mapping[str, str] | None = None,
) -> QuantPlan:
    """Decide everything about one model.

    Args:
        graph: the prepared model.
        profile: its profile, bound to its tensor names.
        recipe: what was asked for and what the runtime can execute.
        model: identity of the prepared model.
        notes: remarks of earlier steps that the user should see.
        start_everywhere: let integers start at light operators too, whatever their neighbours are.
        fixed: nodes that stay float whatever was asked for, each with the reason.

    Raises:
        ConfigError: the settings name something that the model does not have.
    """
    profile = as_seen(profile, graph)
    spans = find_spans(graph, profile, recipe, model.opset)

    def make(loud: Mapping[str, str]) -> QuantPlan:
        floats = {**loud, **(fixed or {})}
        plan = _plan(graph, profile, recipe, floats, spans, start_everywhere=start_everywhere)
        return replace(plan, model=model, notes=(*notes, *plan.notes))

    known = Known(graph, profile, spans.useful)
    return quiet_plan(make, known, recipe.config.min_output_sqnr, model.opset)


def _plan(
    graph: Graph,
    profile: Profile,
    recipe: Recipe,
    loud: Mapping[str, str],
    spans: Spans,
    *,
    start_everywhere: bool,
) -> QuantPlan:
    """Make the plan in which the `loud` nodes stay float; its model is left open."""
    config = with_limit(recipe.config)
    found: Mapping[str, Range] = {} if config.mode in DATA_FREE else spans.ranges
    noisy, wide = judge_noise(
        graph,
        profile,
        found,
        config,
        recipe.target,
        in_16_bits=partial(range_of, qtype=wide_type(config), graph=graph, profile=profile, recipe=recipe),
        useful=spans.useful,
    )
    ranges = ChainMap(wide, found)  # type: ignore[arg-type]  # it is only read
    limits = Limits(
        profile, recipe.target, config.lookup_tables, config.keep_float, config.inter_layer, noisy, loud
    )
    if config.mode in DATA_FREE:
        choices = all_float(graph, config, recipe.target)
    else:
        choices = select(graph, limits, start_everywhere=start_everywhere)
    hybrids = find_hybrids(graph, choices, limits, config)
    choices |= {name: hybrid.choice for name, hybrid in hybrids.items()}
    groups = find_groups(graph, choices, ranges, config.scale_sharing)
    activations = activation_params(graph, choices, groups, wide, config)
    tensors: dict[str, QuantParams] = dict(activations)
    nodes: dict[str, NodePlan] = {}
    touching: list[str] = []
    for node in graph.nodes:
        choice = choices[node.name or ""]
        overrides: dict[int, QuantParams] = {}
        hybrid = hybrids.get(node.name or "")
        constants = (
            constant_params(node, choice, graph, activations, recipe) if hybrid is None else hybrid.inputs
        )
        for index, params in constants.items():
            name = input_name(node, index)
            if tensors.setdefault(name, params) != params:
                overrides[index] = params
        shared = _share_params(node, choice, graph, tensors)
        kind = choice.kind
        if kind is Kind.PASS_THROUGH and not shared:
            kind = Kind.QUANTIZED  # a clip with parameters of its own is a conversion, not a move
        implementation = choice.implementation or (
            recipe.target.implementations.get(node.op_type, "") if shared else ""
        )
        if touches_wide(node, choice, graph, tensors):
            implementation = IMPLEMENTATIONS_16BIT.get(implementation, implementation)
            touching.append(node.op_type)
        nodes[node.name or ""] = NodePlan(kind, choice.reason, overrides, implementation)
    if config.inter_layer == "float":
        tensors, nodes = _returned(graph, choices, tensors, nodes)
    notes = wide_note(touching, sum(p.qtype.bits == 16 for p in activations.values()), recipe.target)
    if recipe.target.unsigned_activations:
        tensors, nodes, more = _unsigned(graph, tensors, nodes)
        notes = (*notes, *more)
    return QuantPlan(NO_MODEL, recipe.config, tensors, nodes, notes, groups=_shared(groups, activations))


NO_MODEL = ModelId("", "", 0)

IMPLEMENTATIONS_16BIT = {"sigmoid": "runtime", "integer": "", "leaky-relu": ""}
"""What stands for a implementation that is for 8 bits only."""


def _share_params(node: ir.Node, choice: Choice, graph: Graph, tensors: Mapping[str, QuantParams]) -> bool:
    """Whether all activations that a quantized node reads and makes are in the same codes."""
    if not choice.quantized or choice.rule is None:
        return False
    names = [*activation_names(node, choice.rule, graph), *outputs_of(node)]
    first = tensors.get(names[0])
    return first is not None and all(tensors.get(name) == first for name in names)


def _returned(
    graph: Graph,
    choices: Mapping[str, Choice],
    tensors: Mapping[str, QuantParams],
    nodes: Mapping[str, NodePlan],
) -> tuple[dict[str, QuantParams], dict[str, NodePlan]]:
    """Let the outputs of kernels that return float be float; who wants codes converts them itself."""
    stored, entries = dict(tensors), dict(nodes)
    for node in graph.nodes:
        for name in outputs_of(node) if choices[node.name or ""].returns_float else ():
            readers = [(r.name or "", i) for r, i in graph.consumers(name)]
            if name not in stored or any(entries[reader].kind is Kind.PASS_THROUGH for reader, _ in readers):
                continue
            params = stored.pop(name)
            for reader, index in readers:
                if choices[reader].quantized:
                    inputs = {**entries[reader].inputs, index: params}
                    entries[reader] = replace(entries[reader], inputs=inputs)
    return stored, entries


def _unsigned(
    graph: Graph, tensors: Mapping[str, QuantParams], nodes: Mapping[str, NodePlan]
) -> tuple[dict[str, QuantParams], dict[str, NodePlan], tuple[str, ...]]:
    """Store signed activations, and the constants that they meet, as their unsigned twins."""
    weights = set()
    for node in graph.nodes:
        rule = rule_of(node)
        if rule is not None and nodes[node.name or ""].kind not in ON_CODES:
            weights |= {input_name(node, weight.index) for weight in rule.constants}
        elif rule is not None:
            weights |= {input_name(node, i) for i in (rule.bias, rule.weight and rule.weight.index) if i}
    twins = {
        name: unsigned_twin(params) if graph.constant(name) is None or name not in weights else params
        for name, params in tensors.items()
    }
    entries = {}
    for node in graph.nodes:
        entry, rule = nodes[node.name or ""], rule_of(node)
        data = rule.activations(node) if rule is not None and entry.kind in ON_CODES else ()
        inputs = {i: unsigned_twin(p) if i in data else p for i, p in entry.inputs.items()}
        entries[node.name or ""] = replace(entry, inputs=inputs)
    changed = sum(twins[name] != params for name, params in tensors.items())
    note = f"{changed} signed tensors are stored as their unsigned twins, which the runtime's kernels want"
    return twins, entries, (note,) if changed else ()


def _shared(groups: Iterable[Group], params: Mapping[str, QuantParams]) -> tuple[Group, ...]:
    """Return the groups of two and more, without members that got parameters of their own after all."""
    kept = []
    for group in groups:
        first = params[group.winners[0]]
        members = {name: own for name, own in group.members.items() if params[name] == first}
        if len(members) > 1:
            kept.append(replace(group, members=members))
    return tuple(kept)
