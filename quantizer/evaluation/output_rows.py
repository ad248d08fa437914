"""The rows of an output that count: no padding, and nothing that is the same for all sequences. Pure.

A batch of sequences is as long as its longest. The model also answers for the padding behind the end of the
others, nearly always the same and with certainty, which hides changes in the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

SHORTEST_PADDING = 2
"""Equal positions at the end of a sequence that are padding: one has nothing that it could be equal to."""


def counted_rows(
    outputs: Sequence[Array], axis: int, inputs: Sequence[Mapping[str, Array]] | None
) -> list[Mask] | None:
    """Return masks [sequences, positions] of the rows that count on each sample; None if all do.

    Outputs are [sequences, positions, columns], the last two in either order; `axis` (1 or 2) is that of the
    columns.
    """
    if not outputs or any(values.ndim != 3 or not values.size for values in outputs):
        return None
    rows = [np.moveaxis(values, axis, -1) for values in outputs]
    masks = [~_padded(values, None if inputs is None else inputs[place]) for place, values in enumerate(rows)]
    if len({values.shape[1:] for values in rows}) == 1 and sum(len(values) for values in rows) > 1:
        every = np.concatenate(rows)
        same = (every == every[:1]).all(axis=(0, 2))
        masks = [mask & ~same for mask in masks]
    if all(mask.all() for mask in masks) or not any(mask.any() for mask in masks):
        return None
    return masks


def _padded(rows: Array, inputs: Mapping[str, Array] | None) -> Mask:
    """Return a mask of padding rows of [sequences, positions, columns], by the inputs or else the rows."""
    count, length = rows.shape[:2]
    runs = []
    for values in (inputs or {}).values():
        if values.ndim in (2, 3) and len(values) == count:
            at = next((place for place in range(1, values.ndim) if values.shape[place] == length), None)
            if at is not None:
                places = np.moveaxis(values, at, 1).reshape(count, length, -1)
                if not _counts_positions(places):
                    runs.append(_run_at_end(places))
    if not runs:
        runs = [_run_at_end(rows)]
    # An input that is the same everywhere, as a mask of ones, says nothing of its sequence.
    ends = np.where(np.stack(runs) < length, np.stack(runs), length + 1).min(axis=0)
    ends = np.where((ends > length) | (ends < SHORTEST_PADDING), 0, ends)
    return np.asarray(np.arange(length)[None, :] >= (length - ends)[:, None])


def _counts_positions(rows: Array) -> bool:
    """Whether an input numbers the positions, which goes on behind the end."""
    numbers = rows.dtype.kind in "iu" and rows.shape[1] > 1
    return numbers and bool((np.diff(rows.astype(np.int64), axis=1) == 1).all())


def _run_at_end(rows: Array) -> npt.NDArray[np.int64]:
    """Return how many positions at the end of each sequence are equal to its last one, itself included."""
    equal = (rows == rows[:, -1:]).all(axis=2)[:, ::-1]
    return np.asarray(np.where(equal.all(axis=1), equal.shape[1], np.argmin(equal, axis=1)), np.int64)
