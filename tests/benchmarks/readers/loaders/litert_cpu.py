"""LiteRT, the later TFLite, with onnx2tf as its converter of ONNX."""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx2tf
from ai_edge_litert.interpreter import Interpreter


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    graph = onnx.load(model, load_external_data=False).graph
    ranks = [len(output.type.tensor_type.shape.dim) for output in graph.output]
    shapes = [[d.dim_value for d in output.type.tensor_type.shape.dim] for output in graph.output]
    folder = Path(tempfile.mkdtemp())
    try:
        onnx2tf.convert(
            input_onnx_file_path=model,
            output_folder_path=str(folder),
            keep_shape_absolutely_input_names=list(feed),
            copy_onnx_input_output_names_to_tflite=True,
            not_use_onnxsim=True,
            non_verbose=True,
        )
        (path,) = folder.glob("*_float32.tflite")
        interpreter = Interpreter(model_content=path.read_bytes())
    finally:
        shutil.rmtree(folder)
    interpreter.allocate_tensors()

    def run(feed: Mapping[str, Any]) -> list[Any]:
        for detail, array in zip(interpreter.get_input_details(), feed.values(), strict=False):
            interpreter.set_tensor(detail["index"], np.ascontiguousarray(array).astype(detail["dtype"]))
        interpreter.invoke()
        found = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
        return [
            channels_first(array, rank, shape)
            for array, rank, shape in zip(found, ranks, shapes, strict=True)
        ]

    return run


def channels_first(array: Any, rank: int, shape: list[int]) -> Any:
    """Return an output in the order of ONNX; the converter moves the channels to the end."""
    moved = np.moveaxis(array, -1, 1) if rank > 2 and array.ndim == rank else array
    return moved if rank > 2 and list(moved.shape) == shape else array
