"""Libraries that an installation may lack: each belongs to an extra, which the error names."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import ConfigError


def library(module: str, where: str, extra: str) -> Any:
    """Return a module that an extra of qprof installs.

    Args:
        module: to import.
        where: what needs it, for the message.
        extra: of pyproject.toml.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise ConfigError(
            f"{where}: needs the Python package '{package}', which is not here; install it with: "
            f"pip install 'qprof-onnx[{extra}]'"
        ) from error
