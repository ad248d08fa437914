"""What a tensor of a model file says of itself: type, dimensions, and as much data as these need."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir

from ....profiles.base.errors import ModelError
from .protobuf import is_outside

MOST_DIMENSIONS = 64
"""Dimensions that numpy knows at most."""

MOST_BYTES = 1 << 48
"""More bytes than a process can address: 2^48."""

MOST_DENSE = 1 << 28
"""Elements of a sparse initialiser that is made dense: 2^28 float32 values take 1 GiB."""

_TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
_FIELD_OF = {
    **{"FLOAT": "float_data", "COMPLEX64": "float_data", "INT64": "int64_data", "STRING": "string_data"},
    **dict.fromkeys(("DOUBLE", "COMPLEX128"), "double_data"),
    **dict.fromkeys(("UINT64", "UINT32"), "uint64_data"),
}
"""Field of the elements by type; int32_data for all others."""


def bytes_needed(tensor: onnx.TensorProto) -> int:
    """Return how many bytes the elements take, those of less than a byte packed. The type is known."""
    return (math.prod(map(int, tensor.dims)) * ir.DataType(tensor.data_type).bitwidth + 7) // 8


def clear_typed_fields(tensor: onnx.TensorProto) -> bool:
    """Remove the elements that are given beside the raw data; tell whether there were any."""
    extra = (
        [name for name in _TYPED_FIELDS if len(getattr(tensor, name))] if tensor.HasField("raw_data") else []
    )
    for name in extra:
        tensor.ClearField(name)
    return bool(extra)


def check_tensor(tensor: onnx.TensorProto, where: str) -> None:
    """Check type, dimensions and the amount of data of a tensor.

    Args:
        tensor: of an initialiser or attribute.
        where: the file, for messages.

    Raises:
        ModelError: one of them cannot be.
    """
    where = f"{where}: tensor '{tensor.name}'"
    if tensor.data_type not in _known_types():
        raise ModelError(f"{where}: is of type {tensor.data_type}, which ONNX does not have; export it again")
    if len(tensor.dims) > MOST_DIMENSIONS:
        raise ModelError(
            f"{where}: has {len(tensor.dims)} dimensions; at most {MOST_DIMENSIONS} can be; export it again"
        )
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"{where}: has the dimensions {list(tensor.dims)}, one below 0; export it again")
    if ir.DataType(tensor.data_type) == ir.DataType.STRING:
        if is_outside(tensor) or tensor.HasField("raw_data"):
            raise ModelError(f"{where}: holds text as raw bytes, which ONNX does not allow; export it again")
    elif bytes_needed(tensor) > MOST_BYTES:
        raise ModelError(
            f"{where}: has the dimensions {list(tensor.dims)}, too many elements; export it again"
        )
    if not is_outside(tensor):
        _check_amount(tensor, where)


def check_sparse(sparse: onnx.SparseTensorProto, where: str) -> None:
    """Check a sparse tensor: dimensions that a dense one can have, and as many indices, inside, as values.

    Raises:
        ModelError: one of them cannot be.
    """
    values, indices, dims = sparse.values, sparse.indices, list(sparse.dims)
    for tensor in (values, indices):
        check_tensor(tensor, where)
    shape = list(indices.dims)
    fits = not is_outside(values) and not is_outside(indices) and len(values.dims) == 1
    fits = (
        fits
        and all(dim > 0 for dim in dims)
        and math.prod(dims) <= MOST_DENSE
        and len(dims) <= MOST_DIMENSIONS
    )
    if (
        fits
        and indices.data_type == onnx.TensorProto.INT64
        and shape in ([values.dims[0]], [values.dims[0], len(dims)])
    ):
        found = onnx.numpy_helper.to_array(indices)
        limits = math.prod(dims) if found.ndim == 1 else np.array(dims)
        if bool(np.all((found >= 0) & (found < limits))):
            return
    raise ModelError(
        f"{where}: sparse tensor '{values.name}' of dimensions {dims} has indices that do not fit, or too "
        "many elements; export the model with dense weights"
    )


def _check_amount(tensor: onnx.TensorProto, where: str) -> None:
    kind = ir.DataType(tensor.data_type)
    if tensor.HasField("raw_data"):
        have, need, unit = len(tensor.raw_data), bytes_needed(tensor), "bytes"
    else:
        have, need, unit = (
            len(getattr(tensor, _FIELD_OF.get(kind.name, "int32_data"))),
            _entries(tensor),
            "elements",
        )
    if have != need:
        raise ModelError(
            f"{where}: its type {kind.name.lower()} and its dimensions {list(tensor.dims)} take {need} "
            f"{unit}, and it has {have}; the file is damaged: export or download it again"
        )


def _entries(tensor: onnx.TensorProto) -> int:
    """Return how many numbers the typed field holds: two for a complex one, one for a byte of small ones."""
    kind, count = ir.DataType(tensor.data_type), math.prod(map(int, tensor.dims))
    if kind.name.startswith("COMPLEX"):
        return 2 * count
    return count if kind == ir.DataType.STRING or kind.bitwidth >= 8 else bytes_needed(tensor)


def _known_types() -> frozenset[int]:
    return frozenset(int(kind) for kind in ir.DataType if kind != ir.DataType.UNDEFINED)
