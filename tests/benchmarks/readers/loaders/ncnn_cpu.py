"""ncnn, with pnnx as its converter of ONNX."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ncnn
import numpy as np
import pnnx


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    folder = Path(tempfile.mkdtemp())
    try:
        shutil.copy(model, folder / "m.onnx")
        types = {"float32": "f32", "int64": "i64", "int32": "i32", "uint8": "u8", "bool": "u8"}
        shapes = ",".join(
            f"[{','.join(map(str, a.shape))}]{types.get(str(a.dtype), 'f32')}" for a in feed.values()
        )
        done = subprocess.run(
            [pnnx.EXEC_PATH, "m.onnx", f"inputshape={shapes}"],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if not (folder / "m.ncnn.param").exists():
            raise RuntimeError(f"pnnx ended with {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
        net = ncnn.Net()
        net.opt.use_fp16_storage = net.opt.use_fp16_packed = net.opt.use_fp16_arithmetic = False
        net.opt.use_bf16_storage = False
        text = (folder / "m.ncnn.param").read_text(encoding="utf-8")
        if net.load_param(str(folder / "m.ncnn.param")) or net.load_model(str(folder / "m.ncnn.bin")):
            unknown = [line for line in done.stderr.splitlines() if "ignore" in line or "unsupported" in line]
            raise RuntimeError("; ".join(unknown)[:300] or f"does not load {unread(text)}")
    finally:
        shutil.rmtree(folder)

    def run(feed: Mapping[str, Any]) -> list[Any]:
        extractor = net.create_extractor()
        for place, array in enumerate(feed.values()):  # it has no axis for the batch
            extractor.input(f"in{place}", ncnn.Mat(np.ascontiguousarray(array[0])).clone())
        return [np.array(extractor.extract(name)[1])[None] for name in sorted(net.output_names())]

    return run


def unread(text: str) -> str:
    """Return the kinds of layers that pnnx did not translate: those with a dot."""
    kinds = {line.split()[0] for line in text.splitlines()[2:] if line.split()}
    return ", ".join(sorted(kind for kind in kinds if "." in kind or "::" in kind))
