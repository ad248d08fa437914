"""Methods whose results are kept in their object."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def computed_once(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Return a method that computes its result once for each object and arguments.

    A shallow copy of an object shares its results.
    """

    @wraps(method)
    def kept(self: S, /, *args: P.args, **keywords: P.kwargs) -> T:
        results: dict[Any, T] = self.__dict__.setdefault("_computed", {})
        key = (kept, args, *keywords.items())  # which pickle finds by its name
        if key not in results:
            results[key] = method(self, *args, **keywords)
        return results[key]

    return kept
