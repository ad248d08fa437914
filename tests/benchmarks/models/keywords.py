"""Keyword spotting, convolutions and GRU, trained here: mel spectrum of a second of sound -> one of 22 words.

The voices are espeak-ng's variants; no voice is in two splits. A word is said at any place of the second,
through a microphone of some response, in noise. Two of the 22 stand for any other word, and for no word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import tones
from record import Feed, by_name, classified
from trained import trained_model

from models import silero

RATE, LENGTH = silero.RATE, silero.RATE
WINDOW, HOP, MELS = 480, 160, 40  # 30 and 10 ms
WORDS = (
    *("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"),
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
)
OTHERS = (
    *("bed", "bird", "cat", "dog", "happy", "house", "marvin"),
    *("sheila", "tree", "wow", "learn", "forward", "visual", "follow"),
)
CLASSES = (*WORDS, "other", "silence")
VOICES = {
    "training": "us m1 m3 m4 m6 f1 Andy Annie Denis Gene Hugo Lee Mario Michael Nguyen Reed rob Storm aunty "
    "boris grandma john linda max quincy zac paul belinda",
    "calibration": "m2 Alex klatt grandpa",
    "tuning": "m5 f4 Jacky robert edward marcelo",
    "evaluation": "m7 croak Henrique Mike RicishayMax steph victor michel travis iven ed pedro gustave "
    "miguel",
}


@cache
def _said(part: str) -> list[tuple[int, np.ndarray]]:
    """Return every word said by every voice of a split at two speeds, with its class."""
    words = [*((word, place) for place, word in enumerate(WORDS)), *((word, len(WORDS)) for word in OTHERS)]
    spoken = []
    for variant in VOICES[part].split(" "):
        voice = "en-us" if variant == "us" else f"en+{variant}"
        for word, place in words:
            for speed in (130, 190):
                sound = silero.speaker().say(word, voice, speed).sound
                loud = np.flatnonzero(np.abs(sound) > 0.01 * np.abs(sound).max())
                spoken.append((place, sound[loud[0] : loud[-1] + 1][:LENGTH]))
    return spoken


def _clip(rng: np.random.Generator, said: Sequence[tuple[int, np.ndarray]]) -> tuple[np.ndarray, int]:
    """Return a second of sound and its class."""
    place = len(CLASSES) - 1 if rng.random() < 0.05 else -1
    clean = np.zeros(LENGTH)
    if place < 0:
        while True:
            place, sound = said[rng.integers(len(said))]
            if place < len(WORDS) or rng.random() < 0.12:
                break
        start = int(rng.integers(0, LENGTH - len(sound) + 1))
        clean[start : start + len(sound)] = sound / sound.std()
    spectrum = np.fft.rfft(clean)
    hertz = np.fft.rfftfreq(LENGTH, 1 / RATE)
    colour = np.interp(hertz, np.linspace(0, RATE / 2, 9), 10 ** (rng.uniform(-12, 12, 9) / 20))
    heard = np.fft.irfft(spectrum * colour, LENGTH)
    ratio = 10 ** (-rng.uniform(-6, 16) / 20)
    sound = heard + ratio * tones.noise(rng, LENGTH, RATE)
    return sound * 10 ** (rng.uniform(-30, 0) / 20) / np.abs(sound).max(), place


@cache
def _filters() -> np.ndarray:
    """Return triangular mel filters, (MELS, bins), from 60 to 7600 Hz."""
    mel = np.linspace(2595 * np.log10(1 + 60 / 700), 2595 * np.log10(1 + 7600 / 700), MELS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.fft.rfftfreq(512, 1 / RATE)[None]
    rise = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rise, fall))


def _spectrum(sound: np.ndarray) -> np.ndarray:
    """Return the log mel spectrum, float32 (1, frames, MELS): natural logarithms of power, as they are."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames, 512)) ** 2
    return np.log(power @ _filters().T + 1e-6).astype(np.float32)[None]


def samples(rng: np.random.Generator, part: str, count: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield log mel spectra, (1, frames, MELS), and their classes."""
    said = _said(part)
    for _ in range(count):
        sound, place = _clip(rng, said)
        yield _spectrum(sound), place


def _pairs(seed: int, part: str, count: int) -> Iterator[tuple[Feed, int]]:
    return (({"mel": mel[None]}, place) for mel, place in samples(np.random.default_rng(seed), part, count))


MODEL = trained_model(
    name="keywords",
    data="espeak-ng's voices",
    kind="convolutions and GRU, keywords",
    task="500 seconds of sound, 14 synthetic voices in noise: share whose word of 22 is told right",
    samples=_pairs,
    splits=by_name(311, 64, 300, 500),
    count=classified,
    helpers=("tones", "models.silero", "speech"),
)
