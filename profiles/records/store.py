"""The file format of profiles: no other module reads or writes it.

A profile is one YAML document that ends with a line "...":

    format: qprof-profile/4
    tool: ...                      who wrote it
    origin: qprof                  or the name of the file format of another tool
    model: file, structure, weights, opset
    data: samples, digest, runs, random (true where some samples are random values)
    tensors:                       in graph order
      NAME:
        dtype, shape (null where free; null for an unknown rank), minimum, maximum, count, zeros, nan, inf
        histogram: exponent, first, counts          bins of width 2**exponent
                or minimum, maximum, counts         equal bins, of another tool's file
                or null                             where that has none: only the range is known
        channels: axis, count, minimum, maximum, sums       where channels were recorded one by one
        extremes: lowest, highest                           see `extremes_text`
    extreme_samples:               digest and name of each sample that made an extreme
    inputs:                        of the graph, in order
      NAME: sizes, normalised, transposed                   see `profile.InputProfile`
        tensor:                    as under `tensors`, where the input is not among them
    noise: samples, measured       measured noise, see `noise.text`; absent where none was to be measured

`counts` is one text of numbers; `0*n` stands for a run of n zeros. Floats are written by `repr`, so that
`loads(dumps(p)) == p`. Under `channels`, `count`, `minimum` and `maximum` are one text each with a number for
each channel (one number where all are equal), and `sums` is a list of such texts;
`channel_statistics.Channels` defines them. Format 5 is format 4 with tensors whose histogram is null, and
written where there are some. Format 3 is format 4 without runs, extremes and inputs, and written where there
are none; format 2 is that without `noise`; format 1 is that without `channels`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import ProfileError, nearest
from ..base.output_files import read_text, write_atomically
from ..base.strict_yaml import (
    MalformedError,
    block,
    check_format,
    check_whole,
    entry,
    fields,
    flag_at,
    float_at,
    flow_text,
    integer_at,
    list_at,
    mapping_at,
    parse,
    text_at,
)
from .channel_statistics import SUMS, Channels, fault
from .extremes_text import Row, extremes_at, extremes_text, fault_of_extremes, rows_at, rows_text, sample_rows
from .histogram import BINS, INDEX_BITS, MIN_EXPONENT, Bins, EqualBins, Histogram, UnknownBins, exact_sum
from .profile import (
    FLOAT_DTYPES,
    DataId,
    Dim,
    Extremes,
    InputProfile,
    ModelId,
    Profile,
    SampleNoise,
    TensorNoise,
    TensorProfile,
    sizes_at,
    sizes_text,
)

# Measured noise as it stands in a profile's file.
#
# Each sample has one text of numbers for each of three figures: a number for each tensor of the profile,
# in its
# order, `-` where nothing was measured.

FIGURES = ("signal", "activation_noise", "weight_noise")
NOTHING = TensorNoise(None, None, None)


def noise_text(samples: Sequence[SampleNoise], count: int, names: Sequence[str]) -> str:
    """Return the lines of the entry `noise`.

    Args:
        samples: in order of their digests.
        count: how many there were to be at most.
        names: of the tensors of the profile, in order.
    """
    lines = ["noise:\n", block({"samples": count}, 2), "  measured:\n" if samples else "  measured: {}\n"]
    for sample in samples:
        noises = [sample.tensors.get(name, NOTHING) for name in names]
        figures = {key: " ".join(_word(getattr(noise, key)) for noise in noises) for key in FIGURES}
        values = block({**figures, "changed_shapes": list(sample.changed_shapes)}, 6)
        lines.append(entry(sample.digest, "\n" + values.rstrip("\n"), 4))
    return "".join(lines)


def _word(figure: float | None) -> str:
    return "-" if figure is None else repr(figure).removesuffix(".0")


def noise_at(value: object, names: Sequence[str]) -> tuple[int, tuple[SampleNoise, ...]]:
    """Return the number of samples asked for and the noise that an entry `noise` describes.

    Raises:
        MalformedError: it does not describe any.
    """
    entries = fields(value, "noise", ("samples", "measured"))
    count = integer_at(entries["samples"], "noise: samples", 0)
    measured = mapping_at(entries["measured"], "noise: measured")
    samples = tuple(_sample(digest, entry, names) for digest, entry in measured.items())
    digests = [sample.digest for sample in samples]
    if digests != sorted(digests) or len(digests) > count:
        raise MalformedError(f"noise: measured must hold at most {count} samples, in order of their digests")
    return count, samples


def _sample(digest: str, value: object, names: Sequence[str]) -> SampleNoise:
    where = f"noise: {digest[:40]}"
    if not re.fullmatch("[0-9a-f]{32}", digest):
        raise MalformedError(f"{where}: is not 32 hexadecimal digits")
    entries = fields(value, where, (*FIGURES, "changed_shapes"))
    columns = [_figures(entries[key], len(names), f"{where}: {key}") for key in FIGURES]
    noises = (TensorNoise(*row) for row in zip(*columns, strict=True))
    tensors = {name: noise for name, noise in zip(names, noises, strict=True) if noise != NOTHING}
    listed = list_at(entries["changed_shapes"], f"{where}: changed_shapes")
    changed = tuple(text_at(name, f"{where}: changed_shapes") for name in listed)
    if unknown := sorted(set(changed) - set(names)):
        raise MalformedError(f"{where}: changed_shapes names '{unknown[0]}', which is no tensor here")
    return SampleNoise(digest, tensors, changed)


def _figures(value: object, count: int, where: str) -> list[float | None]:
    words = text_at(value, where).split()
    if len(words) != count:
        raise MalformedError(f"{where} has {len(words)} numbers for {count} tensors")
    return [None if word == "-" else _figure(word, where) for word in words]


def _figure(word: str, where: str) -> float:
    if not re.fullmatch(r"[0-9]+(?:[.][0-9]+)?(?:e[-+]?[0-9]{1,3})?", word) or not isfinite(float(word)):
        raise MalformedError(f"{where}: '{word[:40]}' is not a mean square")
    return float(word)


# One tensor as it stands in a profile's file, see `store`: its lines, and the record that they describe.

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


FAMILY, VERSION, WITHOUT_RANGES, WITHOUT_RUNS, WITHOUT_NOISE = "qprof-profile", 5, 4, 3, 2
ADVICE = "restore the file, or profile the model again with 'qprof dump-profile'"


def save_profile(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write a profile in one step: the file is complete, or as it was before.

    Args:
        profile: what to write.
        path: the file; replaced when it exists.

    Raises:
        ProfileError: the profile contradicts itself. ConfigError: the file cannot be written.
    """
    write_atomically(path, dumps(profile))


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile of qprof.

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
    version = WITHOUT_RANGES if profile.runs else WITHOUT_RUNS if profile.noise_samples else WITHOUT_NOISE
    version = VERSION if any(isinstance(t.histogram, UnknownBins) for t in profile.values()) else version
    head = {"format": f"{FAMILY}/{version}", "tool": profile.tool, "origin": profile.origin}
    lines = [block(head), "model:\n", block(model_fields(profile.model), 2)]
    data = {"samples": profile.data.samples, "digest": profile.data.digest}
    runs = {"runs": profile.runs} if profile.runs else {}
    lines += ["data:\n", block(data | runs | ({"random": True} if profile.data.random else {}), 2)]
    others = {name: given for name, given in profile.inputs.items() if name not in profile}
    written = [*profile.values(), *(given.tensor for given in others.values())] if profile.runs else []
    rows = sample_rows(tensor.extremes for tensor in written)
    place = {row: number for number, row in enumerate(rows)} if profile.runs else None
    lines.append("tensors:\n" if profile.tensors else "tensors: {}\n")
    try:
        for name, tensor in profile.tensors.items():
            check(tensor, f"tensor '{name}'", FLOAT_DTYPES)
            lines.append(entry(name, "\n" + tensor_text(tensor, place, 4).rstrip("\n"), 2))
        if profile.runs:
            lines.append(rows_text(rows))
            lines += _inputs_text(profile, place)
    except MalformedError as problem:
        raise ProfileError(
            f"profile of {profile.model.file or 'a model'}: {problem}; this is a defect of the writer"
        ) from None
    if profile.noise_samples:
        lines.append(noise_text(profile.noise, profile.noise_samples, list(profile)))
    return "".join(lines) + "...\n"


