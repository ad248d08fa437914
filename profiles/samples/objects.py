"""Samples from Python objects: iterables, functions, data loaders, and their items.

This module needs neither torch nor another framework: numpy reads arrays through `__array__` or DLPack.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from threading import Lock
from typing import IO, Any, Protocol, TypeAlias
from weakref import finalize

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError
from ..base.findings import Code, Finding
from ..base.tool import note
from .functions import items_of, load_function, user_code
from .storage import is_url, shown_location
from .values import InputSpec, Sample, Samples, checked_arrays, drawn_positions, fits

Arrays = dict[str, npt.NDArray[Any]]

# What the user may give.


class Reader(Protocol):
    """Gives one item after the other, and None at the end, as a CalibrationDataReader of onnxruntime."""

    def get_next(self) -> Any:
        """Return the next item."""
        ...


DataSource: TypeAlias = str | os.PathLike[str] | Iterable[Any] | Callable[[], Iterable[Any]] | Reader
"""A folder, "module:function", or an object: an iterable, a function that returns one, or a reader."""


Transform: TypeAlias = Callable[[Any], object]
"""Takes one item of data and returns a sample: a dict from input name to array, or an array."""


@dataclass(frozen=True, eq=False)
class Transformed:
    """Data whose items become samples through a function of the user's."""

    data: DataSource | KeptItems
    transform: Transform


@dataclass(frozen=True)
class PreprocessedData:
    """Data of a folder or file, and how samples are made of it; a worker in another process takes it too."""

    source: str
    preprocess: str | None = None  # as `load_preprocessing` takes it
    label: str = ""  # column of a table that is no input


class KeptItems:
    """The items of an iterator, which can be read again; their arrays lie in a temporary file."""

    def __init__(self, items: Iterator[object]) -> None:
        self._left = items
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="qprof-")  # noqa: SIM115  # as long as this
        finalize(self, self._file.close)
        self._kept: list[dict[str, npt.NDArray[Any] | int]] = []
        self._lock = Lock()

    def again(self, arrays_of: Callable[[int, object], Arrays]) -> Iterator[Arrays]:
        """Yield the arrays of all items from the first one on, as they were made when it was first read."""
        for number in count():
            with self._lock:
                if number == len(self._kept):
                    try:
                        item = next(self._left)
                    except StopIteration:
                        return
                    made = arrays_of(number, item)
                    self._kept.append({name: self._written(array) for name, array in made.items()})
                arrays = {name: self._read(kept) for name, kept in self._kept[number].items()}
            yield arrays

    def _written(self, array: npt.NDArray[Any]) -> npt.NDArray[Any] | int:
        """Return the place of an array in the file; strings, which are few, stay in memory."""
        if array.dtype.hasobject:
            return array
        place = self._file.seek(0, os.SEEK_END)
        np.save(self._file, array, allow_pickle=False)
        return place

    def _read(self, kept: npt.NDArray[Any] | int) -> npt.NDArray[Any]:
        if not isinstance(kept, int):
            return kept
        self._file.seek(kept)
        array: npt.NDArray[Any] = np.load(self._file, allow_pickle=False)
        return array


def items_of_object(data: Any, *, keep: bool) -> Any:
    """Return the user's data: readers of onnxruntime as iterators, with `keep` as `KeptItems`."""
    if type(data).__name__ == "DataFrame" and hasattr(data, "columns"):
        raise DataError(
            "data: is a DataFrame, which gives columns and no rows; give its values, as "
            "data[columns].to_numpy('float32'), or save it as .parquet or .csv and give the file"
        )
    if callable(getattr(data, "get_next", None)) and not hasattr(data, "__iter__"):
        data = iter(data.get_next, None)
    return KeptItems(data) if keep and isinstance(data, Iterator) else data


WholeData: TypeAlias = DataSource | Transformed | PreprocessedData | KeptItems
"""All samples of a source."""


@dataclass(frozen=True, eq=False)
class ChosenSamples:
    """Some of the samples of data."""

    data: WholeData
    positions: tuple[int, ...]  # ascending
    know_places: bool = False  # whether samples know their positions, for truth in the order of all
    marks: tuple[int, ...] = ()  # `sample_mark` of the first reading, if there was one

    def some(self, positions: Sequence[int]) -> ChosenSamples:
        """Return those of them at some of their positions, ascending."""
        marks = dict(zip(self.positions, self.marks, strict=False))
        known = tuple(marks[at] for at in positions if at in marks)
        return ChosenSamples(self.data, tuple(positions), self.know_places, known)


