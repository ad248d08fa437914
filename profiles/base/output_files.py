"""The one way to read and to write whole files: an output appears complete, or the earlier one stays.

An output is written into a folder of its own beside the place where it is to be, which nobody else can enter
or foresee the name of, and renamed at the end. Several outputs of one command appear together
(`replacing_together`). All other temporary folders are in TMPDIR (`temporary_folder`). A process locks its
folders. So the next run in the same place can tell those that a killed process left, whose locks the system
has taken away, and removes them (`remove_leftovers`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

from .errors import ConfigError, QprofError, WritingError

try:
    import fcntl
except ImportError:  # Windows, where leftovers stay
    fcntl = None  # type: ignore[assignment]

# Where the name of an output leads: to a file that is replaced, or a pipe or device that is written into.

_DESCRIPTOR = re.compile(r"/proc/[0-9]+/(task/[0-9]+/)?fd/[0-9]+|/dev/fd/[0-9]+")
MAX_LINKS = 40
"""Links that systems follow before they call it a loop."""


@dataclass(frozen=True)
class Destination:
    """The file behind all links, or a stream (pipe, device, descriptor), which is never replaced."""

    file: Path
    is_stream: bool


def destination(path: str | os.PathLike[str]) -> Destination:
    """Return the place that the name of an output leads to; a ConfigError if no file can be there."""
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"output: is of type {type(path).__name__}; give a path")
    name = os.fspath(path)
    if not name:
        raise ConfigError("output: its name is empty; name a file to write")
    if "\0" in name:
        raise ConfigError(f"{path}: has a zero character in its name; choose another name")
    if name.endswith(("/", os.sep)):
        raise ConfigError(f"{path}: ends in a slash, as the name of a folder; name a file to write")
    try:
        mode = os.stat(name).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG  # a link whose file is missing leads to that file
    except OSError as problem:
        reason = (
            "is a link that leads to itself"
            if problem.errno == errno.ELOOP
            else f"cannot be written: {_system_message(problem)}"
        )
        raise ConfigError(f"{path}: {reason}; choose another output") from None
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{path}: is a folder; name a file to write")
    if not stat.S_ISREG(mode) or _descriptor(name) is not None:
        return Destination(Path(name), is_stream=True)
    return Destination(Path(os.path.realpath(name)), is_stream=False)


def leads_to_stdout(path: str | os.PathLike[str]) -> bool:
    """Return whether an output is the standard output of this process."""
    try:
        return destination(path).is_stream and os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


def _open_stream(target: Destination) -> BinaryIO:
    """Open a file that is not regular for writing; a descriptor of this process continues at its position."""
    name = _descriptor(os.fspath(target.file)) or ""
    if name.startswith((f"/proc/{os.getpid()}/", "/dev/fd/")):
        return os.fdopen(os.dup(int(Path(name).name)), "wb")
    return open(target.file, "wb")


def _system_message(problem: OSError) -> str:
    """Return the system's message of an error, without the name of a file."""
    if problem.errno is not None:
        return os.strerror(problem.errno)
    return str(problem) or type(problem).__name__


def _descriptor(name: str) -> str | None:
    """Return the name of the open descriptor that a name leads to, as /dev/stdout does; None for a file."""
    for _ in range(MAX_LINKS):
        folder, last = os.path.split(name)
        name = os.path.join(os.path.realpath(folder), last)
        if _DESCRIPTOR.fullmatch(name):
            return name
        if not os.path.islink(name):
            return None
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    return None


# Reading whole files.


def read_text(path: str | os.PathLike[str], error: type[QprofError]) -> str:
    """Return the text of a UTF-8 file, with "\\n" line ends and no byte order mark, or raise `error`."""
    return text_of(read_bytes(path, error), os.fspath(path), error)


def read_bytes(path: str | os.PathLike[str], error: type[QprofError]) -> bytes:
    """Return the content of a file, or raise `error`."""
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise error(f"{path}: cannot be read: {problem.strerror}; check the path") from None


