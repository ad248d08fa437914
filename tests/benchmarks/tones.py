"""Made sounds whose pitch is known: notes of several voices, and one gliding voice."""

from __future__ import annotations

import numpy as np

Rng = np.random.Generator

# Strength of the first partials of a few instruments; no profile is in two splits.
PROFILES = {
    "calibration": ((1, 0.5, 0.3, 0.2, 0.1), (1, 0.1, 0.4, 0.05, 0.2), (0.6, 1, 0.5, 0.3, 0.2, 0.1)),
    "tuning": ((1, 0.8, 0.5, 0.4, 0.3, 0.2, 0.1), (1, 0.05, 0.3, 0.02, 0.1)),
    "evaluation": (
        (1, 0.6, 0.2, 0.3, 0.1, 0.05),
        (0.8, 1, 0.6, 0.5, 0.3, 0.2, 0.15, 0.1),
        (1, 0.2, 0.1, 0.05),
        (1, 0.3, 0.5, 0.1, 0.25, 0.05, 0.1),
    ),
}


def partials(phase: np.ndarray, profile: tuple[float, ...], top: np.ndarray | float) -> np.ndarray:
    """Return a tone of a running phase (in turns); partials above `top` times the first are left out."""
    waves = [s * np.sin(2 * np.pi * k * phase) * (k < top) for k, s in enumerate(profile, start=1)]
    return np.asarray(sum(waves))


def envelope(rng: Rng, length: int, rate: int) -> np.ndarray:
    """Return a loudness curve: a quick start, a decay, a quick end."""
    times = np.arange(length) / rate
    start, end = rng.uniform(0.003, 0.02), rng.uniform(0.01, 0.03)
    decay = np.exp(-times * rng.uniform(0.3, 4))
    return np.asarray(decay * np.minimum(times / start, 1) * np.minimum((times[-1] - times) / end, 1))


def noise(rng: Rng, length: int, rate: int) -> np.ndarray:
    """Return noise of a random colour, with a standard deviation of 1."""
    spectrum = np.fft.rfft(rng.normal(0, 1, length))
    hertz = np.fft.rfftfreq(length, 1 / rate)
    spectrum /= np.maximum(hertz, 40) ** rng.uniform(0, 0.8)
    coloured = np.fft.irfft(spectrum, length)
    return np.asarray(coloured / coloured.std())
