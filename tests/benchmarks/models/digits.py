"""The example of this repository: a small net with Tanh and Sigmoid, trained on scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from record import Feed, Outputs, RealModel, read_feeds

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "digits"


def _batches(split: str) -> Iterator[tuple[Feed, list[int]]]:
    told = FOLDER / split / "labels.txt"
    labels = [int(line) for line in told.read_text(encoding="utf-8").split()] if told.exists() else []
    done = 0
    for feed in read_feeds(FOLDER / split):
        count = len(next(iter(feed.values())))
        yield feed, labels[done : done + count]
        done += count


def count(outputs: Iterable[Outputs], labels: Sequence[Sequence[int]]) -> np.ndarray:
    """Whether each digit's logit is the largest; a unit is a digit."""
    pairs = zip(outputs, labels, strict=True)
    right = [values[0].argmax(axis=1) == np.array(batch) for values, batch in pairs]
    return np.stack([np.concatenate(right), np.ones(sum(map(len, right)))], axis=1)


MODEL = RealModel(
    name="digits",
    source="examples/digits (trained here)",
    kind="classifier, small",
    task="400 handwritten digits, held out: share told right",
    path=lambda folder: FOLDER / "model.onnx",
    samples=_batches,
    splits={"calibration": ("calibration",), "evaluation": ("heldout",)},
    count=count,
)
