"""The message of a model for ONNX's shape inference, without large constants.

It is written in protobuf's wire format. `ir.to_proto` took seven times as long as the inference itself, for
texts and checks that a file needs, and the message had to be made bytes afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import onnx
import onnx.defs
import onnx_ir as ir
from google.protobuf.message import Message

from ..operators.table import MICROSOFT

SMALL = 1024
"""Bytes up to which the values of a constant enter inference (shapes, axes, pads)."""

AS_STANDARD: Mapping[str, tuple[str, int]] = {
    "FusedConv": ("Conv", 3),
    "FusedGemm": ("Gemm", 3),
    "Pad": ("Pad", 3),
    "Trilu": ("Trilu", 2),
}
"""Operator of onnxruntime's own to the one of ONNX whose output has the same type and shape, and how many
inputs that takes; it is written as this."""


def skeleton(model: ir.Model) -> bytes:
    """Return the model as a protobuf; large constants become inputs, without values."""
    writer = _Writer(model.graph.opset_imports.get("", 0))
    opsets = (
        _bytes(onnx.OperatorSetIdProto(domain=domain, version=version))
        for domain, version in model.graph.opset_imports.items()
    )
    functions = (ir.serde.serialize_function(function) for function in model.functions.values())
    return b"".join(
        [
            _bytes(onnx.ModelProto(ir_version=model.ir_version)),
            *(_OPSET(opset) for opset in opsets),
            *(_FUNCTION(_bytes(function)) for function in functions),
            _MODEL_GRAPH(writer.graph(model.graph, {}, SMALL)),
        ]
    )


def _bytes(message: Message) -> bytes:
    data: bytes = message.SerializeToString()
    return data


class _Field:
    """A field of a message that holds bytes: called with them, it returns them with tag and length."""

    def __init__(self, message: type[Message], name: str) -> None:
        self.tag = _varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | 2)

    def __call__(self, data: bytes) -> bytes:
        return self.tag + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _ONE_BYTE[number]
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


_ONE_BYTE = [bytes([number]) for number in range(0x80)]

_OPSET, _FUNCTION = _Field(onnx.ModelProto, "opset_import"), _Field(onnx.ModelProto, "functions")
_MODEL_GRAPH = _Field(onnx.ModelProto, "graph")
_NODE, _INITIALIZER = _Field(onnx.GraphProto, "node"), _Field(onnx.GraphProto, "initializer")
_INPUT, _OUTPUT = _Field(onnx.GraphProto, "input"), _Field(onnx.GraphProto, "output")
_VALUE_INFO, _GRAPH_NAME = _Field(onnx.GraphProto, "value_info"), _Field(onnx.GraphProto, "name")
_READ, _MADE = _Field(onnx.NodeProto, "input"), _Field(onnx.NodeProto, "output")
_OPERATOR, _DOMAIN = _Field(onnx.NodeProto, "op_type"), _Field(onnx.NodeProto, "domain")
_OVERLOAD, _ATTRIBUTE = _Field(onnx.NodeProto, "overload"), _Field(onnx.NodeProto, "attribute")
_SUBGRAPH, _SUBGRAPHS = _Field(onnx.AttributeProto, "g"), _Field(onnx.AttributeProto, "graphs")
_NAME, _TYPE = _Field(onnx.ValueInfoProto, "name"), _Field(onnx.ValueInfoProto, "type")


class _Writer:
    """Writes the graphs of a model; types, attributes and operators that occur again are written once."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.types: dict[tuple[ir.DataType, Any], bytes] = {}
        self.attributes: dict[tuple[str, Any, Any], bytes] = {}
        self.operators: dict[tuple[str, str, str], bytes] = {}

    def graph(self, graph: ir.Graph, outer: Mapping[str, bytes], small: float = float("inf")) -> bytes:
        """Return the message of a graph; constants of more than `small` bytes become inputs without values.

        A subgraph has the constants around it (`outer`) that it reads: inference gives it no values.
        """
        large, constants = [], dict[str, bytes]()
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if tensor is None or tensor.nbytes > small:
                large += [] if tensor is None or value.is_graph_input() else [value]
            else:
                constants[name] = _INITIALIZER(_tensor(tensor, name))
        read = (
            dict.fromkeys(name for node in graph for name in _reads(node) if name in outer) if outer else {}
        )
        written = {**constants, **{name: outer[name] for name in read if name not in constants}}
        visible = {**outer, **written}
        return b"".join(
            chain(
                [_GRAPH_NAME((graph.name or "").encode())],
                (_NODE(self.node(node, visible)) for node in graph),
                (_INPUT(self.info(value)) for value in (*graph.inputs, *large)),
                (_OUTPUT(self.info(value)) for value in graph.outputs),
                written.values(),
                (
                    _VALUE_INFO(self.info(value))
                    for node in graph
                    for value in node.outputs
                    if value.type is not None and value.name and not value.is_graph_output()
                ),
            )
        )

    def node(self, node: ir.Node, visible: Mapping[str, bytes]) -> bytes:
        """Return the message of a node; `visible` has the constants that its subgraphs may read."""
        operator = node.op_type, node.domain, node.overload
        count, attributes = None, list(node.attributes.data.values())
        if node.domain == MICROSOFT and node.op_type in AS_STANDARD:
            op_type, most = AS_STANDARD[node.op_type]
            if onnx.defs.has(op_type, self.opset, ""):
                operator, count = (op_type, "", node.overload), most
                known = onnx.defs.get_schema(op_type, self.opset, "").attributes
                attributes = [attribute for attribute in attributes if attribute.name in known]
        if (head := self.operators.get(operator)) is None:
            fields = zip((_OPERATOR, _DOMAIN, _OVERLOAD), operator, strict=True)
            head = self.operators[operator] = b"".join(field(text.encode()) for field, text in fields if text)
        outputs = [value.name or "" for value in node.outputs]
        while outputs and not outputs[-1]:
            outputs.pop()
        return b"".join(
            [
                head,
                *[_READ(name.encode()) for name in _reads(node)[:count]],
                *[_MADE(name.encode()) for name in outputs],
                *[_ATTRIBUTE(self.attribute(attribute, visible)) for attribute in attributes],
            ]
        )

    def attribute(self, attribute: ir.Attr, visible: Mapping[str, bytes]) -> bytes:
        """Return the message of an attribute."""
        kind, value = attribute.type, attribute.value
        if attribute.is_ref():
            return _bytes(ir.serde.serialize_reference_attribute(attribute))
        if kind in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            head = _bytes(onnx.AttributeProto(name=attribute.name, type=kind.name))
            if kind == ir.AttributeType.GRAPH:
                return head + _SUBGRAPH(self.graph(value, visible))
            return head + b"".join(_SUBGRAPHS(self.graph(graph, visible)) for graph in value)
        if kind not in _HASHABLE:
            return _bytes(ir.serde.serialize_attribute(attribute))
        key = attribute.name, kind, value
        if (data := self.attributes.get(key)) is None:
            data = self.attributes[key] = _bytes(ir.serde.serialize_attribute(attribute))
        return data

    def info(self, value: ir.Value) -> bytes:
        """Return the message of a value: its name, type and shape."""
        shape, kind = value.shape, value.type
        plain = type(kind) is ir.TensorType and not kind.denotation
        dims: Iterable[Any] | None = None
        if plain and shape is not None:
            dims = tuple([dim if isinstance(dim, int) else (dim.value,) for dim in shape])
            plain = not any(map(shape.get_denotation, range(len(shape))))
        if not plain or kind is None:
            return _bytes(ir.serde.serialize_value(value))
        key = kind.dtype, dims
        if (data := self.types.get(key)) is None:
            proto = ir.serde.serialize_type(kind)
            if shape is not None:
                ir.serde.serialize_shape_into(proto, shape)
            data = self.types[key] = _TYPE(_bytes(proto))
        return _NAME((value.name or "").encode()) + data


_HASHABLE = (
    ir.AttributeType.INT,
    ir.AttributeType.INTS,
    ir.AttributeType.FLOAT,
    ir.AttributeType.FLOATS,
    ir.AttributeType.STRING,
)


def _reads(node: ir.Node) -> list[str]:
    return ["" if value is None else value.name or "" for value in node.inputs]


def _tensor(tensor: ir.TensorProtocol, name: str) -> bytes:
    if type(tensor) is ir.Tensor:
        shape = tensor.shape.numpy()
        proto = onnx.TensorProto(
            name=name, data_type=tensor.dtype.value, dims=shape, raw_data=tensor.tobytes()
        )
    else:
        proto = ir.serde.serialize_tensor(tensor)
        proto.name = name
    return _bytes(proto)
