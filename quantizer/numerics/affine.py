"""Affine quantization: types, parameters, and the one definition of rounding and saturation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import DataError, PlanError

# Type aliases of arrays, and of a function of one variable.

Floats = npt.NDArray[np.float64]
UnaryFunction = Callable[[Floats], Floats]
"""A function of one variable, element by element in float64."""


@dataclass(frozen=True)
class QuantType:
    """An integer type of quantized values.

    Attributes:
        name: as written in options and files ("int8", "uint8", "int16", ...).
        bits: width of a quantized value.
        signed: whether quantized values can be negative.
        stored_as: name of the type that they are stored in, "" for the type itself.
    """

    name: str
    bits: int
    signed: bool
    stored_as: str = ""

    @property
    def storage(self) -> str:
        """Name of the type that quantized values are stored in."""
        return self.stored_as or self.name

    @property
    def low(self) -> int:
        """Smallest quantized value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """Largest quantized value."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Element type of an array of quantized values; 4-bit types are those of ml_dtypes, as in onnx."""
        if self.bits > 4:
            return np.dtype(self.storage)
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.name))
        return dtype


INT4 = QuantType("int4", 4, True)
UINT4 = QuantType("uint4", 4, False)
INT7 = QuantType("int7", 7, True, "int8")
"""For weights: a sum of two products with uint8 values stays within 16 bits, 2 * 255 * 64 = 32640. Processors
of x86-64 without VNNI saturate such sums at 32767 (instruction VPMADDUBSW)."""
INT8 = QuantType("int8", 8, True)
UINT8 = QuantType("uint8", 8, False)
INT16 = QuantType("int16", 16, True)
UINT16 = QuantType("uint16", 16, False)
INT32 = QuantType("int32", 32, True)

TYPES: dict[str, QuantType] = {t.name: t for t in (INT4, UINT4, INT7, INT8, UINT8, INT16, UINT16, INT32)}


