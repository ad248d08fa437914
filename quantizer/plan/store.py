"""The plan's file format: YAML meant to be read and edited by people. The only module that knows it.

    format: qprof-plan/1
    tool: ...                        who wrote it
    model: file, structure, weights, opset
    config: the settings that were asked for
    findings:                        what a user should know, see `findings`
      - {code: opset-raised, sentence: opset raised from 11 to 13, figures: {from: 11, to: 13}}
    tensors:                         one line for each quantized tensor
      x: {type: uint8, scale: 0.0123, zero_point: 128}
      w: {type: int8, axis: 0, scale: [0.1, 0.25], zero_point: 0}     one scale for each channel
    nodes:                           one line for each node, in graph order
      conv1: {kind: quantized}
      tanh: {kind: lookup-table, implementation: sigmoid}
      einsum: {kind: float, reason: {code: unsupported-operator, operator: Einsum}}      see `reasons`
      pow: {kind: float, reason: ..., float32: by hand}      in float32, where the others are float16
      add: {kind: quantized, inputs: {1: {type: uint8, scale: 0.5, zero_point: 3}}}
    shared_scales:                   what shares parameters and why: a record for people, not read when
        applied
      - range: [-1.5, 2.0]           of all of them
        range_set_by: [x]            those whose own ranges make it
        tied_by: [concat1]           the nodes that tied them
        members: each with its own range
    adjustments:                     only when there are some; each vector is one text
      equalization:                  log2 of what each channel is divided by
        x: {axis: 1, inserted: false, log2_scales: 0 -1 -3}
      biases:                        what is added to the bias of each output channel
        conv1: 0.25 -1e-05
      roundings:                     how far each quantized weight is from the nearest
        conv1: {params: 0123456789abcdef, offsets: eNpjYGBg...}      int8, deflated, in base 64
      padded_channels:               how many channels an activation has in the quantized model
        y: 16
      folded_widths:                 how many columns of a convolution's result are computed together
        conv1: 4
      shapes:                        shape in the samples of an activation whose rank the model does not tell
        x: [null, 64]
    origin:                          what the plan was made from
      profile: 0123456789abcdef...   digest of the profile
      decisions: 0123456789abcdef... digest of the plan: the estimate is that of an edited plan no longer
      estimated_sqnr: {y: 31.5}      dB, by output
      sqnr_bands: {y: [24, 40]}      dB in which it is expected; left out where noise was not measured
      checks:                        how far outputs were from float on calibration samples, where it was run
        - {output: y, measure: moved probability, value: 0.011, limit: 0.047, samples: 16}
    ...

A reason that a person writes may be a text. The last line is "...", so that a cut-off file is noticed. A
scale is written as the shortest decimal of its float32, and what a person writes is rounded to float32. A
zero_point for many scales may be written once when all are equal.
"""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import numpy as np
from msgspec import Meta

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.conversion import Count, keys_at, read_record, read_value
from ...profiles.base.errors import MalformedError, PlanError, not_one_of
from ...profiles.base.findings import Finding
from ...profiles.base.output_files import FileBatch, read_text, write_atomically
from ...profiles.base.strict_yaml import block, entry, float_text, flow_text, parse_file, text
from ...profiles.records.profile import ModelId
from ...profiles.records.store import model_fields
from ..numerics.affine import TYPES, QuantParams
from ..targets.config import QuantConfig, config_from_mapping
from .plan import (
    NO_ADJUSTMENTS,
    Adjustments,
    EqualizationScales,
    Implementation,
    Kind,
    NodePlan,
    OutputCheck,
    PlanOrigin,
    PredictedTime,
    QuantPlan,
    RoundingOffsets,
    SharedScale,
)
from .provenance import plan_digest
from .reasons import FloatReason, ReasonCode, detail_names, figure_names

PlanLike: TypeAlias = str | os.PathLike[str] | QuantPlan
"""A plan: a file, or the object."""

