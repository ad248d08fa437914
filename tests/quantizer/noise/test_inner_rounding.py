"""The rounding of a correction is estimated to be as much as it is."""

from __future__ import annotations

import numpy as np
import pytest
from qprof_onnx.quantizer.model.graph import name_of
from qprof_onnx.quantizer.noise.estimator import NoiseEstimator, inner_rounding
from qprof_onnx.quantizer.noise.propagation import forecast_flow, measured_gains
from qprof_onnx.quantizer.numerics.affine import dequantize, quantize
from qprof_onnx.quantizer.operators.saturating import correction_of
from qprof_onnx.quantizer.planning.facts import planning_facts
from qprof_onnx.quantizer.planning.noise_budget import roundings
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import network, plan_alone

X = np.random.default_rng(3).standard_normal(200_000).astype(np.float32)


def test_what_is_rounded_inside_a_node_vanishes_with_that_node_alone() -> None:
    slopes = {"s": np.full((8, 1, 1), 0.25, np.float32)}
    net = network(
        "h = PRelu (x, s)  a = Tanh (h)  b = Tanh (h)  y = Add (a, b)", slopes, shape=(1, 8, 30, 30)
    )
    recipe = load_recipe("onnxruntime-x86")
    plan = plan_alone(net.model, net.profile, recipe, start_everywhere=True)
    facts = planning_facts(net.prepared, net.profile, recipe)
    gains = measured_gains(net.graph, facts.profile, 17, ())
    estimator = NoiseEstimator(facts.activations, gains)
    flow = forecast_flow(gains, gains.outputs_with_signal())
    inner = [source for source in estimator.sources(flow, plan) if source.is_inner]
    assert [source.tensor for source in inner] == ["h"]
    alone = [r.share for r in roundings(estimator, plan, flow, 0, 1.0) if r.nodes == {inner[0].node}]
    assert pytest.approx(float(inner[0].share[0])) in alone


def test_the_correction_of_prelu() -> None:
    slopes = np.linspace(-0.3, 0.6, 8).astype(np.float32)
    net = network("y = PRelu (x, s)", {"s": slopes.reshape(8, 1, 1)}, shape=(1, 8, 30, 30))
    recipe = load_recipe("onnxruntime-x86")
    plan = plan_alone(net.model, net.profile, recipe, start_everywhere=True)
    (node,) = net.graph.nodes
    assert plan.nodes[name_of(node)].implementation == "saturating"
    found = inner_rounding(node, plan, planning_facts(net.prepared, net.profile, recipe).activations)
    correction = correction_of(plan.tensors["x"], plan.tensors["s"])
    exact = np.minimum(X, 0.0) * (slopes[X.astype(np.int64) % 8] - 1.0)
    assert correction is not None
    params = correction[0]
    measured = np.mean((dequantize(quantize(exact.astype(np.float32), params), params) - exact) ** 2)
    assert found == pytest.approx(measured, rel=0.1)
