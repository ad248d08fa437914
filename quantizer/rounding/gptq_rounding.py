"""GPTQ for the weights of a plan: rounding offsets from the nearest quantized values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import Graph, name_of
from ..numerics.affine import parameter_arrays, quantize
from ..operators.table import product_layout, weight_axes
from ..operators.weight_layout import Array, Kernel
from ..plan.adjustments import RoundingOffsets
from ..plan.plan import QuantPlan
from .checkpoint import RoundingCheckpoint
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
    checkpoint: RoundingCheckpoint | None = None,
) -> dict[str, RoundingOffsets]:
    """Return rounding offsets that do least to the outputs of their nodes, by node name in graph order.

    Args:
        graph: the model that is planned.
        plan: its plan.
        corrected: nodes whose bias will make up for the mean of what the errors do.
        gathered: gives the second moments of what nodes read.
        checkpoint: has the offsets of nodes that are finished, and gets those of the others.
    """
    kept = checkpoint or RoundingCheckpoint()
    readers: dict[ProductInput, list[Weight]] = {}
    keys: dict[str, bytes] = {}
    found: dict[str, RoundingOffsets] = {}
    for weight in quantized_weights(graph, plan):
        reading, name = product_input(graph, weight.node, weight.array), name_of(weight.node)
        if reading is None:
            continue
        keys[name] = _key(weight, reading, name in corrected)
        offsets = kept.get(keys[name])
        if offsets is None:
            readers.setdefault(reading, []).append(weight)
        else:
            found[name] = RoundingOffsets(offsets, params_digest(weight.params))
    for reading, moments in gathered(list(readers)):
        for weight in readers[reading]:
            name = name_of(weight.node)
            found[name] = _gptq_offsets(weight, moments.means(centred=name in corrected))
            kept.add(keys[name], found[name].offsets)
    return {name: found[name] for name in keys if any(found[name].offsets)}


def _key(weight: Weight, reading: ProductInput, centred: bool) -> bytes:
    """Return a digest of what the rounding of a weight depends on, besides the float model and the samples.

    Where the channels of what a node reads are equalized, its weight is another one too.
    """
    array = np.ascontiguousarray(weight.array)
    facts = (name_of(weight.node), reading, centred, params_digest(weight.params), array.dtype, array.shape)
    digest = hashlib.sha256(repr(facts).encode())
    digest.update(array.data)
    return digest.digest()


def rebased(
    graph: Graph, found: Mapping[str, RoundingOffsets], before: QuantPlan, after: QuantPlan
) -> dict[str, RoundingOffsets]:
    """Return offsets that were chosen for one plan for another one of the same nodes.

    Where a channel has another scale there (as where a new bias would not fit in int32), it is rounded to the
    nearest.
    """
    if not found:
        return {}
    old = {name_of(weight.node): weight for weight in quantized_weights(graph, before)}
    new = {name_of(weight.node): weight for weight in quantized_weights(graph, after)}
    kept = {}
    for name in [name for name in found if name in new]:
        array, params = new[name].array, new[name].params
        same = np.ones((), bool)
        for first, second in zip(
            *(parameter_arrays(w.params, array.shape) for w in (old[name], new[name])), strict=True
        ):
            same = same & (first == second)
        offsets = np.frombuffer(found[name].offsets, np.int8).reshape(array.shape) * same
        if np.any(offsets):
            kept[name] = RoundingOffsets(offsets.astype(np.int8).tobytes(), params_digest(params))
    return kept


def _gptq_offsets(weight: Weight, second: Sequence[Floats]) -> RoundingOffsets:
    ends = np.cumsum([part.shape[1] for part in second])[:-1]
    pieces = zip(*(np.split(part, ends, axis=2) for part in flattened(weight)), second, strict=True)
    steps = np.concatenate([gptq(*piece) for piece in pieces], 2)
    return RoundingOffsets(offsets_of(weight, steps).tobytes(), params_digest(weight.params))


def flattened(weight: Weight) -> tuple[Array, Array, Array, Array]:
    """Return a weight, its scale and the first and the last step of its type as `gptq` takes them.

    Floats have 32 bits and steps 16: a weight may have many elements.
    """
    params, shape = weight.params, weight.array.shape
    scale, point = parameter_arrays(params, shape)
    zero_point = point.astype(np.int16)
    parts = (weight.array, scale, params.qtype.low - zero_point, params.qtype.high - zero_point)
    one, two, three, four = (columns_of(weight.node, np.broadcast_to(part, shape)) for part in parts)
    return one, two, three, four


def offsets_of(weight: Weight, steps: Array) -> npt.NDArray[np.int8]:
    """Return how far quantized values as `gptq` returns them are from the nearest, in the weight's shape."""
    _, zero_point = parameter_arrays(weight.params, weight.array.shape)
    values = _uncolumned(weight.node, steps, weight.array.shape) + zero_point.astype(np.float32)
    nearest = quantize(weight.array, weight.params).astype(np.float32)
    return np.clip(values - nearest, -128, 127).astype(np.int8)


def columns_of(node: ir.Node, array: Array) -> Array:
    """Return a weight as (groups, outputs, columns of an im2col row that it is multiplied with)."""
    flat = np.asarray(weight_axes(node, array.shape).blocks(array))
    if _scatters(node):  # each tap makes an output element of its own
        flat = flat.transpose(0, 1, 3, 2)
        return np.asarray(flat.reshape(flat.shape[0], -1, flat.shape[3]))
    return np.asarray(flat.reshape(*flat.shape[:2], -1))


def _uncolumned(node: ir.Node, columns: Array, shape: tuple[int, ...]) -> Array:
    """Return what `columns_of` has made of a weight of `shape` in that shape again."""
    axes = weight_axes(node, shape)
    if _scatters(node):
        groups, outs, ins, taps = axes.block_shape
        return axes.unblocked(columns.reshape(groups, outs, taps, ins).transpose(0, 1, 3, 2))
    return axes.unblocked(columns.reshape(axes.block_shape))


def _scatters(node: ir.Node) -> bool:
    layout = product_layout(node)
    return layout is not None and layout.kernel is Kernel.SCATTERS
