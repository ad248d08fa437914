"""Signals that end a command: SIGINT of Ctrl-C, SIGTERM and SIGHUP raise an exception; no file is left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class EndedError(KeyboardInterrupt):
    """A signal asked this process to end: everything is left as with Ctrl-C."""

    def __init__(self, number: int) -> None:
        """Note the number of the signal."""
        super().__init__(number)
        self.number = number


class Interruptions:
    """The signals that came; `error` is the exception raised for the last one, None if none came."""

    def __init__(self) -> None:
        """Begin with none."""
        self.error: KeyboardInterrupt | None = None

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Let signals raise exceptions: `KeyboardInterrupt` for Ctrl-C, `EndedError` for the others."""
        # Signals of which nobody else, such as nohup, has said what they do; only the main thread may say so.
        is_main = threading.current_thread() is threading.main_thread()
        usual: tuple[Any, ...] = (signal.SIG_DFL, signal.default_int_handler)
        names = ("SIGINT", "SIGTERM", "SIGHUP") if is_main else ()
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        numbers = [number for number in numbers if signal.getsignal(number) in usual]
        handlers = {number: signal.signal(number, self._raise) for number in numbers}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _raise(self, number: int, _: object) -> None:
        self.error = KeyboardInterrupt() if number == signal.SIGINT else EndedError(number)
        raise self.error
