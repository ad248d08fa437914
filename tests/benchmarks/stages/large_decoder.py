"""GPTQ in 4 bits on a decoder of a billion parameters: time and peak of memory, and what a kill costs.

    python tests/benchmarks/run.py large-decoder --work DIR --layers 16 --kill-after 120

Residual layers of attention (one head, over the positions of a sample) and a gated feed-forward net, with
seeded weights in a file of external data that is written tensor by tensor. With `--kill-after` the run is
killed after that time and started again with the same checkpoint.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from frame import Row, Rows, Stage, table
from measured import own_mb
from onnx import parser
from workbench import QPROF

from stages.large_model import appended, figures

WIDTH, INNER = 2048, 8192
POSITIONS, SAMPLES = 64, 4
LAYER = """
    n{i} = LayerNormalization (x{i}, one, zero)
    q{i} = MatMul (n{i}, wq{i}) k{i} = MatMul (n{i}, wk{i}) v{i} = MatMul (n{i}, wv{i})
    kt{i} = Transpose <perm = [1, 0]> (k{i}) s{i} = MatMul (q{i}, kt{i}) c{i} = Mul (s{i}, root)
    p{i} = Softmax (c{i}) a{i} = MatMul (p{i}, v{i}) o{i} = MatMul (a{i}, wo{i}) r{i} = Add (x{i}, o{i})
    m{i} = LayerNormalization (r{i}, one, zero) g{i} = MatMul (m{i}, wg{i}) u{i} = MatMul (m{i}, wu{i})
    e{i} = Sigmoid (g{i}) f{i} = Mul (g{i}, e{i}) h{i} = Mul (f{i}, u{i}) d{i} = MatMul (h{i}, wd{i})
    x{j} = Add (r{i}, d{i})
"""


def build(folder: Path, layers: int) -> tuple[Path, int]:
    """Write the model and its samples; return its path and how many weights it has."""
    text = "".join(LAYER.format(i=i, j=i + 1) for i in range(layers))
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> decoder (float[{POSITIONS}, {WIDTH}] x0) => '
        f"(float[{POSITIONS}, {WIDTH}] x{layers}) <float[{WIDTH}] one, float[{WIDTH}] zero, float root> "
        f"{{ {text} }}"
    )
    del model.graph.input[1:]
    rng, count = np.random.default_rng(0), 0
    small = {"one": np.ones(WIDTH), "zero": np.zeros(WIDTH), "root": np.array(WIDTH**-0.5)}
    del model.graph.initializer[:]
    for name, array in small.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    with (folder / "decoder.data").open("wb") as data:
        for number in range(layers):
            for letter in "qkvogud":
                rows, columns = {"g": (WIDTH, INNER), "u": (WIDTH, INNER), "d": (INNER, WIDTH)}.get(
                    letter, (WIDTH, WIDTH)
                )
                values = rng.standard_normal((rows, columns), np.float32)
                values *= np.float32(1.0 / np.sqrt(rows))
                model.graph.initializer.append(appended(data, f"w{letter}{number}", values))
                count += values.size
    onnx.save(model, folder / "decoder.onnx")
    (folder / "samples").mkdir()
    mixed = rng.standard_normal((256, WIDTH), np.float32)  # few directions: columns are correlated
    for number in range(SAMPLES):
        array = rng.standard_normal((POSITIONS, 256), np.float32) @ mixed / 16
        np.save(
            folder / "samples" / f"{number}.npy", array + rng.standard_normal(array.shape, np.float32) / 2
        )
    return folder / "decoder.onnx", count


def killed(command: list[str], seconds: float) -> float:
    """Start a command and kill it; return the peak of its own memory in MiB."""
    process, start, own = subprocess.Popen(command), time.perf_counter(), 0.0
    while process.poll() is None and time.perf_counter() - start < seconds:
        own = max(own, own_mb(process.pid))
        time.sleep(0.05)
    process.kill()
    process.wait()
    return own


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Yield seconds and the peak of memory of the run, or of the killed one and that which goes on."""
    with tempfile.TemporaryDirectory(dir=given.work) as place:
        folder = Path(place)
        model, weights = build(folder, given.layers)
        command = [*QPROF, "quantize", str(model), "--mode", "weight-only", "--weight-type", "int4"]
        command += ["--rounding", "gptq", "--data", str(folder / "samples")]
        command += ["--checkpoint", str(folder / "state"), "-o", str(folder / "q.onnx")]
        if given.kill_after:
            yield {"run": "killed", "seconds": given.kill_after, "own_mb": killed(command, given.kill_after)}
        yield {"run": "resumed" if given.kill_after else "whole", **figures(command)}
        size = sum(path.stat().st_size for path in folder.glob("q.onnx*"))
    yield {"weights": weights, "layers": given.layers, "size": size}


def page(rows: Rows) -> str:
    ((*runs, last),) = rows.values()
    cells = [[run["run"], f"{run['seconds']:.0f}", f"{run['own_mb']:.0f}"] for run in runs]
    return (
        f"{last['weights'] / 1e6:.0f} million weights in {last['layers']} layers, "
        f"{4 * last['weights'] / 1e9:.2f} GB; "
        f"{last['size'] / 1e9:.2f} GB in int4. {SAMPLES} samples of {POSITIONS} positions.\n\n"
        + table(["run", "seconds", "own memory at most, MiB"], cells)
    )


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--kill-after", type=float, default=0.0, help="seconds; 0: not killed")


STAGE = Stage(rows, {"": page}, (), options)
