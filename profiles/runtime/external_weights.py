"""Weights in files of their own: read into memory, and written for onnxruntime.

onnx_ir maps such a file into memory, and closes the map whenever it moves a weight. That fails while an array
still refers to it, and the code that saves a model does not know the readers. So qprof copies weights, and
the garbage collector closes maps after the last array is gone.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx_ir as ir

from ..base.errors import ModelError
from ..base.output_files import FULL, no_room
from ..samples.samples import title_of
from .providers import first_line

SMALLEST_EXTERNAL = 256
"""Least bytes of a weight in the file of weights; smaller ones stay in the model file."""


def constants(model: ir.Model) -> list[ir.TensorProtocol]:
    """Return the tensors of all initialisers of a model, those of subgraphs too."""
    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    return [value.const_value for value in values if value.const_value is not None]


def weight_bytes(model: ir.Model) -> int:
    """Return the bytes of all constants of a model."""
    return sum(tensor.nbytes for tensor in constants(model))


def load_weights(model: ir.Model, most: int = sys.maxsize) -> None:
    """Replace a model's weights in files, of at most `most` bytes each, by copies in memory."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) and tensor.nbytes <= most:
                value.const_value = ir.Tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=tensor.name)


def save_with_weights(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Save a model with its weights in "weights.bin" beside it, which onnxruntime maps."""
    with _saving(model, Path(path).parent):
        load_weights(model, SMALLEST_EXTERNAL)
        ir.save(model, path, external_data="weights.bin", size_threshold_bytes=SMALLEST_EXTERNAL)


def move_weights(model: ir.Model, folder: Path) -> None:
    """Move the weights of a model into "weights.bin" of a folder, which copies by `save_beside` share."""
    with _saving(model, folder):
        load_weights(model, SMALLEST_EXTERNAL)
        ir.external_data.unload_from_model(
            model, folder, "weights.bin", size_threshold_bytes=SMALLEST_EXTERNAL
        )


def save_beside(model: ir.Model, path: Path) -> None:
    """Save a model in the folder of its weights; those in memory move to a file of their own beside it."""
    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    in_memory = [(value, value.const_value) for value in values]
    large = [(v, t) for v, t in in_memory if isinstance(t, ir.Tensor) and t.nbytes > SMALLEST_EXTERNAL]
    tensors = [tensor for _, tensor in large]
    with _saving(model, path.parent):
        external = ir.external_data.convert_tensors_to_external(tensors, path.parent, f"{path.stem}.bin")
        for (value, _), tensor in zip(large, external, strict=True):
            value.const_value = tensor
        ir.save(model, path)


@contextmanager
def _saving(model: ir.Model, folder: Path) -> Iterator[None]:
    """Turn an error while weights are saved into one about the room in their folder, or their own files."""
    size, free = weight_bytes(model), shutil.disk_usage(folder).free
    in_files = any(isinstance(tensor, ir.ExternalTensor) for tensor in constants(model))
    try:
        yield
    except (OSError, ValueError) as error:
        if free < size or (isinstance(error, OSError) and error.errno in FULL and not in_files):
            raise no_room(title_of(model), size) from error
        raise ModelError(
            f"{title_of(model)}: its weights cannot be saved for onnxruntime: {first_line(error)}; "
            "check that its files of external data are complete"
        ) from error
