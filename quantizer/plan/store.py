"""The plan's file format: YAML meant to be read and edited by people. The only module that knows it.

    format: qprof-plan/2
    tool: ...                        who wrote it
    model: file, structure, weights, opset
    config: the settings that were asked for
    notes: [remarks]
    tensors:                         one line for each quantized tensor
      x: {type: uint8, scale: 0.0123, zero_point: 128}
      w: {type: int8, axis: 0, scale: [0.1, 0.25], zero_point: 0}     one scale for each channel
    nodes:                           one line for each node, in graph order
      conv1: {kind: quantized}
      tanh: {kind: lookup-table, implementation: sigmoid}
      einsum: {kind: float, reason: {code: unsupported-operator, operator: Einsum}}      see `reasons`
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
    origin:                          what the plan was made from
      profile: 0123456789abcdef...   digest of the profile
      decisions: 0123456789abcdef... digest of the plan: the estimate is that of an edited plan no longer
      estimated_sqnr: {y: 31.5}      dB, by output
      sqnr_bands: {y: [24, 40]}      dB in which it is expected; left out where noise was not measured
    ...

A reason that a person writes may be a text. The last line is "...", so that a cut-off file is noticed. A
scale is written as the shortest decimal of its float32, and what a person writes is rounded to float32. A
zero_point for many scales may be written once when all are equal.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...profiles.base.errors import PlanError, nearest
from ...profiles.base.output_files import FileBatch, read_text, write_atomically
from ...profiles.base.strict_yaml import (
    MalformedError,
    block,
    check_format,
    check_whole,
    entry,
    fields,
    float_at,
    float_text,
    flow_text,
    integer_at,
    list_at,
    mapping_at,
    parse,
    text,
    text_at,
)
from ...profiles.records.store import model_at, model_fields
from ..numerics.affine import TYPES, QuantParams
from ..targets.config import QuantConfig
from ..targets.target import config_from_mapping
from .plan import (
    IMPLEMENTATIONS,
    Adjustments,
    EqualizationScales,
    Kind,
    NodePlan,
    PlanOrigin,
    QuantPlan,
    RoundingOffsets,
    SharedScale,
)
from .provenance import plan_digest
from .reasons import Detail, FloatReason, ReasonCode, detail_names, figure_names

# Adjustments as lines of a plan file, and back. The layout is described in `store`.

EXPONENT = 60
"""Largest magnitude of the exponent of a scale."""

SECTIONS = ("equalization", "biases", "roundings", "padded_channels")


def adjustments_text(adjustments: Adjustments) -> str:
    """Return the lines of adjustments, "" when there are none: each vector is one text."""
    if not adjustments:
        return ""
    lines = ["adjustments:\n"]
    lines += ["  equalization:\n"] if adjustments.equalization else []
    for name, scales in adjustments.equalization.items():
        exponents = " ".join(str(math.frexp(scale)[1] - 1) for scale in scales.scales)
        inserted = "true" if scales.inserted else "false"
        value = f"{{axis: {scales.axis}, inserted: {inserted}, log2_scales: {text(exponents)}}}"
        lines.append(entry(name, value, 4))
    lines += ["  biases:\n"] if adjustments.biases else []
    for name, delta in adjustments.biases.items():
        lines.append(entry(name, text(" ".join(str(np.float32(number)) for number in delta)), 4))
    lines += ["  roundings:\n"] if adjustments.roundings else []
    for name, rounding in adjustments.roundings.items():
        packed = base64.b64encode(zlib.compress(rounding.offsets, 9)).decode()
        lines.append(entry(name, f"{{params: {text(rounding.params)}, offsets: {text(packed)}}}", 4))
    lines += ["  padded_channels:\n"] if adjustments.padded_channels else []
    lines += [entry(name, str(channels), 4) for name, channels in adjustments.padded_channels.items()]
    return "".join(lines)


def adjustments_at(value: object) -> Adjustments:
    """Return the adjustments that the value of their key describes.

    Raises:
        MalformedError: saying where.
    """
    sections = fields({} if value is None else value, "adjustments", (), SECTIONS)
    scales, biases, roundings, padded = (
        mapping_at(sections.get(s, {}), f"adjustments: {s}") for s in SECTIONS
    )
    return Adjustments(
        {name: _scales(item, f"adjustments: equalization of '{name}'") for name, item in scales.items()},
        {name: _numbers(item, f"adjustments: bias of '{name}'") for name, item in biases.items()},
        {name: _offsets(item, f"adjustments: rounding of '{name}'") for name, item in roundings.items()},
        {
            name: integer_at(item, f"adjustments: padded_channels of '{name}'", 1)
            for name, item in padded.items()
        },
    )


def _scales(value: object, where: str) -> EqualizationScales:
    found = fields(value, where, ("axis", "inserted", "log2_scales"))
    words = str(found["log2_scales"]).split()
    if not words or not all(re.fullmatch("-?[0-9]{1,3}", w) and abs(int(w)) <= EXPONENT for w in words):
        raise MalformedError(f"{where}: log2_scales must be whole numbers from -{EXPONENT} to {EXPONENT}")
    if not isinstance(found["inserted"], bool):
        raise MalformedError(f"{where}: inserted must be true or false")
    scales = tuple(math.ldexp(1.0, int(word)) for word in words)
    return EqualizationScales(integer_at(found["axis"], f"{where}: axis", 0), scales, found["inserted"])


def _numbers(value: object, where: str) -> tuple[float, ...]:
    """Return the float32 numbers of a text."""
    try:
        with np.errstate(over="ignore"):
            numbers = [float(np.float32(word)) for word in str(value).split()]
    except ValueError:
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)):
        raise MalformedError(f"{where}: must be finite numbers with spaces between them")
    return tuple(numbers)


def _offsets(value: object, where: str) -> RoundingOffsets:
    found = fields(value, where, ("params", "offsets"))
    packed = text_at(found["offsets"], f"{where}: offsets")
    try:
        offsets = zlib.decompress(base64.b64decode(packed, validate=True))
    except (binascii.Error, zlib.error, ValueError):
        raise MalformedError(f"{where}: offsets must be int8 numbers, deflated and in base 64") from None
    return RoundingOffsets(offsets, text_at(found["params"], f"{where}: params"))


# Plan files of format 1, the first that was used: their words put into those of format 2.

_KINDS = {"integer": "quantized", "table": "lookup-table", "move": "pass-through"}
_IMPLEMENTATIONS = {"codes": "integer", "leaky": "leaky-relu"}
_SETTINGS = {
    "wide": "keep_16bit",
    "propagation": "inter_layer",
    "block": "block_size",
    "tables": "lookup_tables",
    "resolution": "scale_sharing",
}
_GROUP = {"winners": "range_set_by", "ties": "tied_by"}
_ADJUSTMENTS = {"factors": "equalization"}
_ADJUSTMENT = {"exponents": "log2_scales", "moves": "offsets"}
_WORDS: Mapping[str, Mapping[str, str]] = {
    "inter_layer": {"stay": "quantized", "return": "float"},
    "granularity": {"channel": "per-channel", "tensor": "per-tensor"},
    "scale_sharing": {"global": "unified", "local": "separate"},
    "rounding": {"sums": "squant"},
}


def from_format_1(top: Mapping[str, object]) -> dict[str, object]:
    """Return the top mapping of a plan of format 1 with the keys and words of format 2.

    What is malformed stays as it is: the reader of format 2 says what is wrong with it.
    """
    changed = dict(top)
    if isinstance(config := top.get("config"), dict):
        renamed = {_SETTINGS.get(str(key), str(key)): value for key, value in config.items()}
        changed["config"] = {key: _word(_WORDS.get(key, {}), value) for key, value in renamed.items()}
    if isinstance(tensors := top.get("tensors"), dict):
        changed["tensors"] = {name: _params(value) for name, value in tensors.items()}
    if isinstance(nodes := top.get("nodes"), dict):
        changed["nodes"] = {name: _node(value) for name, value in nodes.items()}
    if "groups" in top:
        groups = changed.pop("groups")
        changed["shared_scales"] = (
            [_renamed(_GROUP, g) for g in groups] if isinstance(groups, list) else groups
        )
    if isinstance(adjustments := top.get("adjustments"), dict):
        changed["adjustments"] = _adjustments(adjustments)
    return changed


def _adjustments(value: Mapping[Any, Any]) -> Any:
    """Return the sections of the adjustments with the keys of their entries."""
    return {
        _ADJUSTMENTS.get(section, section): {
            name: _renamed(_ADJUSTMENT, entry) for name, entry in found.items()
        }
        if isinstance(found, dict)
        else found
        for section, found in value.items()
    }


def _renamed(keys: Mapping[str, str], value: Any) -> Any:
    return {keys.get(key, key): item for key, item in value.items()} if isinstance(value, dict) else value


def _word(words: Mapping[str, str], value: Any) -> Any:
    return words.get(value, value) if isinstance(value, str) else value


def _params(value: Any) -> Any:
    return _renamed({"block": "block_size"}, value)


def _node(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    node = _renamed({"spelling": "implementation"}, value)
    if "kind" in node:
        node["kind"] = _word(_KINDS, node["kind"])
    if "implementation" in node:
        node["implementation"] = _word(_IMPLEMENTATIONS, node["implementation"])
    if isinstance(inputs := node.get("inputs"), dict):
        node["inputs"] = {key: _params(item) for key, item in inputs.items()}
    return node


PlanLike: TypeAlias = str | os.PathLike[str] | QuantPlan
"""A plan: a file, or the object."""

FAMILY, VERSION = "qprof-plan", 2
ADVICE = "correct the file, or write it again with 'qprof quantize --save-plan'"

_LATER = ("tool", "notes", "shared_scales", "adjustments", "origin")
"""Keys that may be missing: older files lack them, and people need not write them."""


def save_plan(plan: QuantPlan, path: str | os.PathLike[str], batch: FileBatch | None = None) -> None:
    """Write a plan in one step: the file is complete, or as it was before.

    Args:
        plan: what to write.
        path: the file.
        batch: files with which it is to appear; None for alone.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_atomically(path, dumps(plan), batch)


