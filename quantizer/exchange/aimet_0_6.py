"""AIMET encodings 0.6: for each tensor a list of mappings, one for each channel.

    {"activation_encodings": {NAME: [{"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "min": -1.0,
     "max": 1.0, "offset": -128, "scale": 0.0078}]}, "param_encodings": {...}, "version": "0.6.1"}

value = (q + offset) * scale with q from 0 to 2**bitwidth - 1, whatever `is_symmetric` says: that only tells
that the values are stored signed, q - 2**(bitwidth - 1). Source: AIMET's Encoding Format Specification, and
module _encoding of aimet-onnx 2.42.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...profiles.base.strict_yaml import MalformedError, float_at, list_at, mapping_at, text_at
from ..numerics.affine import QuantParams
from .encodings import (
    FLOAT,
    Entry,
    add_entry,
    bits_at,
    entry_of,
    flag_at,
    gathered,
    integer_type,
    left_out,
    offset_of,
    read_with,
    stored_bits,
    text_of,
    top_of,
    whole_at,
    written_tensors,
    zero_point_of,
)
from .values import ForeignParams

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..plan.plan import QuantPlan

ACTIVATIONS, CONSTANTS = "activation_encodings", "param_encodings"
_FROM_RANGE = "scale and offset are computed from min, max and bitwidth"
_POSITIVE = "the offset is positive, and read as zero point"
_SIGNED = "the offset counts from a signed type, as min says"
_DISAGREES = "min and max disagree with scale and offset, and are not used"


def recognises(data: bytes) -> bool:
    """Tell whether a file is of this format."""
    top = top_of(data)
    return top is not None and is_legacy(top) and str(top.get("version", "")).startswith("0.")


def is_legacy(top: Mapping[str, object]) -> bool:
    """Tell whether a document has mappings of activations and constants, as before version 1."""
    return isinstance(top.get(ACTIVATIONS), dict) and isinstance(top.get(CONSTANTS), dict)


def read(data: bytes, where: str) -> ForeignParams:
    """Return the parameters of a file.

    Raises:
        ConfigError: the file is malformed.
    """
    return read_with(lambda top: legacy_params(top, producer_of(top)), data, where)


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the file of a plan's parameters."""
    return legacy_text(plan, model, {"version": "0.6.1"})


def producer_of(top: Mapping[str, object]) -> str:
    """Return who wrote a file of AIMET's formats, for people."""
    found = top.get("producer")
    names = [str(found.get(key, "")) for key in ("package", "version")] if isinstance(found, dict) else []
    return f"{' '.join(names).strip() or 'AIMET'} (encodings {top.get('version', 'without version')})"


def legacy_params(top: Mapping[str, object], tool: str) -> ForeignParams:
    """Return the parameters of a document of this format.

    Raises:
        MalformedError: the document is of another one.
    """
    entries: dict[str, Entry] = {}
    for section in (ACTIVATIONS, CONSTANTS):
        for name, channels in mapping_at(top.get(section), section).items():
            where = f"{section}: '{name}'"
            found = [_channel(mapping_at(item, where), where) for item in list_at(channels, where)]
            if not found:
                raise MalformedError(f"{where} is an empty list")
            add_entry(entries, name, _entry(found, section == CONSTANTS))
    return gathered(entries, tool)


# Reading ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Channel:
    """One mapping of the file."""

    bits: int
    is_float: bool
    symmetric: bool | None
    low: float | None
    high: float | None
    offset: int | None
    scale: float | None


def _channel(found: Mapping[str, object], where: str) -> _Channel:
    def number(key: str) -> float | None:
        return float_at(found[key], f"{where}: {key}") if found.get(key) is not None else None

    symmetric, offset = found.get("is_symmetric"), found.get("offset")
    return _Channel(
        bits=bits_at(found.get("bitwidth"), f"{where}: bitwidth"),
        is_float=text_at(found.get("dtype", "int"), f"{where}: dtype").lower() == "float",
        symmetric=None if symmetric in (None, "") else flag_at(symmetric, f"{where}: is_symmetric"),
        low=number("min"),
        high=number("max"),
        offset=None if offset is None else whole_at(offset, f"{where}: offset"),
        scale=number("scale"),
    )


