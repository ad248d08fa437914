"""Check samples: a few samples of a profile, kept in a file beside it, on which models are run before they
are written.

Those with the smallest digests are kept (as many in a row as have room: a few in `DIGEST_BYTES`, small ones
up to `MORE_BYTES` as well), and those that are extreme: the loudest, the quietest, the shortest and the
longest. Both are choices of which the choice from all data is that from the choices of its parts, so that
merging is exact. Room in the file is counted in packed arrays without compression, as zlib's versions differ.

The file is an `.npz` archive that nothing compresses:

    names.npy                  text (inputs,): names of the model's inputs
    digests.npy                text (samples,): digest of each sample, in order
    3.0.npy                    the array of sample 3 for input 0, or where it has few distinct values
    3.0.codes.npy              their numbers, uint8 or uint16, in the shape of the array, and
    3.0.values.npy             the distinct values, in order of their bits

The profile names its check samples by their digests; a file with other samples is not its own.
"""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import ConfigError, DataError
from ..base.output_files import read_bytes

Array = npt.NDArray[Any]

ADVICE = "put the file back that was written with the profile, or profile the model again"

SUFFIX = ".samples.npz"
"""Ends the name of the file, after the profile's without .yaml."""

FIRST_MEMBER = b"names.npy"
"""Name of the first member of the file, behind the 30 bytes that begin one."""

DIGEST_BYTES = 8 << 20
"""Bytes that the samples with the smallest digests may have, packed."""

FEW, MORE_BYTES = 12, 1 << 20
"""How many of the samples with the smallest digests are kept whatever their size, and bytes of the arrays up
to which more of them are."""

EXTREME_BYTES = 2 << 20
"""Bytes of the arrays of a sample up to which it can be chosen as extreme."""

CHUNK = 1 << 18
"""Elements that are looked up at a time: positions take eight bytes each."""

POWER_ELEMENTS = MOST_VALUES = 1 << 16
"""Elements of which the power of a sample is taken, and distinct values that have numbers."""

EXTREMES = 4
"""Extreme samples at most: the loudest, the quietest, the shortest, the longest."""

MAX_FILE_BYTES = 2 * (DIGEST_BYTES + EXTREMES * EXTREME_BYTES)
"""Bytes from which on a file is none that qprof wrote."""


@dataclass(frozen=True, eq=False)
class CheckSample:
    """A sample that is kept: the inputs of the model in one run.

    Attributes:
        digest: of its data, as 32 hexadecimal digits.
        arrays: by name of the input.
    """

    digest: str
    arrays: Mapping[str, Array]

    @cached_property
    def packed(self) -> Mapping[str, tuple[Array, Array | None]]:
        """The arrays in the form of the file, see `_packed`."""
        return {name: _packed(array) for name, array in self.arrays.items()}

    @cached_property
    def packed_bytes(self) -> int:
        """Bytes that they have there."""
        return sum(part.nbytes for parts in self.packed.values() for part in parts if part is not None)


@dataclass(frozen=True, order=True)
class SampleSize:
    """The measures by which samples are extreme.

    Attributes:
        power: mean square of the finite elements of all numeric inputs, of at most `POWER_ELEMENTS` of each.
        elements: of all inputs.
        bytes: of all inputs.
    """

    power: float
    elements: int
    bytes: int


