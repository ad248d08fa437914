"""Parameters of another tool, by the names of tensors, become a plan that has them to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import INT8, INT16, UINT8, QuantParams
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.plugins.exchange.foreign import ForeignParams, assumption
from qprof_onnx.quantizer.plugins.exchange.importing import plan_of_params
from qprof_onnx.quantizer.targets.conformance import check_conformity
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...networks import WIDE, Network, network

TEXT = "a = Conv(x, w, b) t = Relu(a) p = MaxPool<kernel_shape = [2, 2]>(t) c = Conv(p, v) y = Exp(c)"
BY_HAND = {"equalization": "off", "bias_correction": "off", "min_output_sqnr": 0.0, "cost_model": "off"}


@pytest.fixture(scope="module")
def net() -> Network:
    return network(TEXT, {"w": WIDE, "b": (8,), "v": WIDE})


def imported(net: Network, tensors: dict[str, QuantParams], target: str = "onnxruntime-x86") -> QuantPlan:
    params = ForeignParams(tensors, "some tool 1.0", (assumption("it was assumed"),))
    return plan_of_params(net.model, params, load_recipe(target))


def activations(*names: str) -> dict[str, QuantParams]:
    return {name: QuantParams((2.0**-i,), (3 + i,), UINT8) for i, name in enumerate(names, 1)}


def weight(scale: float = 0.25) -> QuantParams:
    return QuantParams(tuple(float(np.float32(scale * i)) for i in range(1, 9)), (0,) * 8, INT8, 0)


def test_a_plan_of_qprof_comes_back_from_its_parameters(net: Network) -> None:
    plan = net.plan(**BY_HAND)
    again = imported(net, dict(plan.tensors))
    assert again.tensors == plan.tensors
    assert {n: (e.kind, e.implementation) for n, e in again.nodes.items()} == {
        n: (e.kind, e.implementation) for n, e in plan.nodes.items()
    }
    assert loads(dumps(again)) == again


def test_what_a_clip_reads_has_the_parameters_of_its_output(net: Network) -> None:
    plan = imported(net, activations("x", "t", "p") | {"w": weight()})
    conv, relu, pool, last, _ = plan.nodes.values()
    assert plan.tensors["a"] == plan.tensors["t"]
    assert (conv.kind, relu.kind) == (Kind.QUANTIZED, Kind.PASS_THROUGH)
    assert pool.kind is Kind.QUANTIZED  # its output has other parameters: it converts
    assert last.float_reason.code is ReasonCode.NO_SOURCE_PARAMETERS
    assert last.float_reason.details["tensor"] == "v"
    assert "it was assumed" in map(str, plan.findings)


def test_a_bias_has_the_scale_of_the_products(net: Network) -> None:
    plan = imported(net, activations("x", "t") | {"w": weight()})
    assert plan.tensors["b"].scale.tolist() == [0.5 * s for s in weight().scale.tolist()]


def test_what_the_target_does_not_take_is_float_with_the_reason(net: Network) -> None:
    tensors = activations("x", "t", "p", "c") | {"w": weight(), "v": weight()}
    entry = next(iter(imported(net, tensors, "tensorrt").nodes.values()))
    assert entry.float_reason.code is ReasonCode.PARAMETERS_NOT_TAKEN
    wide = {name: replace(p, qtype=INT16) for name, p in activations("x", "t").items()}
    entry = next(iter(imported(net, wide | {"w": weight()}, "openvino").nodes.values()))
    assert entry.float_reason.code is ReasonCode.PARAMETERS_NOT_TAKEN
    assert "int16" in entry.reason


def test_tensors_that_the_model_does_not_have_are_counted(net: Network) -> None:
    plan = imported(net, activations("x", "t", "gone"))
    assert any(
        "1 tensors of some tool 1.0 are not in the prepared model" in note for note in map(str, plan.findings)
    )


@pytest.mark.parametrize("form", ["qdq", "qoperator", "integer"])
@pytest.mark.parametrize("scale", [1.0 / 256.0, 1.0 / 512.0])
def test_what_is_imported_conforms_to_its_target(scale: float, form: str) -> None:
    """onnxruntime computes a Softmax wrongly in integers whose parameters do not cover 0 to 1."""
    net = network("s = MatMul(x, w) p = Softmax(s) y = MatMul(p, v)", {"w": (8, 8), "v": (8, 4)}, (8, 8))
    eighth, matrix = QuantParams((0.125,), (128,), UINT8), QuantParams((0.03125,), (0,), INT8)
    result = QuantParams((scale,), (0,), UINT8)
    params = ForeignParams({"x": eighth, "s": eighth, "p": result, "w": matrix, "v": matrix}, "some tool")
    recipe = load_recipe("onnxruntime-x86", {"form": form})
    plan = plan_of_params(net.model, params, recipe)
    check_conformity(lower(net.model, plan).model, recipe.target, "plan")
    first, softmax, last = plan.nodes.values()
    assert (first.kind, last.kind, plan.tensors["p"]) == (Kind.QUANTIZED, Kind.QUANTIZED, result)
    if scale < 1.0 / 256.0:
        assert softmax.float_reason.code is ReasonCode.REFUSED_BY_TARGET
    else:
        assert softmax.kind is Kind.QUANTIZED


def test_a_model_that_the_target_cannot_read_is_refused_when_it_is_imported() -> None:
    net = network(TEXT, {"w": WIDE, "b": (8,), "v": WIDE})
    net.model.opset_imports[""] = 21
    with pytest.raises(ConfigError, match=r"some tool 1\.0: does not suit target migraphx: opset 21"):
        imported(net, activations("x", "t") | {"w": weight()}, "migraphx")
