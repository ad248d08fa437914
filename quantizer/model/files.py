"""ONNX files that are read: `load_model`, and `model_file` for a model in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ...profiles.base.output_files import temporary_folder
from .external_data import external_files
from .folders import model_in
from .loading import converted, read_model
from .protobuf import all_tensors, is_outside
from .saving import PROTOBUF_LIMIT, save_model

ModelLike: TypeAlias = str | os.PathLike[str] | onnx.ModelProto | ir.Model
"""A model: a file, or an object in memory."""


def load_model(path: str | os.PathLike[str]) -> ir.Model:
    """Read, check and mend an ONNX file; its nodes are put in topological order.

    Weights in external files stay there and are mapped on demand. `read_model` also returns the repairs.
    Raises ModelError if the file is no ONNX model or cut off, its external data is missing or damaged, or it
    cannot be run.
    """
    return read_model(path).model


@contextmanager
def model_file(model: ModelLike, name: str = "") -> Iterator[Path]:
    """Yield the file of a model: the given one, or a temporary one of the model in memory.

    An object is only read. A model in memory is checked, prepared and run like a file, so the same model
    gives the same bytes. A path is that of a file or a folder (`model_in`). An `onnx_ir.Model` may have
    external data; a `ModelProto` in memory has no folder for it. An empty `name` names the temporary file
    after the graph. Raises ModelError if the object is no model, or its weights are elsewhere or missing.
    """
    if isinstance(model, str | os.PathLike):
        yield model_in(model)
        return
    with temporary_folder() as folder:
        path = folder / (name or model_name(model))
        if isinstance(model, ir.Model):
            try:
                save_model(model, path)
            except (OSError, ValueError, TypeError, ir.serde.SerdeError) as problem:
                message = f"{path.name}: cannot be written out: {problem}; check the model"
                raise ModelError(message) from problem
        else:
            outside = [tensor for tensor in all_tensors(model) if is_outside(tensor)]
            if outside:
                raise ModelError(
                    f"{path.name}: tensor '{outside[0].name}' has its data in a file, and a model in memory "
                    "has no folder; give its path, or load it with its data"
                )
            if model.ByteSize() >= PROTOBUF_LIMIT:
                save_model(converted(model, path.name), path)
            else:
                path.write_bytes(model.SerializeToString(deterministic=True))
        yield path


def model_name(model: ModelLike) -> str:
    """Return the name of a model's file, or for an object a name made of that of its graph.

    Raises ModelError for an object that is no model.
    """
    if isinstance(model, str | os.PathLike):
        return Path(model).name
    if not isinstance(model, onnx.ModelProto | ir.Model):
        raise ModelError(
            f"model: is of type {type(model).__name__}; give a path, an onnx.ModelProto or an onnx_ir.Model"
        )
    name = re.sub(r"[^\w.-]+", "_", model.graph.name or "").strip("._")[:100]
    return f"{name or 'model'}.onnx"


def model_bytes(path: str | Path) -> int:
    """Return the size of a model in bytes, with each file of external data once.

    Raises ModelError if a file is missing, or the model is not ONNX.
    """
    try:
        files = {Path(path).resolve(), *(file.resolve() for file in external_files(path))}
        return sum(file.stat().st_size for file in sorted(files))
    except OSError as error:
        raise ModelError(
            f"{path}: cannot tell its size: {error.filename or ''}: {error.strerror or error}; check the path"
        ) from error
