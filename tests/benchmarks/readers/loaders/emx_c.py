"""emx-onnx-cgen: ONNX as C, compiled with the compiler of the machine."""

import ctypes
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

TOOL = Path(sys.executable).parent / "emx-onnx-cgen"


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    graph = onnx.shape_inference.infer_shapes(onnx.load(model), data_prop=True).graph
    folder = Path(tempfile.mkdtemp())
    source, library = folder / "m.c", folder / "m.so"
    command([TOOL, "compile", "--color", "never", "--model-name", "m", model, source])
    command(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-lm"])
    function = ctypes.CDLL(str(library)).m
    shapes = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in graph.output]
    types = [onnx.helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type) for o in graph.output]
    assert re.search(r"\bvoid m\(", source.read_text(encoding="utf-8")), "another signature"

    def run(feed: Mapping[str, Any]) -> list[Any]:
        found = [np.zeros(shape, dtype) for shape, dtype in zip(shapes, types, strict=True)]
        given = [np.ascontiguousarray(array) for array in feed.values()]
        function(*(a.ctypes.data_as(ctypes.c_void_p) for a in (*given, *found)))
        return found

    return run


def command(words: list[Any]) -> None:
    done = subprocess.run(
        [str(word) for word in words], check=False, capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip()[-300:])
