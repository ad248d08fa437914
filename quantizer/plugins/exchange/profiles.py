"""Profiles from files of other tools, bound to a model."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ProfileError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.output_files import read_bytes
from ....profiles.base.tool import note, notes_once
from ....profiles.instrumentation.subgraphs import activations_of, declared_shape, float_activations
from ....profiles.records.histogram import UNKNOWN_BINS
from ....profiles.records.profile import DataId, ModelId, Profile, TensorProfile
from ....profiles.records.store import save_profile
from ...model.files import ModelLike
from ...model.output_paths import FilesRead, check_outputs
from ...noise.activation_ranges import clamp_range
from ...numerics.calibrators import Range
from ...operators.graph import Graph, index
from ...plan.documents import OWN
from ...planning.needed_tensors import missing_tensors
from ...prepare.prepare import opened
from .foreign import ForeignRanges, some_of
from .formats import ExchangeFormat, format_named, read_as, recognised
from .possible_values import interval_of_results, possible_values

Tensors = Mapping[str, TensorProfile]


@checks_arguments
def import_profile(
    file: str | os.PathLike[str],
    model: ModelLike,
    output: str | os.PathLike[str] | None = None,
    *,
    chosen_ranges: bool = False,
) -> Profile:
    """Read the ranges that a calibrator of another tool recorded as the profile of a model.

    Notes list missing data, and entries that do not fit the model. `quantize` and other functions also accept
    the file in place of a profile; this function converts it once.

    Args:
        file: of a format that `qprof export --help` lists, recognised by its content.
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        output: file for the profile; None to write no file.
        chosen_ranges: use the ranges that the other tool chose, even if its file has histograms.

    Returns:
        The profile, bound to the model.

    Raises:
        ProfileError: the file is malformed, or has no ranges for this model.
        ModelError: the model cannot be read. ConfigError: the output cannot be written.
    """
    check_outputs([output], FilesRead((model,), (file,)))
    data, where = read_bytes(file, ProfileError), os.fspath(file)
    entry = None if data.startswith(OWN) else recognised(data)
    if entry is None:
        raise ProfileError(
            f"{where}: is of no format that is read as ranges; give calibration.json of onnxruntime, or "
            "a file of TensorRT or Glow (a profile of qprof needs no import)"
        )
    with notes_once(), opened(model) as opened_model:
        prepared = opened_model.prepared
        profile = ranges_profile(entry, data, where, chosen_ranges=chosen_ranges)
        profile = bind(profile, prepared.model, prepared.identity, where)
        for finding in missing_tensors(profile, prepared.graph, where):
            note(finding)
        note(Finding(Code.IMPORT_LOSES, f"{where}: contains {entry.lost_reading}", where))
    if output is not None:
        save_profile(profile, output)
    return profile


def holds_ranges(file: str | os.PathLike[str]) -> bool:
    """Whether a file has ranges, which `import_profile` reads, instead of parameters or a model."""
    if Path(file).suffix.lower() == ".onnx":
        return False
    data = read_bytes(file, ProfileError)
    return data.startswith(OWN) or recognised(data, "ranges") is not None


def foreign_profile(data: bytes, where: str) -> Profile | None:
    """Return the profile in a file of another tool, see `ranges_profile`; None for other files."""
    entry = recognised(data)
    if entry is None and Path(where).suffix.lower() in (".cache", ".flatbuffers"):
        raise ProfileError(
            f"{where}: is not a calibration cache of TensorRT, and a table of onnxruntime has only one end "
            "of each range; give calibration.json, which onnxruntime writes beside it"
        )
    return None if entry is None else ranges_profile(entry, data, where)


def ranges_profile(entry: ExchangeFormat, data: bytes, where: str, *, chosen_ranges: bool = False) -> Profile:
    """Return another tool's ranges as a profile, by the file's names; `chosen_ranges` without histograms."""
    if entry.holds != "ranges":
        raise ProfileError(
            f"{where}: is a file of {entry.title}, which contains parameters; make a plan of it with "
            "'qprof import'"
        )
    content = read_as(entry, data, where, ProfileError)
    assert isinstance(content, ForeignRanges)
    if chosen_ranges and content.histograms:
        content = ForeignRanges(content.ranges, content.tool)
    for finding in content.findings:
        note(replace(finding, sentence=f"{where}: {finding.sentence}"))
    # By the names of the file; types are taken to be float, and model and data are unknown.
    tensors = {}
    for name, (low, high) in content.ranges.items():
        bins = content.histograms.get(name)
        if bins is None:
            tensors[name] = _range_profile(low, high)
        else:
            ends = bins.minimum, bins.maximum
            tensors[name] = TensorProfile("float", None, *ends, bins.total, 0, 0, 0, bins)
    return Profile(ModelId("", "", 0), DataId(), tensors, entry.name, content.tool)


def _range_profile(low: float, high: float) -> TensorProfile:
    """Return the record of a tensor with nothing but its range."""
    return TensorProfile("float", None, low, high, 1, 0, 0, 0, UNKNOWN_BINS)


# A profile by the names of another tool's file, bound to a model ------------------------------------------


def bind(profile: Profile, model: ir.Model, identity: ModelId, where: str) -> Profile:
    """Return a profile of another tool with the float activations of a model as keys, in graph order."""
    entry, graph = format_named(profile.origin), index(model)
    typed = (value for value in float_activations(model) if value.dtype is not None)
    activations = {str(value.name): value for value in typed}
    module = entry.load()
    has_names = hasattr(module, "names_in_file")  # of its own, for the tensors of a model
    names = module.certain_names(profile, model) if has_names else {name: name for name in profile}
    tensors = {
        name: _with_type_of(profile[names[name]], value)
        for name, value in activations.items()
        if name in names
    }
    if not tensors:
        some = f" ({some_of(list(profile))})" if profile else ""
        raise ProfileError(
            f"{where}: none of its {len(profile)} entries{some} belongs to an activation of "
            f"{identity.file or 'the model'}; give the file that was made for this model, or profile it with "
            "'qprof dump-profile'"
        )
    if has_names:
        model_names = set(module.names_in_file(model).values())
    else:
        model_names = {*model.graph.initializers, *(value.name for value in activations_of(model.graph))}
    others = [name for name in profile if name not in model_names]
    if others:
        left_out = f"left out {len(others)} entries without a tensor in the prepared model"
        sentence = f"{where}: {left_out}: {some_of(others)}"
        note(Finding(Code.IMPORT_LOSES, sentence, where, {"entries": len(others)}))
    samples = DataId(_sample_count(tensors))

    narrower = _cut_to_possible(tensors, graph) if entry.is_symmetric else {}
    if narrower:
        of = f"the ranges of {len(narrower)} of {len(tensors)} tensors"
        sentence = (
            f"{where}: {of} are cut to the possible results of their operators: {some_of(list(narrower))}"
        )
        note(Finding(Code.IMPORT_ASSUMED, sentence, where, {"tensors": len(narrower)}))
        tensors |= narrower
    ranges_only = all(tensor.histogram == UNKNOWN_BINS for tensor in tensors.values())
    added = _derived_ranges(tensors, activations, graph) if ranges_only else {}
    if added:
        what = f"{len(added)} tensors without an entry have the range that follows from the model"
        sentence = f"{where}: {what}: {some_of(list(added))}"
        note(Finding(Code.IMPORT_ASSUMED, sentence, where, {"tensors": len(added)}))
        tensors |= {name: _with_type_of(tensor, activations[name]) for name, tensor in added.items()}
    ordered = {name: tensors[name] for name in activations if name in tensors}
    return replace(profile, model=identity, data=samples, tensors=ordered)


def _with_type_of(tensor: TensorProfile, value: ir.Value) -> TensorProfile:
    """Return the record with type and shape of the model's tensor, and the count of one sample if unknown."""
    shape = declared_shape(value.shape)
    assert value.dtype is not None  # activations are chosen for their types
    typed = replace(tensor, dtype=value.dtype.name.lower(), shape=shape)
    if tensor.histogram == UNKNOWN_BINS:
        return replace(typed, count=max(math.prod(dim or 1 for dim in shape or ()), 1))
    return typed


