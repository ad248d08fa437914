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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.errors import PlanError
from ..affine import QuantParams, dequantize, quantize, spread
from ..graph import Graph, index
from ..plan import Kind, QuantPlan
from ..rules import rule_of
from .feedback import fed_back
from .moments import Moments
from .record import WeightMoves
from .rows import Reading, reading_of
from .sites import Array, blocks, in_main, input_channels, unblocked

Floats = npt.NDArray[np.float64]

WITH_WEIGHTS = (Kind.INTEGER, Kind.DYNAMIC, Kind.WEIGHT_ONLY)
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
    read is left to that as well, and so is one with a scale for each block by "sums".

    Args:
        model: the model that is lowered.
        plan: its plan.

    Raises:
        PlanError: codes that the plan has for a weight do not fit it.
    """
    chosen = plan.adjustments.roundings
    if plan.config.rounding != "sums" and not chosen:
        return model
    work = model.clone()
    for weight in weights_in_codes(index(work), plan):
        node, array, params = weight.node, weight.array, weight.params
        moves = chosen.get(node.name or "")
        if moves is not None:
            new = _moved(array, params, moves, f"plan: adjustments: rounding of '{node.name}'")
        elif plan.config.rounding == "sums" and _takes_sums(plan, weight):
            new = rounded_to_sums(node, array, params, input_channels(node, array.shape))
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
        value = node.inputs[rule.weight.index]
        name = "" if value is None else value.name or ""
        array = graph.constant(name)
        params = entry.inputs.get(rule.weight.index, plan.tensors.get(name))
        if array is None or value is None or params is None or array.ndim < 2:
            continue
        if in_main(graph, node) and len(value.uses()) == 1 and not value.is_graph_output():
            yield Weight(node, value, array, params)


def find_roundings(
    graph: Graph,
    plan: QuantPlan,
    corrected: Collection[str],
    gathered: Callable[[Sequence[Reading]], Iterable[tuple[Reading, Moments]]],
) -> dict[str, WeightMoves]:
    """Return codes of weights that do least to the outputs of their nodes, by node name in graph order.

    Args:
        graph: the model that is planned.
        plan: its plan.
        corrected: nodes whose bias will make up for the mean of what the errors do.
        gathered: gives the second moments of what nodes read.
    """
    readers: dict[Reading, list[Weight]] = {}
    names = []
    for weight in weights_in_codes(graph, plan):
        reading = reading_of(graph, weight.node, weight.array)
        if reading is not None:
            readers.setdefault(reading, []).append(weight)
            names.append(weight.node.name or "")
    found = {}
    for reading, moments in gathered(list(readers)):
        for weight in readers[reading]:
            second = moments.means(centred=weight.node.name in corrected)
            found[weight.node.name or ""] = _fed_back(weight, reading, second)
    return {name: found[name] for name in names if any(found[name].moves)}


def carried_over(
    graph: Graph, found: Mapping[str, WeightMoves], before: QuantPlan, after: QuantPlan
) -> dict[str, WeightMoves]:
    """Return codes that were chosen for one plan for another one of the same nodes.

    Where a channel has another scale there (as where a new bias would not fit in int32), its codes are the
    nearest.
    """
    old = {weight.node.name or "": weight for weight in weights_in_codes(graph, before)}
    new = {weight.node.name or "": weight for weight in weights_in_codes(graph, after)}
    carried = {}
    for name in [name for name in found if name in new]:
        array, params = new[name].array, new[name].params
        same = np.ones((), bool)
        for first, second in zip(
            *(spread(w.params, array.shape) for w in (old[name], new[name])), strict=True
        ):
            same = same & (first == second)
        moves = np.frombuffer(found[name].moves, np.int8).reshape(array.shape) * same
        if np.any(moves):
            carried[name] = WeightMoves(moves.astype(np.int8).tobytes(), params_digest(params))
    return carried


def params_digest(params: QuantParams) -> str:
    """Return what tells parameters apart: 16 hexadecimal digits."""
    return hashlib.sha256(repr(params).encode()).hexdigest()[:16]


def _fed_back(weight: Weight, reading: Reading, second: Sequence[Floats]) -> WeightMoves:
    node, array, params = weight.node, np.asarray(weight.array, np.float64), weight.params
    size = input_channels(node, array.shape)
    scale, zero_point = spread(params, array.shape)
    flat = [
        _columns(node, np.broadcast_to(np.asarray(part, np.float64), array.shape), size)
        for part in (array, scale, params.qtype.low - zero_point, params.qtype.high - zero_point)
    ]
    ends = np.cumsum([part.shape[1] for part in second])[:-1]
    pieces = zip(*(np.split(part, ends, axis=2) for part in flat), second, strict=True)
    steps = np.concatenate([fed_back(*piece) for piece in pieces], 2)
    codes = _uncolumned(node, steps, array.shape, size) + zero_point
    moves = codes - quantize(weight.array, params).astype(np.float64)
    return WeightMoves(np.clip(moves, -128, 127).astype(np.int8).tobytes(), params_digest(params))


def _columns(node: ir.Node, array: Array, size: int) -> Floats:
    """Return a weight as (groups, outputs, columns of a row that it is multiplied with), see `rows`."""
    flat = blocks(node, array, size)
    if node.op_type == "ConvTranspose":  # each tap makes an output element of its own
        flat = flat.transpose(0, 1, 3, 2)
        return flat.reshape(flat.shape[0], -1, flat.shape[3])
    return flat.reshape(*flat.shape[:2], -1)


def _uncolumned(node: ir.Node, columns: Floats, shape: tuple[int, ...], size: int) -> Array:
    """Return what `_columns` has made of a weight of `shape` in that shape again."""
    like = blocks(node, np.empty(shape, np.int8), size).shape
    if node.op_type == "ConvTranspose":
        groups, outs, ins, taps = like
        return unblocked(node, columns.reshape(groups, outs, taps, ins).transpose(0, 1, 3, 2), shape)
    return unblocked(node, columns.reshape(like), shape)


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
    integer = plan.nodes[weight.node.name or ""].kind is Kind.INTEGER
    return integer and weight.params.block is None


def rounded_to_sums(node: ir.Node, weight: Array, params: QuantParams, size: int) -> Array:
    """Return a weight of nearby codes' real numbers, float32, whose errors nearly add up to zero.

    Args:
        node: the product that reads it.
        weight: the constant, float32.
        params: what it will be quantized with: one scale, or one for each output channel.
        size: number of input channels.

    Returns:
        scale * (code - zero_point) for codes next to the weights; quantizing gives these codes again.
    """
    scale = params.scale_array.astype(np.float64)
    zero_point = np.asarray(params.zero_point, np.float64)
    if params.axis is not None:
        shape = tuple(-1 if i == params.axis else 1 for i in range(weight.ndim))
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    else:
        zero_point = zero_point.reshape(())
    exact = np.asarray(weight, np.float64) / scale
    low = np.broadcast_to(params.qtype.low - zero_point, exact.shape)
    high = np.broadcast_to(params.qtype.high - zero_point, exact.shape)
    nearest = np.clip(np.rint(exact), low, high)
    flat, codes = blocks(node, exact, size), blocks(node, nearest, size)
    free = [blocks(node, np.asarray(bound), size) for bound in (low, high)]
    steps = _sums_kept(flat, codes, *free)
    return np.asarray(unblocked(node, steps, weight.shape) * scale, np.float32)


def _sums_kept(exact: Floats, codes: Floats, low: Floats, high: Floats) -> Floats:
    """Return the steps (groups, outputs, inputs, taps) with some of them moved to the other neighbour."""
    codes = _flipped(exact, codes, low, high)  # over the taps of each kernel
    groups, outs, ins, taps = exact.shape
    # One candidate for each kernel: the tap whose other neighbour costs least in the direction needed.
    error = codes - exact
    total = error.sum((2, 3), keepdims=True)
    toward = np.sign(total)
    movable = (error * toward > 0.0) & (codes - toward >= low) & (codes - toward <= high)
    gain = np.where(movable, error * toward, -np.inf)
    best = gain.argmax(3)[..., None]
    kernel = np.take_along_axis(gain, best, 3)[..., 0]
    # A kernel may be off by one step at most afterwards.
    kernel = np.where(np.abs(error.sum(3) - toward[..., 0]) <= 1.0, kernel, -np.inf)
    order = np.argsort(-kernel, axis=2, kind="stable")
    wanted = np.rint(np.abs(total[..., 0, 0]))[..., None]
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(ins), order.shape), axis=2)
    chosen = (rank < wanted) & np.isfinite(kernel)
    moved = codes.copy()
    change = np.zeros((groups, outs, ins, taps))
    np.put_along_axis(change, best, (chosen * toward[..., 0])[..., None], 3)
    return np.asarray(moved - change)


def _flipped(exact: Floats, codes: Floats, low: Floats, high: Floats) -> Floats:
    """Return codes whose errors along the last axis add up to half a step at most, where they can."""
    error = codes - exact
    total = error.sum(-1, keepdims=True)
    toward = np.sign(total)
    movable = (error * toward > 0.0) & (codes - toward >= low) & (codes - toward <= high)
    gain = np.where(movable, error * toward, -np.inf)
    order = np.argsort(-gain, axis=-1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(order.shape[-1]), order.shape), axis=-1)
    return np.asarray(codes - np.where((rank < np.rint(np.abs(total))) & movable, toward, 0.0))
