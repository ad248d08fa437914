"""Nodes without effect at inference are removed, and equal operators written in one way.

onnx_ir's IdentityEliminationPass knows Identity only, removes one between two graph outputs, of which one
then loses its name, and one whose output a subgraph reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from ...model.editing import (
    ORIGIN,
    bypass,
    constant,
    feeding,
    has_input,
    is_standard,
    origins,
    replace_constant,
    static_shape,
    value_names,
)


def drop_noops(model: ir.Model) -> int:
    """Remove nodes of the main graph whose first output equals their first input; return how many.

    A node stays where a graph output or a name that a subgraph reads would be lost, and where another of
    its outputs is used (the mask of Dropout).
    """
    dropped = 0
    for node in list(model.graph):
        has_no_effect = NOOPS.get(node.op_type) if is_standard(node) else None
        if has_no_effect is None or not node.inputs or node.inputs[0] is None or not has_no_effect(node):
            continue
        if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
            continue
        dropped += bypass(node, node.inputs[0])
    return dropped


def sums_to_adds(model: ir.Model) -> int:
    """Turn every `Sum` of two inputs into `Add`, the operator that quantization supports."""
    changed = 0
    for node in list(model.graph):
        if is_standard(node, "Sum") and len(node.inputs) == 2:
            node.op_type = "Add"
            changed += 1
    return changed


def scalar_ranges(model: ir.Model) -> int:
    """Turn one-element vectors that Range reads into scalars, as it requires; return how many.

    Runtimes accept such vectors when they are computed, and refuse them as constants.
    """
    changed = 0
    taken = value_names(model)
    for node in list(model.graph):
        for index, value in enumerate(node.inputs) if is_standard(node, "Range") else ():
            array = constant(value)
            if array is not None and array.ndim and array.size == 1:
                replace_constant(node, index, array.reshape(()), taken)
                changed += 1
    return changed


def merge_transposes(model: ir.Model) -> int:
    """Merge a Transpose with the one before it, when that has no other consumer; return how many."""
    merged = 0
    for node in list(model.graph):
        first = feeding(node.inputs[0], "Transpose") if is_standard(node, "Transpose") else None
        inner, outer = (None, None) if first is None else (_permutation(first), _permutation(node))
        if first is None or inner is None or outer is None:
            continue
        node.attributes["perm"] = ir.AttrInt64s("perm", [inner[axis] for axis in outer])
        node.replace_input_with(0, first.inputs[0])
        node.meta[ORIGIN] = origins((first, node))
        model.graph.remove(first, safe=True)
        merged += 1
    return merged


def _permutation(node: ir.Node) -> list[int] | None:
    given = node.attributes.get("perm")
    if given is not None:
        return list(given.as_ints())
    value = node.inputs[0]
    return None if value is None or value.shape is None else list(reversed(range(len(value.shape))))


def _always(node: ir.Node) -> bool:
    return True


def _single(node: ir.Node) -> bool:
    return len(node.inputs) == 1


def _dropout(node: ir.Node) -> bool:
    """Dropout of inference: no training_mode input, or a constant false one (opset 12 and later)."""
    if not has_input(node, 2):
        return True
    training = constant(node.inputs[2])
    return training is not None and not bool(training)


def _same_type(node: ir.Node) -> bool:
    value = node.inputs[0]
    return value is not None and value.dtype is not None and value.dtype == node.attributes["to"].as_int()


def _same_order(node: ir.Node) -> bool:
    perm = _permutation(node)
    return perm is not None and perm == sorted(perm)


def _same_shape(node: ir.Node) -> bool:
    """Reshape of a tensor of known shape to the same shape."""
    before, target = static_shape(node.inputs[0]), constant(node.inputs[1])
    if before is None or target is None or target.size != len(before):
        return False
    zero_copies = "allowzero" not in node.attributes or not node.attributes["allowzero"].as_int()
    wanted = [int(dim) for dim in target]
    if 0 in before or (0 in wanted and not zero_copies):
        return False
    return all(
        dim in (-1, have) or (dim == 0 and zero_copies) for dim, have in zip(wanted, before, strict=True)
    )


def _no_padding(node: ir.Node) -> bool:
    pads = constant(node.inputs[1]) if has_input(node, 1) else None
    return pads is not None and not np.any(pads)


NOOPS: Mapping[str, Callable[[ir.Node], bool]] = {
    "Identity": _always,
    "Sum": _single,
    "Max": _single,
    "Min": _single,
    "Mean": _single,
    "Concat": _single,
    "Dropout": _dropout,
    "Cast": _same_type,
    "Transpose": _same_order,
    "Reshape": _same_shape,
    "Pad": _no_padding,
}
"""Operator to a function that tells whether a node passes its first input on unchanged."""
