"""Imports in little time: some modules are left for when they are used, and no garbage is looked for."""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

GC_THRESHOLDS = (500_000, 5, 20)
"""Thresholds of Python's cycle collector while a command runs. Objects of modules and graphs stay: with its
own thresholds Python took 0.2 s longer to import, and twice as long to quantize a large graph."""

LAZY_MODULES = (
    *("sympy", "onnx_ir._symbolic_shapes", "onnx.compose", "onnx.gen_proto", "onnx.utils"),
    *("google.protobuf.json_format", "google.protobuf.text_format", "yaml"),
)
"""Modules that are loaded when something of them is first used. onnx_ir needs sympy for sums and products of
dimensions that have names, which qprof does not compute, and imports it at once, for 0.3 s; onnx imports the
others, for models that are joined, cut or written as text, for 0.02 s. Reading YAML needs yaml, 0.01 s."""


class LazyFinder:
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


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import in little time inside the with block; modules imported before stay unchanged."""
    finder, collects = LazyFinder(), gc.isenabled()
    sys.meta_path.insert(0, finder)
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        sys.meta_path.remove(finder)