def text_of(data: bytes, where: str, error: type[QprofError]) -> str:
    """Return the content of a file as text, as `read_text` does, or raise `error`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(
            f"{where}: not UTF-8 text (byte {problem.start} is 0x{problem.object[problem.start]:02x}); "
            "give a YAML file of qprof, or a file of another tool that 'qprof import' reads"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


# Writing whole files.

FULL = (errno.ENOSPC, errno.EDQUOT, None)
"""Errors of the system about a full disk; numpy gives none when it writes an array."""

MAX_SUFFIX_CHARACTERS = 16
"""A temporary file keeps the suffix of its output up to this many characters: names may be very long."""


@dataclass(frozen=True)
class _Staged:
    """A file that is written in `folder` as `temporary` and then moved to its destination."""

    path: str | os.PathLike[str]
    target: Destination
    folder: Path
    temporary: Path


class FileBatch:
    """Files that appear together, or not at all; made by `replacing_together`."""

    def __init__(self, folders: ExitStack, kept: Callable[[], Iterable[Path]] = tuple) -> None:
        """Begin an empty batch; `kept` returns files that are never removed as superseded."""
        self._folders, self._staged = folders, list[_Staged]()
        self._superseded: list[Path] = []
        self._kept = kept

    def add(self, path: str | os.PathLike[str]) -> Path:
        """Return the path of a temporary file to write; it becomes `path` when the batch is complete.

        The first file appears last; one that is added again replaces the one before. Modes and links stay.
        """
        target = destination(path)
        for before in {staged.folder for staged in self._staged if staged.path == path}:
            self._staged = [staged for staged in self._staged if staged.folder != before]
            shutil.rmtree(before, ignore_errors=True)
        with writing(path):
            place = None if target.is_stream else target.file.parent
            if place is not None:
                self._folders.enter_context(made_folder(place))
                remove_leftovers(place)
                _tidy(tempfile.gettempdir())
            folder = _locked_folder(target, self._folders)
        suffix = target.file.suffix
        name = "file" + (suffix if len(suffix) <= MAX_SUFFIX_CHARACTERS and suffix.isascii() else "")
        self._staged.append(_Staged(path, target, folder, folder / name))
        return folder / name

    def add_beside(self, temporary: Path, name: str) -> None:
        """Add a file beside a temporary one: its name is the same in the output's folder."""
        first = next(staged for staged in self._staged if staged.temporary == temporary)
        target = Destination(first.target.file.with_name(name), is_stream=False)
        self._staged.append(_Staged(first.path, target, first.folder, first.folder / name))

    def size(self, temporary: Path) -> int:
        """Return the bytes of an output and of the files that were written beside it."""
        folder = next(staged.folder for staged in self._staged if staged.temporary == temporary)
        return sum(s.temporary.stat().st_size for s in self._staged if s.folder == folder)

    def is_stream(self, temporary: Path) -> bool:
        """Return whether an output is no regular file, so that no other file can be beside it."""
        return any(s.target.is_stream for s in self._staged if s.temporary == temporary)

    def superseded(self, path: Path) -> None:
        """Remove a file when all others are in their place, unless one of them is it."""
        self._superseded.append(path)

    def appear(self) -> None:
        """Put all files into their places; if one cannot be, all is as it was before."""
        for staged in self._staged:
            if staged.target.is_stream:
                with (
                    writing(staged.path),
                    open(staged.temporary, "rb") as source,
                    _open_stream(staged.target) as sink,
                ):
                    shutil.copyfileobj(source, sink)
        files = [staged for staged in reversed(self._staged) if not staged.target.is_stream]
        with ExitStack() as undo:
            for number, staged in enumerate(files, 1):
                with writing(staged.path):
                    _take_over_mode(staged)
                    if number < len(files):
                        undo.enter_context(_undone(staged))
                    os.replace(staged.temporary, staged.target.file)
        if self._superseded:
            written = (staged.target.file for staged in files)
            kept = {os.path.realpath(path) for path in (*written, *self._kept())}
            for path in self._superseded:
                if os.path.realpath(path) not in kept:
                    with suppress(OSError):  # it is in nobody's way
                        path.unlink()


@contextmanager
def replacing_together(kept: Callable[[], Iterable[Path]] = tuple) -> Iterator[FileBatch]:
    """Yield a batch of files, which appear together at the end of the with block, or not at all."""
    with ExitStack() as folders:
        batch = FileBatch(folders, kept)
        yield batch
        batch.appear()


def write_atomically(
    path: str | os.PathLike[str], content: str | bytes | Iterable[str], batch: FileBatch | None = None
) -> None:
    """Write a whole file in one step, as UTF-8 with Unix line ends; a `batch` has its own moment."""
    if batch is None:
        with replacing_together() as alone:
            write_atomically(path, content, alone)
        return
    temporary = batch.add(path)
    with writing(path), temporary.open("wb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            file.writelines(
                text.encode("utf-8") for text in ([content] if isinstance(content, str) else content)
            )


