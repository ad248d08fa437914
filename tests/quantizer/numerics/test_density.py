"""Densities of channels: the fit is its formula, and keeps the moments and the histogram."""

from __future__ import annotations

import numpy as np
import pytest
from qprof_onnx.quantizer.numerics.density import (
    MOST_STEP,
    MOST_TILT,
    ROUNDS,
    STEPS,
    Density,
    max_entropy_mass,
    mean_square_of_largest,
)


def reference_fit(
    base: np.ndarray, means: np.ndarray, squares: np.ndarray, mean: np.ndarray, power: np.ndarray
) -> np.ndarray:
    """Return what `max_entropy_mass` computes, channel by channel, straight from its formulas."""
    channels, bins = base.shape
    unit = np.sqrt(np.where(base > 0.0, squares, 0.0).max(1))
    means, squares = means / unit[:, None], squares / unit[:, None] ** 2
    mean, power = mean / unit, power / unit**2
    histogram = base.max(0) / base.max(0).sum()
    factors, tilts = np.ones(bins), np.zeros((channels, 2))

    def mass(c: int) -> np.ndarray:
        exponent = tilts[c, 0] * means[c] + tilts[c, 1] * squares[c]
        row = base[c] * factors * np.exp(exponent - exponent[base[c] > 0.0].max())
        return np.asarray(row / row.sum())

    def newton(c: int) -> None:
        values, p = np.stack([means[c], squares[c]]), mass(c)
        found = values @ p
        covariance = (values * p) @ values.T - np.outer(found, found)
        ridge = 1e-9 + 1e-6 * np.trace(covariance)
        step = np.linalg.solve(covariance + ridge * np.eye(2), np.array([mean[c], power[c]]) - found)
        step *= min(1.0, MOST_STEP / max(np.abs(step).max(), 1e-300))
        tilts[c] = np.clip(tilts[c] + step, -MOST_TILT, MOST_TILT)

    for turn in range(ROUNDS + 1):
        for _ in range(STEPS):
            for c in range(channels):
                newton(c)
        if turn < ROUNDS:
            columns = np.mean([mass(c) for c in range(channels)], axis=0)
            factors = factors * np.divide(histogram, columns, out=np.ones(bins), where=columns > 0.0)
    return np.stack([mass(c) for c in range(channels)])


def drawn(channels: int = 5, bins: int = 40) -> tuple[np.ndarray, ...]:
    """Return base, means and squares of bins over -1 to 1, and moments that some density has."""
    rng = np.random.default_rng(2)
    edges = np.linspace(-1.0, 1.0, bins + 1)
    low, high = edges[:-1], edges[1:]
    prior = np.exp(-3.0 * np.abs(low + high))
    widths = np.linspace(0.2, 1.0, channels)[:, None]
    base = np.where((low > -widths) & (high < widths), prior / prior.sum(), 0.0)
    means, squares = (low + high) / 2.0, (low * low + low * high + high * high) / 3.0
    wanted = base * np.exp(rng.normal(size=(channels, 1)) * means)
    wanted /= wanted.sum(1, keepdims=True)
    return base, means, squares, (wanted * means).sum(1), (wanted * squares).sum(1)


def test_the_fit_is_its_formulas() -> None:
    base, means, squares, mean, power = drawn()
    fitted = max_entropy_mass(base, means, squares, mean, power)
    expected = reference_fit(base, means, squares, mean, power)
    # Updates with sums in another order, each off in the last bits.
    np.testing.assert_allclose(fitted, expected, rtol=1e-6, atol=1e-12)


def test_a_fit_has_the_wanted_moments() -> None:
    base, means, squares, mean, power = drawn()
    fitted = max_entropy_mass(base, means, squares, mean, power)
    np.testing.assert_allclose((fitted * means).sum(1), mean, atol=1e-6)
    np.testing.assert_allclose((fitted * squares).sum(1), power, atol=1e-6)


def test_moments_that_no_tilt_meets_leave_a_density() -> None:
    base, means, squares, _, _ = drawn()
    fitted = max_entropy_mass(base, means, squares, np.full(5, 2.0), np.full(5, 4.0))
    np.testing.assert_allclose(fitted.sum(1), 1.0, rtol=1e-12)


def test_channels_that_span_decades_have_densities() -> None:
    base, means, squares, mean, power = drawn()
    sizes = 10.0 ** np.linspace(-38.0, 0.0, 5)
    base = np.where(np.abs(means) <= np.maximum(sizes[:, None], np.abs(means).min()), base.max(0), 0.0)
    with np.errstate(all="raise", under="ignore"):
        fitted = max_entropy_mass(base, means, squares, sizes * mean, sizes**2 * power)
    np.testing.assert_allclose(fitted.sum(1), 1.0, rtol=1e-12)


def test_the_mean_square_of_the_largest_is_that_of_drawn_values() -> None:
    edges = np.linspace(-2.0, 3.0, 101)
    mass = np.exp(-np.abs(edges[:-1]))
    values = Density(edges, 0.7 * mass / mass.sum(), np.array([0.0]), np.array([0.3]))
    rng = np.random.default_rng(5)
    middles = np.append((edges[:-1] + edges[1:]) / 2.0, 0.0)
    drawn = rng.choice(middles, (20000, 16), p=np.append(values.mass, 0.3))
    expected = np.square(np.abs(drawn).max(axis=1)).mean()
    assert mean_square_of_largest(values, 16) == pytest.approx(expected, rel=0.02)  # 3 deviations of the mean