Format = Literal["qprof-plan/1"]
(FORMAT,) = get_args(Format)
ADVICE = "correct the file, or write it again with 'qprof quantize --save-plan'"
OTHER_FILE = (
    "give a plan written by 'qprof quantize --save-plan', or by 'qprof import' from another tool's file"
)


def save_plan(plan: QuantPlan, path: str | os.PathLike[str], batch: FileBatch | None = None) -> None:
    """Write a plan in one step: the file is complete, or unchanged.

    With a batch, it appears with the other files. Raises ConfigError if the file cannot be written.
    """
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
            f"{os.fspath(path)}: is a model, where a plan is read; give the plan: quantize keeps one beside "
            "the model when it is given samples, else --save-plan writes it; 'qprof import' makes "
            "one of another tool's model"
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
    yield from _section("model", [block(model_fields(plan.model), 2)])
    yield from _section("config", [block(config, 2)])
    yield from _section("findings", map(_finding_text, plan.findings), empty="[]")
    yield from _section(
        "tensors", (entry(n, _params_text(p), 2) for n, p in plan.tensors.items()), empty="{}"
    )
    yield from _section(
        "nodes", (entry(n, _node_text(node), 2) for n, node in plan.nodes.items()), empty="{}"
    )
    yield from _section("shared_scales", map(_shared_scale_text, plan.shared_scales), empty="[]")
    yield from _section("adjustments", _adjustments_texts(plan.adjustments))
    yield from _section("borders", (entry(n, _params_text(p), 2) for n, p in plan.borders.items()))
    if plan.origin:
        yield from _section("origin", _origin_texts(plan))
    yield "...\n"


def _section(name: str, entries: Iterable[str], indent: int = 0, empty: str = "") -> Iterator[str]:
    """Yield a key above its entries; without any, the key with the value `empty`, or nothing for ""."""
    key, has_entries = f"{' ' * indent}{name}:", False
    for lines in filter(None, entries):
        yield lines if has_entries else f"{key}\n{lines}"
        has_entries = True
    if empty and not has_entries:
        yield f"{key} {empty}\n"


def _finding_text(finding: Finding) -> str:
    """Return a finding on one line, without its severity, which follows from the code."""
    items = {"code": finding.code.value, "sentence": finding.sentence, "subject": finding.subject}
    known: dict[str, object] = {name: value for name, value in items.items() if value}
    if finding.figures:
        known["figures"] = dict(finding.figures)
    if finding.remedy:
        known["remedy"] = finding.remedy
    return f"  - {flow_text(known)}\n"


def _params_text(params: QuantParams) -> str:
    scales = [float_text(scale, str(np.float32(scale))) for scale in params.scale.tolist()]
    points = [str(point) for point in params.zero_point.tolist()]
    items = [f"type: {params.qtype.name}"]
    if params.axis is not None:
        items.append(f"axis: {params.axis}")
    if params.block_size is not None:
        items.append(f"block_size: {params.block_size}")
    items.append(f"scale: {scales[0]}" if params.axis is None else f"scale: [{', '.join(scales)}]")
    items.append(
        f"zero_point: {points[0]}" if len(set(points)) == 1 else f"zero_point: [{', '.join(points)}]"
    )
    return "{" + ", ".join(items) + "}"


def _node_text(node: NodePlan) -> str:
    items = [f"kind: {node.kind.value}"]
    if node.implementation:
        items.append(f"implementation: {node.implementation}")
    if node.because:
        items.append(f"reason: {_reason_text(node.because)}")
    if node.float32:
        items.append(f"float32: {_reason_text(node.float32)}")
    if node.inputs:
        inputs = ", ".join(f"{index}: {_params_text(p)}" for index, p in sorted(node.inputs.items()))
        items.append(f"inputs: {{{inputs}}}")
    return "{" + ", ".join(items) + "}"


def _reason_text(reason: FloatReason | str) -> str:
    if isinstance(reason, FloatReason) and reason.code is not ReasonCode.UNKNOWN:
        details = {"code": reason.code.value, **reason.details}
        if reason.price:
            details["price"] = reason.price
        return flow_text(details)
    return text(str(reason))


