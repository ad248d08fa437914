"""GPTQ: rounding that compensates the error of each weight in those that are still to be rounded. Pure.

The mean square error of an output channel, caused by errors e of its weights, is e' H e, with the second
moments H of the inputs. GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative
Pre-trained Transformers", 2022, arXiv:2210.17323; after Hassibi and Stork, "Second Order Derivatives for
Network Pruning: Optimal Brain Surgeon", 1993) rounds weight after weight, and each following weight
compensates the errors of those before, as far as their inputs are correlated. With H = L L' this is |L'e|^2,
a sum of squares: the last contains a single weight, the last but one two, and so on. From the last to the
first, each weight is rounded so that its own square is least, given those after it. That gives the quantized
weights of GPTQ without the inverse of H.

L comes from a library whose order of addition may depend on the number of threads. The last bit changes a
quantized weight only if the compensated weight is midway between two of them to 15 digits, which does not
happen with trained weights. A test compares the quantized weights of one thread with those of several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import threadpoolctl

from ...profiles.base.tuned import tuned
from ..numerics.affine import INT8, parameter_arrays, params_of_part, quantize
from ..numerics.array_file import ArrayFile
from ..operators.graph import Graph, Node
from ..operators.pair_sums import limits, saturates
from ..operators.table import product_layout, weight_axes
from ..operators.weight_layout import Kernel
from ..plan.plan import QuantPlan, RoundingOffsets
from .rounded_weights import Weight, params_digest, quantized_weights
from .second_moments import Moments, ProductInput, product_input

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

DAMPING = tuned(0.01, figure="Frantar et al., section 3.3", chosen_on="the paper's models")
"""Share of the mean second moment that is added to each column's own."""

CHUNK = 1 << 20
"""Weights that are rounded together; the data of a column of a block stay in the processor's cache."""

BLOCK = 64  # columns whose errors are compensated in the columns before them together


def gptq(weight: Array, scale: Array, low: Array, high: Array, second: Floats) -> Array:
    """Return quantized weights, zero points taken off, whose e' H e is at most that of rounding to nearest.

    Weights, and the step, first and last of each, are (groups, outputs, columns), H (groups, columns,
    columns).
    """
    curvature, quantized = _curvature(second), np.empty(weight.shape, np.float32)
    each = _outputs_at_once(weight.shape[0], weight.shape[2])
    for begin in range(0, weight.shape[1], each):
        part = slice(begin, begin + each)
        quantized[:, part] = _rounded(curvature, *(array[:, part] for array in (weight, scale, low, high)))
    return quantized


Curvature = tuple[npt.NDArray[np.int64], Floats, Floats]
"""Order of the columns, (groups, columns), the largest second moment last; in that order the moments H, over
their mean, and L of the damped moments, (groups, columns, columns)."""


def _curvature(second: Floats) -> Curvature:
    order = np.argsort(np.einsum("gcc->gc", second), axis=1, kind="stable")
    groups = np.arange(len(second))[:, None, None]
    moments, unit = _scaled(second[groups, order[:, :, None], order[:, None, :]])
    del second  # with many columns each of these takes as much memory as a weight
    diagonal = np.einsum("gcc->gc", moments)
    undamped = diagonal.copy()
    diagonal += np.where(unit > 0.0, DAMPING, 1.0)[:, None]
    factor = np.asarray(np.linalg.cholesky(moments))
    diagonal[...] = undamped
    return order, moments, factor


