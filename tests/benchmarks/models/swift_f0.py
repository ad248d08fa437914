"""SwiftF0, audio convolution with a Fourier transform in the graph: sound -> pitch of each frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tones
from record import Counts, Feed, Outputs, RealModel, Scores, package_folder, per_feed

RATE, HOP, FRAMES = 16000, 256, 160
LIMITS = {"fmin": np.float32(46.875), "fmax": np.float32(2093.75)}


def _clips(seed: int, count: int, split: str) -> Iterator[tuple[Feed, list[float]]]:
    """Yield clips of one voice that glides and pauses, in noise.

    The labels are hertz, 0 in a pause, -1 where a frame is neither (within 40 ms of a start or an end).
    """
    rng = np.random.default_rng(seed)
    length = FRAMES * HOP
    for _ in range(count):
        pitch, loud = np.zeros(length), np.zeros(length)
        at = int(rng.uniform(0, 0.3) * RATE)
        while at < length - RATE // 4:
            size = min(int(RATE * rng.uniform(0.25, 1.2)), length - at)
            times = np.arange(size) / RATE
            centre = rng.uniform(np.log2(70), np.log2(900))
            vibrato = rng.uniform(0, 0.03) * np.sin(2 * np.pi * rng.uniform(3, 7) * times)
            pitch[at : at + size] = 2 ** (centre + rng.uniform(-0.4, 0.4) * times + vibrato)
            loud[at : at + size] = tones.envelope(rng, size, RATE)
            at += size + int(RATE * rng.uniform(0.1, 0.5))
        profiles = tones.PROFILES[split]
        with np.errstate(divide="ignore"):
            top = np.where(pitch > 0, RATE / 2 / pitch, 0)
        voice = tones.partials(np.cumsum(pitch) / RATE, profiles[rng.integers(len(profiles))], top) * loud
        ratio = 10 ** (rng.uniform(-20, 10) / 20)
        sound = voice + voice.std() * ratio * tones.noise(rng, length, RATE)
        sound *= rng.uniform(0.1, 0.9) / np.abs(sound).max()
        feed = {"audio": sound.astype(np.float32)[None], **LIMITS}
        yield feed, _labels(pitch, loud)


def _labels(pitch: np.ndarray, loud: np.ndarray) -> list[float]:
    labels = []
    for frame in range(FRAMES):
        middle, reach = frame * HOP, RATE // 25
        near = slice(max(0, middle - reach), middle + reach)
        if (pitch[near] == 0).all():
            labels.append(0.0)
        elif (pitch[near] > 0).all() and loud[near].min() > 0.2:
            labels.append(float(pitch[middle]))
        else:
            labels.append(-1.0)
    return labels


@per_feed
def count(values: Outputs, clip: Sequence[float]) -> Counts:
    """Frames of each clip told right: sounding ones, of how many, pauses, of how many.

    A sounding frame is right when its confidence is at least 0.5, as the package has it, and its pitch
    within 50 cents.
    """
    pitch, confidence = values
    truth = np.array(clip)[: pitch.shape[1]]
    sounds, pause, sure = truth > 0, truth == 0, confidence[0] >= 0.5
    cents = 1200 * np.abs(np.log2(np.maximum(pitch[0], 1e-3) / np.where(sounds, truth, 1)))
    return (sounds & sure & (cents < 50)).sum(), sounds.sum(), (pause & ~sure).sum(), pause.sum()


def score(totals: np.ndarray) -> Scores:
    """Share of frames told right, sounding and silent alike."""
    sounding, sounds, silent, pauses = totals
    parts = {"sounding": sounding / max(sounds, 1), "pauses": silent / max(pauses, 1)}
    return Scores(float((sounding + silent) / (sounds + pauses)), parts)


MODEL = RealModel(
    name="swift-f0",
    source="swift-f0",
    kind="audio convolution, pitch",
    task="200 clips of a made voice in noise: share of frames whose pitch (within 50 cents) or pause is told",
    path=lambda folder: package_folder("swift_f0") / "model.onnx",
    samples=_clips,
    splits={
        "calibration": (111, 32, "calibration"),
        "tuning": (112, 80, "tuning"),
        "evaluation": (113, 200, "evaluation"),
    },
    count=count,
    score=score,
    helpers=("tones",),
)
