"""What files of parameters have in common: an entry for each tensor read, types and JSON of those written.

Files define `value = (q + offset) * scale` (AIMET, QNN) or `value = (q - zero_point) * scale` (ONNX); both
become `QuantParams`. Scales are rounded to float32, in which ONNX stores them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....profiles.base.conversion import read_value
from ....profiles.base.errors import ConfigError, MalformedError
from ....profiles.base.json_values import parse_json
from ....profiles.base.tool import tool_name
from ...numerics.affine import INT32, TYPES, QuantParams, QuantType, unsigned_equivalent
from ...plan.plan import QuantPlan
from .foreign import ForeignParams, assumption, omission, some_of

ACTIVATIONS, CONSTANTS = "activation_encodings", "param_encodings"
"""The sections of AIMET's files below version 2, and of QNN's."""

FLOAT = "they stay float"
BIAS = "biases of 32 bits, whose scales are made anew as input scale * weight scale"
_STRICT = "symmetric without the lowest value: read with zero_point 0"
"""AIMET's `use_strict_symmetric` has the integers -127 to 127, written as 0 to 254 with offset -127. They are
those of zero point 0, which kernels need. This only applies to offsets that the file calls symmetric, not to
a zero point of ONNX, or an offset of an asymmetric range that is nearly symmetric."""
MAX_WHOLE = 1 << 40
"""Whole numbers of this size are refused: no offset, zero point or size is near it."""
_MAX_BITS = 64


@dataclass(frozen=True)
class Entry:
    """The entry of one tensor in a file."""

    params: QuantParams | None  # its parameters, None where they cannot be taken
    remark: str = ""  # why they cannot be taken, or what was assumed; "" for nothing
    axis_unknown: bool = False  # that of `params` is a stand-in


def left_out(reason: str) -> Entry:
    """Return the entry of a tensor with unsupported parameters."""
    return Entry(None, reason)


def entry_of(
    qtype: QuantType | None,
    scales: Sequence[float],
    zero_points: Sequence[int],
    axis: int | None = None,
    block_size: int | None = None,
) -> Entry:
    """Return the entry with these parameters, or with a remark if `QuantParams` cannot represent them."""
    if qtype is None:
        return left_out("qprof has no such type")
    if qtype is INT32:
        return left_out(BIAS)
    with np.errstate(over="ignore", under="ignore"):
        narrow = np.asarray(scales, np.float64).astype(np.float32)
    if not (np.all(np.isfinite(narrow)) and np.all(narrow > 0)):
        return left_out("a scale is not a positive float32 number")
    if block_size is not None and (axis is None or block_size < 1):
        return left_out("its blocks have no axis, or a size below 1")
    if not all(qtype.low <= point <= qtype.high for point in zero_points):
        return left_out(f"a zero point is not a value of {qtype.name}")
    return Entry(QuantParams(narrow, zero_points, qtype, axis, block_size))


def integer_type(bits: int, signed: bool) -> QuantType | None:
    """Return the integer type of this width, or None."""
    return TYPES.get(f"{'' if signed else 'u'}int{bits}")


def entry_of_offsets(
    scales: Sequence[float],
    offsets: Sequence[int],
    bits: int,
    axis: int | None = None,
    block_size: int | None = None,
    *,
    symmetric: bool,
) -> Entry:
    """Return the entry of AIMET's offsets, which count from the lowest value of an unsigned type."""
    points = [-offset - ((1 << (bits - 1)) if symmetric else 0) for offset in offsets]
    strict = symmetric and set(points) == {-1}
    if strict:
        points = [0] * len(points)
    entry = entry_of(integer_type(bits, symmetric), scales, points, axis, block_size)
    return replace(entry, remark=_STRICT) if strict and entry.params is not None else entry


def aimet_offset(zero_point: int, qtype: QuantType) -> int:
    """Return AIMET's offset of a zero point: 0 or below, and -128 for zero point 0 of int8."""
    return int(qtype.low) - zero_point


