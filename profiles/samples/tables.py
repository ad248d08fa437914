"""Samples from rows: CSV, JSON lines and Parquet, data sets on disk, tar shards."""

from __future__ import annotations

import csv
import io
import json
import math
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as of_field
from itertools import islice
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..base.errors import ConfigError, DataError, nearest
from ..base.extras import library
from .arrays import read_npy, read_npz
from .audio import SUFFIXES as AUDIO_SUFFIXES
from .audio import audio_encoder
from .batches import has_batch, in_batches
from .constants import Constants, checked_names, constant_arrays
from .image_recipes import image_recipe
from .images import SUFFIXES as IMAGE_SUFFIXES
from .images import ImageSamples
from .preprocessing import Preprocessing, recipe_of
from .storage import (
    DataFile,
    data_files,
    decoded,
    holds,
    is_folder,
    is_url,
    joined,
    local_path,
    place_of,
    shown_location,
)
from .text import text_encoder
from .values import ArrayHeader, InputSpec, Sample, Samples, type_text

# Rows with named values, whatever file they come from.


class Row(NamedTuple):
    """A row.

    Attributes:
        where: file and line, row or member; for messages.
        name: of the samples that are made of it.
        values: by column: numbers, text, bytes of a file, arrays; None where one is missing.
    """

    where: str
    name: str
    values: Mapping[str, object]


@dataclass(frozen=True)
class Rows:
    """Rows that are read one at a time.

    Attributes:
        source: where they come from, for messages.
        columns: their names, in order; () where every row has its own.
        total: number of rows, None where only iterating tells.
        iterate: gives some of the rows.
        binary: the columns that are known to hold files, with the recipe that reads them: image or audio.
    """

    source: str
    columns: tuple[str, ...]
    total: int | None
    iterate: Callable[[slice], Iterator[Row]]
    binary: Mapping[str, str]


