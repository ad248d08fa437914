"""One form for one graph: functions inlined, weights not inputs, Ifs with constant conditions replaced."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from ...profiles.base.errors import ModelError
from ..model.editing import add_initializer, discard, free_name, is_captured, is_standard
from ..model.graph import constant_of
from .steps import each

DEFAULT_OPSET = 14
"""Opset of the default domain that a model without any of its operators gets."""

MAX_INLINED_NODES = 1_000_000
"""Nodes of a model whose functions are inlined, at most: 5 kB of functions can make 2^60."""

CALLS_AT_ONCE = 1000
"""Calls that are inlined in one pass of onnx_ir, whose time grows with the square of the functions."""

COPY_OVERLOAD = "qprof."
"""Begins the overload of a function that is the copy for one call."""

MIN_IR_VERSION = 8
"""Least IR version of a prepared model: the one of opset 15, known to every runtime that knows opset 13."""


def unlist_initializers(model: ir.Model) -> None:
    """Remove initialisers from the graph inputs; onnx_ir's pass shifts the inputs of a Loop."""
    inputs = model.graph.inputs
    weights = [value for value in inputs if value.is_initializer() and value.const_value is not None]
    kept = [value for value in inputs if value not in weights]
    inputs.clear()
    inputs.extend(kept)


def raise_ir_version(model: ir.Model) -> None:
    """Raise the IR version to `MIN_IR_VERSION`; give the default domain one name, ""."""
    imports = model.graph.opset_imports
    if "ai.onnx" in imports:
        version = imports.pop("ai.onnx")
        imports.setdefault("", version)
    imports.setdefault("", DEFAULT_OPSET)  # a model of other domains alone may leave it out
    model.ir_version = max(model.ir_version, MIN_IR_VERSION)


def inline_functions(model: ir.Model) -> None:
    """Replace calls of functions by their nodes, `<call>/<inner>`; the results of a call keep their names."""
    if not model.functions:
        return
    node_count = _inlined_node_count(model)
    if node_count > MAX_INLINED_NODES:
        raise ModelError(
            f"model-local functions: they stand for {node_count} nodes, more than {MAX_INLINED_NODES} at "
            "most; export the model without them"
        )
    for function in model.functions.values():
        _take_opset_of(model, function)
    functions = dict(model.functions)

    def calls() -> list[ir.Node]:
        nodes = ir.traversal.RecursiveGraphIterator(model.graph)
        return [node for node in nodes if node.op_identifier() in functions]

    try:
        while open_calls := calls():
            # Each call gets a copy of its function with the path of the call in all names: onnx_ir numbers
            # the names of what it inlines, which does not tell where a node comes from.
            model.functions.clear()
            for number, call in enumerate(open_calls[:CALLS_AT_ONCE]):
                copy = functions[call.op_identifier()].clone()
                call.overload = copy.overload = f"{COPY_OVERLOAD}{number}"
                model.functions[copy.identifier()] = copy
                nodes = list(ir.traversal.RecursiveGraphIterator(copy))
                for node in nodes:
                    first = next((value.name for value in node.outputs if value.name), "")
                    node.name = f"{call.name}/{node.name or f'{node.op_type}_{first}'}"
                for value in (value for node in nodes for value in node.outputs if value.name):
                    value.name = f"{call.name}/{value.name}"
            InlinePass()(model)
    except (ValueError, ir.passes.PreconditionError, ir.passes.PassError) as problem:
        cause = problem.__cause__ or problem
        raise ModelError(
            f"model-local functions cannot be inlined: {cause}; export the model without them"
        ) from None
    model.functions.clear()


