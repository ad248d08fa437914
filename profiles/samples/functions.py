"""Samples from Python: `module:function`, a function without arguments that returns an iterable of
samples."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from ..base.errors import DataError, QprofError, nearest


def is_function(source: str) -> bool:
    """Return whether `source` means module:function and not a folder. A folder of that name goes first."""
    return re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", source) is not None and not os.path.isdir(source)


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
        raise DataError(
            f"{source}: is of type {type(target).__name__}, expected a function that returns samples"
        )
    return cast(Callable[[], object], target)


def samples_of(source: str, function: Callable[[], object]) -> Iterator[object]:
    """Call the function and yield its samples, unchecked.

    Raises:
        DataError: the function raises, or returns something that cannot be iterated.
    """
    with user_code(source):
        iterable = function()
    if not hasattr(iterable, "__iter__"):
        raise DataError(
            f"{source}: returned an object of type {type(iterable).__name__}, expected an iterable of dicts; "
            "yield the samples"
        )
    number = 0
    with user_code(f"{source}[0]"):
        iterator = iter(cast(Any, iterable))
    while True:
        with user_code(f"{source}[{number}]"):
            try:
                sample = next(iterator)
            except StopIteration:
                return
        yield sample
        number += 1


@contextmanager
def user_code(where: str) -> Iterator[None]:
    """Turn exceptions of the user's own code into DataErrors."""
    try:
        yield
    except QprofError:
        raise
    except Exception as error:  # not our code: it may raise anything
        raise DataError(f"{where}: raised {type(error).__name__}: {error}; repair the function") from error


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have changed sys.path itself
            sys.path.remove(folder)
