"""Where the command `qprof` begins: Ctrl-C is told in a plain line even while modules are imported."""

import sys


def run() -> None:
    """Run the command line."""
    try:
        from .main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
