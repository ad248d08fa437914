"""What nobody uses goes: dead nodes, unused outputs and constants, copies of constants, unused opsets."""

from __future__ import annotations

import hashlib

import onnx
import onnx_ir as ir

from ...model.editing import discard, is_captured, is_standard


def remove_dead(model: ir.Model) -> int:
    """Remove nodes that no output depends on, and initialisers without users; return how many."""
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
    """Cut off trailing optional outputs that nobody reads, so a node shows what is used; return how many.

    BatchNormalization keeps its outputs: before opset 14 their number is what tells training from inference.
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
        while keep > 1 and keep <= len(formal) and _is_idle(node.outputs[keep - 1], formal[keep - 1]):
            keep -= 1
        trimmed += len(node.outputs) - keep
        if keep < len(node.outputs):
            node.resize_outputs(keep)
    return trimmed


def _is_idle(value: ir.Value, formal: onnx.defs.OpSchema.FormalParameter) -> bool:
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return formal.option == optional and not value.uses() and not value.is_graph_output()


def trim_inputs(model: ir.Model) -> int:
    """Cut off trailing inputs that are left out, another way to say the same; return how many."""
    trimmed = 0
    for node in model.graph.all_nodes():
        used = len(node.inputs)
        while used and node.inputs[used - 1] is None:
            used -= 1
        trimmed += len(node.inputs) - used
        node.resize_inputs(used)
    return trimmed


def merge_equal_initializers(model: ir.Model) -> int:
    """Let initialisers of equal type, shape and content be one, the first; return how many went.

    Those that are graph outputs, and those that a subgraph reads by name, stay. So do vectors of floats: as
    biases they get the scale of their own operator, and equal ones are often equal by chance (all zero).
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


def remove_unused_opsets(model: ir.Model) -> int:
    """Forget opset imports of domains that no node is of; the default domain stays. Return how many."""
    used = {node.domain for node in ir.traversal.RecursiveGraphIterator(model.graph)} | {""}
    imports = model.graph.opset_imports
    idle = [domain for domain in imports if domain not in used]
    for domain in idle:
        imports.pop(domain)
    return len(idle)


def sort_nodes(model: ir.Model) -> int:
    """Put the nodes into topological order; those that do not depend on each other keep theirs."""
    model.graph.sort()
    return 0
