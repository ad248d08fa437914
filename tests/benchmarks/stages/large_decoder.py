"""Weights of a decoder of a billion parameters in 4 bits: time, own memory, and what a kill costs.

    python tests/benchmarks/run.py large-decoder "1 G" "8 G, float16" --work DIR

Residual layers of attention (one head, over the positions of a sample) and a gated feed-forward net, one
table for both ends, with seeded weights in a file of external data that is written tensor by tensor. A second
run of GPTQ is killed after some processor time and started again with its checkpoint. "Own memory" is the
peak of RssAnon, which mapped files are no part of: the system drops their pages at will. The model of eight
billion needs 21 GB of disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from frame import Row, Rows, Stage, table
from measured import own_mb
from onnx import parser
from workbench import QPROF, digest_of, figures

WIDTH, INNER, TOKENS = 2048, 8192, 32000
POSITIONS, SAMPLES = 64, 8
LIMIT = 4 * 3600  # seconds that a command may take
LAYER = """
    n{i} = LayerNormalization (x{i}, one, zero)
    q{i} = MatMul (n{i}, wq{i}) k{i} = MatMul (n{i}, wk{i}) v{i} = MatMul (n{i}, wv{i})
    kt{i} = Transpose <perm = [0, 2, 1]> (k{i}) s{i} = MatMul (q{i}, kt{i}) c{i} = Mul (s{i}, root)
    p{i} = Softmax (c{i}) a{i} = MatMul (p{i}, v{i}) o{i} = MatMul (a{i}, wo{i}) r{i} = Add (x{i}, o{i})
    m{i} = LayerNormalization (r{i}, one, zero) g{i} = MatMul (m{i}, wg{i}) u{i} = MatMul (m{i}, wu{i})
    e{i} = Sigmoid (g{i}) f{i} = Mul (g{i}, e{i}) h{i} = Mul (f{i}, u{i}) d{i} = MatMul (h{i}, wd{i})
    x{j} = Add (r{i}, d{i})
"""


@dataclass(frozen=True)
class Size:
    """What is measured on a decoder.

    Attributes:
        layers: of it.
        dtype: element type of its floats.
        has_gptq: whether GPTQ is measured, or what needs no samples.
        kill_after: seconds of processor after which GPTQ is killed in a second run; 0 for no second run.
    """

    layers: int
    dtype: type[np.floating] = np.float32
    has_gptq: bool = False
    kill_after: float = 0.0


SIZES = {
    "1 G": Size(14),
    "4 G": Size(58),
    "1 G, float16": Size(14, np.float16),
    "8 G, float16": Size(119, np.float16),
    "0.2 G, GPTQ": Size(2, has_gptq=True, kill_after=60.0),
    "1 G, GPTQ": Size(14, has_gptq=True, kill_after=450.0),
}
LARGEST_OF_PEER = 20
"""Layers of a decoder whose weights onnxruntime's tool, which holds them all, gets."""


