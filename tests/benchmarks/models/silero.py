"""Silero VAD, a recurrent net: a clip of sound in windows of 32 ms -> the probability of speech in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import text
from record import Counts, Feed, Outputs, RealModel, Scores, package_folder, per_feed
from speech import RATE, Speaker

WINDOW, CONTEXT = 512, 64
# Variants f2, f3 and f5 are left out: espeak-ng does not say the same twice with them.
CALIBRATION_VOICES = ("en-us", "en+f1", "de+m3", "fr+f4")
EVALUATION_VOICES = (*CALIBRATION_VOICES, "en-us+f4", "es+m7", "it", "pl+f1", "sv+m1")


@cache
def speaker() -> Speaker:
    """Return the voices of this process."""
    return Speaker()


def _background(rng: np.random.Generator, length: int) -> np.ndarray:
    """Return noise of a random colour with, at times, hum or a melody: never speech."""
    spectrum = np.fft.rfft(rng.normal(0, 1, length))
    spectrum /= np.maximum(np.arange(len(spectrum)), 20.0) ** rng.uniform(0, 0.8)
    noise = np.fft.irfft(spectrum, length)
    noise /= noise.std()
    times = np.arange(length) / RATE
    if rng.random() < 0.5:
        notes = rng.choice([110, 147, 196, 262, 330, 440, 587], length // 4000 + 1).repeat(4000)[:length]
        noise += rng.uniform(0.3, 2) * np.sin(2 * np.pi * notes * times)
    return noise / noise.std()


def _clips(seed: int, count: int, part: int, voices: Sequence[str]) -> Iterator[tuple[Feed, list[int]]]:
    """Yield clips of silence, one or two sentences, and pauses, over a background.

    The labels are 1 where the clean speech is heard, 0 in the pauses, -1 where a window is neither (the
    edge of a word, a short gap between words): those do not count.
    """
    rng = np.random.default_rng(seed)
    pool = [sentence for sentence in text.sentences()[part::3] if len(sentence) < 90]
    for _ in range(count):
        pieces = [np.zeros(int(rng.uniform(0.6, 2.0) * RATE))]
        for _ in range(int(rng.integers(1, 3))):
            sentence, voice = str(rng.choice(pool)), str(rng.choice(voices))
            said = speaker().say(sentence, voice, int(rng.integers(130, 210)))
            pieces += [said / said.std() * 0.06, np.zeros(int(rng.uniform(0.8, 2.0) * RATE))]
        speech = np.concatenate(pieces)
        windows = len(speech) // WINDOW
        speech = speech[: windows * WINDOW]
        loudness = 10 ** (rng.uniform(-5, 5) / 20)
        ratio = 10 ** (-rng.uniform(3, 25) / 20)
        sound = loudness * (speech + 0.06 * ratio * _background(rng, len(speech)))
        sound = np.clip(sound, -1, 1).astype(np.float32)
        padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
        frames = np.stack([padded[i * WINDOW : (i + 1) * WINDOW + CONTEXT] for i in range(windows)])
        state = np.zeros((1, 1, 128), np.float32)
        yield {"input": frames, "h": state, "c": state}, _labels(speech.reshape(windows, WINDOW))


def _labels(windows: np.ndarray) -> list[int]:
    level = np.sqrt((windows**2).mean(axis=1))
    loud = level > 0.02
    reach = 8  # windows on both sides: a quarter of a second
    near = np.convolve(level > 1e-4, np.ones(2 * reach + 1), "same") > 0
    return [1 if is_loud else -1 if is_near else 0 for is_loud, is_near in zip(loud, near, strict=True)]


@per_feed
def count(values: Outputs, clip: Sequence[int]) -> Counts:
    """Windows of each clip told right at a probability of 0.5: speech, of how many, pauses, of how many."""
    said, truth = values[0].ravel() >= 0.5, np.array(clip)
    speech, pause = truth == 1, truth == 0
    return (said & speech).sum(), speech.sum(), (~said & pause).sum(), pause.sum()


def score(totals: np.ndarray) -> Scores:
    """Mean of the shares of speech windows and of pause windows told right."""
    speech, pause = totals[0] / max(totals[1], 1), totals[2] / max(totals[3], 1)
    return Scores(float(speech + pause) / 2, {"speech": speech, "pauses": pause})


MODEL = RealModel(
    name="silero",
    source="silero-vad",
    kind="recurrent, speech",
    task="120 clips, 9 synthetic voices over noise and melodies: balanced share of windows told right",
    path=lambda folder: package_folder("silero_vad") / "data" / "silero_vad_16k_sequence.onnx",
    samples=_clips,
    splits={
        "calibration": (51, 32, 0, CALIBRATION_VOICES),
        "tuning": (53, 60, 2, CALIBRATION_VOICES),
        "evaluation": (52, 120, 1, EVALUATION_VOICES),
    },
    count=count,
    score=score,
    helpers=("text", "speech"),
)
