"""Kinds of tensors that are worth a look: `qprof show --only`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from .hints import ONE_SAMPLE
from .outliers import widening

if TYPE_CHECKING:
    from ..records.profile import TensorProfile

TAIL = 1e-3
"""Share of the elements that may be in the tails."""

TAIL_SHARE = 7.0 / 8.0
"""Share of the range that only the tails have: of 8 bits, the others have 5."""


def widened_by_one_sample(tensor: TensorProfile) -> bool:
    """Whether one sample alone widens the range by `ONE_SAMPLE` of it or more."""
    found = widening("", tensor.extremes)
    return found is not None and found.share >= ONE_SAMPLE


def is_constant(tensor: TensorProfile) -> bool:
    """Whether all elements of all samples are one number."""
    return tensor.count > 0 and tensor.minimum == tensor.maximum


def is_heavy_tailed(tensor: TensorProfile) -> bool:
    """Whether all elements but `TAIL` of them lie in the rest that `TAIL_SHARE` leaves of the range.

    Half of `TAIL` is left out at either end. Both ranges are extended to 0, as quantized types represent 0.
    """
    if not tensor.histogram.total or tensor.minimum == tensor.maximum:
        return False
    cumulated = np.cumsum(tensor.histogram.counts) / tensor.histogram.counts.sum()
    edges = np.clip(tensor.histogram.edges(), tensor.minimum, tensor.maximum)
    low = float(edges[np.searchsorted(cumulated, TAIL / 2.0, side="right")])
    high = float(edges[1 + np.searchsorted(cumulated, 1.0 - TAIL / 2.0)])
    whole = max(tensor.maximum, 0.0) - min(tensor.minimum, 0.0)
    return max(high, 0.0) - min(low, 0.0) <= (1.0 - TAIL_SHARE) * whole


KINDS: Mapping[str, Callable[[TensorProfile], bool]] = {
    "outliers": widened_by_one_sample,
    "constant": is_constant,
    "heavy-tail": is_heavy_tailed,
}
"""Each kind of tensors, and whether a tensor is of it."""
