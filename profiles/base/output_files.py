"""The one way to read and to write whole files: an output appears complete, or the earlier one stays.

An output is written into a separate folder beside its destination, with an unpredictable name and private
permissions, and renamed at the end. Several outputs of one command appear together (`replacing_together`).
All other temporary folders are in TMPDIR (`temporary_folder`). A process locks its folders. If it is killed,
the system releases its locks, so the next run in the same place finds these folders and removes them.
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

from .errors import ConfigError, QprofError, WritingError

try:
    import fcntl
except ImportError:  # Windows, where leftovers stay
    fcntl = None  # type: ignore[assignment]

# Where the name of an output leads: to a file that is replaced.


def destination(path: str | os.PathLike[str]) -> Path:
    """Return the file that an output's name leads to, links followed; a ConfigError if none can be there."""
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
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}: is not a regular file; name a file to write")
    return Path(os.path.realpath(name))


def _system_message(problem: OSError) -> str:
    """Return the system's message of an error, without the name of a file."""
    if problem.errno is not None:
        return os.strerror(problem.errno)
    return str(problem) or type(problem).__name__


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
    target: Path
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
            self._folders.enter_context(made_folder(target.parent))
            remove_leftovers(target.parent)
            name = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:8]  # it may be very long
            folder = self._folders.enter_context(_locked_folder(f".qprof-{name}-", target.parent))
        suffix = target.suffix
        name = "file" + (suffix if len(suffix) <= MAX_SUFFIX_CHARACTERS and suffix.isascii() else "")
        self._staged.append(_Staged(path, target, folder, folder / name))
        return folder / name

    def add_beside(self, temporary: Path, name: str) -> None:
        """Add a file beside a temporary one: its name is the same in the output's folder."""
        first = next(staged for staged in self._staged if staged.temporary == temporary)
        target = first.target.with_name(name)
        self._staged.append(_Staged(first.path, target, first.folder, first.folder / name))

    def size(self, temporary: Path) -> int:
        """Return the bytes of an output and of the files that were written beside it."""
        folder = next(staged.folder for staged in self._staged if staged.temporary == temporary)
        return sum(s.temporary.stat().st_size for s in self._staged if s.folder == folder)

    def superseded(self, path: Path) -> None:
        """Remove a file when all others are in their place, unless one of them is it."""
        self._superseded.append(path)

    def appear(self) -> None:
        """Put all files into their places; if one cannot be, all is as it was before."""
        files = self._staged[::-1]
        with ExitStack() as undo:
            for number, staged in enumerate(files, 1):
                with writing(staged.path):
                    _take_over_mode(staged)
                    if number < len(files):
                        undo.enter_context(_undone(staged))
                    os.replace(staged.temporary, staged.target)
        if self._superseded:
            written = (staged.target for staged in files)
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
                with suppress(OSError):  # a running process holds its lock, or another user owns it
                    descriptor = _lock(left)
                    shutil.rmtree(left, ignore_errors=True)
                    os.close(descriptor)


@cache
def _tidy(folder: Path) -> None:
    """Remove the leftovers in a folder once in the life of this process."""
    remove_leftovers(folder)


@contextmanager
def _locked_folder(prefix: str, parent: Path) -> Iterator[Path]:
    """Yield a new folder with a lock that a running process holds; both are gone afterwards."""
    _tidy(Path(tempfile.gettempdir()))
    with ExitStack() as undo:
        while True:
            folder = Path(tempfile.mkdtemp(f"-{_system()}", prefix, parent))
            try:
                undo.callback(os.close, _lock(folder))
            except (BlockingIOError, FileNotFoundError):
                continue  # another run took it for a leftover
            except OSError:  # without locks, no run removes it
                pass
            if folder.exists():
                break
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


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


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards; errors of qprof inside name its files without it."""
    with _locked_folder("qprof-", Path(tempfile.gettempdir())) as folder:
        try:
            yield folder
        except QprofError as error:
            error.args = tuple(str(part).replace(f"{folder}{os.sep}", "") for part in error.args)
            raise


def _take_over_mode(staged: _Staged) -> None:
    """Give a file mode and owner of the one that it replaces, once it is on the disk: power may fail."""
    with suppress(FileNotFoundError):
        old = os.stat(staged.target)
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
    file = staged.target
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
