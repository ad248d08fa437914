"""What a runtime can execute, and the settings that suit it: one YAML file in configs/ for each target.

A file has up to six keys:

    target: onnxruntime-x86          # the name; of a packaged target when `runtime` is left out
    like: onnxruntime-arm            # a packaged target whose facts and settings hold where none stand here
    description: one line
    sources: [where the facts below were read or measured]
    runtime:                         # facts about the runtime
      activation_types: [uint8, int8]
      operators: {Conv: [codes], MatMul: [codes, float]}
      tables: {Sigmoid: runtime, Tanh: sigmoid}
      spellings: {Relu: leaky, Clip: codes}
      float_elementwise: true
      unsigned_codes: true
      domains: [com.microsoft]
      wide: [MatMul]                        # operators that compute in 16 bits; "*" for all
      dynamic: [MatMul, Gemm]               # products with parameters of activations made at run time
      weight_only: {MatMul: [int8, int4]}   # types of constants that a float operator can be given
      weight_kernels: [MatMul]              # those of them that compute on the codes of their weight
    settings: {activation_type: uint8}   # defaults of `QuantConfig`, overruled by options

Adding a target is adding a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from ..profiles.errors import ConfigError, nearest
from .affine import TYPES
from .config import (
    BIAS_CORRECTIONS,
    EQUALIZATIONS,
    GRANULARITIES,
    MODES,
    PROPAGATIONS,
    RESOLUTIONS,
    ROUNDINGS,
    TABLES,
    QuantConfig,
)
from .curves import CHAIN
from .lowering import FORMS
from .schemes import SCHEMES
from .target_values import Reader, by_operator, check_known, flag, name_of, names, names_of, opsets

CODES, FLOAT = "codes", "float"
OUTPUTS = (CODES, FLOAT)
SIGNED_SCHEMAS = tuple(n for n, s in SCHEMES.items() if s.symmetric and not s.unsigned_when_positive)
FEW_BITS = ("int4", "uint4")
FEWEST_IN_BLOCK = 16
"""Elements of a block; the smallest and the powers of two are those of onnxruntime's MatMulNBits."""
USUAL_BLOCK = 32
"""For 4-bit weights when none is asked for: one scale for a channel leaves them too little signal."""
TABLE_SPELLINGS = ("runtime", "sigmoid", "portable")
CHAIN_SPELLINGS = ("apart", "runtime", "portable")
MOVE_SPELLINGS = ("codes", "leaky")
ZERO_POINTS = ("any", "zero")
BIASES = ("int32", "float")


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
            "portable"; "*" stands for all curves not named, "Chain" for several operators that together are
            a function of one variable: "apart" when each is planned by itself, see `chains`.
        spellings: operator type to the way in which the node is written where conversions around it would
            make the runtime compute it in float: "codes" or "leaky", see `NodePlan.spelling`.
        unsigned_codes: whether the kernels want unsigned codes: signed activations are stored as their
            unsigned twins then, with the same scale and the zero point moved, which changes no number.
        wide: operator types with an integer kernel for 16-bit activations; "*" for all.
        dynamic: operator types with an integer kernel whose activations get their parameters at run time.
        weight_only: operator type to the integer types in which a float node can have its constant weight,
            at a gain: a runtime that would turn it into float when it loads the model has none.
        weight_kernels: those of them that take the codes as they are; the others' weights are made float in
            every run, which costs time.
        float_elementwise: whether float operators between integer ones cost no more than the conversions; if
            not (integer-only hardware), everything that can be in codes is.
        weight_types: integer types of weights that it has kernels for.
        forms: names of `lowering.FORMS` that it can read.
        zero_points: "any", or "zero" where it takes symmetric codes only.
        bias: "int32" (codes of scale(x) * scale(w)), or "float" where it reads no such codes.
        domains: operator domains that it knows besides the standard one.
        opsets: the oldest and the newest that it reads; None where its documents name no limit.
        static_shapes: whether it wants every dimension of the inputs fixed.
        full_range: operator types whose kernels are right only where the parameters of the output cover all
            that the mathematics allows (`Rule.bounds`), whatever was profiled.
        known_operators: every standard operator that it can run at all, for runtimes that lack many; empty
            where that is no concern.
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
    weight_types: tuple[str, ...] = ("int8", "uint8", "int7")
    forms: tuple[str, ...] = tuple(FORMS)
    zero_points: str = "any"
    bias: str = "int32"
    domains: tuple[str, ...] = ()
    opsets: tuple[int, int] | None = None
    static_shapes: bool = False
    full_range: tuple[str, ...] = ()
    known_operators: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    weight_only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weight_kernels: tuple[str, ...] = ()

    def computes_wide(self, op_type: str) -> bool:
        """Whether there is an integer kernel of an operator for 16-bit activations."""
        return op_type in self.wide or "*" in self.wide


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a quantization besides model and profile: the settings and the target."""

    config: QuantConfig
    target: Target


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
    if config.weight_type in FEW_BITS and "block" not in {**settings, **chosen}:
        config = replace(config, block=USUAL_BLOCK)
    return Recipe(check_config(config, target, "options" if chosen else where), target)


def check_config(config: QuantConfig, target: Target, where: str) -> QuantConfig:
    """Return `config` unchanged when every value is allowed and goes with the others.

    Raises:
        ConfigError: naming the setting, its value and what is allowed.
    """
    for key, allowed in (
        ("mode", MODES),
        ("propagation", PROPAGATIONS),
        ("schema", tuple(SCHEMES)),
        ("weight_schema", tuple(SCHEMES)),
        ("activation_type", target.activation_types),
        ("weight_type", _weight_types(target)),
        ("granularity", GRANULARITIES),
        ("tables", TABLES),
        ("resolution", RESOLUTIONS),
        ("equalization", EQUALIZATIONS),
        ("bias_correction", BIAS_CORRECTIONS),
        ("rounding", ROUNDINGS),
    ):
        value = getattr(config, key)
        if value not in allowed:
            raise ConfigError(
                f"{where}: {key} '{value}' is not one of {', '.join(allowed)}.{nearest(str(value), allowed)}"
            )
    _check_form(config, target, where)
    if target.zero_points == "zero" and not {config.schema, config.weight_schema} <= set(SIGNED_SCHEMAS):
        raise ConfigError(
            f"{where}: {target.name} takes zero point 0 only: use schema and weight_schema symmetric"
        )
    if config.schema in SIGNED_SCHEMAS and not TYPES[config.activation_type].signed:
        raise ConfigError(
            f"{where}: schema '{config.schema}' needs a signed activation_type: use int8, "
            "or schema symmetric-uint8"
        )
    for sentence in _hybrid_settings(config, target):
        raise ConfigError(f"{where}: {sentence}")
    if config.granularity == "channel" and config.weight_schema == "asymmetric" and not config.block:
        raise ConfigError(
            f"{where}: weights with a scale for each channel are symmetric: "
            "use weight_schema symmetric, or granularity tensor"
        )
    return config


def _check_form(config: QuantConfig, target: Target, where: str) -> None:
    if config.form in target.forms:
        return
    if config.form not in FORMS:
        raise ConfigError(
            f"{where}: form '{config.form}' is not one of {', '.join(FORMS)}.{nearest(config.form, FORMS)}"
        )
    why = " (its operators are onnxruntime's own)" if config.form == "qoperator" else ""
    raise ConfigError(
        f"{where}: {target.name} does not read form '{config.form}'{why}: "
        f"use form {' or '.join(target.forms)}"
    )


def _weight_types(target: Target) -> tuple[str, ...]:
    """Return the integer types of weights in any kind of node."""
    hybrid = [name for types in target.weight_only.values() for name in types if name in FEW_BITS]
    return tuple(dict.fromkeys([*target.weight_types, *hybrid]))


def _hybrid_settings(config: QuantConfig, target: Target) -> Iterator[str]:
    """Yield what is wrong with the settings of dynamic and weight-only nodes."""
    wanted = {"dynamic": bool(target.dynamic), "weight-only": bool(target.weight_only)}
    if not wanted.get(config.mode, True):
        yield f"mode '{config.mode}': {target.name} has no kernel for it; use mode static, or another target"
    if config.wide and all(TYPES[name].bits < 16 for name in target.activation_types):
        yield f"wide: {target.name} has no activations of 16 bits"
    if config.mode != "weight-only":
        if config.weight_type in FEW_BITS:
            yield f"weight_type '{config.weight_type}' is for mode weight-only; use int8, or that mode"
        if config.block:
            yield f"block {config.block} is for mode weight-only; leave it out, or use that mode"
    if config.block and (config.block < FEWEST_IN_BLOCK or config.block & (config.block - 1)):
        yield f"block {config.block} must be a power of two from {FEWEST_IN_BLOCK}, or 0 for no blocks"
    if config.mode == "weight-only":
        symmetric = not SCHEMES[config.weight_schema].unsigned_when_positive
        if SCHEMES[config.weight_schema].symmetric and symmetric and not TYPES[config.weight_type].signed:
            yield (
                f"weight_type '{config.weight_type}' needs weight_schema asymmetric (with a block, or "
                "granularity tensor); or use the signed type"
            )


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
    "tables": by_operator(name_of(TABLE_SPELLINGS), {CHAIN: name_of(CHAIN_SPELLINGS)}),
    "spellings": by_operator(name_of(MOVE_SPELLINGS)),
    "unsigned_codes": flag,
    "float_elementwise": flag,
    "wide": names,
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
