"""Signals that end a command: SIGINT of Ctrl-C, SIGTERM and SIGHUP. None is lost, and none leaves a file.

A signal raises an exception wherever the main thread is. Two kinds of places are bad for that: where a
temporary folder is made or removed, which would be left, and where Python drops exceptions with a traceback
(destructors, callbacks of weak references, such as the import system's). Then the signal is sent again a
moment later.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

AGAIN_SECONDS = 0.02
"""When a signal is sent again that came at a bad moment."""

FOLDER_WORK = frozenset({"mkdtemp", "rmtree", "temporary_folder", "FileBatch.add"})
"""Functions that make or remove temporary folders, by their qualified names; none waits for anything."""


class EndedError(KeyboardInterrupt):
    """A signal asked this process to end: everything is left as with Ctrl-C."""

    def __init__(self, number: int) -> None:
        """Note the number of the signal."""
        super().__init__(number)
        self.number = number


class Interruptions:
    """The signals that came; `error` is the exception raised for one of them, None if none came."""

    def __init__(self) -> None:
        """Begin with none."""
        self.error: KeyboardInterrupt | None = None
        self._earlier: KeyboardInterrupt | None = None
        self._is_waiting = False
        # Signals of which nobody else, such as nohup, has said what they do; only the main thread may say so.
        is_main = threading.current_thread() is threading.main_thread()
        usual: tuple[Any, ...] = (signal.SIG_DFL, signal.default_int_handler)
        names = ("SIGINT", "SIGTERM", "SIGHUP") if is_main else ()
        numbers = (getattr(signal, name) for name in names if hasattr(signal, name))
        self._numbers = [number for number in numbers if signal.getsignal(number) in usual]

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Let signals raise exceptions: `KeyboardInterrupt` for Ctrl-C, `EndedError` for the others."""
        handlers = {number: signal.signal(number, self._raise) for number in self._numbers}
        unraisable, uncaught = sys.unraisablehook, sys.excepthook

        def on_unraisable(what: Any) -> None:
            if isinstance(what.exc_value, KeyboardInterrupt):
                self.error = self._earlier
                if self.error is None:  # else the command is ending: one signal suffices
                    self._send_again(getattr(what.exc_value, "number", signal.SIGINT))
            else:
                unraisable(what)

        def on_uncaught(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:  # compiled modules print what happens while they import others
            if not isinstance(error, KeyboardInterrupt):
                uncaught(kind, error, trace)

        if handlers:
            sys.unraisablehook, sys.excepthook = on_unraisable, on_uncaught
        try:
            yield
        finally:
            if handlers:
                sys.unraisablehook, sys.excepthook = unraisable, uncaught
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.error is not None and number != signal.SIGINT:
            return  # one suffices
        if _is_bad_moment(frame) and self._send_again(number):
            return
        error = KeyboardInterrupt() if number == signal.SIGINT else EndedError(number)
        self._earlier, self.error = self.error, error
        raise error

    def _send_again(self, number: int) -> bool:
        """Send a signal to this process a moment later, unless one will be; return whether it can be."""
        if self._is_waiting:
            return True
        main = threading.main_thread().ident

        def send() -> None:
            self._is_waiting = False
            if main is not None and hasattr(signal, "pthread_kill"):  # which wakes that thread, if it waits
                signal.pthread_kill(main, number)
            else:
                signal.raise_signal(number)

        timer = threading.Timer(AGAIN_SECONDS, send)
        timer.daemon = True
        self._is_waiting = True
        try:
            timer.start()
        except RuntimeError:  # the system gives no more threads
            self._is_waiting = False
            return False
        return True


def _is_bad_moment(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_qualname in FOLDER_WORK:
            return True
        frame = frame.f_back
    return False