# Columns of a row as the arrays of a model's inputs: numbers, text, and lists of numbers.

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Cells of a CSV file, in lower case, that hold no number."""
SHOWN = 12
"""Columns that a message lists at most."""


Scaling = dict[str, float] | list[float]
"""Numbers of columns, by their names, or in the order of the columns of the input that takes several."""


@dataclass(frozen=True)
class TableRecipe:
    """How the columns of a row become the inputs of a model."""

    columns: Annotated[
        Mapping[str, str | list[str]],
        Meta(description="for inputs that are not called like a column, NAME: COLUMN or [COLUMN, ...]"),
    ] = of_field(default_factory=dict)
    label: Annotated[
        str,
        Meta(description="column of the true class, which is no input; --labels FILE:COLUMN takes it"),
    ] = ""
    mean: Annotated[
        Scaling,
        Meta(description="numbers to subtract: {COLUMN: NUMBER}, or a list for the columns"),
    ] = of_field(default_factory=dict)
    std: Annotated[
        Scaling,
        Meta(description="numbers to divide by: {COLUMN: NUMBER}, or a list for the columns"),
    ] = of_field(default_factory=dict)
    rows: Annotated[int, Meta(ge=1, description="N from 1: rows that are run together, as one batch")] = 1
    delimiter: Annotated[
        str, Meta(max_length=1, description="one character: what parts the cells of a CSV file")
    ] = ""
    header: Annotated[
        tuple[str, ...], Meta(description="names of the columns of a CSV file without a line of them")
    ] = ()
    constants: Constants = of_field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Makes samples of rows.

    Attributes:
        specs: of the inputs that take columns.
        columns: of each of them; text for one whose value is the whole array, a list for several numbers.
        constants: of the other inputs.
        scaling: mean and standard deviation of columns, which are subtracted and divided by, in float64.
        notes: what was assumed.
    """

    specs: tuple[InputSpec, ...]
    columns: Mapping[str, str | list[str]]
    constants: Mapping[str, npt.NDArray[Any]]
    scaling: Mapping[str, tuple[float, float]]
    notes: tuple[str, ...] = ()

    def arrays(self, row: Row) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a row, each a batch of one.

        Raises:
            DataError: a value is missing, or is not of the input's type.
        """
        return {**{spec.name: self._array(row, spec) for spec in self.specs}, **self.constants}

    def _array(self, row: Row, spec: InputSpec) -> npt.NDArray[Any]:
        columns = self.columns[spec.name]
        if isinstance(columns, list):
            values = [self._scaled(column, _scalar(row, column, spec)) for column in columns]
            array = np.array(values, spec.dtype)
        else:
            array = np.asarray(self._scaled(columns, _whole(row, columns, spec)), spec.dtype)
        rank = array.ndim + 1 if spec.shape is None else len(spec.shape)
        return array.reshape((1,) * (rank - array.ndim) + array.shape)

    def _scaled(self, column: str, value: Any) -> Any:
        if column not in self.scaling:
            return value
        mean, std = self.scaling[column]
        return (np.asarray(value, np.float64) - mean) / std


def table_encoder(
    preprocessing: Preprocessing, inputs: Sequence[InputSpec], source: str, first: Row, names: Sequence[str]
) -> TableEncoder:
    """Return what makes samples of rows.

    Args:
        preprocessing: a recipe with `reader: table`, or nothing.
        inputs: of the model.
        source: that holds the rows, for messages.
        first: one of the rows.
        names: of the columns, in order.

    Raises:
        ConfigError: the recipe names what is no input or no column, or leaves an input without columns.
    """
    recipe, where = recipe_of(preprocessing, TableRecipe), preprocessing.name or "--preprocess"
    names = [name for name in names if name != recipe.label]
    constants = constant_arrays(where, recipe.constants, inputs)
    specs = tuple(spec for spec in inputs if spec.name not in constants)
    checked_names(f"{where}: columns", recipe.columns, [spec.name for spec in specs])
    assumed = {
        spec: _usual_columns(source, spec, specs, first, names)
        for spec in specs
        if spec.name not in recipe.columns
    }
    chosen = {**recipe.columns, **{spec.name: columns for spec, columns in assumed.items()}}
    for input_name, columns in recipe.columns.items():
        for column in [columns] if isinstance(columns, str) else columns:
            if column not in names:
                raise ConfigError(
                    f"{where}: columns: {input_name}: {source} has no column '{column}'; name one of "
                    f"{_listed(names)}.{nearest(column, names)}"
                )
    return TableEncoder(
        specs, chosen, constants, _scaling(where, recipe, specs, chosen), _notes(source, assumed)
    )


def _scaling(
    where: str, recipe: TableRecipe, specs: Sequence[InputSpec], chosen: Mapping[str, str | list[str]]
) -> dict[str, tuple[float, float]]:
    """Return mean and standard deviation of the columns that are scaled.

    Raises:
        ConfigError: there are not as many numbers as columns, or there is no such column; a number to divide
            by is 0 or none; an input takes whole numbers.
    """
    numbers = {key: _by_column(f"{where}: {key}", getattr(recipe, key), chosen) for key in ("mean", "std")}
    scaled = numbers["mean"].keys() | numbers["std"].keys()
    for spec in specs:
        columns = chosen[spec.name]
        both = scaled & set([columns] if isinstance(columns, str) else columns)
        if both and spec.dtype.kind != "f":
            raise ConfigError(
                f"{where}: mean and std: input '{spec.name}' takes {type_text(spec.dtype)}, and column "
                f"'{min(both)}' scaled is none; leave it out"
            )
    found = {name: (numbers["mean"].get(name, 0.0), numbers["std"].get(name, 1.0)) for name in sorted(scaled)}
    for name, (mean, std) in found.items():
        if not math.isfinite(mean) or not math.isfinite(std) or std == 0.0:
            raise ConfigError(
                f"{where}: column '{name}': mean {mean:g} and std {std:g} scale nothing; correct them"
            )
    return found


def _by_column(where: str, given: Scaling, chosen: Mapping[str, str | list[str]]) -> dict[str, float]:
    several = [columns for columns in chosen.values() if isinstance(columns, list)]
    known = [
        name for columns in chosen.values() for name in ([columns] if isinstance(columns, str) else columns)
    ]
    if isinstance(given, dict):
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"{where}: '{name}' is no column of an input; name one of {_listed(known)}."
                    f"{nearest(name, known)}"
                )
        return given
    columns = several[0] if len(several) == 1 else known
    if len(given) != len(columns):
        raise ConfigError(f"{where}: {len(given)} numbers for {len(columns)} columns; give one for each")
    return dict(zip(columns, given, strict=True))


def _usual_columns(
    source: str, spec: InputSpec, specs: Sequence[InputSpec], first: Row, names: Sequence[str]
) -> str | list[str]:
    """Return the column with the name of an input, or, for the only input, all of as many as it takes."""
    if spec.name in names:
        return spec.name
    arrays = [name for name in names if isinstance(first.values.get(name), np.ndarray | list)]
    size = spec.shape[-1] if spec.shape else None
    if len(specs) == 1 and len(arrays) == 1:
        return arrays[0]
    if len(specs) == 1 and not arrays and size == len(names):
        return list(names)
    more = len(specs) == 1 and not arrays and size == len(names) - 1
    advice = f", or the one that is the answer as label: {names[-1]}" if more else ""
    raise ConfigError(
        f"{source}: which columns does input '{spec.name}' ({spec}) take? Name them in a recipe with "
        f"reader: table, as columns: {{{spec.name}: [{', '.join(names[:2])}]}}{advice}; there are "
        f"{_listed(names)}"
    )


def _notes(source: str, assumed: Mapping[InputSpec, str | list[str]]) -> tuple[str, ...]:
    """Return what was assumed of columns, those that are called like their input in one note."""
    advice = "columns in a recipe choose others"
    by_name = [spec for spec, columns in assumed.items() if columns == spec.name]
    said = [
        f"{_counted([columns] if isinstance(columns, str) else columns)} to input '{spec.name}' as "
        f"{type_text(spec.dtype)}"
        for spec, columns in assumed.items()
        if spec not in by_name
    ]
    if by_name:
        types = sorted({type_text(spec.dtype) for spec in by_name})
        names = _listed([spec.name for spec in by_name])
        said.append(f"columns {names} go to the inputs of their names as {' or '.join(types)}")
    return tuple(f"{source}: {text}; {advice}" for text in said)


def _counted(columns: Sequence[str]) -> str:
    """Return which columns go, of many the first and the last."""
    if len(columns) > FEW:
        return f"{len(columns)} columns, {columns[0]} to {columns[-1]}, go"
    return f"columns {', '.join(columns)} go" if len(columns) > 1 else f"column {columns[0]} goes"


FEW = 4
"""Columns that are all named in a note."""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more if names else "none"


def _whole(row: Row, column: str, spec: InputSpec) -> npt.NDArray[Any]:
    """Return the value of a column as an array; a scalar has as many dimensions as the input."""
    value = row.values.get(column)
    if not isinstance(value, np.ndarray | list):
        scalar = np.array(_scalar(row, column, spec), spec.dtype)
        return scalar if spec.shape is None else scalar.reshape((1,) * len(spec.shape))
    where = f"{row.where}: column '{column}'"
    try:
        array = np.asarray(value)
    except ValueError:
        raise DataError(f"{where}: holds lists of different lengths; make them equal") from None
    return _cast(where, array, spec)


def _cast(where: str, array: npt.NDArray[Any], spec: InputSpec) -> npt.NDArray[Any]:
    """Return an array in the type of an input, if no value changes but for rounding to a float type."""
    if spec.dtype.kind == "O" and array.dtype.kind in "OU":
        return array.astype(object)
    if array.dtype == spec.dtype:
        return array
    if array.dtype.kind not in "biuf" or spec.dtype.kind == "O":
        held = "text" if array.dtype.kind in "OSU" else type_text(array.dtype)
        raise DataError(f"{where}: holds {held}, expected {type_text(spec.dtype)}; convert it")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise DataError(f"{where}: a value is missing (NaN); fill it, or remove the row")
    with np.errstate(all="ignore"):
        cast = array.astype(spec.dtype)
    if spec.dtype.kind in "biu" and not np.array_equal(cast, array):
        raise DataError(f"{where}: holds values that are no {type_text(spec.dtype)}; convert them")
    return cast


def _scalar(row: Row, column: str, spec: InputSpec) -> object:
    """Return the value of a cell as the type of an input takes it.

    Raises:
        DataError: it is missing, or of another type.
    """
    where = f"{row.where}: column '{column}'"
    value = row.values.get(column)
    text = value.strip() if isinstance(value, str) else None
    if value is None or (text is not None and spec.dtype.kind != "O" and text.lower() in MISSING):
        held = f" ('{value}')" if value else ""
        raise DataError(f"{where}: the value is missing{held}; fill it, or remove the row")
    if spec.dtype.kind == "O":
        if text is None:
            raise DataError(f"{where}: is {value!r}, and input '{spec.name}' takes text; convert the column")
        return value
    number = value if text is None else _number(text)
    if isinstance(number, np.generic):
        number = number.item()
    if not isinstance(number, bool | int | float):
        raise DataError(f"{where}: is {_short(value)}, expected {type_text(spec.dtype)}; correct the value")
    if isinstance(number, float) and math.isnan(number):
        raise DataError(f"{where}: the value is missing (NaN); fill it, or remove the row")
    return _fitting(where, number, spec)


def _fitting(where: str, number: bool | int | float, spec: InputSpec) -> object:
    """Return a number as an integer where the input takes integers."""
    if spec.dtype.kind not in "biu":
        return float(number)
    whole = math.isfinite(number) and number == int(number)
    limits = None if spec.dtype.kind == "b" else np.iinfo(spec.dtype)
    low, high = (0, 1) if limits is None else (int(limits.min), int(limits.max))
    if not whole or not low <= number <= high:
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


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


# What makes samples of rows: the recipe says what they hold, or the rows themselves do.

Arrays = dict[str, npt.NDArray[Any]]
SUFFIXES_BY_KIND = {"image": IMAGE_SUFFIXES, "audio": AUDIO_SUFFIXES}
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

        def tokens(row: Row) -> Iterator[Arrays]:
            values = row.values
            if text.recipe.field == "text" and "text" not in values and "txt" in values:
                values = {"text": values["txt"]}
            yield text.arrays(row.where, *text.texts(row.where, values))

        return RowEncoder(tokens, notes=text.notes)
    if preprocessing.reader == "audio":
        audio = audio_encoder(preprocessing, inputs)
        column = _file_column("audio", audio.recipe.column, rows, names, first)

        def windows(row: Row) -> Iterator[Arrays]:
            return audio.arrays(row.where, _content(row, column))

        return RowEncoder(windows, audio.window is None, audio.notes)
    if preprocessing.reader == "image":
        images = ImageSamples(inputs, preprocessing)
        column = _file_column("image", image_recipe(preprocessing).column, rows, names, first)
        note = f"{rows.source}: column '{column}', each picture as {images.description()}"

        def pixels(row: Row) -> Iterator[Arrays]:
            yield dict(images.sample(row.name, io.BytesIO(_content(row, column)), row.where).arrays)

        return RowEncoder(pixels, notes=(note,))
    table = table_encoder(preprocessing, inputs, rows.source, first, names)
    return RowEncoder(lambda row: iter([table.arrays(row)]), notes=table.notes)


def _file_column(kind: str, wanted: str, rows: Rows, names: Sequence[str], first: Row) -> str:
    """Return the column that holds pictures or recordings.

    Raises:
        ConfigError: there is none, or several and none of them is named.
    """
    known = [name for name in names if rows.binary.get(name) == kind]
    ending = [name for name in names if f".{name.rpartition('.')[2].lower()}" in SUFFIXES_BY_KIND[kind]]
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


# Rows of CSV files: text in every cell, the names of the columns in the first line.

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""By ending of the file."""


