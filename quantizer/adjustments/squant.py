"""SQuant: quantized values chosen so that rounding errors cancel in each kernel and channel.

After Guo et al., "SQuant: On-the-Fly Data-Free Quantization via Diagonal Hessian Approximation", 2022,
section 3: weights are rounded to the nearest, then some of them the other way: in each kernel, until its
errors add up to half a step at most, and then over the kernels of an output channel. No error reaches a whole
step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..numerics.affine import QuantParams
from ..operators.graph import Node
from ..operators.table import weight_axes
from ..operators.weight_layout import Array

Floats = npt.NDArray[np.float64]


def squant(node: Node, weight: Array, params: QuantParams) -> Array:
    """Return the float values of quantized values next to a weight, float32, whose errors nearly add up to
    zero.

    Args:
        node: the product that reads it.
        weight: the constant, float32.
        params: what it will be quantized with: one scale, or one for each output channel.

    Returns:
        scale * (value - zero_point) for quantized values next to the weights; quantizing gives these again.
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
    axes = weight_axes(node, weight.shape)
    flat, codes = axes.blocks(exact), axes.blocks(nearest)
    free = [axes.blocks(np.asarray(bound)) for bound in (low, high)]
    steps = _flip_to_zero_sum(flat, codes, *free)
    return np.asarray(axes.unblocked(steps) * scale, np.float32)


def _flip_to_zero_sum(exact: Floats, codes: Floats, low: Floats, high: Floats) -> Floats:
    """Return the steps (groups, outputs, inputs, taps) with some of them moved to the other neighbour."""
    codes = _flip_in_kernels(exact, codes, low, high)  # over the taps of each kernel
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


def _flip_in_kernels(exact: Floats, codes: Floats, low: Floats, high: Floats) -> Floats:
    """Return steps whose errors along the last axis add up to half a step at most, where they can."""
    error = codes - exact
    total = error.sum(-1, keepdims=True)
    toward = np.sign(total)
    movable = (error * toward > 0.0) & (codes - toward >= low) & (codes - toward <= high)
    gain = np.where(movable, error * toward, -np.inf)
    order = np.argsort(-gain, axis=-1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(order.shape[-1]), order.shape), axis=-1)
    return np.asarray(codes - np.where((rank < np.rint(np.abs(total))) & movable, toward, 0.0))
