"""Libraries of custom operators: loaded once for the process, known to every session opened afterwards.

onnxruntime loads such a library into the process; it is code, and it runs with the rights of the user. So one
is loaded only where the user names it, never because a model asks for it.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import onnxruntime as ort

from ..base.errors import ConfigError
from .providers import CPU, TELLS_NODES, check_runs, not_started, with_options
from .refusals import RUNTIME_ERRORS, first_line

_libraries: dict[str, None] = {}
"""Resolved paths in the order in which they were given."""


def load_custom_operators(*libraries: str | os.PathLike[str]) -> None:
    """Load libraries of custom operators, for all models that this process runs from now on.

    Args:
        libraries: shared libraries built for onnxruntime's `RegisterCustomOps`; one that is loaded already is
            left as it is.

    Raises:
        ConfigError: there is no such file, or onnxruntime cannot load it.
    """
    for library in libraries:
        path = Path(library)
        if not path.is_file():
            raise ConfigError(f"{library}: no such library of custom operators; check the path")
        name = str(path.resolve())
        if name in _libraries:
            continue
        try:
            ort.SessionOptions().register_custom_ops_library(name)
        except RUNTIME_ERRORS as error:
            processor = _other_processor(path)
            why = f"it is built for {processor}" if processor else first_line(error)
            raise ConfigError(
                f"{library}: onnxruntime cannot load it: {why}; give a shared library of custom operators "
                f"built for onnxruntime {ort.__version__} on {platform.machine()}"
            ) from None
        _libraries[name] = None


_PROCESSORS = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""`e_machine` of the ELF header (System V ABI) by number."""


def _other_processor(path: Path) -> str:
    """Return the processor that an ELF file is built for where that is not this one, else "".

    The system's own message for such a file is that there is none.
    """
    with open(path, "rb") as file:
        head = file.read(20)
    if len(head) < 20 or not head.startswith(b"\x7fELF"):
        return ""
    name = _PROCESSORS.get(int.from_bytes(head[18:20], "little" if head[5] == 1 else "big"), "")
    return "" if name == platform.machine() else name


def loaded_libraries() -> tuple[str, ...]:
    """Return the paths of the libraries that are loaded, for processes that share the work."""
    return tuple(_libraries)


def new_session(model: str | bytes, options: ort.SessionOptions, provider: str) -> ort.InferenceSession:
    """Return a session: the one place that makes them.

    Where a provider fails, onnxruntime's wrapper would print it on stdout, and run on another one.

    Args:
        model: path, or the bytes of a model without external data.
        options: of the session.
        provider: what `check_provider` returned.

    Raises:
        ConfigError: the provider does not start on this machine.
        One of `RUNTIME_ERRORS`: onnxruntime refuses the model.
    """
    if provider == CPU:
        return ort.InferenceSession(model, options, providers=[provider], enable_fallback=0)
    options.add_session_config_entry(TELLS_NODES, "1")
    try:
        session = ort.InferenceSession(model, options, providers=[with_options(provider)], enable_fallback=0)
    except RUNTIME_ERRORS as error:
        if _loads_on_the_cpu(model):
            raise not_started(provider, first_line(error)) from None
        raise
    check_runs(session, provider)
    return session


def _loads_on_the_cpu(model: str | bytes) -> bool:
    """Whether a model that another provider refuses is one that onnxruntime can run."""
    options = new_session_options()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        ort.InferenceSession(model, options, providers=[CPU], enable_fallback=0)
    except RUNTIME_ERRORS:
        return False
    return True


def new_session_options() -> ort.SessionOptions:
    """Return onnxruntime's default options, with the custom operators that are loaded."""
    options = ort.SessionOptions()
    for library in _libraries:
        options.register_custom_ops_library(library)
    return options
