"""16-bit activations, and products that return float."""

from __future__ import annotations

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.numerics.affine import INT16, UINT8, UINT16
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.targets.target import FLOAT

from ..networks import WIDE, Network, network

CHAIN = "a = Conv (x, w) b = Relu (a) c = Conv (b, w) y = Conv (c, w)"


@pytest.fixture(scope="module")
def chain() -> Network:
    return network(CHAIN, {"w": WIDE}, shape=(1, 8, 10, 10))


def test_a_named_tensor_is_wide_alone(chain: Network) -> None:
    plan = chain.plan(keep_16bit=("c",))
    assert {n: plan.tensors[n].qtype for n in "xacy"} == {"x": UINT8, "a": UINT8, "c": UINT16, "y": UINT8}
    verify_plan(plan, chain.graph, chain.identity)


def test_a_named_node_stands_for_its_activations(chain: Network) -> None:
    plan = chain.plan(keep_16bit=("Conv_y",))
    assert [plan.tensors[n].qtype for n in "cy"] == [UINT16, UINT16]
    assert plan.tensors["x"].qtype == UINT8


def test_moved_codes_are_as_wide_as_their_source(chain: Network) -> None:
    plan = chain.plan(keep_16bit=("a",))
    assert plan.tensors["a"] == plan.tensors["b"]
    assert plan.tensors["b"].qtype == UINT16
    assert plan.nodes["Relu_b"].implementation == ""


def test_a_name_that_is_nowhere_is_refused(chain: Network) -> None:
    with pytest.raises(ConfigError, match="keep_16bit 'Cnov': no node of the model has this name"):
        chain.plan(keep_16bit=("Cnov",))


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


def test_a_target_with_16_bit_kernels_takes_them_for_noisy_tensors() -> None:
    net = network("a = Conv (x, w) y = Conv (a, w)", {"w": WIDE})
    plan = net.plan("glow", min_tensor_sqnr=60.0)
    assert [plan.nodes[n].kind for n in ("Conv_a", "Conv_y")] == [Kind.QUANTIZED, Kind.QUANTIZED]
    assert {plan.tensors[n].qtype for n in "xay"} == {INT16}


def test_a_constant_operand_is_as_wide_as_the_activation() -> None:
    net = network("a = Conv (x, w) b = Mul (a, s) y = Conv (b, w)", {"w": WIDE, "s": (4, 4)})
    assert net.plan("glow", activation_type="int16").tensors["s"].qtype == INT16


def test_a_tanh_of_16_bits_has_no_sigmoid_table() -> None:
    net = network("a = Conv (x, w) b = Tanh (a) y = Conv (b, w)", {"w": WIDE})
    assert net.plan(keep_16bit=("Tanh",)).nodes["Tanh_b"].implementation == "runtime"
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
