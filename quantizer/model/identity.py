"""Fingerprint of a prepared model, and the check that a profile belongs to it."""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ProfileError
from ...profiles.instrumentation.subgraphs import declared_shape, graphs_of
from ...profiles.records.profile import ModelId, describe
from .editing import is_standard
from .external_data import WidenedTensor
from .graph import input_name

PART_ELEMENTS = 1 << 18
"""Elements that are rearranged in memory at once, if they are not stored in the order of hashing."""

MAX_STRUCTURE_ELEMENTS = 64
"""Elements up to which an integer constant (axes, pads, shapes) is part of the structure."""


def model_id(model: ir.Model, file: str) -> ModelId:
    """Return the fingerprint of a prepared model: sha256 of its structure and of its weights, in hex.

    Structure: opsets, node names, operators, attributes, connections by name, subgraphs, types of inputs and
    outputs, fixed dimensions of the inputs except the first, and of every constant its name, type and shape.
    Small integer constants (axes, pads, target shapes) belong to the structure with their values, except the
    first element of the target shape of Reshape and Expand, in which exporters write the batch. Weights: the
    values of all other constants, read one after the other, without a copy. Value info, doc strings,
    metadata, producer and versions of the file format are ignored.
    """
    graph = model.graph
    digest = _Digest()
    for domain, version in sorted(graph.opset_imports.items()):
        digest.structure("opset", domain, version)
    for value in graph.inputs:
        dims = declared_shape(value.shape) or ()
        digest.structure("input", value.name, _type(value.type), len(dims), *dims[1:])
    for value in graph.outputs:
        digest.structure("output", value.name, _type(value.type))
    target_shapes = {input_name(node, 1) for node in graph if is_standard(node, "Reshape", "Expand")}
    _add_graph(digest, graph, frozenset(target_shapes - {""}))
    return ModelId(
        structure=digest.structure_hash.hexdigest(),
        weights=digest.weights_hash.hexdigest(),
        opset=graph.opset_imports.get("", 1),
        file=file,
    )


def check_model(expected: ModelId, actual: ModelId, what: str, *, same_weights: bool = True) -> None:
    """Raise ProfileError if a profile or plan (`what` in messages) belongs to another model."""
    pair = f"it is for {describe(expected)}, the model is {describe(actual)}"
    if expected.opset != actual.opset or expected.structure != actual.structure:
        old, new = expected.file or "another model", actual.file or "this model"
        opset = "" if expected.opset == actual.opset else f" (opset {actual.opset}, not {expected.opset})"
        raise ProfileError(
            f"{what}: made for {old}, and {new} has another graph{opset}; profile this model with "
            "`qprof dump-profile`"
        )
    if expected.weights != actual.weights and same_weights:
        raise ProfileError(
            f"{what}: the graph is the same, but its weights changed ({pair}); profile this model with "
            "`qprof dump-profile`"
        )


class _Digest:
    """Two running sha256, one of the structure and one of the weights."""

    def __init__(self) -> None:
        self.structure_hash = hashlib.sha256()
        self.weights_hash = hashlib.sha256()

    def structure(self, *items: str | int | bytes | None) -> None:
        """Hash items with their types and lengths, so that different sequences never give the same bytes."""
        for item in items:
            data = item if isinstance(item, bytes) else str(item).encode("utf-8")
            self.structure_hash.update(f"{type(item).__name__}:{len(data)}:".encode())
            self.structure_hash.update(data)
        self.structure_hash.update(b"\n")

    def tensor(self, name: str, tensor: ir.TensorProtocol, is_target_shape: bool = False) -> None:
        """Hash name, type and shape into the structure, the values into structure or weights."""
        self.structure("tensor", name, tensor.dtype.name, *tensor.shape.numpy())
        if tensor.dtype == ir.DataType.STRING:
            self.structure(*(bytes(text) for text in np.ravel(tensor.numpy())))
        elif tensor.size <= MAX_STRUCTURE_ELEMENTS and (
            tensor.dtype.is_integer() or tensor.dtype == ir.DataType.BOOL
        ):
            values = [int(value) for value in np.ravel(tensor.numpy())]
            self.structure(*values[1 if is_target_shape else 0 :])
        else:
            self.weights_hash.update(f"{name}:{tensor.nbytes}:".encode())
            for part in _parts(tensor):
                self.weights_hash.update(part)


def _parts(tensor: ir.TensorProtocol) -> Iterator[memoryview | bytes]:
    """Yield the little-endian bytes of a tensor: without a copy if they are stored like this, else some rows
    at a time."""
    if tensor.dtype.bitwidth < 8 or sys.byteorder != "little":
        yield tensor.tobytes()
        return
    array = tensor.narrow.numpy() if isinstance(tensor, WidenedTensor) else tensor.numpy()
    dtype = tensor.dtype.numpy().newbyteorder("<")
    if array.dtype == dtype and array.flags.c_contiguous:
        yield array.reshape(-1).view(np.uint8).data
        return
    rows = max(1, PART_ELEMENTS * len(array) // array.size) if array.ndim and array.size else 1
    for start in range(0, len(array) if array.ndim else 1, rows):
        part = np.ascontiguousarray(array[start : start + rows] if array.ndim else array, dtype)
        yield part.reshape(-1).view(np.uint8).data


def _type(kind: ir.TypeProtocol | None) -> str:
    """Return a name of a type that is the same in every version of onnx_ir."""
    match kind:
        case ir.SequenceType():
            return f"seq({_type(kind.elem_type)})"
        case ir.OptionalType():
            return f"optional({_type(kind.elem_type)})"
        case ir.SparseTensorType():
            return f"sparse({kind.dtype.name})"
        case None:
            return "unknown"
    return f"tensor({kind.dtype.name})"


def _add_graph(digest: _Digest, graph: ir.Graph, target_shapes: frozenset[str]) -> None:
    for name in sorted(graph.initializers):
        tensor = graph.initializers[name].const_value
        if tensor is not None:
            digest.tensor(name, tensor, name in target_shapes)
    for node in graph:
        digest.structure("node", node.name, node.domain, node.op_type, node.overload)
        digest.structure("inputs", *(None if value is None else value.name for value in node.inputs))
        digest.structure("outputs", *(value.name for value in node.outputs))
        for name in sorted(node.attributes):
            _add_attribute(digest, f"{node.name}.{name}", node.attributes[name])
    digest.structure("end")


def _add_attribute(digest: _Digest, name: str, attribute: ir.Attr) -> None:
    digest.structure("attribute", name, attribute.type.name)
    value = attribute.value
    match attribute.type:
        case ir.AttributeType.FLOAT:
            digest.structure(struct.pack("<f", value))
        case ir.AttributeType.FLOATS:
            digest.structure(struct.pack(f"<{len(value)}f", *value))
        case ir.AttributeType.TENSOR:
            digest.tensor(name, value)
        case ir.AttributeType.TENSORS:
            for tensor in value:
                digest.tensor(name, tensor)
        case ir.AttributeType.GRAPH | ir.AttributeType.GRAPHS:
            for graph in graphs_of(attribute):
                digest.structure("body", *(v.name for v in graph.inputs))
                _add_graph(digest, graph, frozenset())
                digest.structure("result", *(v.name for v in graph.outputs))
        case ir.AttributeType.INTS | ir.AttributeType.STRINGS:
            digest.structure(*value)
        case _:
            digest.structure(str(value))
