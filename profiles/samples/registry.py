"""The readers: how a source is recognised, and who reads it.

A reader is a module with a record of its recipe and a function
`open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples`. Libraries are
imported inside of its functions. A new one is one entry of `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..base.errors import DataError, nearest
from ..base.extras import OptionalModule
from . import arrays, picture_files, random_samples
from .preprocessing import Preprocessing
from .storage import holds, shown_location
from .values import InputSpec, Samples


@dataclass(frozen=True)
class Reader:
    """One kind of source."""

    name: str
    recognises: Callable[[str], bool]  # looks at names alone
    module: OptionalModule
    record: str
    takes: tuple[str, ...]  # words of the recipes that it can use (`reader: image`), its own first
    suffixes: tuple[str, ...] = ()

    @property
    def recipe(self) -> type:
        """The record that its recipes are."""
        found: type = getattr(self.module.load(), self.record)
        return found

    def open(self, source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
        """Return the samples of a source, for a model's inputs and a recipe."""
        samples: Samples = self.module.load(shown_location(source)).open(source, inputs, preprocessing)
        return samples


TEXT_SUFFIXES = (".txt",)
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg")
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")

_TABLES = OptionalModule("reader 'table'", "quantizer.plugins.data.tables")


_ARRAYS = partial(
    Reader,
    "arrays",
    module=OptionalModule("reader 'array'", "profiles.samples.arrays"),
    record="ArrayRecipe",
    takes=("array",),
)

READERS: tuple[Reader, ...] = (
    Reader(
        "random values",
        random_samples.is_random,
        OptionalModule("reader 'random'", "profiles.samples.random_samples"),
        "RandomRecipe",
        ("random",),
    ),
    _ARRAYS(recognises=arrays.holds_arrays),
    Reader(
        "pictures",
        lambda source: picture_files.is_data_yaml(source) or holds(source, picture_files.SUFFIXES, deep=True),
        OptionalModule("reader 'image'", "profiles.samples.images"),
        "ImageRecipe",
        ("image",),
        picture_files.SUFFIXES,
    ),
    Reader(
        "lines of text",
        lambda source: holds(source, TEXT_SUFFIXES),
        OptionalModule("reader 'text'", "quantizer.plugins.data.text"),
        "TextRecipe",
        ("text",),
        TEXT_SUFFIXES,
    ),
    Reader(
        "rows",
        lambda source: holds(source, TABLE_SUFFIXES),
        _TABLES,
        "TableRecipe",
        ("table", "text", "image", "audio"),
        TABLE_SUFFIXES,
    ),
    Reader(
        "recordings",
        lambda source: holds(source, AUDIO_SUFFIXES, deep=True),
        OptionalModule("reader 'audio'", "quantizer.plugins.data.audio"),
        "AudioRecipe",
        ("audio",),
        AUDIO_SUFFIXES,
    ),
    _ARRAYS(recognises=lambda source: True),
)
"""The first reader that recognises a source, and accepts the recipe, reads it."""


def reader_called(word: str) -> OptionalModule:
    """Return the module of the reader of a word of recipes, as in `reader: text`."""
    return next(reader.module for reader in READERS if reader.takes[0] == word)


def column_of(table: str, column: str) -> Iterator[object]:
    """Yield the values of a column of a table, in the order of its rows."""
    yield from _TABLES.load(table).column_of(table, column)


def open_source(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the samples of a folder or file, not yet checked against the inputs."""
    return reader_of(source, preprocessing).open(source, inputs, preprocessing)


def reader_of(source: str, preprocessing: Preprocessing) -> Reader:
    """Return the reader of a source; DataError if the recipe is for another kind of data."""
    found = (reader for reader in READERS if reader.recognises(source))
    if not preprocessing.reader:
        return next(found)
    recognising = list(found)
    taking = [reader for reader in recognising if preprocessing.reader in reader.takes]
    if taking:
        return taking[0]
    reader = recognising[0]
    if recognising == [READERS[-1]]:
        arrays.sample_files(source)  # it holds none, which the error says
    fitting = f"{' or '.join(reader.takes)}, or other data.{nearest(preprocessing.reader, reader.takes)}"
    raise DataError(
        f"{source}: contains {reader.name}, but --preprocess {preprocessing.name} is for "
        f"{preprocessing.reader}; give a recipe with reader: {fitting}"
    )


def is_sample_name(name: str) -> bool:
    """Return whether a file of this name in a folder of samples is, or is part of, a sample."""
    endings = tuple(suffix for reader in READERS for suffix in reader.suffixes)
    return arrays.is_array_name(name) or name.lower().endswith(endings)
