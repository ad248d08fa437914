"""Weights of 8 bits whose products cannot saturate on a processor of x86-64 without VNNI. Pure.

There the instruction VPMADDUBSW multiplies uint8 values by int8 weights, and adds two neighbours of the
summed axis in a signed number of 16 bits. With values up to 255 no such sum is too large as long as the
positive parts of the two weights add up to at most 128, and so do their negative parts: 255 * 128 = 32640. So
the scale of a channel is raised until no pair exceeds that. Weights of 7 bits rule it out for any two, and
cost 6 dB instead of 1 to 3.

Neighbours follow the order of summation in a kernel: the input channels of each tap in turn, because
convolutions are computed with channels last. If the number of channels is even, each pair is within a tap, at
any starting point. If it is odd, the pairs depend on the runtime, which may pad the channels of each tap
(OpenVINO) or not (onnxruntime), and on the implementation of the node (`plan.rewrites`), so any two
neighbours count. A transposed convolution may be written with its taps in another order, so any two taps may
be neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..numerics.affine import INT8, QuantParams
from ..numerics.schemas import Schema, raised_scales
from .weight_layout import Kernel, WeightAxes, WeightLayout

Array = npt.NDArray[Any]

LARGEST_SUM = 128
"""Largest sum of the positive, or the negative, parts of two weights: 255 * 129 does not fit into 16 bits."""


def saturates(codes: Array, axes: WeightAxes, layout: WeightLayout) -> bool:
    """Return whether a product with int8 weights can saturate; `codes` has the weight's shape."""
    pairs = _pairs(axes.blocks(codes.astype(np.int16)), layout)
    return any(_largest_sums(one, other).max(initial=0) > LARGEST_SUM for one, other in pairs)


def unsaturated(
    params: QuantParams, weight: Array, axes: WeightAxes, layout: WeightLayout, schema: Schema
) -> QuantParams:
    """Return int8 weight parameters (zero point 0) with scales raised until its products cannot saturate.

    Two weights of together at most 127.5 steps are rounded to at most 128: each gains half a step at most,
    and their sum is whole. `weight` is float32, with one scale or one for each output channel.
    """
    least = np.zeros(axes.output_channels, np.float64)
    for one, other in _pairs(axes.blocks(weight), layout):
        least = np.maximum(least, _largest_sums(one, other).reshape(-1))
    least /= LARGEST_SUM - 0.5
    if params.axis is None:
        least = least.max(keepdims=True, initial=0.0)
    return raised_scales(params, least, schema)


def limits(codes: Array, axes: WeightAxes, layout: WeightLayout) -> tuple[Array, Array]:
    """Return the least and largest int8 value of each weight, as `axes.blocks`: pairs share the room left."""
    blocks = axes.blocks(codes.astype(np.int16))
    low, high = np.full(blocks.shape, INT8.low, np.int16), np.full(blocks.shape, INT8.high, np.int16)
    index = np.arange(blocks.size).reshape(blocks.shape)
    flat = blocks.reshape(-1)
    for pair in _pairs(index, layout):
        one, other = (part.reshape(-1) for part in np.broadcast_arrays(*pair))
        for sign, limit, choose in ((1, high.reshape(-1), np.minimum), (-1, low.reshape(-1), np.maximum)):
            first, second = (np.maximum(sign * flat[part], 0) for part in (one, other))
            left = np.maximum(LARGEST_SUM - first - second, 0)
            choose.at(limit, one, sign * (first + left // 2))
            choose.at(limit, other, sign * (second + left - left // 2))
    return low, high


def _largest_sums(one: Array, other: Array) -> Array:
    """Return the largest sum of the positive, or the negative, parts of pairs, (groups, outputs)."""
    # Without two signs it is the magnitude of the pair's sum, else that of the larger one, which is more.
    magnitudes = (np.abs(part) for part in (one, other, np.add(one, other, dtype=np.float64)))
    largest = [part.max(axis=tuple(range(2, part.ndim)), initial=0) for part in magnitudes]
    return np.asarray(np.max(largest, axis=0))


def _pairs(blocks: Array, layout: WeightLayout) -> list[tuple[Array, Array]]:
    """Return pairs that meet in a sum, (groups, outputs, ...), of (groups, outputs, inputs, taps)."""
    groups, outputs, inputs, taps = blocks.shape
    is_depthwise = layout.kernel is Kernel.GATHERS and groups > 1 and outputs == 1
    if inputs == 1 and (taps == 1 or is_depthwise):
        return []  # a single weight; and kernels of depthwise convolutions add nothing in 16 bits
    if inputs % 2 == 0:
        return [(blocks[:, :, 0::2], blocks[:, :, 1::2])]
    if layout.kernel is Kernel.GATHERS:  # taps follow each other
        blocks = blocks.transpose(0, 1, 3, 2).reshape(groups, outputs, inputs * taps, 1)
    pairs = [(blocks, np.roll(blocks, -1, axis=2))]
    if layout.kernel is Kernel.SCATTERS:
        pairs.append((blocks[:, :, -1, :, None], blocks[:, :, 0, None, :]))
    return pairs