def _sample_count(tensors: Tensors) -> int:
    """Return the number of samples behind the histograms if all agree on it, else 0."""
    counts = set()
    for tensor in tensors.values():
        inner = (tensor.shape or (None, None))[1:] if (tensor.shape or (None,))[0] is None else tensor.shape
        if tensor.histogram.total and inner and None not in inner:
            counts.add(tensor.count / max(math.prod(dim or 1 for dim in inner), 1))
    count = counts.pop() if len(counts) == 1 else 0.0
    return int(count) if count.is_integer() else 0


def _cut_to_possible(tensors: Tensors, graph: Graph) -> dict[str, TensorProfile]:
    """Return ranges [-T, T] cut to the possible results of their operators, as [0, T] after a Relu, without
    histograms."""
    possible = possible_values(graph)
    narrower = {}
    for name, tensor in tensors.items():
        if name in possible and tensor.histogram == UNKNOWN_BINS:
            cut = clamp_range(Range(tensor.minimum, tensor.maximum), possible[name])
            if tensor.minimum < cut.low or cut.high < tensor.maximum:
                narrower[name] = replace(tensor, minimum=cut.low, maximum=cut.high)
    return narrower


def _derived_ranges(tensors: Tensors, wanted: Collection[str], graph: Graph) -> dict[str, TensorProfile]:
    """Return records of wanted tensors that follow from others: moved values, clips, Concat."""
    added: dict[str, TensorProfile] = {}
    intervals = {name: (t.minimum, t.maximum) for name, t in tensors.items()}
    for node in graph.nodes:
        for name in node.results:
            if name in intervals or name not in wanted:
                continue
            low, high = interval_of_results(node, graph, intervals)
            if math.isfinite(low) and math.isfinite(high):
                intervals[name] = low, high
                added[name] = _range_profile(low, high)
    return added
