"""Whether the text of a model file is UTF-8: asked before anything else reads its message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor

from ....profiles.base.errors import ModelError

_FREE_TEXT = ("doc_string", "producer_name", "producer_version", "denotation", "metadata_props")
"""Fields on whose text nothing depends; `readable_texts` mends them."""


def check_texts(proto: onnx.ModelProto, where: str) -> None:
    """Check that names, operators and all other text on which something depends are UTF-8.

    Args:
        proto: as parsed.
        where: the file, for messages.

    Raises:
        ModelError: text is not UTF-8.
    """
    for place in _undecodable(proto, ""):
        raise not_utf8(where, place)


def not_utf8(where: str, place: str) -> ModelError:
    """Return the error of a file with text that is not UTF-8; `place` is where in it, "" where unknown."""
    return ModelError(
        f"{where}: {place or 'model'}: text that is not UTF-8; the file is damaged: export or "
        "download it again"
    )


def field_of(problem: UnicodeDecodeError) -> str:
    """Return the field that protobuf's implementation in Python names where it refuses text, "" for none."""
    _, _, name = problem.reason.rpartition(" in field: ")
    return f"field {name}" if name != problem.reason else ""


def _undecodable(message: Any, place: str) -> Iterator[str]:
    """Yield the places of text fields that are no UTF-8, which protobuf hands out as bytes."""
    if isinstance(message, onnx.TensorProto):  # the fields with the numbers are not touched
        texts = [message.name, *(entry.key for entry in message.external_data)]
        if any(isinstance(text, bytes) for text in (*texts, *(e.value for e in message.external_data))):
            yield f"{place}, tensor {_text(message.name)!r}".strip(", ")
        return
    place = _place(message, place)
    for field, value in message.ListFields():
        if field.name in _FREE_TEXT:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            if isinstance(value, bytes) or (
                not isinstance(value, str) and any(isinstance(v, bytes) for v in value)
            ):
                yield f"{place}, field {field.name}".strip(", ")
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from _undecodable(inner, place)


def _place(message: Any, place: str) -> str:
    match message:
        case onnx.NodeProto():
            return f"node {_text(message.name)!r} ({_text(message.op_type)})"
        case onnx.ValueInfoProto():
            return f"value {_text(message.name)!r}"
        case onnx.FunctionProto():
            return f"function {_text(message.name)!r}"
    return place


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
