"""A read-only index of a model's graph, and the fingerprint by which a profile knows its model."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..profiles.errors import ProfileError
from ..profiles.profile import Dim, ModelId, describe

Use = tuple[ir.Node, int]
"""One use of a value: the node that reads it and the index of the input; -1 for a graph of its own."""

FLOAT_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)
"""Element types of floating-point activations."""

CONTROL_FLOW = ("If", "Loop", "Scan")
"""Operators that run graphs of their own as they are written."""

SMALL = 64
"""Integer constants of at most so many elements (axes, pads, shapes) are part of the structure."""


@dataclass(frozen=True, eq=False)
class Graph:
    """A model's graph and the bodies in it (branches, loops) by names. Valid as long as nobody edits them.

    Attributes:
        nodes: in topological order, as in the model; those of a body come before the node that has it.
        inputs, outputs: names of the main graph's, in order; initialisers are no inputs.
        values: name to value, of inputs, initialisers and node outputs, of bodies too.
        uses: name to the uses by nodes of any graph, in the order of `nodes`.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, ir.Value]
    uses: Mapping[str, tuple[Use, ...]]

    def producer(self, name: str) -> ir.Node | None:
        """Return the node that makes the value, None for a graph input or an initialiser."""
        return self.values[name].producer()

    def consumers(self, name: str) -> tuple[Use, ...]:
        """Return the uses of the value by nodes, in bodies too; a node that reads it twice comes twice."""
        return self.uses.get(name, ())

    def constant(self, name: str) -> npt.NDArray[np.generic] | None:
        """Return the array of an initialiser, None for every other value. Not to be written to."""
        value = self.values.get(name)
        if value is None or not value.is_initializer() or value.is_graph_input() or value.const_value is None:
            return None
        return value.const_value.numpy()

    def is_constant(self, name: str) -> bool:
        """Tell whether the value is an initialiser, without reading it."""
        value = self.values.get(name)
        return value is not None and value.is_initializer() and not value.is_graph_input()

    def is_result(self, name: str) -> bool:
        """Tell whether the value is an output of the main graph, or what a body gives: a real number then."""
        return self.values[name].is_graph_output()

    def dtype(self, name: str) -> ir.DataType | None:
        """Return the element type, None when unknown or when the value is no tensor."""
        kind = self.values[name].type
        return kind.dtype if isinstance(kind, ir.TensorType) else None

    def is_float(self, name: str) -> bool:
        """Tell whether the value is a tensor of a floating-point type."""
        return self.dtype(name) in FLOAT_TYPES

    def shape(self, name: str) -> tuple[Dim, ...] | None:
        """Return the dimensions, None for a free one; None for an unknown rank."""
        shape = self.values[name].shape
        if shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else None for dim in shape)


def index(model: ir.Model) -> Graph:
    """Return the index of a model. Nodes and values must have unique names (`prepare` gives them)."""
    graph = model.graph
    values: dict[str, ir.Value] = {}
    for inner in _graphs(graph):
        values.update((str(value.name), value) for value in inner.inputs)
        values.update(inner.initializers)
    nodes = tuple(_ordered(graph))
    uses: dict[str, list[Use]] = {}
    for node in nodes:
        values.update((value.name, value) for value in node.outputs if value.name)
        for position, value in _reads(node):
            if value.name:
                uses.setdefault(value.name, []).append((node, position))
    return Graph(
        nodes=nodes,
        inputs=tuple(str(v.name) for v in graph.inputs if not v.is_initializer()),
        outputs=tuple(str(v.name) for v in graph.outputs),
        values=values,
        uses={name: tuple(found) for name, found in uses.items()},
    )


