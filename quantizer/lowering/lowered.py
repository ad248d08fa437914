"""The quantized model, and the names of its tensors and nodes by those of the prepared model.

The file has a record of the tensors that are there in quantized form only: others are found under their own
names, or by the QuantizeLinear after the node that makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from ...profiles.base.findings import Code, Finding
from ...profiles.instrumentation.subgraphs import value_names
from ..model.graph import name_of
from ..numerics.affine import QuantParams
from ..operators.graph import Graph
from ..plan.plan import EqualizationScales, Kind, QuantPlan
from ..plan.provenance import read_entries, write_metadata

RECORD = "qprof.quantized_tensors"
"""Key in the metadata of a written model."""

PADDED = "qprof.padded_channels"
"""Another key: activation -> its channels in the float model, if the written model has more."""

EQUALIZED = "qprof.equalization"
"""Another one: activation -> the scales of its equalized channels, as the plan has them."""


@dataclass(frozen=True)
class TensorForms:
    """The forms that one tensor of the prepared model has in the quantized one, by their names there."""

    floats: tuple[str, ...] = ()  # under its own name, before QuantizeLinear, after DequantizeLinear
    quantized: Mapping[str, QuantParams] = field(default_factory=dict)
    stored: str = ""  # "" if it is stored as float


@dataclass(frozen=True)
class WrittenNames:
    """The names in the quantized model of the tensors and nodes of the prepared one."""

    tensors: Mapping[str, TensorForms] = field(default_factory=dict)  # those of subgraphs too
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # -> those that compute it


def opset_raised(before: int, after: int) -> Finding:
    """Return the finding on the opset that the types of quantized values need."""
    sentence = f"opset raised from {before} to {after} for the types in it"
    return Finding(Code.OPSET_RAISED, sentence, figures={"from": before, "to": after})


@dataclass(frozen=True)
class LoweredModel:
    """A quantized model."""

    model: ir.Model
    findings: tuple[Finding, ...] = ()  # what a user should know, such as an opset that had to be raised
    names: WrittenNames = field(default_factory=WrittenNames)  # what stands for what in it
    file_bytes: bytes | None = None  # of its file, where these were loaded and run; None where they were not


def with_record(lowered: LoweredModel) -> LoweredModel:
    """Return a model that was just lowered, its metadata completed in place by the record."""
    model, tensors = lowered.model, lowered.names.tensors
    # A Relu or Clip that changes no quantized value shares its input's form, which holds its own output.
    first_stored_in = {forms.stored: tensor for tensor, forms in reversed(list(tensors.items()))}
    last_stored_in = {forms.stored: tensor for tensor, forms in tensors.items()}
    present = value_names(model)
    maker = {value.name: node for node in model.graph.all_nodes() for value in node.outputs}
    record = {}
    for tensor, forms in tensors.items():
        if not forms.stored or tensor in present or last_stored_in[forms.stored] != tensor:
            continue
        params, node = forms.quantized[forms.stored], maker.get(forms.stored)
        if node is None:
            continue
        if params.block_size is not None or params.qtype.bits <= 4:  # no outputs of a graph in any runtime
            continue
        if first_stored_in[forms.stored] == tensor and node.op_type == "QuantizeLinear" and node.inputs[1]:
            scale = node.inputs[1].const_value
            if scale is not None and np.array_equal(scale.numpy(), params.scale_array):
                continue  # it is found by this QuantizeLinear
        numbers = {"scale": params.scale.tolist(), "zero_point": params.zero_point.tolist()}
        axis = {} if params.axis is None else {"axis": params.axis}
        record[tensor] = {"name": forms.stored, **numbers, **axis}
    write_metadata(model, {RECORD: record})
    return lowered


def write_equalization(model: ir.Model, scales: Mapping[str, EqualizationScales]) -> None:
    """Put the scales of equalized channels into a model's metadata, so that its tensors can be compared."""
    write_metadata(model, {EQUALIZED: {name: vars(entry) for name, entry in scales.items()}})


def read_equalization(model: ir.Model) -> dict[str, EqualizationScales]:
    """Return the scales of the channels that are equalized in a written model; {} if spoiled."""

    def scales_of(entry: Any) -> EqualizationScales:
        scales = tuple(map(float, entry["scales"]))
        return EqualizationScales(int(entry["axis"]), scales, bool(entry["inserted"]))

    return read_entries(model.metadata_props, EQUALIZED, scales_of)


def planned_nodes(written: str, lowered: LoweredModel, plan: QuantPlan, graph: Graph) -> tuple[str, ...]:
    """Return the plan's quantized nodes that a node of the written model belongs to.

    A conversion belongs to the maker of its tensor, else to the readers. onnxruntime gives a node that it
    fuses a longer name.
    """
    quantized = {name for name, entry in plan.nodes.items() if entry.kind is not Kind.FLOAT}
    if written in quantized:
        return (written,)
    for name, nodes in lowered.names.nodes.items():
        if written in nodes and name in quantized:
            return (name,)

    # The tensors that it makes or reads a quantized form of, with whether they are stored in that form.
    tensor_of = {
        form: (tensor, form == forms.stored)
        for tensor, forms in lowered.names.tensors.items()
        for form in forms.quantized
    }
    node = next((n for n in lowered.model.graph.all_nodes() if name_of(n) == written), None)
    values = () if node is None else (*node.outputs, *node.inputs)
    tensors = [tensor_of[name_of(value)] for value in values if name_of(value) in tensor_of]
    tensors = [(name, is_stored) for name, is_stored in tensors if name in graph.values]
    makers = [graph.maker(name) for name, is_stored in tensors if is_stored]
    readers = [reader.name for name, _ in tensors for reader, _ in graph.consumers(name)]
    for names in (makers, readers):
        planned = tuple(dict.fromkeys(name for name in names if name in quantized))
        if planned:
            return planned

    inside = [name for name in quantized if name and name in written]
    return (max(inside, key=lambda name: (len(name), name)),) if inside else ()
