"""GPTQ in 4 bits on a decoder of a billion parameters: time and peak of memory, and what a kill costs.

    python tests/benchmarks/large_decoder.py --work /tmp/benchmarks [--layers 16] [--kill-after 120] [--write]

Residual layers of attention (one head, over the positions of a sample) and a gated feed-forward net, with
seeded weights in a file of external data that is written tensor by tensor. With `--kill-after` the run is
killed after that time and started again with the same checkpoint. `--write` writes LARGE_DECODER.md.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
from large_model import measured, memory_mib
from onnx import TensorProto, parser

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
    rng, at = np.random.default_rng(0), 0
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
                data.write(values.data)
                tensor = TensorProto(
                    name=f"w{letter}{number}", data_type=TensorProto.FLOAT, dims=values.shape
                )
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in (("location", "decoder.data"), ("offset", at), ("length", values.nbytes)):
                    tensor.external_data.add(key=key, value=str(value))
                model.graph.initializer.append(tensor)
                at += values.nbytes
    onnx.save(model, folder / "decoder.onnx")
    (folder / "samples").mkdir()
    mixed = rng.standard_normal((256, WIDTH), np.float32)  # few directions: columns are correlated
    for number in range(SAMPLES):
        array = rng.standard_normal((POSITIONS, 256), np.float32) @ mixed / 16
        np.save(
            folder / "samples" / f"{number}.npy", array + rng.standard_normal(array.shape, np.float32) / 2
        )
    return folder / "decoder.onnx", at // 4


def killed(command: list[str], seconds: float) -> float:
    """Start a command and kill it; return the peak of its own memory in MiB."""
    process, start, own = subprocess.Popen(command), time.perf_counter(), 0.0
    while process.poll() is None and time.perf_counter() - start < seconds:
        own = max(own, memory_mib(process.pid)[1])
        time.sleep(0.05)
    process.kill()
    process.wait()
    return own


def main() -> None:
    """Measure what the command line asks for."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--work", type=Path, required=True)
    options.add_argument("--layers", type=int, default=16)
    options.add_argument("--kill-after", type=float, default=0.0)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    folder = given.work / "large-decoder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        model, weights = build(folder, given.layers)
        command = [
            sys.executable,
            "-c",
            "from qprof_onnx.cli.main import main; main()",
            "quantize",
            str(model),
        ]
        command += ["--mode", "weight-only", "--weight-type", "int4", "--rounding", "gptq"]
        command += ["--data", str(folder / "samples"), "--checkpoint", str(folder / "state")]
        command += ["-o", str(folder / "q.onnx")]
        rows = []
        if given.kill_after:
            rows.append(("killed", given.kill_after, killed(command, given.kill_after)))
        found = measured(command)
        rows.append(("resumed" if given.kill_after else "whole", found["seconds"], found["own"]))
        size = sum(path.stat().st_size for path in folder.glob("q.onnx*"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lines = [f"| {name} | {seconds:.0f} | {own:.0f} |" for name, seconds, own in rows]
    table = "\n".join(["| run | seconds | own memory at most, MiB |", "|---|---|---|", *lines])
    page = f"""# GPTQ on a large decoder

Written by large_decoder.py, which says how it is measured: {weights / 1e6:.0f} million weights in
{given.layers} layers, {4 * weights / 1e9:.2f} GB; {size / 1e9:.2f} GB in int4. {SAMPLES} samples of
{POSITIONS} positions.

{table}
"""
    print(page)
    if given.write:
        Path(__file__).with_name("LARGE_DECODER.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
