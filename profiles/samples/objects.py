"""Samples from Python objects: iterables, functions, data loaders, and what their items may be.

Nothing here needs torch or another framework: an array is what numpy can read through `__array__` or DLPack.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from ..base.errors import DataError
from .functions import items_of, user_code
from .storage import shown_location
from .values import InputSpec, fits

DataSource: TypeAlias = str | os.PathLike[str] | Iterable[Any] | Callable[[], Iterable[Any]]
"""A folder, "module:function", or an object of Python: an iterable, or a function that returns one."""


@dataclass(frozen=True, eq=False)
class Transformed:
    """Data whose items become samples through a function of the user's.

    Attributes:
        data: as in `DataSource`; of a folder, pictures and lines of text are its items.
        transform: takes one item and returns a sample: a dict from input name to array, or an array. A
            picture of a folder comes as `PIL.Image.Image` in RGB, a line as str: transforms of torchvision,
            processors and tokenizers of Hugging Face take them so.
    """

    data: DataSource
    transform: Callable[[Any], object]


@dataclass(frozen=True)
class PreprocessedData:
    """Data of a folder or file, and how samples are made of it; a worker in another process takes it too.

    Attributes:
        source: the folder or file; every worker must be able to read it.
        preprocess: a built-in recipe, or the file of one (`load_preprocessing`); None for arrays as they are.
    """

    source: str
    preprocess: str | None = None


WholeData: TypeAlias = DataSource | Transformed | PreprocessedData
"""All samples of a source."""


@dataclass(frozen=True, eq=False)
class ChosenSamples:
    """Some of the samples of data.

    Attributes:
        data: all of them.
        positions: of the chosen ones in it, ascending, counted from 0.
    """

    data: WholeData
    positions: tuple[int, ...]


DataLike: TypeAlias = WholeData | ChosenSamples
"""Whatever samples are read from."""

NAME = "data"
"""What messages call an object, as the argument is called in which it came."""

ONCE = "an iterator can be read only once: give a list, or a function that returns a new iterator"


def source_name(data: DataLike) -> str:
    """Return what messages call data: the folder, URL (without secrets) or function; "data" for an object."""
    data = data.data if isinstance(data, ChosenSamples) else data
    if isinstance(data, PreprocessedData):
        return shown_location(data.source)
    raw = data.data if isinstance(data, Transformed) else data
    return shown_location(os.fspath(raw)) if isinstance(raw, str | os.PathLike) else NAME


def iterable_of(data: object, ranks: Sequence[int | None]) -> object:
    """Return what is to be iterated: `data`, or [data] where it is one sample itself.

    One sample is a mapping, or, for a model with one input, an array of the input's rank.

    Args:
        data: what the user gave.
        ranks: of the model's inputs, None where unknown.
    """
    alone = len(ranks) == 1 and is_array(data) and getattr(data, "ndim", ranks[0]) == ranks[0]
    return [data] if alone or isinstance(data, Mapping) else data


def length_of(data: object) -> int | None:
    """Return the number of items, None where only iterating tells."""
    with suppress(TypeError, NotImplementedError):  # a loader of a stream has a __len__ that raises
        return len(data)  # type: ignore[arg-type]
    return None


def is_indexed(data: object) -> bool:
    """Whether the items of an object are got by their number, so that few of many can be read."""
    return hasattr(data, "__getitem__") and not isinstance(data, Mapping)


def reader_of(data: object) -> Callable[[], Iterator[object]]:
    """Return a function that gives a fresh iterator over the items of an object.

    Raises:
        DataError: the object cannot be iterated. While iterating: the object raises; an iterator is asked for
            its items a second time, or gives none.
    """
    if hasattr(data, "__iter__") or hasattr(data, "__getitem__"):
        if isinstance(data, Iterator):
            return _read_once(data)
        return lambda: items_of(NAME, lambda: _iterated(data), "repair the data")
    if callable(data):
        return lambda: items_of(NAME, data, "repair the function")
    raise DataError(
        f"{NAME}: is of type {type(data).__name__}; give a folder, module:function, an iterable of samples, "
        "or a function that returns one"
    )


def _iterated(data: Any) -> Iterable[object]:
    """Return what iterates an object; a data set that has only a length and items is read by index."""
    return data if hasattr(data, "__iter__") else (data[index] for index in range(len(data)))


def _read_once(data: Iterator[object]) -> Callable[[], Iterator[object]]:
    readings: list[object] = []

    def read() -> Iterator[object]:
        if readings:
            raise DataError(f"{NAME}: has to be read a second time, and {ONCE}")
        readings.append(data)
        items = items_of(NAME, lambda: data, "repair the data")
        for first in items:
            return chain([first], items)
        raise DataError(f"{NAME}: gave no samples, or was read before, and {ONCE}")

    return read


def arrays_of(where: str, item: object, names: Sequence[str]) -> Mapping[Any, object]:
    """Return the arrays that an item holds, by input name: copies, so that the caller may refill its own.

    Args:
        where: the item, for messages.
        item: a mapping from input name to array; or, for a model with one input, an array; or a tuple or
            list that begins with one of these, such as the (x, y) of a data loader.
        names: of the model's inputs.

    Raises:
        DataError: it is something else, or an array cannot be read.
    """
    if isinstance(item, Mapping):
        return {name: as_array(f"{where}: input '{name}'", value) for name, value in item.items()}
    if is_array(item) and len(names) == 1:
        return {names[0]: as_array(f"{where}: input '{names[0]}'", item)}
    if isinstance(item, tuple | list) and item:
        first = item[0]
        if isinstance(first, Mapping) or (is_array(first) and len(names) == 1):
            return arrays_of(where, first, names)
    wanted = ", ".join(f"'{name}': array" for name in names)
    raise DataError(
        f"{where}: yielded an object of type {type(item).__name__}, "
        f"expected a dict from input name to array{_or_array(names)}; yield {{{wanted}}}"
    )


def _or_array(names: Sequence[str]) -> str:
    return ", an array, or a pair that begins with one" if len(names) == 1 else ""


def is_array(value: object) -> bool:
    """Whether numpy can read a value as an array without looking at its items."""
    return not isinstance(value, type) and any(
        hasattr(value, name) for name in ("__array__", "__array_interface__", "__dlpack__")
    )


def as_inputs(
    arrays: Mapping[Any, object], specs: Sequence[InputSpec]
) -> tuple[dict[Any, object], list[str]]:
    """Return the arrays of an item as the model takes them, and what was assumed.

    Data sets of trainers hold more than a model takes (labels, names), and their items have no batch axis.
    What is no input is left out where all inputs are there, else it may be a misspelt one; an array that
    lacks nothing but the first axis becomes a batch of one.

    Args:
        arrays: by input name.
        specs: of the model's inputs.
    """
    names = [spec.name for spec in specs]
    if not all(name in arrays for name in names):
        return dict(arrays), []
    notes, found = [], {name: arrays[name] for name in names}
    others = [f"'{name}'" for name in arrays if name not in names]
    if others:
        notes.append(f"{', '.join(others)} of the samples: no input of the model, left out")
    for spec in specs:
        array = found[spec.name]
        if isinstance(array, np.ndarray) and spec.shape is not None and fits((1, *array.shape), spec.shape):
            found[spec.name] = array[None]
            notes.append(f"input '{spec.name}': the samples have no batch axis, each is a batch of one")
    return found, notes


def as_array(where: str, value: object) -> object:
    """Return a copy of an array-like value as a numpy array; another value as it is.

    A list of arrays or numbers of one shape, as processors of Hugging Face give, is array-like too.

    Raises:
        DataError: it cannot be read, as a tensor on a GPU or one that asks for gradients.
    """
    if isinstance(value, np.ndarray):
        return np.array(value)
    if isinstance(value, list) and value:
        with suppress(ValueError):  # of different lengths: no array
            return np.asarray([as_array(where, item) for item in value])
    if not is_array(value):
        return value
    with user_code(where, "convert it to a numpy array where the data is made"):
        if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
            return np.array(np.asarray(value))
        return np.array(np.from_dlpack(value))  # type: ignore[arg-type]
