"""The undamaged files that all cases start from: small models, samples, and what qprof makes of them."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from qprof_onnx.cli.main import main

from damage.cases import Base

ROWS = 8
CLASSES = 4
SMALL_FILES = Path(__file__).parents[2] / "data"

DUMP = ("dump-profile", "model.onnx", "--data", "cal")
RESUME = ("dump-profile", "model.onnx", "--data", "own:samples", "-o", "out.yaml")
RESUME = (*RESUME, "--checkpoint", "progress.qprof")
"""A checkpoint knows its data by the path of its folder, and each case has another; a module has none."""
QUANTIZE = ("quantize", "model.onnx", "--profile", "profile.yaml")
TUNE = ("tune", "model.onnx", "--data", "cal", "--profile", "profile.yaml", "--labels", "labels.txt")
TUNE = (*TUNE, "--objective", "int8-share", "--max-drop", "50")


def constant(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    values = np.random.default_rng([seed, *name.encode()]).normal(0, 0.4, shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


def saved(graph: onnx.GraphProto, path: Path, functions: tuple[onnx.FunctionProto, ...] = ()) -> None:
    opsets = [helper.make_opsetid("", 17)] + [helper.make_opsetid("own", 1)] * bool(functions)
    model = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8)
    path.write_bytes(model.SerializeToString(deterministic=True))


def convolutions(path: Path) -> None:
    """Write a small classifier of pictures."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "m", "n"], ["y"], "head"),
    ]
    constants = [constant("w", 4, 1, 3, 3), constant("b", 4), constant("m", 36, CLASSES)]
    graph = helper.make_graph(
        nodes,
        "pictures",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [*constants, constant("n", CLASSES)],
    )
    saved(graph, path)


def subgraphs(path: Path) -> None:
    """Write a model with branches, a loop, a function, a Constant and shape arithmetic."""
    value = helper.make_tensor_value_info
    flat = value("t", TensorProto.FLOAT, None)
    then = helper.make_graph([helper.make_node("MatMul", ["a", "k"], ["t"], "inner")], "then", [], [flat])
    other = helper.make_node("Neg", ["a"], ["u"], "neg")
    otherwise = helper.make_graph([other], "else", [], [value("u", TensorProto.FLOAT, None)])
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "k0"], ["v1"], "step"),
            helper.make_node("Identity", ["go"], ["go1"], "same"),
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("go", TensorProto.BOOL, []),
            value("v", TensorProto.FLOAT, None),
        ],
        [value("go1", TensorProto.BOOL, []), value("v1", TensorProto.FLOAT, None)],
    )
    trips = numpy_helper.from_array(np.array(3, np.int64), "three")
    nodes = [
        helper.make_node("Flatten", ["x"], ["g"], "flat"),
        helper.make_node("MatMul", ["g", "k36"], ["a0"], "first"),
        helper.make_node("Twice", ["a0"], ["a"], "twice", domain="own"),
        helper.make_node("ReduceMax", ["a"], ["top"], "top", keepdims=0),
        helper.make_node("Constant", [], ["zero"], "zero", value=numpy_helper.from_array(np.float32(0))),
        helper.make_node("Greater", ["top", "zero"], ["is"], "is"),
        helper.make_node("If", ["is"], ["s"], "if", then_branch=then, else_branch=otherwise),
        helper.make_node("Loop", ["three", "", "s"], ["z"], "loop", body=body),
        helper.make_node("Tanh", ["z"], ["y"], "tanh"),
    ]
    function = helper.make_function(
        "own",
        "Twice",
        ["q"],
        ["o"],
        [helper.make_node("Add", ["q", "q"], ["o"], "double")],
        [helper.make_opsetid("", 17)],
    )
    graph = helper.make_graph(
        nodes,
        "control",
        [value("x", TensorProto.FLOAT, ["N", 1, 6, 6])],
        [value("y", TensorProto.FLOAT, ["N", 6])],
        [constant("k36", 36, 6), constant("k", 6, 6), constant("k0", 6), trips],
    )
    saved(graph, path, (function,))


def outside(path: Path, source: Path) -> None:
    """Write a model again with its weights in a file beside it."""
    model = onnx.load(source)
    onnx.save_model(model, path, save_as_external_data=True, location=f"{path.stem}.bin", size_threshold=16)


def qprof(*arguments: str) -> None:
    """Run a command that has to succeed."""
    noise = io.StringIO()
    with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise), contextlib.suppress(KeyError):
        try:
            main(args=list(arguments), prog_name="qprof")
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"{arguments}: exit {end.code}: {noise.getvalue()}") from None


