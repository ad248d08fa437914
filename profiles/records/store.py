"""The file format of profiles: no other module reads or writes it.

A profile is one YAML document that ends with a line "...":

    format: qprof-profile/3
    tool: ...                      who wrote it
    origin: qprof                  or glow, while the keys are Glow's names
    model: file, structure, weights, opset
    data: samples, digest
    tensors:                       in graph order
      NAME:
        dtype, shape (null where free; null for an unknown rank), minimum, maximum, count, zeros, nan, inf
        histogram: exponent, first, counts          bins of width 2**exponent
                or minimum, maximum, counts         equal bins, from a Glow profile
        channels: axis, count, minimum, maximum, sums       where channels were recorded one by one
    noise: samples, measured       measured noise, see `noise.text`; absent where none was to be measured

`counts` is one text of numbers; `0*n` stands for a run of n zeros. Floats are written by `repr`, so that
`loads(dumps(p)) == p`. Under `channels`, `count`, `minimum` and `maximum` are one text each with a number for
each channel (one number where all are equal), and `sums` is a list of such texts;
`channel_statistics.Channels` defines them. Format 2 is the same without `noise`, and written where there is
none; format 1 is that without `channels`. Glow's own YAML is recognised when reading and written on request
(`glow_format`).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.atomic_files import read_text, write_atomically
from ..base.errors import ConfigError, ProfileError, nearest
from ..base.strict_yaml import (
    MalformedError,
    block,
    check_format,
    check_whole,
    entry,
    fields,
    float_at,
    flow_text,
    integer_at,
    list_at,
    mapping_at,
    parse,
    text_at,
)
from ..noise.text import noise_at, noise_text
from . import glow_format
from .channel_statistics import SUMS, Channels, fault
from .histogram import BINS, INDEX_BITS, MIN_EXPONENT, EqualBins, Histogram, exact_sum
from .profile import FLOAT_DTYPES, DataId, Dim, ModelId, Profile, TensorProfile

FAMILY, VERSION, WITHOUT_NOISE = "qprof-profile", 3, 2
FORMATS = ("qprof", "glow")
ADVICE = "restore the file, or profile the model again with 'qprof dump-profile'"

_FIELDS = ("dtype", "shape", "minimum", "maximum", "count", "zeros", "nan", "inf", "histogram")
_CHANNEL_FIELDS = ("axis", "count", "minimum", "maximum", "sums")
_MAX_EXPONENT = 1024
_MAX_COUNT = (1 << 63) - 1
_INTEGER, _DECIMAL = "[0-9]{1,19}", r"[0-9]+(?:[.][0-9]+)?(?:e[-+]?[0-9]{1,2})?"
_ZEROS = r"\b0[*]([0-9]{1,9})\b"
_PLAIN_COUNTS = re.compile("(?:(?:0[*][1-9][0-9]{0,8}+|[0-9]{1,18}+)(?: |$))*+")


def save_profile(
    profile: Profile,
    path: str | os.PathLike[str],
    format: str = "qprof",
    names: Mapping[str, str] | None = None,
) -> None:
    """Write a profile in one step: the file is complete, or as it was before.

    Args:
        profile: what to write.
        path: the file; replaced when it exists.
        format: "qprof", or "glow" for Glow's YAML (SPEC section C), which drops dtypes, shapes, zeros and
            digits of counts above 999999.
        names: for "glow": tensor name to Glow's name, from `glow_names.glow_names`; not needed for a
            profile that came from Glow.

    Raises:
        ProfileError: the profile contradicts itself, or a tensor has no Glow name.
        ConfigError: the format is unknown, or the file cannot be written.
    """
    if format not in FORMATS:
        raise ConfigError(f"format '{format}': no such format of profiles; use one of {', '.join(FORMATS)}")
    write_atomically(path, dumps(profile) if format == "qprof" else glow_format.dumps_profile(profile, names))


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile in qprof's format or in Glow's, recognised by its content.

    Raises:
        ProfileError: the file is missing, malformed in any way, or contradicts itself; the message names
            file and tensor.
    """
    return loads(read_text(path, ProfileError), Path(path).name)


def dumps(profile: Profile) -> str:
    """Return the text of a profile file.

    Raises:
        ProfileError: the profile contradicts itself (`loads` would refuse the text).
    """
    version = VERSION if profile.noise_samples else WITHOUT_NOISE
    head = {"format": f"{FAMILY}/{version}", "tool": profile.tool, "origin": profile.origin}
    lines = [block(head), "model:\n", block(model_fields(profile.model), 2)]
    lines += ["data:\n", block({"samples": profile.data.samples, "digest": profile.data.digest}, 2)]
    lines.append("tensors:\n" if profile.tensors else "tensors: {}\n")
    try:
        for name, tensor in profile.tensors.items():
            _check(tensor, f"tensor '{name}'")
            lines.append(entry(name, "\n" + _tensor_text(tensor).rstrip("\n"), 2))
    except MalformedError as problem:
        raise ProfileError(
            f"profile of {profile.model.file or 'a model'}: {problem}; this is a defect of the writer"
        ) from None
    if profile.noise_samples:
        lines.append(noise_text(profile.noise, profile.noise_samples, list(profile)))
    return "".join(lines) + "...\n"


def loads(document: str, source: str = "profile") -> Profile:
    """Return the profile that a text describes; `source` names it in errors. See `load_profile`."""
    try:
        if glow_format.is_glow(document):
            return glow_format.loads_profile(document)
        if document.startswith(f"format: {FAMILY}/"):
            check_whole(document)
        top = check_format(
            parse(document), FAMILY, VERSION, "give a profile written by 'qprof dump-profile' or by Glow"
        )
        check_whole(document)
        return _profile(top)
    except MalformedError as problem:
        raise ProfileError(problem.message(source, ADVICE)) from None


