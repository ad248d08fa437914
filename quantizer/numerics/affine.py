"""Affine quantization: types, parameters, and the one definition of rounding and saturation.

A type of floating-point numbers is rounded to by ml_dtypes, to even as onnxruntime and onnx's reference do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from types import EllipsisType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ...profiles.base.errors import DataError, PlanError
from .array_file import is_in_file

Scalar = TypeVar("Scalar", bound=np.generic)
Floats = npt.NDArray[np.float64]
UnaryFunction = Callable[[Floats], Floats]
"""A function of one variable, element by element in float64."""


@dataclass(frozen=True)
class FloatFormat:
    """The bits of a small floating-point number: sign, exponent, mantissa, from the highest down.

    Magnitudes are those of IEEE 754 with other widths: 2^(exponent - bias) * (1 + mantissa / 2^M), and 2^(1 -
    bias) * mantissa / 2^M if the exponent's bits are all 0. `nan` says which codes are no numbers: "ieee"
    those with all bits of the exponent set (infinity if the mantissa is 0), "fn" those with all bits but the
    sign set, "fnuz" that of -0, "none" none.
    """

    exponent: int
    mantissa: int
    bias: int
    nan: Literal["ieee", "fn", "fnuz", "none"]

    @property
    def values(self) -> Floats:
        """The value of each code, [2^bits] in float64, perhaps NaN or infinity."""
        codes = np.arange(1 << (self.exponent + self.mantissa))
        power, fraction = codes >> self.mantissa, codes & ((1 << self.mantissa) - 1)
        normal = power > 0
        magnitude = np.ldexp(
            np.where(normal, fraction + (1 << self.mantissa), fraction),
            np.where(normal, power, 1) - self.bias - self.mantissa,
        )
        if self.nan == "ieee":
            last = power == power[-1]
            magnitude[last] = np.where(fraction[last] == 0, np.inf, np.nan)
        elif self.nan == "fn":
            magnitude[-1] = np.nan
        values = np.concatenate([magnitude, -magnitude])
        if self.nan == "fnuz":
            values[codes.size] = np.nan
        return values


@dataclass(frozen=True)
class BlockScales:
    """How the scales of the blocks of a weight are stored, if not as float32."""

    type: str  # their ONNX type; float8e8m0 has powers of two alone
    block_size: int  # elements that share one
    # what a block's largest magnitude becomes, by least error; () for powers of two
    tops: tuple[float, ...] = ()
    has_tensor_scale: bool = False  # a float32 of the whole weight is multiplied with them


@dataclass(frozen=True)
class QuantType:
    """A type of quantized values: integers, or floating-point numbers of few bits."""

    name: str  # as written in options and files; for numbers of floating point as in ONNX
    bits: int  # width of a quantized value
    signed: bool
    stored_as: str = ""  # name of the type that they are stored in, "" for the type itself
    number: FloatFormat | None = field(default=None, repr=False)  # plans hold digests of the rest
    scales: BlockScales | None = field(default=None, repr=False)

    @property
    def is_float(self) -> bool:
        """Whether quantized values are floating-point numbers: they have zero point 0."""
        return self.number is not None

    @property
    def storage(self) -> str:
        """Name of the type that quantized values are stored in."""
        return self.stored_as or self.name

    @property
    def low(self) -> float:
        """Smallest quantized value; an int in a type of integers."""
        if self.number is not None:
            return -self.high
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> float:
        """Largest quantized value; an int in a type of integers."""
        if self.number is not None:
            return float(levels(self)[-1])
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def packed_bits(self) -> int:
        """Bits of a value in packed weights: 2 (four in a byte), 4 (two in a byte) or 8."""
        return next(bits for bits in (2, 4, 8) if self.bits <= bits or bits == 8)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Element type of an array of quantized values; ml_dtypes has the types that numpy lacks (4 bits,
        float8)."""
        if self.number is None and self.bits > 4:
            return np.dtype(self.storage)
        import ml_dtypes

        name = self.name
        if self.number is not None:
            end = {"ieee": "", "fn": "fn", "fnuz": "fnuz", "none": "fn"}[self.number.nan]
            name = f"float{self.bits}_e{self.number.exponent}m{self.number.mantissa}{end}"
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype


