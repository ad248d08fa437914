"""AIMET encodings 1.0: a list of mappings, one for each tensor.

    {"activation_encodings": [{"name": NAME, "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR",
     "is_sym": false, "scale": [0.0078], "offset": [-128]}], "param_encodings": [...], "version": "1.0.0"}

value = (q + offset) * scale with q from 0 to 2**bw - 1; `is_sym` tells that the values are stored signed.
PER_CHANNEL has one of each for every output channel, PER_BLOCK for every block, all of the first output
channel first. LPBQ has a float scale for each channel in `scale`, of which `per_block_int_scale` are the
multiples. Source: AIMET's Encoding Format Specification, and
module _encoding of aimet-onnx 2.42.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ....profiles.base.conversion import read_value
from ....profiles.base.errors import MalformedError
from ...numerics.affine import QuantParams
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
    entry_of,
    entry_of_offsets,
    flag_at,
    integer_type,
    json_text,
    left_out,
    producer_of,
    signed_if_symmetric,
    whole_at,
    written_tensors,
)
from .foreign import ForeignParams

if TYPE_CHECKING:
    import onnx_ir as ir

    from ...plan.plan import QuantPlan


def recognises(data: bytes) -> bool:
    """Return whether a file has this format."""
    top = document_or_none(data)
    return top is not None and str(top.get("version", "")).startswith("1.") and CONSTANTS in top


def read(data: bytes, where: str) -> ForeignParams:
    """Return the parameters in an AIMET 1.0 file; raise MalformedError if it is malformed."""
    top = document(data)
    entries: dict[str, Entry] = {}
    for section in (ACTIVATIONS, CONSTANTS):
        for mapping in read_value(top.get(section), list[dict[str, object]], section):
            name = read_value(mapping.get("name"), str, f"{section}: name")
            add_entry(entries, name, _entry(mapping, f"{section}: '{name}'"))
    return collect_params(entries, producer_of(top))


def _entry(mapping: Mapping[str, object], where: str) -> Entry:
    if read_value(mapping.get("dtype"), str, f"{where}: dtype").upper() == "FLOAT":
        return left_out(FLOAT)
    kind = read_value(mapping.get("enc_type"), str, f"{where}: enc_type")
    if kind not in ("PER_TENSOR", "PER_CHANNEL", "PER_BLOCK", "LPBQ"):
        return left_out(f"'{kind}' is no enc_type that is read")
    if any(read_value(mapping.get("zero_point_shift", []), list[float], where)):
        return left_out("its zero points are fractions")
    scales = read_value(mapping.get("scale"), list[float], f"{where}: scale")
    offsets = [
        whole_at(o, f"{where}: offset")
        for o in read_value(mapping.get("offset"), list[object], f"{where}: offset")
    ]
    if not scales or len(scales) != len(offsets) or (kind == "PER_TENSOR" and len(scales) > 1):
        raise MalformedError(f"{where}: {kind} with {len(scales)} scales and {len(offsets)} offsets")
    bits = bits_at(mapping.get("bw"), f"{where}: bw")
    if kind == "LPBQ":
        return _lpbq(mapping, where, scales)
    signed = flag_at(mapping.get("is_sym"), f"{where}: is_sym")
    if kind == "PER_TENSOR":
        return entry_of_offsets(scales, offsets, bits, symmetric=signed)
    block = whole_at(mapping.get("block_size"), f"{where}: block_size") if kind == "PER_BLOCK" else None
    axis = 0 if block is None else 1
    entry = entry_of_offsets(scales, offsets, bits, axis, block, symmetric=signed)
    return replace(entry, axis_unknown=True)


def _lpbq(mapping: Mapping[str, object], where: str, scales: list[float]) -> Entry:
    """Return blocks whose scales are whole multiples of a scale for each channel."""
    key = "per_block_int_scale"
    bits = bits_at(mapping.get("compressed_bw"), f"{where}: compressed_bw")
    block = whole_at(mapping.get("block_size"), f"{where}: block_size")
    multiples = [
        whole_at(m, f"{where}: {key}") for m in read_value(mapping.get(key), list[object], f"{where}: {key}")
    ]
    if not multiples or len(multiples) % len(scales):
        raise MalformedError(f"{where}: {len(multiples)} blocks do not make {len(scales)} channels")
    blocks = np.asarray(multiples, np.float32).reshape(len(scales), -1)
    products = (blocks * np.asarray(scales, np.float32)[:, None]).reshape(-1).tolist()
    entry = entry_of(integer_type(bits, True), products, [0] * len(products), 1, block)
    return replace(entry, axis_unknown=True)


# Writing ---------------------------------------------------------------------------------------------------


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the file of a plan's parameters: its tensors, but for biases."""
    sections: dict[str, list[object]] = {ACTIVATIONS: [], CONSTANTS: []}
    for name, params in written_tensors(plan):
        constant = model.graph.initializers.get(name)
        mapping = _mapping(name, signed_if_symmetric(params), None if constant is None else constant.shape)
        if mapping is not None:
            sections[ACTIVATIONS if constant is None else CONSTANTS].append(mapping)
    return json_text({**sections, "version": "1.0.0"})


def _mapping(name: str, params: QuantParams, shape: ir.Shape | None) -> dict[str, object] | None:
    """Return the file's entry of a tensor; None for blocks of a constant of more than two axes."""
    order = np.arange(len(params.scale))
    kind = "PER_TENSOR" if params.axis is None else "PER_CHANNEL"
    block: dict[str, object] = {}
    if params.block_size is not None:
        sizes = () if shape is None else shape.numpy()
        if len(sizes) != 2:
            return None
        kind, block = "PER_BLOCK", {"block_size": params.block_size}
        if params.axis == 0:  # the file has the output channels first
            order = order.reshape(-1, sizes[1]).T.reshape(-1)
    return {
        "name": name,
        "bw": params.qtype.bits,
        "dtype": "INT",
        "enc_type": kind,
        "is_sym": params.qtype.signed,
        "scale": params.scale[order].tolist(),
        "offset": [aimet_offset(point, params.qtype) for point in params.zero_point[order].tolist()],
        **block,
    }
