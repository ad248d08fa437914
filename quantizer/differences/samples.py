"""The samples on which a quantized model differs most from the float one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .outputs import AnyArray, is_float
from .sqnr import sums_along

SHOWN = 5
"""Samples that are kept: enough to look at, whatever the number of samples."""


@dataclass(frozen=True)
class SampleDifference:
    """How far the outputs differ on one sample.

    Attributes:
        sample: its name.
        output: the float output that differs most.
        sqnr: of that output on this sample alone, in dB; -inf for noise without a signal.
    """

    sample: str
    output: str
    sqnr: float


def sample_difference(
    sample: str, pairs: Iterable[tuple[str, AnyArray, AnyArray]]
) -> SampleDifference | None:
    """Return how far the outputs differ on one sample.

    Args:
        sample: its name.
        pairs: name of each output, and the values of both models.

    Returns:
        None where no float output of equal shape differs.
    """
    compared = [
        (_sqnr(floats, quantized), name)
        for name, floats, quantized in pairs
        if floats.shape == quantized.shape and is_float(floats)
    ]
    sqnr, output = min(compared, default=(math.inf, ""))
    return None if sqnr == math.inf else SampleDifference(sample, output, sqnr)


def _sqnr(floats: AnyArray, quantized: AnyArray) -> float:
    (total,) = sums_along(floats, quantized, (None,))
    return total.difference().sqnr


def most_different(
    found: tuple[SampleDifference, ...], new: SampleDifference | None
) -> tuple[SampleDifference, ...]:
    """Return the samples with the lowest SQNR, the lowest first; of equals the one that came first."""
    if new is None:
        return found
    return tuple(sorted((*found, new), key=lambda one: one.sqnr)[:SHOWN])
