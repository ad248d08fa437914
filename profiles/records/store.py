"""The file format of profiles: no other module reads or writes it.

A profile is one YAML document that begins with its format and ends with a line "...":

    format: qprof-profile/1
    tool, origin, model, data, tensors, ...       the fields of `Profile`
    ...

Keys are the fields of the records (`Profile`, `ModelId`, `DataId`, `TensorProfile`, `Histogram`, `Channels`,
`InputProfile`), with their types. Floats are written by `repr`, so that `loads(dumps(p)) == p`. A few types
have a special notation:

* An array is one text, `"3 0*12 1"`: `0*n` is a run of n zeros. If all n numbers are equal, the text is
  `"2*64"`. A text that begins with `float32` has the shortest decimals of numbers that float32 holds. An
  array of two dimensions is a list of such texts.
* Bins are distinguished by their fields; null means that only the range is known.
* The tensor of an input that is under `tensors` already is not written again.
* Check samples are listed by their digests; a separate file contains them (`check_samples`).

Only this format is read. To add a field, add it to a record, with a default if older files must stay
readable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..base.conversion import Decoders, Encoders, plain_value, read_record, read_value
from ..base.errors import DataError, MalformedError, ProfileError, not_one_of
from ..base.output_files import read_text, replacing_together, write_atomically
from ..base.seconds import clocked
from ..base.strict_yaml import block, parse_file
from .channel_statistics import Channels, Floats, Integers, fault
from .check_samples import ADVICE as SAMPLES_ADVICE
from .check_samples import check_samples_place, read_samples_file, samples_content, samples_file
from .histogram import BINS, UNKNOWN_BINS, Bins, EqualBins, Histogram, exact_sum
from .profile import FLOAT_DTYPES, ModelId, Profile, TensorProfile

FORMAT = "qprof-profile/1"
ADVICE = "restore the file, or profile the model again with 'qprof dump-profile'"
NOT_IN_FILE = ("non_finite", "held_samples", "noise")


@clocked("write")
def save_profile(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write a profile and the file of its check samples, together."""
    with replacing_together() as batch:
        write_atomically(path, dumps(profile), batch)
        beside = samples_file(path)
        check_samples_place(path)
        if profile.held_samples:
            write_atomically(beside, samples_content(profile.held_samples), batch)
        elif not profile.check_samples and beside.is_file():
            batch.superseded(beside)


def with_samples_of_file(profile: Profile, path: str | os.PathLike[str]) -> tuple[Profile, str]:
    """Return a profile with the check samples beside its file, and the reason for none, or ""."""
    if not profile.check_samples or profile.held_samples:
        return profile, ""
    file = samples_file(path)
    try:
        held = read_samples_file(file)
    except DataError as error:
        return profile, str(error)
    if tuple(sample.digest for sample in held) != profile.check_samples:
        return profile, f"{file}: has the samples of another profile; {SAMPLES_ADVICE}"
    return replace(profile, held_samples=held), ""


def first_lines(file: Path) -> str:
    """Return the beginning of a file, with the format, model and data of a profile; "" for none."""
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            return text.read(4096)
    except OSError:
        return ""


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Return a profile of qprof, read from a file; ProfileError names file and tensor if it is malformed."""
    return loads(read_text(path, ProfileError), Path(path).name)


def dumps(profile: Profile) -> str:
    """Return the text of a profile file; ProfileError if the profile contradicts itself."""
    try:
        _check(profile)
    except MalformedError as problem:
        raise ProfileError(
            f"profile of {profile.model.file or 'a model'}: {problem}; this is a defect of the writer"
        ) from None
    # What is in another file, such as the arrays of samples, is not made a text first.
    written = plain_value(replace(profile, held_samples=(), noise=()), _ENCODERS)
    for name in NOT_IN_FILE:
        written.pop(name, None)
    for name, record in profile.inputs.items():
        if record.tensor == profile.tensors.get(name):
            del written["inputs"][name]["tensor"]
    written["model"] = model_fields(profile.model)
    head = {key: written.pop(key) for key in ("tool", "origin")}
    return block({"format": FORMAT, **head, **written}, levels=3) + "...\n"


def loads(document: str, source: str = "profile") -> Profile:
    """Return the profile that a text describes; `source` names it in errors. See `load_profile`."""
    try:
        top = parse_file(document, FORMAT, "give a profile written by 'qprof dump-profile'")
        del top["format"]
        tensors, inputs = (
            read_value(top.get(key, {}), dict[str, object], key) for key in ("tensors", "inputs")
        )
        for name, record in inputs.items():
            if isinstance(record, dict) and "tensor" not in record and name in tensors:
                record["tensor"] = tensors[name]
        profile = read_record(top, Profile, decoders=_DECODERS, without=NOT_IN_FILE)
        _check(profile)
        return profile
    except MalformedError as problem:
        raise ProfileError(problem.message(source, ADVICE)) from None


def model_fields(model: ModelId) -> dict[str, object]:
    """Return the entries of `model` as they stand in profiles and plans, the file's name first."""
    return {"file": model.file, **plain_value(model)}


