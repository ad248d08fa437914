"""LiteRT, the later TFLite, with onnx2tf as its converter of ONNX.

The converter moves channels to the end. Its option keeps the inputs in the order of ONNX, and outputs of one
dimension have no other order: nothing is left to be guessed here.
"""

import math
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
    proto = onnx.load(model)
    shapes = [[d.dim_value for d in output.type.tensor_type.shape.dim] for output in proto.graph.output]
    for output, shape in zip(proto.graph.output, shapes, strict=True):
        flatten(proto.graph, output, math.prod(shape))
    onnx.save(proto, model)
    folder = Path(tempfile.mkdtemp())
    try:
        onnx2tf.convert(
            input_onnx_file_path=model,
            output_folder_path=str(folder),
            keep_ncw_or_nchw_or_ncdhw_input_names=[n for n, a in feed.items() if a.ndim in (3, 4, 5)],
            keep_shape_absolutely_input_names=[n for n, a in feed.items() if a.ndim not in (3, 4, 5)],
            copy_onnx_input_output_names_to_tflite=True,
            not_use_onnxsim=True,
            non_verbose=True,
        )
        (path,) = folder.glob("*_float32.tflite")
        interpreter = Interpreter(model_content=path.read_bytes())
    finally:
        shutil.rmtree(folder)
    runner = interpreter.get_signature_runner()
    types = {name: detail["dtype"] for name, detail in runner.get_input_details().items()}
    names = [output.name for output in proto.graph.output]

    def run(feed: Mapping[str, Any]) -> list[Any]:
        found = runner(**{name: np.ascontiguousarray(feed[name]).astype(types[name]) for name in types})
        return [found[name].reshape(shape) for name, shape in zip(names, shapes, strict=True)]

    return run


def flatten(graph: onnx.GraphProto, output: onnx.ValueInfoProto, size: int) -> None:
    """Let a Reshape to one dimension follow an output."""
    name, shape = f"{output.name}_flat", onnx.numpy_helper.from_array(np.array([size], np.int64))
    shape.name = f"{name}_shape"
    graph.initializer.append(shape)
    graph.node.append(onnx.helper.make_node("Reshape", [output.name, shape.name], [name]))
    output.CopyFrom(onnx.helper.make_tensor_value_info(name, output.type.tensor_type.elem_type, [size]))