def size_of(arrays: Mapping[str, Array]) -> SampleSize:
    """Return the power and the number of elements of a sample."""
    total, count, elements, size = 0.0, 0, 0, 0
    for name in sorted(arrays):
        values = arrays[name]
        elements, size = elements + values.size, size + values.nbytes
        if values.dtype.kind in "fiu":
            floats = np.asarray(values.reshape(-1)[:: 1 + values.size // POWER_ELEMENTS], np.float64)
            finite = floats if np.isfinite(floats).all() else floats[np.isfinite(floats)]
            total += float(np.square(finite).sum())
            count += finite.size
    return SampleSize(total / max(count, 1), elements, size)


def digest_count(count: int) -> int:
    """Return how many of `count` check samples have the smallest digests; the others are extreme."""
    return count - min(EXTREMES, count // 4)


def smallest_digests(sizes: Mapping[str, int], count: int) -> tuple[str, ...]:
    """Return the smallest digests of samples, in order, at most `count`.

    They are `FEW`, and more as long as all together have at most `MORE_BYTES`. `sizes` are bytes by digest.
    """
    chosen, total = list[str](), 0
    for digest in sorted(sizes)[:count]:
        total += sizes[digest]
        if len(chosen) >= FEW and total > MORE_BYTES:
            break
        chosen.append(digest)
    return tuple(chosen)


def extreme_digests(sizes: Mapping[str, SampleSize], count: int) -> tuple[str, ...]:
    """Return the digests of the extreme samples, each once: loudest, quietest, longest, shortest.

    Among equal ones the smallest digest is taken; samples above `EXTREME_BYTES` are left out. `count` is that
    of all check samples.
    """
    sizes = {digest: size for digest, size in sizes.items() if size.bytes <= EXTREME_BYTES}
    chosen = []
    if sizes:
        chosen = [
            min(sizes, key=lambda digest: (-sizes[digest].power, digest)),
            min(sizes, key=lambda digest: (sizes[digest].power, digest)),
            min(sizes, key=lambda digest: (-sizes[digest].elements, digest)),
            min(sizes, key=lambda digest: (sizes[digest].elements, digest)),
        ]
    return tuple(dict.fromkeys(chosen[: count - digest_count(count)]))


def chosen_samples(samples: Iterable[CheckSample], count: int) -> tuple[CheckSample, ...]:
    """Return the samples to store, at most `count`, in order of their digests; equal ones count as one."""
    every = {sample.digest: sample for sample in samples}
    kept, room = set[str](), DIGEST_BYTES
    sizes = {digest: size_of(sample.arrays) for digest, sample in every.items()}
    for digest in smallest_digests({d: size.bytes for d, size in sizes.items()}, digest_count(count)):
        room -= every[digest].packed_bytes
        if room < 0:
            break
        kept.add(digest)
    kept.update(extreme_digests(sizes, count))
    return tuple(every[digest] for digest in sorted(kept))


def samples_file(profile: str | os.PathLike[str]) -> Path:
    """Return the file of the check samples of a profile's file."""
    path = Path(profile)
    name = path.name.removesuffix(".yaml").removesuffix(".yml")
    return path.with_name(f"{name}{SUFFIX}")


def is_samples_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as one of check samples, even if the rest is damaged."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            begin = file.read(30 + len(FIRST_MEMBER))
            return begin[:4] == b"PK\3\4" and begin[30:] == FIRST_MEMBER
    except OSError:
        return False


def check_samples_place(profile: str | os.PathLike[str]) -> None:
    """Refuse the file of a profile if its check samples would replace, or remove, another file."""
    file = samples_file(profile)
    if os.path.isfile(file) and os.path.getsize(file) and not is_samples_file(file):
        raise ConfigError(
            f"{file}: holds no check samples and would be replaced by those of {Path(profile).name}; choose "
            "another name for the profile, or move the file"
        )


# Packing: of few distinct values their numbers ------------------------------------------------------------


def _packed(array: Array) -> tuple[Array, Array | None]:
    """Return the array and None, or the numbers of its values and these values if that takes less room.

    If a part of an array already has more distinct values than there are numbers, the rest is not looked at.
    """
    if array.dtype.kind == "O":
        return np.array([str(text) for text in array.flat], dtype=np.str_).reshape(array.shape), None
    if array.dtype.itemsize not in (2, 4, 8) or array.dtype.kind not in "fiu":
        return array, None
    bits = np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")
    every = bits.reshape(-1)
    values, missing = every[:0], every[:: 1 + every.size // MOST_VALUES]
    while missing.size:  # those of a part, then those that are not among them
        values = _distinct(np.concatenate([values, missing[:MOST_VALUES]]))
        kind = np.dtype(np.uint8 if values.size <= 1 << 8 else np.uint16)
        if values.size > MOST_VALUES or array.size * kind.itemsize + values.nbytes >= array.nbytes:
            return array, None
        codes, missing, number = np.empty(every.size, kind), every[:0], _numbering(values, every.size)
        # The first part is a small one: where all elements differ it shows that.
        for first, stop in pairwise((0, *range(MOST_VALUES, every.size, CHUNK), every.size)):
            part = every[first:stop]
            own = number(part)
            missing = part[values[own] != part]
            if missing.size:
                break
            codes[first:stop] = own
    return (codes.reshape(array.shape), values.view(array.dtype)) if every.size else (array, None)


def _distinct(array: Array) -> Array:
    """Return the distinct elements of a flat array of integers, in order.

    It takes a tenth of the time of `numpy.unique`.
    """
    ordered = np.sort(array)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if ordered.size else ordered


_FACTORS = {4: (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D), 8: (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)}
"""Odd numbers by which bits of so many bytes are multiplied, one after another until all values differ in the
upper bits of the product."""

_UPPER_BITS = 22


def _numbering(values: Array, elements: int) -> Callable[[Array], Array]:
    """Return a function from bits to numbers of values; for bits that are none of these, any number.

    `values` are bits, uint16, uint32 or uint64, in order, each once. A look-up table is several times as fast
    as a search: pictures have a few hundred values. It does not pay for few `elements`.
    """
    kind = values.dtype.type
    shift = kind(max(0, 8 * values.dtype.itemsize - _UPPER_BITS))
    # Of more values, two have the same upper bits.
    is_tried = elements >= CHUNK >> 2 and values.size**2 < 1 << (_UPPER_BITS + 1)
    for factor in map(kind, _FACTORS.get(values.dtype.itemsize, (1,)) if is_tried else ()):
        places = (values * factor) >> shift
        if _distinct(places).size == values.size:
            table = np.zeros(1 << _UPPER_BITS, np.uint16)
            table[places] = np.arange(values.size)
            return lambda part: table[(part * factor) >> shift]
    return lambda part: np.minimum(np.searchsorted(values, part), values.size - 1)


def samples_content(samples: Sequence[CheckSample]) -> bytes:
    """Return the content of the file: the same for the same samples, on every machine."""
    names = sorted({name for sample in samples for name in sample.arrays})
    members: dict[str, Array] = {
        "names": np.array(names, np.str_),
        "digests": np.array([sample.digest for sample in samples], np.str_),
    }
    for row, sample in enumerate(samples):
        for column, name in enumerate(names):
            first, values = sample.packed[name]
            key = f"{row}.{column}"
            members |= {key: first} if values is None else {f"{key}.codes": first, f"{key}.values": values}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for key, array in members.items():
            content = io.BytesIO()
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            np.lib.format.write_array(content, np.ascontiguousarray(little).reshape(array.shape))
            entry = zipfile.ZipInfo(f"{key}.npy")  # of 1980, so that the time changes no byte
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, content.getvalue())
    return file.getvalue()


def read_samples_file(path: Path) -> tuple[CheckSample, ...]:
    """Return the check samples in the file beside a profile.

    DataError if it is missing, no regular file, larger than any that is written, or damaged.
    """
    try:
        status = path.stat()
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}; {ADVICE}") from None
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, a device has no end
        raise DataError(f"{path}: is no file; {ADVICE}")
    if status.st_size > MAX_FILE_BYTES:
        raise DataError(f"{path}: has {status.st_size >> 20} MiB, more than check samples have; {ADVICE}")
    try:
        return _samples_in(read_bytes(path, DataError))
    except (
        zipfile.BadZipFile,
        ValueError,
        KeyError,
        IndexError,
        EOFError,
        OverflowError,
        SyntaxError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise DataError(f"{path}: is damaged ({type(error).__name__}); {ADVICE}") from None


def _samples_in(content: bytes) -> tuple[CheckSample, ...]:
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > len(content):
                raise ValueError(entry.filename)
            arrays[entry.filename.removesuffix(".npy")] = _array_in(archive.read(entry))
    if arrays["names"].ndim != 1 or arrays["digests"].ndim != 1:
        raise ValueError("axes")
    names, samples = [str(name) for name in arrays["names"]], []
    for row, digest in enumerate(arrays["digests"]):
        of_sample = {}
        for column, name in enumerate(names):
            key = f"{row}.{column}"
            array = arrays[key] if key in arrays else arrays[f"{key}.values"][arrays[f"{key}.codes"]]
            of_sample[name] = array.astype(object) if array.dtype.kind == "U" else array
        samples.append(CheckSample(str(digest), of_sample))
    return tuple(samples)


def _array_in(member: bytes) -> Array:
    """Return the array of a member; nothing is set aside for more elements than it has."""
    file = io.BytesIO(member)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if fortran or dtype.hasobject or any(size < 0 for size in shape):
        raise ValueError("header")
    if math.prod(shape) * dtype.itemsize != len(member) - file.tell():
        raise ValueError("size")
    if 0 in shape and math.prod(size or 1 for size in shape) > EXTREME_BYTES:  # rows of nothing take time
        raise ValueError("shape")
    return np.frombuffer(member, dtype, offset=file.tell()).reshape(shape)
