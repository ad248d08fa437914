"""The score of a quantized model in a file, and how much of it is found out before it is given up."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...profiles.runtime.providers import CPU
from ..differences.outputs import ClassAxis
from ..metrics.kinds.relative import noise_share
from ..metrics.score import Score
from ..runtime.sessions import open_session
from .tuning_data import ScoringSamples, outputs_of

FIRST_SHARE, FEWEST = 3, 8
"""The first third of the samples are scored first, and at least 8."""

NOISE_SAMPLES = 8
"""Samples, from the first, on which the noise of the outputs is measured: it differs little between them."""

_ONE_METRIC = threading.Lock()
"""A metric of the user's own is called by one thread at a time."""


@dataclass(frozen=True)
class Screened:
    """The score of a model and its noise.

    Attributes:
        score: on all samples, or on the first where these leave no doubt.
        sqnr: in dB, of the worst group of channels of the worst output; None where nothing differs.
    """

    score: Score
    sqnr: float | None


def score_model(
    path: Path, samples: ScoringSamples, threads: int = 0, side_by_side: int = 1, *, provider: str = CPU
) -> Score:
    """Return the score of the quantized model in a file on some samples.

    Args:
        path: of the model.
        samples: to score it on.
        threads: inside an operator; 0 for all cores.
        side_by_side: samples that run at the same time.
        provider: full name of the execution provider.

    Raises:
        ModelError: it cannot be run.
    """
    session = open_session(str(path), "quantized model", threads, provider=provider)
    outputs = outputs_of(session, samples.samples, "quantized model", side_by_side)
    return samples.score(outputs)


def screen_model(
    path: Path,
    samples: ScoringSamples,
    axes: Mapping[str, ClassAxis],
    max_drop: float,
    side_by_side: int = 1,
    *,
    provider: str = CPU,
) -> Screened:
    """Return the score of a quantized model, and its noise.

    When the first third of the samples shows a drop whose whole 95 % interval is above `max_drop`, the others
    are not run: a plan that is to be chosen is never scored on fewer than all.

    Args:
        path: of the model; it runs on one thread, so that its sums do not depend on the cores that there are.
        samples: to score it on.
        axes: where each output has its classes.
        max_drop: percentage points.
        side_by_side: samples that run at the same time.
        provider: full name of the execution provider.

    Raises:
        ModelError: it cannot be run. DataError: it cannot be scored.
    """
    session, count = open_session(str(path), "quantized model", provider=provider), len(samples.samples)
    first = max(FEWEST, -(-count // FIRST_SHARE))
    places = range(min(first, count))
    outputs = outputs_of(session, samples.samples[: len(places)], "quantized model", side_by_side)
    few = min(NOISE_SAMPLES, count)
    noise = noise_share(samples.float_outputs[:few], outputs[:few], axes)
    part = samples.subset(places)
    with _ONE_METRIC:
        score = part.score(outputs)
    if len(places) < count and score.drop_low <= max_drop:
        outputs += outputs_of(session, samples.samples[len(places) :], "quantized model", side_by_side)
        with _ONE_METRIC:
            score = samples.score(outputs)
    return Screened(score, decibels_of(noise))


def decibels_of(noise: float) -> float | None:
    """Return the SQNR in dB, to hundredths and within 300, of noise over signal; None for no noise."""
    return round(max(-300.0, -10.0 * math.log10(min(noise, 1e300))), 2) if noise > 0.0 else None
