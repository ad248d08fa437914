"""Profiles and plans as files of other tools."""

from __future__ import annotations

import onnx_ir as ir

from ....profiles.base.errors import ConfigError
from ....profiles.records.histogram import UNKNOWN_BINS
from ....profiles.records.profile import DataId, Profile, TensorProfile
from ...numerics.affine import INT32
from ...operators.graph import index
from ...plan.plan import Kind, QuantPlan
from .formats import FORMATS, ExchangeFormat, format_named


def file_content(source: Profile | QuantPlan, model: ir.Model, name: str) -> str | bytes:
    """Return the content of another tool's file; of a plan as ranges those of its activations."""
    entry = format_named(name)
    if not entry.is_written:
        names = ", ".join(entry.name for entry in FORMATS.values() if entry.is_written)
        raise ConfigError(f"format '{name}': is read only; formats that are written: {names}")
    if entry.holds == "parameters" and isinstance(source, Profile):
        raise ConfigError(
            f"format '{name}': holds parameters, which a profile has not; give a plan, which 'qprof quantize "
            "--save-plan' writes"
        )
    if entry.holds == "ranges" and isinstance(source, QuantPlan):
        source = represented_ranges(source, model)
    content: str | bytes = entry.load().write(source, model)
    return content


def losses(entry: ExchangeFormat, source: Profile | QuantPlan, model: ir.Model) -> tuple[str, ...]:
    """Return the parts of a profile or plan that a format cannot store, one sentence each."""
    if isinstance(source, Profile):
        return (f"not in the file: {entry.lost_writing}",)
    if entry.holds == "ranges":
        ranges = "the ranges are those that the plan represents, of its quantized activations alone"
        return (ranges, f"not in the file: {entry.lost_writing}")

    # Of a plan as parameters: how many of what, and only what there is.
    nodes, adjusted, constants = source.nodes.values(), source.adjustments, model.graph.initializers
    blocks = [name for name, params in source.tensors.items() if params.block_size is not None]
    if "blocks of kernels" in entry.loses:
        blocks = [name for name in blocks if name in constants and len(constants[name].shape or ()) > 2]
    elif "blocks" not in entry.loses:
        blocks = []
    counts = {
        "that {} node{s} stay float": sum(node.stays_float for node in nodes),
        "{} look-up table{s}": sum(node.kind is Kind.LOOKUP_TABLE for node in nodes),
        "{} dynamic node{s}": sum(node.kind is Kind.DYNAMIC for node in nodes),
        "the rounding of {} weight{s}": len(adjusted.roundings),
        "{} corrected bias{es}": len(adjusted.biases),
        "{} group{s} of shared scales": len(source.shared_scales),
        "{} equalized activation{s}": len(adjusted.equalization),
        "{} activation{s} with padded channels": len(adjusted.padded_channels),
        "{} convolution{s} with folded width": len(adjusted.folded_widths),
        "parameters of {} single use{s}": sum(len(n.inputs) for n in nodes if n.kind is not Kind.FLOAT),
        "scales of keys and values of {} node{s}": 0 if entry.has_caches else source.int8_caches,
        "{} weight{s} with a scale for each block": len(blocks),
        "scales of {} bias{es}": sum(p.qtype is INT32 for p in source.tensors.values())
        * ("scales of biases" in entry.loses),
    }
    texts = [
        text.format(count, s="" if count == 1 else "s", es="" if count == 1 else "es")
        for text, count in counts.items()
        if count
    ]
    return (f"not in the file, of this plan: {', '.join(texts)}",) if texts else ()


def represented_ranges(plan: QuantPlan, model: ir.Model) -> Profile:
    """Return the smallest and the largest value that each quantized activation of a plan represents."""
    graph = index(model)
    tensors = {}
    for name in graph.values:
        params = plan.tensors.get(name)
        if params is None or params.axis is not None or graph.is_constant(name):
            continue
        scale, zero_point, qtype = params.tensor_scale, params.tensor_zero_point, params.qtype
        low, high = scale * (qtype.low - zero_point), scale * (qtype.high - zero_point)
        tensors[name] = TensorProfile("float", None, low, high, 1, 0, 0, 0, UNKNOWN_BINS)
    return Profile(plan.model, DataId(), tensors, "qprof", plan.tool)
