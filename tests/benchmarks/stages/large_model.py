"""A model of more than 2 GB, profiled and quantized, with the peak of memory of each step.

    python tests/benchmarks/run.py large-model --work DIR --gigabytes 3.2

The model is a stack of residual pairs of MatMuls with seeded weights, in a file of external data that is
written layer by layer. Each step is a process of its own; its peak counts the pages of mapped files, which
the system may drop at will, so the part that is the process's own is given too. Files are removed at the end.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from frame import Row, Rows, Stage, table
from onnx import TensorProto, helper
from workbench import LIMIT, QPROF, measured

WIDTH, INNER = 4096, 16384
ROWS, FEEDS = 16, 8


def appended(data: BinaryIO, name: str, values: np.ndarray) -> TensorProto:
    """Write a weight to a file of external data; return the tensor that stands for it."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=values.shape)
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": Path(data.name).name, "offset": data.tell(), "length": values.nbytes}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    data.write(values.data)
    return tensor


def build(folder: Path, gigabytes: float) -> Path:
    """Write the model and its feeds; return the model's path. One layer's weights are in memory at a time."""
    layer = 2 * WIDTH * INNER * 4
    layers = max(1, round(gigabytes * 1e9 / layer))
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    with (folder / "large.data").open("wb") as data:
        for number in range(layers):
            up, down, out = f"up{number}", f"down{number}", f"x{number}"
            for name, shape in ((f"w_{up}", (WIDTH, INNER)), (f"w_{down}", (INNER, WIDTH))):
                values = rng.standard_normal(shape, np.float32)
                values *= np.float32(0.7 / np.sqrt(shape[0]))
                weights.append(appended(data, name, values))
            nodes += [
                helper.make_node("MatMul", [x, f"w_{up}"], [up]),
                helper.make_node("Relu", [up], [f"relu{number}"]),
                helper.make_node("MatMul", [f"relu{number}", f"w_{down}"], [down]),
                helper.make_node("Add", [x, down], [out]),
            ]
            x = out
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", WIDTH])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["N", WIDTH])],
        weights,
    )
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    (folder / "feeds").mkdir()
    for number in range(FEEDS):
        np.save(folder / "feeds" / f"{number}.npy", rng.standard_normal((ROWS, WIDTH), np.float32))
    return path


PLAIN = """
import sys, pathlib, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
for path in sorted(pathlib.Path(sys.argv[2]).iterdir()):
    session.run(None, {"x": numpy.load(path)})
"""
"""What a user takes at least."""


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Yield the time and the peaks of memory of each step."""
    with tempfile.TemporaryDirectory(dir=given.work) as place:
        folder = Path(place)
        model = build(folder, given.gigabytes)
        profile, feeds, quantized = (str(folder / name) for name in ("p.yaml", "feeds", "q.onnx"))
        steps = {
            "plain inference": [sys.executable, "-c", PLAIN, str(model), feeds],
            "qprof dump-profile": [*QPROF, "dump-profile", str(model), "--data", feeds, "-o", profile],
            "qprof quantize": [*QPROF, "quantize", str(model), "--profile", profile, "-o", quantized],
        }
        for name, command in steps.items():
            yield {"step": name, **figures(command)}
        sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.data"))}
    yield {"sizes": ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in sizes.items())}


def figures(command: Sequence[str], limit: float = LIMIT) -> Row:
    """Return what a command took, which may take so many seconds.

    Raises:
        RuntimeError: it failed.
    """
    taken = measured(command, limit=limit)
    if taken["exit"]:
        raise RuntimeError(f"{' '.join(command)}: exit code {taken['exit']}: {taken['said']}")
    return {key: taken[key] for key in ("seconds", "processor", "peak_mb", "own_mb")}


def page(rows: Rows) -> str:
    ((*steps, last),) = rows.values()
    cells = [[s["step"], *(f"{s[key]:.0f}" for key in ("processor", "peak_mb", "own_mb"))] for s in steps]
    head = ["step", "seconds of processor", "peak, MiB", "of it not pages of files, MiB"]
    return f"{FEEDS} feeds of {ROWS} rows; weights: {last['sizes']}.\n\n{table(head, cells)}"


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--gigabytes", type=float, default=3.2)


STAGE = Stage(rows, {"LARGE_MODEL.md": page}, (), options)