def _entry(channels: list[_Channel], is_constant: bool) -> Entry:
    """Return what the mappings of one tensor say together."""
    first = channels[0]
    if first.is_float:
        return left_out(FLOAT)
    if len({(channel.bits, channel.symmetric) for channel in channels}) > 1:
        return left_out("its channels differ in bitwidth or is_symmetric")
    placed = [_scale_and_offset(channel) for channel in channels]
    pairs = [place for place in placed if place is not None]
    if len(pairs) < len(channels):
        return left_out("it has a bit width alone")
    signed = _is_signed(first, [offset for _, offset, _ in pairs], is_constant)
    points = [zero_point_of(offset, first.bits, signed) for _, offset, _ in pairs]
    several = len(channels) > 1
    entry = entry_of(
        integer_type(first.bits, signed), [scale for scale, _, _ in pairs], points, 0 if several else None
    )
    remarks = dict.fromkeys(remark for _, _, remark in pairs if remark)
    return Entry(entry.params, "; ".join((*remarks, entry.remark) if entry.remark else remarks), several)


def _is_signed(first: _Channel, offsets: list[int], is_constant: bool) -> bool:
    """Tell whether the values are signed; a constant that does not say is where its offsets are central."""
    if first.symmetric is not None:
        return first.symmetric
    return is_constant and set(offsets) == {-(1 << (first.bits - 1))}


def _scale_and_offset(channel: _Channel) -> tuple[float, int, str] | None:
    """Return scale, offset (of an unsigned type, 0 or below) and what was assumed."""
    if channel.scale is None or channel.offset is None or channel.scale <= 0:
        return _from_range(channel)
    offset, remark = channel.offset, ""
    if offset > 0:
        offset, remark = -offset, _POSITIVE
    if channel.low is not None:
        half = 1 << (channel.bits - 1)
        if _is_near(channel.low, offset * channel.scale, channel.scale):
            return channel.scale, offset, remark
        if channel.symmetric and _is_near(channel.low, (offset - half) * channel.scale, channel.scale):
            return channel.scale, offset - half, _SIGNED
        remark = remark or _DISAGREES
    return channel.scale, offset, remark


def _is_near(low: float, expected: float, scale: float) -> bool:
    return abs(low - expected) < 1.5 * scale


def _from_range(channel: _Channel) -> tuple[float, int, str] | None:
    if channel.low is None or channel.high is None or channel.high <= channel.low:
        return None
    low, high = min(channel.low, 0.0), max(channel.high, 0.0)
    scale = (high - low) / ((1 << channel.bits) - 1)
    return scale, int(np.rint(low / scale)), _FROM_RANGE


# Writing ---------------------------------------------------------------------------------------------------


def legacy_text(plan: QuantPlan, model: ir.Model, head: Mapping[str, object]) -> str:
    """Return a document of this format: the tensors of a plan, but for biases and blocks."""
    sections: dict[str, dict[str, object]] = {ACTIVATIONS: {}, CONSTANTS: {}}
    for name, params in written_tensors(plan):
        if params.block_size is None:
            section = CONSTANTS if name in model.graph.initializers else ACTIVATIONS
            sections[section][name] = list(_mappings(stored_bits(params)))
    return text_of({**sections, **head})


def _mappings(params: QuantParams) -> Iterator[dict[str, object]]:
    low, high = params.qtype.low, params.qtype.high
    for scale, point in zip(params.scale, params.zero_point, strict=True):
        yield {
            "bitwidth": params.qtype.bits,
            "dtype": "int",
            "is_symmetric": str(params.qtype.signed),
            "min": (low - point) * scale,
            "max": (high - point) * scale,
            "offset": offset_of(point, params.qtype),
            "scale": scale,
        }
