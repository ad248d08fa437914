"""Rows put together to batches, for models that fix how many they take at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ..base.errors import DataError
from .values import InputSpec, Sample, Samples


def fixed_batch(inputs: Sequence[InputSpec]) -> int:
    """Return the leading dimension of all inputs; 1 if it is free, or not the same for all."""
    leading = {spec.shape[0] if spec.shape else None for spec in inputs}
    size = leading.pop() if len(leading) == 1 else None
    return size if isinstance(size, int) else 1


def has_batch(inputs: Sequence[InputSpec]) -> bool:
    """Return whether the leading dimension of some input can be one of rows: it has others after it."""
    return any(len(spec.shape or ()) > 1 for spec in inputs)


def of_one_row(inputs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Return the inputs as they were if the model took one row at a time."""
    if fixed_batch(inputs) == 1:
        return tuple(inputs)
    return tuple(replace(spec, shape=(1, *(spec.shape or ())[1:])) for spec in inputs)


def in_batches(samples: Samples, inputs: Sequence[InputSpec]) -> Samples:
    """Return samples of one row as the batches that a model takes; a last partial one is left out."""
    size = fixed_batch(inputs)
    if size == 1:
        return samples

    def check(rows: int) -> None:
        if rows < size:
            raise DataError(
                f"{samples.source}: has {rows} rows, but the model expects {size} at a time; give at least "
                f"{size}, or export the model with a free batch"
            )

    def every_batch() -> Iterator[Sample]:
        rows, count = iter(samples), 0
        while len(batch := list(islice(rows, size))) == size:
            count += size
            yield _stacked(batch)
        check(count + len(batch))

    if samples.total is None:
        return replace(samples, iterate=lambda part: islice(every_batch(), part.start, part.stop, part.step))

    check(samples.total)
    total = samples.total // size

    def iterate(part: slice) -> Iterator[Sample]:
        numbers = range(total)[part]
        if numbers.step == 1:  # one pass over the rows
            rows = samples.iterate(slice(numbers.start * size, numbers.stop * size))
            yield from (_stacked(list(islice(rows, size))) for _ in numbers)
            return
        for number in numbers:
            yield _stacked(list(samples.iterate(slice(number * size, (number + 1) * size))))

    return replace(samples, total=total, iterate=iterate)


def _stacked(rows: Sequence[Sample]) -> Sample:
    """Return rows as one sample, named after the first and the last."""
    arrays = {name: np.concatenate([row.arrays[name] for row in rows]) for name in rows[0].arrays}
    originals = tuple(original for row in rows for original in row.originals)
    return Sample(f"{rows[0].name} to {rows[-1].name}", arrays, originals=originals)