def load_plan(path: str | os.PathLike[str]) -> QuantPlan:
    """Read a plan. `verify_plan` must hold it against the model before it is applied.

    Raises:
        PlanError: the file is missing or malformed in any way; the message names file, tensor or node, and
            the nearest known word.
    """
    if Path(path).suffix.lower() == ".onnx" and Path(path).is_file():
        raise PlanError(
            f"{os.fspath(path)}: is a model, where a plan is read; give the plan: quantize keeps one beside "
            "the model when it is given samples, else --save-plan writes it; 'qprof import-plan' makes "
            "one of another tool's model"
        )
    return loads(read_text(path, PlanError), Path(path).name)


def read_plan(source: PlanLike) -> QuantPlan:
    """Return a plan, which may be in a file.

    Raises:
        PlanError: see `load_plan`.
    """
    return source if isinstance(source, QuantPlan) else load_plan(source)


def plan_name(source: PlanLike) -> str:
    """Return what messages call a plan: its path, or that it is an object."""
    return "the plan" if isinstance(source, QuantPlan) else os.fspath(source)


def dumps(plan: QuantPlan) -> str:
    """Return the text of a plan file, tensors and nodes in the plan's order."""
    config = {f.name: getattr(plan.config, f.name) for f in dataclasses.fields(QuantConfig)}
    tensors = "".join(entry(name, _params_text(p), 2) for name, p in plan.tensors.items())
    nodes = "".join(entry(name, _node_text(node), 2) for name, node in plan.nodes.items())
    notes = "".join(f"  - {text(note)}\n" for note in plan.notes)
    shared = "".join(_shared_text(shared) for shared in plan.shared_scales)
    return "".join(
        [
            block({"format": f"{FAMILY}/{VERSION}", "tool": plan.tool}),
            "model:\n" + block(model_fields(plan.model), 2),
            "config:\n" + block(config, 2),
            "notes:\n" + notes if notes else "notes: []\n",
            "tensors:\n" + tensors if tensors else "tensors: {}\n",
            "nodes:\n" + nodes if nodes else "nodes: {}\n",
            "shared_scales:\n" + shared if shared else "shared_scales: []\n",
            adjustments_text(plan.adjustments),
            _origin_text(plan),
            "...\n",
        ]
    )


