"""Where the command `qprof` begins: Ctrl-C is told in a plain line even while modules are imported."""

import os
import signal
import sys


def run() -> None:
    """Run the command line; `main` handles Ctrl-C as soon as it can be imported."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if is_ours:
            signal.signal(signal.SIGINT, _leave)
        from .main import main

        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    finally:
        if is_ours:  # all is done; Python would write a traceback while it ends
            signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> None:
    """End at once: there is nothing to leave behind, and an exception could get lost, or be printed."""
    os.write(2, b"interrupted\n")
    os._exit(130)
