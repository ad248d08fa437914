"""16-bit activations, and products that return float."""

from __future__ import annotations

import pytest
from qprof_onnx.quantizer.numerics.affine import INT16
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.targets.target import FLOAT

from ..networks import WIDE, Network, network

CHAIN = "a = Conv (x, w) b = Relu (a) c = Conv (b, w) y = Conv (c, w)"


@pytest.fixture(scope="module")
def chain() -> Network:
    return network(CHAIN, {"w": WIDE}, shape=(1, 8, 10, 10))


def test_the_user_is_told_where_16_bits_compute_in_float(chain: Network) -> None:
    (note,) = (
        n for n in map(str, chain.plan(activation_type="uint16").findings) if not n.startswith("output")
    )
    assert note.startswith("5 activations have 16 bits; onnxruntime-x86 has no such kernel of Conv, Relu")


@pytest.mark.parametrize(("target", "how"), [("onnxruntime-x86", "folded"), ("qnn", "")])
def test_weights_beside_16_bits_are_folded_where_the_runtime_would_round_these_to_8(
    target: str, how: str
) -> None:
    net = network("a = MatMul (x, w) t = Transpose (a) y = MatMul (a, t)", {"w": (8, 8)}, (16, 8))
    plan = net.plan(target, activation_type="uint16")
    assert plan.tensors["w"].qtype.bits == 8
    assert [plan.nodes[n].implementation for n in ("MatMul_a", "MatMul_y")] == [how, ""]


def test_a_constant_operand_is_as_wide_as_the_activation() -> None:
    net = network("a = Conv (x, w) b = Mul (a, s) y = Conv (b, w)", {"w": WIDE, "s": (4, 4)})
    assert net.plan("glow", activation_type="int16").tensors["s"].qtype == INT16


def test_a_tanh_of_16_bits_has_no_sigmoid_table() -> None:
    net = network("a = Conv (x, w) b = Tanh (a) y = Conv (b, w)", {"w": WIDE})
    assert net.plan(activation_type="uint16").nodes["Tanh_b"].implementation == "runtime"
    assert net.plan().nodes["Tanh_b"].implementation == "sigmoid"


PRODUCTS = "a = MatMul (x, w) b = Relu (a) c = MatMul (b, w) y = MatMul (c, w)"


def test_products_return_float_where_the_runtime_has_float_between_them() -> None:
    net = network(PRODUCTS, {"w": (32, 32)}, shape=(4, 32))
    plan = net.plan(facts={"operators": {"MatMul": (FLOAT,)}, "lookup_tables": {}})
    verify_plan(plan, net.graph, net.identity)
    assert {name: entry.kind for name, entry in plan.nodes.items() if entry.kind is not Kind.QUANTIZED} == {
        "Relu_b": Kind.FLOAT
    }
    assert "y" not in plan.tensors


def test_products_stay_in_codes_by_default() -> None:
    net = network(PRODUCTS, {"w": (32, 32)}, shape=(4, 32))
    assert set(net.plan().tensors) == {"x", "a", "b", "c", "w"}
