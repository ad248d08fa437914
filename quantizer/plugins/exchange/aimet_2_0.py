"""AIMET encodings 2.0 and 2.1: the inputs and attributes of an ONNX QuantizeLinear for each tensor.

    {"encodings": [{"name": NAME, "output_dtype": "int8", "y_scale": [0.1, 0.2], "axis": 0}],
     "version": "2.0.0"}

value = (q - y_zero_point) * y_scale; a zero point that is missing is 0. `axis` is that of the channels, with
`block_size` that of the blocks, whose scales are nested lists. Scales of blocks can be products of
`per_block_int_scale` and `per_channel_float_scale`.
Source: AIMET's Encoding Format Specification, and module _encoding of aimet-onnx 2.42, which writes 2.0.0
and reads 2.1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.conversion import read_value
from ....profiles.base.errors import MalformedError
from ...numerics.affine import TYPES, QuantParams
from .encodings import (
    FLOAT,
    MAX_WHOLE,
    Entry,
    add_entry,
    collect_params,
    document,
    document_or_none,
    entry_of,
    json_text,
    left_out,
    producer_of,
    stored_type,
    whole_at,
    written_tensors,
)
from .foreign import ForeignParams

if TYPE_CHECKING:
    import onnx_ir as ir

    from ...plan.plan import QuantPlan

_INTEGERS, _FLOATS = "per_block_int_scale", "per_channel_float_scale"


def recognises(data: bytes) -> bool:
    """Return whether a file has this format."""
    top = document_or_none(data)
    return top is not None and isinstance(top.get("encodings"), list) and "version" in top


def read(data: bytes, where: str) -> ForeignParams:
    """Return the parameters in an AIMET 2.0 file; raise MalformedError if it is malformed."""
    top = document(data)
    entries: dict[str, Entry] = {}
    for mapping in read_value(top.get("encodings"), list[dict[str, object]], "encodings"):
        name = read_value(mapping.get("name"), str, "encodings: name")
        add_entry(entries, name, _entry(mapping, f"encodings: '{name}'"))
    return collect_params(entries, producer_of(top))


def _entry(mapping: Mapping[str, object], where: str) -> Entry:
    dtype = read_value(mapping.get("output_dtype"), str, f"{where}: output_dtype")
    if "float" in dtype:
        return left_out(FLOAT if "y_scale" not in mapping else f"qprof has no {dtype}")
    scale = _scale(mapping, where)
    if scale is None:
        return left_out("its scales are quantized, as 2.1 has them")
    points = _numbers(mapping.get("y_zero_point", 0), f"{where}: y_zero_point")
    if np.any(np.abs(points) >= MAX_WHOLE):
        raise MalformedError(f"{where}: y_zero_point is too large")
    if np.any(points != np.rint(points)):
        return left_out("its zero points are fractions")
    if points.size not in (1, scale.size):
        raise MalformedError(f"{where}: {scale.size} scales and {points.size} zero points")
    zero_points = np.broadcast_to(points.reshape(-1), scale.size).astype(np.int64).tolist()
    axis = whole_at(mapping["axis"], f"{where}: axis") if mapping.get("axis") is not None else None
    block = whole_at(mapping["block_size"], f"{where}: block_size") if mapping.get("block_size") else None
    if axis is None and scale.size > 1:
        return left_out("it has several scales and no axis")
    if axis is not None and axis < 0:
        return left_out("its axis is counted from the end")
    if axis is not None and block is None and scale.size == 1 and scale.ndim == 0:
        axis = None
    return entry_of(TYPES.get(dtype), scale.reshape(-1).tolist(), zero_points, axis, block)


def _scale(mapping: Mapping[str, object], where: str) -> npt.NDArray[Any] | None:
    """Return the scales of a tensor, nested as in the file; None if they are quantized in another way."""
    if _INTEGERS in mapping:
        whole, factor = mapping[_INTEGERS], mapping.get(_FLOATS)
    elif isinstance(mapping.get("y_scale"), dict):
        return None
    else:
        return _numbers(mapping.get("y_scale"), f"{where}: y_scale")
    integers, floats = (_numbers(value, f"{where}: scale of blocks") for value in (whole, factor))
    if floats.ndim == 1 and integers.ndim > 1:  # of the channels, along the first axis of their number
        axis = next((i for i, size in enumerate(integers.shape) if size == floats.size), 0)
        floats = floats.reshape([-1 if i == axis else 1 for i in range(integers.ndim)])
    try:
        return integers.astype(np.float32) * floats.astype(np.float32)
    except ValueError:
        raise MalformedError(f"{where}: the scales of blocks and channels do not fit") from None


def _numbers(value: object, where: str) -> npt.NDArray[np.float64]:
    """Return a number, or nested lists of numbers."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray("")
    if array.dtype.kind not in "if":
        raise MalformedError(f"{where} must be a number or lists of numbers")
    return array.astype(np.float64)


# Writing ---------------------------------------------------------------------------------------------------


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the file of a plan's parameters: all of its tensors."""
    encodings = []
    for name, params in written_tensors(plan, biases=True):
        constant = model.graph.initializers.get(name)
        encodings.append(_mapping(name, stored_type(params), None if constant is None else constant.shape))
    return json_text({"encodings": encodings, "version": "2.0.0"})


def _mapping(name: str, params: QuantParams, shape: ir.Shape | None) -> dict[str, object]:
    sizes = () if shape is None else shape.numpy()
    grid = (len(params.scale),) if params.block_size is None else params.grid_shape(sizes)

    def nested(values: npt.NDArray[Any]) -> object:
        return values.item() if params.axis is None else values.reshape(grid).tolist()

    mapping = {"name": name, "output_dtype": params.qtype.name, "y_scale": nested(params.scale)}
    if params.zero_point.any():
        mapping["y_zero_point"] = nested(params.zero_point)
    axes = {"axis": params.axis, "block_size": params.block_size}
    return {**mapping, **{key: value for key, value in axes.items() if value is not None}}
