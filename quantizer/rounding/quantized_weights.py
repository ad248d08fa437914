"""Rounding of weights to other codes than the nearest. Pure.

With samples, errors are fed back to the weights that are read together (`feedback`), and the codes are a part
of the plan. Without, sums are kept: errors of neighbours cancel out instead of adding up.
Inputs under the taps of a kernel are much alike, and so, less so, are those of different channels. What the
errors of the weights do to the output then depends on their sum before all else. SQuant (Guo et al., "SQuant:
On-the-Fly Data-Free Quantization via Diagonal Hessian Approximation", 2022, section 3) rounds to the nearest
and then rounds some weights the other way: in each kernel, until its errors add up to half a step at most,
and then over the kernels of an output channel. No error reaches a whole step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..model.graph import Graph, in_main, index, input_name
from ..numerics.affine import QuantParams, dequantize, quantize
from ..operators.table import rule_of
from ..operators.weight_layout import Array
from ..plan.adjustments import WeightMoves
from ..plan.plan import Kind, QuantPlan
from .squant import rounded_to_sums

WITH_WEIGHTS = (Kind.QUANTIZED, Kind.DYNAMIC, Kind.WEIGHT_ONLY)
"""Kinds of node that have weights in codes."""


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant that a node of the plan has in codes, and that no one else reads.

    Attributes:
        node: the node.
        value: the constant.
        array: its elements, float32.
        params: what it is quantized with.
    """

    node: ir.Node
    value: ir.Value
    array: Array
    params: QuantParams


def round_weights(model: ir.Model, plan: QuantPlan) -> ir.Model:
    """Return the model with the weights of its nodes on codes: those of the plan, or as its settings say.

    With "nearest" that is the model itself: quantizing rounds to the nearest. A weight that several nodes
    read is left to that as well, and so is one with a scale for each block by "squant".

    Args:
        model: the model that is lowered.
        plan: its plan.

    Raises:
        PlanError: codes that the plan has for a weight do not fit it.
    """
    chosen = plan.adjustments.roundings
    if plan.config.rounding != "squant" and not chosen:
        return model
    work = model.clone()
    for weight in weights_in_codes(index(work), plan):
        node, array, params = weight.node, weight.array, weight.params
        moves = chosen.get(node.name or "")
        if moves is not None:
            new = _moved(array, params, moves, f"plan: adjustments: rounding of '{node.name}'")
        elif plan.config.rounding == "squant" and _takes_sums(plan, weight):
            new = rounded_to_sums(node, array, params)
        else:
            continue
        weight.value.const_value = ir.Tensor(new, name=weight.value.name)
    return work


def weights_in_codes(graph: Graph, plan: QuantPlan) -> Iterator[Weight]:
    """Yield the weights that are rounded on their own, in graph order; a vector is none."""
    for node in graph.nodes:
        entry, rule = plan.nodes.get(node.name or ""), rule_of(node)
        if entry is None or entry.kind not in WITH_WEIGHTS or rule is None or rule.weight is None:
            continue
        value, name = node.inputs[rule.weight.index], input_name(node, rule.weight.index)
        array, params = graph.constant(name), plan.params_read(node.name or "", rule.weight.index, name)
        if array is None or value is None or params is None or array.ndim < 2:
            continue
        if in_main(graph, node) and len(value.uses()) == 1 and not value.is_graph_output():
            yield Weight(node, value, array, params)


def params_digest(params: QuantParams) -> str:
    """Return what tells parameters apart: 16 hexadecimal digits."""
    return hashlib.sha256(repr(params).encode()).hexdigest()[:16]


def _moved(array: Array, params: QuantParams, moves: WeightMoves, where: str) -> Array:
    """Return the real numbers of the codes that moves lead to."""
    if len(moves.moves) != array.size:
        raise PlanError(
            f"{where}: {len(moves.moves)} moves for a weight of {array.size} elements; remove the entry"
        )
    if moves.params != params_digest(params):
        raise PlanError(
            f"{where}: was made for other parameters of the weight; put them back, or remove the entry"
        )
    steps = np.frombuffer(moves.moves, np.int8).reshape(array.shape)
    codes = quantize(array, params).astype(np.int64) + steps
    return dequantize(np.clip(codes, params.qtype.low, params.qtype.high), params)


def _takes_sums(plan: QuantPlan, weight: Weight) -> bool:
    integer = plan.nodes[weight.node.name or ""].kind is Kind.QUANTIZED
    return integer and weight.params.block_size is None
