"""Counts the elements of a tensor that saturate after quantization, from its histogram."""

from __future__ import annotations

import numpy as np

from ...profiles.records.histogram import Histogram
from ...profiles.records.profile import TensorProfile
from .affine import QuantParams

Cover = tuple[float, float]
"""Smallest and largest value that does not saturate."""


def covered(params: QuantParams) -> Cover:
    """Return the values that saturate by one step at most: rounding costs half a step anyway.

    The zero point is rounded too: the extremes that made the scale may lie half a step outside.
    """
    scale, zero_point, qtype = params.tensor_scale, params.tensor_zero_point, params.qtype
    return scale * (qtype.low - zero_point - 1), scale * (qtype.high - zero_point + 1)


def share_outside(tensor: TensorProfile, cover: Cover) -> float:
    """Return the share, 0 to 1, of the finite elements of a tensor with an exact histogram outside `cover`.

    The elements of a bin count as evenly spread, except zeros: they are counted, and always covered.
    """
    histogram = tensor.histogram
    assert isinstance(histogram, Histogram)
    if tensor.count == 0 or (cover[0] <= tensor.minimum and tensor.maximum <= cover[1]):
        return 0.0
    counts = histogram.counts.astype(np.float64)
    if 0 <= -histogram.first < counts.size:
        counts[-histogram.first] -= min(float(tensor.zeros), counts[-histogram.first])
    # In units of one bin only values far outside the range overflow, and infinity is right for those.
    with np.errstate(over="ignore"):
        low, high, minimum, maximum = np.ldexp([*cover, tensor.minimum, tensor.maximum], -histogram.exponent)
    edges = np.clip(histogram.first + np.arange(counts.size + 1, dtype=np.float64), minimum, maximum)
    start, width = edges[:-1], np.diff(edges)
    spread = np.where(width > 0.0, width, 1.0)
    with np.errstate(over="ignore"):
        below = np.where(width > 0.0, np.clip((low - start) / spread, 0.0, 1.0), start < low)
        above = np.where(width > 0.0, np.clip((edges[1:] - high) / spread, 0.0, 1.0), start > high)
    return min(float(counts @ (below + above)) / tensor.count, 1.0)