def delimited_rows(source: str, files: Sequence[DataFile], delimiter: str, header: Sequence[str]) -> Rows:
    """Return the rows of CSV files, which have the same columns.

    Args:
        source: that holds them, for messages.
        files: at least one.
        delimiter: between cells; "" for that of the ending.
        header: names of the columns where the files do not begin with them.

    Raises:
        DataError: a file is empty, not CSV, or has other columns. While iterating: a row has more or fewer
            cells.
    """
    columns = _columns(files[0], delimiter, header)
    for file in files[1:]:
        if (other := _columns(file, delimiter, header)) != columns:
            raise DataError(
                f"{file}: has the columns {', '.join(other)}, and {files[0]} has {', '.join(columns)}; give "
                "files of one kind"
            )

    def iterate(part: slice) -> Iterator[Row]:
        cells = (
            row for file in files for row in _delimited_file_rows(file, columns, delimiter, bool(header))
        )
        return islice(cells, part.start, part.stop, part.step)

    total = None if any(is_url(file.location) for file in files) else sum(1 for _ in iterate(slice(None)))
    return Rows(source, columns, total, iterate, {})


def _columns(file: DataFile, delimiter: str, header: Sequence[str]) -> tuple[str, ...]:
    if header:
        return tuple(header)
    first = next(_delimited_cells(file, delimiter), None)
    if first is None:
        raise DataError(f"{file}: is empty; the first line names the columns")
    names = tuple(name.strip() for name in first[1])
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{file}: line 1: has column '{twice}' twice; rename one")
    if _is_data(names):
        raise DataError(
            f"{file}: line 1: names the columns, and holds the numbers {', '.join(names[:4])}; write names "
            "above them, or give them as header: [NAME, ...] in a recipe with reader: table"
        )
    if not delimiter and len(names) == 1 and any(mark in names[0] for mark in ";|\t"):
        raise DataError(
            f"{file}: has one column only, '{names[0]}'; set delimiter in a recipe with reader: table"
        )
    return names