def _shared_scale_text(shared: SharedScale) -> str:
    members = (entry(name, flow_text(list(own)), 6) for name, own in shared.members.items())
    head = {
        "range": list(shared.range),
        "range_set_by": list(shared.range_set_by),
        "tied_by": list(shared.tied_by),
    }
    return "  - " + "".join([block(head, 4), *_section("members", members, 4)]).removeprefix("    ")


def _adjustments_texts(adjustments: Adjustments) -> Iterator[str]:
    equalization = []
    for name, scales in adjustments.equalization.items():
        exponents = " ".join(str(math.frexp(scale)[1] - 1) for scale in scales.scales)
        inserted = "true" if scales.inserted else "false"
        value = f"{{axis: {scales.axis}, inserted: {inserted}, log2_scales: {text(exponents)}}}"
        equalization.append(entry(name, value, 4))
    biases = (
        entry(name, text(" ".join(str(np.float32(number)) for number in delta)), 4)
        for name, delta in adjustments.biases.items()
    )
    roundings = (
        entry(name, f"{{params: {text(rounding.params)}, offsets: {text(_packed(rounding.offsets))}}}", 4)
        for name, rounding in adjustments.roundings.items()
    )
    padded = (entry(name, str(channels), 4) for name, channels in adjustments.padded_channels.items())
    yield from _section("equalization", equalization, 2)
    yield from _section("biases", biases, 2)
    yield from _section("roundings", roundings, 2)
    yield from _section("padded_channels", padded, 2)
    folded = (entry(name, str(columns), 4) for name, columns in adjustments.folded_widths.items())
    yield from _section("folded_widths", folded, 2)
    shapes = (entry(name, flow_text(list(shape)), 4) for name, shape in adjustments.shapes.items())
    yield from _section("shapes", shapes, 2)


def _packed(offsets: bytes | memoryview) -> str:
    """Return offsets of rounded weights, deflated, in base 64.

    They repeat by accident only: to look for repeats takes 50 to 130 times as long, for up to 15 % of the
    size.
    """
    compressor = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    return base64.b64encode(compressor.compress(offsets) + compressor.flush()).decode()


def _origin_texts(plan: QuantPlan) -> Iterator[str]:
    origin = plan.origin
    yield block({"profile": origin.profile, "decisions": plan_digest(plan)}, 2)
    estimates = (entry(name, repr(float(db)), 4) for name, db in origin.estimated_sqnr.items())
    bands = (
        entry(name, f"[{float(low)!r}, {float(high)!r}]", 4)
        for name, (low, high) in origin.sqnr_bands.items()
    )
    checks = (
        f"    - {{output: {flow_text(c.output)}, measure: {flow_text(c.measure)}, value: {float(c.value)!r}, "
        f"limit: {float(c.limit)!r}, samples: {c.samples}"
        + ("" if c.sqnr is None else f", sqnr: {float(c.sqnr)!r}")
        + (f", fault: {flow_text(c.fault)}" if c.fault else "")
        + (f", figures: {flow_text(c.figures)}" if c.figures else "")
        + "}\n"
        for c in origin.checks
    )
    yield from _section("estimated_sqnr", estimates, 2)
    yield from _section("sqnr_bands", bands, 2)
    yield from _section("checks", checks, 2)
    if origin.time is not None:
        yield from _section("time", [block({name: v for name, v in vars(origin.time).items() if v}, 4)], 2)


# Reading: the file as records, and what they stand for -----------------------------------------------------

MAX_EXPONENT = 60
"""Largest magnitude of the power of two that a channel is divided by."""


