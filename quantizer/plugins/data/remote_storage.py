"""Objects of a store behind a URL: listed, and fetched whole or in blocks, each request with retries.

The store is opened by fsspec (`s3://`, `gs://`, `az://`, `hf://`, `https://` and others), with the settings
that fsspec and the store's own library find: their environment variables and configuration files.
A request that fails for a reason that may pass is made again, after pauses that grow. No message has a user,
a password or the query of a URL.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from ....profiles.base.errors import DataError, QprofError
from ....profiles.base.extras import install_command, library
from ....profiles.samples.storage import shown_url

T = TypeVar("T")

BLOCK_BYTES = 1 << 22
"""Fetched at a time from an object that is opened: the more the fewer requests."""
ATTEMPTS, SECONDS = 5, 30.0
"""A request is made at most this often, and not again after this time; libraries of stores retry beneath."""
PAUSE = 0.2
"""Seconds before the second attempt; each further pause is twice as long."""
LASTING = (
    *(ImportError, IsADirectoryError, NotADirectoryError, NotImplementedError, PermissionError),
    *(TypeError, ValueError),
)
"""Errors that a second attempt does not mend."""
LASTING_WORDS = ("Credentials", "Validation")
"""In the names of such errors of libraries."""
OWN_PACKAGES = {"s3", "s3a", "http", "https", "memory"}
"""Protocols whose libraries the extra `remote` installs."""


def content_of(url: str) -> bytes:
    """Return the content of an object."""
    return _asked(url, lambda store, path: cast(bytes, store.cat_file(path)))


def is_folder(url: str) -> bool:
    """Return whether there are objects under a URL."""
    return _asked(url, lambda store, path: bool(store.isdir(path)))


def is_file(url: str) -> bool:
    """Return whether a URL is an object."""

    def is_object(store: Any, path: str) -> bool:
        try:
            return str(store.info(path)["type"]) == "file"
        except FileNotFoundError:
            return False

    return _asked(url, is_object)


def joined(folder: str, name: str) -> str:
    """Return the URL of an object in a folder; the query of the folder's URL stays."""
    parts = urlsplit(folder)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl()


def names_in(url: str, deep: bool) -> Sequence[str]:
    """Return the names of the objects under a URL, relative to it; with `deep`, those of its folders too."""

    def relative_names(store: Any, path: str) -> list[str]:
        start = path.rstrip("/") + "/"
        paths = store.find(path, maxdepth=None if deep else 1)
        return [path.removeprefix(start).lstrip("/") for path in paths if path.startswith(start)]

    names = _asked(url, relative_names)
    if not names and not is_folder(url):
        raise DataError(f"{shown_url(url)}: no such object, and no objects under it; check the URL")
    return names


def entries_of(url: str) -> list[str]:
    """Return the names of the objects and folders directly under a URL."""
    listed = _asked(url, lambda store, path: cast(list[str], store.ls(path, detail=False)))
    return [name.rstrip("/").rpartition("/")[2] for name in listed]


class RemoteFile(io.RawIOBase):
    """An object of a store, read in blocks: one request each."""

    def __init__(self, url: str) -> None:
        """Ask the store for the size."""
        self._url, self._at = url, 0
        size: int | None = _asked(url, lambda store, path: cast(int | None, store.size(path)))
        self._whole: bytes | None = None if size is not None else content_of(url)
        self._size: int = len(self._whole or b"") if size is None else size

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can seek."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, and return the new position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer up to the end of the object, and return the number of bytes."""
        start, stop = self._at, min(self._size, self._at + len(buffer))
        if stop <= start:
            return 0

        def fetched(store: Any, path: str) -> bytes:
            content = cast(bytes, store.cat_file(path, start=start, end=stop))
            if len(content) < stop - start:  # the connection broke off
                raise ConnectionError(f"{len(content)} bytes came of {stop - start}")
            return content

        content = self._whole[start:stop] if self._whole is not None else _asked(self._url, fetched)
        if len(content) > stop - start:  # a server that knows no ranges has sent everything
            self._whole, content = content, content[start:stop]
        buffer[: len(content)] = content
        self._at = stop
        return len(content)


def _asked(url: str, request: Callable[[Any, str], T]) -> T:
    """Return the answer of a store to a request, which is repeated if the failure may pass."""
    tenacity = library("tenacity", shown_url(url), "remote")
    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(ATTEMPTS) | tenacity.stop_after_delay(SECONDS),
        wait=tenacity.wait_exponential(multiplier=PAUSE, max=10.0),
        retry=tenacity.retry_if_exception(_may_pass),
        reraise=True,
    )
    try:
        store, path = _opened(url)
        return cast(T, attempts(request, store, path))
    except (QprofError, KeyboardInterrupt):
        raise
    except FileNotFoundError as error:
        raise DataError(f"{shown_url(url)}: is not there, or not any more; check the URL") from error
    except Exception as error:  # libraries of stores raise anything
        raise DataError(
            f"{shown_url(url)}: cannot be read: {_text_of(error, url)}; {_advice(error)}"
        ) from error


def _opened(url: str) -> tuple[Any, str]:
    """Return the store of a URL, and the path in it; libraries share one connection for each store."""
    fsspec = library("fsspec.core", shown_url(url), "remote")
    try:
        store, path = fsspec.url_to_fs(url)
    except ImportError as error:
        raise DataError(f"{shown_url(url)}: {_install_advice(urlsplit(url).scheme)}") from error
    except ValueError as error:
        known = "s3, gs, az, hf, https, memory and the other protocols of fsspec"
        raise DataError(f"{shown_url(url)}: {_text_of(error, url)}; known are {known}") from error
    return store, path


@cache
def _install_advice(protocol: str) -> str:
    registry = library("fsspec.registry", protocol, "remote")
    package = str(registry.known_implementations[protocol]["class"]).partition(".")[0]
    command = install_command("remote") if protocol in OWN_PACKAGES else f"pip install {package}"
    return f"needs the Python package for {protocol}://; install it with: {command}"


def _may_pass(error: BaseException) -> bool:
    """Whether a request that failed with an error may succeed later."""
    if not isinstance(error, Exception) or isinstance(error, (QprofError, FileNotFoundError, *LASTING)):
        return False
    status = getattr(error, "status", None)
    if isinstance(status, int) and 400 <= status < 500:
        return status in (408, 429)
    return not any(word in type(error).__name__ for word in LASTING_WORDS)


def _advice(error: Exception) -> str:
    if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
        return "check the credentials of the store, as its own library reads them"
    if isinstance(error, LASTING) or "Validation" in type(error).__name__:
        return "check the URL"
    return f"{ATTEMPTS} attempts or {SECONDS:g} s were not enough; try again later"


def _text_of(error: Exception, url: str) -> str:
    """Return the first line of an error, without the secrets of URLs."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return re.sub(r"\w+://[^\s'\"]+", lambda match: shown_url(match[0]), line.replace(url, shown_url(url)))
