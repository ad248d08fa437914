"""The kernels of target onnxruntime-arm on an emulated 64-bit Arm, against the plain integer reference.

    python tests/benchmarks/run.py arm --work DIR --emulator "qemu-aarch64 -L SYSTEM ..." --python PYTHON

Models are written here: some for each operator that the target has an integer kernel of, at sizes that leave
remainders, in each form, and whole models (--real). `arm_run.py` runs them here and in the emulator, on
processors with and without dot products; --steps takes write and run apart. An Arm Python is made by
tests/platforms/aarch64.sh. onnxruntime reads /proc/cpuinfo when it is loaded, and crashes where the emulator
shows it the one of this machine, as qemu-user does in 7.2: 10.0 makes one up.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnx_ir as ir
from frame import HERE, Row, Rows, Stage, table
from oracles import run_plan
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.samples import input_specs, open_samples
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.exchange.profiles import read_profile
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.planning.facts import planning_facts
from qprof_onnx.quantizer.planning.noise_budget import make_plan
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.search.benchmark_networks import Net
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

from stages import differential

PROCESSORS = {
    "max": "SVE2, SME, i8mm and dot product",
    "max,sve=off,sme=off": "i8mm and dot product",
    "cortex-a76": "dot product",
    "cortex-a53": "neither",
}
"""Processors that the emulator stands for, and what they have."""

PARTS = 8
"""In how many runs of the emulator the cases are shared: a crash of it loses one of them."""

STATIC: Mapping[str, Mapping[str, Any]] = {
    "int8": {},
    "uint8": {"activation_type": "uint8"},
    "int8 symmetric": {"schema": "symmetric"},
    "per-tensor": {"granularity": "per-tensor"},
    "uint8 weights": {"weight_type": "uint8", "weight_schema": "asymmetric", "granularity": "per-tensor"},
}
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "dynamic": {"mode": "dynamic"},
    "weight-only int8": {"mode": "weight-only"},
    "weight-only int4": {"mode": "weight-only", "weight_type": "int4"},
    "weight-only uint4 float": {
        "mode": "weight-only",
        "weight_type": "uint4",
        "weight_only_activations": "float",
    },
}
FEW = ("Gather of a table", "LSTM", "MatMul", "Gemm")
"""Nets with a weight that the modes of `OTHERS` are for."""


def nets() -> Iterator[tuple[str, Net]]:
    """Yield the operator and a network of it, for all that the target has a kernel of."""
    yield from _convolutions()
    yield from _products()
    yield from _movers()
    picture = (2, 13, 9, 11)
    for op in ("Relu", "Sigmoid", "Tanh", "LeakyRelu"):
        yield op, Net(picture).add(op)
        yield f"Conv {op}", Net(picture).conv(13, 24, (3, 3)).add(op)
    for op in ("Add", "Mul", "Max", "Min"):
        net = Net(picture)
        yield op, net.add(op, net.input(*picture))
        for shape in ((13, 1, 1), (11,), ()):
            net = Net(picture)
            yield op, net.add(op, net.constant(np.full(shape, 0.7, np.float32)))
    net = Net(picture)
    yield "PRelu", net.add("PRelu", net.constant(np.linspace(-0.2, 0.3, 13, dtype=np.float32)[:, None, None]))
    net = Net(picture)
    yield "Clip", net.add("Clip", net.number(-0.4), net.number(0.9))
    net = Net(picture).conv(13, 24, (1, 1))
    inner = net.output
    yield "Silu", net.add("Sigmoid").add("Mul", inner)
    net = Net(picture).conv(13, 13, (3, 3)).add("Relu")
    inner = net.output
    yield "residual", net.conv(13, 13, (3, 3)).add("Add", inner).add("Relu").add("GlobalAveragePool")
    for length, axis in ((7, -1), (100, -1), (13, 1)):
        shape = (5, length) if axis < 0 else (2, length, 6)
        yield "Softmax", Net(shape).add("Softmax", axis=axis)


def _convolutions() -> Iterator[tuple[str, Net]]:
    for inputs, outputs, kernel, group, side in (
        *((16, 32, (1, 1), 1, 14), (13, 27, (1, 1), 1, 9), (64, 64, (3, 3), 1, 14), (5, 7, (3, 3), 1, 11)),
        *((8, 16, (5, 5), 1, 12), (24, 24, (3, 3), 24, 15), (40, 40, (5, 5), 40, 9), (32, 32, (3, 3), 4, 10)),
        *((6, 12, (1, 3), 2, 13), (7, 7, (3, 3), 7, 8), (256, 16, (1, 1), 1, 3)),
    ):
        word = "Conv" if group == 1 else "Conv depthwise" if group == inputs else "Conv grouped"
        yield word, Net((2, inputs, side, side + 1)).conv(inputs, outputs, kernel, group=group)
    yield "Conv", Net((1, 3, 30, 32)).conv(3, 16, (7, 7), stride=2)
    yield "Conv", Net((2, 9, 31)).conv(9, 20, (5,))
    yield "Conv", Net((1, 8, 12, 12)).conv(8, 16, (3, 3)).conv(16, 5, (1, 1))
    for kernel, pads in ((2, 0), (4, 1)):
        net = Net((1, 8, 7, 9))
        weight = net.weight(8, 6, kernel, kernel)
        yield "ConvTranspose", net.add("ConvTranspose", weight, strides=[2, 2], pads=[pads] * 4)


def _products() -> Iterator[tuple[str, Net]]:
    for rows, inner, outputs in ((1, 384, 384), (16, 32, 128), (33, 65, 17), (7, 3, 5), (4, 512, 9)):
        for op in ("MatMul", "Gemm"):
            net = Net((rows, inner))
            more = [net.weight(inner, outputs)] + ([net.weight(outputs)] if op == "Gemm" else [])
            yield op, net.add(op, *more)
        net = Net((rows, inner))
        yield "MatMul to float", net.add("MatMul", net.weight(inner, outputs)).add("Floor")
    net = Net((3, 6, 40))
    yield "MatMul", net.add("MatMul", net.weight(40, 24))
    net = Net((3, 6, 40))
    yield "MatMul of activations", net.add("MatMul", net.input(3, 40, 10))
    net = Net((5, 1, 96))
    weights = net.weight(1, 256, 96), net.weight(1, 256, 64), net.weight(1, 512)
    yield "LSTM", net.add("LSTM", *weights, hidden_size=64)
    net = Net((1, 10, 64))
    here = net.output
    net.add("MatMul", net.weight(64, 64)).add("Transpose", perm=[0, 2, 1])
    keys = net.output
    net.output = here
    net.add("MatMul", net.weight(64, 64)).add("MatMul", keys).add("Softmax", axis=-1)
    scores = net.output
    net.output = here
    values = net.add("MatMul", net.weight(64, 64)).output
    net.output = scores
    yield "attention", net.add("MatMul", values).add("MatMul", net.weight(64, 64))


def _movers() -> Iterator[tuple[str, Net]]:
    picture = (2, 12, 9, 11)

    def net(op: str, *more: Any, shape: tuple[int, ...] = picture, **attributes: Any) -> tuple[str, Net]:
        made = Net(shape)
        names = [name if isinstance(name, str) else made.constant(np.asarray(name)) for name in more]
        return op, made.add(op, *names, **attributes)

    for sides in ((3, 3), (2, 2)):
        yield net("MaxPool", kernel_shape=sides, strides=[2, 2])
        yield net("AveragePool", kernel_shape=sides)
    yield net("GlobalAveragePool")
    made = Net(picture)
    yield "Concat", made.add("Concat", made.input(2, 5, 9, 11), axis=1)
    made = Net(picture)
    mask = made.constant(np.arange(11) % 2 == 0)
    made.nodes.append(onnx.helper.make_node("Where", [mask, "x", made.input(*picture)], ["t0"], "n0"))
    made.output = "t0"
    yield "Where", made
    yield net("Reshape", [2, -1])
    yield net("Flatten")
    yield net("Transpose", perm=[0, 2, 3, 1])
    yield net("Squeeze", [0], shape=(1, 12, 9))
    yield net("Unsqueeze", [0])
    yield net("Slice", [1, 2], [9, 7], [1, 2])
    yield net("Expand", [3, 12, 4, 9], shape=(12, 1, 9))
    yield net("Tile", [1, 2, 1, 3])
    yield net("ReduceMax", [2, 3])
    yield net("ReduceMin", [1])
    yield net("GatherElements", np.arange(60).reshape(5, 12) % 7, axis=1, shape=(5, 12))
    yield net("Gather", [3, 0, 5], axis=1)
    yield net("GatherND", [[1, 3], [0, 0]])
    for mode, how in (("nearest", "asymmetric"), ("linear", "half_pixel")):
        scales = np.array([1, 1, 2, 2], np.float32)
        more = {"nearest_mode": "floor"} if mode == "nearest" else {}
        yield net("Resize", "", scales, mode=mode, coordinate_transformation_mode=how, **more)
    yield net("DepthToSpace", blocksize=2)
    yield net("SpaceToDepth", blocksize=3, shape=(2, 5, 9, 12))
    yield net("Pad", [0, 0, 1, 2, 0, 0, 3, 1])
    made = Net(picture)
    names = ["t0", "unused"]
    made.nodes.append(onnx.helper.make_node("Split", ["x", made.integers(5, 7)], names, "n0", axis=1))
    made.output = "t0"
    yield "Split", made


def samples(net: Net) -> list[Mapping[str, np.ndarray[Any, Any]]]:
    """Return samples of the standard normal distribution, the last of which is run."""
    rng = np.random.default_rng(1)
    shapes = {"x": net.shape, **net.inputs}
    return [{n: rng.standard_normal(s, np.float32) for n, s in shapes.items()} for _ in range(4)]


def write_cases(work: Path, real: Path | None) -> None:
    """Write every case: a model, its inputs and what the reference makes of them."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "cases").mkdir(parents=True)
    for number, (op, net) in enumerate(nets()):
        path = work / f"{number}.onnx"
        onnx.save(net.model(), path)
        data = work / f"data{number}"
        data.mkdir()
        for index, arrays in enumerate(samples(net)):
            np.savez(data / f"{index}.npz", **arrays)
        settings = {**STATIC, **(OTHERS if op in FEW else {})} if op != "LSTM" else OTHERS
        for word, setting in settings.items():
            forms = FORMS if word == "int8" else ("qdq", "qoperator")
            _write(work, f"{number:03} {op}", path, data, (word, setting, forms))
    for folder in sorted(real.iterdir()) if real is not None else ():
        model, data = folder / "model.onnx", folder / "data"
        _write(work, f"model {folder.name}", model, data, ("int8", {}, ("qdq", "qoperator")))


