"""A plan from what another tool wrote: a quantized ONNX model, or a file of parameters."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, MalformedError
from ...profiles.base.tool import tool_name
from ...profiles.samples.samples import title_of
from ..adjustments.equalization import apply_biases
from ..lowering.lower import lower
from ..lowering.written import Lowered, planned_nodes
from ..model.identity import model_id
from ..model.loading import read_model
from ..numerics.affine import QuantParams
from ..operators.graph import Graph, Node, index
from ..plan.plan import Kind, NodePlan, QuantPlan
from ..plan.reasons import FloatReason, ReasonCode, UnfitNodesError, because
from ..plan.verify import verify_plan
from ..prepare.prepare import open_prepared
from ..targets.config import ActivationType, QuantConfig, WeightType
from ..targets.conformance import ConformityError, check_conformity
from ..targets.target import Recipe
from .bound_params import with_axes, with_folded_constants, with_moved_values
from .encodings import document
from .formats import formats_of, read_as, recognised
from .node_decisions import Decision, SourceNode, SourceParams, decisions
from .qnn import has_mappings
from .quantized_models import source_of_model
from .values import ForeignParams


def plan_of_file(
    source: str | os.PathLike[str],
    float_model: str | os.PathLike[str],
    recipe: Recipe,
    *,
    keep_form: bool = False,
) -> QuantPlan:
    """Return the plan that another tool followed when it quantized a model.

    Scales, zero points and the integers of the weights are those of the source, to the bit, and so is which
    nodes are quantized; what the target does not take stays float, with the reason. What could not be kept
    is in the notes of the plan.

    Args:
        source: a quantized ONNX model of any tool, or a file that holds parameters (`formats`).
        float_model: the float model that was quantized.
        recipe: settings and target; of the settings the target counts, and the form.
        keep_form: write QLinear operators where the source has such and the target reads them.

    Raises:
        ModelError: a model cannot be read, or the source is no quantized form of the float model.
        ConfigError: the source is of no known format.
    """
    prepared, where = open_prepared(os.fspath(float_model)), os.fspath(source)
    if Path(where).suffix.lower() == ".onnx":
        loaded = read_model(where)
        producer = loaded.model.producer_name or "", loaded.model.producer_version or ""
        written_by = " ".join(part for part in producer if part)
        params = source_of_model(prepared.graph, loaded.model, Path(where).name, written_by)
        if keep_form and params.has_operators and "qoperator" in recipe.target.forms:
            recipe = replace(recipe, config=replace(recipe.config, form="qoperator"))
        return plan_of_source(prepared.model, params, recipe)
    try:
        data = Path(where).read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}); correct the path") from None
    entry = recognised(data, "parameters")
    if entry is None:
        raise _not_parameters(data, where)
    read = read_as(entry, data, where, ConfigError)
    assert isinstance(read, ForeignParams)
    read = with_axes(read, prepared.graph)
    read = with_folded_constants(read, read_model(float_model).model, prepared.graph)
    return plan_of_params(prepared.model, read, recipe)


def _not_parameters(data: bytes, where: str) -> ConfigError:
    """Return the error that says what to do with a file that holds no parameters which are read."""
    ranges = recognised(data, "ranges")
    if ranges is not None:
        return ConfigError(
            f"{where}: is {ranges.title}, which holds ranges; give it to 'qprof quantize --profile', or make "
            "a profile of it with 'qprof import-profile'"
        )
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        try:
            top = document(data)
        except MalformedError as problem:
            return ConfigError(problem.message(where, "give the file as the other tool wrote it"))
        if has_mappings(top):
            return ConfigError(
                f"{where}: holds AIMET encodings {top.get('version')}; read are 1.0, 2.0 and 2.1: export "
                "the simulation again with encoding_version='1.0.0' or '2.0.0'"
            )
    known = ", ".join(known.name for known in formats_of("parameters") if known.is_read)
    return ConfigError(
        f"{where}: is neither an ONNX model (*.onnx) nor a file of parameters ({known}); give one of these, "
        "see 'qprof export --help'"
    )


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
    params = with_moved_values(with_axes(params, graph), graph)
    chosen = None if quantized is None else set(quantized)
    nodes = {
        node.name: SourceNode(_params_read(node, graph, params.tensors))
        for node in graph.nodes
        if chosen is None or node.name in chosen
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


def _params_read(node: Node, graph: Graph, tensors: Mapping[str, QuantParams]) -> dict[int, QuantParams]:
    names = {i: node.input(i) for i in range(len(node.inputs))}
    return {i: tensors[n] for i, n in names.items() if n in tensors and graph.is_float(n)}


def plan_of_source(model: ir.Model, source: SourceParams, recipe: Recipe) -> QuantPlan:
    """Return the plan of what another tool decided, node by node.

    Nodes that the form cannot write, or that the target would refuse, stay float, each with the reason: what
    the plan writes conforms to its target.

    Args:
        model: the prepared float model.
        source: what was decided.
        recipe: the settings, of which the target counts and the form, and the target.

    Raises:
        PlanError: the plan breaks a rule.
        ConformityError: the target would refuse the model whatever is float, for its opset for example.
    """
    graph = index(apply_biases(model, source.adjustments.biases))
    unfit: dict[str, FloatReason] = {}
    while True:
        plan = _plan(model, graph, source, recipe, unfit)
        verify_plan(plan, index(apply_biases(model, plan.adjustments.biases)), plan.model)
        try:
            lowered = lower(model, plan)
            check_conformity(lowered.model, recipe.target, source.tool)
        except UnfitNodesError as error:
            if not error.reasons.keys() - unfit.keys():
                raise
            unfit |= error.reasons
        except ConformityError as error:
            unfit |= _refused(error, lowered, plan, graph)
        else:
            return plan


def _refused(
    error: ConformityError, lowered: Lowered, plan: QuantPlan, graph: Graph
) -> dict[str, FloatReason]:
    """Return the quantized nodes that the target would refuse, each with the reason.

    Raises:
        ConformityError: a breach is that of no quantized node.
    """
    reasons: dict[str, FloatReason] = {}
    for breach in error.breaches:
        found = planned_nodes(breach.node, lowered, plan, graph)
        if not found:
            raise error
        reason = because(ReasonCode.REFUSED_BY_TARGET, target=error.target, text=breach.sentence)
        reasons |= dict.fromkeys(found, reason)
    return reasons


def _plan(
    model: ir.Model, graph: Graph, source: SourceParams, recipe: Recipe, unfit: Mapping[str, FloatReason]
) -> QuantPlan:
    decided = decisions(graph, source, recipe, unfit)
    tensors, nodes = _stored_params(graph, decided)
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
                (
                    f"parameters of {source.tool}",
                    *source.notes,
                    *_dynamic_notes(graph, nodes, source, recipe),
                )
            )
        ),
        tool=tool_name(),
        adjustments=adjustments,
    )


def _dynamic_notes(
    graph: Graph, nodes: Mapping[str, NodePlan], source: SourceParams, recipe: Recipe
) -> Iterator[str]:
    """Yield which dynamic nodes of the source are none here, and which would be faster in float."""
    given, tool = source.nodes.items(), source.tool
    lost = [name for name, node in given if node.is_dynamic and nodes[name].kind is not Kind.DYNAMIC]
    if lost:
        yield f"{len(lost)} nodes are dynamic in {tool}, such as '{lost[0]}', and have float activations here"
    dynamic = Counter(node.op_type for node in graph.nodes if nodes[node.name].kind is Kind.DYNAMIC)
    for operator, times in recipe.target.slower_dynamic.items():
        if dynamic[operator]:
            yield (
                f"{dynamic[operator]} {operator} are dynamic, as in {tool}, and take about {times:g} times "
                f"as long as in float on {recipe.target.name}; give them kind weight-only for speed"
            )


def _stored_params(
    graph: Graph, decided: Mapping[str, Decision]
) -> tuple[dict[str, QuantParams], dict[str, NodePlan]]:
    """Return the parameters in which tensors are stored, and nodes with those of their own."""
    made = {name: params for decision in decided.values() for name, params in decision.outputs.items()}
    activations: dict[str, QuantParams] = dict(made)
    constants: dict[str, QuantParams] = {}
    left_float = {
        name
        for node in graph.nodes
        if decided[node.name].entry.kind.reads_quantized
        for name in node.outputs
        if name not in made
    }
    nodes: dict[str, NodePlan] = {}
    for node in graph.nodes:
        decision = decided[node.name]
        own: dict[int, QuantParams] = {}
        for position, params in decision.inputs.items():
            name = node.input(position)
            stored = constants if graph.is_constant(name) else activations
            if name in left_float or stored.setdefault(name, params) != params:
                own[position] = params
        nodes[node.name] = replace(decision.entry, inputs=own)
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
    symmetric = all(p.qtype.signed and not p.zero_point.any() for p in found)
    return "symmetric" if found and symmetric else "asymmetric"
