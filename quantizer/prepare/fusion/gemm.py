"""MatMul with a bias written as Gemm, and the bias of a Gemm as a vector."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...model.editing import (
    ORIGIN,
    feeding,
    has_input,
    is_standard,
    origins,
    rank,
    replace_constant,
    take_over,
    value_names,
)
from ...model.graph import constant_of


def join_biases(model: ir.Model) -> int:
    """Fuse MatMul by a constant matrix and the Add of a constant row after it into Gemm; return how many.

    Runtimes fuse them too, but not across the conversions that quantization puts between the two. The integer
    kernel is for a Gemm with its bias, which is quantized as int32.
    """
    joined = 0
    for node in list(model.graph):
        if node.graph is None or not is_standard(node, "Add"):
            continue
        for product, bias in (node.inputs, node.inputs[::-1]):
            matmul = feeding(product, "MatMul")
            if matmul is not None and _fits(matmul, bias):
                _join(model.graph, matmul, node, bias)
                joined += 1
                break
    return joined


def flatten_biases(model: ir.Model) -> int:
    """Write constant biases of Gemm as [N], one element for each column; return how many.

    They may be [1, N], and one number for all columns: [], [1] or [1, 1].
    """
    changed = 0
    taken: set[str] = set()
    for node in model.graph:
        if not is_standard(node, "Gemm") or not has_input(node, 2):
            continue
        row = constant_of(node.inputs[2])
        columns = _columns(node)
        if row is None:
            continue
        if row.size == 1 and columns is not None and row.shape != (columns,):
            vector = np.repeat(row.reshape(-1), columns)
        elif row.ndim == 2 and row.shape[0] == 1 and row.shape[1] > 1:
            vector = row.reshape(-1)
        else:
            continue
        taken = taken or value_names(model)
        replace_constant(node, 2, vector, taken)
        changed += 1
    return changed


def _columns(gemm: ir.Node) -> int | None:
    """Return how many columns the result of a Gemm has, None where its second operand is not constant."""
    weight = constant_of(gemm.inputs[1])
    return None if weight is None else weight.shape[0 if gemm.attributes.get_int("transB", 0) else 1]


def _fits(matmul: ir.Node, bias: ir.Value | None) -> bool:
    """Tell whether the product is of two matrices, the second constant, and the bias one constant row."""
    weight, row = constant_of(matmul.inputs[1]), constant_of(bias)
    if weight is None or row is None or weight.ndim != 2 or rank(matmul.inputs[0]) != 2:
        return False
    return (
        weight.dtype.kind == "f"
        and row.dtype == weight.dtype
        and row.shape
        in (
            (weight.shape[1],),
            (1, weight.shape[1]),
        )
    )


def _join(graph: ir.Graph, matmul: ir.Node, add: ir.Node, bias: ir.Value | None) -> None:
    gemm = ir.Node("", "Gemm", [*matmul.inputs, bias], name=matmul.name)
    gemm.meta[ORIGIN] = origins((matmul, add))
    output = add.outputs[0]
    graph.insert_before(add, gemm)
    take_over(gemm.outputs[0], output)
    for node in (add, matmul):
        graph.remove(node, safe=True)