def _write(work: Path, title: str, path: Path, data: Path, how: tuple[str, Mapping[str, Any], Any]) -> None:
    word, setting, forms = how
    prepared = open_prepared(path)
    try:
        recipe = load_recipe("onnxruntime-arm", {"min_output_sqnr": 0.0, "cost_model": "off", **setting})
    except QprofError as error:
        print(f"{title}, {word}: {error}")
        return
    profile_path = work / "profile.yaml"
    profile_model(path, str(data), profile_path, RunSettings(limit=8, noise_samples=0))
    profile = read_profile(profile_path, prepared.model, prepared.identity)
    plan = make_plan(planning_facts(prepared, profile, recipe), start_everywhere=True)
    feed = [sample.arrays for sample in open_samples(str(data), input_specs(prepared.model), 4)][-1]
    if "mode" in setting and not any(entry.kind is not Kind.FLOAT for entry in plan.nodes.values()):
        return
    expected = {} if "mode" in setting else run_plan(prepared.model, plan, feed)
    watched = [] if "mode" in setting else differential.last_quantized(prepared.graph, plan, expected)
    for form in forms:
        formed = replace(plan, config=replace(plan.config, form=form))
        try:
            proto = differential.with_outputs(ir.to_proto(lower(prepared.model, formed).model), watched)
        except QprofError as error:
            print(f"{title}, {word}, {form}: not written: {str(error)[:120]}")
            continue
        folder = work / "cases" / f"{title}, {word}, {form}"
        folder.mkdir()
        onnx.save(proto, folder / "model.onnx")
        np.savez(folder / "inputs.npz", **feed)
        names = [output.name for output in proto.graph.output]
        found = {name: expected[name] for name in names if name in expected and expected[name].params}
        steps = {name: tensor.params.tensor_scale for name, tensor in found.items() if tensor.params}
        (folder / "names.json").write_bytes(msgspec.json.encode([names, steps]))
        np.savez(folder / "expected.npz", **{name: tensor.values for name, tensor in found.items()})


