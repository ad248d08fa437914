"""The plan's file format: YAML meant to be read and edited by people. The only module that knows it.

    format: qprof-plan/1
    tool: ...                        who wrote it
    model: file, structure, weights, opset
    config: the settings
    findings:                        notes and warnings, see `findings`
      - {code: opset-raised, sentence: opset raised from 11 to 13, figures: {from: 11, to: 13}}
    tensors:                         one line for each quantized tensor
      x: {type: uint8, scale: 0.0123, zero_point: 128}
      w: {type: int8, axis: 0, scale: [0.1, 0.25], zero_point: 0}     one scale for each channel
      v: {type: int4, axis: 0, block_size: 32, scale: "eNpj...", zero_point: "eNrB..."}      of each block
    nodes:                           one line for each node, in graph order
      conv1: {kind: quantized}
      tanh: {kind: lookup-table, implementation: sigmoid}
      einsum: {kind: float, reason: {code: unsupported-operator, operator: Einsum}}      see `reasons`
      pow: {kind: float, reason: ..., float32: by hand}      in float32, while the others are float16
      add: {kind: quantized, inputs: {1: {type: uint8, scale: 0.5, zero_point: 3}}}
    shared_scales:                   tensors with common parameters, and the cause; for people, not read
      - range: [-1.5, 2.0]           the common range
        range_set_by: [x]            members whose own ranges determine it
        tied_by: [concat1]           the nodes that tied them
        members: each with its own range
    adjustments:                     if there are any; each vector is one text
      equalization:                  log2 of the divisor of each channel
        x: {axis: 1, inserted: false, log2_scales: 0 -1 -3}
      biases:                        correction of the bias of each output channel
        conv1: 0.25 -1e-05
      roundings:                     difference of each quantized weight from the nearest
        conv1: {params: 0123456789abcdef, offsets: "eNpjYGBg..."}    int8, deflated, in base 64
      padded_channels:               number of channels of an activation in the quantized model
        y: 16
      folded_widths:                 number of columns of a convolution's result computed together
        conv1: 4
      shapes:                        shape in the samples, for an activation of unknown rank
        x: [null, 64]
    origin:
      profile: 0123456789abcdef...   digest of the profile
      decisions: 0123456789abcdef... digest of the plan; estimates do not apply to an edited plan
      estimated_sqnr: {y: 31.5}      dB, by output
      sqnr_bands: {y: [24, 40]}      the expected band in dB, if noise was measured
      checks:                        measured errors of outputs on calibration samples, if it was run
        - {output: y, measure: moved probability, value: 0.011, limit: 0.047, samples: 16}
    ...

Your own reason may be any text. The last line is "...", so that a cut-off file is noticed. A scale is written
as the shortest decimal of its float32; other numbers are rounded to float32. A zero_point for many scales may
be written once if all are equal. Those of blocks, of which a large model has millions, are each one text: the
bytes of float32 and of int8 or the like, deflated and in base 64. Lists of them are read too.
"""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.conversion import Count, Decoders, keys_at, read_record, read_value
from ...profiles.base.errors import MalformedError, PlanError, not_one_of
from ...profiles.base.findings import Code, Finding
from ...profiles.base.output_files import FileBatch, read_text, write_atomically
from ...profiles.base.strict_yaml import block, entry, flow_text, parse_file, text
from ...profiles.records.store import model_fields
from ..numerics.affine import TYPES, QuantParams
from ..targets.config import QuantConfig, config_from_mapping
from .plan import (
    EqualizationScales,
    Implementation,
    Kind,
    NodePlan,
    Numbers,
    OutputCheck,
    PlanOrigin,
    QuantPlan,
    RoundingOffsets,
)
from .provenance import plan_digest
from .reasons import FloatReason, ReasonCode, detail_names, figure_names
from .rewrites import TABLE, float_rewrites, rewrites

PlanLike: TypeAlias = str | os.PathLike[str] | QuantPlan
"""A plan: a file, or the object."""

FORMAT = "qprof-plan/1"
ADVICE = "correct the file, or write it again with 'qprof quantize --save-plan'"
OTHER_FILE = (
    "give a plan written by 'qprof quantize --save-plan', or by 'qprof import' from another tool's file"
)


def save_plan(plan: QuantPlan, path: str | os.PathLike[str], batch: FileBatch | None = None) -> None:
    """Write a plan in one step, with a batch together with its files: the file is complete, or unchanged."""
    write_atomically(path, _texts(plan), batch)