def model_fields(model: ModelId) -> dict[str, object]:
    """Return the entries of `model` as they stand in profiles and plans."""
    return {"file": model.file, "structure": model.structure, "weights": model.weights, "opset": model.opset}


def model_at(value: object) -> ModelId:
    """Return the ModelId that the entry `model` of a profile or a plan describes, or raise MalformedError."""
    entries = fields(value, "model", ("file", "structure", "weights", "opset"))
    return ModelId(
        structure=text_at(entries["structure"], "model: structure"),
        weights=text_at(entries["weights"], "model: weights"),
        opset=integer_at(entries["opset"], "model: opset", 0),
        file=text_at(entries["file"], "model: file"),
    )


# Writing ---------------------------------------------------------------------------------------------------


def _tensor_text(tensor: TensorProfile) -> str:
    """Return the indented lines under a tensor's name."""
    values = {key: getattr(tensor, key) for key in _FIELDS[:-1]}
    histogram = tensor.histogram
    if isinstance(histogram, Histogram):
        bins = f"exponent: {histogram.exponent}, first: {histogram.first}"
    else:
        bins = f"minimum: {flow_text(histogram.minimum)}, maximum: {flow_text(histogram.maximum)}"
    written = block(values, 4) + f'    histogram: {{{bins}, counts: "{_counts_text(histogram)}"}}\n'
    return written if tensor.channels is None else written + _channels_text(tensor.channels, tensor.dtype)


def _channels_text(channels: Channels, dtype: str) -> str:
    """Return the indented lines of `channels`. Values of float32 and shorter are written as float32."""
    lines = [f"axis: {channels.axis}", f"count: {_numbers_text(channels.count)}"]
    for name in ("minimum", "maximum"):
        values = getattr(channels, name)
        lines.append(f"{name}: {_numbers_text(values if dtype == 'double' else values.astype(np.float32))}")
    lines += ["sums:", *(f"  - {_numbers_text(row)}" for row in channels.sums)]
    return "    channels:\n" + "".join(f"      {line}\n" for line in lines)


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


# Reading ---------------------------------------------------------------------------------------------------


def _profile(top: dict[str, object]) -> Profile:
    fields(top, "the document", ("format", "tool", "origin", "model", "data", "tensors"), ("noise",))
    origin = text_at(top["origin"], "origin")
    if origin not in ("qprof", "glow"):
        raise MalformedError(f"origin '{origin}' is unknown", "use qprof or glow")
    data = fields(top["data"], "data", ("samples", "digest"))
    digest = text_at(data["digest"], "data: digest")
    if not re.fullmatch("[0-9a-f]{32}", digest):
        raise MalformedError(f"data: digest '{digest}' is not 32 hexadecimal digits")
    tensors = mapping_at(top["tensors"], "tensors")
    count, noise = noise_at(top["noise"], list(tensors)) if "noise" in top else (0, ())
    return Profile(
        model=model_at(top["model"]),
        data=DataId(integer_at(data["samples"], "data: samples", 0), digest),
        tensors={name: _tensor(value, f"tensor '{name}'") for name, value in tensors.items()},
        origin=origin,
        tool=text_at(top["tool"], "tool"),
        noise=noise,
        noise_samples=count,
    )


def _tensor(value: object, where: str) -> TensorProfile:
    entries = fields(value, where, _FIELDS, ("channels",))
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
    _check(tensor, where)
    return tensor


def _shape(value: object, where: str) -> tuple[Dim, ...] | None:
    if value is None:
        return None
    return tuple(None if dim is None else integer_at(dim, where, 0) for dim in list_at(value, where))


def _histogram(value: object, where: str) -> Histogram | EqualBins:
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


def _check(tensor: TensorProfile, where: str) -> None:
    """Raise MalformedError when the numbers of a tensor contradict one another."""
    if tensor.dtype not in FLOAT_DTYPES:
        raise MalformedError(
            f"{where}: dtype '{tensor.dtype}' is unknown",
            f"known are {', '.join(FLOAT_DTYPES)}.{nearest(tensor.dtype, FLOAT_DTYPES)}",
        )
    if not (math.isfinite(tensor.minimum) and math.isfinite(tensor.maximum)):
        raise MalformedError(f"{where}: the range {tensor.minimum} .. {tensor.maximum} is not finite")
    if tensor.minimum > tensor.maximum:
        raise MalformedError(f"{where}: minimum {tensor.minimum} is greater than maximum {tensor.maximum}")
    if tensor.zeros > tensor.count:
        raise MalformedError(f"{where}: {tensor.zeros} zeros in {tensor.count} elements")
    if tensor.histogram.counts.min(initial=0) < 0:
        raise MalformedError(f"{where}: the histogram has negative counts")
    total = tensor.histogram.total
    if total != tensor.count:
        raise MalformedError(
            f"{where}: the histogram's counts add up to {total}, not to count {tensor.count}"
        )
    if isinstance(tensor.histogram, Histogram):
        if wrong := tensor.histogram.fault(tensor.minimum, tensor.maximum):
            raise MalformedError(f"{where}: {wrong}")
    elif (tensor.histogram.minimum, tensor.histogram.maximum) != (tensor.minimum, tensor.maximum):
        raise MalformedError(
            f"{where}: the histogram is outside minimum .. maximum: equal bins must have the same range"
        )
    if tensor.channels is not None:
        _check_channels(tensor, tensor.channels, where)


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