def loads(document: str, source: str = "plan") -> QuantPlan:
    """Return the plan that a text describes; `source` names it in errors. See `load_plan`."""
    try:
        if document.startswith(f"format: {FAMILY}/"):
            check_whole(document)
        top = check_format(
            parse(document),
            FAMILY,
            VERSION,
            "give a plan written by 'qprof quantize --save-plan', or by 'qprof import-plan' from another "
            "tool's file",
        )
        check_whole(document)
        return _plan(from_format_1(top) if top["format"] == f"{FAMILY}/1" else top)
    except MalformedError as problem:
        raise PlanError(problem.message(source, ADVICE)) from None


# Writing ---------------------------------------------------------------------------------------------------


def _params_text(params: QuantParams) -> str:
    scales = [float_text(scale, str(np.float32(scale))) for scale in params.scale]
    points = [str(point) for point in params.zero_point]
    parts = [f"type: {params.qtype.name}"]
    parts += [f"axis: {params.axis}"] if params.axis is not None else []
    parts += [f"block_size: {params.block_size}"] if params.block_size is not None else []
    parts.append(f"scale: {scales[0]}" if params.axis is None else f"scale: [{', '.join(scales)}]")
    parts.append(
        f"zero_point: {points[0]}" if len(set(points)) == 1 else f"zero_point: [{', '.join(points)}]"
    )
    return "{" + ", ".join(parts) + "}"


