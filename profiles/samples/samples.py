"""The sources of calibration and evaluation data: folders of arrays, or a Python function.

Every sample is checked against the model's inputs before it is used; nothing is cast, reshaped or unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..base.errors import DataError, nearest
from .folders import read_data_set, read_npy, read_npz, sample_paths
from .functions import is_function, load_function, samples_of


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
    """Arrays that a model is run on together.

    Attributes:
        name: its source, for messages: the file or folder name, or "module:function[3]".
        arrays: by input name, in the order of the model's inputs.
    """

    name: str
    arrays: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Samples:
    """Samples that are read, or computed, one at a time while they are iterated.

    A folder can be iterated again; so can a function, which is called anew each time.

    Attributes:
        source: folder, or "module:function".
        total: number of samples, None where it is unknown before the last one.
        iterate: returns a new iterator over some of the samples. Other files are not read; a function is
            called all the same.
    """

    source: str
    total: int | None
    iterate: Callable[[slice], Iterator[Sample]]

    def __iter__(self) -> Iterator[Sample]:
        return self.iterate(slice(None))

    def part(self, start: int, stop: int | None = None, step: int = 1) -> Samples:
        """Return every `step`-th of the samples from `start` to before `stop`, counted from 0."""
        chosen = slice(start, stop, step)
        total = None if self.total is None else len(range(*chosen.indices(self.total)))
        return Samples(self.source, total, lambda inner: _subset(self.iterate(chosen), inner))


def input_specs(model: ir.Model) -> tuple[InputSpec, ...]:
    """Return the inputs that a sample must hold: the graph inputs that are not initialisers, in order.

    Raises:
        DataError: an input is not a tensor.
    """
    required = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    specs = []
    for value in required:
        if not isinstance(value.type, ir.TensorType):
            raise DataError(
                f"input '{value.name}': is {value.type}, not a tensor; give a model whose inputs are tensors"
            )
        shape = (
            None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)
        )
        specs.append(InputSpec(str(value.name), np.dtype(value.type.dtype.numpy()), shape))
    return tuple(specs)


def fixed_shapes(inputs: Sequence[InputSpec]) -> bool:
    """Return whether all samples must have the same shapes."""
    return all(spec.shape is not None and all(isinstance(d, int) for d in spec.shape) for spec in inputs)


def open_samples(source: str, inputs: Sequence[InputSpec], limit: int | None = None) -> Samples:
    """Return the samples of a source, in a fixed order.

    Args:
        source: a folder, or "module:function". A folder holds `.npz` files (one sample each, arrays named
            after the inputs), `.npy` files (models with one input), `input_*.pb` files as in the ONNX model
            zoo (one sample), or `test_data_set_*` folders of those. Files come in natural order, 2 before 10.
            The function takes no arguments and returns an iterable of samples: dicts from input name
            to array.
        inputs: of the model.
        limit: number of samples to use, from the first; None for all.

    Raises:
        DataError: no such folder, module or function; a folder without samples. While iterating: a
            file that is broken or holds pickled objects; an input that is missing, unknown, or of the wrong
            type, rank or fixed dimension; a function that raises or yields something else than dicts.
    """
    if limit is not None and limit < 1:
        raise DataError(
            f"limit {limit}: at least one sample is needed; give a number from 1, or none for all"
        )
    specs = tuple(inputs)
    if is_function(source):
        function = load_function(source)
        return Samples(
            source, None, lambda part: _subset(islice(_called(source, function, specs), limit), part)
        )
    paths = sample_paths(Path(source))[:limit]
    return Samples(source, len(paths), lambda part: (_read(path, specs) for path in paths[part]))


def _subset(samples: Iterator[Sample], part: slice) -> Iterator[Sample]:
    return islice(samples, part.start, part.stop, part.step)


def _called(source: str, function: Callable[[], object], specs: tuple[InputSpec, ...]) -> Iterator[Sample]:
    for number, sample in enumerate(samples_of(source, function)):
        name = f"{source}[{number}]"
        if not isinstance(sample, Mapping):
            wanted = ", ".join(f"'{spec.name}': array" for spec in specs)
            raise DataError(
                f"{name}: yielded an object of type {type(sample).__name__}, "
                f"expected a dict from input name to array; yield {{{wanted}}}"
            )
        yield Sample(name, checked_arrays(name, sample, specs))


def _read(path: Path, specs: tuple[InputSpec, ...]) -> Sample:
    names = tuple(spec.name for spec in specs)
    if path.is_dir():
        arrays = read_data_set(path, names)
    elif path.suffix.lower() == ".npz":
        arrays = read_npz(path)
    else:
        arrays = read_npy(path, names)
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
    names = [spec.name for spec in specs]
    extra = [str(name) for name in arrays if name not in names]
    for spec in specs:
        if spec.name not in arrays:
            held = ", ".join(f"'{name}'" for name in arrays) or "nothing"
            raise DataError(
                f"{where}: input '{spec.name}' is missing, expected {spec}; the sample holds {held}: "
                f"name its arrays after the model's inputs.{nearest(spec.name, extra)}"
            )
    if extra:
        expected = ", ".join(f"'{name}'" for name in names) or "none"
        raise DataError(
            f"{where}: holds '{extra[0]}', which is not an input of the model; its inputs are {expected}: "
            "remove the array"
        )
    return {
        spec.name: _checked_array(f"{where}: input '{spec.name}'", arrays[spec.name], spec) for spec in specs
    }


def _checked_array(where: str, array: object, spec: InputSpec) -> npt.NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise DataError(
            f"{where}: is of type {type(array).__name__}, expected a numpy array, {spec}; "
            "convert it with numpy.asarray"
        )
    array = _as_stored(array, spec.dtype)
    if spec.dtype.kind == "O":
        if array.dtype.kind != "U" and not all(isinstance(item, str) for item in array.flat):
            raise DataError(
                f"{where}: has {_type_text(array.dtype)} elements, expected strings; give an array of str"
            )
    elif array.dtype.kind == "O":
        raise DataError(f"{where}: holds Python objects, expected {spec}; give an array of numbers")
    elif array.dtype != spec.dtype:
        raise DataError(
            f"{where}: has type {_type_text(array.dtype)}, expected {_type_text(spec.dtype)}; "
            "nothing is cast silently: convert it where the data is made"
        )
    if spec.shape is None:
        return array
    if len(spec.shape) != array.ndim:
        raise DataError(
            f"{where}: has shape {_shape_text(array.shape)} of rank {array.ndim}, "
            f"expected {_shape_text(spec.shape)} of rank {len(spec.shape)}; "
            f"{_rank_advice(array.ndim, spec.shape)}"
        )
    for axis, (size, wanted) in enumerate(zip(array.shape, spec.shape, strict=True)):
        if isinstance(wanted, int) and size != wanted:
            raise DataError(
                f"{where}: has shape {_shape_text(array.shape)}, expected {_shape_text(spec.shape)}: "
                f"dimension {axis} is {size} and the model fixes it at {wanted}; resize or split the data"
            )
    return array


def _as_stored(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the array as `dtype`, if that is one which numpy files hold as raw bytes, such as bfloat16."""
    raw = array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == dtype.itemsize
    return array.view(dtype) if raw and dtype.kind == "V" else array


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
