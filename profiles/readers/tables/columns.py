"""Columns of a row as the arrays of a model's inputs: numbers, text, and lists of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as of_field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ...base.errors import ConfigError, DataError, nearest
from ..constants import Constants, checked_names, constant_arrays
from ..preprocessing import Preprocessing, recipe_of
from ..values import InputSpec, type_text
from .rows import Row

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Cells of a CSV file, in lower case, that hold no number."""
SHOWN = 12
"""Columns that a message lists at most."""


@dataclass(frozen=True)
class TableRecipe:
    """How the columns of a row become the inputs of a model."""

    columns: Annotated[
        Mapping[str, str | list[str]],
        Meta(description="for inputs that are not called like a column, NAME: COLUMN or [COLUMN, ...]"),
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
        notes: what was assumed.
    """

    specs: tuple[InputSpec, ...]
    columns: Mapping[str, str | list[str]]
    constants: Mapping[str, npt.NDArray[Any]]
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
            values = [_scalar(row, column, spec) for column in columns]
            array = np.array(values, spec.dtype)
        else:
            array = _whole(row, columns, spec)
        rank = array.ndim + 1 if spec.shape is None else len(spec.shape)
        return array.reshape((1,) * (rank - array.ndim) + array.shape)


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
    return TableEncoder(specs, chosen, constants, _notes(source, assumed))


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
    raise ConfigError(
        f"{source}: which columns does input '{spec.name}' ({spec}) take? Name them in a recipe with "
        f"reader: table, as columns: {{{spec.name}: [{', '.join(names[:2])}]}}; there are {_listed(names)}"
    )


def _notes(source: str, assumed: Mapping[InputSpec, str | list[str]]) -> tuple[str, ...]:
    """Return what was assumed of columns, those that are called like their input in one note."""
    advice = "columns in a recipe choose others"
    by_name = [spec for spec, columns in assumed.items() if columns == spec.name]
    said = [
        f"columns {_listed([columns] if isinstance(columns, str) else columns)} go to input '{spec.name}' as "
        f"{type_text(spec.dtype)}"
        for spec, columns in assumed.items()
        if spec not in by_name
    ]
    if by_name:
        types = sorted({type_text(spec.dtype) for spec in by_name})
        names = _listed([spec.name for spec in by_name])
        said.append(f"columns {names} go to the inputs of their names as {' or '.join(types)}")
    return tuple(f"{source}: {text}; {advice}" for text in said)


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
    low, high = (0, 1) if spec.dtype.kind == "b" else _limits(spec)
    if not whole or not low <= number <= high:
        raise DataError(
            f"{where}: is {number:g}, and input '{spec.name}' takes {type_text(spec.dtype)}; correct the "
            "value, or name another column"
        )
    return int(number)


def _limits(spec: InputSpec) -> tuple[int, int]:
    limits = np.iinfo(spec.dtype)
    return int(limits.min), int(limits.max)


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
