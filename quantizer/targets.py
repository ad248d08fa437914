"""What a runtime can execute, and the settings that suit it: one YAML file in configs/ for each target.

A file has up to five keys:

    target: onnxruntime-x86          # the name; of a packaged target when `runtime` is left out
    description: one line
    sources: [where the facts below were read or measured]
    runtime:                         # facts about the runtime
      activation_types: [uint8, int8]
      operators: {Conv: [codes], MatMul: [codes, float]}
      tables: {Sigmoid: runtime, Tanh: sigmoid}
      spellings: {Relu: leaky, Clip: codes}
      float_elementwise: true
      unsigned_codes: true
    settings: {activation_type: uint8}   # defaults of `QuantConfig`, overruled by options

Adding a target is adding a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from ..profiles.errors import ConfigError, nearest
from .affine import TYPES
from .config import GRANULARITIES, TABLES, QuantConfig
from .schemes import SCHEMES

CODES, FLOAT = "codes", "float"
OUTPUTS = (CODES, FLOAT)
SIGNED_SCHEMAS = tuple(n for n, s in SCHEMES.items() if s.symmetric and not s.unsigned_when_positive)
TABLE_SPELLINGS = ("runtime", "sigmoid", "portable")
MOVE_SPELLINGS = ("codes", "leaky")


@dataclass(frozen=True)
class Target:
    """A runtime, as far as quantization is concerned.

    Attributes:
        name: as in `--target`.
        description: one line for people.
        sources: where the facts were read or measured.
        activation_types: integer types of activations that it has kernels for.
        operators: operator type to the outputs that its integer kernel can give: "codes", "float" (integer
            inputs, float output) or both. An operator that is not here has no integer kernel.
        tables: operator type to the spelling in which a curve is a look-up table: "runtime", "sigmoid" or
            "portable"; "*" stands for all curves not named.
        spellings: operator type to the way in which the node is written where conversions around it would
            make the runtime compute it in float: "codes" or "leaky", see `NodePlan.spelling`.
        unsigned_codes: whether the kernels want unsigned codes: signed activations are stored as their
            unsigned twins then, with the same scale and the zero point moved, which changes no number.
        float_elementwise: whether float operators between integer ones cost no more than the conversions; if
            not (integer-only hardware), everything that can be in codes is.
    """

    name: str
    description: str = ""
    sources: tuple[str, ...] = ()
    activation_types: tuple[str, ...] = ("uint8", "int8")
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    spellings: Mapping[str, str] = field(default_factory=dict)
    unsigned_codes: bool = False
    float_elementwise: bool = False


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a quantization besides model and profile: the settings and the target."""

    config: QuantConfig
    target: Target


def target_names() -> tuple[str, ...]:
    """Return the names of the packaged targets, sorted."""
    folder = resources.files("qprof_onnx.configs")
    return tuple(sorted(f.name[: -len(".yaml")] for f in folder.iterdir() if f.name.endswith(".yaml")))


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
    return Recipe(check_config(config, target, "options" if chosen else where), target)


def check_config(config: QuantConfig, target: Target, where: str) -> QuantConfig:
    """Return `config` unchanged when every value is allowed and goes with the others.

    Raises:
        ConfigError: naming the setting, its value and what is allowed.
    """
    for key, allowed in (
        ("schema", tuple(SCHEMES)),
        ("weight_schema", tuple(SCHEMES)),
        ("activation_type", target.activation_types),
        ("weight_type", ("int8", "uint8")),
        ("granularity", GRANULARITIES),
        ("tables", TABLES),
    ):
        value = getattr(config, key)
        if value not in allowed:
            raise ConfigError(
                f"{where}: {key} '{value}' is not one of {', '.join(allowed)}.{nearest(str(value), allowed)}"
            )
    if config.schema in SIGNED_SCHEMAS and not TYPES[config.activation_type].signed:
        raise ConfigError(
            f"{where}: schema '{config.schema}' needs a signed activation_type: use int8, "
            "or schema symmetric-uint8"
        )
    if config.granularity == "channel" and config.weight_schema == "asymmetric":
        raise ConfigError(
            f"{where}: weights with a scale for each channel are symmetric: "
            "use weight_schema symmetric, or granularity tensor"
        )
    return config


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
    _known(document, ("target", "description", "sources", "runtime", "settings"), where)
    return document


def _layered(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    settings = {**(base.get("settings") or {}), **(over.get("settings") or {})}
    return {**base, **over, "settings": settings}


def _known(mapping: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    for key in mapping:
        if key not in known:
            raise ConfigError(
                f"{where}: unknown key '{key}'.{nearest(str(key), known)} Known keys are {', '.join(known)}"
            )


def _mapping(document: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = document.get(key) or {}
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: '{key}' must be a mapping")
    return value


def _target(document: Mapping[str, Any], where: str) -> Target:
    if not isinstance(document.get("target"), str):
        raise ConfigError(f"{where}: 'target' must be the name of the target")
    runtime = _mapping(document, "runtime", where)
    known = ("activation_types", "operators", "tables", "spellings", "unsigned_codes", "float_elementwise")
    _known(runtime, known, f"{where}: runtime")
    operators = {op: tuple(outputs) for op, outputs in _mapping(runtime, "operators", where).items()}
    for op, outputs in operators.items():
        _known(dict.fromkeys(outputs), OUTPUTS, f"{where}: runtime: operators: {op}")
    tables = _mapping(runtime, "tables", where)
    _known(dict.fromkeys(tables.values()), TABLE_SPELLINGS, f"{where}: runtime: tables")
    spellings = _mapping(runtime, "spellings", where)
    _known(dict.fromkeys(spellings.values()), MOVE_SPELLINGS, f"{where}: runtime: spellings")
    types = tuple(runtime.get("activation_types", Target.activation_types))
    _known(dict.fromkeys(types), tuple(TYPES), f"{where}: runtime: activation_types")
    return Target(
        name=document["target"],
        description=str(document.get("description", "")),
        sources=tuple(document.get("sources") or ()),
        activation_types=types,
        operators=operators,
        tables=tables,
        spellings=spellings,
        unsigned_codes=bool(runtime.get("unsigned_codes", False)),
        float_elementwise=bool(runtime.get("float_elementwise", False)),
    )


def _config(settings: Mapping[str, Any], where: str) -> QuantConfig:
    return _replaced(QuantConfig(), settings, f"{where}: settings")


def _replaced(config: QuantConfig, values: Mapping[str, Any], where: str) -> QuantConfig:
    """Return `config` with `values` put in, each of the type of the field that it replaces."""
    _known(values, tuple(f.name for f in fields(QuantConfig)), where)
    typed: dict[str, Any] = {}
    for key, value in values.items():
        old = getattr(config, key)
        if isinstance(old, tuple):
            if isinstance(value, str) or not all(isinstance(item, str) for item in value):
                raise ConfigError(f"{where}: {key} must be a list of names")
            typed[key] = tuple(value)
        elif isinstance(old, float):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"{where}: {key} must be a number, not {value!r}")
            typed[key] = float(value)
        elif not isinstance(value, type(old)):
            raise ConfigError(f"{where}: {key} must be a {type(old).__name__}, not {value!r}")
        else:
            typed[key] = value
    return replace(config, **typed)