@dataclass(frozen=True)
class QuantParams:
    """Parameters of one quantized tensor: float value = scale * (quantized value - zero_point).

    Attributes:
        scale: float32-exact positive numbers; one for the tensor, or one for each channel along `axis`,
            or one for each block, in the row-major order of ONNX's array of block scales.
        zero_point: quantized values of 0 (Glow: offset), as many as scales.
        qtype: type of the quantized values.
        axis: channel axis, counted from the front; None for one scale per tensor.
        block_size: elements per scale along `axis`, None when not blocked.

    Raises:
        PlanError: one of the above does not hold.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    qtype: QuantType
    axis: int | None = None
    block_size: int | None = None

    def __post_init__(self) -> None:
        for problem in (_counts_are_wrong(self), _scale_is_wrong(self), _zero_point_is_wrong(self)):
            if problem:
                raise PlanError(f"quantization parameters: {problem}")

    @property
    def scale_array(self) -> npt.NDArray[np.float32]:
        """The scales as float32: no dimension for one per tensor, else one dimension."""
        array = np.asarray(self.scale, np.float32)
        return array.reshape(()) if self.axis is None else array

    @property
    def zero_point_array(self) -> npt.NDArray[Any]:
        """The zero points in the type of the quantized values, shaped like `scale_array`."""
        array = np.asarray(self.zero_point, np.int64).astype(self.qtype.numpy_dtype)
        return array.reshape(()) if self.axis is None else array

    def grid_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that ONNX QuantizeLinear requires of the scales of a tensor of `shape`.

        () per tensor, (channels,) per axis, and for blocks `shape` with ceil(size / block) along `axis`.

        Raises:
            PlanError: a tensor of this shape has another number of channels or blocks.
        """
        if self.axis is None:
            return ()
        if self.axis >= len(shape):
            raise PlanError(
                f"quantization parameters: axis {self.axis} is not an axis of a tensor of shape "
                f"{list(shape)}; use an axis below {len(shape)}"
            )
        grid: tuple[int, ...] = (shape[self.axis],)
        if self.block_size is not None:
            grid = (*shape[: self.axis], -(-shape[self.axis] // self.block_size), *shape[self.axis + 1 :])
        wanted = int(np.prod(grid))
        if wanted != len(self.scale):
            raise PlanError(
                f"quantization parameters: {len(self.scale)} scales do not fit a tensor of shape "
                f"{list(shape)} along axis {self.axis}; give {wanted}"
            )
        return grid


def _counts_are_wrong(params: QuantParams) -> str:
    scales, zero_points = len(params.scale), len(params.zero_point)
    if scales != zero_points:
        return f"{scales} scales but {zero_points} zero points; give one zero_point for each scale"
    if params.axis is None and (scales != 1 or params.block_size is not None):
        return f"{scales} scales without an axis; name the axis, or give one scale and no block"
    if params.axis is not None and params.axis < 0:
        return f"axis {params.axis} is negative; count it from the front"
    if params.block_size is not None and params.block_size < 1:
        return f"block {params.block_size} is not a number of elements; give 1 or more"
    return ""


def _scale_is_wrong(params: QuantParams) -> str:
    wide = np.asarray(params.scale, np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32).astype(np.float64)
    for i in np.flatnonzero(~((narrow > 0.0) & (narrow < np.inf) & (wide == narrow))).tolist():
        if not 0.0 < narrow[i] < np.inf:
            return f"scale {params.scale[i]!r} is not a finite float32 number above 0; give one"
        return f"scale {params.scale[i]!r} is not a float32 number; round it to {float(narrow[i])!r}"
    return ""


def _zero_point_is_wrong(params: QuantParams) -> str:
    low, high = params.qtype.low, params.qtype.high
    for zero_point in params.zero_point:
        if not low <= zero_point <= high:
            return f"zero_point {zero_point} is outside of {params.qtype.name}; give one of {low}..{high}"
    return ""


class Rounding(Enum):
    """Where halves are rounded to even. The two differ only on exact ties with an odd zero point."""

    ONNX = "onnx"
    """Before the zero point is added: round(x / scale) + zero_point (ONNX QuantizeLinear)."""
    GLOW = "glow"
    """After it was added: round(x / scale + zero_point) (Glow SPEC D.3)."""


def quantize(
    values: npt.ArrayLike, params: QuantParams, rounding: Rounding = Rounding.ONNX
) -> npt.NDArray[Any]:
    """Return the quantized values of `values`.

    Division, rounding and the sum are those of float32; quantized values saturate at the ends of the type,
    also those of infinite values.

    Args:
        values: float32 (or converted to it), any shape that the parameters fit.
        params: scale and zero point, per tensor, per axis or per block.
        rounding: the order of rounding and adding the zero point.

    Returns:
        An array of `params.qtype.numpy_dtype`, shaped like `values`.

    Raises:
        DataError: a value is NaN, which has no quantized value.
        PlanError: the parameters do not fit the shape.
    """
    floats = np.asarray(values, np.float32)
    nans = int(np.count_nonzero(np.isnan(floats)))
    if nans:
        raise DataError(
            f"quantize: {nans} of {floats.size} values are NaN, which cannot be quantized; find where they "
            "come from"
        )
    scale, zero_point = parameter_arrays(params, floats.shape)
    exact = np.float32 if params.qtype.bits <= 16 else np.float64  # float32 cannot hold every 32-bit integer
    with np.errstate(over="ignore"):
        steps = np.asarray(floats / scale)
    # In place where it can be: for large weights fresh memory costs more than the arithmetic.
    if rounding is Rounding.GLOW:
        steps += zero_point.astype(np.float32)
        steps = np.rint(steps, out=steps).astype(exact, copy=False)
    else:
        steps = np.rint(steps, out=steps).astype(exact, copy=False)
        steps += zero_point.astype(exact)
    np.clip(steps, params.qtype.low, params.qtype.high, out=steps)
    quantized: npt.NDArray[Any] = steps.astype(params.qtype.numpy_dtype)
    return quantized


def dequantize(quantized: npt.ArrayLike, params: QuantParams) -> npt.NDArray[np.float32]:
    """Return scale * (quantized - zero_point) in float32, shaped like `quantized`.

    This is ONNX DequantizeLinear, and Glow SPEC D.3.

    Args:
        quantized: integers of any type.
        params: scale and zero point, per tensor, per axis or per block.

    Raises:
        PlanError: the parameters do not fit the shape.
    """
    integers = np.asarray(quantized)
    scale, zero_point = parameter_arrays(params, integers.shape)
    narrow = integers.dtype.itemsize <= 2 and params.qtype.bits <= 16
    wide = np.int32 if narrow else np.int64
    floats = np.asarray(np.subtract(integers, zero_point.astype(wide), dtype=wide)).astype(np.float32)
    with np.errstate(over="ignore"):
        floats *= scale
    return floats


def parameter_arrays(
    params: QuantParams, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return scale and zero point in shapes that broadcast with a tensor of `shape`."""
    scale = np.asarray(params.scale, np.float32)
    zero_point = np.asarray(params.zero_point, np.int64)
    grid = params.grid_shape(shape)
    if params.axis is None:
        return scale.reshape(()), zero_point.reshape(())
    if params.block_size is None:
        grid = tuple(size if i == params.axis else 1 for i, size in enumerate(shape))
        return scale.reshape(grid), zero_point.reshape(grid)
    within = (slice(None),) * params.axis + (slice(shape[params.axis]),)

    def repeated(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array.reshape(grid).repeat(params.block_size or 1, axis=params.axis)[within]

    return repeated(scale), repeated(zero_point)


def unsigned_equivalent(params: QuantParams) -> QuantParams:
    """Return unsigned parameters for the same float values: all quantized values are higher by -low."""
    if not params.qtype.signed:
        return params
    zero_point = tuple(z - params.qtype.low for z in params.zero_point)
    return replace(params, zero_point=zero_point, qtype=TYPES[f"u{params.qtype.name}"])