@cache
def levels(qtype: QuantType) -> Floats:
    """Return all finite quantized values of a type, ascending in float64, of at most 16 bits."""
    if qtype.number is None:
        found = np.arange(qtype.low, qtype.high + 1, dtype=np.float64)
    else:
        found = np.unique(qtype.number.values[np.isfinite(qtype.number.values)])
    found.flags.writeable = False
    return found


INT2 = QuantType("int2", 2, True)
UINT2 = QuantType("uint2", 2, False)
INT4 = QuantType("int4", 4, True)
UINT4 = QuantType("uint4", 4, False)
INT7 = QuantType("int7", 7, True, "int8")
"""For weights: a sum of two products with uint8 values stays within 16 bits, 2 * 255 * 64 = 32640."""
INT8 = QuantType("int8", 8, True)
UINT8 = QuantType("uint8", 8, False)
INT16 = QuantType("int16", 16, True)
UINT16 = QuantType("uint16", 16, False)
INT32 = QuantType("int32", 32, True)

FLOAT4E2M1 = QuantType("float4e2m1", 4, True, number=FloatFormat(2, 1, 1, "none"))
FLOAT8E4M3FN = QuantType("float8e4m3fn", 8, True, number=FloatFormat(4, 3, 7, "fn"))
FLOAT8E4M3FNUZ = QuantType("float8e4m3fnuz", 8, True, number=FloatFormat(4, 3, 8, "fnuz"))
FLOAT8E5M2 = QuantType("float8e5m2", 8, True, number=FloatFormat(5, 2, 15, "ieee"))
FLOAT8E5M2FNUZ = QuantType("float8e5m2fnuz", 8, True, number=FloatFormat(5, 2, 16, "fnuz"))

MXFP4 = QuantType("mxfp4", 4, True, "float4e2m1", FLOAT4E2M1.number, BlockScales("float8e8m0", 32))
MXFP8 = QuantType("mxfp8", 8, True, "float8e4m3fn", FLOAT8E4M3FN.number, BlockScales("float8e8m0", 32))
"""As in the Open Compute Project's specification of microscaling formats, 1.0."""
NVFP4 = QuantType(
    "nvfp4",
    4,
    True,
    "float4e2m1",
    FLOAT4E2M1.number,
    BlockScales("float8e4m3fn", 16, tops=(6.0, 4.0), has_tensor_scale=True),
)
"""As NVIDIA's Model Optimizer writes it; that a block may end at 4 is its mode 4/6."""

TYPES: dict[str, QuantType] = {
    t.name: t
    for t in (
        *(INT4, UINT4, INT7, INT8, UINT8, INT16, UINT16, INT32),
        *(FLOAT4E2M1, FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ),
        *(MXFP4, MXFP8, NVFP4, INT2, UINT2),
    )
}
"""All types, by their names."""


