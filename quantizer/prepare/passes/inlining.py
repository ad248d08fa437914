"""The many ways to write one graph made one: functions inlined, weights no inputs, decided branches taken."""

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
    """Take initialisers off the list of graph inputs (IR version 3 lists every weight there)."""
    inputs = model.graph.inputs
    weights = [value for value in inputs if value.is_initializer() and value.const_value is not None]
    if not weights:
        return ()
    kept = [value for value in inputs if value not in weights]
    inputs.clear()
    inputs.extend(kept)
    return (f"{len(weights)} initialisers were listed as graph inputs and are constants now",)


def raise_ir_version(model: ir.Model) -> tuple[str, ...]:
    """Raise the IR version to `IR_VERSION`; call the default domain by one name."""
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
    """Put the bodies of model-local functions in place of their calls; names become `<call>/<inner>`.

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
    """Put the branch of an If in its place where the condition is a constant; return how many.

    An If whose outputs are read by name in a subgraph stays.
    """
    taken_branches = 0
    names = value_names(model)
    for node in list(model.graph):
        condition = constant(node.inputs[0]) if is_standard(node, "If") else None
        if condition is None or condition.size != 1 or any(is_captured(value) for value in node.outputs):
            continue
        body = node.attributes["then_branch" if bool(condition.reshape(())) else "else_branch"].as_graph()
        made = {value for inner in body for value in inner.outputs}
        if any(value not in made for value in body.outputs) or len(set(body.outputs)) != len(body.outputs):
            continue  # a constant or a value twice as result: rare, and a name would be lost
        if any(value.dtype == ir.DataType.STRING for value in body.initializers.values()):
            continue
        _hoist(model.graph, node, body, names)
        taken_branches += 1
    return taken_branches


def _hoist(graph: ir.Graph, node: ir.Node, body: ir.Graph, names: set[str]) -> None:
    """Move the nodes and constants of `body` before the If, whose outputs they make from now on."""
    outer = {value.name for value in graph.inputs} | set(graph.initializers)
    outer |= {value.name for other in graph for value in other.outputs}
    for name, value in list(body.initializers.items()):
        body.initializers.pop(name)
        assert value.const_value is not None
        new_name = fresh(f"{node.name}/{name}", names) if name in outer else name
        copy = add_initializer(graph, new_name, value.const_value.numpy())
        value.replace_all_uses_with(copy)
    inner_nodes, results = list(body), list(body.outputs)
    body.outputs.clear()
    body.remove(inner_nodes)
    for inner in inner_nodes:
        inner.meta[ORIGIN] = (*node.meta.get(ORIGIN, ()), str(inner.name))
        for value in inner.outputs:
            if is_standard(inner):
                value.shape = value.type = None  # a hint of the file; inference comes next
            if value.name and value.name in outer:
                value.name = fresh(f"{node.name}/{value.name}", names)
    graph.insert_before(node, inner_nodes)
    for mine, result in zip(node.outputs, results, strict=True):
        made, shape, kind = mine.name, mine.shape, mine.type
        mine.replace_all_uses_with(result, replace_graph_outputs=True)
        if made:
            result.name = made
        if result.is_graph_output():
            result.shape, result.type = shape, kind
    discard(node)
