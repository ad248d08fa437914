"""What qprof writes comes back: the same parameters, kinds and integers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.profiles.records.profile import DataId, Profile
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.runtimes import open_session
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.plan.plan import Implementation, Kind, QuantPlan
from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from, rounded_with_samples
from qprof_onnx.quantizer.plugins.exchange.importing import plan_of_file
from qprof_onnx.quantizer.plugins.exchange.quantized_models import source_of_model
from qprof_onnx.quantizer.plugins.exchange.source_plan import plan_of_source
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.loading import load_recipe

from ....networks import WIDE, Network, network

PADS = "<pads = [1, 1, 1, 1]>"
TEXTS = {
    "pool": f"a = Conv(x, w, b) t = Relu(a) p = MaxPool<kernel_shape = [2, 2]>(t) c = Conv{PADS}(p, v) "
    "j = Concat<axis = 0>(c, p) r = LeakyRelu(j) y = Exp(r)",
    "tanh": f"a = Conv{PADS}(x, w, b) t = Tanh(a) s = Sigmoid(a) m = Mul(t, s) n = Add(m, x) c = Conv(n, v) "
    "y = Neg(c)",
}
SETTINGS: dict[str, dict[str, object]] = {
    "uint8": {},
    "int8": {"activation_type": "int8", "rounding": "gptq"},
    "uint16": {"activation_type": "uint16"},
}
OFF = {"equalization": "off", "cost_model": "off", "min_output_sqnr": 0.0}


@pytest.fixture(scope="module", params=TEXTS)
def net(request: pytest.FixtureRequest) -> Network:
    return network(TEXTS[request.param], {"w": WIDE, "b": (8,), "v": WIDE})


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_plan_comes_back_from_the_model_that_it_wrote(
    net: Network, settings: dict[str, object], form: str
) -> None:
    recipe = load_recipe(None, {**OFF, "form": form})
    recipe = replace(recipe, config=replace(recipe.config, **settings))  # as none of the options may be
    planned = plan_from(model_facts(net.prepared, net.profile, recipe))
    if recipe.config.rounding == "gptq":
        feeds = np.random.default_rng(3).standard_normal((4, 1, 8, 6, 6)).astype("f")
        planned = rounded_with_samples(planned, [Sample(str(i), {"x": x}) for i, x in enumerate(feeds)])
    written = lower(planned.model, planned.plan).model
    source = source_of_model(net.graph, written, "own.onnx", "qprof")
    plan = plan_of_source(net.model, source, recipe)
    assert dict(plan.tensors) == dict(planned.plan.tensors)
    assert decisions(plan) == decisions(planned.plan)
    for name, integers in constants(written).items():
        assert np.array_equal(integers, constants(lower(net.model, plan).model)[name]), name


def decisions(plan: QuantPlan) -> dict[str, tuple[object, ...]]:
    return {name: (entry.kind, dict(entry.inputs)) for name, entry in plan.nodes.items()}


def constants(model: ir.Model) -> dict[str, np.ndarray]:
    return {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and value.dtype != ir.DataType.FLOAT
    }


@pytest.mark.parametrize("mode", ["dynamic", "weight-only"])
def test_plans_without_a_profile_come_back(mode: str) -> None:
    prepared = open_prepared(Path(__file__).parents[5] / "examples" / "digits" / "model.onnx")
    recipe = load_recipe(None, {"mode": mode})
    planned = plan_from(model_facts(prepared, Profile(prepared.identity, DataId(), {}), recipe))
    written = lower(planned.model, planned.plan).model
    source = source_of_model(prepared.graph, written, "own.onnx", "qprof")
    plan = plan_of_source(prepared.model, source, recipe)
    kinds = {name: entry.kind for name, entry in planned.plan.nodes.items()}
    assert {name: entry.kind for name, entry in plan.nodes.items()} == kinds


def test_a_normalization_rounded_to_float16_has_the_bias_of_the_float_model() -> None:
    text = "n = LayerNormalization(x, s, t) y = MatMul(n, v)"
    net = network(text, {"s": (6,), "t": (6,), "v": (6, 6)}, opset=21)
    recipe = load_recipe("tensorrt", OFF)
    planned = plan_from(model_facts(net.prepared, net.profile, recipe))
    written = lower(planned.model, planned.plan).model
    assert recipe.config.float_type == "float16"
    plan = plan_of_source(net.model, source_of_model(net.graph, written, "own.onnx", "qprof"), recipe)
    assert {name: entry.kind for name, entry in plan.nodes.items()} == {
        name: entry.kind for name, entry in planned.plan.nodes.items()
    }


def test_floats_in_float16_are_float32_and_told() -> None:
    net = network(f"a = Conv{PADS}(x, w) s = Elu(a) y = Conv{PADS}(s, v)", {"w": WIDE, "v": WIDE})
    recipe = load_recipe("tensorrt", OFF)
    planned = plan_from(model_facts(net.prepared, net.profile, recipe))
    written = lower(planned.model, planned.plan).model
    plan = plan_of_source(net.model, source_of_model(net.graph, written, "own.onnx", "qprof"), recipe)
    assert plan.config.float_type == "float32"
    (told,) = (f.text for f in plan.findings if f.code is Code.IMPORT_LOSES)
    assert told.startswith("floats of own.onnx are float16, and float32 here; set float_type: float16")


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime-x86"])
def test_equalized_channels_and_corrected_biases_of_products_come_back(target: str, tmp_path: Path) -> None:
    """Metadata say which channels are equalized; the bias of a MatMul is in the Add after it."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[8,64] x) => (float[8,64] y) '
        "{ n = LayerNormalization(x, s, t) a = MatMul(n, w) b = Add(a, c) y = MatMul(b, v) }"
    )
    rng = np.random.default_rng(2)
    for name, size in {"s": (64,), "t": (64,), "w": (64, 64), "c": (64,), "v": (64, 64)}.items():
        array = rng.standard_normal(size) / 4 * (np.exp(rng.normal(0, 2, 64)) if name in "st" else 1)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, tmp_path / "m.onnx")
    samples = [{"x": rng.standard_normal((8, 64)).astype(np.float32)} for _ in range(8)]
    profile = profile_model(tmp_path / "m.onnx", samples)
    settings = {"cost_model": "off", "form": "qdq", "float_type": "float32"}
    recipe = load_recipe(target, settings)
    out = tmp_path / "q.onnx"
    written = qprof.quantize(tmp_path / "m.onnx", profile, out, target=target, **settings)
    assert written.plan.adjustments.equalization
    assert written.plan.adjustments.biases
    plan = plan_of_file(out, tmp_path / "m.onnx", recipe)
    assert plan.adjustments.equalization == written.plan.adjustments.equalization
    again = qprof.quantize(tmp_path / "m.onnx", output=tmp_path / "again.onnx", plan=plan)
    for name, array in constants(written.model).items():
        assert np.array_equal(constants(again.model)[name], array)
    run = [open_session(str(tmp_path / f"{n}.onnx"), n).run(None, samples[0])[0] for n in ("q", "again")]
    np.testing.assert_allclose(*run, rtol=0, atol=1e-4)  # biases are sums of float32


