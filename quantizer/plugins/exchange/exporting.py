"""Profiles and plans as files of other tools."""

from __future__ import annotations

import onnx_ir as ir

from ....profiles.base.errors import ConfigError
from ....profiles.records.histogram import UNKNOWN_BINS
from ....profiles.records.profile import DataId, Profile, TensorProfile
from ...operators.graph import index
from ...plan.plan import QuantPlan
from .formats import format_named


def file_content(source: Profile | QuantPlan, model: ir.Model, name: str) -> str | bytes:
    """Return the content of another tool's file; of a plan as ranges those of its activations."""
    entry = format_named(name)
    if entry.holds == "parameters" and isinstance(source, Profile):
        raise ConfigError(
            f"format '{name}': holds parameters, which a profile has not; give a plan, which 'qprof quantize "
            "--save-plan' writes"
        )
    if entry.holds == "ranges" and isinstance(source, QuantPlan):
        source = represented_ranges(source, model)
    content: str | bytes = entry.load().write(source, model)
    return content


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
