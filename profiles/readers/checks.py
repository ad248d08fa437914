"""Whether arrays fit a model: nothing is cast, reshaped or left out silently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError, nearest
from .values import ArrayHeader, InputSpec, shape_text, type_text


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
    check_names(where, arrays, specs)
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


def check_names(where: str, arrays: Mapping[Any, Any], specs: Sequence[InputSpec]) -> None:
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
    check_header(where, ArrayHeader(array.dtype, array.shape), spec)
    if array.dtype.kind == "O" and not all(isinstance(item, str) for item in array.flat):
        raise DataError(
            f"{where}: has {type_text(array.dtype)} elements, expected strings; give an array of str"
        )
    return array.view(spec.dtype) if _is_stored(array.dtype, spec.dtype) else array


def check_header(where: str, header: ArrayHeader, spec: InputSpec) -> None:
    """Refuse an array by its type and shape alone."""
    dtype, shape = header
    if spec.dtype.kind == "O":
        if dtype.kind not in "OU":
            raise DataError(
                f"{where}: has {type_text(dtype)} elements, expected strings; give an array of str"
            )
    elif dtype.kind == "O":
        raise DataError(f"{where}: holds Python objects, expected {spec}; give an array of numbers")
    elif dtype != spec.dtype and not _is_stored(dtype, spec.dtype):
        raise DataError(
            f"{where}: has type {type_text(dtype)}, expected {type_text(spec.dtype)}; "
            "nothing is cast silently: convert it where the data is made"
        )
    if spec.shape is None:
        return
    if len(spec.shape) != len(shape):
        raise DataError(
            f"{where}: has shape {shape_text(shape)} of rank {len(shape)}, "
            f"expected {shape_text(spec.shape)} of rank {len(spec.shape)}; "
            f"{_rank_advice(shape, spec.shape)}"
        )
    for axis, (size, wanted) in enumerate(zip(shape, spec.shape, strict=True)):
        if isinstance(wanted, int) and size != wanted:
            raise DataError(
                f"{where}: has shape {shape_text(shape)}, expected {shape_text(spec.shape)}: "
                f"dimension {axis} is {size} and the model fixes it at {wanted}; "
                f"{_order_advice(shape, spec.shape) or _size_advice(axis, size, wanted)}"
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


def _rank_advice(shape: tuple[int, ...], wanted: tuple[int | str | None, ...]) -> str:
    if len(shape) + 1 != len(wanted):
        return "reshape it where the data is made"
    return _order_advice(shape, wanted) or "add the batch dimension"


ORDERS = {"NHWC": (0, 3, 1, 2), "NCHW": (0, 2, 3, 1)}
"""Orders of the axes of pictures, and what makes the other one of them."""


def _order_advice(shape: tuple[int, ...], wanted: tuple[int | str | None, ...]) -> str:
    """Return what to do about pictures whose channels are on the other side; "" where they are not."""
    if len(wanted) != 4 or len(shape) not in (3, 4):
        return ""
    for name, order in ORDERS.items():
        alone = len(shape) == 3
        axes = tuple(axis - 1 for axis in order[1:]) if alone else order
        turned = tuple(shape[axis] for axis in axes)
        if wanted[1 if name == "NHWC" else 3] in (1, 3, 4) and fits(
            (1, *turned) if alone else turned, wanted
        ):
            return f"it looks like {name[alone:]}: turn it with array.transpose{axes}"
    return ""


def fits(shape: Sequence[int], wanted: Sequence[int | str | None]) -> bool:
    """Return whether a shape is one that an input takes."""
    return len(shape) == len(wanted) and all(
        size == want or not isinstance(want, int) for size, want in zip(shape, wanted, strict=True)
    )