# What has a spelling of its own ----------------------------------------------------------------------------


def _numbers_text(array: npt.NDArray[Any]) -> str | list[str]:
    """Return the shortest text of an array of whole numbers or of float64; see the module's docstring."""
    if array.ndim > 1:
        return [str(_numbers_text(row)) for row in array]
    whole = array.dtype != np.float64
    if whole and array.min(initial=0) == 0:
        return _natural_numbers_text(array)
    prefix = ""
    with np.errstate(over="ignore"):
        short = array.astype(np.float32)
    if whole:
        words = _spaced(array).split()
    elif np.array_equal(short, array) and not np.array_equal(np.rint(array), array):
        prefix, words = "float32 ", short.astype(str).tolist()
    else:
        words = [str(int(n)) if n.is_integer() and abs(n) < 1e16 else repr(n) for n in array.tolist()]
    if len(words) > 1 and (array == array[0]).all():
        return f"{prefix}{words[0]}*{len(words)}"
    text = " ".join(words)
    if "0 0" in text:
        text = re.sub(r"(?<![\d.])0(?: 0)+(?![\d.])", lambda run: f"0*{len(run[0]) // 2 + 1}", text)
    return prefix + text


def _natural_numbers_text(array: npt.NDArray[Any]) -> str:
    """Return the text of numbers that are not negative: that of a list in which -n is a run of n zeros."""
    if array.size > 1 and (array == array[0]).all():
        return f"{array[0]}*{array.size}"
    places = np.flatnonzero(array)
    zeros = np.diff(places, prepend=-1, append=array.size) - 1  # before each number, and after the last
    numbers, written = np.zeros(2 * places.size + 1, np.int64), np.ones(2 * places.size + 1, np.bool_)
    numbers[1::2], numbers[::2], written[::2] = array[places], np.where(zeros > 1, -zeros, 0), zeros > 0
    return _spaced(numbers[written]).replace("-", "0*")


def _spaced(numbers: npt.NDArray[np.int64]) -> str:
    """Return whole numbers with spaces between them."""
    return msgspec.json.encode(numbers.tolist())[1:-1].replace(b",", b" ").decode()


MAX_NUMBERS = 1 << 22
"""Numbers that the text of an array may stand for."""

# The possessive quantifiers keep the time linear in the length of a text that does not match.
_NATURAL = re.compile("(?:(?:0[*][1-9][0-9]{0,8}+|[0-9]{1,18}+)(?: |$))*+")
_NUMBER = {np.int64: "[-+]?[0-9]{1,20}", np.float64: r"[-+]?[0-9]+(?:[.][0-9]*)?(?:e[-+]?[0-9]{1,3})?"}


def _read_array(value: Any, where: str, dtype: type[np.int64] | type[np.float64]) -> npt.NDArray[Any]:
    """Return the array that `_numbers_text` was given; every number of the text is checked."""
    if isinstance(value, list):
        rows = [_read_array(row, where, dtype) for row in value]
        if len({row.size for row in rows}) > 1 or any(row.ndim > 1 for row in rows):
            raise MalformedError(f"{where}: the rows are not of one length")
        return np.array(rows, dtype)
    text = str(read_value(value, str, where))
    if dtype is np.int64 and _NATURAL.fullmatch(text):
        # numpy reads all numbers in one pass if "0*12", which stands for 12 zeros, is written as -12.
        natural = np.fromstring(text.replace("0*", "-"), np.int64, sep=" ")
        lengths = np.where(natural < 0, -natural, 1)
        _check_length(int(lengths.sum()), where)
        return np.repeat(np.maximum(natural, 0), lengths)
    real = np.float32 if text.startswith("float32 ") and dtype is np.float64 else dtype
    words = text.removeprefix("float32 ").split() if real is np.float32 else text.split()
    runs = [re.fullmatch("(.*)[*]([1-9][0-9]{0,8})", word) for word in words] if "*" in text else []
    if runs:
        _check_length(sum(int(run[2]) if run else 1 for run in runs), where)
        words = [
            word
            for run, one in zip(runs, words, strict=True)
            for word in ([run[1]] * int(run[2]) if run else [one])
        ]
    if not re.fullmatch(rf"(?:{_NUMBER[dtype]} )*", "".join(f"{word} " for word in words)):
        wrong = next(word for word in words if not re.fullmatch(_NUMBER[dtype], word))
        kind = "a whole number" if dtype is np.int64 else "a number"
        raise MalformedError(f"{where}: '{wrong[:40]}' is not {kind}")
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(words, str).astype(real).astype(dtype)
    except OverflowError:
        raise MalformedError(f"{where}: a number is not below 2**63") from None
    if not np.isfinite(numbers).all():
        raise MalformedError(f"{where}: a number is not finite")
    return numbers


