"""Where calibration and evaluation data come from: folders of arrays, functions and objects of Python.

Every sample is checked against the model's inputs before it is used; nothing is cast, reshaped or unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..base.errors import DataError, nearest
from .array_files import ArrayHeader, read_npy, read_npz
from .folders import read_data_set, sample_paths
from .functions import is_function, items_of, load_function, user_code
from .model_title import title_of
from .objects import NAME, ChosenSamples, DataLike, Transformed, arrays_of, iterable_of, length_of, reader_of


@dataclass(frozen=True)
class InputSpec:
    """What a model expects of one of its inputs.

    Attributes:
        name: of the graph input.
        dtype: numpy type of the elements; `object` for strings.
        shape: a number for a fixed dimension, a name or None for a free one; None for an unknown rank.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        return f"{_type_text(self.dtype)} of shape {_shape_text(self.shape)}"


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample: what a model is fed with in one run.

    Attributes:
        name: where it comes from, for messages; the file or folder name, "module:function[3]", or "data[3]".
        arrays: by input name, in the order of the model's inputs.
    """

    name: str
    arrays: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Samples:
    """Samples that are read, or computed, one at a time while they are iterated.

    A folder can be iterated again; so can a function, which is called anew each time, and an object of Python
    that is no iterator.

    Attributes:
        source: folder, "module:function", or "data" for an object; for messages.
        total: number of samples, None where only iterating tells.
        iterate: gives a fresh iterator over some of the samples. Files that are not among them are not read;
            a function is called all the same, and an object iterated.
        place: absolute path of the folder, without links; "" for what is not a folder.
    """

    source: str
    total: int | None
    iterate: Callable[[slice], Iterator[Sample]]
    place: str = ""

    def __iter__(self) -> Iterator[Sample]:
        return self.iterate(slice(None))

    def part(self, start: int, stop: int | None = None, step: int = 1) -> Samples:
        """Return every `step`-th of the samples from `start` to before `stop`, counted from 0."""
        chosen = slice(start, stop, step)
        total = None if self.total is None else len(range(*chosen.indices(self.total)))
        return Samples(self.source, total, lambda inner: _subset(self.iterate(chosen), inner), self.place)


def input_specs(model: ir.Model) -> tuple[InputSpec, ...]:
    """Return what a sample of the model must hold: the graph inputs that are no initialisers, in order.

    Args:
        model: the model.

    Raises:
        DataError: an input is not a tensor.
    """
    required = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    specs = []
    for value in required:
        if not isinstance(value.type, ir.TensorType):
            raise DataError(
                f"{title_of(model)}: input '{value.name}': is {value.type}, not a tensor; "
                "give a model whose inputs are tensors"
            )
        # Some exporters write -1 for a dimension that is free.
        sizes = (d if isinstance(d, int) else d.value for d in value.shape or ())
        shape = None if value.shape is None else tuple(None if d == -1 else d for d in sizes)
        specs.append(InputSpec(str(value.name), np.dtype(value.type.dtype.numpy()), shape))
    return tuple(specs)


def fixed_shapes(inputs: Sequence[InputSpec]) -> bool:
    """Tell whether every sample must have the same shapes."""
    return all(spec.shape is not None and all(isinstance(d, int) for d in spec.shape) for spec in inputs)


def open_samples(
    source: DataLike, inputs: Sequence[InputSpec], limit: int | None = None, *, by_row: bool = False
) -> Samples:
    """Return the samples of a source, in a fixed order.

    Args:
        source: a folder, "module:function", or an object of Python. A folder holds `.npz` files (one sample
            each, arrays named after the inputs), `.npy` files (models with one input), `input_*.pb` files as
            in the ONNX model zoo (one sample), or `test_data_set_*` folders of those. Files come in natural
            order, 2 before 10. An object is an iterable, or a function without arguments that returns one,
            as "module:function" names one. Its items are dicts from input name to array; for a model with
            one input also arrays; or tuples that begin with one of these, such as (x, y). An array is
            anything with `__array__` or `__dlpack__`, and is copied.
        inputs: what the samples must hold.
        limit: number of samples, from the first; None for all.
        by_row: whether the caller runs each row of a batch on its own (`rows_of`): a model with a fixed batch
            of 1 then takes batches.

    Raises:
        DataError: no such folder, module or function; a folder without samples; an object that cannot be
            iterated. While iterating: a file that is broken or holds pickled objects; an input that is
            missing, unknown, or of the wrong type, rank or fixed dimension; code of the user's that raises or
            yields something else; an iterator that has to be read a second time, or has nothing left.
    """
    if limit is not None and limit < 1:
        raise DataError(
            f"limit {limit}: at least one sample is needed; give a number from 1, or none for all"
        )
    if isinstance(source, ChosenSamples):
        every = open_samples(source.data, inputs, by_row=by_row)
        return _chosen(every, source.positions[:limit])
    specs = of_batches(inputs) if by_row else tuple(inputs)
    data, transform = (source.data, source.transform) if isinstance(source, Transformed) else (source, None)
    if not isinstance(data, str | os.PathLike):
        ranks = [None if spec.shape is None else len(spec.shape) for spec in specs]
        whole = data if transform is not None else iterable_of(data, ranks)
        objects = _Objects(NAME, reader_of(whole), transform, specs, limit)
        count = length_of(whole)
        return Samples(NAME, count if count is None or limit is None else min(count, limit), objects.read)
    name = os.fspath(data)
    if is_function(name):
        function = load_function(name)
        return Samples(
            name, None, _Objects(name, lambda: items_of(name, function), transform, specs, limit).read
        )
    if transform is not None:
        raise DataError(f"{name}: a transform is for objects of Python and module:function; leave it out")
    paths = sample_paths(Path(name))[:limit]
    place = os.path.realpath(name)
    return Samples(name, len(paths), lambda part: (_read(path, specs) for path in paths[part]), place)


def _chosen(every: Samples, positions: tuple[int, ...]) -> Samples:
    """Return the samples at some positions; all up to the last of them are read."""

    def read(part: slice) -> Iterator[Sample]:
        wanted = positions[part]
        found, last = frozenset(wanted), max(wanted, default=-1)
        samples = every.iterate(slice(0, last + 1))
        return (sample for position, sample in enumerate(samples) if position in found)

    return Samples(every.source, len(positions), read, every.place)


def _subset(samples: Iterator[Sample], part: slice) -> Iterator[Sample]:
    return islice(samples, part.start, part.stop, part.step)


@dataclass(frozen=True, eq=False)
class _Objects:
    """Samples that the user's own code gives.

    Attributes:
        source: what messages call it.
        items: gives a fresh iterator over its items.
        transform: makes a sample of an item; None where an item is one.
        specs: the model's inputs.
        limit: number of samples, from the first; None for all.
    """

    source: str
    items: Callable[[], Iterator[object]]
    transform: Callable[[Any], object] | None
    specs: tuple[InputSpec, ...]
    limit: int | None

    def read(self, part: slice) -> Iterator[Sample]:
        """Yield some of the samples; only those are transformed and checked."""
        numbered = islice(enumerate(islice(self.items(), self.limit)), part.start, part.stop, part.step)
        for number, item in numbered:
            name = f"{self.source}[{number}]"
            arrays = arrays_of(name, self._transformed(name, item), [spec.name for spec in self.specs])
            yield Sample(name, checked_arrays(name, arrays, self.specs))

    def _transformed(self, name: str, item: object) -> object:
        if self.transform is None:
            return item
        with user_code(f"{name}: transform", "repair the transform"):
            return self.transform(item)


def _read(path: Path, specs: tuple[InputSpec, ...]) -> Sample:
    names = tuple(spec.name for spec in specs)

    def check(where: str, headers: Mapping[str, ArrayHeader]) -> None:
        _check_names(where, headers, specs)
        for spec in specs:
            _check_header(f"{where}: input '{spec.name}'", headers[spec.name], spec)

    if path.is_dir():
        arrays = read_data_set(path, names)
    elif path.suffix.lower() == ".npz":
        arrays = read_npz(path, check)
    else:
        arrays = read_npy(path, names, check)
    return Sample(path.name, checked_arrays(str(path), arrays, specs))


def checked_arrays(
    where: str, arrays: Mapping[Any, Any], specs: Sequence[InputSpec]
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a sample in the order of the inputs, if they fit them.

    Args:
        where: the sample, for messages.
        arrays: by input name.
        specs: what the model expects.

    Raises:
        DataError: an input is missing or unknown, or an array does not fit.
    """
    _check_names(where, arrays, specs)
    checked = {
        spec.name: _checked_array(f"{where}: input '{spec.name}'", arrays[spec.name], spec) for spec in specs
    }
    if batch_size(checked, specs) == 0:
        raise DataError(f"{where}: is a batch of no rows; leave the sample out")
    return checked


