"""The ranges of another tool as a profile, and the names of its file bound to a model. Pure but for notes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import onnx_ir as ir

from ...profiles.base.errors import ProfileError
from ...profiles.base.tool import note
from ...profiles.instrumentation.observations import observations
from ...profiles.records.histogram import UnknownBins
from ...profiles.records.profile import FLOAT_DTYPES, DataId, Dim, ModelId, Profile, TensorProfile
from ..noise.activation_ranges import (
    ANY,
    Interval,
    clamp_range,
    clipped_interval,
    interval_of,
    joint_interval,
    passes_values_on,
    possible_values,
)
from ..numerics.calibrators import Range
from ..operators.graph import Graph, Node, index
from ..operators.table import is_clip
from .foreign import ForeignRanges, some_of
from .formats import ExchangeFormat, format_named

Tensors = Mapping[str, TensorProfile]


def unbound_profile(found: ForeignRanges, entry: ExchangeFormat) -> Profile:
    """Return ranges as a profile by the names of their file: `bind` gives it a model.

    Of tensors without a histogram only the range is known. Types are taken to be float; model and data are
    unknown.
    """
    tensors = {}
    for name, (low, high) in found.ranges.items():
        bins = found.histograms.get(name)
        if bins is None:
            tensors[name] = TensorProfile("float", None, low, high, 1, 0, 0, 0, UnknownBins())
        else:
            tensors[name] = TensorProfile(
                "float", None, bins.minimum, bins.maximum, bins.total, 0, 0, 0, bins
            )
    return Profile(ModelId("", "", 0), DataId(), tensors, entry.name, found.tool)


def bind(profile: Profile, model: ir.Model, identity: ModelId, where: str) -> Profile:
    """Return a profile of another tool with the tensor names of a model for keys, in graph order.

    Only floating-point activations are kept, as in a profile of qprof; types and shapes are the model's. What
    the file has beside them is noted, and so is what follows from its ranges: tensors that it lacks, and of a
    format of thresholds how far the operators of the model can reach at all.

    Args:
        profile: by the names of its file.
        model: the prepared model, with types.
        identity: of the model.
        where: the file, for messages.

    Raises:
        ProfileError: no entry belongs to an activation of the model.
    """
    module = format_named(profile.origin).load()
    named = hasattr(module, "matched")
    names: Mapping[str, str] = module.matched(profile, model) if named else {name: name for name in profile}
    found = {
        value.name or "": _with_type_of(profile[names[value.name or ""]], value)
        for value in activations(model)
        if value.name in names
    }
    if not found:
        some = f" ({some_of(list(profile))})" if profile else ""
        raise ProfileError(
            f"{where}: none of its {len(profile)} entries{some} belongs to an activation of "
            f"{identity.file or 'the model'}; give the file that was made for this model, or profile it with "
            "'qprof dump-profile'"
        )
    known = set(module.known_names(model) if named else _tensor_names(model))
    others = [name for name in profile if name not in known]
    if others:
        left_out = f"left out {len(others)} entries that the prepared model has no tensor for"
        note(f"{where}: {left_out}: {some_of(others)}")
    samples = DataId(_sample_count(found))
    tensors = _with_derived(found, model, where, cut=format_named(profile.origin).is_symmetric)
    return replace(profile, model=identity, data=samples, tensors=tensors)


def _with_derived(
    found: Mapping[str, TensorProfile], model: ir.Model, where: str, *, cut: bool
) -> dict[str, TensorProfile]:
    """Return the records of a model's tensors, in graph order, with what follows from them; noted."""
    graph, values = index(model), {str(value.name): value for value in activations(model)}
    narrower = cut_to_possible(found, graph) if cut else {}
    if narrower:
        of = f"the ranges of {len(narrower)} of {len(found)} tensors"
        note(f"{where}: {of} are cut to what their operators can yield: {some_of(list(narrower))}")
    found = {**found, **narrower}
    ranges_only = all(isinstance(tensor.histogram, UnknownBins) for tensor in found.values())
    added = derived(found, values, model, graph) if ranges_only else {}
    if added:
        what = f"{len(added)} tensors without an entry have the range that follows from those of others"
        note(f"{where}: {what}: {some_of(list(added))}")
    found = {**found, **{name: _with_type_of(tensor, values[name]) for name, tensor in added.items()}}
    return {name: found[name] for name in values if name in found}


