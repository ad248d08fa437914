"""The input of a dynamic LSTM in two parts of 8 bits: a coarse one, and the rest in finer steps. Pure.

onnxruntime's operator quantizes all of its input with one scale. Where that is too coarse, as for spectra
whose levels differ by decades, the operator is given twice the features: the input rounded to 8 bits, whose
weights are those of the node, and the error of that, `FINER` times as large, with weights divided by as
much. Two more features, of weight 0, hold the ends of the range of 8 bits: so the scale that the operator
computes is the one that the first part is rounded with, and that part is exact.
"""

from __future__ import annotations

from ...profiles.base.tuned import tuned
from ..numerics.affine import UINT8

FINER = tuned(
    24,
    figure=(
        "masks of a speech enhancer with 12, 16, 24, 32, 40: 28.5, 31.2, 34.3, 34.1, 29.4 dB, 14.2 in one "
        "part; drawn LSTMs of crest 24 with 16 and 32 33.4 and 29.8 dB, 17.2 in one part: the second part is "
        "finer, its weights are coarser"
    ),
    chosen_on="a speech enhancer, single LSTMs",
)
"""How many times the step of the second part is finer than that of the first."""

MARGIN = FINER // 2 + 1
"""Steps of the first part that are left at both ends for the second, which is within half of `FINER`."""

STEPS = UINT8.high - UINT8.low - 2 * MARGIN
"""Steps of the first part from the smallest value, or 0, to the largest."""

END_FEATURES = 2
"""Features that hold the ends."""


def step_of(minimum: float, maximum: float) -> float:
    """Return the step of the first part of an input with these smallest and largest values."""
    return (max(maximum, 0.0) - min(minimum, 0.0)) / STEPS


def features_of(inputs: int) -> int:
    """Return how many features the operator reads for a number of those of the node."""
    return 2 * inputs + END_FEATURES
