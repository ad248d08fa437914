"""The start of the command `qprof`: Ctrl-C prints a plain line even while modules are imported, which takes
as little time as possible.
"""

import gc
import os
import signal
import sys

from ..profiles.base.quick_imports import GC_THRESHOLDS, LazyFinder


def run() -> None:
    """Run the command line; `main` handles Ctrl-C as soon as it can be imported."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if is_ours:
            signal.signal(signal.SIGINT, _leave)
        gc.set_threshold(*GC_THRESHOLDS)
        sys.meta_path.insert(0, LazyFinder())
        from .main import main

        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    finally:
        gc.freeze()  # Python looks for garbage as it ends, in all objects: 0.2 s
        if is_ours:  # all is done; Python would write a traceback while it ends
            signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> None:
    """End at once: there is nothing to leave behind, and an exception could get lost, or be printed."""
    os.write(2, b"interrupted\n")
    os._exit(130)