def _inputs_text(profile: Profile, place: Mapping[Row, int] | None) -> Iterator[str]:
    """Yield the lines of the entry `inputs`."""
    yield "inputs:\n" if profile.inputs else "inputs: {}\n"
    for name, given in profile.inputs.items():
        facts = {"sizes": sizes_text(given.sizes), "normalised": given.normalised}
        written = block({**facts, "transposed": given.transposed}, 4)
        if name not in profile:
            check(given.tensor, f"input '{name}'", None)
            written += f"    tensor:\n{tensor_text(given.tensor, place, 6)}"
        yield entry(name, "\n" + written.rstrip("\n"), 2)


def loads(document: str, source: str = "profile") -> Profile:
    """Return the profile that a text describes; `source` names it in errors. See `load_profile`."""
    try:
        if document.startswith(f"format: {FAMILY}/"):
            check_whole(document)
        top = check_format(parse(document), FAMILY, VERSION, "give a profile written by 'qprof dump-profile'")
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


# Reading ---------------------------------------------------------------------------------------------------


def _profile(top: dict[str, object]) -> Profile:
    optional = ("noise", "extreme_samples", "inputs")
    fields(top, "the document", ("format", "tool", "origin", "model", "data", "tensors"), optional)
    origin = text_at(top["origin"], "origin")
    if not re.fullmatch("[a-z0-9-]+", origin):
        raise MalformedError(f"origin '{origin}' is not the name of a format of files", "use qprof or glow")
    data = fields(top["data"], "data", ("samples", "digest"), ("runs", "random"))
    digest = text_at(data["digest"], "data: digest")
    if not re.fullmatch("[0-9a-f]{32}", digest):
        raise MalformedError(f"data: digest '{digest}' is not 32 hexadecimal digits")
    rows = rows_at(top["extreme_samples"]) if "extreme_samples" in top else []
    entries = mapping_at(top["tensors"], "tensors")
    tensors = {
        name: tensor_at(value, f"tensor '{name}'", rows, FLOAT_DTYPES) for name, value in entries.items()
    }
    inputs = mapping_at(top["inputs"], "inputs") if "inputs" in top else {}
    count, noise = noise_at(top["noise"], list(tensors)) if "noise" in top else (0, ())
    return Profile(
        model=model_at(top["model"]),
        data=DataId(
            integer_at(data["samples"], "data: samples", 0),
            digest,
            flag_at(data.get("random", False), "data: random"),
        ),
        tensors=tensors,
        origin=origin,
        tool=text_at(top["tool"], "tool"),
        noise=noise,
        noise_samples=count,
        runs=integer_at(data.get("runs", 0), "data: runs", 0),
        inputs={name: _input(name, value, rows, tensors) for name, value in inputs.items()},
    )


def _input(
    name: str, value: object, rows: Sequence[Row], tensors: Mapping[str, TensorProfile]
) -> InputProfile:
    where = f"input '{name}'"
    own = () if name in tensors else ("tensor",)
    entries = fields(value, where, ("sizes", "normalised", "transposed", *own))
    return InputProfile(
        tensors[name] if name in tensors else tensor_at(entries["tensor"], where, rows, None),
        sizes_at(entries["sizes"], f"{where}: sizes"),
        flag_at(entries["normalised"], f"{where}: normalised"),
        flag_at(entries["transposed"], f"{where}: transposed"),
    )