def _is_data(names: Sequence[str]) -> bool:
    """Return whether a first line is one of numbers; whole ones that count up may be names of columns."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return [number - numbers[0] for number in numbers] != list(range(len(numbers)))


def _delimited_file_rows(
    file: DataFile, columns: Sequence[str], delimiter: str, has_no_header: bool
) -> Iterator[Row]:
    for line, cells in islice(_delimited_cells(file, delimiter), 0 if has_no_header else 1, None):
        where = f"{file}: line {line}"
        if len(cells) != len(columns):
            raise DataError(
                f"{where}: has {len(cells)} cells, and there are {len(columns)} columns; correct the line, "
                "or set delimiter in the recipe"
            )
        yield Row(where, f"{file.name}:{line}", dict(zip(columns, cells, strict=True)))


def _delimited_cells(file: DataFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line that has some, with the number of the line at its end."""
    with io.TextIOWrapper(file.open(), encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter or DELIMITERS.get(file.suffix, ","), strict=True)
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


def json_rows(source: str, files: Sequence[DataFile]) -> Rows:
    """Return the objects of files of JSON lines; empty lines are passed over.

    Args:
        source: that holds them, for messages.
        files: at least one.

    Raises:
        DataError: while iterating: a line is not UTF-8 or no JSON object.
    """

    def iterate(part: slice) -> Iterator[Row]:
        lines = ((file, number, line) for file in files for number, line in _lines(file))
        for file, number, line in islice(lines, part.start, part.stop, part.step):
            where = f"{file}: line {number}"
            yield Row(where, f"{file.name}:{number}", _object(where, line))

    remote = any(is_url(file.location) for file in files)
    total = None if remote else sum(1 for file in files for _ in _lines(file))
    return Rows(source, (), total, iterate, {})


