"""Parameters that another tool chose, as a plan of qprof: to be shown, compared, edited and lowered. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import onnx_ir as ir

from ...profiles.base.tool import tool_name
from ...profiles.samples.model_title import title_of
from ..equalization.apply import apply_biases
from ..lowering.lower import lower
from ..model.graph import Graph, index, input_name, name_of
from ..model.identity import model_id
from ..numerics.affine import QuantParams
from ..plan.plan import Kind, NodePlan, QuantPlan
from ..plan.reasons import FloatReason, ReasonCode, UnfitNodesError, because
from ..plan.verify import verify_plan
from ..targets.config import ActivationType, QuantConfig, WeightType
from ..targets.conformance import ConformityError, check_conformity
from ..targets.target import Recipe
from .completed_params import completed
from .decisions.node_decisions import Decision, decisions
from .decisions.source_params import SourceNode, SourceParams
from .values import ForeignParams


def plan_of_params(
    model: ir.Model,
    params: ForeignParams,
    recipe: Recipe,
    quantized: Collection[str] | None = None,
) -> QuantPlan:
    """Return the plan that has the parameters of another tool, to the bit.

    A node is quantized where all activations that it reads, and its weight, have parameters that the target
    takes; every other node stays float, with the reason. An activation that only a clip reads has the
    parameters of the clip's output where it has none. Biases have the parameters that products take
    (scale(input) * scale(weight)), whatever the file says.

    Args:
        model: the prepared float model.
        params: scales and zero points by tensor name of that model.
        recipe: the settings, of which the target counts and the form, and the target.
        quantized: the nodes that may be quantized, by name; None for all.

    Raises:
        PlanError: the plan breaks a rule.
    """
    graph = index(model)
    params = completed(params, graph)
    chosen = None if quantized is None else set(quantized)
    nodes = {
        name_of(node): SourceNode(_read(node, graph, params.tensors))
        for node in graph.nodes
        if chosen is None or name_of(node) in chosen
    }
    activations = {
        name: p for name, p in params.tensors.items() if name in graph.values and not graph.is_constant(name)
    }
    unknown = [name for name in params.tensors if name not in graph.values]
    notes = params.notes
    if unknown:
        notes = (
            *notes,
            f"{len(unknown)} tensors of {params.tool} are not in the prepared model, such as "
            f"'{unknown[0]}': left out",
        )
    return plan_of_source(model, SourceParams(params.tool, activations, nodes, notes=notes), recipe)


def _read(node: ir.Node, graph: Graph, tensors: Mapping[str, QuantParams]) -> dict[int, QuantParams]:
    names = {i: input_name(node, i) for i in range(len(node.inputs))}
    return {i: tensors[n] for i, n in names.items() if n in tensors and graph.is_float(n)}


def plan_of_source(model: ir.Model, source: SourceParams, recipe: Recipe) -> QuantPlan:
    """Return the plan of what another tool decided, node by node.

    Nodes that the form cannot write, or that the target would refuse, stay float, each with the reason.

    Args:
        model: the prepared float model.
        source: what was decided.
        recipe: the settings, of which the target counts and the form, and the target.

    Raises:
        PlanError: the plan breaks a rule.
    """
    graph = index(apply_biases(model, source.adjustments.biases))
    unfit: dict[str, FloatReason] = {}
    while True:
        plan = _plan(model, graph, source, recipe, unfit)
        verify_plan(plan, index(apply_biases(model, plan.adjustments.biases)), plan.model)
        reasons = _unwritable(model, plan, recipe)
        if not reasons.keys() - unfit.keys():
            return plan
        unfit |= reasons


def _unwritable(model: ir.Model, plan: QuantPlan, recipe: Recipe) -> dict[str, FloatReason]:
    """Return the nodes that the form cannot write or the target would refuse, each with the reason."""
    try:
        lowered = lower(model, plan)
        check_conformity(lowered.model, recipe.target, "plan")
    except UnfitNodesError as error:
        return dict(error.reasons)
    except ConformityError as error:
        owners = {inner: name for name, written in lowered.names.nodes.items() for inner in written}
        return {
            name: because(ReasonCode.REFUSED_BY_TARGET, target=error.target, text=breach.sentence)
            for breach in error.breaches
            if (name := owners.get(breach.node, breach.node)) in plan.nodes
        }
    return {}


def _plan(
    model: ir.Model, graph: Graph, source: SourceParams, recipe: Recipe, unfit: Mapping[str, FloatReason]
) -> QuantPlan:
    decided = decisions(graph, source, recipe, unfit)
    tensors, nodes = _stored(graph, decided)
    kept = {name: entry for name, entry in nodes.items() if entry.kind.has_weights}
    adjustments = replace(
        source.adjustments,
        biases={name: delta for name, delta in source.adjustments.biases.items() if name in kept},
        roundings={name: offsets for name, offsets in source.adjustments.roundings.items() if name in kept},
    )
    return QuantPlan(
        model_id(model, Path(title_of(model)).name),
        described(recipe.config, graph, tensors, nodes),
        tensors,
        nodes,
        tuple(
            dict.fromkeys(
                (f"parameters of {source.tool}", *source.notes, *_slower(graph, nodes, source.tool, recipe))
            )
        ),
        tool=tool_name(),
        adjustments=adjustments,
    )


def _slower(graph: Graph, nodes: Mapping[str, NodePlan], tool: str, recipe: Recipe) -> Iterator[str]:
    """Yield which dynamic nodes are kept although the target computes them faster in float."""
    dynamic = Counter(node.op_type for node in graph.nodes if nodes[name_of(node)].kind is Kind.DYNAMIC)
    for operator, times in recipe.target.slower_dynamic.items():
        if dynamic[operator]:
            yield (
                f"{dynamic[operator]} {operator} are dynamic, as in {tool}, and take about {times:g} times "
                f"as long as in float on {recipe.target.name}; give them kind weight-only for speed"
            )


def _stored(
    graph: Graph, decided: Mapping[str, Decision]
) -> tuple[dict[str, QuantParams], dict[str, NodePlan]]:
    """Return the parameters in which tensors are stored, and nodes with those of their own."""
    made = {name: params for decision in decided.values() for name, params in decision.outputs.items()}
    activations: dict[str, QuantParams] = dict(made)
    constants: dict[str, QuantParams] = {}
    left_float = {
        name
        for node in graph.nodes
        if decided[name_of(node)].entry.kind.reads_quantized
        for name in (name_of(value) for value in node.outputs)
        if name not in made
    }
    nodes: dict[str, NodePlan] = {}
    for node in graph.nodes:
        decision = decided[name_of(node)]
        own: dict[int, QuantParams] = {}
        for position, params in decision.inputs.items():
            name = input_name(node, position)
            stored = constants if graph.is_constant(name) else activations
            if name in left_float or stored.setdefault(name, params) != params:
                own[position] = params
        nodes[name_of(node)] = replace(decision.entry, inputs=own)
    ordered = {name: activations[name] for name in graph.values if name in activations}
    return {**ordered, **constants}, nodes


def described(
    config: QuantConfig, graph: Graph, tensors: Mapping[str, QuantParams], nodes: Mapping[str, NodePlan]
) -> QuantConfig:
    """Return settings that say what a plan holds; what was not chosen by qprof is off.

    Args:
        config: the settings, of which target and form stay.
        graph: the prepared model.
        tensors, nodes: of the plan.
    """
    activations = [params for name, params in tensors.items() if not graph.is_constant(name)]
    weights = [p for n, p in tensors.items() if graph.is_constant(n) and p.qtype.name != "int32"]
    words: dict[str, Any] = {
        "mode": _mode({entry.kind for entry in nodes.values()}),
        "schema": _schema(activations),
        "weight_schema": _schema(weights),
        "granularity": "per-channel" if any(p.axis is not None for p in weights) else "per-tensor",
        "activation_type": _commonest(activations, get_args(ActivationType)),
        "weight_type": _commonest(weights, get_args(WeightType)),
    }
    return replace(
        config,
        block_size=max((params.block_size or 0 for params in weights), default=0),
        equalization="off",
        bias_correction="off",
        rounding="nearest",
        cost_model="off",
        min_output_sqnr=0.0,
        **{name: word for name, word in words.items() if word},
    )


def _mode(kinds: Collection[Kind]) -> str:
    if any(kind.reads_quantized for kind in kinds):
        return "auto" if Kind.DYNAMIC in kinds else "static"
    return "dynamic" if Kind.DYNAMIC in kinds else "weight-only" if Kind.WEIGHT_ONLY in kinds else "static"


def _commonest(params: Iterable[QuantParams], allowed: Collection[str]) -> str:
    counts = Counter(p.qtype.name for p in params if p.qtype.name in allowed)
    return counts.most_common(1)[0][0] if counts else ""


def _schema(params: Iterable[QuantParams]) -> str:
    """Return the schema that all of these parameters keep."""
    found = list(params)
    symmetric = all(p.qtype.signed and not any(p.zero_point) for p in found)
    return "symmetric" if found and symmetric else "asymmetric"