DataLike: TypeAlias = WholeData | ChosenSamples
"""Whatever samples are read from."""

NAME = "data"
"""What messages call an object, as the argument is called in which it came."""

ONCE = "an iterator can be read only once: give a list, or a function that returns a new iterator"


def source_name(data: DataLike) -> str:
    """Return the name of data for messages: folder, URL (without secrets), function; "data" for an object."""
    while isinstance(data, ChosenSamples | Transformed):
        data = data.data
    place = data.source if isinstance(data, PreprocessedData) else data
    return shown_location(os.fspath(place)) if isinstance(place, str | os.PathLike) else NAME


# Samples of an object, or of a function.


def place_of_data(data: DataLike | None) -> str:
    """Return the folder or file of data here; "" for an object, a function and a URL."""
    while isinstance(data, ChosenSamples | Transformed):
        data = data.data
    place = data.source if isinstance(data, PreprocessedData) else data
    if not isinstance(place, str | os.PathLike) or is_url(os.fspath(place)):
        return ""
    return os.fspath(place)


def open_object(
    data: Any, transform: Transform | None, specs: Sequence[InputSpec], limit: int | None
) -> Samples:
    """Return the samples of an iterable, of a function that returns one, or of one sample itself."""
    if transform is None:
        rank = len(specs[0].shape) if len(specs) == 1 and specs[0].shape is not None else None
        alone = len(specs) == 1 and is_array(data) and getattr(data, "ndim", rank) == rank
        if alone and isinstance(data, np.ndarray) and not isinstance((specs[0].shape or (0,))[0], int):
            sentence = f"{NAME}: an array of shape {data.shape} is 1 sample"
            remedy = f"if its rows are {len(data)} samples, give list(array[:, None])"
            note(Finding(Code.READING_ASSUMED, sentence, NAME, remedy=remedy if len(data) > 1 else ""))
        data = [data] if alone or isinstance(data, Mapping) else data
    total = None
    with suppress(TypeError, NotImplementedError):  # a loader of a stream has a __len__ that raises
        total = len(data)
    advice = "repair the data"
    if limit is not None and total is not None and limit < total:
        if hasattr(data, "__getitem__") and not isinstance(data, Mapping):
            positions = drawn_positions(total, limit)
            chosen = partial(items_of, NAME, lambda: (data[at] for at in positions), advice)
            return _samples_of_items(NAME, chosen, transform, specs, limit, positions=positions)
        total = limit

    items: Callable[[], Iterator[object]] = partial(items_of, NAME, lambda: data, advice)
    if isinstance(data, KeptItems):
        kept, make = data, transform

        def arrays_of(number: int, item: object) -> Arrays:
            return noted_arrays(f"{NAME}[{number}]", item, make, specs, first_of="" if number else NAME)

        every = partial(items_of, NAME, lambda: kept.again(arrays_of), advice)
        items = partial(_some, every, "it is empty, or was already read; give a new one")
        transform = None
    elif isinstance(data, Iterator):
        items = _items_once(data)
    elif not hasattr(data, "__iter__") and hasattr(data, "__getitem__"):  # has only a length and items
        items = partial(items_of, NAME, lambda: (data[index] for index in range(len(data))), advice)
    elif not hasattr(data, "__iter__") and callable(data):
        items = partial(items_of, NAME, data)
    elif not hasattr(data, "__iter__"):
        raise DataError(
            f"{NAME}: is of type {type(data).__name__}; give a folder, module:function, an iterable of "
            "samples, or a function that returns one"
        )
    return _samples_of_items(NAME, items, transform, specs, total, limit=limit)


def open_function(
    name: str, transform: Transform | None, specs: Sequence[InputSpec], limit: int | None
) -> Samples:
    """Return the samples of "module:function" or "file.py:function"; see `open_object`."""
    items = partial(items_of, name, load_function(name))
    return _samples_of_items(name, items, transform, specs, None, limit=limit)


def _items_once(data: Iterator[object]) -> Callable[[], Iterator[object]]:
    """Return a function that gives the items of an iterator, and refuses to do so again."""
    was_read = False

    def items() -> Iterator[object]:
        nonlocal was_read
        if was_read:
            raise DataError(f"{NAME}: has to be read a second time, and {ONCE}")
        was_read = True
        every = partial(items_of, NAME, lambda: data, "repair the data")
        return _some(every, f"it is empty, or was already read, and {ONCE}")

    return items


