"""Samples from rows: CSV, JSON lines and Parquet.

Each format of file gives rows with named values; columns of a row become the arrays of a model's inputs.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as of_field
from itertools import islice
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ....profiles.base.errors import ConfigError, DataError, nearest
from ....profiles.base.extras import library
from ....profiles.base.findings import Code, Finding
from ....profiles.samples.batches import has_batch, in_batches
from ....profiles.samples.constants import Constants, checked_names, constant_arrays
from ....profiles.samples.images import image_encoder
from ....profiles.samples.preprocessing import Preprocessing, recipe_of
from ....profiles.samples.registry import TABLE_SUFFIXES, reader_called
from ....profiles.samples.storage import (
    DataFile,
    data_files,
    is_url,
    shown_location,
)
from ....profiles.samples.values import InputSpec, Original, Sample, Samples, type_text, with_leading_axes


class Row(NamedTuple):
    """A row."""

    where: str
    name: str
    values: Mapping[str, object]  # None where one is missing


@dataclass(frozen=True)
class Rows:
    """Rows that are read one at a time."""

    source: str
    columns: tuple[str, ...]  # () if every row has its own
    total: int | None
    iterate: Callable[[slice], Iterator[Row]]


# Rows of CSV files: text in every cell, the names of the columns in the first line.

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""By ending of the file."""


def _delimited_rows(source: str, files: Sequence[DataFile], delimiter: str, header: Sequence[str]) -> Rows:
    """Return the rows of CSV files, which have the same columns; `header` names them if the files do not."""
    delimiter = delimiter or DELIMITERS[files[0].suffix]
    columns = tuple(header) or _header_line(files[0], delimiter)
    for file in files[1:]:
        if (other := tuple(header) or _header_line(file, delimiter)) != columns:
            raise DataError(
                f"{file}: has the columns {', '.join(other)}, and {files[0]} has {', '.join(columns)}; give "
                "files of one kind"
            )

    def every_row() -> Iterator[Row]:
        for file in files:
            for line, cells in islice(_delimited_cells(file, delimiter), 0 if header else 1, None):
                where = f"{file}: line {line}"
                if len(cells) != len(columns):
                    raise DataError(
                        f"{where}: has {len(cells)} cells, and there are {len(columns)} columns; correct the "
                        "line, or set delimiter in the recipe"
                    )
                yield Row(where, f"{file.name}:{line}", dict(zip(columns, cells, strict=True)))

    total = None if any(is_url(file.location) for file in files) else sum(1 for _ in every_row())
    return Rows(source, columns, total, lambda part: islice(every_row(), part.start, part.stop, part.step))


