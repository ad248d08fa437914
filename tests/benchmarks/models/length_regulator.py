"""A text-to-speech model with durations, trained here: phonemes -> frames of a mel spectrum.

As in FastSpeech (Ren et al., 2019) and VITS (Kim et al., 2021) the duration of each phoneme is predicted, its
Ceil is summed up, and decides how many frames there are and which phoneme each of them comes from.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import numpy as np
import speech
from record import Counts, Feed, Outputs, per_feed
from trained import trained_model

VOICE, HOP, SIZE, BANDS = "en-us", 256, 1024, 40
AROUND = 2  # frames: a duration may be off by as much before what follows is wrong
FINE = 4  # spectra that are taken for each frame of HOP samples
STEP, FLOOR, NEAR = 0.5, -70.0, 6.0  # dB: of the labels, of what is heard, of a frame that is right
NAMES = (
    ". _: _ | ; n t d s z l r m k p b f v D T S Z N w j g h ? dZ tS r- t# t2 @ @2 @L @- 3 3: a aa a# A: A@ 0 "
    "O: O@ o@ E e@ eI aI aU oU OI i i: i@ I I2 I# I2# U u: U@ V aI@ aI3 0# E# e# 02 E2 n- m- l- x"
)
PHONEMES = NAMES.split(" ")
"""espeak-ng's names without the mark of stress; the first stands for all others."""


def coded(spoken: speech.Spoken) -> np.ndarray:
    """Return what the model reads of each phoneme: its place in PHONEMES, and 1 where it is stressed."""
    bare = [name.lstrip("',%=") for name in spoken.phonemes]
    places = [PHONEMES.index(name) if name in PHONEMES else 0 for name in bare]
    stressed = [name.startswith("'") for name in spoken.phonemes]
    return np.stack([places, stressed]).astype(np.int64)


def mel(sound: np.ndarray) -> np.ndarray:
    """Return the mel spectrum in dB, from FLOOR on, FINE times for each frame, (times, BANDS)."""
    power = speech.spectra(sound, SIZE, HOP // FINE) ** 2 @ speech.mel_filters(BANDS, SIZE).T
    return np.maximum(10 * np.log10(np.maximum(power, 1e-9)) - 40, FLOOR)


def utterances(
    part: str, longest: int, most: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield phonemes and stress (2, n), how long each is in frames, and the spectrum in dB.

    As Ceil makes whole frames of the durations, so the spectrum is that of the sentence with each phoneme
    drawn out or shortened to as many frames, (frames, BANDS), float64.
    """
    pool = speech.sentences(part, longest)[:most]
    for spoken in speech.said([(sentence, VOICE, 170) for sentence in pool]):
        starts = np.array(spoken.starts) * speech.RATE / HOP
        durations, fine = np.diff(starts), mel(spoken.sound)
        frames = np.ceil(durations - 0.5).astype(np.int64)
        inside = np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in frames])
        times = np.repeat(starts[:-1], frames) + inside * np.repeat(durations, frames)
        yield coded(spoken), durations, fine[np.minimum((times * FINE).astype(np.int64), len(fine) - 1)]


def _pairs(part: str, count: int, longest: int) -> Iterator[tuple[Feed, list[str]]]:
    for phonemes, _, spectrum in utterances(part, longest, count):
        label = np.round((spectrum - FLOOR) / STEP).astype(np.uint8)
        yield {"phonemes": phonemes[None]}, base64.b64encode(label.tobytes()).decode()


@per_feed
def count(values: Outputs, label: str) -> Counts:
    """Frames of each sentence within NEAR dB of what is said up to AROUND frames off, of the longer one's."""
    told = values[0][0]
    truth = np.frombuffer(base64.b64decode(label), np.uint8).reshape(-1, BANDS) * STEP + FLOOR
    right = np.zeros(len(told), bool)
    for shift in range(-AROUND, AROUND + 1):
        first, last = max(0, -shift), min(len(told), len(truth) - shift)
        there = truth[first + shift : last + shift]
        right[first:last] |= np.abs(told[first:last] - there).mean(axis=1) <= NEAR
    return right.sum(), max(len(told), len(truth))


MODEL = trained_model(
    name="length-regulator",
    data="espeak-ng's voice",
    kind="text to speech, durations through Ceil",
    task="240 sentences: share of the mel spectrum's frames within 6 dB of what is said 32 ms around",
    samples=_pairs,
    splits={
        "calibration": ("calibration", 48, 90),
        "tuning": ("tuning", 160, 110),
        "evaluation": ("evaluation", 240, 120),
    },
    count=count,
    helpers=("speech", "text"),
)