def _some(items: Callable[[], Iterator[object]], problem: str) -> Iterator[object]:
    """Return items, or raise DataError for an empty iterable."""
    every = items()
    for first in every:
        return chain([first], every)
    raise DataError(f"{NAME}: gave no samples: {problem}")


def _samples_of_items(
    source: str,
    items: Callable[[], Iterator[object]],
    transform: Transform | None,
    specs: Sequence[InputSpec],
    total: int | None,
    *,
    limit: int | None = None,
    positions: tuple[int, ...] | None = None,
) -> Samples:
    """Return items as samples; `positions` are those of the items among all, if a limit drew them."""

    def iterate(part: slice) -> Iterator[Sample]:
        numbers = count() if positions is None else positions
        numbered = zip(numbers, islice(items(), limit))  # noqa: B905
        for number, item in islice(numbered, part.start, part.stop, part.step):
            name = f"{source}[{number}]"
            arrays = noted_arrays(name, item, transform, specs, first_of="" if number else source)
            yield Sample(name, arrays, position=None if positions is None else number)

    return Samples(source, total, iterate)


# The arrays of one item.


def noted_arrays(
    where: str, item: object, transform: Transform | None, specs: Sequence[InputSpec], *, first_of: str
) -> Arrays:
    """Return the arrays of an item, checked against the inputs; note assumptions about the first item.

    Arrays that are no inputs are left out if all inputs are there; a missing batch axis is added.
    """
    if transform is not None:
        with user_code(f"{where}: transform", "repair the transform"):
            item = transform(item)
    names, findings = [spec.name for spec in specs], []
    arrays = dict(_arrays_by_input(where, item, names))
    if all(name in arrays for name in names):
        others = [f"'{name}'" for name in arrays if name not in names]
        if others:
            sentence = f"{first_of}: {', '.join(others)} of the samples: no input of the model, left out"
            findings.append(Finding(Code.READING_ASSUMED, sentence, first_of, {"arrays": len(others)}))
        arrays = {name: arrays[name] for name in names}
        for spec in specs:
            array = arrays[spec.name]
            if isinstance(array, np.ndarray) and spec.shape and fits((1, *array.shape), spec.shape):
                arrays[spec.name] = array[None]
                sentence = (
                    f"{first_of}: input '{spec.name}': the samples have no batch axis, each is a batch of one"
                )
                findings.append(Finding(Code.READING_ASSUMED, sentence, first_of))
    for finding in findings if first_of else ():
        note(finding)
    return checked_arrays(where, arrays, specs)


def _arrays_by_input(where: str, item: object, names: Sequence[str]) -> Mapping[Any, object]:
    """Return copies of the arrays of an item by input name, so that the caller may refill its own."""
    if isinstance(item, Mapping):
        return {name: _as_array(f"{where}: input '{name}'", value) for name, value in item.items()}
    if is_array(item) and len(names) == 1:
        return {names[0]: _as_array(f"{where}: input '{names[0]}'", item)}
    if isinstance(item, tuple | list) and item:
        first = item[0]
        if isinstance(first, Mapping) or (is_array(first) and len(names) == 1):
            return _arrays_by_input(where, first, names)
    wanted = ", ".join(f"'{name}': array" for name in names)
    or_array = ", an array, or a pair that begins with one" if len(names) == 1 else ""
    raise DataError(
        f"{where}: yielded an object of type {type(item).__name__}, "
        f"expected a dict from input name to array{or_array}; yield {{{wanted}}}"
    )


def is_array(value: object) -> bool:
    """Whether numpy can read a value as an array without looking at its items."""
    return not isinstance(value, type) and any(
        hasattr(value, name) for name in ("__array__", "__array_interface__", "__dlpack__")
    )


def _as_array(where: str, value: object) -> object:
    """Return a copy of an array, or of a list of one shape, as an array; another value unchanged."""
    if isinstance(value, np.ndarray):
        return np.array(value)
    if isinstance(value, list) and value:
        with suppress(ValueError):  # of different lengths: no array
            return np.asarray([_as_array(where, item) for item in value])
    if not is_array(value):
        return value
    with user_code(where, "convert it to a numpy array in the code that makes the data"):
        if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
            return np.array(np.asarray(value))
        return np.array(np.from_dlpack(value))  # type: ignore[arg-type]
