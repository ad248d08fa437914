"""Rows put together to batches, for models that fix how many they take at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ..base.errors import DataError
from ..base.tool import note
from .values import InputSpec, Sample, Samples


def fixed_batch(inputs: Sequence[InputSpec]) -> int:
    """Return the leading dimension that all inputs have; 1 where it is free, or not the same for all."""
    leading = {spec.shape[0] if spec.shape else None for spec in inputs}
    found = leading.pop() if len(leading) == 1 else None
    return found if isinstance(found, int) else 1


def has_batch(inputs: Sequence[InputSpec]) -> bool:
    """Return whether the leading dimension of some input can be one of rows: it has others after it."""
    return any(len(spec.shape or ()) > 1 for spec in inputs)


def of_one_row(inputs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Return the inputs as they were if the model took one row at a time."""
    if fixed_batch(inputs) == 1:
        return tuple(inputs)
    return tuple(replace(spec, shape=(1, *(spec.shape or ())[1:])) for spec in inputs)


def in_batches(samples: Samples, inputs: Sequence[InputSpec]) -> Samples:
    """Return samples of one row each as the batches that a model takes.

    What is left at the end and fills no batch is left out, with a note.

    Args:
        samples: arrays have 1 as their leading dimension.
        inputs: of the model.

    Raises:
        DataError: there are fewer samples than rows in a batch.
    """
    size = fixed_batch(inputs)
    if size == 1:
        return samples
    if samples.total is None:
        return replace(samples, iterate=lambda part: _of_stream(samples, size, part))
    total = _whole_batches(samples.source, samples.total, size)
    notes = (*samples.notes, _left_out(samples.source, samples.total, size))
    return replace(
        samples,
        total=total,
        iterate=lambda part: _batches(samples, size, range(total)[part]),
        notes=tuple(filter(None, notes)),
    )


def _whole_batches(source: str, rows: int, size: int) -> int:
    if rows < size:
        raise DataError(
            f"{source}: has {rows} rows, and the model takes {size} at a time; give at least {size}, or "
            "export the model with a free batch"
        )
    return rows // size


def _left_out(source: str, rows: int, size: int) -> str:
    """Return what is noted about the rows; "" where all are used."""
    left = rows % size
    if not left:
        return ""
    return f"{source}: the last {left} of {rows} rows fill no batch of {size}, the model's, and are left out"


def _batches(samples: Samples, size: int, numbers: range) -> Iterator[Sample]:
    if numbers.step == 1:  # one pass over the rows
        rows = samples.iterate(slice(numbers.start * size, numbers.stop * size))
        yield from (_stacked(list(islice(rows, size))) for _ in numbers)
        return
    for number in numbers:
        yield _stacked(list(samples.iterate(slice(number * size, (number + 1) * size))))


def _of_stream(samples: Samples, size: int, part: slice) -> Iterator[Sample]:
    yield from islice(_all_of_stream(samples, size), part.start, part.stop, part.step)


def _all_of_stream(samples: Samples, size: int) -> Iterator[Sample]:
    rows, count = iter(samples), 0
    while len(batch := list(islice(rows, size))) == size:
        count += size
        yield _stacked(batch)
    count += len(batch)
    _whole_batches(samples.source, count, size)
    if text := _left_out(samples.source, count, size):
        note(text)


def _stacked(rows: Sequence[Sample]) -> Sample:
    """Return rows as one sample, named after the first and the last."""
    arrays = {name: np.concatenate([row.arrays[name] for row in rows]) for name in rows[0].arrays}
    return Sample(f"{rows[0].name} to {rows[-1].name}", arrays)
