"""Samples from Python: `module:function` or `file.py:function`, which returns samples without arguments."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from types import CodeType, ModuleType
from typing import Any, cast

from ..base.errors import DataError, QprofError, nearest

NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
FUNCTION = re.compile(rf"(?P<file>.+\.py):(?P<name>{NAME})|{NAME}:{NAME}", re.DOTALL)
"""What names a function: the file that it is in, or its module."""
_LOADING = RLock()
"""Held while a file runs, as Python does for modules: another thread would see half of it."""


def is_function(source: str) -> bool:
    """Return whether `source` means file.py:function or module:function, and no folder or file."""
    file = source.rpartition(":")[0]
    if os.path.isdir(source) or (os.path.isfile(file) and not file.endswith(".py")):
        return False
    return FUNCTION.fullmatch(source) is not None


def load_function(source: str) -> Callable[[], object]:
    """Return the function that a source names; it may import modules beside it."""
    match = FUNCTION.fullmatch(source)
    target: Any
    if match is not None and match["file"]:
        where, name = match["file"], match["name"]
        target = _module_of_file(source, Path(where))
    else:
        where, _, name = source.partition(":")
        with _importable(os.getcwd()), user_code(f"{source}: importing '{where}'"):
            try:
                target = importlib.import_module(where)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{where}.".startswith(f"{error.name}."):
                    raise  # the module exists, and an import in it fails
                raise DataError(
                    f"{source}: no module '{error.name}'; run in its folder, or put its folder into "
                    "PYTHONPATH"
                ) from error
    for part in name.split("."):
        if not hasattr(target, part):
            raise DataError(
                f"{source}: '{where}' has no function '{part}'; define it.{nearest(part, dir(target))}"
            )
        target = getattr(target, part)
    if not callable(target):
        raise DataError(f"{source}: is of type {type(target).__name__}; name a function that returns samples")
    return cast(Callable[[], object], target)


class _SourceLoader(SourceFileLoader):
    """Loads a file from its source only: a compiled one may be of an earlier version in the same second."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _module_of_file(source: str, file: Path) -> ModuleType:
    """Return the module of a Python file, named by path and content, so that a changed file runs again."""
    path = Path(os.path.realpath(file))
    if not path.is_file():
        raise DataError(f"{source}: there is no file '{file}'; check the path")
    with _LOADING:
        with user_code(source, "check the file"):
            content = path.read_bytes()
        key = hashlib.sha256(os.fsencode(path) + bytes(1) + content).hexdigest()[:16]
        name = f"_qprof_{path.stem}_{key}"
        if name in sys.modules:
            return sys.modules[name]
        spec = spec_from_file_location(name, path, loader=_SourceLoader(name, os.fspath(path)))
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[name] = module  # before it runs: dataclasses and pickle look it up
        try:
            with (
                _importable(os.fspath(path.parent)),
                user_code(f"{source}: running '{file}'", "repair the file"),
            ):
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module


def module_file(source: str) -> Path | None:
    """Return the file of a function, which is not run, or None: that of its module, or that in its name."""
    match = FUNCTION.fullmatch(source)
    if match is not None and match["file"]:
        return Path(match["file"])
    folders: Sequence[str] | None = [os.getcwd(), *sys.path]
    name, spec = "", None
    for part in source.partition(":")[0].split("."):
        name = f"{name}.{part}".strip(".")
        spec = None if folders is None else PathFinder.find_spec(name, folders)
        folders = None if spec is None else spec.submodule_search_locations
    return None if spec is None or not spec.has_location or spec.origin is None else Path(spec.origin)


def items_of(
    source: str, function: Callable[[], object], advice: str = "repair the function"
) -> Iterator[object]:
    """Call a function and yield its items, unchecked; `advice` ends the message if the function raises."""
    with user_code(source, advice):
        items = function()
    if callable(getattr(items, "get_next", None)) and not hasattr(items, "__iter__"):
        items = iter(cast(Any, items).get_next, None)  # as a CalibrationDataReader of onnxruntime
    if not hasattr(items, "__iter__"):
        raise DataError(
            f"{source}: returned an object of type {type(items).__name__}, expected an iterable of dicts; "
            "yield the samples"
        )
    number = 0
    with user_code(f"{source}[0]", advice):
        iterator = iter(cast(Any, items))
    while True:
        with user_code(f"{source}[{number}]", advice):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
        number += 1


@contextmanager
def user_code(where: str, advice: str = "repair the function") -> Iterator[None]:
    """Turn any error in the user's own code into a DataError that ends with `advice`."""
    try:
        yield
    except (QprofError, KeyboardInterrupt, GeneratorExit):
        raise
    except ModuleNotFoundError as error:
        package = str(error.name or error).partition(".")[0]
        raise DataError(
            f"{where}: needs the Python package '{package}', which is not here; install it into this "
            "environment, or put its folder into PYTHONPATH"
        ) from error
    except BaseException as error:  # not our code: it may raise anything, or call sys.exit
        try:
            text = f": {error}" if str(error) else ""
        except Exception:  # not our code either
            text = ", whose text cannot be shown"
        raise DataError(f"{where}: raised {type(error).__name__}{text}; {advice}") from error


@contextmanager
def _importable(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have changed sys.path itself
            sys.path.remove(folder)
