"""HardSwish and HardSigmoid fused from the small operators that exporters write them in.

With the fused operator the intermediate tensors (x * (x + 3), ...) are neither profiled nor planned, and
runtimes have a kernel for the whole function.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...model.editing import (
    ORIGIN,
    feeding,
    free_name,
    is_standard,
    origins,
    rank,
    sole_user,
    take_over,
    value_names,
)
from ...model.graph import constant_of

HARD_SWISH_OPSET = 14
SIXTH = {"alpha": 1 / 6, "beta": 0.5}
"""Of the HardSigmoid that HardSwish multiplies x by."""


def fuse_hard_swish(model: ir.Model) -> int:
    """Fuse x * clip(x + 3, 0, 6) / 6, in any order of its factors, into HardSwish; return how many.

    HardSigmoid with slope 1/6 and offset 1/2 is accepted for the clip divided by 6. HardSwish is an operator
    since opset 14; models of older opsets get that HardSigmoid, and Mul by x.
    """
    fused = 0
    for node in list(model.graph):
        if node.graph is None or not is_standard(node, "Mul"):
            continue
        for gate, source in (node.inputs[::-1], node.inputs):
            parts = _gate(gate, source)
            if parts is not None and _fuse(model, node, source, *parts):
                fused += 1
                break
    return fused


def fuse_hard_sigmoid(model: ir.Model) -> int:
    """Fuse clip(x + b, 0, c) / c, the sum being optional, into HardSigmoid; return how many."""
    fused = 0
    for node in list(model.graph):
        found = None if node.graph is None else _hard_sigmoid(node)
        if found is not None:
            nodes, source, attributes = found
            _replace(model, nodes, [ir.node("HardSigmoid", [source], attributes, name=node.name)])
            fused += 1
    return fused


def _hard_sigmoid(node: ir.Node) -> tuple[list[ir.Node], ir.Value | None, dict[str, float]] | None:
    """Return the nodes up to this one that compute a HardSigmoid, what they read, and its attributes."""
    scaled = _product(node, None)
    clip = None if scaled is None else feeding(scaled[0], "Clip")
    if scaled is None or clip is None or len(clip.inputs) != 3 or rank(clip.inputs[0]) == 0:
        return None
    (source, *bounds), alpha = clip.inputs, scaled[1]
    low, high = (_scalar(value, source) for value in bounds)
    if low != 0.0 or high is None or not np.isclose(high * alpha, 1.0, rtol=1e-6):
        return None
    add = feeding(source, "Add")
    for inner, term in () if add is None else (add.inputs, add.inputs[::-1]):
        offset = _scalar(term, inner)
        if add is not None and offset is not None:
            return [add, clip, node], inner, {"alpha": alpha, "beta": offset * alpha}
    return [clip, node], source, {"alpha": alpha, "beta": 0.0}


def _gate(value: ir.Value | None, source: ir.Value | None) -> tuple[list[ir.Node], float] | None:
    """Return the nodes that compute `value` = clip(source + 3, 0, 6) * factor, and the factor."""
    hard_sigmoid = feeding(value, "HardSigmoid")
    if hard_sigmoid is not None and hard_sigmoid.inputs[0] is source:
        alpha = hard_sigmoid.attributes.get_float("alpha", 0.2)
        beta = hard_sigmoid.attributes.get_float("beta", 0.5)
        return ([hard_sigmoid], 1 / 6) if np.isclose(alpha, 1 / 6, rtol=1e-6) and beta == 0.5 else None
    scaled = _scaled(value, source)
    if scaled is not None:
        node, inner, factor = scaled
        gate = _gate(inner, source)
        return None if gate is None else ([*gate[0], node], gate[1] * factor)
    clip = feeding(value, "Clip")
    if clip is None or len(clip.inputs) != 3 or [_scalar(v, source) for v in clip.inputs[1:]] != [0.0, 6.0]:
        return None
    add = feeding(clip.inputs[0], "Add")
    if add is None or source is None:
        return None
    terms = [v for v in add.inputs if v is not source]
    return ([add, clip], 1.0) if len(terms) == 1 and _scalar(terms[0], source) == 3.0 else None


def _scaled(value: ir.Value | None, source: ir.Value | None) -> tuple[ir.Node, ir.Value | None, float] | None:
    """Return node, operand and factor of a product with, or quotient by, a constant that is used once."""
    node = feeding(value, "Mul", "Div")
    product = None if node is None else _product(node, source)
    return None if node is None or product is None else (node, *product)


def _product(node: ir.Node, source: ir.Value | None) -> tuple[ir.Value | None, float] | None:
    """Return operand and factor where the node computes operand * factor with a constant factor."""
    if not is_standard(node, "Mul", "Div"):
        return None
    by = _scalar(node.inputs[1], source)
    if by is not None and by != 0.0:
        return node.inputs[0], by if node.op_type == "Mul" else 1.0 / by
    by = _scalar(node.inputs[0], source)
    return (node.inputs[1], by) if by is not None and node.op_type == "Mul" else None


def _scalar(value: ir.Value | None, source: ir.Value | None) -> float | None:
    """Return a constant that is one number; None where it would add dimensions to those of `source`.

    A source of unknown rank is taken for one of at least one dimension.
    """
    array, most = constant_of(value), rank(source)
    if array is None or array.size != 1 or array.ndim > (1 if most is None else most):
        return None
    return float(array.reshape(-1)[0])


def _fuse(
    model: ir.Model, product: ir.Node, source: ir.Value | None, parts: list[ir.Node], factor: float
) -> bool:
    """Replace x * gate, and a division by 6 after it, when the product of the factors is 1/6."""
    last, nodes = product, [*parts, product]
    if not np.isclose(factor, 1 / 6, rtol=1e-6):
        after = sole_user(product.outputs[0])
        scaled = None if after is None else _product(after, source)
        if after is None or scaled is None or scaled[0] is not product.outputs[0]:
            return False
        if not np.isclose(factor * scaled[1], 1 / 6, rtol=1e-6):
            return False
        last, nodes = after, [*nodes, after]
    if model.graph.opset_imports.get("", 0) >= HARD_SWISH_OPSET:
        _replace(model, nodes, [ir.node("HardSwish", [source], name=last.name)])
        return True
    if parts[0].op_type == "HardSigmoid":
        return False
    gate, output = ir.node("HardSigmoid", [source], SIXTH), last.outputs[0]
    gate.outputs[0].name = free_name(f"{output.name}_gate", value_names(model))
    gate.outputs[0].type, gate.outputs[0].shape = output.type, output.shape
    _replace(model, nodes, [gate, ir.node("Mul", [source, gate.outputs[0]], name=last.name)])
    return True


def _replace(model: ir.Model, nodes: list[ir.Node], new: list[ir.Node]) -> None:
    """Put new nodes in the place of others; the last of each makes the result."""
    for node in new:
        node.meta[ORIGIN] = origins(nodes)
    model.graph.insert_before(nodes[-1], new)
    take_over(new[-1].outputs[0], nodes[-1].outputs[0])
    for node in reversed(nodes):
        model.graph.remove(node, safe=True)
