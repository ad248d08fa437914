"""A speaker embedding with its front end inside the graph, trained here: 1.5 s of sound -> a unit vector.

The graph begins with the waveform: a Fourier transform as two convolutions, powers, mel bands, a Log. Voices
are espeak-ng's variants, said at levels from whisper to full scale; no voice is in two splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import tones
from record import Feed, Outputs, Rng, by_name
from trained import trained_model

from models import keywords, silero

RATE = silero.RATE
LENGTH, GROUP = RATE * 3 // 2, 12  # of a sound; voices of a group at most, two sounds each
WORDS = (*keywords.WORDS, *keywords.OTHERS)


@cache
def _said(part: str) -> list[list[np.ndarray]]:
    """Return words that are said by each voice of a split at two speeds, without the pauses around them."""
    voices = []
    for variant in keywords.VOICES[part].split(" "):
        voice, spoken = "en-us" if variant == "us" else f"en+{variant}", []
        for place, word in enumerate(WORDS):
            sound = silero.speaker().say(word, voice, (140, 185)[place % 2]).sound
            loud = np.flatnonzero(np.abs(sound) > 0.01 * np.abs(sound).max())
            spoken.append(sound[loud[0] : loud[-1] + 1])
        voices.append(spoken)
    return voices


def _sound(rng: Rng, words: Sequence[np.ndarray]) -> np.ndarray:
    """Return words in a row, in noise, through a microphone of some response, at some level."""
    pieces: list[np.ndarray] = []
    while sum(map(len, pieces)) < LENGTH:
        word = words[rng.integers(len(words))]
        pieces += [word / word.std(), np.zeros(int(rng.uniform(0.02, 0.2) * RATE))]
    clean = np.concatenate(pieces)
    start = int(rng.integers(0, len(clean) - LENGTH + 1))
    spectrum = np.fft.rfft(clean[start : start + LENGTH])
    hertz = np.fft.rfftfreq(LENGTH, 1 / RATE)
    colour = np.interp(hertz, np.linspace(0, RATE / 2, 9), 10 ** (rng.uniform(-6, 6, 9) / 20))
    heard = np.fft.irfft(spectrum * colour, LENGTH)
    heard = heard + 10 ** (-rng.uniform(8, 40) / 20) * tones.noise(rng, LENGTH, RATE)
    return np.asarray(heard * 10 ** (rng.uniform(-35, -3) / 20) / np.abs(heard).max(), np.float32)


def samples(rng: Rng, part: str, count: int) -> Iterator[tuple[np.ndarray, list[int]]]:
    """Yield sounds, with the number of their group and that of their voice; each voice twice in a group."""
    said = _said(part)
    voices = min(GROUP, len(said))
    for index in range(count):
        group, place = divmod(index, 2 * voices)
        if place == 0:
            chosen = rng.permutation(len(said))[:voices].repeat(2)
        yield _sound(rng, said[chosen[place]]), [group, int(chosen[place])]


def _pairs(seed: int, part: str, count: int) -> Iterator[tuple[Feed, list[int]]]:
    rng = np.random.default_rng(seed)
    return (({"sound": sound[None]}, told) for sound, told in samples(rng, part, count))


def count(outputs: Iterable[Outputs], labels: Sequence[Sequence[int]]) -> np.ndarray:
    """Whether the nearest of the other sounds of the group is of the same voice."""
    vectors = np.stack([values[0][0] for values in outputs]).astype(np.float64)
    groups, voices = np.array(labels).T
    near = np.where(groups[:, None] == groups, vectors @ vectors.T, -2.0)
    np.fill_diagonal(near, -2.0)
    return np.stack([voices[near.argmax(axis=1)] == voices, np.ones(len(voices))], axis=1)


MODEL = trained_model(
    name="voices",
    data="espeak-ng's voices",
    kind="speaker embedding, log-mel front end inside",
    task="480 sounds of 12 unseen voices in noise, 24 at a time: share whose nearest is of the same voice",
    samples=_pairs,
    splits=by_name(541, 48, 240, 480),
    count=count,
    helpers=("tones", "models.silero", "speech", "models.keywords"),
)
