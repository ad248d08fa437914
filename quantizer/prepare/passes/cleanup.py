"""Removal of what is not used: dead nodes, unused outputs and constants, copies of constants.

The passes of onnx_ir for unused nodes and equal initialisers do more than these, and would change what is
prepared. RemoveUnusedNodesPass blanks unused outputs in the middle of a node (the first output of an LSTM
whose last state alone is read), and counts the subgraphs of an If that it has removed as users.
DeduplicateInitializersPass merges vectors of floats, which `merge_equal_initializers` keeps apart.
"""

from __future__ import annotations

import hashlib

import onnx
import onnx_ir as ir

from ...model.editing import discard, is_captured, is_standard


def remove_dead(model: ir.Model) -> int:
    """Remove nodes that no output depends on, and unused initialisers; return how many."""
    graph = model.graph
    removed = 0
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            discard(node)
            removed += 1
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            graph.initializers.pop(name)
            removed += 1
    return removed


def trim_outputs(model: ir.Model) -> int:
    """Cut off trailing optional outputs that are not used; return how many.

    BatchNormalization keeps its outputs: before opset 14 their number tells training from inference.
    """
    trimmed = 0
    version = model.graph.opset_imports.get("", 1)
    for node in model.graph:
        if not is_standard(node) or len(node.outputs) < 2 or node.op_type == "BatchNormalization":
            continue
        try:
            formal = onnx.defs.get_schema(node.op_type, version, "").outputs
        except onnx.defs.SchemaError:
            continue
        keep = len(node.outputs)
        while keep > 1 and keep <= len(formal) and _is_unused(node.outputs[keep - 1], formal[keep - 1]):
            keep -= 1
        trimmed += len(node.outputs) - keep
        if keep < len(node.outputs):
            node.resize_outputs(keep)
    return trimmed


def _is_unused(value: ir.Value, formal: onnx.defs.OpSchema.FormalParameter) -> bool:
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return formal.option == optional and not value.uses() and not value.is_graph_output()


def trim_inputs(model: ir.Model) -> int:
    """Cut off trailing inputs that are left out: without them the node means the same; return how many."""
    trimmed = 0
    for node in model.graph.all_nodes():
        used = len(node.inputs)
        while used and node.inputs[used - 1] is None:
            used -= 1
        trimmed += len(node.inputs) - used
        node.resize_inputs(used)
    return trimmed


def merge_equal_initializers(model: ir.Model) -> int:
    """Merge initialisers of equal type, shape and content into the first of them; return how many went.

    Those that are graph outputs, and those that a subgraph reads by name, stay. So do vectors of floats: a
    bias gets the scale of its own operator, and equal ones are often equal by chance (all zero).
    """
    graph = model.graph
    first: dict[tuple[object, ...], ir.Value] = {}
    sizes: dict[tuple[object, ...], int] = {}
    candidates = []
    for value in graph.initializers.values():
        tensor = value.const_value
        if (
            tensor is None
            or tensor.dtype == ir.DataType.STRING
            or value.is_graph_output()
            or value.is_graph_input()
        ):
            continue
        if tensor.dtype.is_floating_point() and len(tensor.shape) == 1:
            continue
        kind = (tensor.dtype, tuple(tensor.shape.numpy()))
        sizes[kind] = sizes.get(kind, 0) + 1
        candidates.append((value, kind))
    merged = 0
    for value, kind in candidates:
        if sizes[kind] == 1 or is_captured(value):
            continue
        assert value.name is not None
        assert value.const_value is not None
        key = (*kind, hashlib.sha256(value.const_value.tobytes()).digest())
        kept = first.setdefault(key, value)
        if kept is not value:
            value.replace_all_uses_with(kept)
            graph.initializers.pop(value.name)
            merged += 1
    return merged
