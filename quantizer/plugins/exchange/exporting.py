"""Profiles and plans as files of other tools."""

from __future__ import annotations

import os
from pathlib import Path

import onnx_ir as ir

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ConfigError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.output_files import write_atomically
from ....profiles.base.tool import note, notes_once
from ....profiles.records.histogram import UNKNOWN_BINS
from ....profiles.records.profile import DataId, Profile, TensorProfile
from ...model.files import ModelLike
from ...model.identity import check_model
from ...model.output_paths import FilesRead, check_outputs
from ...operators.graph import index
from ...plan.documents import read_document, read_profile
from ...plan.plan import QuantPlan
from ...plan.store import PlanLike
from ...prepare.prepare import ProfileLike, opened
from .formats import format_named


@checks_arguments
def export(
    source: ProfileLike | PlanLike,
    model: ModelLike,
    format: str,
    output: str | os.PathLike[str] | None = None,
) -> str | bytes:
    """Write a profile or a plan as a file of another tool.

    Notes list the data that the format cannot store.

    Args:
        source: path or object. From a plan, a format of ranges gets the ranges of its quantized activations,
            which a calibrator of qprof chose.
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        format: name of the format, such as "tensorrt-cache".
        output: the file to write; None to write no file.

    Returns:
        What the file holds.

    Raises:
        ConfigError: there is no such format, or it needs a plan; the output cannot be written.
        ProfileError, PlanError: the source cannot be read, or belongs to another model.
        ModelError: the model cannot be read.
    """
    entry = format_named(format)
    check_outputs([output], FilesRead((model,), (source,)))
    with notes_once(), opened(model) as opened_model:
        prepared = opened_model.prepared
        document = source if isinstance(source, Profile | QuantPlan) else read_document(Path(source))
        where = "the plan" if isinstance(source, QuantPlan | Profile) else os.fspath(source)
        if isinstance(document, Profile):
            document = read_profile(document, prepared.model, prepared.identity)
        else:
            check_model(document.model, prepared.identity, where)
        content = file_content(document, prepared.model, format)
        if entry.holds == "ranges" and isinstance(document, QuantPlan):
            sentence = "the ranges come from the plan, and only quantized activations have one"
            note(Finding(Code.EXPORT_LOSES, f"{format}: {sentence}", format))
        note(Finding(Code.EXPORT_LOSES, f"{format}: losses: {entry.lost_writing}", format))
    if output is not None:
        write_atomically(output, content)
    return content


def file_content(source: Profile | QuantPlan, model: ir.Model, name: str) -> str | bytes:
    """Return the content of another tool's file; of a plan as ranges those of its activations."""
    entry = format_named(name)
    if entry.holds == "parameters" and isinstance(source, Profile):
        raise ConfigError(
            f"format '{name}': contains parameters, which a profile does not have; give a plan, which 'qprof "
            "quantize --save-plan' writes"
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
