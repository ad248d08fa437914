"""What makes samples of rows: the recipe says what they hold, or the rows themselves do."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy.typing as npt

from ...base.errors import ConfigError, DataError
from ..audio.recordings import SUFFIXES as AUDIO_SUFFIXES
from ..audio.windows import AudioEncoder, audio_encoder
from ..images.folders import SUFFIXES as IMAGE_SUFFIXES
from ..images.reading import ImageSamples
from ..images.recipe import image_recipe
from ..preprocessing import Preprocessing
from ..text.tokens import TextEncoder, text_encoder
from ..values import InputSpec
from .columns import TableEncoder, table_encoder
from .rows import Row, Rows

Arrays = dict[str, npt.NDArray[Any]]
SUFFIXES = {"image": IMAGE_SUFFIXES, "audio": AUDIO_SUFFIXES}
"""Endings of columns that hold files, where they are named after them."""


@dataclass(frozen=True)
class RowEncoder:
    """Makes samples of rows.

    Attributes:
        arrays: yields the arrays of each sample of a row.
        single: whether every row is one sample.
        notes: what was assumed.
    """

    arrays: Callable[[Row], Iterator[Arrays]]
    single: bool = True
    notes: tuple[str, ...] = ()


def row_encoder(preprocessing: Preprocessing, inputs: Sequence[InputSpec], rows: Rows) -> RowEncoder:
    """Return what makes samples of rows.

    Args:
        preprocessing: a recipe of any kind, or nothing: then columns go to the inputs that are called so.
        inputs: of the model.
        rows: what it is for; the first one is looked at.

    Raises:
        DataError: there are no rows, or none of their columns is what the recipe is for.
        ConfigError: the recipe is wrong, or a library is missing.
    """
    first = next(rows.iterate(slice(0, 1)), None)
    if first is None:
        raise DataError(f"{rows.source}: holds no rows; there is nothing to make samples of")
    names = rows.columns or tuple(first.values)
    if preprocessing.reader == "text":
        text = text_encoder(preprocessing, inputs)
        return RowEncoder(partial(_texts, text), notes=text.notes)
    if preprocessing.reader == "audio":
        audio = audio_encoder(preprocessing, inputs)
        column = _file_column("audio", audio.recipe.column, rows, names, first)
        return RowEncoder(partial(_windows, audio, column), audio.window is None, audio.notes)
    if preprocessing.reader == "image":
        images = ImageSamples(inputs, preprocessing)
        column = _file_column("image", image_recipe(preprocessing).column, rows, names, first)
        note = f"{rows.source}: column '{column}', each picture as {images.description()}"
        return RowEncoder(partial(_pictures, images, column), notes=(note,))
    table = table_encoder(preprocessing, inputs, rows.source, first, names)
    return RowEncoder(partial(_cells, table), notes=table.notes)


def _cells(encoder: TableEncoder, row: Row) -> Iterator[Arrays]:
    yield encoder.arrays(row)


def _texts(encoder: TextEncoder, row: Row) -> Iterator[Arrays]:
    values = row.values
    if encoder.recipe.field == "text" and "text" not in values and "txt" in values:
        values = {"text": values["txt"]}
    yield encoder.arrays(row.where, *encoder.texts(row.where, values))


def _pictures(images: ImageSamples, column: str, row: Row) -> Iterator[Arrays]:
    yield dict(images.sample(row.name, io.BytesIO(_content(row, column)), row.where).arrays)


def _windows(encoder: AudioEncoder, column: str, row: Row) -> Iterator[Arrays]:
    return encoder.arrays(row.where, _content(row, column))


def _file_column(kind: str, wanted: str, rows: Rows, names: Sequence[str], first: Row) -> str:
    """Return the column that holds pictures or recordings.

    Raises:
        ConfigError: there is none, or several and none of them is named.
    """
    known = [name for name in names if rows.binary.get(name) == kind]
    ending = [name for name in names if f".{name.rpartition('.')[2].lower()}" in SUFFIXES[kind]]
    held = [name for name in names if isinstance(first.values.get(name), bytes)]
    candidates = [wanted] if wanted in names else known or ending or held
    if len(candidates) != 1 or (wanted and wanted not in names):
        raise ConfigError(
            f"{rows.source}: which column holds the {kind}? Name it in the recipe, as column: {kind}; there "
            f"are {', '.join(names)}"
        )
    return candidates[0]


def _content(row: Row, column: str) -> bytes:
    """Return the file that a column holds."""
    value: object = row.values.get(column)
    if isinstance(value, Mapping):
        value = value.get("bytes")
    if not isinstance(value, bytes):
        what = f"names the file {value}" if isinstance(value, str) else "holds no file"
        raise DataError(
            f"{row.where}: column '{column}' {what}; save the data set with the bytes of its files in it"
        )
    return value
