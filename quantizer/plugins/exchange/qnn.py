"""`quantization_overrides.json` of Qualcomm's converters: of each tensor a list, a mapping for each channel.

    {"activation_encodings": {NAME: [{"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "min": -1.0,
     "max": 1.0, "offset": -128, "scale": 0.0078}]}, "param_encodings": {...}}

value = (q + offset) * scale with q from 0 to 2**bitwidth - 1, for any `is_symmetric`, which only means that
the values are stored signed, q - 2**(bitwidth - 1). The format is AIMET's encodings 0.6 without the version.
Tensors may have only a bit width, or a range without scale and offset, which then follow from it; offsets in
Qualcomm's own examples are positive; the dumps of its tools have no `dtype`. Scales for each channel must be
symmetric. The converters read AIMET's 1.0 too, newer ones 2.0: see there.

Source: Qualcomm's documentation of `--quantization_overrides`; AIMET's Encoding Format Specification, and
module _encoding of aimet-onnx 2.42.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....profiles.base.conversion import read_value
from ....profiles.base.errors import MalformedError
from .encodings import (
    ACTIVATIONS,
    CONSTANTS,
    FLOAT,
    Entry,
    add_entry,
    aimet_offset,
    bits_at,
    collect_params,
    document,
    document_or_none,
    entry_of_offsets,
    flag_at,
    json_text,
    left_out,
    signed_if_symmetric,
    whole_at,
    written_tensors,
)
from .foreign import ForeignParams

if TYPE_CHECKING:
    import onnx_ir as ir

    from ...plan.plan import QuantPlan


def recognises(data: bytes) -> bool:
    """Return whether a file has this format: mappings of activations and constants, and no version."""
    top = document_or_none(data)
    return top is not None and has_mappings(top) and "version" not in top


def has_mappings(top: Mapping[str, object]) -> bool:
    """Return whether a document has both mappings, as AIMET's encodings before version 1 also do."""
    return isinstance(top.get(ACTIVATIONS), dict) and isinstance(top.get(CONSTANTS), dict)


def read(data: bytes, where: str) -> ForeignParams:
    """Return the parameters in a file of QNN; raise MalformedError if it is malformed."""
    top, entries = document(data), dict[str, Entry]()
    for section in (ACTIVATIONS, CONSTANTS):
        for name, mappings in read_value(top.get(section), dict[str, object], section).items():
            at = f"{section}: '{name}'"
            channels = [_channel(item, at) for item in read_value(mappings, list[dict[str, object]], at)]
            if not channels:
                raise MalformedError(f"{at} is an empty list")
            add_entry(entries, name, _entry(channels, section == CONSTANTS))
    return collect_params(entries, "QNN (quantization overrides)")


class _Channel(NamedTuple):
    """One mapping of the file; its offset is of an unsigned type, 0 or below."""

    bits: int
    is_float: bool
    symmetric: bool | None
    scale: float | None
    offset: int
    remark: str


def _channel(mapping: Mapping[str, object], where: str) -> _Channel:
    low, high, scale = (
        None if mapping.get(key) is None else read_value(mapping[key], float, f"{where}: {key}")
        for key in ("min", "max", "scale")
    )
    word = mapping.get("is_symmetric")
    symmetric = None if word in (None, "") else flag_at(word, f"{where}: is_symmetric")
    is_float = read_value(mapping.get("dtype", "int"), str, f"{where}: dtype").lower() == "float"
    bits = bits_at(mapping.get("bitwidth"), f"{where}: bitwidth")
    offset = None if mapping.get("offset") is None else whole_at(mapping["offset"], f"{where}: offset")

    if scale is None or offset is None or scale <= 0:
        if low is None or high is None or high <= low:
            return _Channel(bits, is_float, symmetric, None, 0, "")
        low, high = min(low, 0.0), max(high, 0.0)
        scale = (high - low) / ((1 << bits) - 1)
        remark = "scale and offset are computed from min, max and bitwidth"
        offset = int(np.rint(low / scale)) if scale else 0
        return _Channel(bits, is_float, symmetric, scale, offset, remark)

    remark = ""
    if offset > 0:
        offset, remark = -offset, "the offset is positive, and read as zero point"
    if low is not None and not abs(low - offset * scale) < 1.5 * scale:
        signed_offset = offset - (1 << (bits - 1))
        if symmetric and abs(low - signed_offset * scale) < 1.5 * scale:
            offset, remark = signed_offset, "the offset counts from a signed type, as min says"
        else:
            remark = remark or "min and max disagree with scale and offset, and are not used"
    return _Channel(bits, is_float, symmetric, scale, offset, remark)


def _entry(channels: list[_Channel], is_constant: bool) -> Entry:
    """Return the entry that the mappings of one tensor make together."""
    first = channels[0]
    if first.is_float:
        return left_out(FLOAT)
    if len({(channel.bits, channel.symmetric) for channel in channels}) > 1:
        return left_out("its channels differ in bitwidth or is_symmetric")
    scales = [channel.scale for channel in channels if channel.scale is not None]
    if len(scales) < len(channels):
        return left_out("it has only a bit width")
    offsets, signed = [channel.offset for channel in channels], first.symmetric
    if signed is None:  # a constant that does not say is signed where its offsets are central
        signed = is_constant and set(offsets) == {-(1 << (first.bits - 1))}
    several = len(channels) > 1
    entry = entry_of_offsets(scales, offsets, first.bits, 0 if several else None, symmetric=signed)
    remarks = [*dict.fromkeys(channel.remark for channel in channels), entry.remark]
    return Entry(entry.params, "; ".join(remark for remark in remarks if remark), several)


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the file of a plan's tensors, but for biases, blocks, and channels with zero points."""
    sections: dict[str, dict[str, object]] = {ACTIVATIONS: {}, CONSTANTS: {}}
    for name, tensor in written_tensors(plan):
        if tensor.block_size is None and (tensor.axis is None or not tensor.zero_point.any()):
            section = CONSTANTS if name in model.graph.initializers else ACTIVATIONS
            params = signed_if_symmetric(tensor)
            low, high = params.qtype.low, params.qtype.high
            sections[section][name] = [
                {
                    "bitwidth": params.qtype.bits,
                    "dtype": "int",
                    "is_symmetric": str(params.qtype.signed),
                    "min": (low - point) * scale,
                    "max": (high - point) * scale,
                    "offset": aimet_offset(point, params.qtype),
                    "scale": scale,
                }
                for scale, point in zip(params.scale.tolist(), params.zero_point.tolist(), strict=True)
            ]
    return json_text(sections)