def batch_size(arrays: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> int | None:
    """Return the rows of a batch; None where there is none.

    All inputs of a batch have one and the same free leading dimension, and the arrays agree on it.
    """
    if len(_leading(specs)) != 1 or any(isinstance(dim, int) for dim in _leading(specs)):
        return None
    rows = {array.shape[0] for array in arrays.values() if array.ndim}
    return rows.pop() if len(rows) == 1 else None


def _leading(specs: Sequence[InputSpec]) -> set[int | str | None]:
    """Return the leading dimensions of the inputs; that of a scalar and of an unknown rank is 0."""
    return {spec.shape[0] if spec.shape else 0 for spec in specs}


def of_batches(specs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Return the inputs as they take batches whose rows are run one by one, where the model fixes 1 row."""
    if _leading(specs) != {1}:
        return tuple(specs)
    return tuple(replace(spec, shape=("rows", *(spec.shape or ())[1:])) for spec in specs)


def _check_names(where: str, arrays: Mapping[Any, Any], specs: Sequence[InputSpec]) -> None:
    """Refuse a sample that lacks an input, or has an array that is none."""
    names = [spec.name for spec in specs]
    expected = ", ".join(f"'{name}'" for name in names) or "none"
    extra = [str(name) for name in arrays if name not in names]
    for spec in specs:
        if spec.name not in arrays:
            held = ", ".join(f"'{name}'" for name in arrays) or "nothing"
            misspelt = next((name for name in extra if nearest(name, [spec.name])), None)
            advice = f" Rename '{misspelt}' to '{spec.name}'?" if misspelt is not None else ""
            raise DataError(
                f"{where}: input '{spec.name}' is missing, expected {spec}; the sample holds {held}: "
                f"name its arrays after the model's inputs, {expected}.{advice}"
            )
    if extra:
        raise DataError(
            f"{where}: holds '{extra[0]}', which is not an input of the model; its inputs are {expected}: "
            "remove the array"
        )


def _checked_array(where: str, array: object, spec: InputSpec) -> npt.NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise DataError(
            f"{where}: is of type {type(array).__name__}, expected a numpy array, {spec}; "
            "convert it with numpy.asarray"
        )
    _check_header(where, ArrayHeader(array.dtype, array.shape), spec)
    if array.dtype.kind == "O" and not all(isinstance(item, str) for item in array.flat):
        raise DataError(
            f"{where}: has {_type_text(array.dtype)} elements, expected strings; give an array of str"
        )
    return array.view(spec.dtype) if _is_stored(array.dtype, spec.dtype) else array


def _check_header(where: str, header: ArrayHeader, spec: InputSpec) -> None:
    """Refuse an array by its type and shape alone."""
    dtype, shape = header
    if spec.dtype.kind == "O":
        if dtype.kind not in "OU":
            raise DataError(
                f"{where}: has {_type_text(dtype)} elements, expected strings; give an array of str"
            )
    elif dtype.kind == "O":
        raise DataError(f"{where}: holds Python objects, expected {spec}; give an array of numbers")
    elif dtype != spec.dtype and not _is_stored(dtype, spec.dtype):
        raise DataError(
            f"{where}: has type {_type_text(dtype)}, expected {_type_text(spec.dtype)}; "
            "nothing is cast silently: convert it where the data is made"
        )
    if spec.shape is None:
        return
    if len(spec.shape) != len(shape):
        raise DataError(
            f"{where}: has shape {_shape_text(shape)} of rank {len(shape)}, "
            f"expected {_shape_text(spec.shape)} of rank {len(spec.shape)}; "
            f"{_rank_advice(len(shape), spec.shape)}"
        )
    for axis, (size, wanted) in enumerate(zip(shape, spec.shape, strict=True)):
        if isinstance(wanted, int) and size != wanted:
            raise DataError(
                f"{where}: has shape {_shape_text(shape)}, expected {_shape_text(spec.shape)}: "
                f"dimension {axis} is {size} and the model fixes it at {wanted}; "
                f"{_size_advice(axis, size, wanted)}"
            )


def _is_stored(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether elements are `wanted` as numpy's files hold them: raw bytes, as those of bfloat16."""
    raw = dtype.kind == "V" and dtype.names is None and dtype.itemsize == wanted.itemsize
    return raw and wanted.kind == "V"


def _size_advice(axis: int, size: int, wanted: int) -> str:
    if axis == 0 and wanted == 1 and size > 1:
        return (
            "split the data into its rows, or profile it with --by-row (by_row=True in Python), which does so"
        )
    return "resize or split the data"


def _rank_advice(rank: int, shape: tuple[int | str | None, ...]) -> str:
    return "add the batch dimension" if rank + 1 == len(shape) else "reshape it where the data is made"


def _shape_text(shape: Iterable[int | str | None] | None) -> str:
    if shape is None:
        return "of any rank"
    dims = ["?" if d is None else str(d) for d in shape]
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"


def _type_text(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "O":
        return "string"
    return dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order"
