"""The quantized model with the names in it: which tensor and node stands for which of the prepared model.

A step that has just lowered a model is given `WrittenNames`. The model file itself has a record in its
metadata, of the tensors that are there in quantized form only and that nothing else in the file leads to: a
tensor is found without it under its own name, or by the QuantizeLinear after the node that makes it. A model
without such tensors has no record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import onnx_ir as ir

from ...profiles.base.json_values import parse_json
from ..model.editing import value_names
from ..model.graph import name_of
from ..numerics.affine import QuantParams
from ..operators.graph import Graph
from ..plan.plan import EqualizationScales, Kind, QuantPlan

RECORD = "qprof.quantized_tensors"
"""Key in the metadata of a written model."""

PADDED = "qprof.padded_channels"
"""Another one: activation -> the channels that it has in the float model, where the written one has more."""

EQUALIZED = "qprof.equalization"
"""Another one: activation -> the scales of its equalized channels, as the plan has them."""


@dataclass(frozen=True)
class Written:
    """The forms that one tensor of the prepared model has in the quantized one, by their names there.

    Attributes:
        floats: float forms: under its own name, before its QuantizeLinear, after DequantizeLinear.
        quantized: quantized forms, with their parameters.
        stored: the quantized form that the tensor is stored in, "" for a tensor that is stored as float.
    """

    floats: tuple[str, ...] = ()
    quantized: Mapping[str, QuantParams] = field(default_factory=dict)
    stored: str = ""


@dataclass(frozen=True)
class WrittenNames:
    """What stands for the tensors and nodes of the prepared model in the quantized one.

    Attributes:
        tensors: tensor, those of subgraphs included -> its forms. What is inside the functions of form
            regions is not among them.
        nodes: node -> the nodes that compute it: itself where it is still there, and what was added for it.
            Conversions belong to tensors, not to nodes.
    """

    tensors: Mapping[str, Written] = field(default_factory=dict)
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Lowered:
    """A quantized model.

    Attributes:
        model: the new model.
        notes: remarks for the user, such as an opset that had to be raised.
        names: what stands for what in it.
    """

    model: ir.Model
    notes: tuple[str, ...] = ()
    names: WrittenNames = field(default_factory=WrittenNames)


@dataclass(frozen=True)
class QuantizedTensor:
    """One entry of the record.

    Attributes:
        name: of the tensor of the file.
        scale: one element, or one for each index along `axis`.
        zero_point: as many integers.
        axis: None for one scale.
    """

    name: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None


def with_record(lowered: Lowered) -> Lowered:
    """Return a model that was just lowered, its metadata completed in place by the record."""
    entries = {tensor: _entry(name, params) for tensor, name, params in _unexplained(lowered)}
    lowered.model.metadata_props.pop(RECORD, None)
    if entries:
        lowered.model.metadata_props[RECORD] = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    return lowered


def _unexplained(lowered: Lowered) -> Iterator[tuple[str, str, QuantParams]]:
    """Yield each tensor that belongs into the record, the name of its stored form and the parameters."""
    tensors = lowered.names.tensors
    # A Relu or Clip that changes no quantized value shares its input's form, which holds its own output.
    owner = {written.stored: tensor for tensor, written in tensors.items()}
    first = {written.stored: tensor for tensor, written in reversed(list(tensors.items()))}
    present = value_names(lowered.model)
    made_by = {value.name: node for node in lowered.model.graph for value in node.outputs}
    for tensor, written in tensors.items():
        if not written.stored or tensor in present or owner[written.stored] != tensor:
            continue
        params, node = written.quantized[written.stored], made_by.get(written.stored)
        if params.block_size is not None or params.qtype.bits <= 4:  # no outputs of a graph in any runtime
            continue
        if node is not None and not (first[written.stored] == tensor and _quantizes(node, params)):
            yield tensor, written.stored, params


def _quantizes(node: ir.Node, params: QuantParams) -> bool:
    """Return whether the node is a QuantizeLinear with these parameters."""
    scale = node.inputs[1].const_value if node.op_type == "QuantizeLinear" and node.inputs[1] else None
    return scale is not None and np.array_equal(scale.numpy(), params.scale_array)


def _entry(name: str, params: QuantParams) -> dict[str, object]:
    axis = {} if params.axis is None else {"axis": params.axis}
    return {"name": name, "scale": params.scale.tolist(), "zero_point": params.zero_point.tolist(), **axis}


def read_record(model: ir.Model) -> dict[str, QuantizedTensor]:
    """Return the record of a written model: tensor of the prepared model -> where it is; empty without one.

    A record that another tool has spoiled counts as none.
    """
    try:
        entries = parse_json(model.metadata_props.get(RECORD, "{}"))
        return {
            tensor: QuantizedTensor(
                entry["name"], tuple(entry["scale"]), tuple(entry["zero_point"]), entry.get("axis")
            )
            for tensor, entry in entries.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def read_padded(model: ir.Model) -> dict[str, int]:
    """Return the channels in the float model of the activations that have more in a written one.

    What another tool has spoiled counts as none.
    """
    try:
        return {str(name): int(size) for name, size in parse_json(model.metadata_props[PADDED]).items()}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def write_equalization(model: ir.Model, scales: Mapping[str, EqualizationScales]) -> None:
    """Put the scales of equalized channels into a model's metadata, so that its tensors can be compared."""
    model.metadata_props.pop(EQUALIZED, None)
    if scales:
        entries = {name: asdict(entry) for name, entry in scales.items()}
        model.metadata_props[EQUALIZED] = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)


