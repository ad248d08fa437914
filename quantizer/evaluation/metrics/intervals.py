"""95 % intervals of what is lost, on more data of the same kind, from scores of the same rows or samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .truth import Floats

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""

RESAMPLES, SEED = 400, 0
"""Of the bootstrap: the same draws for every metric, so that a figure is the same again."""


def paired_interval(only_float: int, only_quantized: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a difference of two proportions measured on the same rows, in [-1, 1].

    Bonett and Price (2012): the normal interval after one row was added to each of the two counts that
    differ. It keeps a width when the models agree on every one of a few rows.
    """
    n = rows + 2
    a, b = (only_float + 1) / n, (only_quantized + 1) / n
    half = Z95 * math.sqrt(max(0.0, a + b - (a - b) ** 2) / n)
    return max(-1.0, a - b - half), min(1.0, a - b + half)


def rows_to_show(only_float: int, only_quantized: int, rows: int, limit: float) -> int | None:
    """Return about how many rows it takes to show that a difference of two proportions is below a limit.

    That is the least number for which the upper end of `paired_interval` is at most the limit when rows
    differ as often as these did. With d the difference and s the sum of the two rates, D = limit - d,
    v = s - d**2 and m = rows + 2, the end is about d + Z95 * sqrt((v + 2 / m) / m), so that m is the positive
    root of D**2 m**2 - Z95**2 v m - 2 Z95**2 = 0.

    Args:
        only_float, only_quantized: rows that one of the models alone has right.
        rows: all of them.
        limit: largest difference, in [-1, 1].

    Returns:
        None where the difference itself is not below the limit: no number of rows would do.
    """
    a, b = only_float / rows, only_quantized / rows
    room, variance = limit - (a - b), a + b - (a - b) ** 2
    if room <= 0.0:
        return None
    z = Z95 * Z95 * variance
    return math.ceil((z + math.sqrt(z * z + 8.0 * (Z95 * room) ** 2)) / (2.0 * room * room)) - 2


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
    chance, or lies below. It needs no estimate of the variance, so that it holds on few rows too.

    Args:
        right, rows: rows that are right, and all.
        chance: share that guessing has right, such as 1 / classes; 0 for unknown: then nothing must be right.
    """
    return right / rows - chance <= Z95 * math.sqrt(chance * (1.0 - chance) / rows)


def drop_interval(drops: Floats, limit: float = 100.0) -> tuple[float, float]:
    """Return the 95 % interval of the mean of the drops of rows or samples, in their unit.

    Drops of right and wrong rows (0 and the limit): Bonett and Price (2012), as in `paired_interval`: the
    normal interval after a drop of the limit and a gain of it were added. It does not shrink to zero when
    a few rows show no difference. Other drops: Student's interval.

    Args:
        drops: float64 of shape [units], each of at most `limit` in size.
        limit: the largest drop that there can be; inf for none.
    """
    n = drops.size
    if math.isfinite(limit) and np.isin(np.abs(drops), (0.0, limit)).all():
        d = np.concatenate([drops, [limit, -limit]])
        mean, half = float(d.mean()), Z95 * math.sqrt(float(d.var()) / d.size)
    else:
        mean, half = float(drops.mean()), 2.0 * limit
        if n > 1:
            half = student95(n - 1) * math.sqrt(float(drops.var(ddof=1)) / n)
    return max(-limit, mean - half), min(limit, mean + half)


def bootstrap_interval(drop: Callable[[Floats], Floats], units: int) -> tuple[float, float]:
    """Return the 95 % interval of a drop that is no mean, by drawing the units anew.

    The expanded percentile interval of Hesterberg (2015): the quantiles are those that make the interval of a
    mean Student's, which few units need.

    Args:
        drop: weights of the units, float64 of shape [repeats, units] -> drop in each repeat, [repeats].
        units: how many; one unit alone says nothing of others.
    """
    if units < 2:
        return -math.inf, math.inf
    rng = np.random.default_rng(SEED)
    weights = rng.multinomial(units, np.full(units, 1.0 / units), RESAMPLES).astype(np.float64)
    drops = drop(weights)
    if not np.isfinite(drops).all():
        return (float(drops.min()), math.inf) if not np.isnan(drops).any() else (-math.inf, math.inf)
    z = student95(units - 1) * math.sqrt(units / (units - 1))
    tail = 0.5 * math.erfc(z / math.sqrt(2.0))
    low, high = np.quantile(drops, [tail, 1.0 - tail])
    return float(low), float(high)


def student95(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t; 1 % off at 3 degrees of freedom, less above.

    Abramowitz and Stegun 26.7.5, three terms; it is too inaccurate for 1 and 2 degrees, which are tabulated.
    """
    if freedom <= 2:
        return (12.7062, 4.3027)[freedom - 1]
    z, v = Z95, float(freedom)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / v + second / v**2 + third / v**3
