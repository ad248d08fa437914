"""What becomes of a model, in one word: the records that `quantize` takes, and the words of `--as`.

    qprof.quantize(model, data, config=WeightOnly(bits=4))
    qprof quantize model.onnx --data samples/ --as weight-only-4 -o model.int4.onnx

A record stands for settings of `QuantConfig` and brings none of its own: all else is the target's, or as it
is given beside it. Imports are quick, for `--help` is made of the words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ...profiles.base.errors import ConfigError, nearest
from ..numerics.schemas import SchemaName


@dataclass(frozen=True, kw_only=True)
class Int8:
    """Activations and weights in 8 bits, with parameters of activations from samples or a profile.

    Attributes:
        target: runtime that the model is for; None for the default target, or that of the call.
        schema: how the range of an activation becomes scale and zero point; None for the target's.
        calibrator: from histogram to range; None for the target's.
        keep_float: nodes that stay float: names, operator types or globs of names.
    """

    target: str | None = None
    schema: SchemaName | None = None
    calibrator: str | None = None
    keep_float: Collection[str] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        return {"mode": "static", "schema": self.schema, "calibrator": self.calibrator}


@dataclass(frozen=True, kw_only=True)
class Int8Dynamic:
    """Weights in 8 bits; parameters of activations are computed at run time. Needs no samples.

    Attributes:
        target, keep_float: as in `Int8`.
    """

    target: str | None = None
    keep_float: Collection[str] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        return {"mode": "dynamic"}


@dataclass(frozen=True, kw_only=True)
class WeightOnly:
    """Weights in 4 or 8 bits, arithmetic in float. Needs no samples.

    Attributes:
        bits: 4 or 8, of a weight; with 4, tables and the last product of a language model have 8.
        block_size: weights along the input axis that share a scale, a power of two; None for 32 with 4 bits,
            and with 8 for a scale for each output channel.
        target, keep_float: as in `Int8`.

    Raises:
        ConfigError: another number of bits.
    """

    bits: Literal[4, 8] = 8
    block_size: int | None = None
    target: str | None = None
    keep_float: Collection[str] = ()

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise ConfigError(f"WeightOnly: bits {self.bits!r} is neither 4 nor 8; give one of them")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        return {"mode": "weight-only", "weight_type": f"int{self.bits}", "block_size": self.block_size}


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """Weights in 4 bits, and in 8 where they need it most and the size allows it; arithmetic in float.

    Attributes:
        max_size: most that the model may take, such as "900MB".
        target, keep_float: as in `Int8`.
    """

    max_size: str
    target: str | None = None
    keep_float: Collection[str] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it stands for."""
        return {"mode": "weight-only", "weight_type": "int4", "fit_size": self.max_size}


Precision: TypeAlias = Int8 | Int8Dynamic | WeightOnly | Mixed
"""What becomes of a model."""

MIXED = "mixed"
PRECISIONS: Mapping[str, Precision] = {
    "int8": Int8(),
    "int8-dynamic": Int8Dynamic(),
    "weight-only-8": WeightOnly(bits=8),
    "weight-only-4": WeightOnly(bits=4),
}
"""The words that need nothing else; `MIXED` needs a size."""

PRECISION_NAMES = (*PRECISIONS, MIXED)
"""All words of `--as`."""


def precision_named(name: str, max_size: str | None, where: str) -> Precision:
    """Return what a word stands for.

    Args:
        name: one of `PRECISION_NAMES`.
        max_size: for `MIXED`.
        where: the word was given, for messages: "--as" or "config".

    Raises:
        ConfigError: there is no such word, or a size is missing.
    """
    if name == MIXED:
        if max_size is None:
            size = "Mixed(max_size=...)" if where == "config" else "--max-size"
            raise ConfigError(f"{where} mixed: needs the size that the model may have; give {size}, as 900MB")
        return Mixed(max_size=max_size)
    if name not in PRECISIONS:
        words = ", ".join(PRECISION_NAMES)
        meant = " Did you mean 'weight-only-4'?" if "4" in name else nearest(name, PRECISION_NAMES)
        raise ConfigError(f"{where} {name}: is not known; give one of {words}.{meant}")
    return PRECISIONS[name]


def settings_with(precision: Precision, given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return settings with those that a precision stands for; `target` is among them where it has one.

    Args:
        precision: the record.
        given: settings that were given beside it.
        name: of the precision, for messages.

    Raises:
        ConfigError: one was given otherwise.
    """
    meant = {**precision.settings, "target": precision.target}
    meant = {key: value for key, value in meant.items() if value is not None}
    if precision.keep_float:
        meant["keep_float"] = (*given.get("keep_float", ()), *precision.keep_float)
    for key, value in meant.items():
        if key != "keep_float" and given.get(key, value) != value:
            raise ConfigError(f"{name}: means {key} {value}, and {key} {given[key]} was given; leave one out")
    return {**given, **meant}
