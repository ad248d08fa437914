"""Processes of this machine that work for this one, and never outlive it.

A worker is a fresh interpreter: the runtime's threads do not survive a fork. It ends, and removes what it
leaves on the disk, as soon as this process gives up the work or is gone, even after SIGKILL. Ctrl-C, which a
terminal sends to all processes, is for this process alone. The interpreter of a worker does not look for its
own modules in the current folder; code of the user's is still found there (`functions.load_function`).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, TypeVar

Result = TypeVar("Result")

SAFE_PATH = "PYTHONSAFEPATH"
"""Variable of the environment: Python then leaves the current folder out of the places of modules."""

REMOVAL_SECONDS = 5.0
"""How long a worker that outlives its parent tries to remove the folder of temporary files."""


class WorkerPool:
    """A pool of workers. When the block is left with an exception, they end at once, whatever they do."""

    def __init__(self, workers: int, folder: str) -> None:
        """Make a pool.

        Args:
            workers: how many processes.
            folder: where workers put their temporary files. A worker that outlives this process removes it.
        """
        self._context = multiprocessing.get_context("spawn")
        self._workers, self._folder = workers, folder

    def __enter__(self) -> WorkerPool:
        # Nothing is ever sent: the pipe ends when this process closes it or is gone.
        self._read, self._write = self._context.Pipe(duplex=False)
        given = self._read, self._folder, os.environ.get(SAFE_PATH)
        # The pool starts a process that keeps track of its locks. It ends by itself, after this one; a
        # terminal that is closed must not end it before.
        with _safe_path(), _blocked("SIGHUP"):
            self._pool = ProcessPoolExecutor(self._workers, self._context, initializer=_begin, initargs=given)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._write.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._write.close()
        self._read.close()

    def submit_all(
        self, work: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]
    ) -> list[Future[Result]]:
        """Start the workers with these tasks, one for each tuple of arguments."""
        with _safe_path(), _signals_wait():
            return [self._pool.submit(work, *each) for each in arguments]


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let interpreters that are started meanwhile not import from the current folder."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        _restore_safe_path(before)


def _restore_safe_path(before: str | None) -> None:
    if before is None:
        os.environ.pop(SAFE_PATH, None)
    else:
        os.environ[SAFE_PATH] = before


@contextmanager
def _blocked(name: str) -> Iterator[None]:
    """Let processes that are started meanwhile begin with a signal blocked, on systems that can."""
    mask = {getattr(signal, name)} if hasattr(signal, name) and hasattr(signal, "pthread_sigmask") else set()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, mask) if mask else set()
    try:
        yield
    finally:
        if mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Let signals of this process wait; processes that are started meanwhile begin with Ctrl-C blocked.

    A worker that is started by halves would write a traceback. To block a signal in this thread is not enough
    for that: another one, of a library, may take it.
    """
    waiting: list[int] = []
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in numbers if is_main}
    answered = {number: handler for number, handler in before.items() if callable(handler)}
    for number in answered:
        signal.signal(number, lambda number, _: waiting.append(number))
    try:
        with _blocked("SIGINT"):
            yield
    finally:
        for number, handler in answered.items():
            signal.signal(number, handler)
        for number in waiting[:1]:
            signal.raise_signal(number)


# In a worker ------------------------------------------------------------------------------------------------


def _begin(read: Connection, folder: str, safe_path: str | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _restore_safe_path(safe_path)
    tempfile.tempdir = folder
    threading.Thread(target=_end_with_parent, args=(read, folder), daemon=True).start()


def _end_with_parent(read: Connection, folder: str) -> None:
    """Wait until the parent has closed the pipe or is gone; then end, whatever the other threads do."""
    parent = multiprocessing.parent_process()
    wait([read] if parent is None else [read, parent.sentinel])
    _remove(folder)
    os._exit(1)


def _remove(folder: str) -> None:
    """Remove a folder that other workers remove at the same time, and may still write to."""
    end = time.monotonic() + REMOVAL_SECONDS
    while os.path.exists(folder) and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)