def _lines(file: DataFile) -> Iterator[tuple[int, bytes]]:
    with file.open() as stream:
        yield from ((number, line) for number, line in enumerate(stream, 1) if line.strip())


def _object(where: str, line: bytes) -> dict[str, object]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: is not JSON ({error}); write one object a line") from None
    if not isinstance(row, dict):
        raise DataError(f'{where}: is no JSON object; write one object a line, as {{"text": "..."}}')
    return row


# Rows of Parquet files, and of a data set that the library `datasets` saved to disk; read by pyarrow.

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
        with _readable_parquet(file), file.open() as stream, parquet.ParquetFile(stream) as table:
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
    with _readable_parquet(file), file.open() as stream, parquet.ParquetFile(stream) as table:
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
    from .storage import is_file

    return any(is_file(joined(source, name).location) for name in (STATE, SPLITS))


def saved_rows(source: str) -> Rows:
    """Return the rows of a data set that the library `datasets` saved to disk.

    Args:
        source: the folder, or its URL.

    Raises:
        DataError: it holds several splits, or is broken.
        ConfigError: pyarrow is not installed.
    """
    from .storage import is_file

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
            for batch in _arrow_batches(arrow, file):
                if stop is not None and at >= stop:
                    return
                wanted = range(at + batch.num_rows)[part]
                yield from _rows_of_batch(batch, file, start, at, wanted)
                at += batch.num_rows

    columns = tuple(features) if isinstance(features, dict) else ()
    return Rows(shown, columns, None, iterate, kinds)