def test_weights_that_cast_and_mul_dequantize_do_so_again() -> None:
    net = network(f"y = Conv{PADS}(x, w)", {"w": (64, 8, 3, 3)})
    recipe = load_recipe(None, {**OFF, "mode": "weight-only"})
    planned = plan_from(model_facts(net.prepared, net.profile, recipe))
    (entry,) = planned.plan.nodes.values()
    assert entry.kind is Kind.WEIGHT_ONLY
    folded = replace(entry, implementation=Implementation.FOLDED)
    own = replace(planned.plan, nodes=dict.fromkeys(planned.plan.nodes, folded))
    source = source_of_model(net.graph, lower(planned.model, own).model, "own.onnx", "qprof")
    (found,) = plan_of_source(net.model, source, recipe).nodes.values()
    assert found.implementation == Implementation.FOLDED


def test_transposed_weights_of_gemm_in_packed_products_come_back(tmp_path: Path) -> None:
    """MatMulNBits does not say which way round the weight of a Gemm was."""
    text = "a = Gemm<transB=1>(x, w, b) r = Relu(a) y = Gemm<transB=1>(r, v, c)"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[2,64] x) => (float[2,32] y) {{ {text} }}'
    )
    rng = np.random.default_rng(1)
    for name, size in {"w": (64, 64), "b": (64,), "v": (32, 64), "c": (32,)}.items():
        array = rng.standard_normal(size).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "gemm.onnx")
    prepared = open_prepared(tmp_path / "gemm.onnx")
    recipe = load_recipe(None, {"mode": "weight-only", "weight_type": "uint4", "block_size": 32})
    planned = plan_from(model_facts(prepared, Profile(prepared.identity, DataId(), {}), recipe))
    written = lower(planned.model, planned.plan).model
    packed = constants(written)
    assert [node.op_type for node in written.graph] == ["MatMulNBits", "Relu", "MatMulNBits"]
    source = source_of_model(prepared.graph, written, "own.onnx", "qprof")
    plan = plan_of_source(prepared.model, source, recipe)
    again = constants(lower(prepared.model, plan).model)
    assert again.keys() == packed.keys()
    assert all(np.array_equal(again[name], array) for name, array in packed.items())
