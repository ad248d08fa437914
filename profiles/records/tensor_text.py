"""One tensor as it stands in a profile's file, see `store`: its lines, and the record that they describe."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import nearest
from ..base.strict_yaml import (
    MalformedError,
    block,
    fields,
    float_at,
    flow_text,
    integer_at,
    list_at,
    text_at,
)
from ..checks.extremes import Extremes
from ..checks.text import Row, extremes_at, extremes_text
from ..checks.text import fault as fault_of_extremes
from .channel_statistics import SUMS, Channels, fault
from .histogram import BINS, INDEX_BITS, MIN_EXPONENT, Bins, EqualBins, Histogram, UnknownBins, exact_sum
from .profile import Dim, TensorProfile

_FIELDS = ("dtype", "shape", "minimum", "maximum", "count", "zeros", "nan", "inf", "histogram")
_CHANNEL_FIELDS = ("axis", "count", "minimum", "maximum", "sums")
_LONG = ("double", "int32", "uint32", "int64", "uint64")
"""Element types with values that float32 does not hold."""
_MAX_EXPONENT = 1024
_MAX_COUNT = (1 << 63) - 1
_INTEGER, _DECIMAL = "[0-9]{1,19}", r"[0-9]+(?:[.][0-9]+)?(?:e[-+]?[0-9]{1,2})?"
_ZEROS = r"\b0[*]([0-9]{1,9})\b"
_PLAIN_COUNTS = re.compile("(?:(?:0[*][1-9][0-9]{0,8}+|[0-9]{1,18}+)(?: |$))*+")


# Writing ---------------------------------------------------------------------------------------------------


def tensor_text(tensor: TensorProfile, place: Mapping[Row, int] | None, indent: int) -> str:
    """Return the lines under a tensor's name.

    Args:
        tensor: the tensor.
        place: of each sample with an extreme in the table of samples; None to write no extremes.
        indent: of the lines.
    """
    values = {key: getattr(tensor, key) for key in _FIELDS[:-1]}
    written = block(values) + f"histogram: {_bins_text(tensor.histogram)}\n"
    if tensor.channels is not None:
        written += _channels_text(tensor.channels, tensor.dtype)
    if place is not None and tensor.extremes is not None:
        shown = extremes_text(tensor.extremes, place, lambda value: _value_text(value, tensor.dtype))
        written += f"extremes: {shown}\n"
    return "".join(f"{' ' * indent}{line}\n" for line in written.splitlines())


def _bins_text(histogram: Bins) -> str:
    if isinstance(histogram, UnknownBins):
        return "null"
    if isinstance(histogram, Histogram):
        bins = f"exponent: {histogram.exponent}, first: {histogram.first}"
    else:
        bins = f"minimum: {flow_text(histogram.minimum)}, maximum: {flow_text(histogram.maximum)}"
    return f'{{{bins}, counts: "{_counts_text(histogram)}"}}'


def _value_text(value: float, dtype: str) -> str:
    """Return one value of a tensor so that `_value` reads it; those of float32 and shorter as float32."""
    return (repr(value) if dtype in _LONG else str(np.float32(value))).removesuffix(".0")


def _value(word: str, dtype: str) -> float:
    with np.errstate(over="ignore"):
        return float(word) if dtype in _LONG else float(np.float32(word))


def _channels_text(channels: Channels, dtype: str) -> str:
    """Return the indented lines of `channels`. Values of float32 and shorter are written as float32."""
    lines = [f"axis: {channels.axis}", f"count: {_numbers_text(channels.count)}"]
    for name in ("minimum", "maximum"):
        values = getattr(channels, name)
        lines.append(f"{name}: {_numbers_text(values if dtype == 'double' else values.astype(np.float32))}")
    lines += ["sums:", *(f"  - {_numbers_text(row)}" for row in channels.sums)]
    return "channels:\n" + "".join(f"  {line}\n" for line in lines)


def _numbers_text(array: npt.NDArray[Any]) -> str:
    """Return one text with all numbers, with one when they are equal."""
    short = array[:1] if (array == array[0]).all() else array
    return f'"{" ".join(short.astype(str).tolist())}"'


def _counts_text(histogram: Histogram | EqualBins) -> str:
    counts = histogram.counts.tolist()
    if isinstance(histogram, EqualBins):
        counts = [int(c) if c.is_integer() else c for c in counts]
    written = " ".join(map(str, counts))
    if "0 0" not in written:
        return written
    return re.sub(r"(?<![\d.])0(?: 0)+(?![\d.])", lambda run: f"0*{len(run[0]) // 2 + 1}", written)


def tensor_at(
    value: object, where: str, rows: Sequence[Row], dtypes: Collection[str] | None
) -> TensorProfile:
    """Return the record that the entry of a tensor describes.

    Args:
        value: the entry.
        where: the tensor, for messages.
        rows: the table of samples with extremes.
        dtypes: element types that it may have; None for any.

    Raises:
        MalformedError: it describes none, or contradicts itself.
    """
    entries = fields(value, where, _FIELDS, ("channels", "extremes"))
    minimum, maximum, count, zeros, nan, inf = (entries[key] for key in _FIELDS[2:-1])
    tensor = TensorProfile(
        dtype=text_at(entries["dtype"], f"{where}: dtype"),
        shape=_shape(entries["shape"], f"{where}: shape"),
        minimum=float_at(minimum, f"{where}: minimum"),
        maximum=float_at(maximum, f"{where}: maximum"),
        count=integer_at(count, f"{where}: count", 0),
        zeros=integer_at(zeros, f"{where}: zeros", 0),
        nan=integer_at(nan, f"{where}: nan", 0),
        inf=integer_at(inf, f"{where}: inf", 0),
        histogram=_histogram(entries["histogram"], f"{where}: histogram"),
    )
    if "channels" in entries:
        tensor = replace(tensor, channels=_channels(entries["channels"], tensor, f"{where}: channels"))
    if "extremes" in entries:
        ends = tensor.minimum, tensor.maximum
        dtype, place = tensor.dtype, f"{where}: extremes"
        extremes = extremes_at(entries["extremes"], rows, ends, lambda word: _value(word, dtype), place)
        tensor = replace(tensor, extremes=extremes)
    check(tensor, where, dtypes)
    return tensor


def _shape(value: object, where: str) -> tuple[Dim, ...] | None:
    if value is None:
        return None
    return tuple(None if dim is None else integer_at(dim, where, 0) for dim in list_at(value, where))


def _histogram(value: object, where: str) -> Bins:
    if value is None:
        return UnknownBins()
    if isinstance(value, dict) and "exponent" in value:
        entries = fields(value, where, ("exponent", "first", "counts"))
        exponent = integer_at(entries["exponent"], f"{where}: exponent")
        first = integer_at(entries["first"], f"{where}: first")
        if not MIN_EXPONENT <= exponent <= _MAX_EXPONENT:
            raise MalformedError(f"{where}: exponent {exponent} is outside {MIN_EXPONENT} .. {_MAX_EXPONENT}")
        if abs(first) >= 1 << INDEX_BITS:
            raise MalformedError(f"{where}: first {first} is beyond {INDEX_BITS} bits")
        plain = _plain_counts(entries["counts"])
        if plain is not None:
            return Histogram(exponent, first, plain)
        words = _counts(entries["counts"], where, _INTEGER)
        exact = np.fromstring(" ".join(words), np.uint64, sep=" ")  # has room for 19 digits
        if exact.max(initial=0) > _MAX_COUNT:
            raise MalformedError(f"{where}: {exact.max()} is not a count; counts are 0 to {_MAX_COUNT}")
        return Histogram(exponent, first, exact.astype(np.int64))
    entries = fields(value, where, ("minimum", "maximum", "counts"))
    counts = [float(word) for word in _counts(entries["counts"], where, _DECIMAL)]
    return EqualBins(
        float_at(entries["minimum"], f"{where}: minimum"),
        float_at(entries["maximum"], f"{where}: maximum"),
        np.array(counts, np.float64),
    )


def _plain_counts(value: object) -> npt.NDArray[np.int64] | None:
    """Return the counts of a text as `_counts_text` writes it, ten times as fast as `_counts`; None where it
    is any other, for example one with an error to be named."""
    if not isinstance(value, str) or not _PLAIN_COUNTS.fullmatch(value):
        return None
    # numpy reads all numbers in one pass if "0*12", which stands for 12 zeros, is written as -12.
    numbers = np.fromstring(value.replace("0*", "-"), np.int64, sep=" ")
    lengths = np.where(numbers < 0, -numbers, 1)
    return np.repeat(np.maximum(numbers, 0), lengths) if lengths.sum() <= BINS else None


def _counts(value: object, where: str, pattern: str) -> list[str]:
    """Return the numbers, as words, that a text such as "3 0*12 1" holds: at most BINS, each as `pattern`."""
    written = text_at(value, f"{where}: counts")
    if "*" in written:
        parts = re.split(_ZEROS, written)
        parts[1::2] = ["0 " * min(int(length), BINS + 1) for length in parts[1::2]]
        written = "".join(parts)
    words = written.split()
    if len(words) > BINS:
        raise MalformedError(f"{where} has more than {BINS} bins")
    if not re.fullmatch(rf"(?:\s*{pattern}(?=\s|$))*\s*", written):
        wrong = next(word for word in words if not re.fullmatch(pattern, word))
        raise MalformedError(f"{where}: '{wrong[:40]}' is not a count; counts are 0 to {_MAX_COUNT}")
    return words


def _channels(value: object, tensor: TensorProfile, where: str) -> Channels:
    entries = fields(value, where, _CHANNEL_FIELDS)
    axis = integer_at(entries["axis"], f"{where}: axis")
    if tensor.shape is None or not -len(tensor.shape) <= axis < len(tensor.shape):
        raise MalformedError(f"{where}: axis {axis} is not an axis of the shape")
    n = tensor.shape[axis]
    if not n:
        raise MalformedError(f"{where}: the shape does not say how many channels axis {axis} has")
    real = np.dtype(np.float64 if tensor.dtype == "double" else np.float32)
    minimum, maximum = (_numbers(entries[key], n, real, f"{where}: {key}") for key in ("minimum", "maximum"))
    rows = list_at(entries["sums"], f"{where}: sums")
    if len(rows) != SUMS:
        raise MalformedError(f"{where}: sums has {len(rows)} entries instead of {SUMS}")
    whole = np.dtype(np.int64)
    sums = np.array([_numbers(row, n, whole, f"{where}: sums") for row in rows])
    return Channels(axis, minimum, maximum, _numbers(entries["count"], n, whole, f"{where}: count"), sums)


def _numbers(value: object, n: int, dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    """Return the n numbers, finite, that a text such as "1 2.5 -3e-7" holds; one number stands for all."""
    written = text_at(value, where)
    words = written.split()
    if not re.fullmatch(r"[-+.e0-9\s]*", written):
        raise MalformedError(f"{where} holds text that is not a number")
    if len(words) not in (1, n):
        raise MalformedError(f"{where} has {len(words)} numbers for {n} channels")
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(words).astype(dtype)
    except (ValueError, OverflowError):
        raise MalformedError(f"{where} holds text that is not a number") from None
    if not np.isfinite(numbers).all():
        raise MalformedError(f"{where} holds a number that is not finite")
    return np.broadcast_to(numbers, n)


# Consistency, checked both ways ----------------------------------------------------------------------------


def check(tensor: TensorProfile, where: str, dtypes: Collection[str] | None) -> None:
    """Raise MalformedError when the numbers of a tensor contradict one another; see `tensor_at`."""
    if dtypes is not None and tensor.dtype not in dtypes:
        raise MalformedError(
            f"{where}: dtype '{tensor.dtype}' is unknown",
            f"known are {', '.join(dtypes)}.{nearest(tensor.dtype, dtypes)}",
        )
    if not (math.isfinite(tensor.minimum) and math.isfinite(tensor.maximum)):
        raise MalformedError(f"{where}: the range {tensor.minimum} .. {tensor.maximum} is not finite")
    if tensor.minimum > tensor.maximum:
        raise MalformedError(f"{where}: minimum {tensor.minimum} is greater than maximum {tensor.maximum}")
    if tensor.zeros > tensor.count:
        raise MalformedError(f"{where}: {tensor.zeros} zeros in {tensor.count} elements")
    if tensor.histogram.counts.min(initial=0) < 0:
        raise MalformedError(f"{where}: the histogram has negative counts")
    total = tensor.count if isinstance(tensor.histogram, UnknownBins) else tensor.histogram.total
    if total != tensor.count:
        raise MalformedError(
            f"{where}: the histogram's counts add up to {total}, not to count {tensor.count}"
        )
    if isinstance(tensor.histogram, Histogram):
        if wrong := tensor.histogram.fault(tensor.minimum, tensor.maximum):
            raise MalformedError(f"{where}: {wrong}")
    elif isinstance(tensor.histogram, EqualBins) and (tensor.histogram.minimum, tensor.histogram.maximum) != (
        tensor.minimum,
        tensor.maximum,
    ):
        raise MalformedError(
            f"{where}: the histogram is outside minimum .. maximum: equal bins must have the same range"
        )
    if tensor.channels is not None:
        _check_channels(tensor, tensor.channels, where)
    if tensor.extremes is not None:
        _check_extremes(tensor, tensor.extremes, where)


def _check_extremes(tensor: TensorProfile, extremes: Extremes, where: str) -> None:
    wrong = fault_of_extremes(extremes)
    if wrong:
        raise MalformedError(f"{where}: extremes: {wrong}")
    ends = [end[0].value for end in (extremes.lowest, extremes.highest) if end]
    if ends != ([tensor.minimum, tensor.maximum] if tensor.count else []):
        raise MalformedError(f"{where}: extremes: are not of minimum and maximum")


def _check_channels(tensor: TensorProfile, channels: Channels, where: str) -> None:
    wrong = fault(channels)
    if wrong:
        raise MalformedError(f"{where}: channels: {wrong}")
    if exact_sum(channels.count) != tensor.count:
        raise MalformedError(f"{where}: the counts of the channels do not add up to count {tensor.count}")
    full = channels.count > 0
    if tensor.count:
        ends = float(channels.minimum[full].min()), float(channels.maximum[full].max())
        if ends != (tensor.minimum, tensor.maximum):
            raise MalformedError(
                f"{where}: the ranges of the channels span {ends[0]} .. {ends[1]}, not minimum .. maximum"
            )
