"""Removal of dead nodes, unused outputs and constants, and copies of constants.

onnx_ir's RemoveUnusedNodesPass blanks unused outputs in the middle of a node (the first of an LSTM), and
counts the subgraphs of a removed If as users; DeduplicateInitializersPass merges vectors of floats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import value_names
from ..model.editing import (
    FreeNames,
    bypass,
    discard,
    has_input,
    is_captured,
    is_standard,
    replace_constant,
    static_shape,
)
from ..model.external_data import WidenedTensor
from ..model.graph import constant_of
from .steps import each


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
    """Cut off unused optional outputs; their number says how BatchNormalization before opset 14 works."""
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


COMPARED_FIRST = 256
"""Elements that are compared first."""


def merge_equal_initializers(model: ir.Model) -> int:
    """Merge equal initialisers except vectors of floats, because a bias gets the scale of its operator."""
    graph = model.graph
    first: dict[tuple[object, ...], ir.Value] = {}
    sizes: dict[tuple[object, ...], int] = {}
    candidates = []
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.dtype == ir.DataType.STRING:
            continue
        is_vector = tensor.dtype.is_floating_point() and len(tensor.shape) == 1
        if is_vector or value.is_graph_output() or value.is_graph_input():
            continue
        kind = (tensor.dtype, tuple(tensor.shape.numpy()), _beginning(tensor))
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


def _beginning(tensor: ir.TensorProtocol) -> bytes:
    """Return the first elements of a tensor, which tell most weights apart without reading them."""
    if isinstance(tensor, WidenedTensor):
        return tensor.first(COMPARED_FIRST).tobytes()
    return tensor.numpy().flat[:COMPARED_FIRST].tobytes() if tensor.dtype.bitwidth >= 8 else b""


# Nodes without effect at inference are removed, and equal operators written in one way ----------------------
#
# onnx_ir's IdentityEliminationPass knows Identity only, removes one between two graph outputs, of which one
# then loses its name, and one whose output a subgraph reads.


@each("Sum")
def sums_to_adds(node: ir.Node, _: set[str]) -> bool:
    """Turn every `Sum` of two inputs into `Add`, the operator that quantization supports."""
    if len(node.inputs) == 2:
        node.op_type = "Add"
    return len(node.inputs) == 2


@each("Range")
def scalar_ranges(node: ir.Node, taken: set[str]) -> int:
    """Turn one-element vectors that Range reads into scalars: runtimes refuse them as constants."""
    arrays = [(index, constant_of(value)) for index, value in enumerate(node.inputs)]
    vectors = [
        (index, array) for index, array in arrays if array is not None and array.ndim and array.size == 1
    ]
    for index, array in vectors:
        replace_constant(node, index, array.reshape(()), taken)
    return len(vectors)


def _permutation(node: ir.Node) -> list[int] | None:
    perm = node.attributes.get("perm")
    if perm is not None:
        return list(perm.as_ints())
    value = node.inputs[0]
    return None if value is None or value.shape is None else list(reversed(range(len(value.shape))))


def _dropout(node: ir.Node) -> bool:
    """Dropout of inference: no training_mode input, or a constant false one (opset 12 and later)."""
    if not has_input(node, 2):
        return True
    training = constant_of(node.inputs[2])
    return training is not None and not bool(training)


def _same_type(node: ir.Node) -> bool:
    value = node.inputs[0]
    return value is not None and value.dtype is not None and value.dtype == node.attributes["to"].as_int()


def _same_order(node: ir.Node) -> bool:
    perm = _permutation(node)
    return perm is not None and perm == sorted(perm)


def _same_shape(node: ir.Node) -> bool:
    """Reshape of a tensor of known shape to the same shape."""
    before, target = static_shape(node.inputs[0]), constant_of(node.inputs[1])
    if before is None or target is None or target.size != len(before):
        return False
    zero_copies = not node.attributes.get_int("allowzero", 0)
    wanted = [int(dim) for dim in target]
    if 0 in before or (0 in wanted and not zero_copies):
        return False
    return all(
        dim in (-1, have) or (dim == 0 and zero_copies) for dim, have in zip(wanted, before, strict=True)
    )


def _no_padding(node: ir.Node) -> bool:
    pads = constant_of(node.inputs[1]) if has_input(node, 1) else None
    return pads is not None and not np.any(pads)


NOOPS: Mapping[str, Callable[[ir.Node], bool]] = {
    "Identity": lambda node: True,
    **dict.fromkeys(("Sum", "Max", "Min", "Mean", "Concat"), lambda node: len(node.inputs) == 1),
    "Dropout": _dropout,
    "Cast": _same_type,
    "Transpose": _same_order,
    "Reshape": _same_shape,
    "Pad": _no_padding,
}
"""Operator to a function that tells whether a node passes its first input on unchanged."""


@each(*NOOPS)
def drop_noops(node: ir.Node, _: set[str]) -> bool:
    """Remove nodes of the main graph whose first output equals their first input."""
    if not node.inputs or node.inputs[0] is None or not NOOPS[node.op_type](node):
        return False
    is_read = any(value.uses() or value.is_graph_output() for value in node.outputs[1:])
    return not is_read and bypass(node, node.inputs[0])


# Unique names for all nodes and values ----------------------------------------------------------------------
#
# onnx_ir's NameFixPass makes node names unique within each graph only and numbers copies in another way.
# Names are part of a profile, so they cannot change.


def name_nodes(model: ir.Model) -> int:
    """Give every node a unique name, `<operator>_<first output>` without one; return how many changed."""
    nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
    names = FreeNames({node.name for node in nodes if node.name})
    used: set[str] = set()
    changed = 0
    for node in nodes:
        if node.name and node.name not in used:
            used.add(node.name)
            continue
        first = next((value.name for value in node.outputs if value.name), "")
        node.name = names.take(node.name or f"{node.op_type}_{first}")
        used.add(node.name)
        changed += 1
    return changed


def name_values(model: ir.Model) -> int:
    """Give every used node output that has no name one after its node; return how many changed."""
    names = FreeNames(value_names(model))
    changed = 0
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for index, value in enumerate(node.outputs):
            if not value.name and (value.uses() or value.is_graph_output()):
                value.name = names.take(f"{node.name}_output_{index}")
                changed += 1
    return changed


def unshare_names(model: ir.Model) -> int:
    """Give values of subgraphs names that no other graph has, as profiles need; return how many changed."""
    graphs, used, changed = list(model.graphs()), set[str](), 0
    names = FreeNames(value_names(model) if graphs[1:] else set())
    for graph in graphs if graphs[1:] else ():
        results = (value for node in graph for value in node.outputs)
        for value in dict.fromkeys((*graph.inputs, *graph.initializers.values(), *results)):
            if value.name in used and graph is not model.graph:
                value.name = names.take(value.name)
                changed += 1
            if value.name:
                used.add(value.name)
    return changed
