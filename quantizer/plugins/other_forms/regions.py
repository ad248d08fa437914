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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from ....profiles.base.errors import free_name
from ...lowering.emitter import Emitter, become, constant_shape, integer_type
from ...lowering.forms.qdq import WRITERS as QDQ_WRITERS
from ...lowering.lower import (
    finish,
    opset_of_types,
    raised,
    remove,
    task_of,
    unfit_in_form,
    writer_of,
)
from ...lowering.lowered import LoweredModel, opset_raised, with_record
from ...lowering.pass_through import pass_through
from ...lowering.writers import Task, Writers, data_inputs
from ...model.graph import name_of, output_name, subgraphs
from ...numerics.affine import QuantParams
from ...plan.plan import Implementation, Kind, NodePlan, QuantPlan

DOMAIN, DOMAIN_VERSION = "qprof", 1
FUNCTIONS_IR_VERSION = 8
"""The first with functions of the model."""

WRITERS: Writers = {
    **{key: writer for key, writer in QDQ_WRITERS.items() if key != (Kind.DYNAMIC, Implementation.RUNTIME)},
    (Kind.PASS_THROUGH, Implementation.CHANNELS_LAST): pass_through,
}
"""Those of form qdq, without operators of one runtime: any reader of ONNX can inline a function."""


def lower_model(model: ir.Model, plan: QuantPlan) -> LoweredModel:
    """Return the model that `plan` describes in form regions; see `lower`."""
    lowered, needed = _lowered(model, plan)
    opset = model.opset_imports[""]
    if opset >= needed:
        return lowered
    # The converter knows no functions of a model, so the float model is raised. Attributes become nameless
    # Constant nodes there, which the plan has no entries for.
    later = raised(model, "regions", needed)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(later)
    lowered, _ = _lowered(later, plan)
    return replace(lowered, findings=(*lowered.findings, opset_raised(opset, needed)))


def _lowered(model: ir.Model, plan: QuantPlan) -> tuple[LoweredModel, int]:
    """Return the written model, and the opset that its types need."""
    model = model.clone()
    functions: dict[str, ir.Function] = {}
    emitter = Emitter(model.graph)
    _write_graph(model.graph, emitter, plan, model.opset_imports, functions)
    for function in functions.values():
        model.functions[function.identifier()] = function
    needed = max(map(opset_of_types, (*model.graphs(), *(f.graph for f in functions.values()))))
    if functions:
        model.opset_imports[DOMAIN] = DOMAIN_VERSION
        model.ir_version = max(model.ir_version, FUNCTIONS_IR_VERSION)
    return with_record(LoweredModel(model, (), emitter.written_names())), needed


def _write_graph(
    graph: ir.Graph,
    emitter: Emitter,
    plan: QuantPlan,
    opsets: Mapping[str, int],
    functions: dict[str, ir.Function],
) -> None:
    """Write the nodes of a graph, and before each its subgraphs; `functions` gets the called functions."""
    replaced: list[ir.Node] = []
    for group in _groups(graph, plan):
        for subgraph in subgraphs(group[0]):
            _write_graph(subgraph, emitter.inside(subgraph, group[0]), plan, opsets, functions)
        tasks = [task_of(node, plan, emitter, opsets[""]) for node in group]
        if _is_outside_functions(tasks[0].entry):
            writer_of(tasks[0], "regions", WRITERS)(tasks[0])
            continue
        # Its name is the operators, then the name of the first node, as an identifier.
        words = "_".join([*(node.op_type for node in group), name_of(group[0])])
        name = free_name(re.sub(r"\W+", "_", words), functions)
        with unfit_in_form("regions", tasks[-1]):
            function = _write_function(tasks, name, opsets)
        if function is None:
            replaced.extend(group)
        else:
            functions[name] = function
            replaced.extend(group[:-1])
    finish(graph, emitter, replaced)


def _groups(graph: ir.Graph, plan: QuantPlan) -> list[list[ir.Node]]:
    """Return the nodes in order, those of one function together.

    These are a quantized node and the Relu or Clip that is its only reader, and the parts of a look-up table.
    """
    groups: dict[ir.Node, list[ir.Node]] = {}
    for node in graph:
        if node.outputs and plan.is_part(name_of(node), output_name(node)):
            continue
        value = node.inputs[0] if node.inputs else None
        producer = value.producer() if value is not None else None
        if value is not None and producer in groups and node.op_type in ("Relu", "Clip"):
            clip, clipped = plan.nodes.get(name_of(node)), plan.nodes.get(name_of(producer))
            if (
                clip is not None
                and clip.kind is Kind.PASS_THROUGH
                and clipped is not None
                and clipped.kind is Kind.QUANTIZED
                and not _is_outside_functions(clipped)
                and len(producer.outputs) == 1
                and len(value.uses()) == 1
                and not value.is_graph_output()
            ):
                groups[node] = [*groups.pop(producer), node]
                continue
        groups[node] = list(plan.table_nodes(node)) or [node]
    return list(groups.values())


def _is_outside_functions(entry: NodePlan) -> bool:
    """Return whether a node is written as in form qdq, outside of any function.

    It is float, or its weights are folded, which a runtime must see as constants.
    """
    return entry.kind is Kind.FLOAT or entry.implementation == "folded"


