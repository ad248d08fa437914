"""The weights that a plan quantizes, and their values if they are not rounded to the nearest. Pure.

`gptq` chooses the rounding. The plan holds it as offsets: how many steps each quantized value is
from the nearest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..numerics.affine import QuantParams, dequantize, params_of_part, quantize, steps_of, values_at
from ..operators.graph import Graph, Node, in_main_graph, index
from ..operators.weight_layout import Array
from ..plan.plan import Kind, QuantPlan, RoundingOffsets

KINDS_WITH_WEIGHTS = (Kind.QUANTIZED, Kind.DYNAMIC, Kind.WEIGHT_ONLY)
"""Kinds of node that have quantized weights."""

CHUNK_ELEMENTS = 1 << 20  # elements of a weight that offsets are added to together
MIN_LAZY_BYTES = 1 << 20  # bytes of a weight from which its values are computed when they are read


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant that is quantized for one node of the plan, and that no other node reads."""

    node: Node
    value: ir.Value
    array: Array  # its elements, float32
    params: QuantParams  # what it is quantized with


def round_weights(model: ir.Model, plan: QuantPlan) -> ir.Model:
    """Return the model whose weights have the float values of the quantized values that the plan chose."""
    roundings = plan.adjustments.roundings
    if not roundings:
        return model
    work = model.clone()
    for weight in quantized_weights(index(work), plan):
        rounding = roundings.get(weight.node.name)
        if rounding is None:
            continue
        where, size = f"plan: adjustments: rounding of '{weight.node.name}'", weight.array.size
        if len(rounding.offsets) != size:
            raise PlanError(
                f"{where}: {len(rounding.offsets)} offsets for a weight of {size} elements; remove the entry"
            )
        if rounding.params != params_digest(weight.params):
            raise PlanError(
                f"{where}: was made for other parameters of the weight; put them back, or remove the entry"
            )
        weight.value.const_value = _rounded_tensor(weight, rounding)
    return work


def quantized_weights(graph: Graph, plan: QuantPlan) -> Iterator[Weight]:
    """Yield the weights that are rounded one by one, in graph order; vectors are excluded."""
    for node in graph.nodes:
        entry, rule = plan.nodes.get(node.name), node.rule
        if entry is None or entry.kind not in KINDS_WITH_WEIGHTS or rule is None or rule.weight is None:
            continue
        value, name = node.ir_node.inputs[rule.weight.index], node.input(rule.weight.index)
        array, params = graph.constant(name), plan.params_read(node.name, rule.weight.index, name)
        if array is None or value is None or params is None or array.ndim < 2:
            continue
        if in_main_graph(graph, node) and len(value.uses()) == 1 and not value.is_graph_output():
            yield Weight(node, value, array, params)


def params_digest(params: QuantParams) -> str:
    """Return a digest of parameters: 16 hexadecimal digits.

    Plan files have it, so the hashed text stays as in format 1, with the names of classes of then.
    """
    qtype = params.qtype
    if params.block_size is not None:
        digest = hashlib.sha256(repr((qtype.name, params.axis, params.block_size)).encode())
        digest.update(params.scale.astype("<f4").tobytes())
        digest.update(params.zero_point.astype("<i4").tobytes())
        return digest.hexdigest()[:16]
    text = (
        f"QuantParams(scale={tuple(params.scale.tolist())}, zero_point={tuple(params.zero_point.tolist())}, "
        f"qtype=QuantType(name={qtype.name!r}, bits={qtype.bits}, signed={qtype.signed}, "
        f"stored_as={qtype.stored_as!r}), axis={params.axis!r}, block={params.block_size!r})"
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rounded_tensor(weight: Weight, rounding: RoundingOffsets) -> ir.TensorProtocol:
    """Return the float values of quantized values with offsets; large ones are computed when read."""
    array, name = weight.array, weight.value.name
    if array.nbytes < MIN_LAZY_BYTES:
        return ir.Tensor(_with_offsets(weight, rounding), name=name)
    dtype, shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
    return ir.LazyTensor(lambda: ir.Tensor(_with_offsets(weight, rounding)), dtype, shape, name=name)


def _with_offsets(weight: Weight, rounding: RoundingOffsets) -> Array:
    params, shape = weight.params, weight.array.shape
    steps = np.frombuffer(rounding.offsets, np.int8).reshape(shape)
    rounded = np.empty(shape, np.float32)
    block = params.block_size if params.block_size is not None and params.axis == 0 else 1
    rows = max(1, CHUNK_ELEMENTS // max(1, block * math.prod(shape[1:]))) * block
    for start in range(0, shape[0], rows):
        part, stop = slice(start, start + rows), min(start + rows, shape[0])
        part_params = params_of_part(params, shape, 0, start, stop)
        values = steps_of(quantize(weight.array[part], part_params), params.qtype) + steps[part]
        rounded[part] = dequantize(values_at(values, params.qtype), part_params)
    return rounded
