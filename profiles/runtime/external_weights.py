"""Weights in files of their own: read into memory, and written for onnxruntime.

onnx_ir maps such a file into memory, and closes the map whenever it moves a weight. That fails while any
array still refers to it, and the code that saves a model cannot know who reads it. So qprof copies weights
and leaves maps to the garbage collector, which closes them after the last array is gone.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import onnx_ir as ir

SMALLEST = 256
"""Weights of more bytes go to the file of weights; smaller ones stay in the model file."""


def load_weights(model: ir.Model, most: int = sys.maxsize) -> None:
    """Replace weights in files of their own by copies in memory; arrays of them that are in use stay valid.

    Args:
        model: is changed.
        most: larger weights, in bytes, stay in their files.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) and tensor.nbytes <= most:
                value.const_value = ir.Tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=tensor.name)


def save_with_weights(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Save a model with its weights in one file beside it, "weights.bin", which onnxruntime maps.

    A protobuf cannot exceed 2 GB, and is slow long before. The model keeps its own weights; small ones that
    are in files are loaded.
    """
    load_weights(model, SMALLEST)
    ir.save(model, path, external_data="weights.bin", size_threshold_bytes=SMALLEST)