@checks_arguments
def load_plan(path: str | os.PathLike[str]) -> QuantPlan:
    """Read a plan. `verify_plan` must hold it against the model before it is applied.

    Raises:
        PlanError: the file is missing or malformed in any way; the message names file, tensor or node, and
            the nearest known word.
    """
    if Path(path).suffix.lower() == ".onnx" and Path(path).is_file():
        raise PlanError(
            f"{os.fspath(path)}: is a model, not a plan; give the plan: quantize writes it into the folder "
            "OUT.qprof of a model; 'qprof import' makes one from another tool's model"
        )
    return loads(read_text(path, PlanError), Path(path).name)


def read_plan(source: PlanLike) -> QuantPlan:
    """Return a plan, which may be in a file; raises PlanError, see `load_plan`."""
    return source if isinstance(source, QuantPlan) else load_plan(source)


def plan_name(source: PlanLike) -> str:
    """Return the name of a plan for messages: its path, or that it is an object."""
    return "the plan" if isinstance(source, QuantPlan) else os.fspath(source)


def dumps(plan: QuantPlan) -> str:
    """Return the text of a plan file, tensors and nodes in the plan's order."""
    return "".join(_texts(plan))


def loads(document: str, source: str = "plan") -> QuantPlan:
    """Return the plan that a text describes; `source` names it in errors. See `load_plan`."""
    try:
        return _plan(parse_file(document, FORMAT, OTHER_FILE))
    except MalformedError as problem:
        raise PlanError(problem.message(source, ADVICE)) from None


# Writing ---------------------------------------------------------------------------------------------------


def _texts(plan: QuantPlan) -> Iterator[str]:
    """Yield the text of a plan file in pieces: of a large model they are hundreds of megabytes."""
    config = {f.name: getattr(plan.config, f.name) for f in fields(QuantConfig)}
    yield block({"format": FORMAT, "tool": plan.tool})
    yield block({"model": model_fields(plan.model), "config": config}, levels=2)
    yield from _entries("findings", list(plan.findings), levels=1)
    yield from _entries("tensors", plan.tensors, levels=1)
    yield from _entries("nodes", plan.nodes, levels=1)
    yield from _entries("shared_scales", list(map(vars, plan.shared_scales)), levels=3)
    adjusted = plan.adjustments
    biases = {n: " ".join(map(str, np.array(d, np.float32))) for n, d in adjusted.biases.items()}
    if written := _without_empty({**vars(adjusted), "biases": biases}):
        yield from _entries("adjustments", written, levels=2)
    if plan.borders:
        yield from _entries("borders", plan.borders, levels=1)
    if plan.origin:
        yield from _entries("origin", _origin(plan), levels=2)
    yield "...\n"


def _entries(key: str, value: Any, indent: int = 0, *, levels: int) -> Iterator[str]:
    """Yield the lines of an entry, with separate lines for its contents to a depth of `levels`."""
    value = _WRITTEN[type(value)](value) if type(value) in _WRITTEN else value
    if not levels or not value or not isinstance(value, Mapping | list):
        yield entry(key, flow_text(value), indent)
        return
    yield f"{' ' * indent}{text(key)}:\n"
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _entries(name, item, indent + 2, levels=levels - 1)
        return
    pad = " " * (indent + 2)
    for item in value:
        if levels == 1:
            yield f"{pad}- {flow_text(_WRITTEN[type(item)](item))}\n"
        else:
            lines = (line for k, v in item.items() for line in _entries(k, v, indent + 4, levels=levels - 2))
            yield f"{pad}- {''.join(lines).lstrip()}"


