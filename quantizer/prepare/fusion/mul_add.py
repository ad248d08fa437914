"""Mul and Add by constants fused: normalisation and scaling are often exported as four such nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...model.editing import Array, constant, feeding, is_standard, merge_into, replace_constant, value_names


def merge_affine_chains(model: ir.Model) -> int:
    """Fuse Mul with a Mul before it, Add with an Add, and Mul with Mul + Add; return how many.

    `(x c1) c2 = x (c1 c2)`, `(x + c1) + c2 = x + (c1 + c2)` and `(x c0 + c1) c2 = x (c0 c2) + c1 c2`, all
    constants of floating type and computed in float64. A product that would be larger than both constants
    (an outer product) is not formed. The outputs of the fused nodes must have no other consumer.
    """
    merged = 0
    taken = value_names(model)
    for node in list(model.graph):
        if not is_standard(node, "Mul", "Add"):
            continue
        operands = _operands(node)
        before = None if operands is None else feeding(node.inputs[operands[0]], "Mul", "Add")
        operands_before = None if before is None else _operands(before)
        if operands is None or before is None or operands_before is None:
            continue
        last, inner = operands[2], [(before, operands_before)]
        if node.op_type == "Mul" and before.op_type == "Add":
            first = feeding(before.inputs[operands_before[0]], "Mul")
            operands_first = None if first is None else _operands(first)
            if first is None or operands_first is None:
                continue
            inner.append((first, operands_first))
        elif node.op_type != before.op_type:
            continue
        combine = np.multiply if node.op_type == "Mul" else np.add
        new = [_combined(combine, parts[2], last) for _, parts in inner]
        if any(array is None for array in new):
            continue
        for (changed, parts), array in zip(inner, new, strict=True):
            if array is not None:
                replace_constant(changed, parts[1], array, taken)
        merge_into(before, node)
        merged += 1
    return merged


def _operands(node: ir.Node) -> tuple[int, int, Array] | None:
    """Return (index of the variable input, index of the constant, the constant) of a Mul or Add."""
    for index in (0, 1):
        array = constant(node.inputs[1 - index])
        if array is not None and array.dtype.kind == "f" and constant(node.inputs[index]) is None:
            return index, 1 - index, array
    return None


def _combined(combine: np.ufunc, a: Array, b: Array) -> Array | None:
    """Return the combined constant in the type of `a`; None when it grows or overflows."""
    with np.errstate(all="ignore"):
        try:
            result: Array = combine(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
        except ValueError:  # shapes that only the variable input reconciles
            return None
    return result if result.size <= max(a.size, b.size) and np.isfinite(result).all() else None
