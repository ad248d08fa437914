"""Check samples: a few samples of a profile, kept in a file beside it, on which models are run before they
are written.

The samples with the smallest digests are kept (as many as fit into `DIGEST_BYTES`, and small ones up to
`MORE_BYTES`), and the extreme ones: the loudest, the quietest, the shortest and the longest. Choosing from
the choices of parts gives the same samples as choosing from all data, so merging is exact.

The file is a compressed `.npz` archive: `names` of the inputs, `digests` of the samples in order, and in
`3.0` the array of sample 3 for input 0.

The profile names its check samples by their digests; a file with other samples is not its own.
"""

from __future__ import annotations

import io
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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

DIGEST_BYTES = 32 << 20
"""Bytes of the arrays that the samples with the smallest digests may have."""

FEW, MORE_BYTES = 12, 1 << 20
"""How many of the samples with the smallest digests are kept whatever their size, and bytes of the arrays up
to which more of them are."""

EXTREME_BYTES = 2 << 20
"""Bytes of the arrays of a sample up to which it can be chosen as extreme."""

POWER_ELEMENTS = 1 << 16
"""Number of elements for the power of a sample."""

EXTREMES = 4
"""Extreme samples at most: the loudest, the quietest, the shortest, the longest."""

LEVEL = 1
"""Of zlib. numpy takes 6: five times as long, up to a fifth of a profiling run, for a fifth of the bytes."""

MAX_FILE_BYTES = 2 * (DIGEST_BYTES + EXTREMES * EXTREME_BYTES)
"""Size in bytes from which a file, or all of its arrays, cannot come from qprof."""


@dataclass(frozen=True, eq=False)
class CheckSample:
    """A sample that is kept: the inputs of the model in one run by name, and their digest."""

    digest: str
    arrays: Mapping[str, Array]


@dataclass(frozen=True, order=True)
class SampleSize:
    """The measures that make samples extreme: power is the mean square of finite elements of all inputs."""

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
    """Return at most `count` smallest digests, in order: `FEW`, and more up to `MORE_BYTES` together."""
    chosen, total = list[str](), 0
    for digest in sorted(sizes)[:count]:
        total += sizes[digest]
        if len(chosen) >= FEW and total > MORE_BYTES:
            break
        chosen.append(digest)
    return tuple(chosen)


def extreme_digests(sizes: Mapping[str, SampleSize], count: int) -> tuple[str, ...]:
    """Return the digests of the loudest, quietest, longest and shortest of `count` samples, each once."""
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
        room -= sum(_stored(array).nbytes for array in every[digest].arrays.values())
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
            f"{file}: contains no check samples and would be replaced by those of {Path(profile).name}; "
            "choose another name for the profile, or move the file"
        )


def samples_content(samples: Sequence[CheckSample]) -> bytes:
    """Return the content of the file: the same for the same samples, with one version of zlib."""
    names = sorted({name for sample in samples for name in sample.arrays})
    members = {"names": np.array(names, np.str_), "digests": np.array([s.digest for s in samples], np.str_)}
    for row, sample in enumerate(samples):
        for column, name in enumerate(names):
            members[f"{row}.{column}"] = _stored(sample.arrays[name])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return file.getvalue()


def _stored(array: Array) -> Array:
    """Return an array as the file has it: texts are no Python objects there."""
    return np.asarray(array, np.str_ if array.dtype.kind == "O" else None, order="C")


def read_samples_file(path: Path) -> tuple[CheckSample, ...]:
    """Return the check samples in the file beside a profile; a DataError if they are missing or damaged."""
    if not os.path.isfile(path):  # a pipe would be waited for, a device has no end
        why = "is not a file" if os.path.exists(path) else "cannot be read: no such file"
        raise DataError(f"{path}: {why}; {ADVICE}")
    if (size := os.path.getsize(path)) > MAX_FILE_BYTES:
        raise DataError(f"{path}: has {size >> 20} MiB, more than check samples have; {ADVICE}")
    try:
        return _samples_in(read_bytes(path, DataError))
    except DAMAGE:
        raise DataError(f"{path}: is damaged, or of another version; {ADVICE}") from None


DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, ArithmeticError, AttributeError, EOFError),
    *(LookupError, MemoryError, RuntimeError, SyntaxError, TypeError, ValueError),
)
"""What numpy and zipfile raise for a file that is cut off, changed or something else."""


def _samples_in(content: bytes) -> tuple[CheckSample, ...]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > MAX_FILE_BYTES:
            raise ValueError("unpacked it is larger than any that is written")
    with np.load(io.BytesIO(content), allow_pickle=False) as members:
        arrays = dict(members)
    if any(not array.nbytes and max(array.shape) > MAX_FILE_BYTES for array in arrays.values()):
        raise ValueError("endless rows of nothing")
    names, digests = ([str(text) for text in arrays.pop(key)] for key in ("names", "digests"))
    each = {key: array.astype(object) if array.dtype.kind == "U" else array for key, array in arrays.items()}
    return tuple(
        CheckSample(digest, {name: each[f"{row}.{column}"] for column, name in enumerate(names)})
        for row, digest in enumerate(digests)
    )
