"""95 % intervals of the loss on more data of the same kind, from scores of the same rows or samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .metric import Floats

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""

RESAMPLES, SEED = 400, 0
"""Resamples and seed of the bootstrap: the same draws for every metric give reproducible figures."""

MIN_DIFFERING = 5
"""Units that have to differ before their spread says something of other units (`is_few`)."""

ROUNDING = 1e-9
"""Differences below this share of the largest drop are those of float64 sums over a million values."""


def rows_to_show(drop: float, spread: float, added: float, limit: float, beyond: float = 0.0) -> int | None:
    """Return about how many rows show that a mean drop is below a limit, or None if no number does.

    With D = limit - drop, v = spread**2, a = added and m the rows with those added, the interval ends at
    about drop + Z95 * sqrt((v + 2 a**2 / m) / m): D**2 m**2 - Z95**2 v m - 2 (Z95 a)**2 = 0. If the losses
    are skewed, it ends at drop + Z95 * spread / sqrt(m) + beyond / m.
    """
    room = limit - drop
    if not room > 0.0 or not math.isfinite(spread + added):
        return None
    z, a = Z95 * spread / room, Z95 * added / room
    rows = (z * z + math.hypot(z * z, math.sqrt(8.0) * a)) / 2.0
    if beyond > 0.0:
        rows = ((z + math.sqrt(z * z + 4.0 * beyond / room)) / 2.0) ** 2
    if not math.isfinite(rows):
        return None
    return max(1, math.ceil(rows) - (2 if added else 0))


def is_near_chance(right: float, rows: int, chance: float) -> bool:
    """Whether rows that are right are no more than guessing has: the score test (Wilson, 1927)."""
    return right / rows - chance <= Z95 * math.sqrt(chance * (1.0 - chance) / rows)


@dataclass(frozen=True)
class Interval:
    """The 95 % interval of a drop on more data of the same kind."""

    low: float  # infinite if nothing is known, as `high`
    high: float
    spread: float  # standard deviation of what one unit loses
    added: float = 0.0  # what each of the two added units gains or loses


UNKNOWN = Interval(-math.inf, math.inf, math.inf)
"""Interval of an unknown drop."""


def drop_interval(drops: Floats, largest_drop: float = 100.0) -> Interval:
    """Return the 95 % interval of the mean loss of units, float64 [units], in their unit (`_skewed`).

    If units are right or wrong, or too few differ (`is_few`), it is that of `with_two_added`.
    """
    n, mean, spread = drops.size, float(drops.mean()), float(drops.std())
    differing = int((np.abs(drops) > ROUNDING * np.minimum(largest_drop, 100.0)).sum())
    counted = bool(np.isin(np.abs(drops), (0.0, largest_drop)).all())
    if counted or is_few(differing, n) or np.ptp(drops) <= ROUNDING * abs(mean):
        return with_two_added(mean, spread, n, largest_drop)
    if n < 2:
        return Interval(-largest_drop, largest_drop, spread)
    low, high = _skewed(mean, spread / math.sqrt(n - 1), n - 1, _skewness_of_mean(drops))
    return Interval(max(-largest_drop, low), min(largest_drop, high), spread)


def _skewness_of_mean(values: Floats) -> float:
    """Return the skewness of the mean of values, without the bias of few."""
    n, centred = values.size, values - values.mean()
    power = float(np.mean(centred**2))
    if n < 3 or not power > 0.0:
        return 0.0
    return float(math.sqrt(n - 1) / (n - 2) * np.mean(centred**3) / power**1.5)


def _skewed(mean: float, error: float, degrees: int, skewness: float) -> tuple[float, float]:
    """Return Student's interval of a mean with a standard error, widened as far as its skewness asks for.

    Hall (1992): a cubic of (mean - truth) / error is normal up to the order 1 / n. Each end is the outer one
    of his and Student's. `skewness` is that of the units over the root of their number.
    """
    student = student95(degrees)
    low, high = mean - student * error, mean + student * error
    if abs(skewness) < ROUNDING:
        return low, high

    def ratio(quantile: float) -> float:
        cube = max(0.0, 1.0 + skewness * (quantile - skewness / 6.0))
        return 3.0 / skewness * (float(np.cbrt(cube)) - 1.0)

    return min(low, mean - error * ratio(student)), max(high, mean - error * ratio(-student))


def is_few(differing: int, units: int) -> bool:
    """Whether too few units differ to know their spread: fewer than five events, unless all do."""
    return differing < min(units, MIN_DIFFERING)


def with_two_added(mean: float, spread: float, units: int, largest_drop: float) -> Interval:
    """Return the normal interval of a mean with two units more: one has the largest drop, one gains as much.

    For rows that are right or wrong that is the interval of Bonett and Price (2012).
    """
    if not math.isfinite(largest_drop + mean + spread):
        return UNKNOWN
    n = units + 2
    centre = mean * units / n
    variance = (units * (spread**2 + mean**2) + 2.0 * largest_drop**2) / n - centre**2
    half = Z95 * math.sqrt(variance / n)
    most = max(largest_drop, abs(mean))
    return Interval(max(-most, centre - half), min(most, centre + half), spread, largest_drop)


def bootstrap_interval(
    drop: Callable[[Floats], Floats], units: int, largest_drop: float = math.inf, differing: int | None = None
) -> Interval:
    """Return the 95 % interval of a drop that is no mean, by drawing the units anew.

    The expanded percentile interval of Hesterberg (2015), widened by the draws' error and skewness
    (`_skewed`). `drop` maps weights [repeats, units] to the drop of each repeat. If too few units differ, or
    the draws do not, it is that of `with_two_added`.
    """
    if units < 2:
        return UNKNOWN
    rng = np.random.default_rng(SEED)
    weights = rng.multinomial(units, np.full(units, 1.0 / units), RESAMPLES).astype(np.float64)
    drops, whole = drop(weights), float(drop(np.ones((1, units)))[0])
    if not np.isfinite(drops).all():
        worse = not np.isnan(drops).any()
        return Interval(float(drops.min()) if worse else -math.inf, math.inf, math.inf)
    error = float(drops.std())
    is_level = np.ptp(drops) <= ROUNDING * max(abs(whole), min(largest_drop, 100.0))
    if is_level or (differing is not None and is_few(differing, units)):
        return with_two_added(whole, error * math.sqrt(units), units, largest_drop)
    student = student95(units - 1) * math.sqrt(units / (units - 1))
    tail = 0.5 * math.erfc(student / math.sqrt(2.0))
    low, high = np.quantile(drops, [tail, 1.0 - tail])
    # Every unit, or group of units, left out in turn: what each adds to the drop.
    left_out = np.arange(min(units, RESAMPLES))[:, None]
    without = drop((np.arange(units) % len(left_out) != left_out).astype(np.float64))
    skewness = _skewness_of_mean(-without) if np.isfinite(without).all() else 0.0
    outer = _skewed(whole, error * math.sqrt(units / (units - 1)), units - 1, skewness)
    # Where the drop is no mean, its skewness takes the ends no further than a draw went.
    half, least, most = student * error, float(drops.min()), float(drops.max())
    low, high = min(float(low), max(outer[0], least)), max(float(high), min(outer[1], most))
    return Interval(min(low, whole - half), max(high, whole + half), error * math.sqrt(units))


def student95(degrees: int) -> float:
    """Return the two-sided 95 % quantile of Student's t (Abramowitz and Stegun 26.7.5)."""
    if degrees <= 2:
        return (12.7062, 4.3027)[degrees - 1]
    z, v = Z95, float(degrees)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / v + second / v**2 + third / v**3
