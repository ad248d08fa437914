"""Samples from rows: CSV, JSON lines and Parquet, data sets on disk, tar shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from ...base.errors import DataError
from ...storage.files import data_files, holds, is_folder, place_of, shown_location
from ..batches import has_batch, in_batches
from ..preprocessing import Preprocessing, recipe_of
from ..values import InputSpec, Sample, Samples
from .columns import TableRecipe
from .delimited import DELIMITERS, delimited_rows
from .encoders import Arrays, RowEncoder, row_encoder
from .json_lines import SUFFIXES as JSON_SUFFIXES
from .json_lines import json_rows
from .parquet import is_saved_dataset, parquet_rows, saved_rows
from .rows import Rows
from .webdataset import SUFFIXES as TAR_SUFFIXES
from .webdataset import shard_rows

PARQUET = (".parquet", ".pq")
SUFFIXES = (*DELIMITERS, *JSON_SUFFIXES, *PARQUET, *TAR_SUFFIXES)


def is_table(source: str) -> bool:
    """Return whether a source is a file of rows, a folder of such files, or a saved data set.

    Raises:
        DataError: a store does not answer.
    """
    return holds(source, SUFFIXES) or (is_folder(source) and is_saved_dataset(source))


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the rows of a source, each as a sample.

    Args:
        source: a file or a folder of files of one kind: CSV, JSON lines, Parquet, tar; a folder that the
            library `datasets` saved; or its URL.
        inputs: what a sample must hold.
        preprocessing: a recipe of any kind, or nothing: then columns go to the inputs that are called so.

    Raises:
        DataError: there are no rows, or files of several kinds. While iterating: a row is broken, a value is
            missing or of another type.
        ConfigError: the recipe is wrong, or a library is missing.
    """
    is_table = preprocessing.reader in ("", "table")
    recipe = recipe_of(preprocessing, TableRecipe) if is_table else TableRecipe()
    rows = _rows(source, recipe)
    encoder = row_encoder(preprocessing, inputs, rows)
    batch = recipe.rows

    def iterate(part: slice) -> Iterator[Sample]:
        if encoder.single and batch == 1:
            return (Sample(row.name, next(encoder.arrays(row))) for row in rows.iterate(part))
        every = _samples(rows, encoder) if batch == 1 else _batches(rows, encoder, batch)
        return islice(every, part.start, part.stop, part.step)

    total = rows.total if encoder.single else None
    total = None if total is None else -(-total // batch)
    samples = Samples(rows.source, total, iterate, place_of(source), encoder.notes)
    return in_batches(samples, inputs) if batch == 1 and has_batch(inputs) else samples


def _rows(source: str, recipe: TableRecipe) -> Rows:
    """Return the rows of a source.

    Raises:
        DataError: it holds none, or files of several kinds.
    """
    if is_saved_dataset(source):
        return saved_rows(source)
    shown, files = shown_location(source), data_files(source, SUFFIXES)
    kinds = sorted({file.suffix for file in files})
    if len(kinds) != 1:
        problem = f"holds {' and '.join(kinds)} files" if kinds else f"holds no {', '.join(SUFFIXES)} files"
        raise DataError(f"{shown}: {problem}; give files of one kind")
    if kinds[0] in DELIMITERS:
        return delimited_rows(shown, files, recipe.delimiter, recipe.header)
    if kinds[0] in JSON_SUFFIXES:
        return json_rows(shown, files)
    return parquet_rows(shown, files) if kinds[0] in PARQUET else shard_rows(shown, files)


def _samples(rows: Rows, encoder: RowEncoder) -> Iterator[Sample]:
    for row in rows.iterate(slice(None)):
        for number, arrays in enumerate(encoder.arrays(row)):
            yield Sample(f"{row.name}[{number}]", arrays)


def _batches(rows: Rows, encoder: RowEncoder, size: int) -> Iterator[Sample]:
    """Yield batches of rows, named after the first of them; the last one may have fewer."""
    iterator = rows.iterate(slice(None))
    while chosen := list(islice(iterator, size)):
        yield Sample(chosen[0].name, _stacked([next(encoder.arrays(row)) for row in chosen]))


def _stacked(samples: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([arrays[name] for arrays in samples]) for name in samples[0]}
