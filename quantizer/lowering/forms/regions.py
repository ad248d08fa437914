"""Form regions: each quantized node, or group of them, is a function of the model in domain "qprof".

A function has quantized inputs and outputs. Inside it is what form qdq would write, with scales, zero points,
look-up tables and bounds as constants: a compiler for a device can take the call whole (its name begins with
the operators that it stands for), and any other reader of ONNX sees through it. Weights and biases stay
quantized initialisers of the model, and are inputs. An operator and the Relu or Clip that alone reads it are
one function. Float nodes stay as they were, those with folded weights too. OpenVINO wants the functions
inlined first (`onnx.inliner`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from ...model.editing import free_name
from ...model.graph import constant_of, name_of, output_name, subgraphs
from ...numerics.affine import QuantParams
from ...plan.plan import Kind, NodePlan, QuantPlan
from ..emitter import Emitter, become, integer_type
from ..lower import (
    WIDE_OPSET,
    checked_opset,
    finish,
    needs_wide_types,
    raised,
    remove,
    task_of,
    unfit_in_form,
    writer_of,
)
from ..lowered import Lowered, with_record
from ..pass_through import pass_through
from ..writers import Task, Writers, data_inputs
from .qdq import WRITERS as QDQ_WRITERS

DOMAIN, DOMAIN_VERSION = "qprof", 1
FUNCTIONS_IR_VERSION = 8
"""The first with functions of the model."""

WRITERS: Writers = {
    **{key: writer for key, writer in QDQ_WRITERS.items() if key != (Kind.DYNAMIC, "runtime")},
    (Kind.PASS_THROUGH, "channels-last"): pass_through,
}
"""Those of form qdq, without operators of one runtime: any reader of ONNX can inline a function."""


def _computes_in_float(entry: NodePlan) -> bool:
    """Whether a node is written as in form qdq, outside of any function: it is float, or its weights are
    folded, which has to be seen where they are constants."""
    return entry.kind is Kind.FLOAT or entry.implementation == "folded"


@dataclass
class _Draft:
    """A function while it is written.

    Attributes:
        graph: its graph, with the copies of the nodes.
        values: tensor of the model, and for a weight how it is read -> its copy in the function.
        arguments: tensor of the call for each input.
        stored: copy -> the quantized form that it is stored in.
    """

    graph: ir.Graph
    values: dict[tuple[ir.Value, QuantParams | None], ir.Value] = field(default_factory=dict)
    arguments: list[ir.Value] = field(default_factory=list)
    stored: dict[ir.Value, tuple[ir.Value, QuantParams]] = field(default_factory=dict)


def lower_model(model: ir.Model, plan: QuantPlan) -> Lowered:
    """Return the model that `plan` describes in form regions; see `lower`.

    Raises:
        PlanError: the plan has no entry for a node, or something in it that cannot be written.
    """
    written, wide = _written(model, plan)
    opset = model.opset_imports[""]
    if not wide or opset >= WIDE_OPSET:
        return written
    # The converter knows no functions of a model, so the float model is raised. Attributes become nameless
    # Constant nodes there, which the plan has no entries for.
    later = raised(model, "regions")
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(later)
    written, _ = _written(later, plan)
    note = f"opset raised from {opset} to {WIDE_OPSET} for its integer types"
    return replace(written, notes=(*written.notes, note))


def _written(model: ir.Model, plan: QuantPlan) -> tuple[Lowered, bool]:
    """Return the written model, and whether it has integer types that need a later opset."""
    checked_opset(model, "regions")
    model = model.clone()
    functions: dict[str, ir.Function] = {}
    emitter = Emitter(model.graph)
    _write_graph(model.graph, emitter, plan, model.opset_imports, functions)
    for function in functions.values():
        model.functions[function.identifier()] = function
    wide = any(needs_wide_types(g) for g in (*model.graphs(), *(f.graph for f in functions.values())))
    if functions:
        model.opset_imports[DOMAIN] = DOMAIN_VERSION
        model.ir_version = max(model.ir_version, FUNCTIONS_IR_VERSION)
    return with_record(Lowered(model, (), emitter.written())), wide


def _write_graph(
    graph: ir.Graph,
    emitter: Emitter,
    plan: QuantPlan,
    opsets: Mapping[str, int],
    functions: dict[str, ir.Function],
) -> None:
    """Write the nodes of a graph, and before each its subgraphs; `functions` gets what is called."""
    replaced: list[ir.Node] = []
    for group in _groups(graph, plan):
        for subgraph in subgraphs(group[0]):
            _write_graph(subgraph, emitter.inside(subgraph, group[0]), plan, opsets, functions)
        tasks = [task_of(node, plan, emitter, opsets[""]) for node in group]
        if _computes_in_float(tasks[0].entry):
            writer_of(tasks[0], "regions", WRITERS)(tasks[0])
            continue
        with unfit_in_form("regions", tasks[-1]):
            function = _outline(tasks, _name(group, functions), opsets)
        if function is None:
            replaced.extend(group)
        else:
            functions[function.name] = function
            replaced.extend(group[:-1])
    finish(graph, emitter, replaced)


def _groups(graph: ir.Graph, plan: QuantPlan) -> list[list[ir.Node]]:
    """Return the nodes in order, those of one function together.

    These are a quantized node and the Relu or Clip that alone reads it, and the parts of a look-up table.
    """
    groups: dict[ir.Node, list[ir.Node]] = {}
    for node in graph:
        if node.outputs and plan.is_part(name_of(node), output_name(node)):
            continue
        value = node.inputs[0] if node.inputs else None
        producer = value.producer() if value is not None else None
        if (
            value is not None
            and producer in groups
            and node.op_type in ("Relu", "Clip")
            and _kind(node, plan) is Kind.PASS_THROUGH
            and _kind(producer, plan) is Kind.QUANTIZED
            and not _computes_in_float(plan.nodes[name_of(producer)])
            and len(producer.outputs) == 1
            and len(value.uses()) == 1
            and not value.is_graph_output()
        ):
            groups[node] = [*groups.pop(producer), node]
        else:
            groups[node] = list(plan.table_nodes(node)) or [node]
    return list(groups.values())


def _kind(node: ir.Node | None, plan: QuantPlan) -> Kind | None:
    entry = plan.nodes.get(name_of(node)) if node is not None else None
    return None if entry is None else entry.kind


def _name(group: list[ir.Node], taken: Collection[str]) -> str:
    """Return a name for a function: the operators, then the name of the first node, as an identifier."""
    words = [*(node.op_type for node in group), name_of(group[0])]
    return free_name(re.sub(r"\W+", "_", "_".join(words)), set(taken), first=1)


def _outline(tasks: list[Task], name: str, opsets: Mapping[str, int]) -> ir.Function | None:
    """Make the last node of a group a call, and return the function that is called.

    None when nothing is left to be called, because the node changes no quantized value.
    """
    for task in tasks:
        if not onnx.defs.has(task.node.op_type, task.opset):
            # onnxruntime 1.31 ends the process while it inlines such a function.
            raise task.error(
                f"opset {task.opset} has no such operator, which a function needs; make the node float"
            )
    draft = _Draft(ir.Graph([], [], nodes=[], opset_imports=dict(opsets), name=name))
    copies = [_copy(task, draft, tasks[-1].node) for task in tasks]
    emitter = Emitter(draft.graph)
    for copy, (quantized, params) in draft.stored.items():
        emitter.store(copy, quantized, params)
    inner = [replace(task, node=copy, emitter=emitter) for task, copy in zip(tasks, copies, strict=True)]
    results = list(copies[-1].outputs)
    unneeded = [task.node for task in inner if writer_of(task, "regions", WRITERS)(task)]
    params_of = [emitter.stored(value) for value in results]
    draft.graph.outputs.extend(
        emitter.floating(value, None) if params is None else emitter.quantized(value, params, None)
        for value, params in zip(results, params_of, strict=True)
    )
    remove(draft.graph, emitter, unneeded)
    if len(draft.graph) == 0:
        (quantized,), (result,) = draft.arguments, params_of
        assert result is not None
        tasks[-1].emitter.store(tasks[-1].node.outputs[0], quantized, result)
        return None
    _initializers_to_nodes(draft.graph)
    _become_call(tasks[-1], name, draft.arguments, params_of)
    return ir.Function(DOMAIN, name, graph=draft.graph, attributes=[])


def _copy(task: Task, draft: _Draft, place: ir.Node) -> ir.Node:
    """Add a node's copy to a function, with an input for each tensor that it reads from outside."""
    data = data_inputs(task)
    inputs = []
    for index, value in enumerate(task.node.inputs):
        params = task.params(index) if value is not None and index in data else None
        inputs.append(None if value is None else _copied(value, params, task.emitter, draft, place))
    outputs = [
        ir.Value(name=v.name or f"output_{i}", type=v.type, shape=v.shape)
        for i, v in enumerate(task.node.outputs)
    ]
    for value, copy in zip(task.node.outputs, outputs, strict=True):
        draft.values[value, None] = copy
    node = ir.Node(
        task.node.domain,
        task.node.op_type,
        inputs,
        list(task.node.attributes.values()),
        outputs=outputs,
        name=task.node.name,
    )
    draft.graph.append(node)
    return node


