"""The protobuf message of a model file, and walks over its graphs and tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from ...profiles.base.errors import ModelError


def read_proto(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Return the model in a file, its text checked; weights in other files are not read."""
    name = os.fsencode(path).decode("utf-8", "backslashreplace")
    if name != os.fspath(path):
        raise ModelError(f"{name}: the name is not UTF-8, which onnxruntime needs; rename the file")
    if Path(path).is_dir():
        raise ModelError(f"{name}: is a folder; name an .onnx file")
    try:
        proto = onnx.load_model(path, format="protobuf", load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"{name}: no such file; check the path of the model") from None
    except OSError as problem:
        raise ModelError(f"{name}: cannot be read: {problem.strerror or problem}; check the path") from None
    except DecodeError:
        raise ModelError(f"{name}: not an ONNX model, or cut off; export or download it again") from None
    except UnicodeDecodeError as problem:  # of protobuf in Python; its C code hands such text out as bytes
        _, _, field = problem.reason.rpartition(" in field: ")
        raise _not_utf8(name, f"field {field}" if field != problem.reason else "model") from None
    for message, field, place in list(_undecodable(proto, "")):
        if place:
            raise _not_utf8(name, place)
        setattr(message, field, getattr(message, field).decode("utf-8", "replace"))
    return proto


def _not_utf8(where: str, place: str) -> ModelError:
    return ModelError(
        f"{where}: {place}: text that is not UTF-8; the file is damaged: export or download it again"
    )


_FREE_TEXT = ("doc_string", "producer_name", "producer_version", "denotation", "metadata_props")
"""Fields on whose text nothing depends: it may be in any encoding."""


def _undecodable(message: Any, place: str, is_free: bool = False) -> Iterator[tuple[Any, str, str]]:
    """Yield text fields that are no UTF-8: message, name and place, "" in a field of `_FREE_TEXT`."""
    if isinstance(message, onnx.TensorProto):  # the fields with the numbers are not touched
        texts = [message.name, *(entry.key for entry in message.external_data)]
        if any(isinstance(text, bytes) for text in (*texts, *(e.value for e in message.external_data))):
            yield message, "name", f"{place}, tensor {_text(message.name)!r}".strip(", ")
        if isinstance(message.doc_string, bytes):
            yield message, "doc_string", ""
        return
    match message:
        case onnx.NodeProto():
            place = f"node {_text(message.name)!r} ({_text(message.op_type)})"
        case onnx.ValueInfoProto():
            place = f"value {_text(message.name)!r}"
        case onnx.FunctionProto():
            place = f"function {_text(message.name)!r}"
    for field, value in message.ListFields():
        free = is_free or field.name in _FREE_TEXT
        if field.type == FieldDescriptor.TYPE_STRING:
            if isinstance(value, bytes) or (
                not isinstance(value, str) and any(isinstance(v, bytes) for v in value)
            ):
                yield message, field.name, "" if free else f"{place}, field {field.name}".strip(", ")
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from _undecodable(inner, place, free)


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name


Block: TypeAlias = onnx.GraphProto | onnx.FunctionProto
"""What holds nodes: a graph or a model-local function."""


def subgraphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs that a node has as attributes."""
    attributes = node.attribute
    return [graph for a in attributes for graph in ((a.g,) if a.HasField("g") else a.graphs)]


def blocks(proto: onnx.ModelProto) -> Iterator[Block]:
    """Yield the main graph and the functions, each followed by the graphs inside."""
    for block in (proto.graph, *proto.functions):
        yield from graphs_in(block)


def graphs_in(block: Block) -> Iterator[Block]:
    """Yield a graph or function and the graphs inside of it, at any depth."""
    waiting = [block]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed([graph for node in current.node for graph in subgraphs_of(node)])


def tensors_in(block: Block) -> Iterator[onnx.TensorProto]:
    """Yield the initialisers of one graph, and the tensors in attributes of its nodes."""
    if isinstance(block, onnx.GraphProto):
        yield from block.initializer
    for node in block.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def all_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the dense tensors of a model: initialisers and those in attributes, of functions too."""
    for block in blocks(proto):
        yield from tensors_in(block)


def is_outside(tensor: onnx.TensorProto) -> bool:
    """Tell whether a tensor's data is in a separate file."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)
