"""Roundings that are finished, on disk, so that a run that was killed goes on where it ended.

    qprof-roundings/1 {"run": ..., ...}    one line: what runs must have in common
    key, digest, size, offsets             one record for each finished weight: 32 and 16 bytes, an unsigned
    ...                                    64-bit number, and that many bytes, deflated

Records are only ever added at the end, so the file need not be written again for each weight. A record that
was cut off by a kill is dropped, and so is all after it. A weight whose key is not there is rounded again:
the key is a digest of everything that its rounding depends on, besides the line.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...profiles.base.errors import ConfigError
from ...profiles.base.output_files import remove_leftovers, write_atomically, writing
from ...profiles.records.profile import ModelId
from ...profiles.samples.samples import data_id
from ...profiles.samples.values import Sample

FORMAT = "qprof-roundings/1"
_RECORD = struct.Struct("<32s16sQ")
_LONGEST_LINE = 1 << 16
_ADVICE = "remove the file to start over, or name another checkpoint"


def run_of(model: ModelId, rounding: str, samples: Iterable[Sample]) -> dict[str, str]:
    """Return the facts that two runs must share for one to resume the other; the order of samples counts."""
    digest = hashlib.blake2b(digest_size=16)
    for sample in samples:
        digest.update(data_id(sample.arrays, ()).digest.encode())
    return {
        "model": model.structure,
        "weights": model.weights,
        "rounding": rounding,
        "samples": digest.hexdigest(),
    }


class RoundingCheckpoint:
    """The offsets of finished weights by key; in a file, if there is one."""

    def __init__(self, path: Path | None = None, run: Mapping[str, str] | None = None) -> None:
        """Open the file of a run (`run_of`), or begin it; without a path nothing is stored."""
        self._path, self._places = path, dict[bytes, tuple[bytes, int, int]]()
        if path is None:
            return
        if not path.exists():
            write_atomically(path, f"{FORMAT} {json.dumps(run)}\n")
        self._read(path, dict(run or {}))

    def _read(self, path: Path, run: dict[str, str]) -> None:
        """Record the places of the file's records, and cut off an unfinished one."""
        with writing(path), path.open("r+b") as file:
            _check_line(path, file.readline(_LONGEST_LINE), run)
            size, end = os.fstat(file.fileno()).st_size, file.tell()
            while end + _RECORD.size <= size:
                key, digest, length = _RECORD.unpack(file.read(_RECORD.size))
                start = end + _RECORD.size
                if start + length > size:
                    break
                self._places[key] = (digest, start, length)
                end = start + length
                file.seek(end)
            file.truncate(end)

    def get(self, key: bytes) -> bytes | None:
        """Return the offsets with this key, int8 in row-major order; None if missing or damaged."""
        if self._path is None or key not in self._places:
            return None
        digest, start, length = self._places[key]
        with writing(self._path), self._path.open("rb") as file:
            file.seek(start)
            packed = file.read(length)
        return zlib.decompress(packed) if _digest(key, packed) == digest else None

    def add(self, key: bytes, offsets: bytes | memoryview) -> None:
        """Write the offsets of one more weight to the disk."""
        if self._path is None:
            return
        packed = zlib.compress(offsets, 1)
        with writing(self._path), self._path.open("ab") as file:
            start = file.tell() + _RECORD.size
            digest = _digest(key, packed)
            file.write(_RECORD.pack(key, digest, len(packed)) + packed)
            file.flush()
            os.fsync(file.fileno())
        self._places[key] = (digest, start, len(packed))


def remove_checkpoint(path: Path) -> None:
    """Remove the file, if it exists, and leftovers of killed runs beside it: the model was written."""
    path.unlink(missing_ok=True)
    remove_leftovers(path.parent)


def _check_line(path: Path, line: bytes, run: Mapping[str, str]) -> None:
    """Raise ConfigError if the first line of a file is not that of this run."""
    family, _, text = line.decode("utf-8", "replace").partition(" ")
    try:
        before = json.loads(text)
    except (ValueError, RecursionError):
        before = None
    if family != FORMAT or not isinstance(before, dict):
        raise ConfigError(f"{path}: is no checkpoint of roundings ({FORMAT}); {_ADVICE}")
    changed = [name for name in run if before.get(name) != run[name]]
    if changed:
        raise ConfigError(
            f"{path}: belongs to a run with other {' and '.join(changed)}, so it cannot be resumed; {_ADVICE}"
        )


def _digest(key: bytes, packed: bytes) -> bytes:
    return hashlib.blake2b(key + packed, digest_size=16).digest()
