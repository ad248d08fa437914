"""What the arrays of a file are to a model: a sample, one row, rows of a batch, or several samples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from ..batches import fixed_batch
from ..checks import fits
from ..values import ArrayHeader, InputSpec, shape_text

BATCH_NAMES = r"(?i)n|b|bs|bsz|.*batch.*"
"""Names that exporters give to a free number of rows."""

Shape = Sequence[int | str | None]


class Content(Enum):
    """What a file holds."""

    SAMPLE = "one sample"
    ROW = "one row, without an axis of rows"
    ROWS = "rows, each to be run on its own or in batches of the model's size"
    ITEMS = "samples along another axis"


def content_of(headers: Mapping[str, ArrayHeader], inputs: Sequence[InputSpec]) -> Content:
    """Return what the arrays of a file are to a model; a sample where they do not fit at all.

    Args:
        headers: of the arrays, by input name.
        inputs: of the model.
    """
    if headers.keys() != {spec.name for spec in inputs} or any(spec.shape is None for spec in inputs):
        return Content.SAMPLE
    shapes = [(headers[spec.name].shape, spec.shape or ()) for spec in inputs]
    if all(fits(shape, wanted) for shape, wanted in shapes):
        return Content.SAMPLE
    if all(fits(shape, wanted) or _is_row(shape, wanted) for shape, wanted in shapes):
        return Content.ROW
    leading = {shape[0] if shape else 0 for shape, _ in shapes}
    if len(leading) != 1 or not max(leading):
        return Content.SAMPLE
    if all(fits(shape[1:], wanted) and shape[1] in (1, wanted[0]) for shape, wanted in shapes if wanted):
        return Content.ITEMS
    if max(leading) > fixed_batch(inputs) and all(
        len(shape) == len(wanted) and fits(shape[1:], wanted[1:]) for shape, wanted in shapes
    ):
        return Content.ROWS
    return Content.SAMPLE


def _is_row(shape: Sequence[int], wanted: Shape) -> bool:
    return bool(wanted) and (wanted[0] == 1 or not isinstance(wanted[0], int)) and fits(shape, wanted[1:])


def are_rows(inputs: Sequence[InputSpec]) -> bool:
    """Return whether the leading dimensions of the inputs are free and named as the rows of a batch."""
    leading = {spec.shape[0] if spec.shape else 0 for spec in inputs}
    name = leading.pop() if len(leading) == 1 else 0
    return isinstance(name, str) and re.fullmatch(BATCH_NAMES, name) is not None


def described(headers: Mapping[str, ArrayHeader], inputs: Sequence[InputSpec]) -> str:
    """Return the shapes of a file and of the inputs, for notes."""
    parts = (
        f"{shape_text(headers[spec.name].shape)} for '{spec.name}' {shape_text(spec.shape)}"
        for spec in inputs
    )
    return ", ".join(parts)
