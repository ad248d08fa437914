"""Libraries that an installation may lack: the error names a command that installs what is missing."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from typing import Any

from .errors import ConfigError

DISTRIBUTION = "qprof-onnx"


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
            f"{install_command(extra)}"
        ) from error


def install_command(extra: str) -> str:
    """Return the command that installs what an extra asks for.

    It names the packages and not the extra: so it works however qprof came here, from an index, a wheel or a
    checkout.

    Args:
        extra: of pyproject.toml.
    """
    lines = [line.partition(";") for line in metadata.requires(DISTRIBUTION) or ()]
    wanted = [text.strip() for text, _, marker in lines if re.search(rf"extra == ['\"]{extra}['\"]", marker)]
    missing = [text for text in wanted if not _is_installed(text)] or wanted
    return "pip install " + " ".join(f"'{text}'" for text in missing)


def _is_installed(requirement: str) -> bool:
    try:
        metadata.version(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    except metadata.PackageNotFoundError:
        return False
    return True
