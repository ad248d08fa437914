"""Rows of Parquet files, and of a data set that the library `datasets` saved to disk; read by pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...base.errors import DataError
from ...storage.extras import library
from ...storage.files import DataFile, decoded, is_url, joined, local_path, shown_location
from .rows import Row, Rows

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
"""Files of a folder that `save_to_disk` wrote."""
BATCH_ROWS = 64
"""Rows of a Parquet file that are unpacked at a time."""
BINARY = {"Image": "image", "Audio": "audio"}
"""Features whose values hold the bytes of a file, and the recipe that reads them."""


def parquet_rows(source: str, files: Sequence[DataFile]) -> Rows:
    """Return the rows of Parquet files, which have the same columns; only the row groups needed are read.

    Args:
        source: that holds them, for messages.
        files: at least one.

    Raises:
        DataError: a file is broken, or has other columns.
        ConfigError: pyarrow is not installed.
    """
    parquet = library("pyarrow.parquet", source, "tables")
    sizes, columns = [], None
    for file in files:
        with _readable(file), file.open() as stream, parquet.ParquetFile(stream) as table:
            groups = [table.metadata.row_group(g).num_rows for g in range(table.metadata.num_row_groups)]
            names, kinds = tuple(table.schema_arrow.names), _features_in(table.schema_arrow)
        if columns not in (None, names):
            raise DataError(f"{file}: has other columns than {files[0]}; give files of one kind")
        columns = names
        sizes.append(groups)

    def iterate(part: slice) -> Iterator[Row]:
        wanted, start = range(sum(map(sum, sizes)))[part], 0
        for file, groups in zip(files, sizes, strict=True):
            if any(number in wanted for number in range(start, start + sum(groups))):
                yield from _rows_of_parquet(parquet, file, groups, start, wanted)
            start += sum(groups)

    return Rows(source, columns or (), sum(map(sum, sizes)), iterate, kinds)


def _rows_of_parquet(
    parquet: Any, file: DataFile, groups: Sequence[int], start: int, wanted: range
) -> Iterator[Row]:
    """Yield the wanted rows of a file whose first row has the number `start`."""
    with _readable(file), file.open() as stream, parquet.ParquetFile(stream) as table:
        before = start
        for group, rows in enumerate(groups):
            if any(number in wanted for number in range(before, before + rows)):
                at = before
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[group]):
                    yield from _rows_of_batch(batch, file, start, at, wanted)
                    at += batch.num_rows
            before += rows


def _rows_of_batch(batch: Any, file: DataFile, start: int, at: int, wanted: range) -> Iterator[Row]:
    for index in range(batch.num_rows):
        if at + index in wanted:
            number = at + index - start + 1
            values = {
                name: _value(column[index])
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            yield Row(f"{file}: row {number}", f"{file.name}:{number}", values)


def is_saved_dataset(source: str) -> bool:
    """Return whether a folder is one that `save_to_disk` of the library `datasets` wrote.

    Raises:
        DataError: a store does not answer.
    """
    from ...storage.files import is_file

    return any(is_file(joined(source, name).location) for name in (STATE, SPLITS))


def saved_rows(source: str) -> Rows:
    """Return the rows of a data set that the library `datasets` saved to disk.

    Args:
        source: the folder, or its URL.

    Raises:
        DataError: it holds several splits, or is broken.
        ConfigError: pyarrow is not installed.
    """
    from ...storage.files import is_file

    shown = shown_location(source)
    if not is_file(joined(source, STATE).location):
        splits = _json(joined(source, SPLITS)).get("splits")
        names = [str(name) for name in splits] if isinstance(splits, list) else []
        first = names[0] if names else "train"
        raise DataError(
            f"{shown}: holds the splits {', '.join(names)}; name one, as {shown.rstrip('/')}/{first}"
        )
    arrow = library("pyarrow", shown, "tables")
    library("pyarrow.ipc", shown, "tables")
    state = _json(joined(source, STATE))
    entries = state.get("_data_files")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{shown}: {STATE} names no files; save the data set again with save_to_disk")
    files = [joined(source, str(entry.get("filename"))) for entry in entries]
    features = _json(joined(source, INFO)).get("features")
    kinds = _features(features if isinstance(features, dict) else {})

    def iterate(part: slice) -> Iterator[Row]:
        at, stop = 0, part.stop
        for file in files:
            start = at
            for batch in _batches(arrow, file):
                if stop is not None and at >= stop:
                    return
                wanted = range(at + batch.num_rows)[part]
                yield from _rows_of_batch(batch, file, start, at, wanted)
                at += batch.num_rows

    columns = tuple(features) if isinstance(features, dict) else ()
    return Rows(shown, columns, None, iterate, kinds)


def _batches(arrow: Any, file: DataFile) -> Iterator[Any]:
    """Yield the batches of an arrow stream; of a local file only what is looked at is read."""
    with _readable(file):
        stream = file.open() if is_url(file.location) else arrow.memory_map(local_path(file.location))
        with stream, arrow.ipc.open_stream(stream) as reader:
            for batch in reader:
                batch.validate(full=True)  # offsets of a damaged file lead out of its memory
                yield batch


def _features(features: Mapping[str, object]) -> dict[str, str]:
    """Return the columns that hold files."""
    kinds = {name: feature.get("_type") for name, feature in features.items() if isinstance(feature, dict)}
    return {name: BINARY[kind] for name, kind in kinds.items() if isinstance(kind, str) and kind in BINARY}


def _features_in(schema: Any) -> dict[str, str]:
    """Return the columns that hold files, where the library `datasets` wrote the Parquet file."""
    metadata = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(metadata)["info"]["features"] if metadata else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return _features(features) if isinstance(features, dict) else {}


def _value(scalar: Any) -> object:
    """Return a value: a list of numbers as an array, and of a stored file its bytes."""
    values = getattr(scalar, "values", None)  # of a struct it is a method
    if values is not None and not callable(values) and values.type.num_fields == 0 and not values.null_count:
        return np.array(values.to_numpy(zero_copy_only=False))  # none of the file, which is closed
    value = scalar.as_py()
    if isinstance(value, dict) and value.keys() == {"bytes", "path"}:
        return value["bytes"] if value["bytes"] is not None else value["path"]
    return value


def _json(file: DataFile) -> dict[str, object]:
    try:
        document = json.loads(decoded(str(file), file.read()))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: is not JSON ({error}); save the data set again") from None
    if not isinstance(document, dict):
        raise DataError(f"{file}: holds no JSON object; save the data set again")
    return document


@contextmanager
def _readable(file: DataFile) -> Iterator[None]:
    """Turn what pyarrow raises on a damaged file into a DataError."""
    arrow = library("pyarrow", str(file), "tables")
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError, MemoryError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{file}: is broken or cannot be read ({line}); write the file again") from error