@dataclass(frozen=True, eq=False, init=False, repr=False)
class QuantParams:
    """Parameters of one quantized tensor: float value = scale * (quantized value - zero_point).

    Two records are equal if type, axis, block and all numbers are equal; the arrays are read-only.

    Attributes:
        scale: positive numbers, [scales]: one for the tensor, or one for each channel along `axis`, or one
            for each block, in the row-major order of ONNX's array of block scales. Given in another type
            than float32 they must be numbers of float32.
        zero_point: quantized values of 0 (Glow: offset), as many as scales; 0 in a type of floats.
        qtype: type of the quantized values.
        axis: channel axis, counted from the front; None for one scale per tensor.
        block_size: elements per scale along `axis`, None when not blocked.

    Raises:
        PlanError: one of the above does not hold.
    """

    scale: Annotated[npt.NDArray[np.float32], Meta(extra_json_schema={"items": {"type": "number"}})]
    zero_point: Annotated[npt.NDArray[np.int32], Meta(extra_json_schema={"items": {"type": "integer"}})]
    qtype: QuantType
    axis: int | None = None
    block_size: int | None = None

    def __init__(
        self,
        scale: npt.ArrayLike,
        zero_point: npt.ArrayLike,
        qtype: QuantType,
        axis: int | None = None,
        block_size: int | None = None,
    ) -> None:
        scales, points = np.asarray(scale), np.asarray(zero_point)
        problem = ""
        if scales.shape != points.shape or scales.ndim != 1:
            problem = (
                f"{scales.size} scales but {points.size} zero points; give one zero_point for "
                "each scale, both in one dimension"
            )
        elif axis is None and (scales.size != 1 or block_size is not None):
            problem = f"{scales.size} scales without an axis; name the axis, or give one scale and no block"
        elif axis is not None and axis < 0:
            problem = f"axis {axis} is negative; count it from the front"
        elif block_size is not None and block_size < 1:
            problem = f"block {block_size} is not a number of elements; give 1 or more"
        if problem:
            raise PlanError(f"quantization parameters: {problem}")

        with np.errstate(over="ignore"):
            narrow = scales.astype(np.float32, copy=False)
        is_scale = (narrow > 0.0) & (narrow < np.inf) & (narrow == scales)
        if not is_scale.all():
            index = int(np.argmin(is_scale))
            wide, nearest = float(scales[index]), float(narrow[index])
            if 0.0 < nearest < np.inf:
                problem = f"scale {wide!r} is not a float32 number; round it to {nearest!r}"
            else:
                problem = f"scale {wide!r} is not a finite float32 number above 0; give one"
            raise PlanError(f"quantization parameters: {problem}")

        is_outside = points != 0 if qtype.is_float else (points < qtype.low) | (points > qtype.high)
        if is_outside.any():
            allowed = "0" if qtype.is_float else f"one of {qtype.low}..{qtype.high}"
            raise PlanError(
                f"quantization parameters: zero_point {points[np.argmax(is_outside)]} is outside of "
                f"{qtype.name}; give {allowed}"
            )

        values = {
            "scale": _frozen(narrow, scale),
            "zero_point": _frozen(points.astype(np.int32, copy=False), zero_point),
            "qtype": qtype,
            "axis": axis,
            "block_size": block_size,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, QuantParams):
            return NotImplemented
        return (
            (self.qtype, self.axis, self.block_size) == (other.qtype, other.axis, other.block_size)
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )

    def __hash__(self) -> int:
        numbers = self.scale.tobytes(), self.zero_point.tobytes()
        return hash((*numbers, self.qtype, self.axis, self.block_size))

    def __repr__(self) -> str:
        return (
            f"QuantParams(scale={tuple(self.scale.tolist())}, zero_point={tuple(self.zero_point.tolist())}, "
            f"qtype={self.qtype}, axis={self.axis}, block_size={self.block_size})"
        )

    @property
    def tensor_scale(self) -> float:
        """The only scale, float32-exact, to calculate with in float64. ValueError if there are several."""
        return float(self.scale.item())

    @property
    def tensor_zero_point(self) -> int:
        """The only zero point. ValueError if there are several."""
        return int(self.zero_point.item())

    @property
    def tensor_ends(self) -> tuple[float, float]:
        """The lowest and the highest float value of the only scale. ValueError if there are several."""
        first, last = self.qtype.low - self.tensor_zero_point, self.qtype.high - self.tensor_zero_point
        return self.tensor_scale * first, self.tensor_scale * last

    @property
    def scale_array(self) -> npt.NDArray[np.float32]:
        """The scales: no dimension for one per tensor, else one dimension."""
        return self.scale.reshape(()) if self.axis is None else self.scale

    @property
    def zero_point_array(self) -> npt.NDArray[Any]:
        """The zero points in the type of the quantized values, shaped like `scale_array`."""
        array = self.zero_point.astype(self.qtype.numpy_dtype)
        return array.reshape(()) if self.axis is None else array

    def grid_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that ONNX QuantizeLinear requires of the scales of a tensor of `shape`.

        () per tensor, (channels,) per axis, and for blocks `shape` with ceil(size / block) along `axis`.
        Raises PlanError if a tensor of this shape has another number of channels or blocks.
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


