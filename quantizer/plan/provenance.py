"""Where a written model comes from: a small record in its metadata, for `evaluate` and for people.

Each entry has a key that begins with "qprof."; the entries of the user's own model stay. The digests are of
contents, not of files: remarks, settings without effect and the names of files do not enter.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.base.json_values import parse_json
from ...profiles.base.once import computed_once
from ...profiles.base.tool import tool_name
from ...profiles.records.profile import ModelId, Profile
from ..numerics.affine import TYPES, QuantParams
from ..prepare.prepare import nodes_said_to_be_quantized
from .plan import Kind, QuantPlan

BORDERS = "qprof.borders"
TEXTS = ("tool", "float_model", "target", "form", "schema", "plan", "profile")
"""Entries of `Provenance` that are texts; the keys of all are their names after "qprof."."""

DIGEST_DIGITS = 32
"""Hexadecimal digits of a digest: 128 bits."""


@dataclass(frozen=True)
class Provenance:
    """The statements of a quantized or instrumented model about itself."""

    tool: str  # name and version of the writer
    float_model: str  # fingerprint of the prepared float model (`model_fingerprint`)
    target: str = ""  # of the plan, as form and schema; "" in an instrumented model
    form: str = ""
    schema: str = ""
    plan: str = ""  # digest of the plan (`plan_digest`); "" in an instrumented model
    profile: str = ""  # digest of the profile of the plan (`profile_digest`); "" without one
    estimated_sqnr: Mapping[str, float] = field(default_factory=dict)  # of each output, dB
    sqnr_bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # if noise was measured
    borders: Mapping[str, QuantParams] = field(default_factory=dict)  # of integers outside
    instrumented: bool = False  # whether the model has profiling nodes
    quantized_nodes: int | None = None  # number of nodes with integer values; None if unknown


def provenance_of(plan: QuantPlan) -> Provenance:
    """Return the statements of a model written by this plan, with this version of the program."""
    config, unchanged = plan.config, (Kind.FLOAT, Kind.PASS_THROUGH)
    return Provenance(
        tool=tool_name(),
        float_model=model_fingerprint(plan.model),
        target=config.target,
        form=config.form,
        schema=config.schema,
        plan=plan_digest(plan),
        profile=plan.origin.profile,
        estimated_sqnr=plan.origin.estimated_sqnr,
        sqnr_bands=plan.origin.sqnr_bands,
        borders=plan.borders,
        quantized_nodes=sum(node.kind not in unchanged for node in plan.nodes.values()),
    )


def write_provenance(model: ir.Model, provenance: Provenance) -> None:
    """Put the entries into the metadata of a model, in place of earlier ones; empty ones are left out."""
    nodes = provenance.quantized_nodes
    values: dict[str, str | Mapping[str, Any]] = {
        **vars(provenance),
        "borders": {name: _written_border(params) for name, params in provenance.borders.items()},
        "instrumented": "true" if provenance.instrumented else "",
        "quantized_nodes": "" if nodes is None else str(nodes),
    }
    write_metadata(model, {f"qprof.{name}": value for name, value in values.items()})


def read_provenance(model: ir.Model) -> Provenance | None:
    """Return a model's statements about itself; None for another tool's model, or with entries spoiled."""
    metadata = model.metadata_props
    if not {"qprof.tool", "qprof.float_model"} <= metadata.keys():
        return None
    texts = {name: metadata.get(f"qprof.{name}", "") for name in TEXTS}
    return Provenance(
        **texts,
        estimated_sqnr=read_entries(metadata, "qprof.estimated_sqnr", _finite),
        sqnr_bands=read_entries(
            metadata, "qprof.sqnr_bands", lambda ends: (_finite(ends[0]), _finite(ends[1]))
        ),
        borders=borders_in(metadata),
        instrumented=metadata.get("qprof.instrumented") == "true",
        quantized_nodes=nodes_said_to_be_quantized(model),
    )


def _finite(number: Any) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return float(number)


def _written_border(params: QuantParams) -> dict[str, Any]:
    scale = params.tensor_scale if params.axis is None else params.scale.tolist()
    head = {"type": params.qtype.name, "scale": scale, "zero_point": int(params.zero_point[0])}
    return head if params.axis is None else {**head, "axis": params.axis}


def borders_in(metadata: Mapping[str, str]) -> dict[str, QuantParams]:
    """Return the inputs and outputs that are integers by a model's metadata, or none if they are spoiled."""

    def border(entry: Any) -> QuantParams:
        scale, axis = entry["scale"], entry.get("axis")
        scales = tuple(map(float, scale)) if isinstance(scale, list) else (float(scale),)
        points = (int(entry["zero_point"]),) * len(scales)
        return QuantParams(scales, points, TYPES[entry["type"]], None if axis is None else int(axis))

    return read_entries(metadata, BORDERS, border)


