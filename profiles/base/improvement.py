"""The net under a step that only improves a result: a fault of qprof in it costs that step, not the result.

    shared, left_out = improved("report: shared scales", lambda: shared_groups(plan), ())

The sentence that says so goes back to the caller, into the notes of the result, and is logged as an error
of the library. Nothing else is caught: not a fault of the input, the disk or the memory, not an interruption.
What reads, writes or gates has no net. With `QPROF_STRICT=1`, as in the tests, nothing has.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from typing import TypeVar

from .errors import is_internal
from .findings import Code, Finding
from .tool import LOGGER

T = TypeVar("T")
U = TypeVar("U")

STRICT = "QPROF_STRICT"
"""Environment variable: a fault in a step that improves ends everything, as any other fault does."""

_PACKAGE = re.compile(r".*?((?:quantizer|profiles|cli)[/\\]\S+)$")


def improved(
    step: str, make: Callable[[], T], otherwise: U, *also: type[Exception]
) -> tuple[T | U, tuple[Finding, ...]]:
    """Return the result of a step, or `otherwise` and a finding; `also` are errors that here are qprof's."""
    try:
        return make(), ()
    except Exception as error:
        return otherwise, (leave_out(step, error, *also),)


def leave_out(step: str, error: Exception, *also: type[Exception]) -> Finding:
    """Log that a step is left out, and return the finding; raise an error that is no fault of qprof again.

    The sentence is the same in each run: messages of errors may have addresses and temporary names.
    """
    if os.environ.get(STRICT) or not (is_internal(error) or isinstance(error, also)):
        raise error
    own_frames = [
        f"{match[1]}, {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if (match := _PACKAGE.match(frame.filename)) and not frame.filename.endswith("improvement.py")
    ]
    where = f" in {own_frames[-1]}".replace(os.sep, "/") if own_frames else ""
    sentence = (
        f"{step}: left out after an internal error ({type(error).__name__}{where}); all else is done. "
        "This is a fault of qprof"
    )
    remedy = "run again as 'qprof --debug ...' and please report the output"
    finding = Finding(Code.STEP_LEFT_OUT, sentence, step, remedy=remedy)
    LOGGER.error("%s", finding, extra={"finding": finding})
    LOGGER.debug("%s", step, exc_info=error)
    return finding