@dataclass(frozen=True)
class ParameterFields:
    """Scale and zero point of a quantized tensor: value = scale * (quantized value - zero_point)."""

    type: Annotated[
        Literal[
            "int4",
            "uint4",
            "int7",
            "int8",
            "uint8",
            "int16",
            "uint16",
            "int32",
            "float4e2m1",
            "float8e4m3fn",
            "float8e4m3fnuz",
            "float8e5m2",
            "float8e5m2fnuz",
            "int2",
            "uint2",
            "mxfp4",
            "mxfp8",
            "nvfp4",
        ],
        Meta(description="Type of the quantized values."),
    ]
    scale: float | tuple[float, ...]
    zero_point: int | tuple[int, ...]
    axis: Annotated[Count | None, Meta(description="Of the channels, where each has a scale.")] = None
    block_size: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Elements that share a scale.")
    ] = None


@dataclass(frozen=True)
class NodeFields:
    """The fields of a node.

    Attributes:
        kind: as what it is written.
        implementation: how, where there are several ways.
        reason: why it stays float, a code with its figures; or a remark.
        float32: why its float values are float32 where others are float16.
        inputs: number of an input to parameters that it reads instead of the tensor's.
    """

    kind: Kind
    implementation: str = ""
    reason: str | Mapping[str, Any] = ""
    float32: str | Mapping[str, Any] = ""
    inputs: Mapping[str, ParameterFields] | None = None


@dataclass(frozen=True)
class EqualizationFields:
    """Powers of two that the channels of an activation are divided by."""

    axis: Count
    inserted: bool
    log2_scales: str | int


@dataclass(frozen=True)
class RoundingFields:
    """How far each quantized weight is from the nearest: int8, deflated, in base 64."""

    params: str
    offsets: str


