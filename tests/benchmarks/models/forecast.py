"""A forecaster (N-BEATS) trained here: a week of hourly values -> the next day, for 16 series at a time.

The series are made, in the manner of ForecastPFN (Dooley et al., 2023): loads, sunshine, traffic and prices
with profiles of the day and the week, weather, noise and a level of their own; none is in two splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from record import Counts, Feed, Outputs, Rng, Scores, per_feed
from scipy.signal import lfilter
from trained import trained_model

WINDOW, HORIZON, BATCH = 168, 24, 16
LENGTH = WINDOW + HORIZON


def _drift(rng: Rng, keep: float) -> np.ndarray:
    """Return an autoregressive series of order one, with a standard deviation of about 1."""
    shocks = rng.normal(0, (1 - keep**2) ** 0.5, LENGTH + 200)
    return np.asarray(lfilter([1], [1, -keep], shocks)[200:])


def _load(rng: Rng, hour: np.ndarray, weekend: np.ndarray) -> np.ndarray:
    strengths, phases = rng.uniform(0, 0.3, (2, 3)) / (1, 2, 3), rng.uniform(0, 2 * np.pi, (2, 3))
    turns = 2 * np.pi * hour[:, None] / 24 * (1, 2, 3)
    week, free = ((s * np.cos(turns + p)).sum(axis=1) for s, p in zip(strengths, phases, strict=True))
    profile = 1 + np.where(weekend, rng.uniform(0.3, 1) * free + rng.uniform(-0.3, 0), week)
    return profile * (1 + rng.uniform(0, 0.15) * _drift(rng, 0.98)) + rng.uniform(0.01, 0.06) * _drift(
        rng, 0.6
    )


def _sunshine(rng: Rng, hour: np.ndarray, weekend: np.ndarray) -> np.ndarray:
    height = np.cos(2 * np.pi * (hour - 12 - rng.uniform(-1.5, 1.5)) / 24) - rng.uniform(-0.3, 0.3)
    sky = np.clip(1 - np.abs(rng.uniform(0, 0.5) * _drift(rng, 0.97)), 0.1, 1)
    return np.maximum(height, 0) ** rng.uniform(0.8, 1.3) * sky


def _traffic(rng: Rng, hour: np.ndarray, weekend: np.ndarray) -> np.ndarray:
    def peak(at: float, width: float) -> np.ndarray:
        apart = (hour - at + 12) % 24 - 12
        return np.exp(-0.5 * (apart / width) ** 2)

    rush = rng.uniform(0.5, 1.5) * peak(rng.uniform(6, 9), 1.2) + rng.uniform(0.5, 1.5) * peak(
        rng.uniform(15, 19), 2
    )
    free = rng.uniform(0.3, 1) * peak(rng.uniform(11, 17), 4)
    mean = (0.1 + np.where(weekend, free, rush)) * 10 ** rng.uniform(1, 3) * (1 + 0.1 * _drift(rng, 0.95))
    return rng.poisson(np.maximum(mean, 0)).astype(np.float64)


def _price(rng: Rng, hour: np.ndarray, weekend: np.ndarray) -> np.ndarray:
    daily = rng.uniform(0, 0.3) * np.cos(2 * np.pi * (hour - rng.uniform(0, 24)) / 24)
    spikes = (rng.random(LENGTH) < 0.01) * rng.exponential(1.0, LENGTH)
    return 1 + daily + rng.uniform(0.1, 0.4) * _drift(rng, 0.97) + spikes


def series(rng: Rng, count: int) -> np.ndarray:
    """Return made series, (count, LENGTH), of levels between 1 and 1000."""
    rows = []
    for _ in range(count):
        hours = int(rng.integers(168)) + np.arange(LENGTH)
        family = (_load, _sunshine, _traffic, _price)[rng.integers(4)]
        row = family(rng, hours % 24, hours // 24 % 7 >= 5)
        rows.append(10 ** rng.uniform(0, 3) * row / np.abs(row).mean())
    return np.stack(rows).astype(np.float32)


def _batches(seed: int, count: int) -> Iterator[tuple[Feed, list[list[float]]]]:
    """Yield windows, and rows of what follows (over the mean of the window), this mean, the naive error."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rows = series(rng, BATCH)
        past, scale = rows[:, :WINDOW], np.abs(rows[:, :WINDOW]).mean(axis=1, keepdims=True)
        error = np.abs(rows[:, WINDOW:] - past[:, -HORIZON:]) / scale
        truth = np.concatenate([rows[:, WINDOW:] / scale, scale, error.sum(axis=1, keepdims=True)], axis=1)
        yield {"past": past}, truth.astype(np.float64).round(5).tolist()


@per_feed
def count(values: Outputs, rows: Sequence[Sequence[float]]) -> Counts:
    """Absolute errors of each batch, over the level, and those of a forecast that repeats the last day."""
    truth = np.array(rows)
    wanted, scale, naive = truth[:, :HORIZON], truth[:, HORIZON : HORIZON + 1], truth[:, -1]
    return np.abs(values[0] / scale - wanted).sum(), naive.sum()


def score(totals: np.ndarray) -> Scores:
    """One minus the error over that of repeating the last day."""
    ratio = float(totals[0] / totals[1])
    return Scores(1 - ratio, {"error over naive": ratio})


MODEL = trained_model(
    name="forecast",
    data="made series",
    kind="forecaster of time series (N-BEATS)",
    task="250 batches of 16 hourly series: 1 minus the next day's error over that of repeating the last day",
    samples=_batches,
    splits={
        "calibration": (331, 32),
        "tuning": (332, 100),
        "evaluation": (333, 250),
    },
    count=count,
    score=score,
)
