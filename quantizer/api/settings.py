"""The keywords of the public functions: what each may be, for editors and type checkers, and at the call.

`Settings` has the fields of `QuantConfig`, `RunOptions` those of `RunSettings`; tests hold them equal.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

from ...profiles.base.errors import ConfigError, nearest
from ..numerics.calibrator_names import CalibratorName
from ..numerics.schema_table import SchemaName
from ..targets.config import ActivationType, FormName, Granularity, LookupTables, Mode, WeightType
from ..targets.loading import load_recipe
from ..targets.target import Recipe

Percentile: TypeAlias = Literal[
    "percentile:99", "percentile:99.9", "percentile:99.95", "percentile:99.99", "percentile:99.999"
]
"""Those in use; another one is taken at the call, or in a configuration file."""

TargetLike: TypeAlias = str | os.PathLike[str] | Recipe
"""The name of a packaged target, the path of a configuration file, or a recipe that was loaded."""


class Settings(TypedDict, total=False):
    """Settings of a quantization, see `QuantConfig`; what is not given comes from the target."""

    mode: Mode
    form: FormName
    schema: SchemaName
    calibrator: CalibratorName | Percentile
    activation_type: ActivationType
    keep_16bit: Collection[str]
    inter_layer: Literal["quantized", "float"]
    weight_schema: SchemaName
    weight_type: WeightType
    block_size: int
    granularity: Granularity
    lookup_tables: LookupTables
    scale_sharing: Literal["auto", "unified", "separate"]
    min_sqnr: float
    min_output_sqnr: float | None
    output_kind: Collection[str]
    equalization: Literal["auto", "free", "off"]
    bias_correction: Literal["auto", "off"]
    rounding: Literal["nearest", "gptq", "gptaq"]
    weight_only_activations: Literal["int8", "float"]
    cost_model: Literal["auto", "off"]
    keep_float: Collection[str]
    fix_shapes: Collection[str]


class RunOptions(TypedDict, total=False):
    """How a model is profiled, see `RunSettings`."""

    tensors: Literal["all", "needed"] | Collection[str]
    channels: Literal["weighted-layers", "off"] | Mapping[str, int]
    non_finite: Literal["error", "skip"]
    limit: int | None
    by_row: bool
    noise_samples: int
    provider: str
    threads: int
    memory_limit: int | None
    checkpoint: str | os.PathLike[str] | None
    every: float
    scheduler: str | None
    custom_ops: Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Chosen:
    """Keywords of a call, sorted.

    Attributes:
        settings: those of `Settings`.
        others: the rest.
    """

    settings: Mapping[str, Any]
    others: Mapping[str, Any]

    def recipe(self, target: TargetLike | None) -> Recipe | None:
        """Return the settings with their target; None where neither was given.

        Raises:
            ConfigError: a setting or a combination of settings is not allowed.
        """
        if not isinstance(target, Recipe):
            return recipe_of(target, self.settings) if self.settings or target is not None else None
        if self.settings:
            raise ConfigError(
                f"{min(self.settings)}: a recipe holds its settings; give a target, or leave them out"
            )
        return target


def chosen(function: str, options: Mapping[str, Any], allowed: type) -> Chosen:
    """Return the keywords of a call, checked and sorted.

    Args:
        function: the function that was called, for messages.
        options: its keywords.
        allowed: the TypedDict that names all of them.

    Raises:
        ConfigError: a keyword is not known; the nearest one is named.
    """
    known = allowed.__optional_keys__  # type: ignore[attr-defined]
    for name in options:
        if name not in known:
            raise ConfigError(f"{function}: there is no keyword '{name}'; see help.{nearest(name, known)}")
    settings = {name: value for name, value in options.items() if name in Settings.__optional_keys__}
    return Chosen(settings, {name: value for name, value in options.items() if name not in settings})


def recipe_of(target: str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> Recipe:
    """Return the settings of a target, overruled by keywords.

    Raises:
        ConfigError: there is no such target, or a setting is not allowed.
    """
    given = {name: _as_list(value) for name, value in settings.items()}
    return load_recipe(None if target is None else os.fspath(target), given)


def _as_list(value: object) -> object:
    if isinstance(value, Collection) and not isinstance(value, str | Sequence):
        return sorted(value)  # a set has no order that could be kept
    return value
