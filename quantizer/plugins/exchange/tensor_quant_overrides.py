"""`TensorQuantOverrides`, an extra option of onnxruntime's `quantize_static`, as JSON.

    {NAME: [{"quant_type": "QUInt8", "scale": 0.02, "zero_point": 128}],
     WEIGHT: [{"quant_type": "QInt8", "axis": 0, "scale": 0.1, "zero_point": 0}, {...}, ...]}

A list has one mapping, or one for each channel along the `axis` of the first. Ranges (`rmin` and `rmax`) are
left out. The option itself holds `QuantType` and numpy numbers where JSON has texts and numbers:
`json.dumps(overrides, default=str)` writes it.

Source: `quantize_static` and `tensor_quant_overrides.py` of onnxruntime 1.31.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....profiles.base.conversion import read_value
from ....profiles.base.errors import MalformedError
from ...numerics.affine import INT4, INT8, INT16, UINT4, UINT8, UINT16, QuantType
from .encodings import (
    Entry,
    collect_params,
    document,
    document_or_none,
    entry_of,
    left_out,
    stored_type,
    whole_at,
    written_tensors,
)
from .foreign import ForeignParams

if TYPE_CHECKING:
    import onnx_ir as ir

    from ...plan.plan import QuantPlan

QUANT_TYPES: Mapping[str, QuantType] = {
    "QInt8": INT8,
    "QUInt8": UINT8,
    "QInt16": INT16,
    "QUInt16": UINT16,
    "QInt4": INT4,
    "QUInt4": UINT4,
}
"""The members of onnxruntime's `QuantType` that qprof has, too."""

_KEYS = {"quant_type", "scale", "zero_point", "rmin", "rmax", "symmetric", "reduce_range", "axis", "convert"}
_CONVERTED = "'convert' is not read: its readers get the tensor's own parameters"


def recognises(data: bytes) -> bool:
    """Return whether a file has this format."""
    top = document_or_none(data)
    if not top:
        return False
    return all(
        isinstance(value, list) and all(isinstance(item, dict) and item.keys() <= _KEYS for item in value)
        for value in top.values()
    )


def read(data: bytes, where: str) -> ForeignParams:
    """Return the parameters in TensorQuantOverrides; raise MalformedError if they are malformed."""
    top = document(data)
    entries = {}
    for name, items in top.items():
        where = f"'{name}'"
        channels = read_value(items, list[dict[str, object]], where)
        if channels and channels[0]:
            entries[name] = _entry(channels, where)
    return collect_params(entries, "onnxruntime (TensorQuantOverrides)")


def _entry(channels: list[dict[str, object]], where: str) -> Entry:
    first = channels[0]
    word = first.get("quant_type")
    if word is None:
        return left_out("it has no quant_type, and the file does not say the default")
    qtype = QUANT_TYPES.get(str(word).removeprefix("QuantType."))
    if qtype is None:
        return left_out(f"qprof has no {word}")
    for channel in channels[1:]:
        other = [key for key in ("quant_type", "axis") if channel.get(key, first.get(key)) != first.get(key)]
        if other:
            raise MalformedError(f"{where}: its channels differ in {other[0]}")
    numbers = []
    for channel in channels:
        if ("scale" in channel) != ("zero_point" in channel):
            raise MalformedError(f"{where}: scale and zero_point belong together")
        if "scale" not in channel:
            return left_out("it has no scale and zero point")
        scale, point = (_number(channel[key]) for key in ("scale", "zero_point"))
        numbers.append((read_value(scale, float, f"{where}: scale"), whole_at(point, f"{where}: zero_point")))
    axis = None if "axis" not in first else whole_at(first["axis"], f"{where}: axis")
    if axis is not None and axis < 0:
        return left_out("its axis is counted from the end")
    if axis is None and len(numbers) > 1:
        raise MalformedError(f"{where}: {len(numbers)} channels without an axis")
    entry = entry_of(qtype, [scale for scale, _ in numbers], [point for _, point in numbers], axis)
    remarks = [entry.remark, _CONVERTED if "convert" in first else ""]
    return Entry(entry.params, "; ".join(remark for remark in remarks if remark))


def _number(value: object) -> object:
    """Return a value, of a text that is a number the number: `default=str` writes those of numpy so."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


# Writing ---------------------------------------------------------------------------------------------------


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the file of a plan's parameters: its tensors, but for biases and blocks."""
    overrides = {}
    for name, tensor in written_tensors(plan):
        if tensor.block_size is not None:
            continue
        params = stored_type(tensor)
        word = next(word for word, qtype in QUANT_TYPES.items() if qtype == params.qtype)
        axis = {} if params.axis is None else {"axis": params.axis}
        overrides[name] = [
            {"quant_type": word, **axis, "scale": scale, "zero_point": point}
            for scale, point in zip(params.scale.tolist(), params.zero_point.tolist(), strict=True)
        ]
    return json.dumps(overrides, indent=1, ensure_ascii=False) + "\n"