def _arrow_batches(arrow: Any, file: DataFile) -> Iterator[Any]:
    """Yield the batches of an arrow stream; of a local file only what is looked at is read."""
    with _readable_parquet(file):
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
def _readable_parquet(file: DataFile) -> Iterator[None]:
    """Turn what pyarrow raises on a damaged file into a DataError."""
    arrow = library("pyarrow", str(file), "tables")
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError, MemoryError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{file}: is broken or cannot be read ({line}); write the file again") from error


# Rows of tar files in the layout of WebDataset: the members with one name but for their endings are a row.
#
# A name ends at the first dot of its last part: "00/17.image.jpg" and "00/17.txt" are the row "00/17" with
# the columns "image.jpg" and "txt". Members are read one at a time, and never written to disk.

TAR_SUFFIXES = (".tar", ".tgz")
TEXTS = ("txt", "text", "transcript", "cls", "cls2", "index", "id")
"""Last endings of members that hold text."""
LARGEST = 1 << 31
"""Bytes of a member that is read at most."""


def shard_rows(source: str, files: Sequence[DataFile]) -> Rows:
    """Return the rows of tar files.

    Args:
        source: that holds them, for messages.
        files: at least one.

    Raises:
        DataError: while iterating: a file or a member is broken.
    """

    def iterate(part: slice) -> Iterator[Row]:
        start, step = part.start or 0, part.step or 1
        number = 0
        for file in files:
            stop = (1 << 62) if part.stop is None else part.stop - number
            for row in _shard_members_as_rows(file, range(start - number, stop, step)):
                number += 1
                if row is not None:
                    yield row
            if part.stop is not None and number >= part.stop:
                return

    return Rows(source, (), None, iterate, {})


def _shard_members_as_rows(file: DataFile, wanted: range) -> Iterator[Row | None]:
    """Yield the rows of a file; None for those that are not wanted, whose members are not read.

    Nothing after the last wanted row is looked at.
    """
    key, number, values = "", -1, dict[str, object]()
    with (
        _readable_tar(file),
        file.open() as stream,
        tarfile.open(fileobj=stream, mode="r:*") as archive,
    ):
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # tarfile would keep them all
            name, _, ending = _split(member.name)
            if not member.isfile() or not ending or name.rpartition("/")[2].startswith("."):
                continue
            if name != key:
                if number >= 0:
                    yield Row(f"{file}: {key}", f"{file.name}/{key}", values) if number in wanted else None
                key, number, values = name, number + 1, {}
                if number >= wanted.stop:
                    return
            if number in wanted:
                values.update(
                    _values(f"{file}: {member.name}", ending, _member_content(file, archive, member))
                )
        _check_end(file, archive)
    if number >= 0:
        yield Row(f"{file}: {key}", f"{file.name}/{key}", values) if number in wanted else None