def _without_empty(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that are no empty texts, mappings or lists."""
    return {key: value for key, value in mapping.items() if value}


POINTS = {t: np.dtype(f"{'i' if t.signed else 'u'}{-(-t.bits // 8)}") for t in TYPES.values()}
"""Type -> that of zero points in a text: integers of whole bytes."""


def _written_params(params: QuantParams) -> dict[str, Any]:
    points = params.zero_point
    is_one = points.size > 0 and (points == points[0]).all()
    if params.block_size is None:
        many: tuple[Any, Any] = list(map(float, params.scale.astype(str))), points.tolist()
    else:
        many = _deflated(params.scale.tobytes()), _deflated(points.astype(POINTS[params.qtype]).tobytes())
    return {
        "type": params.qtype.name,
        **({} if params.axis is None else {"axis": params.axis}),
        **({} if params.block_size is None else {"block_size": params.block_size}),
        "scale": many[0][0] if params.axis is None else many[0],  # the shortest decimals of float32
        "zero_point": int(points[0]) if is_one else many[1],
    }


def _written_node(node: NodePlan) -> dict[str, Any]:
    return _without_empty(
        {
            "kind": node.kind,
            "implementation": node.implementation,
            "reason": _reason(node.because),
            "float32": _reason(node.float32),
            "inputs": {index: _written_params(params) for index, params in sorted(node.inputs.items())},
        }
    )


def _reason(reason: FloatReason | str) -> dict[str, Any] | str:
    if isinstance(reason, FloatReason) and reason.code is not ReasonCode.UNKNOWN:
        return {"code": reason.code, **reason.details}
    return str(reason)


def _written_equalization(scales: EqualizationScales) -> dict[str, Any]:
    exponents = " ".join(str(math.frexp(scale)[1] - 1) for scale in scales.scales)
    return {"axis": scales.axis, "inserted": scales.inserted, "log2_scales": exponents}


def _deflated(numbers: bytes | memoryview) -> bytes:
    """Return deflated numbers, without a search for repeats (50 times as long for 15 %)."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    return compressor.compress(numbers) + compressor.flush()


def _origin(plan: QuantPlan) -> dict[str, Any]:
    origin = plan.origin
    time = {} if origin.time is None else {name: value for name, value in vars(origin.time).items() if value}
    head = {"profile": origin.profile, "decisions": plan_digest(plan)}
    return head | _without_empty({**vars(origin), **head, "checks": list(origin.checks), "time": time})


_WRITTEN: Mapping[type, Callable[[Any], Any]] = {
    EqualizationScales: _written_equalization,
    Finding: lambda finding: _without_empty({k: v for k, v in vars(finding).items() if k != "severity"}),
    NodePlan: _written_node,
    OutputCheck: lambda check: {k: v for k, v in vars(check).items() if v not in (None, "")},
    QuantParams: _written_params,
    RoundingOffsets: lambda one: {"params": one.params, "offsets": _deflated(one.offsets)},
}
"""How a value is spelled in the file, by its type."""


# Reading: the file as records, and what they stand for -----------------------------------------------------

MAX_EXPONENT = 60
"""Largest magnitude of the power of two that a channel is divided by."""


@dataclass(frozen=True)
class ParameterFields:
    """Scale and zero point of a quantized tensor: value = scale * (quantized value - zero_point).

    Attributes:
        type: Type of the quantized values.
        scale: Numbers above 0, those of blocks as one text (float32, deflated and in base 64).
        axis: Axis of the channels, if each has a scale.
        block_size: Elements that share a scale.
    """

    type: Literal[tuple(TYPES)]  # type: ignore[valid-type]
    scale: float | tuple[float, ...] | str
    zero_point: int | tuple[int, ...] | str
    axis: Count | None = None
    block_size: Annotated[int, Meta(ge=1)] | None = None


@dataclass(frozen=True)
class NodeFields:
    """The fields of a node.

    Attributes:
        kind: its kind.
        implementation: its implementation, if there are several.
        reason: why it stays float, a code with its figures; or a remark.
        float32: reason why its float values are float32 while others are float16.
        inputs: number of an input to parameters that it reads instead of the tensor's.
    """

    kind: Kind
    implementation: str = ""
    reason: str | Mapping[str, Any] = ""
    float32: str | Mapping[str, Any] = ""
    inputs: Mapping[str, QuantParams] = field(default_factory=dict)


@dataclass(frozen=True)
class EqualizationFields:
    """Powers of two that the channels of an activation are divided by."""

    axis: Count
    inserted: bool
    log2_scales: str | int


def _plan(document: Mapping[str, object]) -> QuantPlan:
    given = {key: value for key, value in document.items() if key != "format" and value is not None}
    if isinstance(told := given.get("findings"), list):
        codes = (one.get("code") if isinstance(one, dict) else None for one in told)
        of_another_version = [isinstance(code, str) and code not in {*Code} for code in codes]
        given["findings"] = [one for one, other in zip(told, of_another_version, strict=True) if not other]
    plan = read_record(given, QuantPlan, decoders=_READ)
    if not plan.origin:
        return plan
    if plan.origin.decisions != plan_digest(plan):  # edited: the estimate is that of another plan
        return replace(plan, origin=PlanOrigin(plan.origin.profile))
    return replace(plan, origin=replace(plan.origin, decisions=""))


def _params(value: object, where: str) -> QuantParams:
    record = read_record(value, ParameterFields, where)
    qtype = TYPES[record.type]
    numbers = _array(record.scale, np.dtype(np.float32), f"{where}: scale")
    points = _array(record.zero_point, POINTS[qtype], f"{where}: zero_point")
    if not numbers.size:
        raise MalformedError(f"{where}: scale is empty")
    with np.errstate(over="ignore", under="ignore"):
        scales = numbers.astype(np.float32)
    if (is_wrong := ~((scales > 0.0) & np.isfinite(scales))).any():
        raise MalformedError(f"{where}: scale {numbers[is_wrong][0]} is not a positive float32")
    if isinstance(record.zero_point, int):
        points = points.repeat(scales.size)
    try:
        return QuantParams(scales, points, qtype, record.axis, record.block_size)
    except PlanError as problem:
        what, _, advice = str(problem).removeprefix("quantization parameters: ").partition("; ")
        raise MalformedError(f"{where}: {what}", advice) from None


def _node(value: object, where: str) -> NodePlan:
    record = read_record(value, NodeFields, where, {QuantParams: _params})
    ways = [*(way.value for way in Implementation), *rewrites(), *float_rewrites()]
    if record.implementation not in ways:
        TABLE.check(f"{where}: implementation '{record.implementation}'")
        raise not_one_of(f"{where}: implementation", record.implementation, ways[1:])
    inputs = {}
    for key, params in record.inputs.items():
        if not re.fullmatch("0|[1-9][0-9]{0,8}", key):
            raise MalformedError(f"{where}: inputs: '{key}' is not an input's number")
        inputs[int(key)] = params
    because = _float_reason(record.reason, f"{where}: reason")
    float32 = _float_reason(record.float32, f"{where}: float32")
    return NodePlan(record.kind, because, inputs, record.implementation, float32)


def _float_reason(record: str | Mapping[str, Any], where: str) -> FloatReason | str:
    if isinstance(record, str):
        return record
    code = read_value(record.get("code"), ReasonCode, f"{where}: code")
    names, figures = detail_names(code), figure_names(code)
    values = keys_at(record, where, ("code", *names))
    details = {
        name: read_value(values[name], int | float if name in figures else str, f"{where}: {name}")
        for name in names
    }
    return FloatReason(code, details)


def _equalization(value: object, where: str) -> EqualizationScales:
    record = read_record(value, EqualizationFields, where)
    words = str(record.log2_scales).split()
    if not words or not all(
        re.fullmatch("-?[0-9]{1,3}", word) and abs(int(word)) <= MAX_EXPONENT for word in words
    ):
        raise MalformedError(
            f"{where}: log2_scales must be whole numbers from -{MAX_EXPONENT} to {MAX_EXPONENT}"
        )
    return EqualizationScales(
        record.axis, tuple(math.ldexp(1.0, int(word)) for word in words), record.inserted
    )


def _numbers(value: object, where: str) -> tuple[float, ...]:
    try:
        with np.errstate(over="ignore"):
            numbers = tuple(float(np.float32(word)) for word in str(value).split())
    except ValueError:
        numbers = ()
    if not numbers or not all(map(math.isfinite, numbers)):
        raise MalformedError(f"{where}: must be finite numbers with spaces between them")
    return numbers


def _array(value: Any, dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    is_text = isinstance(value, str)
    return _inflated(value, dtype, f"{where}, if it is text,") if is_text else np.array(value, ndmin=1)


def _inflated(value: object, dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    text = zlib.decompressobj()
    try:
        numbers = text.decompress(base64.b64decode(str(value), validate=True))
        if text.unused_data or not text.eof:
            raise ValueError
        return np.frombuffer(numbers, dtype)
    except (binascii.Error, zlib.error, ValueError):
        raise MalformedError(f"{where} must be {dtype.name} numbers, deflated and in base 64") from None


_READ: Decoders = {
    EqualizationScales: _equalization,
    NodePlan: _node,
    Numbers: _numbers,
    QuantConfig: config_from_mapping,
    QuantParams: _params,
    bytes: lambda value, where: _inflated(value, np.dtype(np.int8), where).tobytes(),
}

NOTATION = {EqualizationScales: EqualizationFields, NodePlan: NodeFields, QuantParams: ParameterFields}
"""The records that have other fields in the file, and these."""
