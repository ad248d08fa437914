"""Loose keywords of the public functions, and how they become the records that these take.

Functions take records, so editors complete names and type checkers find errors: `quantize(model, data,
config=QuantConfig(calibrator="kl"), options=QuantizeOptions(limit=100))`. At a prompt the fields of these
records are keywords too: `quantize(model, data, calibrator="kl", limit=100)`. Only the record defines a name.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ...profiles.base.arguments import check_names
from ...profiles.base.errors import ConfigError
from ..evaluation.options import Gate
from ..targets.config import QuantConfig
from ..targets.target import Recipe
from .options import settings_of, settings_with

ConfigLike: TypeAlias = QuantConfig | Recipe | Mapping[str, Any] | str | os.PathLike[str]
"""Configuration: settings, also as a dict, a word such as "weight-only-4", or the YAML file of settings or
of a target. Only settings that differ from the default count in a `QuantConfig`; the target has others."""

PathLike: TypeAlias = str | os.PathLike[str]

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")
"""A record."""

SETTINGS = frozenset(field.name for field in fields(QuantConfig))
"""Keywords that are settings."""

GATES = frozenset(field.name for field in fields(Gate))
"""Limits, which are fields of the keyword `gate`."""


def split_settings(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings among the keywords of a call, and the others."""
    settings = {name: value for name, value in keywords.items() if name in SETTINGS}
    return settings, {name: value for name, value in keywords.items() if name not in SETTINGS}


def with_keywords(
    function: str,
    record: R,
    keywords: Mapping[str, Any],
    *,
    only: Collection[str] | None = None,
    besides: Collection[str] = (),
) -> R:
    """Return a record with the keywords of a call in place of its fields."""
    known = {field.name for field in fields(record) if only is None or field.name in only}
    for name in keywords:
        if name in GATES - known and "gate" in known:
            raise ConfigError(f"{function}: {name}: is a limit of a gate; write gate=Gate({name}=LIMIT)")
    check_names(function, keywords, {*known, *besides})
    return replace(record, **keywords) if keywords else record


def given_fields(record: R) -> set[str]:
    """Return the names of the fields of a record that are not the default."""
    given = set[str]()
    for field in fields(record):
        value = getattr(record, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        # Arrays are only compared with None.
        if value is not default and (type(value) is not type(default) or value != default):
            given.add(field.name)
    return given


def recipe_of(config: ConfigLike | None, settings: Mapping[str, Any]) -> Recipe | None:
    """Return settings and target of a call, or None if none were given."""
    if isinstance(config, Mapping):
        settings, config = settings_with(config, settings, "config"), None
    target = settings.get("target")
    if target is not None and not isinstance(target, str | os.PathLike):
        raise ConfigError(f"target: is of type {type(target).__name__}; give its name, or the file of one")
    if isinstance(config, Recipe):
        if settings:
            raise ConfigError(
                f"{min(settings)}: a recipe contains its settings; give a target, or leave them out"
            )
        return config
    overrides, source = dict(settings), settings.get("target")
    overrides.pop("target", None)
    if isinstance(config, os.PathLike) or (
        isinstance(config, str) and config.endswith((".yaml", ".yml", ".json"))
    ):
        if source is not None:
            raise ConfigError("target: a configuration file names its target; leave one of them out")
        source = config
    elif isinstance(config, str):
        meant = settings_of(config, "config", overrides.get("fit_size"))
        overrides = settings_with(meant, overrides, f"config {config}")
    elif config is not None:
        meant = {name: getattr(config, name) for name in SETTINGS & given_fields(config)}
        own = meant.pop("target", None)
        if own is not None and source is not None:
            raise ConfigError(f"target: {own} is in the configuration too; remove one")
        source = own if source is None else source
        overrides = settings_with(meant, overrides, "QuantConfig")
    if source is None and not overrides:
        return None
    ordered = {
        name: sorted(value)  # a set has no order that could be kept
        if isinstance(value, Collection) and not isinstance(value, str | Sequence)
        else value
        for name, value in overrides.items()
    }
    from ..targets.loading import load_recipe

    return load_recipe(None if source is None else os.fspath(source), ordered)