def collect_params(entries: Mapping[str, Entry], tool: str) -> ForeignParams:
    """Return the parameters of a file, with a finding on each reason and assumption."""
    tensors = {name: entry.params for name, entry in entries.items() if entry.params is not None}
    lost, assumed = dict[str, list[str]](), dict[str, list[str]]()  # names by the remark on them
    for name, entry in entries.items():
        if entry.remark:
            (lost if entry.params is None else assumed).setdefault(entry.remark, []).append(name)
    findings = (
        *(omission(f"left out: {some_of(n)}: {remark}", n[0], tensors=len(n)) for remark, n in lost.items()),
        *(assumption(f"{some_of(n)}: {remark}", n[0], tensors=len(n)) for remark, n in assumed.items()),
    )
    unknown = frozenset(name for name, entry in entries.items() if entry.axis_unknown and name in tensors)
    return ForeignParams(tensors, tool, findings, unknown)


def producer_of(top: Mapping[str, object]) -> str:
    """Return who wrote a file of AIMET, for people: "aimet-onnx 2.42.0 (encodings 1.0.0)"."""
    producer = top.get("producer")
    names = (
        [str(producer.get(key, "")) for key in ("package", "version")] if isinstance(producer, dict) else []
    )
    return f"{' '.join(names).strip() or 'AIMET'} (encodings {top.get('version', 'without version')})"


# Files -----------------------------------------------------------------------------------------------------


def document_or_none(data: bytes) -> dict[str, object] | None:
    """Return the mapping in a JSON file, or None."""
    try:
        return document(data)
    except MalformedError:
        return None


def document(data: bytes) -> dict[str, object]:
    """Return the mapping in a JSON file; MalformedError if it is not a mapping."""
    try:
        parsed = parse_json(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise MalformedError("is not UTF-8 text") from None
    top: dict[str, object] = read_value(parsed, dict[str, object], "the document")
    return top


def whole_at(value: object, where: str) -> int:
    """Return a whole number, which tools also write as -128.0; raise MalformedError for another value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedError(f"{where} must be a whole number")
    if not abs(value) < MAX_WHOLE:
        raise MalformedError(f"{where} is too large, or no number")
    if value != int(value):
        raise MalformedError(f"{where} is {value}, which is not whole")
    return int(value)


def bits_at(value: object, where: str) -> int:
    """Return a width in bits, perhaps one without a qprof type; raise MalformedError if it is no width."""
    bits = whole_at(value, where)
    if not 1 <= bits <= _MAX_BITS:
        raise MalformedError(f"{where} is {bits}, which is not the width of an integer")
    return bits


def add_entry(entries: dict[str, Entry], name: str, entry: Entry) -> None:
    """Add the entry of a tensor; raise MalformedError if the tensor has another entry already."""
    if entries.get(name, entry) != entry:
        raise MalformedError(f"'{name}' is repeated in the file", "delete the entry that is wrong")
    entries[name] = entry


def flag_at(value: object, where: str) -> bool:
    """Return true or false, also from "True" and "false"; raise MalformedError for another value."""
    word = str(value).lower()
    if word not in ("true", "false"):
        raise MalformedError(f"{where} is '{value}', expected true or false")
    return word == "true"


def written_tensors(plan: QuantPlan, biases: bool = False) -> Iterator[tuple[str, QuantParams]]:
    """Yield the tensors of a plan that a file stores, int32 biases on request; none can be equalized."""
    if plan.adjustments.equalization:
        raise ConfigError(
            "plan: its channels are equalized, so its parameters are not for the model's own weights, as the "
            "file's are; make the plan with '--set equalization=off'"
        )
    yield from ((name, p) for name, p in plan.tensors.items() if biases or p.qtype is not INT32)


def stored_type(params: QuantParams) -> QuantParams:
    """Return parameters whose type is the one that the values are stored in: of int7, int8."""
    qtype = integer_type(8, True) if params.qtype.storage != params.qtype.name else None
    return params if qtype is None else replace(params, qtype=qtype)


def signed_if_symmetric(params: QuantParams) -> QuantParams:
    """Return parameters of the same float values whose type is signed only with zero points 0."""
    params = stored_type(params)
    return unsigned_equivalent(params) if params.qtype.signed and params.zero_point.any() else params


def json_text(document: Mapping[str, object]) -> str:
    """Return a document as JSON, with who wrote it."""
    package, _, version = tool_name().partition(" ")
    signed = {"producer": {"package": package, "version": version}, **document}
    return json.dumps(signed, indent=1, ensure_ascii=False) + "\n"