def bodies(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return the graphs that a node runs as they are: the branches of an If, the body of a Loop or Scan."""
    return inner_graphs(node) if node.domain == "" and node.op_type in CONTROL_FLOW else ()


def inner_graphs(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return all graphs that a node has as attributes; those that are no `bodies` tell it what to do."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found.extend(attribute.as_graphs())
    return tuple(found)


def _reads(node: ir.Node) -> Iterator[tuple[int, ir.Value]]:
    """Yield what a node reads, with the index of the input; -1 for what graphs of it but bodies read."""
    yield from ((index, value) for index, value in enumerate(node.inputs) if value is not None)
    if not bodies(node):
        for graph in inner_graphs(node):
            for inner in graph.all_nodes():
                yield from ((-1, value) for value in inner.inputs if value is not None)


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in graph:
        for body in bodies(node):
            yield from _graphs(body)


def _ordered(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        for body in bodies(node):
            yield from _ordered(body)
        yield node


def model_id(model: ir.Model, file: str) -> ModelId:
    """Return the fingerprint of a prepared model: sha256 of its structure and of its weights, in hex.

    Structure: opsets, node names, operators, attributes, connections by name, subgraphs, types of inputs and
    outputs, fixed dimensions of the inputs except the first, and of every constant its name, type and shape.
    Small integer constants (axes, pads, target shapes) belong to the structure with their values, except the
    first element of the target shape of Reshape and Expand, where exporters write the batch. Weights: the
    values of all other constants. Value info, doc strings, metadata, producer and versions of the file format
    do not enter. Weights are read one after the other, without a copy.

    Args:
        model: the prepared model.
        file: name of the model's file, for people.
    """
    graph = model.graph
    digest = _Digest()
    for domain, version in sorted(graph.opset_imports.items()):
        digest.structure("opset", domain, version)
    for value in graph.inputs:
        dims = () if value.shape is None else tuple(d if isinstance(d, int) else None for d in value.shape)
        digest.structure("input", value.name, _type(value.type), len(dims), *dims[1:])
    for value in graph.outputs:
        digest.structure("output", value.name, _type(value.type))
    batches = {
        node.inputs[1].name
        for node in graph
        if node.domain == ""
        and node.op_type in ("Reshape", "Expand")
        and len(node.inputs) > 1
        and node.inputs[1]
    }
    _add_graph(digest, graph, frozenset(name for name in batches if name))
    return ModelId(
        structure=digest.structure_hash.hexdigest(),
        weights=digest.weights_hash.hexdigest(),
        opset=graph.opset_imports.get("", 1),
        file=file,
    )


def check_model(expected: ModelId, actual: ModelId, what: str, accept_retrained: bool) -> None:
    """Raise when a profile or plan was made for another model.

    Args:
        expected: the model that `what` was made for.
        actual: the model at hand.
        what: what is being applied, to begin the message with, such as "profile.yaml".
        accept_retrained: whether a model with the same structure and other weights will do.

    Raises:
        ProfileError: the graph differs, or only the weights do and that was not accepted.
    """
    pair = f"it is for {describe(expected)}, the model is {describe(actual)}"
    if expected.opset != actual.opset or expected.structure != actual.structure:
        why = "another graph" if expected.opset == actual.opset else f"a graph of opset {expected.opset}"
        raise ProfileError(f"{what}: made for {why} ({pair}); profile this model with `qprof dump-profile`")
    if expected.weights != actual.weights and not accept_retrained:
        raise ProfileError(
            f"{what}: the graph is the same, but its weights changed ({pair}); profile the model again, or "
            "give `--accept-retrained` when training only went on and the ranges still hold"
        )


class _Digest:
    """Two running sha256, one of the structure and one of the weights."""

    def __init__(self) -> None:
        self.structure_hash = hashlib.sha256()
        self.weights_hash = hashlib.sha256()

    def structure(self, *items: str | int | bytes | None) -> None:
        """Feed items with their kinds and lengths, so that no two sequences look alike."""
        for item in items:
            data = item if isinstance(item, bytes) else str(item).encode("utf-8")
            self.structure_hash.update(f"{type(item).__name__}:{len(data)}:".encode())
            self.structure_hash.update(data)
        self.structure_hash.update(b"\n")

    def tensor(self, name: str, tensor: ir.TensorProtocol, is_target_shape: bool = False) -> None:
        """Feed name, type and shape to the structure and the values to where they belong."""
        self.structure("tensor", name, tensor.dtype.name, *tensor.shape.numpy())
        if tensor.dtype == ir.DataType.STRING:
            self.structure(*(bytes(text) for text in np.ravel(tensor.numpy())))
        elif tensor.size <= SMALL and (tensor.dtype.is_integer() or tensor.dtype == ir.DataType.BOOL):
            values = [int(value) for value in np.ravel(tensor.numpy())]
            self.structure(*values[1 if is_target_shape else 0 :])
        else:
            self.weights_hash.update(f"{name}:{tensor.nbytes}:".encode())
            for chunk in _chunks(tensor):
                self.weights_hash.update(chunk)


def _chunks(tensor: ir.TensorProtocol) -> Iterator[bytes | memoryview]:
    """Yield the little-endian bytes of a tensor, without a copy where it lies in memory or a mapped file."""
    array = tensor.numpy() if tensor.dtype.bitwidth >= 8 else None
    if (
        array is None
        or not array.flags.c_contiguous
        or array.dtype.byteorder == ">"
        or struct.pack("=H", 1)[0] == 0
    ):
        yield tensor.tobytes()
        return
    yield array.reshape(-1).view(np.uint8).data


def _type(kind: ir.TypeProtocol | None) -> str:
    """Return a name of a type that does not depend on the version of onnx_ir."""
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
            for graph in [value] if attribute.type == ir.AttributeType.GRAPH else value:
                digest.structure("body", *(v.name for v in graph.inputs))
                _add_graph(digest, graph, frozenset())
                digest.structure("result", *(v.name for v in graph.outputs))
        case ir.AttributeType.INTS | ir.AttributeType.STRINGS:
            digest.structure(*value)
        case _:
            digest.structure(str(value))
