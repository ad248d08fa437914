"""AIMET encodings 1.0: a list of mappings, one for each tensor.

    {"activation_encodings": [{"name": NAME, "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR",
     "is_sym": false, "scale": [0.0078], "offset": [-128]}], "param_encodings": [...], "version": "1.0.0"}

value = (q + offset) * scale with q from 0 to 2**bw - 1; `is_sym` tells that the values are stored signed.
PER_CHANNEL has one of each for every output channel. Blocks (PER_BLOCK, LPBQ) do not say along which axis
they lie, and are left out. Source: AIMET's Encoding Format Specification, and module _encoding of aimet-onnx
2.42.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

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
    entry_of_offsets,
    flag_at,
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
    if kind not in ("PER_TENSOR", "PER_CHANNEL"):
        return left_out(f"'{kind}' is not a known enc_type; encodings 2.0 have blocks with their axis")
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
    signed = flag_at(mapping.get("is_sym"), f"{where}: is_sym")
    if kind == "PER_TENSOR":
        return entry_of_offsets(scales, offsets, bits, symmetric=signed)
    return replace(entry_of_offsets(scales, offsets, bits, 0, symmetric=signed), axis_unknown=True)


# Writing ---------------------------------------------------------------------------------------------------


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the file of a plan's parameters: its tensors, but for biases and blocks."""
    sections: dict[str, list[object]] = {ACTIVATIONS: [], CONSTANTS: []}
    for name, params in written_tensors(plan):
        if params.block_size is None:
            section = CONSTANTS if name in model.graph.initializers else ACTIVATIONS
            sections[section].append(_mapping(name, signed_if_symmetric(params)))
    return json_text({**sections, "version": "1.0.0"})


def _mapping(name: str, params: QuantParams) -> dict[str, object]:
    """Return the file's entry of a tensor."""
    return {
        "name": name,
        "bw": params.qtype.bits,
        "dtype": "INT",
        "enc_type": "PER_TENSOR" if params.axis is None else "PER_CHANNEL",
        "is_sym": params.qtype.signed,
        "scale": params.scale.tolist(),
        "offset": [aimet_offset(point, params.qtype) for point in params.zero_point.tolist()],
    }
