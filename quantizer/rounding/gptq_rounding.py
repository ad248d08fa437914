"""GPTQ for the weights of a plan: rounding offsets from the nearest quantized values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import Graph
from ..numerics.affine import quantize, spread
from ..operators.table import product_layout, weight_axes
from ..operators.weight_layout import Array, Kernel
from ..plan.adjustments import RoundingOffsets
from ..plan.plan import QuantPlan
from .gptq import gptq
from .im2col import ProductInput, product_input
from .quantized_weights import Weight, params_digest, quantized_weights
from .second_moments import Moments

Floats = npt.NDArray[np.float64]


def find_roundings(
    graph: Graph,
    plan: QuantPlan,
    corrected: Collection[str],
    gathered: Callable[[Sequence[ProductInput]], Iterable[tuple[ProductInput, Moments]]],
) -> dict[str, RoundingOffsets]:
    """Return rounding offsets that do least to the outputs of their nodes, by node name in graph order.

    Args:
        graph: the model that is planned.
        plan: its plan.
        corrected: nodes whose bias will make up for the mean of what the errors do.
        gathered: gives the second moments of what nodes read.
    """
    readers: dict[ProductInput, list[Weight]] = {}
    names = []
    for weight in quantized_weights(graph, plan):
        reading = product_input(graph, weight.node, weight.array)
        if reading is not None:
            readers.setdefault(reading, []).append(weight)
            names.append(weight.node.name or "")
    found = {}
    for reading, moments in gathered(list(readers)):
        for weight in readers[reading]:
            second = moments.means(centred=weight.node.name in corrected)
            found[weight.node.name or ""] = _gptq_offsets(weight, reading, second)
    return {name: found[name] for name in names if any(found[name].offsets)}


def rebased(
    graph: Graph, found: Mapping[str, RoundingOffsets], before: QuantPlan, after: QuantPlan
) -> dict[str, RoundingOffsets]:
    """Return offsets that were chosen for one plan for another one of the same nodes.

    Where a channel has another scale there (as where a new bias would not fit in int32), it is rounded to the
    nearest.
    """
    if not found:
        return {}
    old = {weight.node.name or "": weight for weight in quantized_weights(graph, before)}
    new = {weight.node.name or "": weight for weight in quantized_weights(graph, after)}
    kept = {}
    for name in [name for name in found if name in new]:
        array, params = new[name].array, new[name].params
        same = np.ones((), bool)
        for first, second in zip(
            *(spread(w.params, array.shape) for w in (old[name], new[name])), strict=True
        ):
            same = same & (first == second)
        offsets = np.frombuffer(found[name].offsets, np.int8).reshape(array.shape) * same
        if np.any(offsets):
            kept[name] = RoundingOffsets(offsets.astype(np.int8).tobytes(), params_digest(params))
    return kept


def _gptq_offsets(weight: Weight, reading: ProductInput, second: Sequence[Floats]) -> RoundingOffsets:
    node, array, params = weight.node, np.asarray(weight.array, np.float64), weight.params
    scale, zero_point = spread(params, array.shape)
    flat = [
        columns_of(node, np.broadcast_to(np.asarray(part, np.float64), array.shape))
        for part in (array, scale, params.qtype.low - zero_point, params.qtype.high - zero_point)
    ]
    ends = np.cumsum([part.shape[1] for part in second])[:-1]
    pieces = zip(*(np.split(part, ends, axis=2) for part in flat), second, strict=True)
    steps = np.concatenate([gptq(*piece) for piece in pieces], 2)
    values = _uncolumned(node, steps, array.shape) + zero_point
    offsets = values - quantize(weight.array, params).astype(np.float64)
    return RoundingOffsets(np.clip(offsets, -128, 127).astype(np.int8).tobytes(), params_digest(params))


def columns_of(node: ir.Node, array: Array) -> Floats:
    """Return a weight as (groups, outputs, columns of an im2col row that it is multiplied with)."""
    flat = np.asarray(weight_axes(node, array.shape).blocks(array))
    if _scatters(node):  # each tap makes an output element of its own
        flat = flat.transpose(0, 1, 3, 2)
        return np.asarray(flat.reshape(flat.shape[0], -1, flat.shape[3]))
    return np.asarray(flat.reshape(*flat.shape[:2], -1))


def _uncolumned(node: ir.Node, columns: Floats, shape: tuple[int, ...]) -> Array:
    """Return what `columns_of` has made of a weight of `shape` in that shape again."""
    axes = weight_axes(node, shape)
    if _scatters(node):
        groups, outs, ins, taps = axes.block_shape
        return axes.unblocked(columns.reshape(groups, outs, taps, ins).transpose(0, 1, 3, 2))
    return axes.unblocked(columns.reshape(axes.block_shape))


def _scatters(node: ir.Node) -> bool:
    layout = product_layout(node)
    return layout is not None and layout.kernel is Kernel.SCATTERS
