"""The grid of the quantized values of a type: rounding to it, and the loss.

Values are in units of the scale, less the zero point. The steps of integers are all 1; those of
floating-point types are as long as the values are large.
"""

from __future__ import annotations

import numpy as np

from .affine import Floats, QuantType, levels


def nearest(steps: Floats, first: float, last: float, qtype: QuantType) -> Floats:
    """Return the nearest quantized value of each of `steps`; all numbers are without zero point."""
    if not qtype.is_float:
        return np.asarray(np.clip(np.rint(steps), first, last))
    grid = levels(qtype)
    return np.asarray(grid[np.searchsorted((grid[1:] + grid[:-1]) / 2.0, steps)])


def cubes_up_to(quantized: Floats, qtype: QuantType) -> Floats:
    """Return the sum of the cubes of the steps from 0 to each quantized value, below 0 with a minus."""
    if not qtype.is_float:
        return quantized
    positive = levels(qtype)[levels(qtype) >= 0.0]
    cubes = np.concatenate([[0.0], np.cumsum(np.diff(positive) ** 3)])
    return np.asarray(np.sign(quantized) * cubes[np.searchsorted(positive, np.abs(quantized))])


def half_of_last_step(qtype: QuantType) -> float:
    """Return how far a value may be beyond the largest quantized value before it counts as saturated."""
    if not qtype.is_float:
        return 0.5
    return float(levels(qtype)[-1] - levels(qtype)[-2]) / 2.0