def _inlined_node_count(model: ir.Model) -> int:
    """Return how many nodes the model has if every call is replaced, without replacing any."""
    counts: dict[ir.OperatorIdentifier, int] = {}
    being_counted: set[ir.OperatorIdentifier] = set()

    def count_of(block: ir.Graph | ir.Function) -> int:
        nodes = ir.traversal.RecursiveGraphIterator(block)
        return sum(
            count_of_call(n.op_identifier()) if n.op_identifier() in model.functions else 1 for n in nodes
        )

    def count_of_call(identifier: ir.OperatorIdentifier) -> int:
        if identifier not in counts:
            if identifier in being_counted:
                raise ModelError(
                    f"function '{identifier[1]}' of domain '{identifier[0]}': calls itself; export the model "
                    "without model-local functions"
                )
            being_counted.add(identifier)
            counts[identifier] = count_of(model.functions[identifier])
            being_counted.remove(identifier)
        return counts[identifier]

    return count_of(model.graph)


def _take_opset_of(model: ir.Model, function: ir.Function) -> None:
    """Give a function the opsets of the model, as onnxruntime does."""
    for domain, version in function.opset_imports.items():
        common = model.graph.opset_imports.setdefault(domain, version)
        for node in ir.traversal.RecursiveGraphIterator(function) if common != version else ():
            changed = node.domain == domain and signature(node, version) != signature(node, common)
            if changed and signature(node, common) is None:
                raise ModelError(
                    f"node '{node.name}' ({node.op_type}) of function '{function.name}': is of opset "
                    f"{version}, and opset {common} of the model has no such operator; export it with one "
                    "opset"
                )
        function.opset_imports[domain] = common


def signature(node: ir.Node, version: int) -> object:
    """Return inputs, outputs and attributes of an operator in an opset, or None: changes alter these."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None
    operands = [(value.name, value.option) for value in (*schema.inputs, *schema.outputs)]
    attributes = [(a.name, a.type, a.default_value.SerializeToString()) for a in schema.attributes.values()]
    return operands, sorted(attributes, key=lambda attribute: attribute[0])


@each("If")
def take_constant_branches(node: ir.Node, taken: set[str]) -> bool:
    """Replace every If with a constant condition by its selected branch."""
    condition = constant_of(node.inputs[0])
    if condition is None or condition.size != 1 or any(is_captured(value) for value in node.outputs):
        return False
    branch = node.attributes["then_branch" if bool(condition.reshape(())) else "else_branch"].as_graph()
    computed = {value for inner in branch for value in inner.outputs}
    if not computed.issuperset(branch.outputs) or len(set(branch.outputs)) != len(branch.outputs):
        return False  # an output that is a constant, or the same value twice: rare, and a name would be lost
    if any(value.dtype == ir.DataType.STRING for value in branch.initializers.values()):
        return False
    assert isinstance(node.graph, ir.Graph)
    _hoist(node.graph, node, branch, taken)
    return True


def _hoist(graph: ir.Graph, node: ir.Node, branch: ir.Graph, names: set[str]) -> None:
    """Move the nodes and constants of `branch` before the If, and let them make its outputs."""
    outer = {value.name for value in graph.inputs} | set(graph.initializers)
    outer |= {value.name for other in graph for value in other.outputs}
    for name, constant in list(branch.initializers.items()):
        branch.initializers.pop(name)
        assert constant.const_value is not None
        free = free_name(f"{node.name}/{name}", names) if name in outer else name
        constant.replace_all_uses_with(add_initializer(graph, free, constant.const_value.numpy()))
    inner_nodes, results = list(branch), list(branch.outputs)
    branch.outputs.clear()
    branch.remove(inner_nodes)
    for inner in inner_nodes:
        for value in inner.outputs:
            if is_standard(inner):
                value.shape = value.type = None  # only a hint in the file; they are inferred again
            if value.name and value.name in outer:
                value.name = free_name(f"{node.name}/{value.name}", names)
    graph.insert_before(node, inner_nodes)
    for output, result in zip(node.outputs, results, strict=True):
        output_name, shape, value_type = output.name, output.shape, output.type
        output.replace_all_uses_with(result, replace_graph_outputs=True)
        if output_name:
            result.name = output_name
        if result.is_graph_output():
            result.shape, result.type = shape, value_type
    discard(node)
