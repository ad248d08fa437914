"""Samples from files of sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from ...base.errors import DataError
from ...storage.files import data_files, place_of, shown_location
from ..batches import has_batch, in_batches
from ..preprocessing import Preprocessing
from ..values import InputSpec, Sample, Samples
from .recordings import SUFFIXES
from .windows import audio_encoder


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the windows of a recording, or of those of a folder and its folders, each as a sample.

    Args:
        source: a recording, a folder of them, or its URL.
        inputs: what a sample must hold.
        preprocessing: a recipe with `reader: audio`.

    Raises:
        DataError: there are no recordings. While iterating: one is broken, of another rate, or too short.
        ConfigError: the recipe is wrong, or a library is missing.
    """
    if not preprocessing.reader:
        raise DataError(
            f"{shown_location(source)}: holds recordings, and the model does not say which rate it takes; "
            "give a recipe with --preprocess FILE, with the lines 'reader: audio' and 'rate: 16000' for one"
        )
    encoder = audio_encoder(preprocessing, inputs)
    files = data_files(source, SUFFIXES, deep=True)
    if not files:
        raise DataError(f"{shown_location(source)}: holds no recordings; give {', '.join(SUFFIXES)} files")

    def windows() -> Iterator[Sample]:
        for file in files:
            for number, arrays in enumerate(encoder.arrays(str(file), file.read())):
                yield Sample(f"{file.name}[{number}]", arrays)

    def iterate(part: slice) -> Iterator[Sample]:
        if encoder.window is not None:
            return islice(windows(), part.start, part.stop, part.step)
        return (Sample(file.name, next(encoder.arrays(str(file), file.read()))) for file in files[part])

    total = None if encoder.window is not None else len(files)
    samples = Samples(shown_location(source), total, iterate, place_of(source), encoder.notes)
    return in_batches(samples, inputs) if has_batch(inputs) else samples