def _sample_count(tensors: Mapping[str, TensorProfile]) -> int:
    """Return of how many samples the histograms are, where those of all tensors agree on it; else 0.

    A leading dimension that the model leaves free is the batch.
    """
    found = set()
    for tensor in tensors.values():
        inner = (tensor.shape or (None, None))[1:] if (tensor.shape or (None,))[0] is None else tensor.shape
        if tensor.histogram.total and inner and None not in inner:
            found.add(tensor.count / max(math.prod(dim or 1 for dim in inner), 1))
    number = found.pop() if len(found) == 1 else 0.0
    return int(number) if number.is_integer() else 0


def _with_type_of(tensor: TensorProfile, value: ir.Value) -> TensorProfile:
    """Return the record of a tensor with type and shape of the model's.

    Where only the range is known, the number of elements is that of one sample, as far as the model tells.
    """
    shape: tuple[Dim, ...] | None = None
    if value.shape is not None:
        shape = tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    assert value.dtype is not None  # `activations` chose it for its type
    typed = replace(tensor, dtype=value.dtype.name.lower(), shape=shape)
    if isinstance(tensor.histogram, UnknownBins):
        return replace(typed, count=max(math.prod(dim or 1 for dim in shape or ()), 1))
    return typed


def activations(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the floating-point inputs and results of nodes of the main graph, in graph order."""
    constants = model.graph.initializers
    inputs = (value for value in model.graph.inputs if value.name not in constants)
    for value in (*inputs, *(value for node in model.graph for value in node.outputs)):
        if value.name and value.dtype is not None and value.dtype.name.lower() in FLOAT_DTYPES:
            yield value


def _tensor_names(model: ir.Model) -> Iterator[str]:
    """Yield the names of all tensors of the main graph, of any type."""
    yield from model.graph.initializers
    for value in (*model.graph.inputs, *(value for node in model.graph for value in node.outputs)):
        yield value.name or ""


# What follows from the ranges of a file and the model: narrower ranges, and those of more tensors --------


def cut_to_possible(tensors: Tensors, graph: Graph) -> dict[str, TensorProfile]:
    """Return the tensors whose range is wider than what the operators of the model can yield, cut to that.

    So the range of a threshold T, [-T, T], becomes [0, T] after a Relu. Those with a histogram are left.
    """
    possible = possible_values(graph)
    found = {}
    for name, tensor in tensors.items():
        if name in possible and isinstance(tensor.histogram, UnknownBins):
            cut = clamp_range(Range(tensor.minimum, tensor.maximum), possible[name])
            if tensor.minimum < cut.low or cut.high < tensor.maximum:
                found[name] = replace(tensor, minimum=cut.low, maximum=cut.high)
    return found


def derived(
    tensors: Tensors, wanted: Collection[str], model: ir.Model, graph: Graph
) -> dict[str, TensorProfile]:
    """Return records of wanted tensors that have none and follow from others.

    A tensor with the same elements as another one has its record (before and after Reshape, Transpose). What
    passes on values of one other tensor (MaxPool, Slice) has its range, as it will have its parameters. A
    clip cuts the range of what it reads, and Concat has that of all that it joins.
    """
    found = _same_elements(tensors, model)
    intervals = {name: (t.minimum, t.maximum) for name, t in {**tensors, **found}.items()}
    for node in graph.nodes:
        for name in node.results:
            interval = (
                ANY if name in intervals or name not in wanted else _derived_interval(node, graph, intervals)
            )
            if math.isfinite(interval[0]) and math.isfinite(interval[1]):
                intervals[name] = interval
                found[name] = TensorProfile("float", None, *interval, 1, 0, 0, 0, UnknownBins())
    return {name: found[name] for name in found if name in wanted}


def _same_elements(tensors: Tensors, model: ir.Model) -> dict[str, TensorProfile]:
    groups: dict[str, list[str]] = {}
    for observation in observations(model):
        groups.setdefault(observation.same_as or observation.name, []).append(observation.name)
    found: dict[str, TensorProfile] = {}
    for members in groups.values():
        source = next((name for name in members if name in tensors), None)
        if source is not None:
            found |= {name: tensors[source] for name in members if name not in tensors}
    return found


def _derived_interval(node: Node, graph: Graph, intervals: Mapping[str, Interval]) -> Interval:
    """Return the range of what a node yields, where it follows from those of what it reads."""
    rule = node.rule
    if rule is None or not (is_clip(node) or passes_values_on(node, rule, graph)):
        return ANY
    joint = joint_interval(interval_of(node.inputs[i], graph, intervals) for i in rule.activations(node))
    if is_clip(node) and rule.effective_range is not None and joint != ANY:
        return clipped_interval(joint, rule.effective_range(node, graph))
    return joint
