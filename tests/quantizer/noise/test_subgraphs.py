"""What rounding inside of If, Loop and Scan does to the outputs is measured, estimated and kept in limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx import profile, quantize
from qprof_onnx.quantizer.noise.measure import weight_copy
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.prepare.prepare import prepare

STEP = "m = MatMul (s, w) a = Add (m, b) o = Tanh (a)"
HEAD = "(int64 i, bool c, float[2, 32] s) => (bool co, float[2, 32] o)"
INNER = "inner (int64 j, bool d, float[2, 32] p) => (bool do, float[2, 32] q)"
BRANCHES = (
    "then_branch = then () => (float[2, 32] p) { p = MatMul (s, w) }, "
    "else_branch = orelse () => (float[2, 32] q) { r = MatMul (s, v) q = Tanh (r) }"
)
BODIES = {
    "Loop": f"l = Loop (n, yes, s0) <body = body {HEAD} {{ co = Identity (c) {STEP} }}>",
    "Loop in a Loop": f"l = Loop (n, yes, s0) <body = body {HEAD} {{ co = Identity (c) z = Loop (n, yes, s) "
    f"<body = {INNER} {{ do = Identity (d) f = MatMul (p, v) q = Tanh (f) }}> "
    "k = MatMul (z, w) o = Tanh (k) }>",
    "Scan": "z, l = Scan (h, x) <num_scan_inputs = 1, body = body (float[2, 32] s, float[2, 32] u) => "
    "(float[2, 32] o, float[2, 32] k) { f = MatMul (u, v) m = MatMul (s, w) a = Add (m, f) o = Tanh (a) "
    "k = Identity (o) }>",
    "If": f"e = ReduceSum <keepdims = 0> (x) g = Greater (e, zero) s = Identity (s0) l = If (g) <{BRANCHES}>",
}
INT4 = {"mode": "weight-only", "weight_type": "int4", "block_size": 16}


def written(name: str, folder: Path) -> tuple[Path, list[dict[str, npt.NDArray[np.float32]]]]:
    """Return a saved model, whose only products are in bodies, and samples of it."""
    rng, shape = np.random.default_rng(3), "4, 2, 32" if name == "Scan" else "2, 32"
    head = "" if name == "Scan" else "s0 = Relu (x)"
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> net (float[{shape}] x) => (float[{shape}] l) '
        f"{{ {head} {BODIES[name]} }}"
    )
    for weight in "wv":
        array = rng.normal(0.0, 0.25, (32, 32)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, weight))
    for constant, value in (("b", 0.1), ("zero", 0.0), ("n", 6), ("yes", True), ("h", np.zeros((2, 32)))):
        dtype = {"n": np.int64, "yes": np.bool_}.get(constant, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), constant))
    onnx.save(model, folder / "net.onnx")
    sizes = [int(size) for size in shape.split(", ")]
    return folder / "net.onnx", [{"x": rng.normal(size=sizes).astype(np.float32)} for _ in range(16)]


def run(path: Path, samples: list[dict[str, npt.NDArray[np.float32]]]) -> npt.NDArray[np.float64]:
    session = ort.InferenceSession(str(path))
    return np.stack([session.run(None, sample)[0] for sample in samples]).astype(np.float64)


def measured(path: Path, output: Path, samples: list[dict[str, npt.NDArray[np.float32]]]) -> float:
    """Return the SQNR in dB of a model against another."""
    exact, noisy = run(path, samples), run(output, samples)
    return float(10.0 * np.log10(np.square(exact).sum() / np.square(exact - noisy).sum()))


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    "settings",
    [INT4, {"mode": "dynamic"}, {"cost_model": "off"}],
    ids=["weight-only", "dynamic", "static"],
)
def test_the_noise_of_a_body_is_within_the_band_that_is_told(
    tmp_path: Path, name: str, settings: dict[str, object]
) -> None:
    path, samples = written(name, tmp_path)
    facts, weights = profile(path, samples), {"weight_type": "int8", "min_output_sqnr": 5} | settings
    (expected,) = quantize(path, facts, tmp_path / "out.onnx", **weights).expected  # type: ignore[arg-type]
    assert expected.low - 1.0 <= measured(path, tmp_path / "out.onnx", samples) <= expected.high + 1.0


@pytest.mark.parametrize("name", BODIES)
def test_an_output_that_may_not_be_noisy_gets_8_bits_in_bodies(tmp_path: Path, name: str) -> None:
    path, samples = written(name, tmp_path)
    facts, output = profile(path, samples), tmp_path / "out.onnx"
    quantize(path, facts, output, **INT4, min_output_sqnr=5)  # type: ignore[arg-type]
    assert measured(path, output, samples) < 30.0
    quantize(path, facts, output, **INT4, min_output_sqnr=30)  # type: ignore[arg-type]
    assert measured(path, output, samples) > 30.0


def test_weights_that_bodies_read_are_rounded_and_their_noise_leaves_by_the_node_that_runs_them(
    tmp_path: Path,
) -> None:
    path, _ = written("Loop in a Loop", tmp_path)
    model = prepare(ir.load(path)).model
    copy, after = weight_copy(model, "rounded:")
    assert set(copy.graph.initializers) >= {"rounded:0", "rounded:1"}
    assert after == {"l"}
    graph = index(model)
    assert {graph.holder(node).op_type for node in graph.nodes if node.op_type == "MatMul"} == {"Loop"}
