"""Where a model may be written: never over the weights of the model that it is made from."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ModelError
from .files import ModelLike, data_file
from .loading.external import external_files


def check_output(output: str | os.PathLike[str] | None, model: ModelLike) -> None:
    """Refuse an output that would overwrite external data of the model that is read, under whatever name.

    A model that is no file is left to those that read it.

    Args:
        output: the file of the model to write, which may get a data file beside it; None for none.
        model: the model that is read.

    Raises:
        ConfigError: naming the output. ModelError: the model is no ONNX model.
    """
    if output is None:
        return
    real = os.path.realpath(output)
    for weights in sorted(_weight_files(model)):
        if _same(Path(output), weights):
            raise ConfigError(f"{output}: holds weights of the model that is read; choose another name")
        if _same(data_file(output), weights) or _same(data_file(real), weights):
            raise ConfigError(
                f"{output}: its weights would go to '{data_file(output).name}', which holds the weights of "
                "the model that is read; choose another name"
            )


def _weight_files(model: ModelLike) -> set[Path]:
    if isinstance(model, ir.Model):
        tensors = [v.const_value for graph in model.graphs() for v in graph.initializers.values()]
        return {Path(tensor.path) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)}
    if isinstance(model, onnx.ModelProto):
        return set()
    try:
        return external_files(model)
    except ModelError:  # told when the model is read
        return set()


def _same(file: Path, other: Path) -> bool:
    if os.path.realpath(file) == os.path.realpath(other):
        return True
    return file.exists() and other.exists() and file.samefile(other)
