"""What must hold of a plan: each breach has its sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.numerics.affine import INT4, INT8, QuantParams
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.targets.config import QuantConfig

from ..networks import WIDE, Network, network


@pytest.fixture(scope="module")
def net() -> Network:
    text = "a = Conv (x, w, b) c = MaxPool <kernel_shape = [2, 2]> (a) y = Conv (c, v)"
    return network(text, {"w": WIDE, "b": (8,), "v": WIDE})


def with_tensor(plan: QuantPlan, name: str, **changes: object) -> QuantPlan:
    return replace(plan, tensors={**plan.tensors, name: replace(plan.tensors[name], **changes)})  # type: ignore[arg-type]


def with_node(plan: QuantPlan, name: str, node: NodePlan) -> QuantPlan:
    return replace(plan, nodes={**plan.nodes, name: node})


def test_a_plan_as_made_passes(net: Network) -> None:
    verify_plan(net.plan(), net.graph, net.identity)


def test_a_plan_of_another_model_is_refused(net: Network) -> None:
    other = replace(net.identity, structure="0" * 64)
    with pytest.raises(PlanError, match="made for another model"):
        verify_plan(net.plan(), net.graph, other)


def breach(net: Network, plan: QuantPlan) -> str:
    with pytest.raises(PlanError) as error:
        verify_plan(plan, net.graph, net.identity, "mine.yaml")
    return str(error.value)


def test_a_moved_tensor_has_the_parameters_of_its_source(net: Network) -> None:
    plan = with_tensor(net.plan(), "c", scale=(0.75,))
    assert "'c' must have the parameters of its input" in breach(net, plan)


def test_a_bias_has_the_product_of_the_scales(net: Network) -> None:
    plan = with_tensor(net.plan(), "b", scale=(0.75,) * 8)
    assert "the bias must have scale(input) * scale(weight)" in breach(net, plan)


def test_a_node_that_the_model_lacks_is_named(net: Network) -> None:
    plan = with_node(net.plan(), "Conv_z", NodePlan(Kind.QUANTIZED))
    assert "node 'Conv_z': the model has no such node" in breach(net, plan)


def test_a_node_without_entry_is_named(net: Network) -> None:
    plan = net.plan()
    plan = replace(plan, nodes={name: node for name, node in plan.nodes.items() if name != "Conv_y"})
    assert "node 'Conv_y': the plan has no entry for it" in breach(net, plan)


def test_a_tensor_that_the_model_lacks_is_named(net: Network) -> None:
    plan = replace(net.plan(), tensors={**net.plan().tensors, "z": QuantParams((1.0,), (0,), INT8)})
    assert "tensor 'z': the model has no float tensor of this name" in breach(net, plan)


def test_an_integer_node_reads_codes(net: Network) -> None:
    plan = replace(net.plan(), tensors={n: p for n, p in net.plan().tensors.items() if n != "x"})
    assert "its input 'x' has no parameters" in breach(net, plan)


def test_an_integer_node_needs_a_rule(net: Network) -> None:
    lone = network('y = Einsum <equation = "ii->i"> (x)', {}, (3, 3))
    plan = QuantPlan(lone.identity, QuantConfig(), {}, {"Einsum_y": NodePlan(Kind.QUANTIZED)})
    with pytest.raises(PlanError, match="operator Einsum is not supported for int8"):
        verify_plan(plan, lone.graph, lone.identity)


@pytest.fixture(scope="module")
def product() -> Network:
    return network("a = MatMul (x, w) y = Relu (a)", {"w": (32, 64)}, shape=(4, 32))


def test_a_dynamic_node_has_a_weight_in_codes(product: Network) -> None:
    plan = with_node(product.plan(mode="dynamic"), "Relu_y", NodePlan(Kind.DYNAMIC))
    sentence = "node 'Relu_y': it is dynamic, but has no constant weight with parameters"
    assert sentence in breach(product, plan)


def test_a_weight_only_node_has_a_weight_in_codes(product: Network) -> None:
    plan = product.plan(mode="weight-only")
    sentence = "node 'MatMul_a': it is weight-only, but has no constant weight with parameters"
    assert sentence in breach(product, replace(plan, tensors={}))


def test_a_block_divides_its_axis(product: Network) -> None:
    blocks = QuantParams((1.0,) * 128, (0,) * 128, INT4, axis=0, block_size=24)
    plan = product.plan(mode="weight-only", form="integer")
    plan = replace(plan, tensors={"w": blocks})
    assert "tensor 'w': block 24 does not divide axis 0" in breach(product, plan)


def test_activations_have_no_blocks(product: Network) -> None:
    plan = product.plan()
    blocks = QuantParams((1.0,) * 8, (0,) * 8, INT8, axis=1, block_size=16)
    assert "tensor 'x': blocks are for constants" in breach(
        product, replace(plan, tensors={**plan.tensors, "x": blocks})
    )


def test_a_value_that_a_node_fills_with_is_within_its_range() -> None:
    net = network(
        "a = Conv (x, w) y = Pad (a, pads, value)",
        {"w": WIDE, "pads": np.ones(8, np.int64), "value": np.float32(1e6)},
    )
    made = net.plan()
    moved = replace(made.nodes["Pad_y"], kind=Kind.PASS_THROUGH, because="")
    params = made.tensors["a"]
    plan = replace(with_node(made, "Pad_y", moved), tensors={**made.tensors, "y": params})
    assert "node 'Pad_y': it fills with 1e+06, which its parameters saturate to" in breach(net, plan)
