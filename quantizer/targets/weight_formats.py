"""Formats of the weights of nodes that compute in float: of settings, and all that a target takes. Pure.

A format is a type with its blocks. Each type that a target lists for an operator is a format: with fixed
blocks if the type has them, in blocks of several sizes if it has few bits, and with a scale for each channel
if it has 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..numerics.affine import TYPES, QuantType
from ..numerics.schemas import SCHEMAS, Schema
from .config import FEW_BITS, QuantConfig
from .target import Target

BLOCKS = (16, 32, 64, 128)
"""Elements that may share a scale in float32: 2 bits to a quarter of a bit for each."""


@dataclass(frozen=True)
class WeightFormat:
    """The spelling of the numbers of a weight.

    Attributes:
        qtype: type of the quantized values.
        block_size: elements along the axis that a product sums over that share a scale; 0 for none.
        schema: of scales and zero points.
        why: the reason for its choice as a sentence; "" if the user chose it.
    """

    qtype: QuantType
    block_size: int
    schema: Schema
    why: str = ""


def asked_format(config: QuantConfig) -> WeightFormat:
    """Return the format that the settings ask for."""
    return WeightFormat(TYPES[config.weight_type], config.block_size, SCHEMAS[config.weight_schema])


def formats_of(target: Target, op_type: str) -> tuple[WeightFormat, ...]:
    """Return the formats that a target takes the weights of an operator in, in the order of its list.

    Unsigned integers are left out if the same type with sign is there: both have the same values.
    """
    names = target.weight_only.get(op_type, ())
    found = list[WeightFormat]()
    for name in names:
        qtype = TYPES[name]
        if not qtype.signed and name.removeprefix("u") in names:
            continue
        blocks: tuple[int, ...] = (0,) if qtype.signed else ()
        if qtype.scales is not None:
            blocks = (qtype.scales.block_size,)
        elif name in FEW_BITS:
            blocks = BLOCKS
        has_points = name in FEW_BITS and not qtype.is_float and target.zero_points != "zero"
        schema = SCHEMAS["asymmetric" if has_points or not qtype.signed else "symmetric"]
        found += [WeightFormat(qtype, block, schema) for block in blocks]
    return tuple(found)
