"""ONNX files that are read: `model_file`, also for a model in memory."""

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
from .loading import converted
from .protobuf import all_tensors, is_outside
from .saving import PROTOBUF_LIMIT, save_model

ModelLike: TypeAlias = str | os.PathLike[str] | onnx.ModelProto | ir.Model
"""A model: a file, or an object in memory."""


@contextmanager
def model_file(model: ModelLike, name: str = "") -> Iterator[Path]:
    """Yield the file of a model, or a temporary one of a model in memory: both give the same bytes."""
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
    """Return the name of a model's file, or for an object a name made of that of its graph."""
    if isinstance(model, str | os.PathLike):
        return Path(model).name
    if not isinstance(model, onnx.ModelProto | ir.Model):
        raise ModelError(
            f"model: is of type {type(model).__name__}; give a path, an onnx.ModelProto or an onnx_ir.Model"
        )
    name = re.sub(r"[^\w.-]+", "_", model.graph.name or "").strip("._")[:100]
    return f"{name or 'model'}.onnx"


def model_bytes(path: str | Path) -> int:
    """Return the size of a model in bytes, with each file of external data once."""
    try:
        files = {Path(path).resolve(), *(file.resolve() for file in external_files(path))}
        return sum(file.stat().st_size for file in sorted(files))
    except OSError as error:
        raise ModelError(
            f"{path}: cannot tell its size: {error.filename or ''}: {error.strerror or error}; check the path"
        ) from error
