"""Whether the settings are allowed and go together on a target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

from ...profiles.base.errors import ConfigError
from ...profiles.base.strict_yaml import MalformedError
from ..numerics.affine import TYPES
from ..numerics.schema_table import SCHEMAS
from .config import QuantConfig
from .records import config_from_mapping
from .target import FEW_BITS, Target
from .words import malformed, not_one_of

SIGNED_SCHEMAS = tuple(n for n, s in SCHEMAS.items() if s.symmetric and not s.unsigned_when_positive)


def check_config(config: QuantConfig, target: Target, where: str) -> QuantConfig:
    """Return `config` unchanged when every value is allowed and goes with the others.

    Raises:
        ConfigError: naming the setting, its value and what is allowed.
    """
    try:
        config_from_mapping({field.name: getattr(config, field.name) for field in fields(QuantConfig)})
        for problem in _problems(config, target):
            raise problem
    except MalformedError as problem:
        raise ConfigError(problem.message(where, "choose other settings, or another target")) from None
    return config


def _problems(config: QuantConfig, target: Target) -> Iterator[MalformedError]:
    """Yield what is wrong with settings that are right by themselves."""
    yield from _unknown_to("activation_type", config.activation_type, target.activation_types)
    yield from _unknown_to("weight_type", config.weight_type, _weight_types(target))
    if config.form not in target.forms:
        why = " (its operators are onnxruntime's own)" if config.form == "qoperator" else ""
        yield malformed(
            f"{target.name} does not read form '{config.form}'{why}", f"use form {' or '.join(target.forms)}"
        )
    if target.zero_points == "zero" and not {config.schema, config.weight_schema} <= set(SIGNED_SCHEMAS):
        yield malformed(f"{target.name} takes zero point 0 only", "use schema and weight_schema symmetric")
    if config.schema in SIGNED_SCHEMAS and not TYPES[config.activation_type].signed:
        yield malformed(
            f"schema '{config.schema}' needs a signed activation_type",
            "use int8, or schema symmetric-uint8",
        )
    yield from _hybrid_problems(config, target)
    if config.granularity == "per-channel" and config.weight_schema == "asymmetric" and not config.block_size:
        yield malformed(
            "weights with a scale for each channel are symmetric",
            "use weight_schema symmetric, or granularity per-tensor",
        )


def _unknown_to(name: str, word: str, known: Iterable[str]) -> Iterator[MalformedError]:
    known = tuple(known)
    if word not in known:
        yield not_one_of(name, word, known)


def _weight_types(target: Target) -> tuple[str, ...]:
    """Return the integer types of weights in any kind of node."""
    hybrid = [name for types in target.weight_only.values() for name in types if name in FEW_BITS]
    return tuple(dict.fromkeys([*target.weight_types, *hybrid]))


def _hybrid_problems(config: QuantConfig, target: Target) -> Iterator[MalformedError]:
    """Yield what is wrong with the settings of dynamic and weight-only nodes, and of 16 bits."""
    dynamic = set(target.dynamic) - (set() if config.cost_model == "off" else set(target.slower_dynamic))
    wanted = {"dynamic": bool(dynamic), "weight-only": bool(target.weight_only)}
    if config.mode == "dynamic" and target.dynamic and not dynamic:
        wanted["dynamic"] = True
        yield malformed(
            f"mode 'dynamic': the kernels that {target.name} has for it take longer than float",
            "use mode static, or cost_model off to have them all the same",
        )
    if not wanted.get(config.mode, True):
        yield malformed(
            f"mode '{config.mode}': {target.name} has no kernel for it", "use mode static, or another target"
        )
    if config.keep_16bit and all(TYPES[name].bits < 16 for name in target.activation_types):
        yield malformed(f"keep_16bit: {target.name} has no activations of 16 bits")
    elif config.keep_16bit:
        sign = "int16" if TYPES[config.activation_type].signed else "uint16"
        if sign not in target.activation_types:
            other = "uint8" if sign == "int16" else "int8"
            yield malformed(f"keep_16bit: {target.name} has no {sign}", f"use activation_type {other}")
    if config.mode != "weight-only":
        if config.weight_type in FEW_BITS:
            yield malformed(
                f"weight_type '{config.weight_type}' is for mode weight-only", "use int8, or that mode"
            )
        if config.block_size:
            yield malformed(
                f"block_size {config.block_size} is for mode weight-only", "leave it out, or use that mode"
            )
    if config.weight_schema in SIGNED_SCHEMAS and not TYPES[config.weight_type].signed:
        granularity = "a block_size or granularity" if config.mode == "weight-only" else "granularity"
        yield malformed(
            f"weight_type '{config.weight_type}' needs weight_schema asymmetric",
            f"give {granularity} per-tensor with it; or use the signed type",
        )