def _check_length(count: int, where: str) -> None:
    if count > MAX_NUMBERS:
        raise MalformedError(f"{where} has more than {MAX_NUMBERS} numbers")


def _read_bins(value: Any, where: str) -> Bins:
    if value is None:
        return UNKNOWN_BINS
    is_exact = isinstance(value, dict) and "exponent" in value
    kind: Any = Histogram if is_exact else EqualBins
    bins: Bins = read_record(value, kind, where, _DECODERS)
    return bins


_ENCODERS: Encoders = {
    np.ndarray: _numbers_text,
    EqualBins: lambda bins: None if bins == UNKNOWN_BINS else plain_value(vars(bins), _ENCODERS),
}
_DECODERS: Decoders = {
    Integers: partial(_read_array, dtype=np.int64),
    Floats: partial(_read_array, dtype=np.float64),
    Bins: _read_bins,
}

# Consistency, checked before writing and after reading -----------------------------------------------------


def _check(profile: Profile) -> None:
    if not re.fullmatch("[a-z0-9-]+", profile.origin):
        raise MalformedError(
            f"origin '{profile.origin}' is not the name of a format of files", "use qprof or glow"
        )
    for name, tensor in profile.items():
        if tensor.dtype not in FLOAT_DTYPES:
            raise not_one_of(f"tensor '{name}': dtype", tensor.dtype, FLOAT_DTYPES)
    if (wrong := next(_faults(profile), None)) is not None:
        raise MalformedError(wrong)


def _faults(profile: Profile) -> Iterator[str]:
    """Yield the contradictions in a profile."""
    for name, tensor in profile.items():
        yield from (f"tensor '{name}': {wrong}" for wrong in _faults_of(tensor))
    for name, record in profile.inputs.items():
        if record.tensor is not profile.tensors.get(name):
            yield from (f"input '{name}': {wrong}" for wrong in _faults_of(record.tensor))
        if any(low > high for low, high in record.sizes or ()):
            yield f"input '{name}': sizes has a smallest size above the largest"
    kept = list(profile.check_samples)
    if kept != sorted(set(kept)) or len(kept) > profile.keep_samples:
        yield f"check_samples must list at most {profile.keep_samples} digests, each once and in order"


def _faults_of(tensor: TensorProfile) -> Iterator[str]:
    low, high, bins = tensor.minimum, tensor.maximum, tensor.histogram
    if low > high:
        yield f"minimum {low} is greater than maximum {high}"
    if tensor.zeros > tensor.count:
        yield f"{tensor.zeros} zeros in {tensor.count} elements"
    if bins.counts.size > BINS:
        yield f"histogram has more than {BINS} bins"
    if bins.counts.min(initial=0) < 0:
        yield "the histogram has negative counts"
    if bins != UNKNOWN_BINS and bins.total != tensor.count:
        yield f"the histogram's counts add up to {bins.total}, not to count {tensor.count}"
    if isinstance(bins, Histogram) and (wrong := bins.fault(low, high)):
        yield wrong
    if isinstance(bins, EqualBins) and bins != UNKNOWN_BINS and (bins.minimum, bins.maximum) != (low, high):
        yield "the histogram is outside minimum .. maximum: equal bins must have the same range"
    if (channels := tensor.channels) is not None:
        yield from (f"channels: {wrong}" for wrong in _faults_of_channels(tensor, channels))


def _faults_of_channels(tensor: TensorProfile, channels: Channels) -> Iterator[str]:
    if wrong := fault(channels):
        yield wrong
    if tensor.shape is not None:
        if not -len(tensor.shape) <= channels.axis < len(tensor.shape):
            yield f"axis {channels.axis} is not an axis of the shape"
        size, count = tensor.shape[channels.axis], channels.count.size
        if size not in (None, count):
            yield f"there are {count}, and the shape has {size} on axis {channels.axis}"
    if exact_sum(channels.count) != tensor.count:
        yield f"their counts do not add up to count {tensor.count}"
    full = channels.count > 0
    if tensor.count:
        ends = float(channels.minimum[full].min()), float(channels.maximum[full].max())
        if ends != (tensor.minimum, tensor.maximum):
            yield f"their ranges span {ends[0]} .. {ends[1]}, not minimum .. maximum"