def appended(data: BinaryIO, name: str, values: np.ndarray) -> onnx.TensorProto:
    """Write a weight to a file of external data; return the tensor that stands for it."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
    tensor = onnx.TensorProto(name=name, data_type=kind, dims=values.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": Path(data.name).name, "offset": data.tell(), "length": values.nbytes}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    data.write(values.data)
    return tensor


def build(folder: Path, size: Size) -> tuple[Path, int]:
    """Write the model and its samples; return its path and how many weights it has."""
    layers, element = size.layers, np.dtype(size.dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(element)
    text = "".join(LAYER.format(i=i, j=i + 1) for i in range(layers))
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> decoder (int64[B, N] ids) => '
        f"({onnx.TensorProto.DataType.Name(kind).lower()}[B, N, {TOKENS}] logits) "
        f"{{ x0 = Gather (table, ids) {text} "
        f"last = LayerNormalization (x{layers}, one, zero) "
        "turned = Transpose <perm = [1, 0]> (table) logits = MatMul (last, turned) }"
    )
    rng, count = np.random.default_rng(0), 0
    small = {"one": np.ones(WIDTH), "zero": np.zeros(WIDTH), "root": np.array(WIDTH**-0.5)}
    for name, array in small.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(element), name))
    shapes = {"table": (TOKENS, WIDTH)}
    for number in range(layers):
        shapes |= {f"w{letter}{number}": (WIDTH, WIDTH) for letter in "qkvo"}
        shapes |= {f"w{letter}{number}": (WIDTH, INNER) for letter in "gu"} | {f"wd{number}": (INNER, WIDTH)}
    with (folder / "decoder.data").open("wb") as data:
        for name, shape in shapes.items():
            values = rng.standard_normal(shape, np.float32)
            values *= np.float32(1.0 if name == "table" else shape[0] ** -0.5)
            model.graph.initializer.append(appended(data, name, values.astype(element)))
            count += values.size
    onnx.save(model, folder / "decoder.onnx")
    (folder / "samples").mkdir()
    for number in range(SAMPLES):
        ids = (TOKENS * rng.random((1, POSITIONS)) ** 3).astype(np.int64)  # some tokens are frequent
        np.savez(folder / "samples" / f"{number}.npz", ids=ids)
    return folder / "decoder.onnx", count


PEER = """
import sys, onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
quantizer = MatMulNBitsQuantizer(onnx.load(sys.argv[1]), bits=4, block_size=32, accuracy_level=4)
quantizer.process()
quantizer.model.save_model_to_file(sys.argv[2], use_external_data_format=True)
"""
WITHIN = ("sh", "-c", 'ulimit -v "$0"; exec "$@"')


def killed(command: Sequence[str], processor: float) -> Row:
    """Start a command, kill it after some seconds of processor, and return what it took."""
    process, start, own, spent = subprocess.Popen(command), time.perf_counter(), 0.0, 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    while process.poll() is None and spent < processor:
        own = max(own, own_mb(process.pid))
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        spent = (int(fields[11]) + int(fields[12])) / ticks
        time.sleep(0.05)
    process.kill()
    process.wait()
    return {"seconds": time.perf_counter() - start, "processor": spent, "own_mb": own}


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Yield the time and the own memory of each run."""
    if "time" not in given.parts:
        return
    size = SIZES[subject]
    with tempfile.TemporaryDirectory(dir=given.work) as place:
        folder = Path(place)
        model, weights = build(folder, size)
        out = folder / "q.onnx"

        def written() -> tuple[int, str]:
            files = sorted(folder.glob("q.onnx*"))
            found = sum(file.stat().st_size for file in files), digest_of(*files)
            for file in files:
                file.unlink()
            return found

        whole = sum(path.stat().st_size for path in folder.glob("decoder.*"))
        yield {
            "weights": weights,
            "layers": size.layers,
            "float": whole,
            "dtype": np.dtype(size.dtype).name,
        }
        plain = [*QPROF, "quantize", str(model), "--as", "weight-only-4"]
        plain += ["-o", str(out)]
        if size.has_gptq:
            gptq = [*plain, "--rounding", "gptq", "--data", str(folder / "samples")]
            gptq += ["--checkpoint", str(folder / "state")]
            first = figures(gptq, LIMIT)
            bytes_, digest = written()
            yield {"run": "qprof, GPTQ", **first, "size": bytes_}
            if size.kill_after:
                yield {"run": "qprof, GPTQ, killed", **killed(gptq, size.kill_after)}
                for file in folder.glob("q.onnx*"):  # a kill leaves at most a part under another name
                    file.unlink()
                second = figures(gptq, LIMIT)
                bytes_, again = written()
                same = "the same bytes" if again == digest else "OTHER BYTES"
                yield {"run": f"started again: {same}", **second, "size": bytes_}
            return
        yield {"run": "qprof", **figures(plain, LIMIT), "size": written()[0]}
        yield {
            "run": "qprof, `ulimit -v` of four times the file",
            **figures([*WITHIN, str(4 * whole // 1024), *plain], LIMIT),
            "size": written()[0],
        }
        if size.dtype is np.float32 and size.layers <= LARGEST_OF_PEER:
            peer = [sys.executable, "-c", PEER, str(model), str(out)]
            yield {
                "run": "onnxruntime's `MatMulNBitsQuantizer`",
                **figures(peer, LIMIT),
                "size": written()[0],
            }


def page(rows: Rows) -> str:
    cells = [
        [
            f"{first['weights'] / 1e9:.1f} billion, {first['float'] / 1e9:.1f} GB in {first['dtype']}",
            run["run"],
            f"{run['processor']:.0f}",
            f"{run['own_mb'] / 1024:.2f}",
            f"{run['size'] / 1e9:.2f}" if "size" in run else "",
        ]
        for first, *runs in rows.values()
        for run in runs
    ]
    columns = ["weights", "run, to 4 bits", "seconds of processor", "own memory at most, GiB", "written, GB"]
    return (
        f"{table(columns, cells)}\n\nLayers of a decoder and a table of {TOKENS} tokens; GPTQ with {SAMPLES} "
        f"samples of {POSITIONS} positions."
    )


STAGE = Stage(rows, {"large-decoder": page}, ("1 G", "8 G, float16"))
