"""Whether the settings are allowed and go together on a target."""

from __future__ import annotations

from collections.abc import Iterator

from ...profiles.base.errors import ConfigError, nearest
from ..numerics.affine import TYPES
from ..numerics.schemas import SCHEMAS
from .config import CHOICES, FORMS, QuantConfig
from .target import FEW_BITS, Target

SIGNED_SCHEMAS = tuple(n for n, s in SCHEMAS.items() if s.symmetric and not s.unsigned_when_positive)
FEWEST_IN_BLOCK = 16
"""Elements of a block; the smallest and the powers of two are those of onnxruntime's MatMulNBits."""


def check_config(config: QuantConfig, target: Target, where: str) -> QuantConfig:
    """Return `config` unchanged when every value is allowed and goes with the others.

    Raises:
        ConfigError: naming the setting, its value and what is allowed.
    """
    known = {
        **CHOICES,
        "schema": tuple(SCHEMAS),
        "weight_schema": tuple(SCHEMAS),
        "activation_type": target.activation_types,
        "weight_type": _weight_types(target),
    }
    for key, allowed in known.items():
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
    if config.granularity == "per-channel" and config.weight_schema == "asymmetric" and not config.block_size:
        raise ConfigError(
            f"{where}: weights with a scale for each channel are symmetric: "
            "use weight_schema symmetric, or granularity per-tensor"
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
    if config.keep_16bit and all(TYPES[name].bits < 16 for name in target.activation_types):
        yield f"keep_16bit: {target.name} has no activations of 16 bits"
    if config.mode != "weight-only":
        if config.weight_type in FEW_BITS:
            yield f"weight_type '{config.weight_type}' is for mode weight-only; use int8, or that mode"
        if config.block_size:
            yield f"block_size {config.block_size} is for mode weight-only; leave it out, or use that mode"
    if config.block_size and (
        config.block_size < FEWEST_IN_BLOCK or config.block_size & (config.block_size - 1)
    ):
        yield f"block_size {config.block_size} must be 0 or a power of two from {FEWEST_IN_BLOCK}"
    if config.mode == "weight-only":
        symmetric = not SCHEMAS[config.weight_schema].unsigned_when_positive
        if SCHEMAS[config.weight_schema].symmetric and symmetric and not TYPES[config.weight_type].signed:
            yield (
                f"weight_type '{config.weight_type}' needs weight_schema asymmetric (with a block, or "
                "granularity per-tensor); or use the signed type"
            )
