"""Which activations share parameters, whose range wins, and how `explain` shows it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import Graph, index
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.planning.shared_scales import lost_to
from qprof_onnx.quantizer.plugins.explanation.explanation import explain_tensor
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.config import QuantConfig
from qprof_onnx.quantizer.targets.target import QUANTIZED, Recipe, Target

from ..networks import plan_alone

JOINED = """
<ir_version: 9, opset_import: ["": 17]>
net (float[1,2,64,64] a, float[1,2,64,64] b, float[1,2,64,64] c) => (float[1,4,32,32] y, float[1,2,64,64] top)
{
  wide = Concat <axis = 1> (a, b)
  moved = Transpose <perm = [0, 1, 3, 2]> (wide)
  y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (moved)
  top = Relu (c)
}
"""
TARGET = Target("any", operators=dict.fromkeys(("Concat", "Relu", "MaxPool", "Transpose"), (QUANTIZED,)))


def planned(factor: float) -> tuple[QuantPlan, Graph, Profile, ir.Model]:
    """Plan a Concat of two tensors, of which the second is `factor` times as wide."""
    rng = np.random.default_rng(0)
    a = rng.uniform(-1.0, 1.0, (1, 2, 64, 64)).astype(np.float32)
    model = prepare(ir.serde.deserialize_model(parser.parse_model(JOINED))).model
    graph, identity = index(model), model_id(model, "net.onnx")
    b = np.asarray(a[:, ::-1] * np.float32(factor))
    profile = calibrate(model, [Sample("0", {"a": a, "b": b, "c": a})], identity)
    recipe = Recipe(QuantConfig(target="any", calibrator="minmax"), TARGET)
    plan = plan_alone(model, profile, recipe, start_everywhere=True)
    verify_plan(plan, graph, identity)
    return plan, graph, profile, model


def scales(plan: QuantPlan) -> dict[str, float]:
    return {name: plan.tensors[name].tensor_scale for name in ("a", "b", "wide")}


@pytest.mark.parametrize(("factor", "shared"), [(1.05, {"a", "b", "wide"}), (100.0, {"b", "wide"})])
def test_the_resolution_decides_whether_a_concat_joins_its_inputs(factor: float, shared: set[str]) -> None:
    plan, *_ = planned(factor)
    (group,) = (group for group in plan.shared_scales if "wide" in group.members)
    assert group.members.keys() & {"a", "b", "wide"} == shared


def test_inputs_that_do_not_join_are_converted_on_their_edge() -> None:
    plan, _, _, model = planned(100.0)
    assert scales(plan)["a"] < scales(plan)["wide"] / 50.0
    nodes = [node.op_type for node in lower(model, plan).model.graph]
    assert nodes.count("QuantizeLinear") >= 2


def test_a_chain_of_joins_never_costs_a_member_more_than_the_stated_number() -> None:
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    net (float[1,64] a, float[1,64] b, float[1,64] c, float[1,64] d) => (float[1,256] y)
    { y = Concat <axis = 1> (a, b, c, d) }
    """
    model = prepare(ir.serde.deserialize_model(parser.parse_model(text))).model
    a = np.random.default_rng(0).uniform(-1.0, 1.0, (1, 64)).astype(np.float32)
    feed = {name: np.asarray(a * np.float32(1.1**i)) for i, name in enumerate("abcd")}
    identity = model_id(model, "net.onnx")
    profile = calibrate(model, [Sample("0", feed)], identity)
    recipe = Recipe(QuantConfig(target="any", calibrator="minmax"), TARGET)
    plan = plan_alone(model, profile, recipe, start_everywhere=True)
    for group in plan.shared_scales:
        assert all(lost_to(own, group.range) <= 1.0 for own in group.members.values())
    # 1.1 ** 3 is 2.5 dB: the narrowest must stay apart, the widest is the output's.
    assert {"d", "y"} <= set(plan.shared_scales[0].members)
    assert "a" not in plan.shared_scales[0].members


def test_explain_tells_whose_range_won_and_what_it_cost() -> None:
    plan, graph, profile, _ = planned(1.1)
    found = explain_tensor(loads(dumps(plan)), "a", "plan.yaml", graph, profile)
    members = {member.name: (member.sets_range, round(member.lost_db, 1)) for member in found.members}
    assert members["a"] == (False, 0.8)
    assert members["b"] == (True, 0.0)


def test_explain_names_what_tied_the_group_and_the_nodes_around() -> None:
    plan, graph, profile, _ = planned(1.05)
    found = explain_tensor(plan, "wide", "plan.yaml", graph, profile)
    names = {node.op_type: node.name for node in graph.nodes}
    assert set(found.tied_by) == {names["Concat"], names["Transpose"], names["MaxPool"]}
    assert found.neighbours is not None
    assert [(n.operator, n.makes) for n in found.neighbours] == [("Concat", True), ("Transpose", False)]


def test_values_that_a_clip_throws_away_are_no_noise() -> None:
    plan, graph, profile, _ = planned(1.0)
    found = explain_tensor(plan, "c", "plan.yaml", graph, profile)
    assert found.sqnr_db is None
    top = explain_tensor(plan, "top", "plan.yaml", graph, profile).sqnr_db
    assert top is not None
    assert top > 40.0  # 8 bits, values spread evenly


def test_a_wider_common_range_costs_the_noise_that_it_is_said_to() -> None:
    plan, graph, profile, _ = planned(1.1)
    members = explain_tensor(plan, "b", "plan.yaml", graph, profile).members
    loser = next(m for m in members if m.name == "a")
    assert loser.sqnr_db is not None
    assert loser.own_sqnr_db is not None
    # The rounding errors of 8192 values are a sample.
    assert loser.own_sqnr_db - loser.sqnr_db == pytest.approx(loser.lost_db, abs=0.2)


def test_a_tensor_that_stays_float_needs_the_model_and_says_so() -> None:
    plan, graph, *_ = planned(1.0)
    kept = QuantPlan(plan.model, plan.config, {}, plan.nodes)
    with pytest.raises(ConfigError, match="if it stays float, give the model"):
        explain_tensor(kept, "wide", "plan.yaml")
    assert explain_tensor(kept, "wide", "plan.yaml", graph).params is None
    with pytest.raises(ConfigError, match="Did you mean 'wide'"):
        explain_tensor(kept, "wid", "plan.yaml", graph)