@dataclass(frozen=True)
class AdjustmentFields:
    """The changes of the float model."""

    equalization: Mapping[str, EqualizationFields] = field(default_factory=dict)
    biases: Mapping[str, str | int | float] = field(default_factory=dict)
    roundings: Mapping[str, RoundingFields] = field(default_factory=dict)
    padded_channels: Mapping[str, Annotated[int, Meta(ge=1)]] = field(default_factory=dict)
    folded_widths: Mapping[str, Annotated[int, Meta(ge=1)]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[Annotated[int, Meta(ge=0)] | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class OriginFields:
    """The sources of the plan, and the digest of the plan as it was made."""

    profile: str
    decisions: str
    estimated_sqnr: Mapping[str, float] = field(default_factory=dict)
    sqnr_bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    checks: tuple[OutputCheck, ...] = ()
    time: PredictedTime | None = None


@dataclass(frozen=True)
class PlanFields:
    """A plan: every decision about one model, to read or to edit."""

    format: Format
    model: ModelId
    config: QuantConfig
    tensors: Mapping[str, ParameterFields]
    nodes: Mapping[str, NodeFields]
    tool: str = ""
    findings: tuple[Finding, ...] | None = None
    shared_scales: tuple[SharedScale, ...] = ()
    adjustments: AdjustmentFields | None = None
    borders: Mapping[str, ParameterFields] = field(default_factory=dict)
    origin: OriginFields | None = None


def _plan(document: Mapping[str, object]) -> QuantPlan:
    record = read_record(document, PlanFields, decoders={QuantConfig: _config})
    plan = QuantPlan(
        model=record.model,
        config=record.config,
        tensors={name: _params(params, f"tensor '{name}'") for name, params in record.tensors.items()},
        nodes={name: _node(node, f"node '{name}'") for name, node in record.nodes.items()},
        findings=record.findings or (),
        tool=record.tool,
        shared_scales=record.shared_scales,
        adjustments=NO_ADJUSTMENTS if record.adjustments is None else _adjustments(record.adjustments),
        borders={name: _params(params, f"border '{name}'") for name, params in record.borders.items()},
    )
    origin = record.origin
    if origin is None:
        return plan
    if origin.decisions != plan_digest(plan):  # edited: the estimate is that of another plan
        return replace(plan, origin=PlanOrigin(origin.profile))
    expected = origin.estimated_sqnr, origin.sqnr_bands
    return replace(plan, origin=PlanOrigin(origin.profile, *expected, origin.checks, origin.time))


def _config(value: object, where: str = "") -> QuantConfig:
    """Return the settings; older plans have one by another name."""
    if isinstance(value, Mapping) and "min_sqnr" in value and "min_tensor_sqnr" not in value:
        value = {"min_tensor_sqnr" if name == "min_sqnr" else name: item for name, item in value.items()}
    return config_from_mapping(value, where)


def _params(record: ParameterFields, where: str) -> QuantParams:
    numbers = record.scale if isinstance(record.scale, tuple) else (record.scale,)
    if not numbers:
        raise MalformedError(f"{where}: scale is empty")
    with np.errstate(over="ignore", under="ignore"):
        scales = tuple(float(np.float32(number)) for number in numbers)
    for number, rounded in zip(numbers, scales, strict=True):
        if not (math.isfinite(rounded) and rounded > 0.0):
            raise MalformedError(f"{where}: scale {number} is not a positive float32")
    points = record.zero_point if isinstance(record.zero_point, tuple) else (record.zero_point,) * len(scales)
    try:
        return QuantParams(scales, points, TYPES[record.type], record.axis, record.block_size)
    except PlanError as problem:
        what, _, advice = str(problem).removeprefix("quantization parameters: ").partition("; ")
        raise MalformedError(f"{where}: {what}", advice) from None


def _node(record: NodeFields, where: str) -> NodePlan:
    ways = [way.value for way in Implementation]
    if record.implementation not in ways:
        raise not_one_of(f"{where}: implementation", record.implementation, ways[1:])
    inputs = {}
    for key, params in (record.inputs or {}).items():
        if not re.fullmatch("0|[1-9][0-9]{0,8}", key):
            raise MalformedError(f"{where}: inputs: '{key}' is not an input's number")
        inputs[int(key)] = _params(params, f"{where}: input {key}")
    because = _float_reason(record.reason, f"{where}: reason")
    float32 = _float_reason(record.float32, f"{where}: float32")
    return NodePlan(record.kind, because, inputs, Implementation(record.implementation), float32)


def _float_reason(record: str | Mapping[str, Any], where: str) -> FloatReason | str:
    if isinstance(record, str):
        return record
    code = read_value(record.get("code"), ReasonCode, f"{where}: code")
    names, figures = detail_names(code), figure_names(code)
    values = keys_at({"price": "", **record}, where, ("code", *names, "price"))
    details = {
        name: read_value(values[name], int | float if name in figures else str, f"{where}: {name}")
        for name in names
    }
    return FloatReason(code, details, read_value(values["price"], str, f"{where}: price"))


def _adjustments(record: AdjustmentFields) -> Adjustments:
    equalization, biases, roundings = {}, {}, {}
    for name, scales in record.equalization.items():
        words = str(scales.log2_scales).split()
        if not words or not all(
            re.fullmatch("-?[0-9]{1,3}", word) and abs(int(word)) <= MAX_EXPONENT for word in words
        ):
            raise MalformedError(
                f"equalization of '{name}': log2_scales must be whole numbers from -{MAX_EXPONENT} to "
                f"{MAX_EXPONENT}"
            )
        factors = tuple(math.ldexp(1.0, int(word)) for word in words)
        equalization[name] = EqualizationScales(scales.axis, factors, scales.inserted)
    for name, written in record.biases.items():
        try:
            with np.errstate(over="ignore"):
                numbers = [float(np.float32(word)) for word in str(written).split()]
        except ValueError:
            numbers = []
        if not numbers or not all(map(math.isfinite, numbers)):
            raise MalformedError(f"bias of '{name}': must be finite numbers with spaces between them")
        biases[name] = tuple(numbers)
    for name, rounding in record.roundings.items():
        try:
            offsets = zlib.decompress(base64.b64decode(rounding.offsets, validate=True))
        except (binascii.Error, zlib.error, ValueError):
            raise MalformedError(
                f"rounding of '{name}': offsets must be int8 numbers, deflated and in base 64"
            ) from None
        roundings[name] = RoundingOffsets(offsets, rounding.params)
    return Adjustments(
        equalization, biases, roundings, record.padded_channels, record.folded_widths, record.shapes
    )
