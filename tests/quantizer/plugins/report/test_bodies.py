"""Reports of models with the bodies of Loop and If."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from qprof_onnx import profile, quantize
from qprof_onnx.quantizer.plugins.report.content import Report
from qprof_onnx.quantizer.plugins.report.html import page
from qprof_onnx.quantizer.plugins.report.report import report


@pytest.fixture(scope="module")
def looped(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return the report of the estimates of a model whose products are in a loop, but for one."""
    folder, rng = tmp_path_factory.mktemp("loop"), np.random.default_rng(3)
    body = (
        "body (int64 i, bool c, float[2, 32] s) => (bool co, float[2, 32] o) "
        "{ co = Identity (c) m = MatMul (s, w) o = Tanh (m) }"
    )
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> net (float[2, 32] x) => (float[2, 32] y) '
        f"{{ s0 = Relu (x) l = Loop (n, yes, s0) <body = {body}> y = MatMul (l, v) }}"
    )
    for name in "wv":
        array = rng.normal(0.0, 0.25, (32, 32)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    model.graph.initializer.append(numpy_helper.from_array(np.array(4, np.int64), "n"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    onnx.save(model, folder / "net.onnx")
    samples = [{"x": rng.normal(size=(2, 32)).astype(np.float32)} for _ in range(16)]
    profile(folder / "net.onnx", samples, folder / "p.yaml")
    made = quantize(folder / "net.onnx", folder / "p.yaml", folder / "q.onnx", cost_model="off")
    return report(folder / "net.onnx", folder / "q.onnx", plan=made.plan, profile=folder / "p.yaml")


def test_the_noise_of_an_output_names_the_nodes_of_a_body_and_what_runs_them(looped: Report) -> None:
    (runner,) = {node.run_by for node in looped.nodes if node.run_by}
    (budget,) = looped.noise
    shares = {part.node: part.share for part in budget.parts}
    inside = {node.name for node in looped.nodes if node.run_by and node.is_integer}
    assert inside
    assert inside & shares.keys()
    assert f"in {runner}" in page(looped)
