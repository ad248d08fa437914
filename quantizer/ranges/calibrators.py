"""Calibrators: which range of a tensor its quantized values should cover, from its profile.

A calibrator is a pure function from a profile to a range. Adding one is adding a function here, and its name
in `targets.calibrator_names`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ConfigError, PlanError, ProfileError
from ...profiles.base.strict_yaml import MalformedError
from ...profiles.records.histogram import BINS
from ...profiles.records.profile import TensorProfile
from ..numerics.affine import QuantType
from ..numerics.arrays import UnaryFunction
from ..numerics.density import density
from ..numerics.quantization_noise import noise_after, total_noise
from ..numerics.schemas import FLOAT32_MAX, FLOAT32_TINY, Schema, choose_arrays, widened_range
from ..targets.calibrator_names import CALIBRATOR_NAMES, CalibratorName, split_calibrator
from .kl_divergence import optimize_kl, rescale_histogram

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Range:
    """The float values from `low` to `high`.

    Attributes:
        low, high: finite, low <= high.

    Raises:
        PlanError: they are not.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not -np.inf < self.low <= self.high < np.inf:
            raise PlanError(f"range [{self.low}, {self.high}]: not a range; give finite numbers, low <= high")


Choose = Callable[[TensorProfile, Schema, QuantType, float], tuple[float, float]]
"""Returns low and high; the float is the calibrator's parameter (NaN when it has none)."""


@dataclass(frozen=True)
class Calibrator:
    """A way to choose a range.

    Attributes:
        name: as written in options and files.
        choose: the function; what it returns is cut to the data and extended to 0 afterwards.
        for_function: chooses by the error after a function of the values; None where that makes no
            difference.
    """

    name: CalibratorName
    choose: Choose
    for_function: Callable[[TensorProfile, Schema, QuantType, UnaryFunction], tuple[float, float]] | None = (
        None
    )


def calibrate(
    profile: TensorProfile,
    calibrator: str,
    schema: Schema,
    qtype: QuantType,
    curve: UnaryFunction | None = None,
) -> Range:
    """Return the range that the quantized values of a tensor should cover.

    It contains 0 and lies within [min(minimum, 0), max(maximum, 0)]. A tensor that held nothing, or one
    value only, has nothing to choose: its range is that value, extended to 0.

    Args:
        profile: what the tensor held.
        calibrator: name, with the parameter after a colon where it has one: "percentile:99.9".
        schema, qtype: what the range is for.
        curve: the following activation function, if there is one: `mse` takes the error after it.

    Raises:
        ConfigError: no such calibrator, or a parameter that is not allowed.
        ProfileError: the histogram is too coarse for it.
    """
    chosen, parameter = parse_calibrator(calibrator)
    low, high = (profile.minimum, profile.maximum) if profile.count else (0.0, 0.0)
    floor, ceiling = min(low, 0.0), max(high, 0.0)
    if low < high and profile.histogram.total > 1:
        if curve is not None and chosen.for_function is not None and qtype.bits <= 8:
            low, high = chosen.for_function(profile, schema, qtype, curve)
        else:
            low, high = chosen.choose(profile, schema, qtype, parameter)
    return Range(min(max(low, floor), 0.0), max(min(high, ceiling), 0.0))


def parse_calibrator(text: str) -> tuple[Calibrator, float]:
    """Return the calibrator that `text` names, and its parameter.

    Args:
        text: "minmax", "kl", "percentile", "percentile:99.9", ...

    Raises:
        ConfigError: with the nearest name, or the values that are allowed.
    """
    try:
        name, parameter = split_calibrator(text)
    except MalformedError as problem:
        raise ConfigError(f"{problem}; {problem.advice}") from None
    return CALIBRATORS[name], parameter


def _minmax(
    profile: TensorProfile, schema: Schema, qtype: QuantType, parameter: float
) -> tuple[float, float]:
    return profile.minimum, profile.maximum


def _percentile(
    profile: TensorProfile, schema: Schema, qtype: QuantType, percent: float
) -> tuple[float, float]:
    """Cut so much from each tail that `percent` of the elements lie on the inner side of its end.

    A tail that ends at 0, as after ReLU, is none, and is left alone.
    """
    edges = np.clip(profile.histogram.edges(), profile.minimum, profile.maximum)
    below = np.append(0.0, np.cumsum(profile.histogram.counts.astype(np.float64)))
    tail = (1.0 - percent / 100.0) * below[-1]
    low = high = 0.0
    if profile.minimum < 0.0:
        i = min(int(np.searchsorted(below, tail, side="right")) - 1, edges.size - 2)
        low = _between(edges, below, i, tail)
    if profile.maximum > 0.0:
        i = max(int(np.searchsorted(below, below[-1] - tail, side="left")) - 1, 0)
        high = _between(edges, below, i, below[-1] - tail)
    return low, high


