"""Calibrators: which range of a tensor its quantized values should cover, from its profile.

A calibrator is a pure function from a profile to a range. Adding one is adding a function and its entry of
`CALIBRATORS`. `--help` lists the names, so numpy is imported in the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from ...profiles.base.errors import MalformedError, PlanError, ProfileError, not_one_of

if TYPE_CHECKING:
    from ...profiles.records.profile import TensorProfile
    from .affine import Floats, QuantType, UnaryFunction
    from .schemas import Schema


@dataclass(frozen=True)
class Range:
    """The finite float values from `low` to `high`; PlanError if they are not."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not -math.inf < self.low <= self.high < math.inf:
            raise PlanError(f"range [{self.low}, {self.high}]: not a range; give finite numbers, low <= high")


@dataclass(frozen=True)
class Parameter:
    """A number that may follow the name of a calibrator, after a colon."""

    default: float
    least: float
    most: float
    usual: tuple[float, ...] = ()  # those that editors offer


@dataclass(frozen=True)
class Calibrator:
    """A way to choose a range."""

    summary: str  # what `--help` says of it beside its name
    choose: Callable[[TensorProfile, Schema, QuantType, float, UnaryFunction | None], tuple[float, float]]
    parameter: Parameter | None = None
    uses_function: bool = False  # whether the following activation function makes a difference
    is_slow: bool = False  # not tried in place of others by `tune` and reports


def calibrate(
    profile: TensorProfile,
    calibrator: str,
    schema: Schema,
    qtype: QuantType,
    curve: UnaryFunction | None = None,
) -> Range:
    """Return the range that the quantized values of a tensor should cover, with 0, within that of its values.

    A type of floats has nothing to choose: its steps are the finer the smaller values are. `mse` uses the
    error after the following activation function, `curve`. Raises MalformedError for an unknown calibrator or
    an invalid parameter, and ProfileError if the histogram is too coarse.
    """
    chosen, parameter = parse_calibrator(calibrator)
    low, high = (profile.minimum, profile.maximum) if profile.count else (0.0, 0.0)
    floor, ceiling = min(low, 0.0), max(high, 0.0)
    if low < high and profile.histogram.total > 1 and not qtype.is_float:
        low, high = chosen.choose(profile, schema, qtype, parameter, curve if qtype.bits <= 8 else None)
    return Range(min(max(low, floor), 0.0), max(min(high, ceiling), 0.0))


def parse_calibrator(text: str) -> tuple[Calibrator, float]:
    """Return the calibrator in a text such as "percentile:99.9", and its parameter, NaN if it takes none.

    Raises MalformedError with the nearest name, or the valid values.
    """
    name, colon, number = text.partition(":")
    calibrator = CALIBRATORS.get(name)
    if calibrator is None:
        raise not_one_of("calibrator", text, CALIBRATORS)
    parameter = calibrator.parameter
    if parameter is None:
        if colon:
            raise MalformedError(f"calibrator '{text}': {name} has no parameter", f"write '{name}'")
        return calibrator, math.nan
    if not colon:
        return calibrator, parameter.default
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not parameter.least <= value <= parameter.most:
        raise MalformedError(
            f"calibrator '{text}': '{number}' is not a number from {parameter.least:g} to {parameter.most:g}",
            f"write for example '{name}:{parameter.default:g}'",
        )
    return calibrator, value


def _minmax(
    profile: TensorProfile, schema: Schema, qtype: QuantType, parameter: float, curve: UnaryFunction | None
) -> tuple[float, float]:
    return profile.minimum, profile.maximum