def _frozen(array: npt.NDArray[Any], argument: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return an array that nobody writes to: a copy, but for a fresh array, or one in an `ArrayFile`."""
    if (array.base is not None or (array is argument and array.flags.writeable)) and not is_in_file(array):
        array = array.copy()
    array.flags.writeable = False
    return array


class Rounding(Enum):
    """Where halves are rounded to even. The two differ only on exact ties with an odd zero point."""

    ONNX = "onnx"
    """Before the zero point is added: round(x / scale) + zero_point (ONNX QuantizeLinear)."""
    GLOW = "glow"
    """After it was added: round(x / scale + zero_point) (Glow SPEC D.3)."""


ELEMENTS_AT_ONCE = 1 << 15
"""Elements that are quantized and dequantized at a time: they stay in the processor's cache."""


def quantize(
    values: npt.ArrayLike, params: QuantParams, rounding: Rounding = Rounding.ONNX
) -> npt.NDArray[Any]:
    """Return the quantized values of `values`, shaped like them, of `params.qtype.numpy_dtype`.

    Division, rounding and the sum are those of float32; quantized values saturate at the ends of the type,
    also those of infinite values. Raises DataError for NaN, which has no quantized value (types of floats
    have one, if only for NaN), and PlanError if the parameters do not fit the shape.
    """
    floats, qtype = np.asarray(values, np.float32), params.qtype
    has_nan = qtype.number is not None and qtype.number.nan != "none"
    exact = np.float32 if qtype.bits <= 16 else np.float64  # float32 cannot hold every 32-bit integer
    quantized: npt.NDArray[Any] = np.empty_like(floats, qtype.numpy_dtype)
    for part, scale, zero_point in _parts(floats, params):
        if not has_nan and np.isnan(floats[part]).any():
            found = f"{np.count_nonzero(np.isnan(floats))} of {floats.size} values are NaN"
            raise DataError(f"quantize: {found}, which cannot be quantized; find their cause")
        with np.errstate(over="ignore"):
            steps = np.asarray(floats[part] / scale)
        if not qtype.is_float:  # else the conversion below rounds
            if rounding is Rounding.GLOW:
                steps += zero_point.astype(np.float32)
            steps = np.rint(steps, out=steps).astype(exact, copy=False)
            if rounding is not Rounding.GLOW:
                steps += zero_point.astype(exact)
        np.clip(steps, qtype.low, qtype.high, out=steps)
        quantized[part] = steps.astype(qtype.numpy_dtype)
    return quantized


Part: TypeAlias = tuple[slice, ...] | EllipsisType
"""Where a part of an array is."""


def _parts(
    floats: npt.NDArray[np.float32], params: QuantParams
) -> Iterator[tuple[Part, npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
    """Yield parts, each together in memory and small enough for the cache, with scales and zero points."""
    scale, zero_point = parameter_arrays(params, floats.shape)
    if params.block_size is not None or not floats.size or not floats.ndim:
        yield ..., scale, zero_point
        return
    axis = int(np.argmax(floats.strides))
    rows = max(1, ELEMENTS_AT_ONCE * floats.shape[axis] // floats.size)
    for start in range(0, floats.shape[axis], rows):
        part = (*axis * (slice(None),), slice(start, start + rows))
        yield part, *((scale[part], zero_point[part]) if params.axis == axis else (scale, zero_point))


def dequantize(quantized: npt.ArrayLike, params: QuantParams) -> npt.NDArray[np.float32]:
    """Return scale * (quantized - zero_point) in float32, as ONNX DequantizeLinear."""
    integers = np.asarray(quantized)
    scale, zero_point = parameter_arrays(params, integers.shape)
    if params.qtype.is_float:
        with np.errstate(over="ignore"):
            return np.asarray(integers.astype(np.float32) * scale)
    narrow = integers.dtype.itemsize <= 2 and params.qtype.bits <= 16
    wide = np.int32 if narrow else np.int64
    floats = np.asarray(np.subtract(integers, zero_point.astype(wide), dtype=wide)).astype(np.float32)
    with np.errstate(over="ignore"):
        floats *= scale
    return floats


def fake_quantized(values: npt.ArrayLike, params: QuantParams) -> npt.NDArray[np.float32]:
    """Return `dequantize` of `quantize` of values (fake quantization), to the bit; raises as these do."""
    floats = np.asarray(values, np.float32)
    result = np.empty_like(floats)
    for part, rounded in fake_quantized_parts(floats, params):
        result[part] = rounded
    return result


def fake_quantized_parts(
    floats: npt.NDArray[np.float32], params: QuantParams
) -> Iterator[tuple[Part, npt.NDArray[np.float32]]]:
    """Yield `fake_quantized` in parts: the place of each, and a fresh array."""
    qtype = params.qtype
    if (
        qtype.is_float
        or qtype.bits > 16
        or params.block_size is not None
        or not floats.size
        or not floats.ndim
    ):
        yield ..., dequantize(quantize(floats, params), params)
        return
    for part, own_scale, zero_point in _parts(floats, params):
        own_zero = zero_point.astype(np.float32)
        with np.errstate(over="ignore"):
            steps = np.asarray(floats[part] / own_scale)
        np.rint(steps, out=steps)
        steps += own_zero
        np.clip(steps, qtype.low, qtype.high, out=steps)
        if np.isnan(steps).any():
            quantize(floats, params)  # which says how many there are
        steps -= own_zero
        with np.errstate(over="ignore"):
            steps *= own_scale
        yield part, steps


def steps_of(quantized: npt.NDArray[Any], qtype: QuantType) -> npt.NDArray[np.int64]:
    """Return the places of quantized values in the order of all: integers themselves, floats in `levels`."""
    if qtype.is_float:
        return np.searchsorted(levels(qtype), quantized.astype(np.float64)).astype(np.int64)
    return quantized.astype(np.int64)


def values_at(steps: npt.NDArray[np.int64], qtype: QuantType) -> npt.NDArray[Any]:
    """Return the quantized values at the places of `steps_of`; the ends for places beyond them."""
    if qtype.is_float:
        known = levels(qtype).astype(qtype.numpy_dtype)
        return known[np.clip(steps, 0, known.size - 1)]
    return np.clip(steps, qtype.low, qtype.high)


def parameter_arrays(
    params: QuantParams, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return scale and zero point in shapes that broadcast with a tensor of `shape`."""
    zero_point = params.zero_point.astype(np.int64)
    return broadcast_scales(params.scale, params, shape), broadcast_scales(zero_point, params, shape)


def broadcast_scales(
    numbers: npt.NDArray[Scalar], params: QuantParams, shape: tuple[int, ...]
) -> npt.NDArray[Scalar]:
    """Return one number for each scale of `params` in a shape that broadcasts with a tensor of `shape`."""
    grid = params.grid_shape(shape)
    if params.axis is None:
        return numbers.reshape(())
    if params.block_size is None:
        return numbers.reshape(tuple(size if i == params.axis else 1 for i, size in enumerate(shape)))
    within = (slice(None),) * params.axis + (slice(shape[params.axis]),)
    return numbers.reshape(grid).repeat(params.block_size, axis=params.axis)[within]


def params_of_part(
    params: QuantParams, shape: tuple[int, ...], axis: int, start: int, stop: int
) -> QuantParams:
    """Return the parameters of a tensor of `shape` from one index along an axis to before another.

    Along the axis of blocks, `start` is the first index of a block, and `stop` the end of one.
    """
    grid = params.grid_shape(shape)
    if params.axis is None or (params.block_size is None and params.axis != axis):
        return params
    if params.axis == axis and params.block_size is not None:
        start, stop = start // params.block_size, -(-stop // params.block_size)
    within = (slice(None),) * (0 if params.block_size is None else axis) + (slice(start, stop),)
    scale, zero_point = params.scale.reshape(grid)[within], params.zero_point.reshape(grid)[within]
    return replace(params, scale=scale.reshape(-1), zero_point=zero_point.reshape(-1))


def unsigned_equivalent(params: QuantParams) -> QuantParams:
    """Return unsigned parameters for the same float values: all quantized values are higher by -low."""
    if not params.qtype.signed:
        return params
    zero_point = params.zero_point - int(params.qtype.low)
    return replace(params, zero_point=zero_point, qtype=TYPES[f"u{params.qtype.name}"])