FLOAT_TYPE = "qprof.float_type"
"""Key in the metadata of a written model: float16 if its float nodes have this type."""


def write_metadata(model: ir.Model, values: Mapping[str, str | Mapping[str, Any]]) -> None:
    """Put texts, and mappings as JSON, into a model's metadata for earlier ones, but for empty ones."""
    for key, value in values.items():
        model.metadata_props.pop(key, None)
        if isinstance(value, str) and value:
            model.metadata_props[key] = value
        elif value:
            model.metadata_props[key] = json.dumps(dict(value), separators=(",", ":"), ensure_ascii=False)


Entry = TypeVar("Entry")


def read_entries(metadata: Mapping[str, str], key: str, entry_of: Callable[[Any], Entry]) -> dict[str, Entry]:
    """Return the entries by name in a model's metadata, JSON under a key; empty if it is damaged."""
    try:
        return {name: entry_of(value) for name, value in parse_json(metadata.get(key, "{}")).items()}
    except (PlanError, ValueError, TypeError, AttributeError, LookupError, OverflowError):
        return {}


def model_fingerprint(model: ModelId) -> str:
    """Return the fingerprint of a prepared model as one text: digests of structure and weights, and opset."""
    return f"{model.structure[:DIGEST_DIGITS]}-{model.weights[:DIGEST_DIGITS]}-{model.opset}"


@computed_once
def plan_digest(plan: QuantPlan) -> str:
    """Return a digest of a plan's decisions, hashed by name: reasons and records for people do not enter."""
    digest = hashlib.sha256(f"{model_fingerprint(plan.model)} {plan.config.form}\n".encode())
    for tensor, params in sorted(plan.tensors.items()):
        if params.block_size is None:
            digest.update(repr((tensor, params)).encode())
        else:  # millions of scales, of which the text takes seconds
            digest.update(repr((tensor, params.qtype, params.axis, params.block_size)).encode())
            digest.update(params.scale.astype("<f4").tobytes())
            digest.update(params.zero_point.astype("<i4").tobytes())
    for name, node in sorted(plan.nodes.items()):
        inputs = sorted(node.inputs.items())
        digest.update(repr((name, node.kind.value, str(node.implementation), inputs)).encode())
    if plan.borders:
        digest.update(repr(sorted(plan.borders.items())).encode())
    adjustments = plan.adjustments
    digest.update(repr(sorted(adjustments.equalization.items())).encode())
    digest.update(repr(sorted(adjustments.biases.items())).encode())
    for name, offsets in sorted(adjustments.roundings.items()):
        digest.update(repr((name, offsets.params, len(offsets.offsets))).encode())
        digest.update(offsets.offsets)
    return digest.hexdigest()[:DIGEST_DIGITS]


def profile_digest(profile: Profile) -> str:
    """Return a digest of a profile's statistics; who wrote it and the model's file do not enter."""
    data = profile.data
    digest = hashlib.sha256(f"{model_fingerprint(profile.model)} {data.samples} {data.digest}\n".encode())
    for name, tensor in profile.items():
        histogram, channels = tensor.histogram, tensor.channels
        counts = [int(count) for count in (tensor.count, tensor.zeros, tensor.nan, tensor.inf)]
        ends = [float(tensor.minimum), float(tensor.maximum), *histogram.edges()[[0, -1]].tolist()]
        digest.update(repr((name, tensor.dtype, tensor.shape, counts, ends)).encode())
        digest.update(np.ascontiguousarray(histogram.counts).tobytes())
        if channels is not None:
            digest.update(repr(channels.axis).encode())
            for array in (channels.minimum, channels.maximum, channels.count, channels.sums):
                digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:DIGEST_DIGITS]
