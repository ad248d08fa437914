"""Rows of tar files in the layout of WebDataset: the members with one name but for their endings are a row.

A name ends at the first dot of its last part: "00/17.image.jpg" and "00/17.txt" are the row "00/17" with the
columns "image.jpg" and "txt". Members are read one at a time, and never written to disk.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ...base.errors import DataError
from ...storage.files import DataFile, decoded
from ..arrays.files import read_npy, read_npz
from ..values import ArrayHeader
from .rows import Row, Rows

SUFFIXES = (".tar", ".tgz")
TEXTS = ("txt", "text", "transcript", "cls", "cls2", "index", "id")
"""Last endings of members that hold text."""
LARGEST = 1 << 31
"""Bytes of a member that is read at most."""


def shard_rows(source: str, files: Sequence[DataFile]) -> Rows:
    """Return the rows of tar files.

    Args:
        source: that holds them, for messages.
        files: at least one.

    Raises:
        DataError: while iterating: a file or a member is broken.
    """

    def iterate(part: slice) -> Iterator[Row]:
        start, step = part.start or 0, part.step or 1
        number = 0
        for file in files:
            for row in _rows(file, range(start - number, _stop(part.stop, number), step)):
                number += 1
                if row is not None:
                    yield row
            if part.stop is not None and number >= part.stop:
                return

    return Rows(source, (), None, iterate, {})


def _stop(stop: int | None, before: int) -> int:
    return (1 << 62) if stop is None else stop - before


def _rows(file: DataFile, wanted: range) -> Iterator[Row | None]:
    """Yield the rows of a file; None for those that are not wanted, whose members are not read.

    Nothing after the last wanted row is looked at.
    """
    key, number, values = "", -1, dict[str, object]()
    with _readable(file), file.open() as stream, tarfile.open(fileobj=stream, mode="r:*") as archive:
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # tarfile would keep them all
            name, _, ending = _split(member.name)
            if not member.isfile() or not ending or name.rpartition("/")[2].startswith("."):
                continue
            if name != key:
                if number >= 0:
                    yield Row(f"{file}: {key}", f"{file.name}/{key}", values) if number in wanted else None
                key, number, values = name, number + 1, {}
                if number >= wanted.stop:
                    return
            if number in wanted:
                values.update(_values(f"{file}: {member.name}", ending, _content(file, archive, member)))
        _check_end(file, archive)
    if number >= 0:
        yield Row(f"{file}: {key}", f"{file.name}/{key}", values) if number in wanted else None


def _check_end(file: DataFile, archive: tarfile.TarFile) -> None:
    """Refuse a file that does not end with an empty block: tarfile takes one that is cut off for its end.

    Raises:
        DataError: it is cut off.
    """
    stream = archive.fileobj
    if stream is not None:
        stream.seek(archive.offset)
        if len(stream.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
            raise DataError(f"{file}: is cut off: a tar file ends with empty blocks; write the file again")


def _split(name: str) -> tuple[str, str, str]:
    """Return the name of a row and the ending that names a column."""
    folder, slash, last = name.removeprefix("./").rpartition("/")
    stem, dot, ending = last.partition(".")
    return f"{folder}{slash}{stem}", dot, ending


def _content(file: DataFile, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > LARGEST:
        raise DataError(f"{file}: {member.name}: has {member.size / 1e9:.1f} GB; split it")
    opened = archive.extractfile(member)
    content = b"" if opened is None else opened.read()
    if len(content) != member.size:
        raise DataError(f"{file}: {member.name}: is cut off; write the file again")
    return content


def _values(where: str, ending: str, content: bytes) -> dict[str, object]:
    """Return what a member holds, by column: arrays, the keys of JSON, text, else bytes."""
    kind = ending.rpartition(".")[2].lower()
    name = ending.rpartition(".")[0] or ending
    file = DataFile(where, where, content)
    if kind == "npy":
        return read_npy(file, (name,), _no_check)
    if kind == "npz":
        return read_npz(file, _no_check)
    if kind == "json":
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: is broken ({error}); write the file again") from None
        return dict(document) if isinstance(document, dict) else {name: document}
    return {ending: decoded(where, content).rstrip("\r\n") if kind in TEXTS else content}


def _no_check(where: str, headers: Mapping[str, ArrayHeader]) -> None:
    """Arrays are checked against the inputs when it is known which columns these take."""


@contextmanager
def _readable(file: DataFile) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{file}: is broken or no tar file ({text}); write the file again") from error
