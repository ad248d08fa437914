"""Seconds of processor and calls of the stages of a command, which `--verbose` prints.

A stage is timed without the stages inside of it, so that the seconds of all stages add up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_spent: dict[str, tuple[float, int]] = {}
"""Seconds and calls of each stage of this process."""
_open: list[float] = []
"""Seconds that the stages inside of each open stage took, the innermost last."""


def clocked(stage: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Count the processor seconds of a function, which runs in the main thread, for a stage."""

    def timed(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def run(*args: P.args, **keywords: P.kwargs) -> T:
            start = time.process_time()
            _spent.setdefault("start", (start, 1))
            _open.append(0.0)
            try:
                return function(*args, **keywords)
            finally:
                took = time.process_time() - start
                seconds, calls = _spent.get(stage, (0.0, 0))
                _spent[stage] = seconds + took - _open.pop(), calls + 1
                if _open:
                    _open[-1] += took

        return run

    return timed


def seconds_text() -> str:
    """Return seconds and calls of all stages; "start" is before the first, "rest" between them."""
    rest = time.process_time() - sum(seconds for seconds, _ in _spent.values())
    parts = [f"{name} {seconds:.2f} ({calls})" for name, (seconds, calls) in _spent.items()]
    return ", ".join([*parts, f"rest {rest:.2f}"])