def _percentile(
    profile: TensorProfile, schema: Schema, qtype: QuantType, percent: float, curve: UnaryFunction | None
) -> tuple[float, float]:
    """Cut so much from each tail that `percent` of the elements lie on the inner side of its end.

    A tail that ends at 0, as after ReLU, is not cut.
    """
    import numpy as np

    edges = np.clip(profile.histogram.edges(), profile.minimum, profile.maximum)
    below = np.append(0.0, np.cumsum(profile.histogram.counts.astype(np.float64)))
    tail = (1.0 - percent / 100.0) * below[-1]

    def between(i: int, count: float) -> float:
        """Return the place within bin i that has `count` elements below it."""
        inside = below[i + 1] - below[i]
        share = (count - below[i]) / inside if inside > 0.0 else 0.0
        return float(edges[i] + min(max(share, 0.0), 1.0) * (edges[i + 1] - edges[i]))

    low = high = 0.0
    if profile.minimum < 0.0:
        low = between(min(int(np.searchsorted(below, tail, side="right")) - 1, edges.size - 2), tail)
    if profile.maximum > 0.0:
        count = below[-1] - tail
        high = between(max(int(np.searchsorted(below, count, side="left")) - 1, 0), count)
    return low, high


@cache
def _cuts() -> tuple[Floats, Floats]:
    """Return the factors that cut the ends of a range: of the whole, and of the best of these."""
    import numpy as np

    return np.geomspace(1.0, 1.0 / 256.0, 40), np.geomspace(1.06, 1.0 / 1.06, 12)


def _mse(
    profile: TensorProfile, schema: Schema, qtype: QuantType, parameter: float, curve: UnaryFunction | None
) -> tuple[float, float]:
    """Cut to the range of least expected squared error, after the following function if there is one.

    Both ends are cut by the same factor, then each by itself, then each in small steps. The range so far is
    always among the candidates, so no step makes it worse.
    """
    import numpy as np

    from .density import density
    from .quantization_noise import noise_after, total_noise
    from .schemas import choose_arrays, widened_range

    values = density(profile)
    noise = partial(total_noise, values) if curve is None else partial(noise_after, values, curve=curve)
    floor, ceiling = min(profile.minimum, 0.0), max(profile.maximum, 0.0)

    def best(low: Floats, high: Floats) -> tuple[float, float]:
        scales, zero_points, chosen = choose_arrays(low, high, schema, qtype)
        i = int(np.argmin(noise(scales, zero_points.astype(np.float64), chosen.low, chosen.high)))
        return float(low[i]), float(high[i])

    coarse, fine = _cuts()
    low, high = best(floor * coarse, ceiling * coarse)
    around = ((floor * coarse, ceiling * coarse), (low * fine, high * fine))
    for around_low, around_high in around if floor < 0.0 < ceiling else around[1:]:
        if ceiling > 0.0:
            highs = np.append(high, np.minimum(around_high, ceiling))
            low, high = best(np.full(highs.size, low), highs)
        if floor < 0.0:
            lows = np.append(low, np.maximum(around_low, floor))
            low, high = best(lows, np.full(lows.size, high))
    return widened_range(low, high, schema, qtype)  # what quantized values reach anyway is not cut


def _kl(
    profile: TensorProfile, schema: Schema, qtype: QuantType, parameter: float, curve: UnaryFunction | None
) -> tuple[float, float]:
    """Cut to the range of least Kullback-Leibler divergence (Glow SPEC E).

    Glow compares with 255 levels for any type; here they are the levels of the type. With more levels than
    bins, as in 16 bits, nothing is gained by cutting; nor does a single bin show the spread of the values.
    """
    import numpy as np

    from ...profiles.records.histogram import BINS
    from .kl_divergence import optimize_kl, rescale_histogram
    from .schemas import FLOAT32_MAX, FLOAT32_TINY, widened_range

    levels = (1 << qtype.bits) - 1
    if levels > BINS or profile.histogram.counts.size == 1:
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


CALIBRATORS: Mapping[str, Calibrator] = {
    "minmax": Calibrator("", _minmax),
    "percentile": Calibrator(
        "or percentile:99.9",
        # The percentage of the elements on the inner side of each end.
        _percentile,
        Parameter(99.99, least=50.0, most=100.0, usual=(99.0, 99.9, 99.95, 99.99, 99.999)),
    ),
    "kl": Calibrator("entropy: least KL divergence", _kl, is_slow=True),
    "mse": Calibrator("least expected squared error", _mse, uses_function=True),
}
"""The calibrators by the names that options and files use."""