def no_room(name: object, size: int) -> WritingError:
    """Return the error about a full temporary folder: `name` has `size` bytes."""
    return WritingError(
        f"{name}: the temporary folder {tempfile.gettempdir()} has no room for its {size:,} bytes; make room "
        "there, or name another folder with TMPDIR"
    )


@contextmanager
def writing(path: str | os.PathLike[str], size: int = 0) -> Iterator[None]:
    """Turn an error of the system into a WritingError that names the output, of `size` bytes."""
    try:
        yield
    except OSError as problem:
        temporary = os.path.join(tempfile.gettempdir(), "qprof-")
        if problem.errno in FULL and os.fspath(path).startswith(temporary):
            raise no_room(Path(path).name, size) from None
        message = f"{path}: cannot be written: {_system_message(problem)}; choose another output"
        raise WritingError(message) from None


@contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """Make a folder and its missing parents; if the with block fails, they are removed again."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # somebody else has put something there
                folder.rmdir()
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove the folders of killed runs of this user; locks of another system may not be known here."""
    leftover = re.compile(rf"\.qprof-[0-9a-f]{{8}}-\w+(-{_system()})?|qprof-\w+-{_system()}")
    with suppress(OSError):
        for left in sorted(folder.glob("*qprof-*")):
            if leftover.fullmatch(left.name):
                with suppress(OSError):  # a process that runs has locked it, or it is somebody else's
                    descriptor = _lock(left)
                    shutil.rmtree(left, ignore_errors=True)
                    os.close(descriptor)


@cache
def _tidy(folder: str) -> None:
    """Remove the leftovers in a folder once in the life of this process."""
    remove_leftovers(Path(folder))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards; errors of qprof inside name its files without it."""
    _tidy(tempfile.gettempdir())
    with ExitStack() as folders:
        folder = _locked_folder(None, folders)
        try:
            yield folder
        except QprofError as error:
            error.args = tuple(str(part).replace(f"{folder}{os.sep}", "") for part in error.args)
            raise


def _locked_folder(target: Destination | None, folders: ExitStack) -> Path:
    """Make a temporary folder beside an output, else in TMPDIR; it is locked until `folders` remove it."""
    prefix, suffix, parent = "qprof-", f"-{_system()}", Path(tempfile.gettempdir())
    if target is not None and not target.is_stream:
        name = hashlib.sha256(os.fsencode(target.file.name)).hexdigest()[:8]  # it may be very long
        prefix, parent = f".qprof-{name}-", target.file.parent
    while True:
        folder = Path(tempfile.mkdtemp(suffix, prefix, parent))
        try:
            folders.callback(os.close, _lock(folder))
        except (BlockingIOError, FileNotFoundError):
            continue  # another run took it for a leftover
        except OSError:  # where nothing can be locked no run removes it
            pass
        if folder.exists():
            folders.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder


def _lock(folder: Path) -> int:
    """Lock a folder of this user; return the descriptor, which releases it. OSError if it cannot be."""
    if fcntl is None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@cache
def _system() -> str:
    """Return a short name of the running system, within which locks are known."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        name = os.fsencode(platform.node())
    return hashlib.sha256(name).hexdigest()[:8]


def _take_over_mode(staged: _Staged) -> None:
    """Give a file mode and owner of the one that it replaces, once it is on the disk: power may fail."""
    with suppress(FileNotFoundError):
        old = os.stat(staged.target.file)
        with open(staged.temporary, "rb+") as file:
            os.fsync(file.fileno())
        own = os.stat(staged.temporary)
        if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (own.st_uid, own.st_gid):
            with suppress(OSError):
                os.chown(staged.temporary, old.st_uid, old.st_gid)
        os.chmod(staged.temporary, stat.S_IMODE(old.st_mode) & 0o777)


@contextmanager
def _undone(staged: _Staged) -> Iterator[None]:
    """Undo the rename of a file when the with block fails: the file before it comes back."""
    before = staged.temporary.with_name(f"{staged.temporary.name}.before"[-200:])
    file = staged.target.file
    existed = file.exists()
    if existed:
        try:
            os.link(file, before)
        except OSError:  # a file system without links, or the file of somebody else
            shutil.copy2(file, before)
    try:
        yield
    except BaseException:
        if not staged.temporary.exists():  # it was renamed
            if existed:
                os.replace(before, file)
            else:
                file.unlink(missing_ok=True)
        raise
