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
"""Of the bootstrap: the same draws for every metric, so that a figure is the same again."""

MIN_DIFFERING = 5
"""Units that have to differ before their spread says something of other units (`is_few`)."""

ROUNDING = 1e-9
"""Differences below this share of the largest drop are those of float64 sums over a million values."""


def paired_interval(only_float: int, only_quantized: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a difference of two proportions measured on the same rows, in [-1, 1].

    Bonett and Price (2012): the normal interval after one row was added to each of the two counts that
    differ. It keeps a width when the models agree on every one of a few rows.
    """
    n = rows + 2
    a, b = (only_float + 1) / n, (only_quantized + 1) / n
    half = Z95 * math.sqrt(max(0.0, a + b - (a - b) ** 2) / n)
    return max(-1.0, a - b - half), min(1.0, a - b + half)


def rows_to_show(drop: float, spread: float, added: float, limit: float, beyond: float = 0.0) -> int | None:
    """Return about how many rows show that a mean drop is below a limit, or None if no number does.

    That is the least number for which the upper end of the interval is at most the limit when rows differ as
    often and as much as these did. With D = limit - drop, v = spread**2, a = added and m the rows with those
    added, the end is about drop + Z95 * sqrt((v + 2 a**2 / m) / m), so that m is the positive root of
    D**2 m**2 - Z95**2 v m - 2 (Z95 a)**2 = 0. If the losses are skewed, it is drop + Z95 * spread / sqrt(m)
    + beyond / m. Drop and limit have one unit; spread and added are as in `Interval`; `beyond` is the
    distance of the end from that of a normal interval, times the rows. The result is None if the drop is not
    below the limit, or nothing is known.
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


def mcnemar_p(only_float: int, only_quantized: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: a row that differs is a fair coin toss."""
    n, few = only_float + only_quantized, min(only_float, only_quantized)
    tail = math.fsum(
        math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2.0))
        for k in range(few + 1)
    )
    return min(1.0, 2.0 * tail)


def is_near_chance(right: float, rows: int, chance: float) -> bool:
    """Whether rows that are right are not more than guessing has right, at 95 %.

    The score test of a proportion: whether Wilson's interval (1927) of the share that is right contains the
    chance, or is below it. It needs no estimate of the variance, so it holds on few rows too. `chance` is a
    share, such as 1 / classes; 0 if unknown: then nothing must be right.
    """
    return right / rows - chance <= Z95 * math.sqrt(chance * (1.0 - chance) / rows)


@dataclass(frozen=True)
class Interval:
    """The 95 % interval of a drop on more data of the same kind.

    Attributes:
        low, high: its ends; infinite where nothing is known.
        spread: standard deviation of what one unit loses.
        added: what each of the two units that were added to the measured ones gains or loses; 0 where the
            measured ones differed enough to tell their spread.
    """

    low: float
    high: float
    spread: float
    added: float = 0.0


UNKNOWN = Interval(-math.inf, math.inf, math.inf)
"""Of a drop that nothing was learned about."""


def drop_interval(drops: Floats, largest_drop: float = 100.0) -> Interval:
    """Return the 95 % interval of the mean loss of rows or samples, in their unit (`_skewed`).

    If rows are right or wrong (drops of 0 and of `largest_drop`), or too few of them differ (`is_few`), the
    spread of a few rows predicts nothing of the rows to come. It is then the interval with two rows more
    (`with_two_added`), which always has a width. `drops` is float64 [units]; `largest_drop` is the largest
    possible one, inf if unknown.
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

    If few units lose much, the mean is often low together with its error, and Student's upper end is too low.
    Hall (1992) takes a cubic of the ratio of both, (mean - truth) / error, that is normal up to the order 1 /
    n, and inverts it. Each end is the outer one of his and Student's. `degrees` are the error's degrees of
    freedom; `skewness` is that of the units over the root of their number.
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
    """Whether so few of the units differ between two models that their spread is not known.

    Fewer than five events are too few for a normal interval, the usual rule for proportions: one line of ten
    with another word says how often a line changes to a factor of some ten. Fewer units than five have to
    differ all, as measured figures do.
    """
    return differing < min(units, MIN_DIFFERING)


def with_two_added(mean: float, spread: float, units: int, largest_drop: float) -> Interval:
    """Return the normal interval of a mean with two units more: one has the largest drop, one gains as much.

    For rows that are right or wrong that is Bonett and Price (2012), as `paired_interval`. If nothing differs
    in n units, it ends at about 2.8 / n of the largest drop; the rule of three, for one side, gives 3 / n.
    `spread` is a standard deviation; if `largest_drop` is inf, nothing is known.
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

    The expanded percentile interval of Hesterberg (2015): the quantiles are those that make the interval of a
    mean Student's, which few units need. No draw is beyond the worst unit, so for very few units it is still
    too narrow: it is widened to that of the draws' standard error and skewness (`_skewed`). If too few units
    differ (`is_few`) or the draws do not, it is that of `with_two_added`.

    Args:
        drop: weights of the units, float64 of shape [repeats, units] -> drop in each repeat, [repeats].
        units: how many; one unit proves nothing about others.
        largest_drop: the drop of a model that is right nowhere; inf if unknown.
        differing: units that differ between the two models; None if unknown.
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
    """Return the two-sided 95 % quantile of Student's t; 1 % off at 3 degrees of degrees, less above.

    Abramowitz and Stegun 26.7.5, three terms; it is too inaccurate for 1 and 2 degrees, which are tabulated.
    """
    if degrees <= 2:
        return (12.7062, 4.3027)[degrees - 1]
    z, v = Z95, float(degrees)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / v + second / v**2 + third / v**3
