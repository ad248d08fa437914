"""What a runtime can execute, and the settings that suit it: one YAML file in configs/ for each target.

A file has up to six keys:

    target: onnxruntime-x86          # the name; of a packaged target when `runtime` is left out
    like: onnxruntime-arm            # a packaged target whose facts and settings hold where none stand here
    description: one line
    sources: [where the facts below were read or measured]
    runtime:                         # facts about the runtime
      activation_types: [uint8, int8]
      operators: {Conv: [quantized], MatMul: [quantized, float]}
      lookup_tables: {Sigmoid: runtime, Tanh: sigmoid}
      implementations: {Relu: leaky-relu, Clip: integer}
      float_elementwise: true
      unsigned_activations: true
      domains: [com.microsoft]
      kernels_16bit: [MatMul]                        # operators that compute in 16 bits; "*" for all
      dynamic: [MatMul, Gemm]               # products with parameters of activations made at run time
      weight_only: {MatMul: [int8, int4]}   # types of constants that a float operator can be given
      weight_kernels: [MatMul]              # those of them that compute on the codes of their weight
    settings: {activation_type: uint8}   # defaults of `QuantConfig`, overruled by options

Adding a target is adding a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from ...profiles.base.errors import ConfigError, nearest
from ..numerics.affine import TYPES
from ..operators.functions import CHAIN
from .config import FORMS, QuantConfig
from .target import (
    BIASES,
    CHAIN_IMPLEMENTATIONS,
    FEW_BITS,
    LUT_IMPLEMENTATIONS,
    OUTPUTS,
    PASS_THROUGH_IMPLEMENTATIONS,
    ZERO_POINTS,
    Recipe,
    Target,
)
from .validation import SIGNED_SCHEMAS, check_config
from .yaml_values import Reader, by_operator, check_known, flag, name_of, names, names_of, opsets

USUAL_BLOCK = 32
"""For 4-bit weights when none is asked for: one scale for a channel leaves them too little signal."""


def target_names() -> tuple[str, ...]:
    """Return the names of the packaged targets, sorted."""
    folder = resources.files("qprof_onnx.configs")
    return tuple(sorted(f.name[: -len(".yaml")] for f in folder.iterdir() if f.name.endswith(".yaml")))


@cache
def packaged_targets() -> tuple[Target, ...]:
    """Return the packaged targets, sorted by name."""
    return tuple(load_recipe(name).target for name in target_names())


def load_recipe(source: str | Path | None = None, overrides: Mapping[str, object] | None = None) -> Recipe:
    """Return the settings of a packaged target or of a file, overruled by `overrides`.

    Args:
        source: name of a packaged target, or path of a YAML file; None for the default target.
        overrides: values for fields of `QuantConfig`; None values are ignored.

    Raises:
        ConfigError: no such target or file, unknown keys, values that are not allowed.
    """
    name = str(source) if source is not None else QuantConfig.target
    is_file = Path(name).suffix in {".yaml", ".yml"}
    document = _read(Path(name)) if is_file else _packaged(name)
    if is_file and "runtime" not in document:
        base = str(document.get("target", QuantConfig.target))
        document = _layered(_packaged(base), document)
    where = name if is_file else f"configs/{name}.yaml"
    target = _target(document, where)
    settings = _mapping(document, "settings", where)
    chosen = {key: value for key, value in (overrides or {}).items() if value is not None}
    config = _replaced(_config({**settings, "target": target.name}, where), chosen, "options")
    if config.schema in SIGNED_SCHEMAS and "activation_type" not in chosen:
        # One option is enough to ask for a symmetric schema: codes become signed where the target has them.
        signed = [t for t in target.activation_types if t in TYPES and TYPES[t].signed]
        config = replace(config, activation_type=signed[0]) if signed else config
    if config.weight_type in FEW_BITS and "block_size" not in {**settings, **chosen}:
        config = replace(config, block_size=USUAL_BLOCK)
    return Recipe(check_config(config, target, "options" if chosen else where), target)


def _packaged(name: str) -> dict[str, Any]:
    names = target_names()
    if name not in names:
        raise ConfigError(
            f"target '{name}': no such target.{nearest(name, names)} There are {', '.join(names)}; "
            "or give a YAML file with --config"
        )
    text = resources.files("qprof_onnx.configs").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return _parsed(text, f"configs/{name}.yaml")


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read this configuration file: {error}") from error
    return _parsed(text, str(path))


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: this is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: a configuration is a mapping with the keys target, runtime and settings")
    check_known(document, ("target", "like", "description", "sources", "runtime", "settings"), where)
    return _layered(_packaged(str(document["like"])), document) if "like" in document else document


def _layered(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    joined = {key: {**(base.get(key) or {}), **(over.get(key) or {})} for key in ("runtime", "settings")}
    sources = [*(base.get("sources") or ()), *(over.get("sources") or ())]
    return {**base, **over, "sources": sources, **joined}


def _mapping(document: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = document.get(key) or {}
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: '{key}' must be a mapping")
    return value


def _target(document: Mapping[str, Any], where: str) -> Target:
    if not isinstance(document.get("target"), str):
        raise ConfigError(f"{where}: 'target' must be the name of the target")
    runtime = _mapping(document, "runtime", where)
    check_known(runtime, tuple(_READERS), f"{where}: runtime")
    facts = {key: _READERS[key](value, f"{where}: runtime: {key}") for key, value in runtime.items()}
    return Target(
        name=document["target"],
        description=str(document.get("description", "")),
        sources=tuple(document.get("sources") or ()),
        **facts,
    )


_READERS: Mapping[str, Reader] = {
    "activation_types": names_of(TYPES),
    "weight_types": names_of(TYPES),
    "forms": names_of(FORMS),
    "operators": by_operator(names_of(OUTPUTS)),
    "lookup_tables": by_operator(name_of(LUT_IMPLEMENTATIONS), {CHAIN: name_of(CHAIN_IMPLEMENTATIONS)}),
    "implementations": by_operator(name_of(PASS_THROUGH_IMPLEMENTATIONS)),
    "unsigned_activations": flag,
    "float_elementwise": flag,
    "kernels_16bit": names,
    "dynamic": names,
    "weight_only": by_operator(names_of(TYPES)),
    "weight_kernels": names,
    "zero_points": name_of(ZERO_POINTS),
    "bias": name_of(BIASES),
    "domains": names,
    "opsets": opsets,
    "static_shapes": flag,
    "full_range": names,
    "known_operators": names,
}
"""Every key of `runtime`, with what reads it; the names are those of the fields of `Target`."""


def _config(settings: Mapping[str, Any], where: str) -> QuantConfig:
    return _replaced(QuantConfig(), settings, f"{where}: settings")


def _replaced(config: QuantConfig, values: Mapping[str, Any], where: str) -> QuantConfig:
    """Return `config` with `values` put in, each of the type of the field that it replaces."""
    check_known(values, tuple(f.name for f in fields(QuantConfig)), where)
    typed: dict[str, Any] = {}
    for key, value in values.items():
        old = getattr(config, key)
        if isinstance(old, tuple):
            if isinstance(value, str) or not all(isinstance(item, str) for item in value):
                raise ConfigError(f"{where}: {key} must be a list of names")
            typed[key] = tuple(value)
        elif isinstance(old, int) and not isinstance(old, bool):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{where}: {key} must be a whole number, not {value!r}")
            typed[key] = value
        elif isinstance(old, float):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"{where}: {key} must be a number, not {value!r}")
            typed[key] = float(value)
        elif not isinstance(value, type(old)):
            raise ConfigError(f"{where}: {key} must be a {type(old).__name__}, not {value!r}")
        else:
            typed[key] = value
    return replace(config, **typed)