def _check_end(file: DataFile, archive: tarfile.TarFile) -> None:
    """Refuse a file that does not end with an empty block: tarfile takes one that is cut off for its end.

    Raises:
        DataError: it is cut off.
    """
    stream = archive.fileobj
    if stream is not None:
        stream.seek(archive.offset)
        if len(stream.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
            raise DataError(f"{file}: is cut off: a tar file ends with empty blocks; write the file again")


def _split(name: str) -> tuple[str, str, str]:
    """Return the name of a row and the ending that names a column."""
    folder, slash, last = name.removeprefix("./").rpartition("/")
    stem, dot, ending = last.partition(".")
    return f"{folder}{slash}{stem}", dot, ending


def _member_content(file: DataFile, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > LARGEST:
        raise DataError(f"{file}: {member.name}: has {member.size / 1e9:.1f} GB; split it")
    opened = archive.extractfile(member)
    content = b"" if opened is None else opened.read()
    if len(content) != member.size:
        raise DataError(f"{file}: {member.name}: is cut off; write the file again")
    return content


def _values(where: str, ending: str, content: bytes) -> dict[str, object]:
    """Return what a member holds, by column: arrays, the keys of JSON, text, else bytes."""
    kind = ending.rpartition(".")[2].lower()
    name = ending.rpartition(".")[0] or ending
    file = DataFile(where, where, content)
    if kind == "npy":
        return read_npy(file, (name,), _no_check)
    if kind == "npz":
        return read_npz(file, _no_check)
    if kind == "json":
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: is broken ({error}); write the file again") from None
        return dict(document) if isinstance(document, dict) else {name: document}
    return {ending: decoded(where, content).rstrip("\r\n") if kind in TEXTS else content}


def _no_check(where: str, headers: Mapping[str, ArrayHeader]) -> None:
    """Arrays are checked against the inputs when it is known which columns these take."""


@contextmanager
def _readable_tar(file: DataFile) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{file}: is broken or no tar file ({text}); write the file again") from error


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
    rows = _rows_in(source, recipe)
    encoder = row_encoder(preprocessing, inputs, rows)
    batch = recipe.rows

    def iterate(part: slice) -> Iterator[Sample]:
        if encoder.single and batch == 1:
            return (Sample(row.name, next(encoder.arrays(row))) for row in rows.iterate(part))
        return islice(every(), part.start, part.stop, part.step)

    def every() -> Iterator[Sample]:
        iterator = rows.iterate(slice(None))
        if batch == 1:
            for row in iterator:
                for number, arrays in enumerate(encoder.arrays(row)):
                    yield Sample(f"{row.name}[{number}]", arrays, step=number)
            return
        while chosen := list(islice(iterator, batch)):  # the last batch may have fewer rows
            cells = [next(encoder.arrays(row)) for row in chosen]
            stacked = {name: np.concatenate([arrays[name] for arrays in cells]) for name in cells[0]}
            yield Sample(chosen[0].name, stacked)

    total = rows.total if encoder.single else None
    total = None if total is None else -(-total // batch)
    samples = Samples(rows.source, total, iterate, place_of(source), encoder.notes)
    return in_batches(samples, inputs) if batch == 1 and has_batch(inputs) else samples


def column_of(source: str, column: str) -> list[object]:
    """Return the values of a column of a table, in the order of its rows.

    Args:
        source: as `open` takes it.
        column: its name.

    Raises:
        DataError: there is no such table or column.
    """
    values = []
    for row in _rows_in(source, TableRecipe()).iterate(slice(None)):
        if column not in row.values:
            raise DataError(
                f"{row.where}: there is no column '{column}'; name one of {_listed(tuple(row.values))}."
                f"{nearest(column, row.values)}"
            )
        values.append(row.values[column])
    return values


def _rows_in(source: str, recipe: TableRecipe) -> Rows:
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