def run_cases(work: Path, emulator: str, python: str) -> None:
    """Run all cases here and on every emulated processor."""
    script, words = str(HERE / "arm_run.py"), shlex.split(emulator)
    subprocess.run([sys.executable, script, str(work / "cases"), str(work / "here.npz")], check=True)
    for name in PROCESSORS:
        command = [*words[:1], "-cpu", name, *words[1:], python, script, str(work / "cases")]
        for part in range(PARTS):
            out = str(work / f"{name}.{part}.npz")
            subprocess.run([*command, out, f"{part}/{PARTS}"], check=True)


def results_of(work: Path, run: str) -> dict[str, Any]:
    """Return all outputs of a run, which may be in parts."""
    parts = [work / f"{run}.npz", *(work / f"{run}.{part}.npz" for part in range(PARTS))]
    files = [path for path in parts if path.exists()]
    found: dict[str, Any] = {}
    for path in files:
        with np.load(path) as archive:
            found |= {key: archive[key] for key in archive.files}
    return found


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Write and run the cases, then yield a row for each case, level and run: `error`, or `same` and
    differences.

    `largest` is the largest difference, in steps of the output's scale, of float outputs of their largest;
    `off` and `count` are the outputs that differ by a step or more, and all; `same`: they have the bits that
    they have here.
    """
    work = given.work / "arm"
    if "write" in given.steps:
        write_cases(work, given.real)
    if "run" in given.steps:
        run_cases(work, given.emulator, given.python)
    runs = {run: found for run in ("here", *PROCESSORS) if (found := results_of(work, run))}
    for folder in sorted((work / "cases").iterdir()):
        title, rest = folder.name.split(", ", 1)
        word, form = rest.rsplit(", ", 1)
        names, steps = msgspec.json.decode((folder / "names.json").read_bytes())
        with np.load(folder / "expected.npz") as archive:
            wanted = (names, steps, dict(archive))
        operator = title if title.startswith("model") else title.split(" ", 1)[1]
        for level in ("optimised", "plain"):
            for run, found in runs.items():
                figures = _figures(f"{folder.name}|{level}", wanted, found, runs["here"])
                if figures:
                    how = f"{word}, {form}{'' if level == 'optimised' else ', plain'}"
                    yield {"operator": operator, "setting": word, "how": how, "run": run, **figures}


def _figures(case: str, wanted: Any, found: Mapping[str, Any], here: Mapping[str, Any]) -> Row:
    names, steps, expected = wanted
    if f"{case}|error" in found:
        return {"error": str(found[f"{case}|error"])}
    if f"{case}|0" not in found:
        return {}
    same, largest, off, count = True, 0.0, 0, 0
    for index, name in enumerate(names):
        array, other = found[f"{case}|{index}"], here[f"{case}|{index}"]
        same = same and np.array_equal(array, other, equal_nan=array.dtype.kind == "f")
        if name in steps:
            apart = np.rint(np.abs(array.astype(np.float64) - expected[name]) / steps[name])
            largest = max(largest, float(apart.max(initial=0.0)))
            off, count = off + int((apart > 0).sum()), count + apart.size
        elif not steps:
            top = float(np.abs(other).max(initial=0.0)) or 1.0
            largest = max(largest, float(np.abs(array.astype(np.float64) - other).max(initial=0.0)) / top)
    return {"same": same, "largest": largest, "off": off, "count": count}


def page(rows: Rows) -> str:
    """Return the figures of each operator, over all settings and forms."""
    found = [row for some in rows.values() for row in some]
    runs = [run for run in ("here", *PROCESSORS) if any(row["run"] == run for row in found)]
    cells: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in found:
        kind = "" if row["setting"] in STATIC else f", {row['setting']}"
        cells[f"{row['operator']}{kind}"][row["run"]].append(row)
    titles = {"here": "x86-64 with VNNI", **{name: f"Arm: {what}" for name, what in PROCESSORS.items()}}
    lines = [[name, *(_cell(some[run]) for run in runs)] for name, some in cells.items()]
    return table(["", *(titles[run] for run in runs)], lines)


def _cell(rows: Sequence[Row]) -> str:
    errors = [f"{row['how']}: {row['error']}" for row in rows if "error" in row]
    ran = [row for row in rows if "error" not in row]
    if not ran:
        return f"does not run: {errors[0][:80]}" if errors else ""
    largest, off, count = (
        max(row["largest"] for row in ran),
        sum(r["off"] for r in ran),
        sum(r["count"] for r in ran),
    )
    if not count:
        apart = f"{largest:.0e} of the largest" if largest else "the same bits"
    else:
        apart = f"{largest:.0f} ({100 * off / count:.2g} %)" if off else "0"
    refused = f", {len(errors)} refused" if errors else ""
    return f"{apart}; {sum(row['same'] for row in ran)} of {len(ran)}{refused}"


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--emulator", default="qemu-aarch64")
    parser.add_argument("--python", default="python3", help="an interpreter for Arm")
    parser.add_argument("--real", type=Path, help="folder of folders with model.onnx and data")
    parser.add_argument(
        "--steps", default="write,run", help="some of write, run; then the cases are compared"
    )


STAGE = Stage(rows, {"ARM.md": page}, (), options)
