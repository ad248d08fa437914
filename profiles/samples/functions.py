"""Samples from Python: `module:function`, a function without arguments that returns samples."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, cast

from ..base.errors import DataError, QprofError, nearest


def is_function(source: str) -> bool:
    """Return whether `source` means module:function and not a folder. A folder of that name goes first."""
    return re.fullmatch(r"\w+(\.\w+)*:[^\W\d]\w*(\.\w+)*", source) is not None and not os.path.isdir(source)


def load_function(source: str) -> Callable[[], object]:
    """Return the function that "module:function" names; modules of the current folder can be imported too.

    Raises:
        DataError: the module cannot be imported or has no such function.
    """
    module_name, _, name = source.partition(":")
    with _current_folder_importable(), user_code(f"{source}: importing '{module_name}'"):
        try:
            target: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module exists, and an import in it fails
            raise DataError(
                f"{source}: no module '{error.name}'; run in its folder, or put its folder into PYTHONPATH"
            ) from error
    for part in name.split("."):
        if not hasattr(target, part):
            raise DataError(
                f"{source}: '{module_name}' has no function '{part}'; define it.{nearest(part, dir(target))}"
            )
        target = getattr(target, part)
    if not callable(target):
        raise DataError(f"{source}: is of type {type(target).__name__}; name a function that returns samples")
    return cast(Callable[[], object], target)


def module_file(source: str) -> Path | None:
    """Return the file of the module of "module:function", which is not imported; None where there is none."""
    path: Sequence[str] | None = [os.getcwd(), *sys.path]
    name, found = "", None
    for part in source.partition(":")[0].split("."):
        name = f"{name}.{part}".strip(".")
        found = None if path is None else PathFinder.find_spec(name, path)
        path = None if found is None else found.submodule_search_locations
    return None if found is None or not found.has_location or found.origin is None else Path(found.origin)


def items_of(
    source: str, function: Callable[[], object], advice: str = "repair the function"
) -> Iterator[object]:
    """Call a function and yield what it gives, unchecked.

    Args:
        source: what messages call it.
        function: returns an iterable.
        advice: what to do when it raises.

    Raises:
        DataError: the function raises, or returns something that cannot be iterated.
    """
    with user_code(source, advice):
        made = function()
    if not hasattr(made, "__iter__"):
        raise DataError(
            f"{source}: returned an object of type {type(made).__name__}, expected an iterable of dicts; "
            "yield the samples"
        )
    number = 0
    with user_code(f"{source}[0]", advice):
        iterator = iter(cast(Any, made))
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
    """Turn whatever the user's own code raises into a DataError that ends with `advice`."""
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
        raise DataError(f"{where}: raised {type(error).__name__}{_text_of(error)}; {advice}") from error


def _text_of(error: BaseException) -> str:
    """Return the text of an exception of the user's own, which may have none, or raise when it is asked."""
    try:
        text = str(error)
    except Exception:  # not our code either
        return ", whose text cannot be shown"
    return f": {text}" if text else ""


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have changed sys.path itself
            sys.path.remove(folder)
