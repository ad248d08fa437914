"""MNN: its converter and its processor backend.

The converter is called without the script of its package, which installs another one and reports its use.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import MNN
import numpy as np
import onnx

CONVERT = "import sys, _tools; _tools.mnnconvert(sys.argv)"


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    outputs = [output.name for output in onnx.load(model, load_external_data=False).graph.output]
    with tempfile.TemporaryDirectory() as folder:
        converted = str(Path(folder) / "m.mnn")
        arguments = ["-f", "ONNX", "--modelFile", model, "--MNNModel", converted, "--bizCode", "x"]
        done = subprocess.run(
            [sys.executable, "-c", CONVERT, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if not os.path.exists(converted):
            raise RuntimeError(said(done.stdout + done.stderr) or f"converter ended with {done.returncode}")
        module = MNN.nn.load_module_from_file(converted, list(feed), outputs)

    def run(feed: Mapping[str, Any]) -> list[Any]:
        given = [placed(array) for array in feed.values()]
        found = module.forward(given)
        found = found if isinstance(found, list | tuple) else [found]
        return [np.array(MNN.expr.convert(one, MNN.expr.NCHW).read()) for one in found]

    return run


def placed(array: Any) -> Any:
    """Return an array as MNN's variable in the order of ONNX."""
    types = {"f": MNN.expr.float, "i": MNN.expr.int, "u": MNN.expr.int, "b": MNN.expr.int}
    element = types[array.dtype.kind]
    plain = np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int32)
    return MNN.expr.const(plain, list(plain.shape), MNN.expr.NCHW, element)


def said(text: str) -> str:
    """Return the line that says what is wrong."""
    lines = [line for line in text.splitlines() if "rror" in line or "upport" in line or "ail" in line]
    return lines[0] if lines else text[-200:]
