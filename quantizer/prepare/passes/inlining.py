"""One form for one graph: functions inlined, weights not inputs, Ifs with constant conditions replaced."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from ....profiles.base.errors import ModelError
from ...model.editing import (
    ORIGIN,
    add_initializer,
    constant,
    discard,
    fresh,
    is_captured,
    is_standard,
    value_names,
)

OPSET = 14
"""Opset of the default domain that a model without any of its operators gets."""

IR_VERSION = 8
"""Least IR version of a prepared model: the one of opset 15, known to every runtime that knows opset 13."""


def unlist_initializers(model: ir.Model) -> tuple[str, ...]:
    """Remove initialisers from the list of graph inputs (IR version 3 lists every weight there).

    onnx_ir's RemoveInitializersFromInputsPass does so in subgraphs too, where it shifts the inputs of a Loop.
    """
    inputs = model.graph.inputs
    weights = [value for value in inputs if value.is_initializer() and value.const_value is not None]
    if not weights:
        return ()
    kept = [value for value in inputs if value not in weights]
    inputs.clear()
    inputs.extend(kept)
    return (f"{len(weights)} initialisers were listed as graph inputs and are constants now",)


def raise_ir_version(model: ir.Model) -> tuple[str, ...]:
    """Raise the IR version to `IR_VERSION`; give the default domain one name, ""."""
    imports = model.graph.opset_imports
    if "ai.onnx" in imports:
        version = imports.pop("ai.onnx")
        imports.setdefault("", version)
    imports.setdefault("", OPSET)  # a model of other domains alone may leave it out
    if model.ir_version >= IR_VERSION:
        return ()
    before, model.ir_version = model.ir_version, IR_VERSION
    return (f"IR version raised from {before} to {IR_VERSION}",)


def inline_functions(model: ir.Model) -> tuple[str, ...]:
    """Replace calls of model-local functions by their nodes; names become `<call>/<inner>`.

    Raises:
        ModelError: a function is recursive, has another opset than the model, or takes graphs.
    """
    count = len(model.functions)
    if not count:
        return ()
    try:
        InlinePass()(model)
    except (ValueError, ir.passes.PreconditionError, ir.passes.PassError) as problem:
        cause = problem.__cause__ or problem
        raise ModelError(
            f"model-local functions cannot be inlined: {cause}; export the model without them"
        ) from None
    model.functions.clear()
    return (f"{count} model-local functions inlined",)


def take_constant_branches(model: ir.Model) -> int:
    """Replace every If with a constant condition by the branch that is taken; return how many.

    An If whose outputs are read by name in a subgraph stays.
    """
    replaced = 0
    names = value_names(model)
    for node in list(model.graph):
        condition = constant(node.inputs[0]) if is_standard(node, "If") else None
        if condition is None or condition.size != 1 or any(is_captured(value) for value in node.outputs):
            continue
        branch = node.attributes["then_branch" if bool(condition.reshape(())) else "else_branch"].as_graph()
        computed = {value for inner in branch for value in inner.outputs}
        if not computed.issuperset(branch.outputs) or len(set(branch.outputs)) != len(branch.outputs):
            continue  # an output that is a constant, or the same value twice: rare, and a name would be lost
        if any(value.dtype == ir.DataType.STRING for value in branch.initializers.values()):
            continue
        _hoist(model.graph, node, branch, names)
        replaced += 1
    return replaced


def _hoist(graph: ir.Graph, node: ir.Node, branch: ir.Graph, names: set[str]) -> None:
    """Move the nodes and constants of `branch` before the If, and let them make its outputs."""
    outer = {value.name for value in graph.inputs} | set(graph.initializers)
    outer |= {value.name for other in graph for value in other.outputs}
    for name, value in list(branch.initializers.items()):
        branch.initializers.pop(name)
        assert value.const_value is not None
        new_name = fresh(f"{node.name}/{name}", names) if name in outer else name
        copy = add_initializer(graph, new_name, value.const_value.numpy())
        value.replace_all_uses_with(copy)
    inner_nodes, results = list(branch), list(branch.outputs)
    branch.outputs.clear()
    branch.remove(inner_nodes)
    for inner in inner_nodes:
        inner.meta[ORIGIN] = (*node.meta.get(ORIGIN, ()), str(inner.name))
        for value in inner.outputs:
            if is_standard(inner):
                value.shape = value.type = None  # only a hint in the file; they are inferred again
            if value.name and value.name in outer:
                value.name = fresh(f"{node.name}/{value.name}", names)
    graph.insert_before(node, inner_nodes)
    for output, result in zip(node.outputs, results, strict=True):
        output_name, shape, kind = output.name, output.shape, output.type
        output.replace_all_uses_with(result, replace_graph_outputs=True)
        if output_name:
            result.name = output_name
        if result.is_graph_output():
            result.shape, result.type = shape, kind
    discard(node)
