"""Basic Pitch, an audio convolution: two seconds of sound -> which of 88 notes sound in each frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tones
from boxes import f1
from record import Counts, Feed, Outputs, RealModel, package_folder, per_feed

RATE, HOP, SAMPLES, FRAMES, LOWEST = 22050, 256, 43844, 172, 27.5
NAMES = ("StatefulPartitionedCall:2", "StatefulPartitionedCall:1", "StatefulPartitionedCall:0")


def _clips(seed: int, count: int, split: str) -> Iterator[tuple[Feed, list[list[int]]]]:
    """Yield clips of one to four voices; labels are (note, first frame, last frame)."""
    rng = np.random.default_rng(seed)
    profiles = tones.PROFILES[split]
    for _ in range(count):
        sound, notes = np.zeros(SAMPLES), []
        for _ in range(int(rng.integers(1, 5))):
            profile, at = profiles[rng.integers(len(profiles))], int(rng.integers(0, RATE // 2))
            low = int(rng.integers(12, 50))
            while at < SAMPLES - RATE // 8:
                length = min(int(RATE * rng.uniform(0.12, 0.8)), SAMPLES - at)
                note = low + int(rng.integers(0, 20))
                hertz = LOWEST * 2 ** (note / 12 + rng.normal(0, 0.05) / 12)
                phase = hertz * np.arange(length) / RATE
                tone = tones.partials(phase, profile, RATE / 2 / hertz) * tones.envelope(rng, length, RATE)
                sound[at : at + length] += rng.uniform(0.1, 0.4) * tone
                notes.append([note, round(at / HOP), round((at + length) / HOP)])
                at += length + int(RATE * rng.choice([0.0, 0.05, 0.3]))
        sound += np.abs(sound).max() * 10 ** (-rng.uniform(15, 40) / 20) * tones.noise(rng, SAMPLES, RATE)
        sound *= rng.uniform(0.2, 0.9) / np.abs(sound).max()
        yield {"serving_default_input_2:0": sound.astype(np.float32)[None, :, None]}, notes


@per_feed
def count(values: Outputs, notes: Sequence[Sequence[int]]) -> Counts:
    """Notes in the frames of each clip: told rightly, told (the package's threshold is 0.3), there."""
    truth = np.zeros((FRAMES, 88), bool)
    for note, first, last in notes:
        truth[first:last, note] = True
    told = values[NAMES.index("StatefulPartitionedCall:1")][0] >= 0.3
    return (told & truth).sum(), told.sum(), truth.sum()


MODEL = RealModel(
    name="basic-pitch",
    source="basic-pitch",
    kind="audio convolution",
    task="160 clips of one to four made voices: F1 of the notes that sound in each frame",
    path=lambda folder: package_folder("basic_pitch") / "saved_models" / "icassp_2022" / "nmp.onnx",
    samples=_clips,
    splits={
        "calibration": (101, 32, "calibration"),
        "tuning": (102, 80, "tuning"),
        "evaluation": (103, 160, "evaluation"),
    },
    count=count,
    score=f1,
    helpers=("tones", "boxes"),
)
