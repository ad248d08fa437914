"""Where the installed program `qprof` begins."""

import signal


def run() -> None:
    """Run the command line.

    While its modules are imported, Ctrl-C ends the process as the system does, without a traceback; from then
    on every command answers it itself.
    """
    by_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if by_python:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .main import main

    if by_python:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
