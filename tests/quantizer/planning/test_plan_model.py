"""The steps from facts to a plan: what they share, and what they leave alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.noise import activation_ranges
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.reasons import ReasonCode, because
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.planning import planner
from qprof_onnx.quantizer.planning.known import Known
from qprof_onnx.quantizer.planning.plan_model import (
    bias_corrected,
    equalized,
    first_plan,
    model_facts,
    open_plan,
    plan_from,
    rounded_with_samples,
)
from qprof_onnx.quantizer.targets.cost_table import Conditions, CostTable
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import WIDE, Network, network

CONDITIONS = Conditions("onnxruntime-x86", "a processor", "onnxruntime 1.0", 2)
TABLE = CostTable(CONDITIONS, {"Add:float": ((10.0, 1.0), (1000.0, 10.25))})
TEXT = "a = Conv(x, w) t = Relu(a) b = Conv(t, v) s = Sigmoid(b) y = Mul(b, s)"


@pytest.fixture(scope="module")
def net() -> Network:
    shape = np.random.default_rng(1).standard_normal(WIDE).astype(np.float32)
    uneven = np.geomspace(1.0, 1000.0, 8).astype(np.float32)
    weights = {"w": shape * uneven[:, None, None, None], "v": shape / uneven[:, None, None]}
    return network(TEXT, weights)


def written(model: ir.Model, plan: object) -> bytes:
    return ir.to_proto(lower(model, plan).model).SerializeToString(deterministic=True)


def test_a_tensor_that_no_step_changes_is_calibrated_once(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles: list[int] = []
    whole = activation_ranges.calibrate

    def counted(tensor, *args, **kwargs):
        profiles.append(id(tensor))
        return whole(tensor, *args, **kwargs)

    monkeypatch.setattr(activation_ranges, "calibrate", counted)
    planned = plan_from(model_facts(net.prepared, net.profile, load_recipe(None, {"min_output_sqnr": 0.0})))
    assert planned.plan.adjustments.equalization
    assert planned.plan.adjustments.biases
    assert len(profiles) == len(set(profiles))


def test_the_settings_of_the_user_are_those_of_every_plan(net: Network) -> None:
    recipe = load_recipe("glow", {"keep_float": ["Sigmoid"], "mode": "auto"})
    facts = model_facts(net.prepared, net.profile, recipe)
    for planned in (first_plan(facts), equalized(first_plan(facts)), plan_from(facts)):
        assert planned.plan.config == recipe.config


def test_a_node_that_stays_slower_whatever_is_asked_ends_the_search(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mode dynamic keeps nodes that were to be float; planning swift-f0 in it never ended."""
    slower = because(ReasonCode.PREDICTED_SLOWER, int8_ms=2.0, float_ms=1.0)
    name = next(node.name or "" for node in net.graph.nodes if node.op_type == "Conv")
    asked: list[str] = []

    def always(*_: object) -> dict[str, object]:
        assert len(asked) < 50
        asked.append(name)
        return {name: slower}

    monkeypatch.setattr(planner, "unprofitable_nodes", always)
    recipe = replace(load_recipe(), measured=TABLE)
    plan_from(model_facts(net.prepared, net.profile, recipe))
    assert asked


def test_nodes_that_are_slower_stay_float_with_that_as_the_reason(net: Network) -> None:
    facts = model_facts(net.prepared, net.profile, load_recipe(None, {"min_output_sqnr": 0.0}))
    slower = because(ReasonCode.SLOWER_IN_INT8, int8_ms=2.0, float_ms=1.0)
    name = next(node.name or "" for node in net.graph.nodes if node.op_type == "Conv")
    assert plan_from(facts).plan.nodes[name].kind is Kind.QUANTIZED
    entry = plan_from(facts, Known(floats={name: slower})).plan.nodes[name]
    assert (entry.kind, entry.because) == (Kind.FLOAT, slower)


def test_a_node_inside_a_chain_keeps_the_whole_chain_float(net: Network) -> None:
    facts = model_facts(net.prepared, net.profile, load_recipe("glow", {"min_output_sqnr": 0.0}))
    reason = because(ReasonCode.SLOWER_IN_INT8, int8_ms=2.0, float_ms=1.0)
    sigmoid, mul = (
        next(n.name or "" for n in net.graph.nodes if n.op_type == op) for op in ("Sigmoid", "Mul")
    )
    assert plan_from(facts).plan.nodes[mul].kind is Kind.LOOKUP_TABLE
    plan = plan_from(facts, Known(floats={sigmoid: reason})).plan
    assert [plan.nodes[name].because for name in (sigmoid, mul)] == [reason, reason]


def test_chosen_roundings_are_in_the_plan_and_writing_only_applies_them(net: Network) -> None:
    recipe = load_recipe(None, {"rounding": "gptq", "min_output_sqnr": 0.0})
    feeds = np.random.default_rng(3).standard_normal((8, 1, 8, 6, 6)).astype("f")
    samples = [Sample(str(i), {"x": feed}) for i, feed in enumerate(feeds)]
    planned = rounded_with_samples(plan_from(model_facts(net.prepared, net.profile, recipe)), samples)
    plan = planned.plan
    assert len(plan.adjustments.roundings) == 2
    opened = open_plan(net.prepared, loads(dumps(plan)))
    assert written(opened.model, opened.plan) == written(planned.model, plan)
    bare = replace(plan, adjustments=replace(plan.adjustments, roundings={}))
    assert written(planned.model, bare) != written(planned.model, plan)
    nearest = replace(bare, config=replace(bare.config, rounding="nearest"))
    assert written(planned.model, bare) == written(planned.model, nearest)


def test_the_removed_rounding_is_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match="rounding 'squant' is not one of nearest, gptq; use"):
        load_recipe(None, {"rounding": "squant"})


def test_biases_are_found_once_for_the_same_rounding(net: Network) -> None:
    facts = model_facts(net.prepared, net.profile, load_recipe(None, {"min_output_sqnr": 0.0}))
    once = bias_corrected(equalized(first_plan(facts)))
    assert once.plan.adjustments.biases
    assert once.plan.nodes == equalized(first_plan(facts)).plan.nodes
