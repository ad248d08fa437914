"""ONNX files that are written: `save_model`, and where the weights of a model go."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.atomic_files import write_atomically
from ...profiles.base.errors import ConfigError

PROTOBUF_LIMIT = (1 << 31) - (1 << 20)
"""Bytes of weights that one ONNX file holds at most: protobuf stops at 2 GiB; the rest is for the graph."""

KEEP_EXTERNAL = 256 << 20
"""A model that came with external data keeps it outside when its weights have at least this many bytes."""

SMALLEST_EXTERNAL = 1024
"""Initialisers of fewer bytes stay in the model file, where shape inference of other tools sees them."""


def has_external_data(model: ir.Model) -> bool:
    """Tell whether the model has weights in files of their own."""
    values = [v for graph in model.graphs() for v in graph.initializers.values()]
    return any(isinstance(value.const_value, ir.ExternalTensor) for value in values)


def data_file(path: str | os.PathLike[str]) -> Path:
    """Return the file for the weights of a model that is written with external data."""
    return Path(path).with_name(f"{Path(path).name}.data")


def save_model(model: ir.Model, path: str | os.PathLike[str], external: bool = False) -> None:
    """Write a model. The file is there complete or not at all; same model, same bytes.

    Weights go to `<name>.data` beside the file, one after the other, when they do not fit into one (2 GiB),
    or when they are large and the model came with external data. The argument keeps its own tensors.

    Args:
        model: what to write.
        path: the file.
        external: the model was made from one with external data.

    Raises:
        ConfigError: the folder is missing or cannot be written, or `path` is a folder.
    """
    tensors = [
        v.const_value for g in model.graphs() for v in g.initializers.values() if v.const_value is not None
    ]
    total = sum(tensor.nbytes for tensor in tensors)
    mapped = external or has_external_data(model)
    if total < PROTOBUF_LIMIT and not (mapped and total >= KEEP_EXTERNAL):
        whole = ir.external_data.load_to_model(model.clone()) if has_external_data(model) else model
        write_atomically(path, _serialized(whole))
        return
    copy = model.clone()
    target = Path(os.path.realpath(path))
    if target.is_dir() or not target.parent.is_dir():
        raise ConfigError(f"{path}: is a folder or its folder is missing; name a file in an existing folder")
    data = data_file(target).name
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            ir.external_data.unload_from_model(copy, folder, data, size_threshold_bytes=SMALLEST_EXTERNAL)
            text = _serialized(copy)
            os.replace(Path(folder) / data, target.with_name(data))
    except OSError as problem:
        raise ConfigError(
            f"{path}: cannot be written: {problem.strerror or problem}; choose another output"
        ) from None
    write_atomically(target, text)


def _serialized(model: ir.Model) -> bytes:
    data: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return data
