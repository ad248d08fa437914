"""With cost_model off, time is no reason for a node to stay float, on any target."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.planning.plan_model import first_plan, model_facts
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.packaged import target_names

from ..networks import Network, network

FREE = {"cost_model": "off", "min_output_sqnr": 0.0, "min_tensor_sqnr": 0.0}
"""Neither time nor noise matters."""

NETWORKS = {
    "one convolution": ("y = Conv (x, a)", {"a": (32, 8, 1, 1)}, (1, 8, 10, 10)),
    "inverted residuals": (
        """a = Conv (x, w1) b = Clip (a, zero, six) c = Conv <group = 24, pads = [1, 1, 1, 1]> (b, w2)
        d = Clip (c, zero, six) e = Conv (d, w3) f = Add (x, e) g = Conv (f, w1) h = Clip (g, zero, six)
        i = Conv <group = 24, pads = [1, 1, 1, 1]> (h, w2) j = Clip (i, zero, six) y = Conv (j, w3)""",
        {
            "w1": (24, 8, 1, 1),
            "w2": (24, 1, 3, 3),
            "w3": (8, 24, 1, 1),
            "zero": np.float32(0),
            "six": np.float32(6),
        },
        (1, 8, 16, 16),
    ),
    "a small Gemm": ("y = Gemm (x, a, b)", {"a": (3, 2), "b": (2,)}, (1, 3)),
    "element by element": ("a = Add (x, x) b = Mul (a, x) c = Relu (b) y = Sigmoid (c)", {}, (1, 8, 4, 4)),
    "a product of activations": (
        "a = Transpose <perm = [0, 2, 1]> (x) b = MatMul (x, a) c = Softmax (b) y = MatMul (c, x)",
        {},
        (1, 6, 8),
    ),
    "a small LSTM": (
        "y, h, c = LSTM <hidden_size = 4> (x, a, b)",
        {"a": (1, 16, 3), "b": (1, 16, 4)},
        (5, 1, 3),
    ),
    "a first layer": (
        """a = Conv <strides = [2, 2]> (x, w) b = Relu (a) c = MaxPool <kernel_shape = [2, 2]> (b)
        y = Conv (c, v)""",
        {"w": (8, 1, 3, 3), "v": (8, 8, 3, 3)},
        (1, 1, 24, 24),
    ),
    "a transposed convolution of many phases": (
        "a = ConvTranspose <strides = [5, 5]> (x, w) y = Relu (a)",
        {"w": (4, 4, 2, 2)},
        (1, 4, 4, 4),
    ),
    "a picture of a transposed convolution": (
        "y = ConvTranspose <strides = [2, 2]> (x, w)",
        {"w": (4, 4, 2, 2)},
        (1, 4, 4, 4),
    ),
    "a weight that is read in float too": (
        'a = Conv (x, w) b = Einsum <equation = "nchw,ocii->nohw"> (x, w) y = Add (a, b)',
        {"w": (8, 8, 1, 1)},
        (1, 8, 4, 4),
    ),
    "pieces that are joined": (
        """a = Slice (x, zero, two, one) b = Sigmoid (a) c = Concat <axis = 1> (x, b)
        d = AveragePool <kernel_shape = [2, 2]> (c)
        y = GlobalAveragePool (d)""",
        {"zero": np.array([0]), "two": np.array([2]), "one": np.array([1])},
        (1, 4, 4, 4),
    ),
    "a long row": (
        "a = Conv (x, w) b = Tanh (a) y = Conv (b, v)",
        {"w": (4, 1, 64), "v": (1, 4, 3)},
        (1, 1, 256),
    ),
}

NOT_ABOUT_TIME = {
    *(ReasonCode.BY_REQUEST, ReasonCode.SHAPE_ARITHMETIC, ReasonCode.ONLY_CONSTANTS),
    *(ReasonCode.UNSUPPORTED_OPERATOR, ReasonCode.NO_KERNEL, ReasonCode.UNSUPPORTED_USE),
    *(ReasonCode.NO_DYNAMIC_KERNEL, ReasonCode.NO_DYNAMIC_FORM, ReasonCode.CLIPPED_FULL_RANGE),
    *(ReasonCode.NOT_FLOAT32, ReasonCode.NO_PARAMETERS, ReasonCode.NO_FORM),
}


@cache
def small(name: str) -> Network:
    return network(*NETWORKS[name])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("target", target_names())
def test_no_node_stays_float_for_its_time(target: str, name: str) -> None:
    plan = small(name).plan(target, **FREE)
    codes = {entry.float_reason.code for entry in plan.nodes.values() if entry.stays_float}
    assert codes <= NOT_ABOUT_TIME
    words = " ".join(entry.reason for entry in plan.nodes.values() if entry.stays_float)
    assert not any(word in words for word in ("cost", "fast", "slow", "time ", "times "))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("mode", ["dynamic", "auto"])
def test_so_it_is_in_the_other_modes(mode: str, name: str) -> None:
    plan = small(name).plan("onnxruntime-x86", **FREE, mode=mode)
    for node in small(name).graph.nodes:
        entry = plan.nodes[node.name]
        if node.op_type in ("Conv", "Gemm", "LSTM", "ConvTranspose"):
            assert entry.kind in (Kind.DYNAMIC, Kind.QUANTIZED), entry.reason


@pytest.mark.parametrize("form", ["qdq", "qoperator", "integer", "primitives", "regions"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_model_runs_in_integers(name: str, form: str) -> None:
    net, recipe = (
        small(name),
        load_recipe("onnxruntime-x86", {**FREE, "form": form, "weight_type": "int8"}),
    )
    planned = first_plan(model_facts(net.prepared, net.profile, recipe))
    kinds = [entry.kind for entry in planned.plan.nodes.values()]
    assert any(kind.counts_as_quantized for kind in kinds) or (name, form) in NO_LSTM
    model = ir.serde.serialize_model(lower(planned.model, planned.plan).model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    in_float = ort.InferenceSession(ir.serde.serialize_model(net.model).SerializeToString())
    x = np.random.default_rng(0).standard_normal(NETWORKS[name][2]).astype(np.float32)
    (wanted,), (got,) = in_float.run(["y"], {"x": x}), session.run(["y"], {"x": x})
    assert np.square(got - wanted).sum() < 0.02 * np.square(wanted).sum()  # 17 dB: nothing is destroyed


NO_LSTM = [("a small LSTM", form) for form in ("integer", "primitives", "regions")]
"""Forms without an operator for it."""


def test_a_float_node_with_a_limit_of_noise_names_the_limit() -> None:
    plan = small("inverted residuals").plan(cost_model="off", min_output_sqnr=60.0)
    codes = {entry.float_reason.code for entry in plan.nodes.values() if entry.stays_float}
    assert codes == {ReasonCode.NOISE_BUDGET}
