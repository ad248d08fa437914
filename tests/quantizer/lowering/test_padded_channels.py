"""Padded channels change no integer of the results; what cannot be padded is refused or left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.plan.channel_groups import channel_groups
from qprof_onnx.quantizer.plan.plan import Adjustments, QuantPlan
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.plugins.layers.layers import matches
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import Network, network, plan_alone

MOBILE = """
    a = Conv(x, w1, b1) b = Clip(a, low, high)
    c = Conv<group=12, kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(b, w2, b2) d = Relu(c)
    m = GlobalAveragePool(d) n = Conv(m, w5) s = Sigmoid(n) e = Mul(d, s)
    f = Conv(e, w3, b3) g = Conv(x, w4) h = Add(f, g) y = Conv(h, w6)
"""
WEIGHTS = {
    "w1": (12, 8, 1, 1),
    "b1": (12,),
    "low": np.float32(0.0),
    "high": np.float32(6.0),
    "w2": (12, 1, 3, 3),
    "b2": (12,),
    "w5": (12, 12, 1, 1),
    "w3": (10, 12, 1, 1),
    "b3": (10,),
    "w4": (10, 8, 1, 1),
    "w6": (5, 10, 3, 3),
}
FORMS = ("qdq", "qoperator", "integer", "primitives", "regions")


@pytest.fixture(scope="module")
def mobile() -> Network:
    return network(MOBILE, WEIGHTS)


def planned(net: Network, form: str = "qdq") -> QuantPlan:
    """Return a plan in which all is quantized that can be."""
    recipe = load_recipe(None, {"form": form, "min_output_sqnr": 0.0})
    return plan_alone(net.model, net.profile, recipe, start_everywhere=True)


def padded(plan: QuantPlan, **channels: int) -> QuantPlan:
    return replace(plan, adjustments=replace(plan.adjustments, padded_channels=channels))


def run(net: Network, plan: QuantPlan) -> np.ndarray:
    proto = ir.to_proto(lower(net.model, plan).model)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(5).standard_normal((1, 8, 6, 6)).astype(np.float32)
    return np.asarray(session.run(None, {"x": x})[0])


def groups(net: Network, plan: QuantPlan) -> dict[str, int]:
    return {name: 16 for group in channel_groups(net.graph, plan) for name in group.tensors}


def test_tensors_that_a_node_ties_are_one_group(mobile: Network) -> None:
    found = channel_groups(mobile.graph, planned(mobile))
    assert [(set(group.tensors), group.channels) for group in found] == [
        ({"a", "b", "c", "d", "m", "n", "s", "e"}, 12),
        ({"f", "g", "h"}, 10),
    ]
    assert len(found[0].depthwise) == 1


@pytest.mark.parametrize("form", FORMS)
def test_the_results_are_the_same_integer_for_integer(mobile: Network, form: str) -> None:
    plan = planned(mobile, form)
    more = groups(mobile, plan)
    assert len(more) == 11
    assert np.array_equal(run(mobile, plan), run(mobile, padded(plan, **more)))


def test_the_written_model_has_the_padded_channels(mobile: Network) -> None:
    plan = planned(mobile)
    model = lower(mobile.model, padded(plan, **groups(mobile, plan))).model
    weights = {node.inputs[1].shape[0] for node in model.graph if node.op_type == "Conv"}  # type: ignore[union-attr, index]
    assert weights == {16, 5}


def test_one_group_can_be_padded_without_the_other(mobile: Network) -> None:
    plan = planned(mobile)
    assert np.array_equal(run(mobile, plan), run(mobile, padded(plan, f=12, g=12, h=12)))


@pytest.mark.parametrize(
    ("channels", "words"),
    [
        ({"f": 16}, "'f': it and its tied tensors need one number"),
        ({"f": 8, "g": 8, "h": 8}, "at least 10"),
        ({"y": 16}, "'y': the nodes around it cannot take more channels"),
        ({"none": 16}, "'none'"),
    ],
)
def test_what_cannot_be_padded_is_refused(mobile: Network, channels: dict[str, int], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        lower(mobile.model, padded(planned(mobile), **channels))


def test_a_plan_file_keeps_them(mobile: Network) -> None:
    plan = padded(planned(mobile), f=16, g=16, h=16)
    assert loads(dumps(plan)).adjustments == Adjustments(padded_channels={"f": 16, "g": 16, "h": 16})


@pytest.mark.parametrize(
    "text",
    [
        "a = Conv(x, w) b = Conv(x, w) c = Add(a, b) y = Conv(c, v)",  # a weight of two nodes
        "a = Conv(x, w) b = Conv(x, u) c = Concat<axis=1>(a, b) y = Conv(c, z)",
        "a = Conv(x, w) n = Erf(a) b = Add(n, a) y = Conv(b, v)",
    ],
)
def test_groups_whose_nodes_cannot_take_more_channels_are_left_out(text: str) -> None:
    weights = {
        "w": (4, 8, 1, 1),
        "u": (4, 8, 1, 1),
        "v": (5, 4, 3, 3),
        "z": (5, 8, 3, 3),
    }
    made = network(text, {name: size for name, size in weights.items() if name in text})
    assert not channel_groups(made.graph, planned(made))


def test_layers_are_compared_without_the_padded_channels(mobile: Network) -> None:
    plan = planned(mobile)
    written = lower(mobile.model, padded(plan, f=16, g=16, h=16)).model
    assert {m.tensor: m.channels for m in matches(mobile.model, written) if m.channels} == {
        "f": 10,
        "g": 10,
        "h": 10,
    }
    (match,) = [m for m in matches(mobile.model, written) if m.tensor == "h"]
    assert match.dequantized(np.zeros((1, 16, 6, 6), np.uint8)).shape == (1, 10, 6, 6)