def _outputs_at_once(groups: int, columns: int) -> int:
    return max(1, CHUNK // (groups * columns))


def _rounded(curvature: Curvature, weight: Array, scale: Array, low: Array, high: Array) -> Array:
    """Return the quantized weights of some output channels; see `gptq`."""
    orders, moments, factor = curvature
    exact, size, first, last = (
        np.stack([part.T[order] for part, order in zip(np.asarray(array, np.float64), orders, strict=True)])
        for array in (weight, scale, low, high)
    )
    with _blas().limit(limits=1, user_api="blas"):
        steps = _steps(factor, exact, size, first, last)
    nearest = np.clip(np.rint(exact / size), first, last)
    better = _is_better(exact - steps * size, exact - nearest * size, moments)
    chosen = np.where(better[:, None, :], steps, nearest).transpose(0, 2, 1)
    in_weight_order = np.empty(chosen.shape, np.float32)
    for part, order, group in zip(in_weight_order, orders, chosen, strict=True):
        part[:, order] = group
    return in_weight_order


@cache
def _blas() -> threadpoolctl.ThreadpoolController:
    """Return the controller of the threads of linear algebra, which wait for each other between small
    products."""
    return threadpoolctl.ThreadpoolController()


def _scaled(second: Floats) -> tuple[Floats, Floats]:
    """Return moments divided by their mean, in place, and the mean; moments of 0 do not change."""
    mean = np.einsum("gcc->g", second) / second.shape[1]
    second /= np.where(mean > 0.0, mean, 1.0)[:, None, None]
    return second, mean


def _steps(factor: Floats, weight: Floats, scale: Floats, low: Floats, high: Floats) -> Floats:
    """Return the steps of weights (groups, columns, outputs): a column lies together in memory."""
    errors, steps = np.zeros(weight.shape), np.zeros(weight.shape)
    diagonal = np.einsum("gcc->gc", factor)
    for end in range(weight.shape[1], 0, -BLOCK):
        begin = max(0, end - BLOCK)
        to_compensate = np.matmul(factor[:, end:, begin:end].transpose(0, 2, 1), errors[:, end:])
        for at in range(end - 1, begin - 1, -1):
            wanted = weight[:, at] + to_compensate[:, at - begin] / diagonal[:, at, None]
            step = np.clip(np.rint(wanted / scale[:, at]), low[:, at], high[:, at])
            error = weight[:, at] - step * scale[:, at]
            steps[:, at], errors[:, at] = step, error
            to_compensate[:, : at - begin] += error[:, None, :] * factor[:, at, begin:at, None]
    return steps


def _is_better(errors: Floats, others: Floats, second: Floats) -> npt.NDArray[np.bool_]:
    """Whether e' H e of each output channel is less for the first errors (groups, columns, outputs)."""
    product = np.matmul(second, errors + others)
    product *= errors - others
    return np.asarray(product.sum(1) < 0.0)


# GPTQ for the weights of a plan: rounding offsets from the nearest quantized values -----------------------


def find_roundings(
    graph: Graph,
    plan: QuantPlan,
    corrected: Collection[str],
    gathered: Callable[[Sequence[ProductInput]], Iterable[tuple[ProductInput, Moments]]],
) -> dict[str, RoundingOffsets]:
    """Return the offsets with the least error at their nodes' outputs; `corrected` nodes get other biases."""
    file, readers = ArrayFile(), dict[ProductInput, list[Weight]]()
    weights = list(quantized_weights(graph, plan))
    for weight in weights:
        reading = product_input(graph, weight.node, weight.array)
        if reading is not None:
            readers.setdefault(reading, []).append(weight)
    roundings: dict[str, RoundingOffsets] = {}
    for reading, moments in gathered(list(readers)):
        for weight, offsets in _rounded_together(readers[reading], moments, corrected):
            if np.any(offsets):
                stored = file.empty((weight.array.size,), np.int8)
                stored[:] = offsets.reshape(-1)
                digest = params_digest(weight.params)
                roundings[weight.node.name] = RoundingOffsets(stored.data.toreadonly(), digest)
    return {w.node.name: roundings[w.node.name] for w in weights if w.node.name in roundings}


def _rounded_together(
    weights: Sequence[Weight], moments: Moments, corrected: Collection[str]
) -> Iterator[tuple[Weight, npt.NDArray[np.int8]]]:
    """Yield the offsets of weights that are multiplied with the same rows, each in the weight's shape."""
    for centred in (False, True):
        chosen = [weight for weight in weights if (weight.node.name in corrected) == centred]
        shapes = [columns_of(weight.node, weight.array).shape for weight in chosen]
        steps = [np.empty(shape, np.int16) for shape in shapes]
        end = 0
        for block, second in enumerate(moments.second if chosen else ()):
            start, end = end, end + second.shape[1]
            curvature = _curvature(moments.mean(block, centred))
            each = _outputs_at_once(len(second), second.shape[1])
            for weight, weight_steps in zip(chosen, steps, strict=True):
                for outputs, part in _outputs_of(weight, each):
                    arrays = (array[:, :, start:end] for array in flattened(part))
                    weight_steps[:, outputs, start:end] = _rounded(curvature, *arrays)
            del curvature
        for weight, weight_steps in zip(chosen, steps, strict=True):
            offsets, axis = np.empty(weight.array.shape, np.int8), _output_axis(weight) or 0
            by_output = offsets.swapaxes(0, axis)
            for outputs, part in _outputs_of(weight, _outputs_at_once(1, end)):
                by_output[outputs] = offsets_of(part, weight_steps[:, outputs]).swapaxes(0, axis)
            yield weight, offsets


def _outputs_of(weight: Weight, each: int) -> Iterator[tuple[slice, Weight]]:
    """Yield a matrix in parts of some output channels; any other weight whole."""
    axis, shape = _output_axis(weight), tuple(weight.array.shape)
    if axis is None:
        yield slice(None), weight
        return
    for start in range(0, shape[axis], each):
        stop = min(start + each, shape[axis])
        within = (slice(None),) * axis + (slice(start, stop),)
        params = params_of_part(weight.params, shape, axis, start, stop)
        yield slice(start, stop), replace(weight, array=weight.array[within], params=params)


def _output_axis(weight: Weight) -> int | None:
    """Return the axis of the output channels of a matrix, None for any other weight."""
    layout = product_layout(weight.node)
    if layout is None or layout.kernel is not Kernel.NONE or weight.array.ndim != 2:
        return None
    return layout.axes(weight.node, weight.array.shape).output


def rebased(
    graph: Graph, roundings: Mapping[str, RoundingOffsets], old_plan: QuantPlan, new_plan: QuantPlan
) -> dict[str, RoundingOffsets]:
    """Return the offsets of one plan for another one of the same nodes."""
    if not roundings:
        return {}
    old = {weight.node.name: weight for weight in quantized_weights(graph, old_plan)}
    new = {weight.node.name: weight for weight in quantized_weights(graph, new_plan)}
    kept = {}
    for name in [name for name in roundings if name in new]:
        array, params = new[name].array, new[name].params
        same = np.ones((), bool)
        for first, second in zip(
            *(parameter_arrays(w.params, array.shape) for w in (old[name], new[name])), strict=True
        ):
            same = same & (first == second)
        offsets = np.frombuffer(roundings[name].offsets, np.int8).reshape(array.shape) * same
        if np.any(offsets):
            kept[name] = RoundingOffsets(offsets.astype(np.int8).tobytes(), params_digest(params))
    return kept


def flattened(weight: Weight) -> tuple[Array, Array, Array, Array]:
    """Return a weight, its scale, and its first and last step in the shapes of `gptq`."""
    params, shape, layout = weight.params, weight.array.shape, product_layout(weight.node)
    scale, point = parameter_arrays(params, shape)
    zero_point = point.astype(np.int16)
    low, high = np.asarray(params.qtype.low, np.int16), np.asarray(params.qtype.high, np.int16)
    if params.qtype == INT8 and layout is not None:
        codes, axes = quantize(weight.array, params), weight_axes(weight.node, shape)
        if not saturates(codes, axes, layout):
            low, high = (axes.unblocked(ends) for ends in limits(codes, axes, layout))
    parts = (weight.array, scale, low - zero_point, high - zero_point)
    one, two, three, four = (columns_of(weight.node, np.broadcast_to(part, shape)) for part in parts)
    return one, two, three, four


def offsets_of(weight: Weight, steps: Array) -> npt.NDArray[np.int8]:
    """Return how far quantized values as `gptq` returns them are from the nearest, in the weight's shape."""
    shape = weight.array.shape
    _, zero_point = parameter_arrays(weight.params, shape)
    axes = weight_axes(weight.node, shape)
    if _scatters(weight.node):  # undoes what `columns_of` has made of the weight
        groups, outs, ins, taps = axes.block_shape
        quantized = axes.unblocked(steps.reshape(groups, outs, taps, ins).transpose(0, 1, 3, 2))
    else:
        quantized = axes.unblocked(steps.reshape(axes.block_shape))
    values = quantized + zero_point.astype(np.float32)
    nearest = quantize(weight.array, weight.params).astype(np.float32)
    return np.clip(values - nearest, -128, 127).astype(np.int8)


def columns_of(node: Node, array: Array) -> Array:
    """Return a weight as (groups, outputs, columns of an im2col row that it is multiplied with)."""
    flat = np.asarray(weight_axes(node, array.shape).blocks(array))
    if _scatters(node):  # each tap makes an output element of its own
        flat = flat.transpose(0, 1, 3, 2)
        return np.asarray(flat.reshape(flat.shape[0], -1, flat.shape[3]))
    return np.asarray(flat.reshape(*flat.shape[:2], -1))


def _scatters(node: Node) -> bool:
    layout = product_layout(node)
    return layout is not None and layout.kernel is Kernel.SCATTERS
