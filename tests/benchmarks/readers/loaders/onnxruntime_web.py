"""onnxruntime-web: onnxruntime as WebAssembly, here in Node; NODE_MODULES says where it is installed."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SCRIPT = Path(__file__).with_name("node.mjs")


def load(
    model: str, feed: Mapping[str, Any], package: str = "onnxruntime-web"
) -> Callable[[Mapping[str, Any]], list[Any]]:
    folder = Path(tempfile.mkdtemp())
    try:
        shutil.copy(model, folder / "model.onnx")
        inputs = []
        for place, (name, array) in enumerate(feed.items()):
            (folder / f"in{place}.raw").write_bytes(np.ascontiguousarray(array).tobytes())
            shape = [int(size) for size in array.shape]
            inputs.append({"input": name, "type": str(array.dtype), "dims": shape, "file": f"in{place}.raw"})
        (folder / "feed.json").write_text(json.dumps({"inputs": inputs}), encoding="utf-8")
        subprocess.run(["node", SCRIPT, package, folder], check=True, capture_output=True, timeout=120)
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        if not answer.get("loaded"):
            raise RuntimeError(answer["said"])
        found = [
            np.frombuffer((folder / f"out{place}.raw").read_bytes(), output["type"]).reshape(output["dims"])
            for place, output in enumerate(answer.get("outputs", ()))
        ]
    finally:
        shutil.rmtree(folder)

    def run(_: Mapping[str, Any]) -> list[Any]:
        if "outputs" not in answer:
            raise RuntimeError(answer["said"])
        return found

    return run