def _node_text(node: NodePlan) -> str:
    parts = [f"kind: {node.kind.value}"]
    parts += [f"implementation: {node.implementation}"] if node.implementation else []
    parts += [f"reason: {_reason_text(node.because)}"] if node.because else []
    if node.inputs:
        inputs = ", ".join(
            f"{index}: {_params_text(params)}" for index, params in sorted(node.inputs.items())
        )
        parts.append(f"inputs: {{{inputs}}}")
    return "{" + ", ".join(parts) + "}"


def _reason_text(reason: FloatReason | str) -> str:
    if isinstance(reason, str):
        return text(reason)
    if reason.code is ReasonCode.UNKNOWN:
        return text(str(reason))
    details = {"code": reason.code.value, **reason.details}
    if reason.price:
        details["price"] = reason.price
    return "{" + ", ".join(f"{name}: {flow_text(value)}" for name, value in details.items()) + "}"


def _shared_text(shared: SharedScale) -> str:
    members = "".join(entry(name, flow_text(list(own)), 6) for name, own in shared.members.items())
    head = {
        "range": list(shared.range),
        "range_set_by": list(shared.range_set_by),
        "tied_by": list(shared.tied_by),
    }
    return "  - " + (block(head, 4) + entry("members", "\n" + members.rstrip("\n"), 4)).removeprefix("    ")


def _origin_text(plan: QuantPlan) -> str:
    origin = plan.origin
    if not origin:
        return ""
    lines = {"profile": origin.profile, "decisions": plan_digest(plan)}
    estimates = "".join(entry(name, repr(float(db)), 4) for name, db in origin.estimated_sqnr.items())
    bands = "".join(
        entry(name, f"[{float(low)!r}, {float(high)!r}]", 4)
        for name, (low, high) in origin.sqnr_bands.items()
    )
    parts = {"estimated_sqnr": estimates, "sqnr_bands": bands}
    return "origin:\n" + block(lines, 2) + "".join(f"  {k}:\n{v}" for k, v in parts.items() if v)


# Reading ---------------------------------------------------------------------------------------------------


def _plan(top: dict[str, object]) -> QuantPlan:
    fields(top, "the document", ("format", "model", "config", "tensors", "nodes"), _LATER)
    tensors = mapping_at(top["tensors"], "tensors")
    nodes = mapping_at(top["nodes"], "nodes")
    notes = list_at([] if top.get("notes") is None else top["notes"], "notes")
    plan = QuantPlan(
        model=model_at(top["model"]),
        config=config_from_mapping(top["config"], "config"),
        tensors={name: _params_of_store(value, f"tensor '{name}'") for name, value in tensors.items()},
        nodes={name: _node_of_store(value, f"node '{name}'") for name, value in nodes.items()},
        notes=tuple(text_at(note, "notes") for note in notes),
        shared_scales=tuple(_shared(s) for s in list_at(top.get("shared_scales", []), "shared_scales")),
        adjustments=adjustments_at(top.get("adjustments")),
        tool=text_at(top.get("tool", ""), "tool"),
    )
    return dataclasses.replace(plan, origin=_origin(top["origin"], plan)) if "origin" in top else plan


def _origin(value: object, plan: QuantPlan) -> PlanOrigin:
    """Return what a plan was made from; without the estimate where the plan was edited since."""
    found = fields(value, "origin", ("profile", "decisions"), ("estimated_sqnr", "sqnr_bands"))
    profile = text_at(found["profile"], "origin: profile")
    estimates = mapping_at(found.get("estimated_sqnr", {}), "origin: estimated_sqnr")
    numbers = {name: float_at(db, "origin: estimated_sqnr") for name, db in estimates.items()}
    edited = text_at(found["decisions"], "origin: decisions") != plan_digest(plan)
    bands = {
        name: _band(pair)
        for name, pair in mapping_at(found.get("sqnr_bands", {}), "origin: sqnr_bands").items()
    }
    return PlanOrigin(profile, {}, {}) if edited else PlanOrigin(profile, numbers, bands)


