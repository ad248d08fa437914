"""The level of noise at which steep functions are estimated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from qprof_onnx import profile
from qprof_onnx.quantizer.noise.estimator import NoiseEstimator
from qprof_onnx.quantizer.noise.kept_samples import with_noise_of_kept
from qprof_onnx.quantizer.noise.propagation import forecast_flow
from qprof_onnx.quantizer.planning.noise_budget import make_plan
from qprof_onnx.quantizer.planning.plan_model import model_facts
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.loading import load_recipe

# Logarithms of energies with a Relu, a product, a sum of both and another logarithm behind them.
BODY = """
    a = MatMul (x, w) q = Mul (a, a) s = Add (q, k) l = Log (s)
    b = MatMul (l, v) r = Relu (b) c = MatMul (r, u) d = Add (c, l) e = Mul (d, d) f = Add (e, k)
    g = Log (f) y = MatMul (g, z)
"""


@pytest.mark.parametrize("mode", ["static", "weight-only", "dynamic"])
def test_one_walk_finds_the_noise_that_the_flow_has_at_each_steep_function(tmp_path: Path, mode: str) -> None:
    rng = np.random.default_rng(4)
    text = f"net (float[n, 32] x) => (float[n, 32] y) {{ {BODY} }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    for name in "wvuz":
        array = rng.normal(0.0, 32**-0.5, (32, 32)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1e-6, np.float32), "k"))
    onnx.save(model, tmp_path / "m.onnx")
    data = [{"x": rng.normal(size=(16, 32)).astype(np.float32)} for _ in range(8)]
    prepared = open_prepared(tmp_path / "m.onnx")
    measured, _ = with_noise_of_kept(profile(tmp_path / "m.onnx", data), prepared.model)
    recipe = load_recipe("onnx", {"mode": mode, "min_output_sqnr": 0.0})
    view = model_facts(prepared, measured, recipe).contracted
    plan = make_plan(view)
    estimator = NoiseEstimator(view.activations, view.noise_gains, view.noise_left)
    levels = estimator.gains_of(plan).levels
    assert len(view.noise_gains.steep) == len(levels) == 2  # or the test shows nothing
    for node in view.noise_gains.steep:
        name = node.input(0)
        flow = forecast_flow(estimator.gains_of(plan), (name,))
        rounding = weights = 0.0
        for source in (*estimator.sources(flow, plan), *estimator.dynamic_inputs(flow, plan)):
            power = float(source.share[0]) * view.noise_gains.powers[name]
            if view.graph.is_constant(source.tensor):
                weights += power
            else:
                rounding += power
        assert levels[node.name] == pytest.approx((rounding, weights), rel=1e-9)
