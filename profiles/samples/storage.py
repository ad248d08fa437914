"""What a path or a URL holds: its files, by their path within it, and how each one is read.

A file of this machine and an object of a store look the same to a reader: a name, bytes from the beginning,
or an open file to seek in.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from ..base.errors import DataError, NaturalKey, natural_key
from ..base.extras import OptionalModule

ADVICE = "check the path and its permissions"

REMOTE = OptionalModule("the reader of URLs", "quantizer.plugins.data.remote_storage")
"""Has the functions of this module for objects of a store, and `RemoteFile`."""

SECRETS = re.compile(r"^([\w+.-]+://)[^@]*:[^@]*@|^((?:https?|ftp)://)[^@/]*@")
"""User and password before an "@"; without a password, it may be a container or a revision."""


@dataclass(frozen=True)
class DataFile:
    """A file that holds data."""

    name: str  # within the folder or URL that was given, with "/"; names samples
    location: str  # path or URL
    content: bytes | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return shown_location(self.location)

    @property
    def suffix(self) -> str:
        """Ending of the name, from its last dot, in lower case."""
        return suffix_of(self.name)

    def read(self) -> bytes:
        """Return the content."""
        if self.content is not None:
            return self.content
        if is_url(self.location):
            content: bytes = REMOTE.load(str(self)).content_of(self.location)
        else:
            with _readable(self.location):
                content = Path(self.location).read_bytes()
        return content

    def fetched(self) -> DataFile:
        """Return a file of a store with its content in memory, if it is read more than once; else itself."""
        return replace(self, content=self.read()) if is_url(self.location) and self.suffix else self

    def text(self) -> str:
        """Return the content as UTF-8 text, without a byte order mark."""
        return decoded(str(self), self.read())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not empty, with their numbers from 1, without a byte order mark."""
        with self.open() as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line

    def open(self) -> IO[bytes]:
        """Return the opened file, which can seek; an object of a store is fetched in blocks."""
        if self.content is not None:
            return io.BytesIO(self.content)
        if is_url(self.location):
            remote = REMOTE.load(str(self))
            return io.BufferedReader(remote.RemoteFile(self.location), remote.BLOCK_BYTES)
        with _readable(self.location):
            return Path(self.location).open("rb")


def suffix_of(name: str) -> str:
    """Return the ending of a name in lower case."""
    return os.path.splitext(name)[1].lower()


def decoded(where: str, content: bytes) -> str:
    """Return bytes as UTF-8 text, without a byte order mark; the error names the line."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{where}: line {line}: is not UTF-8 text (byte 0x{content[error.start]:02x}); write it as UTF-8"
        ) from None


def is_url(source: str) -> bool:
    """Return whether a source is a URL of fsspec, such as "s3://bucket/folder"; `file://` is local."""
    scheme, separator, _ = source.partition("://")
    return bool(separator) and scheme.replace("+", "").isalnum() and scheme.lower() != "file"


def local_path(source: str) -> str:
    """Return a source unchanged, or the path that a `file://` URL names."""
    return unquote(urlsplit(source).path) if source.lower().startswith("file://") else source


def shown_url(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    parts = urlsplit(SECRETS.sub(lambda match: match[1] or match[2], url))
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def shown_location(location: str) -> str:
    """Return a path or URL for messages and files: without user, password and query, which may be secret."""
    return shown_url(location) if is_url(location) else local_path(location)


def is_folder(source: str) -> bool:
    """Return whether a source is a folder, of this machine or of a store."""
    if is_url(source):
        return bool(REMOTE.load(shown_url(source)).is_folder(source))
    return os.path.isdir(local_path(source))


def is_file(source: str) -> bool:
    """Return whether a source is a file, of this machine or of a store."""
    if is_url(source):
        return bool(REMOTE.load(shown_url(source)).is_file(source))
    return os.path.isfile(local_path(source))


def exists(source: str) -> bool:
    """Return whether there is anything at a source."""
    return is_file(source) or is_folder(source) if is_url(source) else os.path.exists(local_path(source))


def data_file(source: str) -> DataFile:
    """Return a file that was given itself."""
    location = source if is_url(source) else local_path(source)
    path = urlsplit(location).path or location if is_url(location) else location
    return DataFile(os.path.basename(path.rstrip("/")) or location, location)


def joined(folder: str, name: str) -> DataFile:
    """Return the file of a name in a folder, whether or not it exists."""
    if is_url(folder):
        return DataFile(name, REMOTE.load(shown_url(folder)).joined(folder, name))
    return DataFile(name, os.path.join(local_path(folder), *name.split("/")))


def data_files(source: str, suffixes: Collection[str] = (), *, deep: bool = False) -> tuple[DataFile, ...]:
    """Return the files of a folder in natural order, 2 before 10, and after them those of its folders.

    Hidden ones are skipped, links followed. `suffixes` are in lower case with their dot; none for all files.
    """
    if is_file(source):
        return (data_file(source),)
    names = (name for name in _shown_names(source, deep) if not suffixes or suffix_of(name) in suffixes)
    return tuple(joined(source, name) for name in sorted(names, key=_order))


def _order(name: str) -> list[tuple[int, NaturalKey]]:
    """Return the key that puts the files of a folder in natural order before those of the folders in it."""
    *folders, last = name.split("/")
    return [*((1, natural_key(part)) for part in folders), (0, natural_key(last))]


def entries_of(folder: str) -> list[str]:
    """Return the names of the files and folders in a folder."""
    if is_url(folder):
        return list(REMOTE.load(shown_url(folder)).entries_of(folder))
    with _readable(folder):
        return os.listdir(local_path(folder))


def holds(source: str, suffixes: Collection[str], *, deep: bool = False) -> bool:
    """Return whether a source is a file with one of these endings, or a folder that holds one."""
    if suffix_of(data_file(source).name) in suffixes and is_file(source):
        return True
    if not is_folder(source):
        return False
    return any(suffix_of(name) in suffixes for name in _shown_names(source, deep))


def _shown_names(source: str, deep: bool) -> Iterator[str]:
    """Yield the names of the files of a folder, and of the folders in it, that are not hidden."""
    if is_url(source):
        names = REMOTE.load(shown_url(source)).names_in(source, deep)
    else:
        names = _local_names(local_path(source), deep)
    return (name for name in names if not any(part.startswith(".") for part in name.split("/")))


def _local_names(folder: str, deep: bool) -> Iterator[str]:
    """Yield the names of files in a folder; with `deep`, of its folders too, each read once."""
    if not os.path.isdir(folder):
        problem = "is neither file nor folder" if os.path.lexists(folder) else "no such file or folder"
        raise DataError(f"{folder}: {problem}; {ADVICE}")
    folders, links = [""], list[str]()
    seen = set[tuple[int, int]]()
    while folders or links:
        links.sort(key=_order, reverse=True)
        within = folders.pop() if folders else links.pop()
        path = os.path.join(folder, *within.split("/"))
        with _readable(path):
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(path) as scanned:
                entries = list(scanned)
        for entry in entries:
            name = f"{within}/{entry.name}" if within else entry.name
            is_folder = False
            with suppress(OSError):  # a link to itself: a file that cannot be read
                is_folder = entry.is_dir()
            if not is_folder:
                yield name
            elif deep and not entry.name.startswith("."):
                (links if entry.is_symlink() else folders).append(name)


@contextmanager
def _readable(location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{location}: cannot be read: {error.strerror or error}; {ADVICE}") from error