def _copied(
    value: ir.Value, params: QuantParams | None, emitter: Emitter, draft: _Draft, place: ir.Node
) -> ir.Value:
    """Return the copy of a tensor of the model inside the function."""
    if (value, None) in draft.values:
        return draft.values[value, None]
    constant, home = constant_of(value), emitter.stored(value)
    key = (value, params if constant is not None else None)
    if key in draft.values:
        return draft.values[key]
    params = home or params
    name = emitter.name(value)
    if constant is not None and params is None:
        if name in draft.graph.initializers:
            return draft.graph.initializers[name]
    else:  # one constant that is read with several parameters has a copy for each
        name = free_name(name, {name_of(copy) for copy in draft.values.values()}, first=1)
    copy = ir.Value(name=name, type=value.type, shape=value.shape)
    draft.values[key] = copy
    if constant is not None and params is None:
        copy.const_value = value.const_value
        draft.graph.register_initializer(copy)
    elif params is None:
        draft.arguments.append(value)
        draft.graph.inputs.append(copy)
    else:
        quantized = emitter.quantized(value, params, place)
        inner = ir.Value(
            name=f"{name}_codes_{len(draft.arguments)}", type=quantized.type, shape=quantized.shape
        )
        draft.arguments.append(quantized)
        draft.graph.inputs.append(inner)
        draft.stored[copy] = (inner, params)
    return copy


def _become_call(
    task: Task, name: str, arguments: list[ir.Value], params_of: list[QuantParams | None]
) -> None:
    node, emitter = task.node, task.emitter
    become(node, name, arguments, domain=DOMAIN)
    for value, params in zip(node.outputs, params_of, strict=True):
        if params is not None:
            emitter.rename(value, f"{emitter.name(value)}_quantized")
            value.type = ir.TensorType(integer_type(params))
            emitter.store(value, value, params)


def _initializers_to_nodes(graph: ir.Graph) -> None:
    """Write the constants of a function as nodes: functions have no initialisers."""
    nodes = []
    for name, value in list(graph.initializers.items()):
        del graph.initializers[name]
        output = ir.Value(name=name, type=value.type, shape=value.shape)
        assert value.const_value is not None
        content = [ir.AttrTensor("value", value.const_value)]
        nodes.append(ir.Node("", "Constant", [], content, outputs=[output], name=f"{name}_Constant"))
        value.replace_all_uses_with(output)
    if nodes:
        graph.insert_before(graph[0], nodes)