def _between(edges: Floats, below: Floats, i: int, count: float) -> float:
    """Return the place within bin i that has `count` elements below it."""
    inside = below[i + 1] - below[i]
    share = (count - below[i]) / inside if inside > 0.0 else 0.0
    return float(edges[i] + min(max(share, 0.0), 1.0) * (edges[i + 1] - edges[i]))


def _kl(profile: TensorProfile, schema: Schema, qtype: QuantType, parameter: float) -> tuple[float, float]:
    """Cut to the range of least Kullback-Leibler divergence (Glow SPEC E).

    Glow compares with 255 levels whatever the type has; here they are the levels of the type. With more
    levels than bins, as in 16 bits, nothing can be gained by cutting.
    """
    levels = (1 << qtype.bits) - 1
    if levels > BINS:
        return profile.minimum, profile.maximum
    bins = profile.histogram.resampled(profile.minimum, profile.maximum)
    if bins.counts.size < levels:
        raise ProfileError(
            f"calibrator kl: the histogram has {bins.counts.size} bins and needs {levels}; profile again "
            f"with more bins (Glow: -num-histogram-bins={BINS}), or choose another calibrator"
        )
    source = (float(np.float32(profile.minimum)), float(np.float32(profile.maximum)))
    wide = widened_range(*source, schema, qtype)
    span = wide[1] - wide[0]
    if source[0] == source[1] or not FLOAT32_TINY <= span / bins.counts.size <= span <= FLOAT32_MAX:
        return profile.minimum, profile.maximum  # a range that float32 cannot divide into bins
    counts = rescale_histogram(bins.counts.astype(np.float32), source, wide)
    symmetric = schema.symmetric and not (schema.unsigned_when_positive and wide[0] == 0.0)
    return optimize_kl(counts, *wide, levels, symmetric)


Judge = Callable[[Floats, Floats, int, int], Floats]
"""Returns the error of many scales and zero points, given the smallest and the largest code."""


def _mse(profile: TensorProfile, schema: Schema, qtype: QuantType, parameter: float) -> tuple[float, float]:
    """Cut to the range of least expected squared error."""
    return _least(profile, schema, qtype, partial(total_noise, density(profile)))


def _mse_after(
    profile: TensorProfile, schema: Schema, qtype: QuantType, curve: UnaryFunction
) -> tuple[float, float]:
    """Cut to the range of least expected squared error after a function."""
    return _least(profile, schema, qtype, partial(noise_after, density(profile), curve=curve))


COARSE, FINE = np.geomspace(1.0, 1.0 / 256.0, 40), np.geomspace(1.06, 1.0 / 1.06, 12)
"""Factors by which the ends of a range are cut: of the whole, and of the best of these."""


def _least(profile: TensorProfile, schema: Schema, qtype: QuantType, judge: Judge) -> tuple[float, float]:
    """Return the range of least error.

    Both ends are cut by the same factor, then each by itself, then each in small steps. The range so far is
    always among the candidates, so no step makes it worse.
    """
    floor, ceiling = min(profile.minimum, 0.0), max(profile.maximum, 0.0)

    def best(low: Floats, high: Floats) -> tuple[float, float]:
        scales, zero_points, chosen = choose_arrays(low, high, schema, qtype)
        i = int(np.argmin(judge(scales, zero_points.astype(np.float64), chosen.low, chosen.high)))
        return float(low[i]), float(high[i])

    low, high = best(floor * COARSE, ceiling * COARSE)
    for around_low, around_high in ((floor * COARSE, ceiling * COARSE), (low * FINE, high * FINE)):
        if ceiling > 0.0:
            highs = np.append(high, np.minimum(around_high, ceiling))
            low, high = best(np.full(highs.size, low), highs)
        if floor < 0.0:
            lows = np.append(low, np.maximum(around_low, floor))
            low, high = best(lows, np.full(lows.size, high))
    return widened_range(low, high, schema, qtype)  # what quantized values reach anyway is not cut


CALIBRATORS: dict[CalibratorName, Calibrator] = {
    name: Calibrator(name, globals()[f"_{name}"], globals().get(f"_{name}_after"))
    for name in CALIBRATOR_NAMES
}
"""The calibrators by the names that options and files use: of each the function `_NAME` of this module, and
`_NAME_after` where there is one."""