def _header_line(file: DataFile, delimiter: str) -> tuple[str, ...]:
    """Return the names of the columns in the first line of a CSV file."""
    _, cells = next(_delimited_cells(file, delimiter), (0, None))
    if cells is None:
        raise DataError(f"{file}: is empty; the first line names the columns")
    names = tuple(name.strip() for name in cells)
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        numbers = []
    # Whole numbers that count up may be names of columns; other numbers are a row.
    if numbers and [number - numbers[0] for number in numbers] != list(range(len(numbers))):
        raise DataError(
            f"{file}: line 1: must name the columns, but contains the numbers {', '.join(names[:4])}; write "
            "names above them, or give them as header: [NAME, ...] in a recipe with reader: table"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{file}: line 1: has column '{twice}' twice; rename one")
    return names


def _delimited_cells(file: DataFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line that has some, with the number of the line at its end."""
    with io.TextIOWrapper(file.open(), encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            raise DataError(
                f"{file}: line {reader.line_num}: is not CSV ({error}); correct the line"
            ) from None
        except UnicodeDecodeError as error:
            raise DataError(
                f"{file}: after line {reader.line_num}: is not UTF-8 text ({error.reason}); write it as UTF-8"
            ) from None


# Rows of `.jsonl` files: one JSON object a line.

JSON_SUFFIXES = (".jsonl", ".ndjson")


def _json_rows(source: str, files: Sequence[DataFile]) -> Rows:
    """Return the objects of files of JSON lines; empty lines are skipped."""

    def iterate(part: slice) -> Iterator[Row]:
        lines = ((file, number, line) for file in files for number, line in file.lines())
        for file, number, line in islice(lines, part.start, part.stop, part.step):
            where = f"{file}: line {number}"
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: is not JSON ({error}); write one object a line") from None
            if not isinstance(row, dict):
                raise DataError(
                    f'{where}: is not a JSON object; write one object a line, as {{"text": "..."}}'
                )
            yield Row(where, f"{file.name}:{number}", row)

    is_remote = any(is_url(file.location) for file in files)
    return Rows(source, (), None if is_remote else sum(1 for f in files for _ in f.lines()), iterate)


# Rows of Parquet files, read by pyarrow.

BATCH_ROWS = 64
"""Rows of a Parquet file that are unpacked at a time."""


def _parquet_rows(source: str, files: Sequence[DataFile]) -> Rows:
    """Return the rows of Parquet files, which have the same columns; only the row groups needed are read."""
    parquet = library("pyarrow.parquet", source, "tables")
    groups: list[tuple[DataFile, Any, int, range]] = []  # with its number in the file, and its rows
    columns, total = None, 0
    for file in files:
        with _readable_arrow(file), file.open() as stream, parquet.ParquetFile(stream) as table:
            metadata, names = table.metadata, tuple(table.schema_arrow.names)
        if columns not in (None, names):
            raise DataError(f"{file}: has other columns than {files[0]}; give files of one kind")
        columns = names
        for number in range(metadata.num_row_groups):
            rows = range(total, total + metadata.row_group(number).num_rows)
            groups.append((file, metadata, number, rows))
            total = rows.stop

    def iterate(part: slice) -> Iterator[Row]:
        wanted = range(total)[part]
        for file, metadata, number, rows in groups:
            if not any(at in wanted for at in rows):
                continue
            file_start = next(first.start for other, _, _, first in groups if other == file)
            with (
                _readable_arrow(file),
                file.open() as stream,
                parquet.ParquetFile(stream, metadata=metadata) as table,
            ):
                start = rows.start
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[number]):
                    yield from _rows_of_batch(batch, file, file_start, start, wanted)
                    start += batch.num_rows

    return Rows(source, columns or (), total, iterate)


def _rows_of_batch(batch: Any, file: DataFile, file_start: int, start: int, wanted: range) -> Iterator[Row]:
    """Yield the wanted rows of an arrow batch; numbers count all rows of all files."""
    for index in range(batch.num_rows):
        if start + index in wanted:
            number = start + index - file_start + 1
            values = {
                name: _arrow_value(column[index])
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            yield Row(f"{file}: row {number}", f"{file.name}:{number}", values)


def _arrow_value(scalar: Any) -> object:
    """Return a value: a list of numbers as an array, and of a stored file its bytes."""
    values = getattr(scalar, "values", None)  # of a struct it is a method
    if values is not None and not callable(values) and values.type.num_fields == 0 and not values.null_count:
        return np.array(values.to_numpy(zero_copy_only=False))  # none of the file, which is closed
    value = scalar.as_py()
    if isinstance(value, dict) and value.keys() == {"bytes", "path"}:
        return value["bytes"] if value["bytes"] is not None else value["path"]
    return value


@contextmanager
def _readable_arrow(file: DataFile) -> Iterator[None]:
    """Turn the errors of pyarrow on a damaged file into a DataError."""
    arrow = library("pyarrow", str(file), "tables")
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError, MemoryError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{file}: is broken or cannot be read ({line}); write the file again") from error


# Columns of a row as the arrays of a model's inputs: numbers, text, and lists of numbers.

Arrays = dict[str, npt.NDArray[Any]]

MISSING_CELLS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Cells of a CSV file, in lower case, that hold no number."""
ALL = "all"
"""Stands for all columns of a table that no other key takes."""
MAX_LISTED_COLUMNS = 12
"""Columns that a message lists at most."""

Scaling = dict[str, float] | list[float]
"""Numbers of columns, by their names, or in the order of the columns of the input that takes several."""


@dataclass(frozen=True)
class TableRecipe:
    """How the columns of a row become the inputs of a model.

    Attributes:
        columns: for inputs without a column of their name, NAME: COLUMN, [COLUMN, ...] or all
        exclude: [COLUMN, ...] that no input takes: ids, dates, other answers
        label: column of the true class, which is not an input; --labels FILE:COLUMN reads it
        mean: numbers to subtract: {COLUMN: NUMBER}, or a list for the columns
        std: numbers to divide by: {COLUMN: NUMBER}, or a list for the columns
        delimiter: one character: the separator of the cells of a CSV file
        header: names of the columns of a CSV file without a header line
    """

    columns: Mapping[str, str | list[str]] = of_field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    label: str = ""
    mean: Scaling = of_field(default_factory=dict)
    std: Scaling = of_field(default_factory=dict)
    delimiter: Annotated[str, Meta(max_length=1)] = ""
    header: tuple[str, ...] = ()
    constants: Constants = of_field(default_factory=dict)


@dataclass(frozen=True)
class RowEncoder:
    """Makes samples of rows."""

    arrays: Callable[[Row], Iterator[Arrays]]
    single: bool = True
    findings: tuple[Finding, ...] = ()
    original: Callable[[Row], Original] | None = None

    def originals(self, row: Row) -> tuple[Original, ...]:
        """Return the original of a row."""
        return () if self.original is None else (self.original(row),)


def _table_encoder(
    preprocessing: Preprocessing, recipe: TableRecipe, inputs: Sequence[InputSpec], rows: Rows, first: Row
) -> RowEncoder:
    """Return an encoder of the numbers and text of a row into arrays, each a batch of one."""
    where, source = preprocessing.name or "--preprocess", rows.source
    every = list(rows.columns or first.values)
    names = [name for name in every if name not in (recipe.label, preprocessing.label, *recipe.exclude)]
    for column in recipe.exclude:
        if column not in every:
            raise ConfigError(
                f"{where}: exclude: {source} has no column '{column}'; it has {_listed(every)}."
                f"{nearest(column, every)}"
            )
    constants = constant_arrays(where, recipe.constants, inputs)
    specs = [spec for spec in inputs if spec.name not in constants]
    checked_names(f"{where}: columns", recipe.columns, [spec.name for spec in specs])
    assumed = {
        spec: _usual_columns(source, spec, specs, first, names)
        for spec in specs
        if spec.name not in recipe.columns
    }
    stated = {
        name: list(names) if columns == ALL and ALL not in names else columns
        for name, columns in recipe.columns.items()
    }
    columns_of = {**stated, **{spec.name: columns for spec, columns in assumed.items()}}
    for input_name, columns in stated.items():
        for column in _as_list(columns):
            if column not in names:
                raise ConfigError(
                    f"{where}: columns: {input_name}: {source} has no column '{column}'; name one of "
                    f"{_listed(names)}.{nearest(column, names)}"
                )
    scaling = _scaling(where, recipe, specs, columns_of)

    def scaled(column: str, value: Any) -> Any:
        if column not in scaling:
            return value
        mean, std = scaling[column]
        return (np.asarray(value, np.float64) - mean) / std

    def array(row: Row, spec: InputSpec) -> npt.NDArray[Any]:
        columns = columns_of[spec.name]
        if isinstance(columns, list):
            values = np.array([scaled(name, _cell_value(row, name, spec)) for name in columns], spec.dtype)
        else:
            values = np.asarray(scaled(columns, _column_array(row, columns, spec)), spec.dtype)
        return with_leading_axes(values, spec)

    def arrays(row: Row) -> Iterator[Arrays]:
        yield {**{spec.name: array(row, spec) for spec in specs}, **constants}

    used = list(dict.fromkeys(name for spec in specs for name in _as_list(columns_of[spec.name])))

    def original(row: Row) -> Original:
        values = ((name, row.values.get(name)) for name in used)
        return Original("", ", ".join(f"{n} {v}" for n, v in values if isinstance(v, str | int | float)))

    findings = tuple(_assumptions(source, assumed))
    return RowEncoder(arrays, findings=findings, original=original)


def _usual_columns(
    source: str, spec: InputSpec, specs: Sequence[InputSpec], first: Row, names: Sequence[str]
) -> str | list[str]:
    """Return the column with the name of an input, or, for the only input, all of as many as it takes."""
    if spec.name in names:
        return spec.name
    arrays = [name for name in names if isinstance(first.values.get(name), np.ndarray | list)]
    if len(specs) == 1 and len(arrays) == 1:
        return arrays[0]
    if len(specs) == 1 and spec.shape and len(names) == spec.shape[-1]:
        return list(names)
    lines = f"'columns: {{{spec.name}: [COLUMN, ...]}}'"
    size = spec.shape[-1] if spec.shape and len(specs) == 1 else None
    if isinstance(size, int) and len(names) > size:
        # Numbers of rows, dates and answers are no decimal fractions.
        odd = [name for name in names if "." not in str(first.values.get(name))]
        exclude = ", ".join(odd if len(odd) == len(names) - size else ["COLUMN, ..."])
        lines = f"'exclude: [{exclude}]'"
    raise ConfigError(
        f"{source}: which columns belong to input '{spec.name}' ({spec})? Write the lines 'reader: table' "
        f"and {lines} into recipe.yaml, and give --preprocess recipe.yaml; there are {_listed(names)}"
    )


def _scaling(
    where: str, recipe: TableRecipe, specs: Sequence[InputSpec], columns_of: Mapping[str, str | list[str]]
) -> dict[str, tuple[float, float]]:
    """Return mean and standard deviation of the columns that are scaled, which is done in float64."""
    means = _by_column(f"{where}: mean", recipe.mean, columns_of)
    stds = _by_column(f"{where}: std", recipe.std, columns_of)
    scaling = {name: (means.get(name, 0.0), stds.get(name, 1.0)) for name in sorted({*means, *stds})}
    for spec in specs:
        scaled = sorted(scaling.keys() & set(_as_list(columns_of[spec.name])))
        if scaled and spec.dtype.kind != "f":
            raise ConfigError(
                f"{where}: mean and std: input '{spec.name}' takes {type_text(spec.dtype)}, but column "
                f"'{scaled[0]}' is float after scaling; leave it out"
            )
    for name, (mean, std) in scaling.items():
        if not math.isfinite(mean) or not math.isfinite(std) or std == 0.0:
            raise ConfigError(
                f"{where}: column '{name}': mean {mean:g} and std {std:g} scale nothing; correct them"
            )
    return scaling


def _by_column(where: str, numbers: Scaling, columns_of: Mapping[str, str | list[str]]) -> dict[str, float]:
    every = [name for columns in columns_of.values() for name in _as_list(columns)]
    if isinstance(numbers, dict):
        for name in numbers:
            if name not in every:
                raise ConfigError(
                    f"{where}: '{name}' is not a column of an input; name one of {_listed(every)}."
                    f"{nearest(name, every)}"
                )
        return numbers
    lists = [columns for columns in columns_of.values() if isinstance(columns, list)]
    columns = lists[0] if len(lists) == 1 else every
    if len(numbers) != len(columns):
        raise ConfigError(f"{where}: {len(numbers)} numbers for {len(columns)} columns; give one for each")
    return dict(zip(columns, numbers, strict=True))


def _assumptions(source: str, assumed: Mapping[InputSpec, str | list[str]]) -> Iterator[Finding]:
    """Yield the assumptions about columns; all columns named like their input are one finding."""
    sentences = []
    for spec, columns in assumed.items():
        if columns != spec.name:
            listed = _listed(_as_list(columns))
            sentences.append(f"columns {listed} go to input '{spec.name}' as {type_text(spec.dtype)}")
    if by_name := [spec.name for spec, columns in assumed.items() if columns == spec.name]:
        sentences.append(f"columns {_listed(by_name)} go to the inputs of their names")
    for sentence in sentences:
        remedy = "columns in a recipe choose others, and mean and std scale them"
        yield Finding(Code.READING_ASSUMED, f"{source}: {sentence}", source, remedy=remedy)


def _as_list(columns: str | list[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else columns


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED_COLUMNS} more" if len(names) > MAX_LISTED_COLUMNS else ""
    return ", ".join(names[:MAX_LISTED_COLUMNS]) + more if names else "none"


def _column_array(row: Row, column: str, spec: InputSpec) -> npt.NDArray[Any]:
    """Return the value of a column as an array, if no value changes except by rounding to a float type."""
    value = row.values.get(column)
    if not isinstance(value, np.ndarray | list):
        scalar = np.array(_cell_value(row, column, spec), spec.dtype)
        return scalar if spec.shape is None else scalar.reshape((1,) * len(spec.shape))
    where = f"{row.where}: column '{column}'"
    try:
        array = np.asarray(value)
    except ValueError:
        raise DataError(f"{where}: contains lists of different lengths; make them equal") from None
    if spec.dtype.kind == "O" and array.dtype.kind in "OU":
        return array.astype(object)
    if array.dtype == spec.dtype:
        return array
    if array.dtype.kind not in "biuf" or spec.dtype.kind == "O":
        held = "text" if array.dtype.kind in "OSU" else type_text(array.dtype)
        raise DataError(f"{where}: contains {held}, expected {type_text(spec.dtype)}; convert it")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise DataError(f"{where}: a value is missing (NaN); fill it, or remove the row")
    with np.errstate(all="ignore"):
        cast = array.astype(spec.dtype)
    if spec.dtype.kind in "biu" and not np.array_equal(cast, array):
        raise DataError(f"{where}: contains values that are not {type_text(spec.dtype)}; convert them")
    return cast


def _cell_value(row: Row, column: str, spec: InputSpec) -> object:
    """Return the value of a cell for the type of an input: text, an integer, or a float."""
    where = f"{row.where}: column '{column}'"
    value = row.values.get(column)
    text = value.strip() if isinstance(value, str) else None
    if value is None or (text is not None and spec.dtype.kind != "O" and text.lower() in MISSING_CELLS):
        held = f" ('{value}')" if value else ""
        raise DataError(f"{where}: the value is missing{held}; fill it, or remove the row")
    if spec.dtype.kind == "O":
        if text is None:
            raise DataError(f"{where}: is {value!r}, but input '{spec.name}' is text; convert the column")
        return value
    number = value if text is None else _number(text)
    if isinstance(number, np.generic):
        number = number.item()
    if not isinstance(number, bool | int | float):
        is_decimal = text is not None and re.fullmatch(r"[+-]?[0-9]+,[0-9]+", text)
        remedy = "write it with a decimal point" if is_decimal else "correct the value"
        raise DataError(f"{where}: is {value!r:.40}, expected {type_text(spec.dtype)}; {remedy}")
    if isinstance(number, float) and math.isnan(number):
        raise DataError(f"{where}: the value is missing (NaN); fill it, or remove the row")
    if spec.dtype.kind not in "biu":
        return float(number)
    limits = None if spec.dtype.kind == "b" else np.iinfo(spec.dtype)
    low, high = (0, 1) if limits is None else (int(limits.min), int(limits.max))
    if not math.isfinite(number) or number != int(number) or not low <= number <= high:
        raise DataError(
            f"{where}: is {number:g}, and input '{spec.name}' takes {type_text(spec.dtype)}; correct the "
            "value, or name another column"
        )
    return int(number)


def _number(text: str) -> float | int | None:
    """Return the number that a text is, None for none."""
    if text.lower() in ("true", "false"):
        return int(text.lower() == "true")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


# What makes samples of rows: the recipe says what they hold, or the rows themselves do.


def _row_encoder(
    preprocessing: Preprocessing, recipe: TableRecipe, inputs: Sequence[InputSpec], rows: Rows
) -> RowEncoder:
    """Return an encoder that makes samples of rows, by the recipe and the first row."""
    first = next(rows.iterate(slice(0, 1)), None)
    if first is None:
        raise DataError(f"{rows.source}: contains no rows, so there are no samples")
    names = rows.columns or tuple(first.values)
    if preprocessing.reader == "text":
        text = reader_called("text").load(rows.source).text_encoder(preprocessing, inputs)

        def texts_of(row: Row) -> list[str]:
            field = text.recipe.field
            return [_text_field(row, name) for name in ([field] if isinstance(field, str) else field)]

        def tokens(row: Row) -> Iterator[Arrays]:
            yield text.arrays(row.where, *texts_of(row))

        return RowEncoder(
            tokens,
            findings=text.findings,
            original=lambda row: text.original("\t".join(texts_of(row))),
        )
    if preprocessing.reader == "audio":
        audio = reader_called("audio").load(rows.source).audio_encoder(preprocessing, inputs)
        column = _file_column("audio", audio.recipe.column, rows, names, first)
        return RowEncoder(
            lambda row: audio.arrays(row.where, _file_content(row, column)),
            audio.window is None,
            audio.findings,
        )
    if preprocessing.reader == "image":
        images = image_encoder(preprocessing, inputs)
        column = _file_column("image", images.recipe.column, rows, names, first)
        sentence = f"{rows.source}: column '{column}', each picture as {images.description()}"
        assumed = Finding(Code.READING_ASSUMED, sentence, rows.source)

        def pixels(row: Row) -> Iterator[Arrays]:
            yield images.arrays(io.BytesIO(_file_content(row, column)), row.where)

        return RowEncoder(
            pixels,
            findings=(assumed,),
            original=lambda row: images.original(lambda: _file_content(row, column), row.where),
        )
    return _table_encoder(preprocessing, recipe, inputs, rows, first)


def _text_field(row: Row, name: str) -> str:
    """Return the text in a field of a row."""
    value = row.values.get(name)
    if isinstance(value, str):
        return value
    held = ", ".join(f"'{key}'" for key in row.values) or "nothing"
    problem = f"field '{name}' is not a text" if name in row.values else f"has no field '{name}', only {held}"
    raise DataError(f"{row.where}: {problem}; name the field with the text in a recipe, as field: sentence")


def _file_column(kind: str, column: str, rows: Rows, names: Sequence[str], first: Row) -> str:
    """Return the column of pictures or recordings: the one of the recipe, or the only one with bytes."""
    held = [name for name in names if isinstance(first.values.get(name), bytes)]
    candidates = [column] if column in names else held
    if len(candidates) != 1 or (column and column not in names):
        raise ConfigError(
            f"{rows.source}: which column contains the {kind}? Name it in the recipe, as column: {kind}; "
            f"there are {', '.join(names)}"
        )
    return candidates[0]


def _file_content(row: Row, column: str) -> bytes:
    """Return the content of the file in a column."""
    value: object = row.values.get(column)
    if isinstance(value, Mapping):
        value = value.get("bytes")
    if not isinstance(value, bytes):
        what = f"names the file {value}" if isinstance(value, str) else "contains no file"
        raise DataError(
            f"{row.where}: column '{column}' {what}; save the data set with the bytes of its files in it"
        )
    return value


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the rows of a file, or of a folder of files of one kind, each as a sample."""
    is_for_tables = preprocessing.reader in ("", "table")
    recipe = recipe_of(preprocessing, TableRecipe) if is_for_tables else TableRecipe()
    rows = _rows_in(source, recipe)
    encoder = _row_encoder(preprocessing, recipe, inputs, rows)

    def iterate(part: slice) -> Iterator[Sample]:
        if encoder.single:
            return (
                Sample(row.name, next(encoder.arrays(row)), originals=encoder.originals(row))
                for row in rows.iterate(part)
            )
        return islice(every_window(), part.start, part.stop, part.step)

    def every_window() -> Iterator[Sample]:
        for row in rows.iterate(slice(None)):
            for number, arrays in enumerate(encoder.arrays(row)):
                yield Sample(f"{row.name}[{number}]", arrays, step=number)

    total = rows.total if encoder.single else None
    samples = Samples(rows.source, total, iterate, True, encoder.findings)
    return in_batches(samples, inputs) if has_batch(inputs) else samples


def column_of(source: str, column: str) -> Iterator[object]:
    """Yield the values of a column of a table, in the order of its rows."""
    for row in _rows_in(source, TableRecipe()).iterate(slice(None)):
        if column not in row.values:
            raise DataError(
                f"{row.where}: there is no column '{column}'; name one of {_listed(tuple(row.values))}."
                f"{nearest(column, row.values)}"
            )
        yield row.values[column]


def _rows_in(source: str, recipe: TableRecipe) -> Rows:
    """Return the rows of a source; DataError without rows, or for files of several kinds."""
    shown, files = shown_location(source), data_files(source, TABLE_SUFFIXES)
    kinds = sorted({file.suffix for file in files})
    if len(kinds) != 1:
        problem = (
            f"contains {' and '.join(kinds)} files"
            if kinds
            else f"contains no {', '.join(TABLE_SUFFIXES)} files"
        )
        raise DataError(f"{shown}: {problem}; give files of one kind")
    if kinds[0] in DELIMITERS:
        return _delimited_rows(shown, files, recipe.delimiter, recipe.header)
    if kinds[0] in JSON_SUFFIXES:
        return _json_rows(shown, files)
    return _parquet_rows(shown, files)
