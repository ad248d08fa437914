"""A recurrent noise mask, trained here: powers of a noisy spectrum -> where speech is above the noise.

The powers go into the LSTM as they are, without a logarithm: they reach over eight decades, from cell to cell
and from clip to clip, and the bins of the highest sounds have a fiftieth of the power of the lowest.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import speech
import tones
from record import Counts, Feed, Outputs, Scores, by_name, per_feed
from trained import trained_model

SIZE, HOP, SECONDS, BINS = 512, 256, 2.0, 257
HEARD = 10 ** (-45 / 20)  # of the strongest cell: weaker ones do not count


@cache
def _said(part: str, most: int) -> tuple[np.ndarray, ...]:
    """Return sentences of a split, spoken by its voices in turn, each with a level of 0.06."""
    voices, pool = speech.VOICES[part], speech.sentences(part, 100)[:most]
    lines = [(pool[k], voices[k % len(voices)], 140 + 7 * (k % 9)) for k in range(len(pool))]
    return tuple(spoken.sound / spoken.sound.std() * 0.06 for spoken in speech.said(lines))


def _noise(rng: np.random.Generator, length: int, profiles: Sequence[tuple[float, ...]]) -> np.ndarray:
    """Return noise of a random colour whose level changes slowly, at times with a few notes."""
    steps = rng.uniform(0.3, 1, length // 4000 + 2)
    made = tones.noise(rng, length, speech.RATE) * np.interp(
        np.arange(length) / 4000, np.arange(len(steps)), steps
    )
    if rng.random() < 0.4:
        for _ in range(int(rng.integers(1, 4))):
            size, hertz = length // int(rng.integers(2, 6)), rng.uniform(100, 900)
            tone = tones.partials(
                hertz * np.arange(size) / speech.RATE, profiles[rng.integers(len(profiles))], 4000 / hertz
            )
            at = int(rng.integers(length - size))
            made[at : at + size] += rng.uniform(0.5, 2) * tone * tones.envelope(rng, size, speech.RATE)
    return made / made.std()


def clips(
    rng: np.random.Generator, part: str, count: int, most: int = 200
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield powers of speech with noise, float32 (frames, BINS); where speech is above; which cells count."""
    said, length = _said(part, most), int(SECONDS * speech.RATE)
    profiles = tones.PROFILES["calibration" if part == "training" else part]
    for _ in range(count):
        sound = np.zeros(length)
        voice = said[rng.integers(len(said))]
        start = int(rng.integers(-length // 4, length // 2))
        voice = voice[max(0, -start) :][: length - max(0, start)]
        sound[max(0, start) : max(0, start) + len(voice)] = voice
        loudness = 10 ** (rng.uniform(-12, 6) / 20)
        ratio = 10 ** (-rng.uniform(-3, 15) / 20)
        noise = loudness * 0.06 * ratio * _noise(rng, length, profiles)
        clean, other = (speech.spectra(wave, SIZE, HOP) for wave in (loudness * sound, noise))
        mixed = speech.spectra(loudness * sound + noise, SIZE, HOP)
        yield (mixed**2).astype(np.float32), clean > other, np.maximum(clean, other) > HEARD * mixed.max()


def _packed(cells: np.ndarray) -> str:
    return base64.b64encode(np.packbits(cells).tobytes()).decode()


def _unpacked(text: str, shape: tuple[int, ...]) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))
    return bits[: int(np.prod(shape))].reshape(shape).astype(bool)


def _pairs(seed: int, part: str, count: int) -> Iterator[tuple[Feed, list[str]]]:
    rng = np.random.default_rng(seed)
    for powers, above, counted in clips(rng, part, count):
        yield {"powers": powers[None]}, [_packed(above), _packed(counted)]


@per_feed
def count(values: Outputs, cells: Sequence[str]) -> Counts:
    """Cells of each clip told right at a mask of 0.5: speech, of how many, noise, of how many."""
    said = values[0][0] >= 0.5
    truth, heard = (_unpacked(text, said.shape) for text in cells)
    voice, noise = truth & heard, ~truth & heard
    return (said & voice).sum(), voice.sum(), (~said & noise).sum(), noise.sum()


def score(totals: np.ndarray) -> Scores:
    """Mean of the shares of speech cells and of noise cells told right."""
    voice, noise = totals[0] / max(totals[1], 1), totals[2] / max(totals[3], 1)
    return Scores(float(voice + noise) / 2, {"speech": voice, "noise": noise})


MODEL = trained_model(
    name="noise-mask",
    data="espeak-ng's voices",
    kind="LSTM on spectra of eight decades",
    task="160 clips of made speech in noise: balanced share of a spectrum's cells told right",
    samples=_pairs,
    splits=by_name(411, 32, 80, 160),
    count=count,
    score=score,
    helpers=("speech", "tones", "text"),
)
