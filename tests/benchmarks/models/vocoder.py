"""A vocoder of HiFi-GAN's kind (Kong et al., 2020), trained here: a mel spectrum -> a second of speech."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache

import numpy as np
import speech
from record import Counts, Feed, Outputs, Scores, by_name, per_feed
from trained import trained_model

SIZE, HOP, BANDS, FRAMES = 512, 128, 64, 125
HEARD, STEP, WORST = (
    60.0,
    0.5,
    20.0,
)  # dB: under the strongest cell; of the labels; a distance worth 0


@cache
def filters() -> np.ndarray:
    """Return the mel filters, (BANDS, SIZE // 2 + 1), float64."""
    return speech.mel_filters(BANDS, SIZE)


def decibels(sound: np.ndarray) -> np.ndarray:
    """Return the mel spectrum of a sound in dB, from -60 on, float64 (frames, BANDS)."""
    return 10 * np.log10(np.maximum(speech.spectra(sound, SIZE, HOP) ** 2 @ filters().T, 1e-6))


def fed(spectrum: np.ndarray) -> np.ndarray:
    """Return what the model takes of a spectrum in dB: about -2 to 2, float32 (BANDS, frames)."""
    return ((spectrum + 15) / 25).T.astype(np.float32)


@cache
def sounds(part: str, most: int) -> tuple[np.ndarray, ...]:
    """Return sentences of a split, spoken by its voices in turn, about as strong as each other."""
    voices, pool = speech.VOICES[part], speech.sentences(part, 110)[:most]
    lines = [(pool[k], voices[k % len(voices)], 140 + 9 * (k % 7)) for k in range(len(pool))]
    return tuple(0.08 * spoken.sound / spoken.sound.std() for spoken in speech.said(lines))


def pieces(rng: np.random.Generator, part: str, most: int, count: int, frames: int) -> Iterator[np.ndarray]:
    """Yield pieces of speech of so many frames, float64, louder and softer."""
    pool = [sound for sound in sounds(part, most) if len(sound) > frames * HOP]
    for _ in range(count):
        sound = pool[rng.integers(len(pool))]
        start = int(rng.integers(len(sound) - frames * HOP))
        yield 10 ** (rng.uniform(-8, 3) / 20) * sound[start : start + frames * HOP]


def _pairs(seed: int, part: str, count: int) -> Iterator[tuple[Feed, str]]:
    rng = np.random.default_rng(seed)
    for piece in pieces(rng, part, 160, count, FRAMES):
        spectrum = decibels(piece)
        label = np.round((spectrum + 60) / STEP).astype(np.uint8)
        yield {"mel": fed(spectrum)[None]}, base64.b64encode(label.tobytes()).decode()


@per_feed
def count(values: Outputs, label: str) -> Counts:
    """Distances in dB of each piece's spectrum from the true one, summed up over what is heard; cells."""
    truth = np.frombuffer(base64.b64decode(label), np.uint8).reshape(FRAMES, BANDS) * STEP - 60
    heard = truth > max(truth.max() - HEARD, -60 + STEP)
    distance = np.abs(decibels(np.asarray(values[0], np.float64).ravel()) - truth)
    return np.minimum(distance, WORST)[heard].sum(), heard.sum()


def score(totals: np.ndarray) -> Scores:
    """One for no distance, nothing for WORST."""
    mean = float(totals[0] / totals[1])
    return Scores(1 - mean / WORST, {"dB": mean})


MODEL = trained_model(
    name="vocoder",
    data="espeak-ng's voices",
    kind="vocoder (HiFi-GAN), a waveform",
    task="160 seconds of made speech: distance of its mel spectrum from the true one, 20 dB as 0",
    samples=_pairs,
    splits=by_name(421, 32, 80, 160),
    count=count,
    score=score,
    helpers=("speech", "text"),
)