def _write_function(tasks: list[Task], name: str, opsets: Mapping[str, int]) -> ir.Function | None:
    """Make the last node of a group a call; return its function, or None if no quantized value changes."""
    for task in tasks:
        if not onnx.defs.has(task.node.op_type, task.opset):
            # onnxruntime 1.31 ends the process while it inlines such a function.
            raise task.error(
                f"opset {task.opset} has no such operator, which a function needs; make the node float"
            )
    # Copies of the nodes in a graph of their own are written as in form qdq.
    call, outer = tasks[-1].node, tasks[-1].emitter
    body = _FunctionBody(ir.Graph([], [], nodes=[], opset_imports=dict(opsets), name=name), call)
    copies = [body.add_node(task) for task in tasks]
    emitter = Emitter(body.graph)
    for copy, (argument, argument_params) in body.stored.items():
        emitter.store(copy, argument, argument_params)
    inner_tasks = [
        replace(task, node=copy, emitter=emitter) for task, copy in zip(tasks, copies, strict=True)
    ]
    results = list(copies[-1].outputs)
    unneeded = [task.node for task in inner_tasks if writer_of(task, "regions", WRITERS)(task)]
    result_params = [emitter.stored_params(value) for value in results]
    body.graph.outputs.extend(
        emitter.floating(value, None) if params is None else emitter.quantized(value, params, None)
        for value, params in zip(results, result_params, strict=True)
    )
    remove(body.graph, emitter, unneeded)
    if len(body.graph) == 0:
        (quantized,), (result,) = body.arguments, result_params
        assert result is not None
        outer.store(call.outputs[0], quantized, result)
        return None

    # Constants become nodes: functions have no initialisers.
    constants = []
    for constant, value in list(body.graph.initializers.items()):
        del body.graph.initializers[constant]
        output = ir.Value(name=constant, type=value.type, shape=value.shape)
        assert value.const_value is not None
        elements = [ir.AttrTensor("value", value.const_value)]
        constants.append(ir.Node("", "Constant", [], elements, outputs=[output], name=f"{constant}_Constant"))
        value.replace_all_uses_with(output)
    if constants:
        body.graph.insert_before(body.graph[0], constants)

    become(call, name, body.arguments, domain=DOMAIN)
    for value, params in zip(call.outputs, result_params, strict=True):
        if params is not None:
            outer.rename(value, f"{outer.name(value)}_quantized")
            value.type = ir.TensorType(integer_type(params))
            outer.store(value, value, params)
    return ir.Function(DOMAIN, name, graph=body.graph, attributes=[])


@dataclass
class _FunctionBody:
    """The graph of a function, which receives copies of nodes of the model.

    `call` is the model's node that becomes the call; `arguments` has its tensor for each input of the graph;
    `stored` maps the copy of a tensor to the quantized input of the graph that it is stored in.
    """

    graph: ir.Graph
    call: ir.Node
    arguments: list[ir.Value] = field(default_factory=list)
    stored: dict[ir.Value, tuple[ir.Value, QuantParams]] = field(default_factory=dict)
    _copies: dict[tuple[ir.Value, QuantParams | None], ir.Value] = field(default_factory=dict)
    """Tensor of the model, and for a constant the parameters in which it is read -> its copy."""

    def add_node(self, task: Task) -> ir.Node:
        """Add a node's copy, with an input of the graph for each tensor that it reads from outside."""
        node, data = task.node, data_inputs(task)
        inputs = []
        for index, value in enumerate(node.inputs):
            params = task.params(index) if value is not None and index in data else None
            inputs.append(None if value is None else self._copy_of(value, params, task.emitter))
        outputs = [
            ir.Value(name=v.name or f"output_{i}", type=v.type, shape=v.shape)
            for i, v in enumerate(node.outputs)
        ]
        for value, copy in zip(node.outputs, outputs, strict=True):
            self._copies[value, None] = copy
        attributes = list(node.attributes.values())
        new = ir.Node(node.domain, node.op_type, inputs, attributes, outputs=outputs, name=node.name)
        self.graph.append(new)
        return new

    def _copy_of(self, value: ir.Value, params: QuantParams | None, emitter: Emitter) -> ir.Value:
        """Return the copy of a tensor of the model, given the emitter of the model."""
        if (value, None) in self._copies:
            return self._copies[value, None]
        is_constant = constant_shape(value) is not None
        key = (value, params if is_constant else None)
        if key in self._copies:
            return self._copies[key]
        params = emitter.stored_params(value) or params
        name = emitter.name(value)
        is_float_constant = is_constant and params is None
        if not is_float_constant:  # one constant that is read with several parameters has a copy for each
            name = free_name(name, {name_of(copy) for copy in self._copies.values()})
        elif name in self.graph.initializers:
            return self.graph.initializers[name]
        copy = ir.Value(name=name, type=value.type, shape=value.shape)
        self._copies[key] = copy
        if is_float_constant:
            copy.const_value = value.const_value
            self.graph.register_initializer(copy)
        elif params is None:
            self.arguments.append(value)
            self.graph.inputs.append(copy)
        else:
            quantized = emitter.quantized(value, params, self.call)
            codes = f"{name}_codes_{len(self.arguments)}"
            argument = ir.Value(name=codes, type=quantized.type, shape=quantized.shape)
            self.arguments.append(quantized)
            self.graph.inputs.append(argument)
            self.stored[copy] = (argument, params)
        return copy