def make_base(folder: Path) -> Base:
    """Make the files in an empty folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        convolutions(Path("model.onnx"))
        subgraphs(Path("control.onnx"))
        outside(Path("outside.onnx"), Path("model.onnx"))
        _samples()
        return Base(folder, _made())
    finally:
        os.chdir(before)


def _samples() -> None:
    rng = np.random.default_rng(7)
    Path("cal").mkdir()
    for number in range(4):
        np.savez(f"cal/{number}.npz", x=rng.normal(0, 1, (ROWS, 1, 6, 6)).astype(np.float32))
    Path("own.py").write_text(
        "import numpy as np\n\ndef samples():\n    rng = np.random.default_rng(7)\n    for _ in range(4):\n"
        f"        yield {{'x': rng.normal(0, 1, ({ROWS}, 1, 6, 6)).astype(np.float32)}}\n"
    )


def _foreign_files() -> None:
    """Write profile and plan in the formats of other tools, and a joined model with its plan."""
    from damage.exchange import PARAMETERS, RANGES

    for source, formats in (("profile.yaml", RANGES), ("plan.yaml", PARAMETERS)):
        for name, file in formats.items():
            qprof("export", source, "--model", "model.onnx", "--format", name, "-o", file)
    value, node = helper.make_tensor_value_info, helper.make_node
    shape = (TensorProto.FLOAT, ["N", 4])
    for name, inner, outer in (("first", "x", "h"), ("second", "h", "y")):
        nodes = [node("MatMul", [inner, "w"], ["c"], "product"), node("Relu", ["c"], [outer], "relu")]
        ends = [value(inner, *shape)], [value(outer, *shape)]
        saved(helper.make_graph(nodes, name, *ends, [constant("w", 4, 4)]), Path(f"{name}.onnx"))
    qprof("join", "first.onnx", "second.onnx", "-o", "joined.onnx")
    np.savez("joined.npz", x=np.random.default_rng(7).normal(0, 1, (ROWS, 4)).astype(np.float32))
    qprof("dump-profile", "joined.onnx", "--data", "joined.npz", "-o", "x.yaml")
    qprof("quantize", "joined.onnx", "--profile", "x.yaml", "-o", "x.onnx", "--save-plan", "joined.yaml")
    Path("x.yaml").unlink()


def _made() -> dict[str, bytes]:
    """Make profile, plan, quantized model, labels and checkpoint; return what runs should give."""
    import onnxruntime
    from qprof_onnx.profiles.runner import calibrate
    from qprof_onnx.profiles.runner.checkpoint import save_progress

    qprof(*DUMP, "-o", "profile.yaml")
    qprof(*DUMP, "-o", "glow.yaml", "--format", "glow")
    qprof(*QUANTIZE, "-o", "int8.onnx", "--save-plan", "plan.yaml")
    qprof(*QUANTIZE, "-o", "x.onnx", "--save-plan", "adjusted.yaml", "--rounding", "gptq", "--data", "cal")
    _foreign_files()
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    classes = [
        int(row)
        for number in range(4)
        for row in session.run(None, dict(np.load(f"cal/{number}.npz")))[0].argmax(1)
    ]
    Path("labels.txt").write_text("".join(f"{label}\n" for label in classes))
    np.save("labels.npy", np.array(classes))
    Path("settings.yaml").write_text(
        "target: onnxruntime-x86\nsettings:\n  calibrator: percentile:99.9\n  schema: asymmetric\n"
        "  min_tensor_sqnr: 5.0\n  keep_float: [head]\n"
    )
    Path("target.yaml").write_text(
        "target: mine\nbase: onnxruntime-x86\ndescription: a chip\nsources: [its manual]\nruntime:\n"
        "  activation_types: [uint8, int8]\n  operators: {Conv: [quantized], Gemm: [quantized, float]}\n"
        "  opsets: [13, 21]\nsettings:\n  granularity: per-channel\n"
    )
    for name in ("plan-small.yaml", "plan-adjusted.yaml", "profile-small.yaml", "profile-glow.yaml"):
        Path(name).write_bytes((SMALL_FILES / name).read_bytes())
    seen: list[bytes] = []

    def keep(*arguments: object) -> None:
        save_progress(*arguments)  # type: ignore[arg-type]
        seen.append(Path("progress.qprof").read_bytes())

    calibrate.save_progress = keep
    try:
        qprof(*RESUME, "--every", "0", "--threads", "1")
    finally:
        calibrate.save_progress = save_progress
    Path("progress.qprof").write_bytes(seen[len(seen) // 2])
    results = {name: Path(name).read_bytes() for name in ("profile.yaml", "plan.yaml")}
    for name in ("out.yaml", "x.onnx"):
        Path(name).unlink()
    return results
