"""Modules that an installation may lack: libraries, which extras install, and plug-ins of the core.

A plug-in is a room of qprof that the core does not need, such as the report. Only a table of the core names
it: each entry that a plug-in serves has an `OptionalModule`, which imports the plug-in on demand.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from .errors import ConfigError

DISTRIBUTION = "qprof-onnx"

ROOT = __name__.rsplit(".", 3)[0]
"""The package that all rooms are below."""


@dataclass(frozen=True)
class OptionalModule:
    """A module of a plug-in, below the root, as a table of the core names it; messages have its name."""

    name: str
    module: str

    @property
    def is_installed(self) -> bool:
        """Whether the module can be found; packages above it are imported, itself not."""
        return _is_there(f"{ROOT}.{self.module}")

    def check(self, where: str = "") -> None:
        """Raise the error of `load` if the module is not installed, before work that needs it begins."""
        if not self.is_installed:
            problem = f"{where}: needs {self.name}, which" if where else self.name
            raise ConfigError(f"{problem} is not installed; install all of {DISTRIBUTION}")

    def load(self, where: str = "") -> ModuleType:
        """Return the module; `where` is the file or option that needs it, for the message."""
        self.check(where)
        return importlib.import_module(f"{ROOT}.{self.module}")


def missing_plugin(error: Exception) -> str:
    """Return the line about a module of qprof that is not installed; "" for any other error."""
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if not name.startswith(f"{ROOT}."):
        return ""
    return f"{name.removeprefix(f'{ROOT}.')} is not installed; install all of {DISTRIBUTION}"


@cache
def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def library(module: str, where: str, extra: str) -> Any:
    """Return a module that an extra of pyproject.toml installs; messages name `where`, which needs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise ConfigError(
            f"{where}: needs the Python package '{package}', which is not here; install it with: "
            f"{install_command(extra)}"
        ) from error


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra by their names, from a checkout too."""
    from importlib import metadata  # slow to import, and `qprof --help` needs none

    def is_installed(requirement: str) -> bool:
        try:
            metadata.version(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
        except metadata.PackageNotFoundError:
            return False
        return True

    lines = [line.partition(";") for line in metadata.requires(DISTRIBUTION) or ()]
    wanted = [text.strip() for text, _, marker in lines if re.search(rf"extra == ['\"]{extra}['\"]", marker)]
    missing = [text for text in wanted if not is_installed(text)] or wanted
    return "pip install " + " ".join(f"'{text}'" for text in missing)
