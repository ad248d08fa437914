"""Writes ONNX files (`save_model`), and chooses the place of the weights."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

import onnx
import onnx_ir as ir

from ...profiles.base.output_files import FileBatch, replacing_together, writing
from ...profiles.base.seconds import clocked
from ...profiles.runtime.external_weights import constants, load_weights, weight_bytes
from .external_data import in_file

PROTOBUF_LIMIT = (1 << 31) - (1 << 20)
"""Bytes of weights that one ONNX file holds at most: protobuf stops at 2 GiB; the rest is for the graph."""

MIN_EXTERNAL_MODEL_BYTES = 256 << 20
"""A model that came with external data keeps it outside when its weights have at least this many bytes."""

MAX_NAME_BYTES = 255
"""Bytes of the name of a file that every common system takes."""

DIGITS = 16
"""Length of the digest in the name of a file of weights."""

MIN_EXTERNAL_BYTES = 1024
"""Initialisers of fewer bytes stay in the model file, so that shape inference of other tools can read
them."""


def has_external_data(model: ir.Model) -> bool:
    """Tell whether the model has weights in files of their own."""
    return any(in_file(tensor) is not None for tensor in constants(model))


def weight_files(model: ir.Model) -> set[Path]:
    """Return the files that hold the weights of a model in memory."""
    found = map(in_file, constants(model))
    return {Path(tensor.path) for tensor in found if tensor is not None}


@clocked("write")
def save_model(
    model: ir.Model,
    path: str | os.PathLike[str],
    external: bool = False,
    batch: FileBatch | None = None,
    file_bytes: bytes | None = None,
) -> Path:
    """Write a model: the file is complete or absent; the same model gives the same bytes.

    Weights beyond 2 GiB, and large ones that came `external`, go to a file named after the model and a digest
    of the weights: an older model of this name keeps its weights until it is replaced.
    """
    if batch is None:
        with replacing_together() as alone:
            return save_model(model, path, external, alone, file_bytes)
    temporary = batch.add(path)
    with writing(path, weight_bytes(model)):
        if file_bytes is not None:
            temporary.write_bytes(file_bytes)
        elif _one_file(model, external):
            whole = model.clone() if has_external_data(model) else model
            load_weights(whole)
            temporary.write_bytes(_serialized(whole))
        else:
            batch.add_beside(temporary, _write_with_data(model, temporary, Path(os.path.realpath(path)).name))
    used = {os.path.realpath(data) for data in weight_files(model)}
    for data in _old_data(Path(os.path.realpath(path))):
        if os.path.realpath(data) not in used:
            batch.superseded(data)
    return temporary


def written_bytes(model: ir.Model, external: bool = False) -> int:
    """Return how many bytes the files of a model have once it is saved; its weights are not read."""
    bare, is_one = model.clone(), _one_file(model, external)
    values = [value for graph in bare.graphs() for value in graph.initializers.values() if value.const_value]
    for graph in bare.graphs():
        graph.initializers.clear()
    size = NESTED_BYTES + int(ir.to_proto(bare).ByteSize())
    for value in values:
        tensor = value.const_value
        assert tensor is not None
        header = onnx.TensorProto(name=value.name, dims=tensor.shape.numpy(), data_type=int(tensor.dtype))
        inside = header.ByteSize() + _with_length(tensor.nbytes)
        size += _with_length(inside) if is_one else inside + PLACE_BYTES
        size += 0 if value.is_graph_input() else _with_length(ir.serde.serialize_value(value).ByteSize())
    return size


PLACE_BYTES = 300
"""Largest size of an external reference in a model: name, offset and length in a file."""

NESTED_BYTES = 16
"""By which the lengths of graphs grow that are written before them."""


def _with_length(size: int) -> int:
    """Return the bytes of a field of a protobuf: its tag, its length and its content."""
    return 1 + max(1, -(-size.bit_length() // 7)) + size


def _one_file(model: ir.Model, external: bool) -> bool:
    total = weight_bytes(model)
    outside = (external or has_external_data(model)) and total >= MIN_EXTERNAL_MODEL_BYTES
    return total < PROTOBUF_LIMIT and not outside


def _write_with_data(model: ir.Model, file: Path, name: str) -> str:
    """Write a model and its weights, in the folder of `file`; return the name of the file of weights."""
    copy, first = model.clone(), file.with_name("weights")
    load_weights(copy, MIN_EXTERNAL_BYTES)
    ir.external_data.unload_from_model(copy, file.parent, first.name, size_threshold_bytes=MIN_EXTERNAL_BYTES)
    with open(first, "rb") as weights:
        data = _data_name(name, hashlib.file_digest(weights, "sha256").hexdigest())
    first.rename(file.with_name(data))
    for graph in copy.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = ir.ExternalTensor(
                    data,
                    tensor.offset,
                    tensor.length,
                    tensor.dtype,
                    shape=tensor.shape,
                    name=tensor.name or "",
                    doc_string=tensor.doc_string,
                    metadata_props=tensor.metadata_props,
                    base_dir=tensor.base_dir,
                )
    file.write_bytes(_serialized(copy))
    return data


def _data_name(name: str, digest: str) -> str:
    """Return the name of the file of weights of a model, whose own name may be as long as names can be."""
    end = f".{digest[:DIGITS]}.data"
    readable = os.fsencode(name).decode("utf-8", "replace").replace("\N{REPLACEMENT CHARACTER}", "_")
    return readable.encode()[: MAX_NAME_BYTES - len(end)].decode("utf-8", "ignore") + end


def _old_data(file: Path) -> list[Path]:
    """Return the files of weights that `save_model` wrote for the model that is in `file` now."""
    form = re.escape(_data_name(file.name, "0" * DIGITS)).replace("0" * DIGITS, f"[0-9a-f]{{{DIGITS}}}")
    with suppress(OSError):
        names = [name for name in os.listdir(file.parent) if re.fullmatch(form, name)]
        content = file.read_bytes() if names else b""
        return [file.with_name(name) for name in sorted(names) if name.encode() in content]
    return []


MAX_IN_MEMORY = 1 << 26
"""Largest size of the weights of a model that is passed to a session in memory, which keeps them."""


def in_memory(model: ir.Model) -> bytes | None:
    """Return a model as the bytes of its file; None for a large one, or with weights in files."""
    small = not has_external_data(model) and weight_bytes(model) <= MAX_IN_MEMORY
    return _serialized(model) if small else None


def _serialized(model: ir.Model) -> bytes:
    data: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return data
