"""Where the command `qprof` begins: Ctrl-C is told in a plain line even while modules are imported, and they
are imported in as little time as can be.
"""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

GC_THRESHOLD = 100_000
"""Objects made between two looks for garbage. Python's own 700 cost 0.1 to 0.2 s while modules are imported,
whose objects stay."""

LAZY_MODULES = ("sympy", "onnx_ir._symbolic_shapes")
"""Modules that are loaded when something of them is first used. onnx_ir needs them for sums and products of
dimensions that have names, which no command computes, and imports them at once, for 0.3 s."""


class _LazyFinder:
    """Finds the modules of `LAZY_MODULES`, and loads them when they are first used."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of one of these modules; None for any other."""
        spec = PathFinder.find_spec(name, path) if name in LAZY_MODULES else None
        if spec is not None and spec.loader is not None:
            from importlib.util import LazyLoader  # costs what --help takes, which needs none of them

            spec.loader = LazyLoader(spec.loader)
        return spec


def run() -> None:
    """Run the command line; `main` handles Ctrl-C as soon as it can be imported."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if is_ours:
            signal.signal(signal.SIGINT, _leave)
        gc.set_threshold(GC_THRESHOLD)
        sys.meta_path.insert(0, _LazyFinder())
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