def _band(value: object) -> tuple[float, float]:
    where = "origin: sqnr_bands"
    ends = [float_at(end, where) for end in list_at(value, where)]
    if len(ends) != 2:
        raise MalformedError(f"{where}: an output has {len(ends)} numbers; give the lowest and the highest")
    return ends[0], ends[1]


def _shared(value: object) -> SharedScale:
    where = "shared_scales"
    found = fields(value, where, ("range", "range_set_by", "tied_by", "members"))
    members = mapping_at(found["members"], f"{where}: members")
    setters, nodes = (list_at(found[key], f"{where}: {key}") for key in ("range_set_by", "tied_by"))
    return SharedScale(
        {name: _range(own, f"{where}: members: '{name}'") for name, own in members.items()},
        _range(found["range"], f"{where}: range"),
        tuple(text_at(name, f"{where}: range_set_by") for name in setters),
        tuple(text_at(name, f"{where}: tied_by") for name in nodes),
    )


def _range(value: object, where: str) -> tuple[float, float]:
    ends = list_at(value, where)
    if len(ends) != 2:
        raise MalformedError(f"{where} has {len(ends)} ends instead of two")
    return float_at(ends[0], where), float_at(ends[1], where)


def _word_of_store(value: object, where: str, known: tuple[str, ...]) -> str:
    word = text_at(value, where)
    if word not in known:
        raise MalformedError(
            f"{where} '{word}' is unknown", f"known are {', '.join(known)}.{nearest(word, known)}"
        )
    return word


def _params_of_store(value: object, where: str) -> QuantParams:
    found = fields(value, where, ("type", "scale", "zero_point"), ("axis", "block_size"))
    scale, point = found["scale"], found["zero_point"]
    scales = tuple(_scale(s, f"{where}: scale") for s in (scale if isinstance(scale, list) else [scale]))
    if not scales:
        raise MalformedError(f"{where}: scale is empty")
    points = tuple(
        integer_at(p, f"{where}: zero_point") for p in (point if isinstance(point, list) else [point])
    )
    if not isinstance(point, list):
        points *= len(scales)
    qtype = TYPES[_word_of_store(found["type"], f"{where}: type", tuple(TYPES))]
    axis, block = _optional(found, "axis", where, 0), _optional(found, "block_size", where, 1)
    try:
        return QuantParams(scales, points, qtype, axis, block)
    except PlanError as problem:
        what, _, advice = str(problem).removeprefix("quantization parameters: ").partition("; ")
        raise MalformedError(f"{where}: {what}", advice) from None


def _optional(found: Mapping[str, object], key: str, where: str, low: int) -> int | None:
    value = found.get(key)
    return None if value is None else integer_at(value, f"{where}: {key}", low)


def _scale(value: object, where: str) -> float:
    number = float_at(value, where)
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float32(number))
    if not (math.isfinite(rounded) and rounded > 0.0):
        raise MalformedError(f"{where} {number} is not a positive float32")
    return rounded


def _node_of_store(value: object, where: str) -> NodePlan:
    found = fields(value, where, ("kind",), ("implementation", "reason", "inputs"))
    kind = Kind(_word_of_store(found["kind"], f"{where}: kind", tuple(kind.value for kind in Kind)))
    inputs: dict[int, QuantParams] = {}
    for key, item in mapping_at(found.get("inputs", {}), f"{where}: inputs").items():
        if not re.fullmatch("0|[1-9][0-9]{0,8}", key):
            raise MalformedError(f"{where}: inputs: '{key}' is not an input's number")
        inputs[int(key)] = _params_of_store(item, f"{where}: input {key}")
    implementation = (
        _word_of_store(found["implementation"], f"{where}: implementation", IMPLEMENTATIONS)
        if "implementation" in found
        else ""
    )
    return NodePlan(kind, _because(found.get("reason", ""), f"{where}: reason"), inputs, implementation)


def _because(value: object, where: str) -> FloatReason | str:
    """Return why a node stays float, or a remark about another one."""
    if not isinstance(value, dict):
        return text_at(value, where)
    code = ReasonCode(_word_of_store(value.get("code"), f"{where}: code", tuple(ReasonCode)))
    details = fields(value, where, ("code", *detail_names(code)), ("price",))
    figures = figure_names(code)
    return FloatReason(
        code,
        {name: _detail(details[name], name in figures, where) for name in detail_names(code)},
        text_at(details.get("price", ""), where),
    )


def _detail(value: object, is_figure: bool, where: str) -> Detail:
    if not is_figure:
        return text_at(value, where)
    return value if isinstance(value, int) and not isinstance(value, bool) else float_at(value, where)
