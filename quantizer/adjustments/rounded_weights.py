"""The weights that a plan quantizes, and their values where these are not rounded to the nearest. Pure.

`gptq` and `gptaq` choose the rounding. The plan holds it as offsets: how many steps each quantized value is
from the nearest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..numerics.affine import QuantParams, dequantize, quantize
from ..operators.graph import Graph, Node, in_main_graph, index
from ..operators.weight_layout import Array
from ..plan.plan import Kind, QuantPlan, RoundingOffsets

WITH_WEIGHTS = (Kind.QUANTIZED, Kind.DYNAMIC, Kind.WEIGHT_ONLY)
"""Kinds of node that have quantized weights."""


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant that is quantized for one node of the plan, and that no other node reads.

    Attributes:
        node: the node.
        value: the constant.
        array: its elements, float32.
        params: what it is quantized with.
    """

    node: Node
    value: ir.Value
    array: Array
    params: QuantParams


def round_weights(model: ir.Model, plan: QuantPlan) -> ir.Model:
    """Return the model whose weights have the float values of the quantized values that the plan chose.

    Without rounding offsets that is the model itself: quantizing rounds to the nearest. With them quantizing
    finds the chosen values again, so no form has to know how weights are rounded.

    Args:
        model: the model that is lowered.
        plan: its plan.

    Raises:
        PlanError: offsets do not fit their weight.
    """
    chosen = plan.adjustments.roundings
    if not chosen:
        return model
    work = model.clone()
    for weight in quantized_weights(index(work), plan):
        name = weight.node.name
        if name in chosen:
            new = _with_offsets(weight, chosen[name], f"plan: adjustments: rounding of '{name}'")
            weight.value.const_value = ir.Tensor(new, name=weight.value.name)
    return work


def quantized_weights(graph: Graph, plan: QuantPlan) -> Iterator[Weight]:
    """Yield the weights that are rounded on their own, in graph order; a vector is none."""
    for node in graph.nodes:
        entry, rule = plan.nodes.get(node.name), node.rule
        if entry is None or entry.kind not in WITH_WEIGHTS or rule is None or rule.weight is None:
            continue
        value, name = node.ir_node.inputs[rule.weight.index], node.input(rule.weight.index)
        array, params = graph.constant(name), plan.params_read(node.name, rule.weight.index, name)
        if array is None or value is None or params is None or array.ndim < 2:
            continue
        if in_main_graph(graph, node) and len(value.uses()) == 1 and not value.is_graph_output():
            yield Weight(node, value, array, params)


def params_digest(params: QuantParams) -> str:
    """Return what tells parameters apart: 16 hexadecimal digits.

    They stand in plan files, so the text that is hashed stays as it was in format 1, whatever classes are
    called.
    """
    qtype = params.qtype
    text = (
        f"QuantParams(scale={tuple(params.scale.tolist())}, zero_point={tuple(params.zero_point.tolist())}, "
        f"qtype=QuantType(name={qtype.name!r}, bits={qtype.bits}, signed={qtype.signed}, "
        f"stored_as={qtype.stored_as!r}), axis={params.axis!r}, block={params.block_size!r})"
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _with_offsets(weight: Weight, rounding: RoundingOffsets, where: str) -> Array:
    """Return the float values of the quantized values that offsets lead to."""
    array, params = weight.array, weight.params
    if len(rounding.offsets) != array.size:
        raise PlanError(
            f"{where}: {len(rounding.offsets)} offsets for a weight of {array.size} elements; "
            "remove the entry"
        )
    if rounding.params != params_digest(params):
        raise PlanError(
            f"{where}: was made for other parameters of the weight; put them back, or remove the entry"
        )
    steps = np.frombuffer(rounding.offsets, np.int8).reshape(array.shape)
    values = quantize(array, params).astype(np.int64) + steps
    return dequantize(np.clip(values, params.qtype.low, params.qtype.high), params)
