"""Values of a configuration file: each reader checks one and returns it as the field of a record holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...profiles.base.errors import ConfigError, nearest

Reader = Callable[[Any, str], Any]
"""Checks one value of a file and returns it as the field holds it; the text says where it stands."""


def flag(value: Any, where: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be true or false, not {value!r}")
    return value


def names(value: Any, where: str) -> tuple[str, ...]:
    """Read a list of names."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{where} must be a list of names")
    return tuple(value)


def names_of(known: Iterable[str]) -> Reader:
    """Return what reads a list of some of the names in `known`."""

    def read(value: Any, where: str) -> tuple[str, ...]:
        check_known(dict.fromkeys(names(value, where)), tuple(known), where)
        return tuple(value)

    return read


def name_of(known: tuple[str, ...]) -> Reader:
    """Return what reads one of the names in `known`."""

    def read(value: Any, where: str) -> str:
        return str(names_of(known)([value], where)[0])

    return read


def by_operator(reader: Reader, others: Mapping[str, Reader] | None = None) -> Reader:
    """Return what reads a mapping from operators to what `reader` reads, or for some what `others` do."""

    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be a mapping by operator")
        return {
            str(op): (others or {}).get(str(op), reader)(item, f"{where}: {op}") for op, item in value.items()
        }

    return read


def opsets(value: Any, where: str) -> tuple[int, int]:
    """Read the oldest and the newest opset."""
    if not isinstance(value, list) or len(value) != 2 or not all(type(item) is int for item in value):
        raise ConfigError(f"{where} must be the oldest and the newest opset, such as [13, 21]")
    return value[0], value[1]


def check_known(mapping: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    """Raise ConfigError when a key is not one of `known`; the message has the nearest."""
    for key in mapping:
        if key not in known:
            raise ConfigError(
                f"{where}: unknown key '{key}'.{nearest(str(key), known)} Known keys are {', '.join(known)}"
            )
