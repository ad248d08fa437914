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
SMALL_FILES = Path(__file__).parents[2] / "data"

DUMP = ("dump-profile", "model.onnx", "--data", "cal")
QUANTIZE = ("quantize", "model.onnx", "--profile", "profile.yaml", "--set", "cost_model=off")
TUNE = ("tune", "model.onnx", "--data", "cal", "--profile", "profile.yaml", "--labels", "labels.txt")
TUNE = (*TUNE, "--objective", "int8-share", "--max-drop", "50")


RANGES = {
    "onnxruntime": "ranges.json",
    "tensorrt-cache": "tensorrt.cache",
}
PARAMETERS = {
    "aimet-1.0": "aimet10.encodings",
    "aimet-2.0": "aimet20.encodings",
    "qnn": "qnn.json",
}
"""Format of another tool -> the file of the base."""


def constant(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    values = np.random.default_rng([seed, *name.encode()]).normal(0, 0.4, shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


def saved(path: Path, text: str, *constants: onnx.TensorProto) -> None:
    """Write a model of a text, with constants."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "own": 1]> {text}')
    model.graph.initializer.extend(constants)
    path.write_bytes(model.SerializeToString(deterministic=True))


PICTURES = """pictures (float[N, 1, 6, 6] x) => (float[N, 4] y) {
    [conv] c = Conv <pads = [1, 1, 1, 1], kernel_shape = [3, 3]> (x, w, b)
    [relu] r = Relu (c)
    [pool] p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    [flat] f = Flatten (p)
    [head] y = Gemm (f, m, n)
}"""
CONTROL = """control (float[N, 1, 6, 6] x) => (float[N, 6] y) <int64 three = {3}> {
    [flat] g = Flatten (x)
    [first] a0 = MatMul (g, k36)
    [twice] a = own.Twice (a0)
    [top] top = ReduceMax <keepdims = 0> (a)
    [zero] zero = Constant <value = float {0}> ()
    [is] is = Greater (top, zero)
    [if] s = If (is) <
        then_branch = then () => (float t) { [inner] t = MatMul (a, k) },
        else_branch = else () => (float u) { [neg] u = Neg (a) }>
    [loop] z = Loop (three, , s) <body = body (int64 i, bool go, float v) => (bool go1, float v1) {
        [step] v1 = Add (v, k0)
        [same] go1 = Identity (go) }>
    [tanh] y = Tanh (z)
}
<domain: "own", opset_import: ["": 17]>
Twice (q) => (o) { [double] o = Add (q, q) }"""
"""A small classifier of pictures; and branches, a loop, a function, a Constant and shape arithmetic."""


def nested(depth: int) -> bytes:
    """Return a model with If in If."""
    value, node = helper.make_tensor_value_info, helper.make_node
    made = [value(f"o{level}", TensorProto.FLOAT, None) for level in range(depth)]
    graph = helper.make_graph([node("Neg", ["x"], ["o0"])], "b0", [], made[:1])
    for level in range(1, depth):
        inside = node("If", ["c"], [f"o{level}"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([inside], f"b{level}", [], [made[level]])
        if len(graph.SerializeToString()) > 1 << 20:
            break
    ends = (value(name, TensorProto.FLOAT, ["N", 1, 6, 6]) for name in "xy")
    outer = node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
    constants = [numpy_helper.from_array(np.array(True), "c")]
    opsets = [helper.make_opsetid("", 17)]
    whole = helper.make_graph([outer], "g", *([end] for end in ends), constants)
    return helper.make_model(whole, opset_imports=opsets, ir_version=8).SerializeToString()


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
        constants = (constant("w", 4, 1, 3, 3), constant("b", 4), constant("m", 36, 4), constant("n", 4))
        saved(Path("model.onnx"), PICTURES, *constants)
        saved(Path("control.onnx"), CONTROL, constant("k36", 36, 6), constant("k", 6, 6), constant("k0", 6))
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


def _foreign_files() -> None:
    """Write profile and plan in the formats of other tools, and a joined model with its plan."""
    for source, formats in (("profile.yaml", RANGES), ("plan.yaml", PARAMETERS)):
        for name, file in formats.items():
            qprof("export", source, "--model", "model.onnx", "--format", name, "-o", file)
    for name, inner, outer in (("first", "x", "h"), ("second", "h", "y")):
        nodes = f"[product] c = MatMul ({inner}, w) [relu] {outer} = Relu (c)"
        text = f"{name} (float[N, 4] {inner}) => (float[N, 4] {outer}) {{ {nodes} }}"
        saved(Path(f"{name}.onnx"), text, constant("w", 4, 4))
    qprof("join", "first.onnx", "second.onnx", "-o", "joined.onnx")
    np.savez("joined.npz", x=np.random.default_rng(7).normal(0, 1, (ROWS, 4)).astype(np.float32))
    qprof("dump-profile", "joined.onnx", "--data", "joined.npz", "-o", "x.yaml")
    qprof("quantize", "joined.onnx", "--profile", "x.yaml", "-o", "x.onnx", "--save-plan", "joined.yaml")
    Path("x.yaml").unlink()


def _made() -> dict[str, bytes]:
    """Make profile, plan, quantized model and labels; return what runs should give."""
    import onnxruntime

    qprof(*DUMP, "-o", "profile.yaml")
    qprof(*DUMP, "-o", "glow.yaml", "--format", "glow")
    qprof(*QUANTIZE, "-o", "int8.onnx", "--save-plan", "plan.yaml")
    qprof(
        *QUANTIZE, "-o", "x.onnx", "--save-plan", "adjusted.yaml", "--set", "rounding=gptq", "--data", "cal"
    )
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
    results = {name: Path(name).read_bytes() for name in ("profile.yaml", "plan.yaml")}
    Path("x.onnx").unlink()
    return results
