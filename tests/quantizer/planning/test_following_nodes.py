"""Nodes that follow others to float, one after another: they are found near these, at new prices there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from qprof_onnx.quantizer.costs.predicted import CostModel
from qprof_onnx.quantizer.plan.plan import NodePlan
from qprof_onnx.quantizer.planning import planner
from qprof_onnx.quantizer.planning.facts import planning_facts
from qprof_onnx.quantizer.planning.noise_budget import make_plan
from qprof_onnx.quantizer.targets.cost_table import costs_of
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import WIDE, Network, network

CONV = "Conv <pads = [1, 1, 1, 1]>"


def chain(blocks: int) -> Network:
    """Return blocks of which each saves enough time only while the next one reads its layout."""
    text = "".join(
        f"a{n} = {CONV} (h{n}, v{n}) b{n} = Relu (a{n}) c{n} = {CONV} (b{n}, w{n}) d{n} = Add (h{n}, c{n}) "
        f"e{n} = Sigmoid (d{n}) f{n} = Mul (d{n}, e{n}) h{n + 1} = Tanh (f{n}) "
        for n in range(blocks)
    )
    weights = [f"{name}{n}" for n in range(blocks) for name in "vw"]
    return network(f"h0 = Neg (x) {text} y = Neg (h{blocks})", dict.fromkeys(weights, WIDE))


def planned(net: Network) -> Mapping[str, NodePlan]:
    recipe = replace(load_recipe("onnxruntime-x86"), measured=costs_of("onnxruntime-x86"))
    return make_plan(planning_facts(net.prepared, net.profile, recipe)).nodes


@pytest.mark.slow
def test_nodes_that_follow_are_those_of_one_decision_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    net, rounds = chain(12), list[int]()
    found_near = planned(net)
    decide = planner.unprofitable_nodes
    monkeypatch.setattr(planner, "unprofitable_nodes", lambda prices: rounds.append(1) or decide(prices))
    monkeypatch.setattr(planner, "_with_following", lambda decision, found: found)
    assert planned(net) == found_near
    assert len(rounds) > 12


@pytest.mark.slow
def test_the_prices_that_a_plan_asks_for_grow_with_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, price = list[str](), CostModel.integer_time

    def priced(*arguments, **keywords):
        asked.append("once")
        return price(*arguments, **keywords)

    monkeypatch.setattr(CostModel, "integer_time", priced)
    counts = []
    for blocks in (10, 20, 40):
        asked.clear()
        planned(chain(blocks))
        counts.append(len(asked))
    assert counts[2] - counts[1] < 2.2 * (counts[1] - counts[0]), counts