def read_equalization(model: ir.Model) -> dict[str, EqualizationScales]:
    """Return the scales of the channels that are equalized in a written model.

    What another tool has spoiled counts as none.
    """
    try:
        entries = parse_json(model.metadata_props[EQUALIZED])
        return {
            str(name): EqualizationScales(
                int(entry["axis"]), tuple(map(float, entry["scales"])), bool(entry["inserted"])
            )
            for name, entry in entries.items()
        }
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def planned_nodes(written: str, lowered: Lowered, plan: QuantPlan, graph: Graph) -> tuple[str, ...]:
    """Return the nodes of a plan, none of them float, that a node of the written model stands for.

    A conversion stands for the node that makes its tensor, or for those that read it; one to other
    parameters than the tensor is stored in for those that read it. A node of a function stands for the node
    that became its call. onnxruntime gives a node that it fuses a longer name.
    """
    quantized = {name for name, entry in plan.nodes.items() if entry.kind is not Kind.FLOAT}
    if written in quantized:
        return (written,)
    owners = [name for name, parts in lowered.names.nodes.items() if written in parts and name in quantized]
    if owners:
        return tuple(owners[:1])
    for function in lowered.model.functions.values():
        if any(node.name == written for node in function.graph.all_nodes()):
            calls = (n for n in lowered.model.graph.all_nodes() if n.op_identifier() == function.identifier())
            return tuple(name for name in map(name_of, calls) if name in quantized)
    touching = _touching(_tensors_of(written, lowered), graph, quantized)
    if touching:
        return touching
    inside = [name for name in quantized if name and name in written]
    return (max(inside, key=lambda name: (len(name), name)),) if inside else ()


def _tensors_of(written: str, lowered: Lowered) -> list[tuple[str, bool]]:
    """Return the tensors of the plan that a written node makes or reads a quantized form of.

    With each, whether that is the form that it is stored in.
    """
    forms: Mapping[str, tuple[str, bool]] = {
        form: (tensor, form == known.stored)
        for tensor, known in lowered.names.tensors.items()
        for form in known.quantized
    }
    node = next((n for n in lowered.model.graph.all_nodes() if name_of(n) == written), None)
    values: Iterable[ir.Value | None] = () if node is None else (*node.outputs, *node.inputs)
    return [forms[name_of(value)] for value in values if name_of(value) in forms]


def _touching(tensors: list[tuple[str, bool]], graph: Graph, quantized: set[str]) -> tuple[str, ...]:
    """Return the quantized nodes that make the tensors; where there are none, those that read them."""
    known = [(name, stored) for name, stored in tensors if name in graph.values]
    makers = [graph.maker(name) for name, stored in known if stored]
    readers = [reader.name for name, _ in known for reader, _ in graph.consumers(name)]
    for names in (makers, readers):
        found = tuple(dict.fromkeys(name for name in names if name in quantized))
        if found:
            return found
    return ()
