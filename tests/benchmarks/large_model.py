"""A model of more than 2 GB, profiled and quantized, with the peak of memory of each step.

    python tests/benchmarks/large_model.py --work /tmp/benchmarks [--gigabytes 3.2]

The model is a stack of residual pairs of MatMuls with seeded weights, in a file of external data that is
written layer by layer. Each step is a process of its own; its peak counts the pages of mapped files, which
the system may drop at will, so the part that is the process's own is given too. Files are removed at the end.
`--write` writes LARGE_MODEL.md beside this script.
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
from onnx import TensorProto, helper

WIDTH, INNER = 4096, 16384
ROWS, FEEDS = 16, 8


def build(folder: Path, gigabytes: float) -> Path:
    """Write the model and its feeds; return the model's path. One layer's weights are in memory at a time."""
    layer = 2 * WIDTH * INNER * 4
    layers = max(1, round(gigabytes * 1e9 / layer))
    rng = np.random.default_rng(0)
    nodes, weights, x, at = [], [], "x", 0
    with (folder / "large.data").open("wb") as data:
        for number in range(layers):
            up, down, out = f"up{number}", f"down{number}", f"x{number}"
            for name, shape in ((f"w_{up}", (WIDTH, INNER)), (f"w_{down}", (INNER, WIDTH))):
                values = rng.standard_normal(shape, np.float32)
                values *= np.float32(0.7 / np.sqrt(shape[0]))
                data.write(values.data)
                tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in (("location", "large.data"), ("offset", at), ("length", values.nbytes)):
                    tensor.external_data.add(key=key, value=str(value))
                weights.append(tensor)
                at += values.nbytes
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


def memory_mib(pid: int) -> tuple[float, float]:
    """Return the peak of all memory that a process has touched, and what it holds itself now, in MiB."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0, 0.0
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return tuple(float(fields.get(name, "0").split()[0]) / 1024 for name in ("VmHWM", "RssAnon"))


def measured(command: list[str]) -> dict[str, float]:
    """Run a command; return seconds, and the peaks of its memory and of its own part of it in MiB."""
    start = time.perf_counter()
    process = subprocess.Popen(command)
    found = [(0.0, 0.0)]
    while process.poll() is None:
        found.append(memory_mib(process.pid))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    touched, own = (max(column) for column in zip(*found, strict=True))
    return {"seconds": time.perf_counter() - start, "peak": touched, "own": own}


def plain(model: Path, feeds: Path) -> None:
    """Run the model as a user would: what it takes at least."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for path in sorted(feeds.iterdir()):
        session.run(None, {"x": np.load(path)})


def steps(folder: Path, gigabytes: float) -> tuple[dict[str, dict[str, float]], str]:
    """Measure each step, by name; return the sizes of the files of weights as well."""
    model = build(folder, gigabytes)
    qprof = [sys.executable, "-c", "from qprof_onnx.cli.main import main; main()"]
    profile, feeds, quantized = folder / "p.yaml", folder / "feeds", folder / "q.onnx"
    found = {"plain inference": measured([sys.executable, __file__, "--plain", str(model), str(feeds)])}
    dump = [*qprof, "dump-profile", str(model), "--data", str(feeds), "-o", str(profile)]
    found["qprof dump-profile"] = measured(dump)
    found["qprof quantize"] = measured(
        [*qprof, "quantize", str(model), "--profile", str(profile), "-o", str(quantized)]
    )
    sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.data"))}
    return found, ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in sizes.items())


def table(found: dict[str, dict[str, float]]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| step | seconds | peak, MiB | of it not pages of files, MiB |", "|---|---|---|---|"]
    for name, row in found.items():
        lines.append(f"| {name} | {row['seconds']:.1f} | {row['peak']:.0f} | {row['own']:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--gigabytes", type=float, default=3.2)
    parser.add_argument("--write", action="store_true")
    if sys.argv[1:2] == ["--plain"]:
        plain(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    given = parser.parse_args()
    folder = given.work / "large-model"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        found, sizes = steps(folder, given.gigabytes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page = f"""# A model of more than 2 GB

Written by large_model.py, which says how it is measured. {FEEDS} feeds of {ROWS} rows; weights: {sizes}.

{table(found)}
"""
    print(page)
    if given.write:
        Path(__file__).with_name("LARGE_MODEL.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
