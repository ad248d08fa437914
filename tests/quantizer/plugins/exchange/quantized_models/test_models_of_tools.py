"""Models that other tools quantized become plans; lowered again they give the same outputs, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from qprof_onnx import ModelError
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.planning.plan_model import open_plan
from qprof_onnx.quantizer.plugins.exchange.importing import plan_of_file
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.conformance import check_conformity
from qprof_onnx.quantizer.targets.loading import load_recipe

DATA = Path(__file__).parent / "data"
FLOAT = DATA / "float.onnx"
SAMPLES = np.random.default_rng(9).standard_normal((6, 1, 3, 8, 8)).astype(np.float32)


def run(model: Path | bytes, *, optimised: bool = True) -> np.ndarray:
    options = ort.SessionOptions()
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model) if isinstance(model, Path) else model, options)
    return np.concatenate([session.run(None, {"x": sample})[0] for sample in SAMPLES])


def imported(source: Path, form: str = "qdq", target: str | None = None) -> QuantPlan:
    return plan_of_file(source, FLOAT, load_recipe(target, {"form": form}))


def again(plan: QuantPlan) -> np.ndarray:
    """Return the outputs of the model that the plan's file describes."""
    planned = open_plan(open_prepared(FLOAT), loads(dumps(plan)))
    return run(ir.to_proto(lower(planned.model, planned.plan).model).SerializeToString())


def kinds(plan: QuantPlan) -> dict[str, Kind]:
    return {name: entry.kind for name, entry in plan.nodes.items()}


class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    def __init__(self) -> None:
        self._rest: Iterator[np.ndarray] = iter(SAMPLES)

    def get_next(self) -> dict[str, np.ndarray] | None:
        sample = next(self._rest, None)
        return None if sample is None else {"x": sample}


@pytest.fixture
def static(tmp_path: Path) -> Callable[..., Path]:
    def quantized(**options: Any) -> Path:
        path = tmp_path / "static.onnx"
        given = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, **options}
        quantize_static(FLOAT, path, Reader(), **{"quant_format": QuantFormat.QDQ, **given})
        return path

    return quantized


@pytest.fixture
def dynamic(tmp_path: Path) -> Path:
    path = tmp_path / "dynamic.onnx"
    quantize_dynamic(FLOAT, path, weight_type=QuantType.QInt8)
    return path


@pytest.mark.parametrize("name", ["aimet", "nncf", "quark-A8W8", "quark-S8S8_AAWS"])
def test_outputs_of_other_tools_models_stay_the_same(name: str) -> None:
    source = DATA / f"{name}.onnx"
    plan = imported(source)
    assert np.array_equal(again(plan), run(source))
    assert sum(kind.reads_quantized for kind in kinds(plan).values()) >= 11


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"per_channel": True, "reduce_range": True},
        {"weight_type": QuantType.QUInt8},
        {"weight_type": QuantType.QInt4},
        {"activation_type": QuantType.QInt8, "extra_options": {"ActivationSymmetric": True}},
        {"extra_options": {"QDQKeepRemovableActivations": True, "DedicatedQDQPair": True}},
        {"extra_options": {"AddQDQPairToWeight": True}},
        {"quant_format": QuantFormat.QOperator},
        {"quant_format": QuantFormat.QOperator, "per_channel": True},
    ],
    ids=str,
)
def test_outputs_of_onnxruntimes_models_stay_the_same(
    static: Callable[..., Path], options: dict[str, Any]
) -> None:
    source = static(**options)
    form = "qoperator" if options.get("quant_format") == QuantFormat.QOperator else "qdq"
    plan = imported(source, form)
    assert np.array_equal(again(plan), run(source))
    assert Kind.FLOAT not in kinds(plan).values()


def test_activations_of_16_bits_stay_so_where_the_source_as_onnxruntime_runs_it_has_8(
    static: Callable[..., Path],
) -> None:
    """onnxruntime rounds the activations of products to 8 bits; those of the plan's model it does not."""
    source = static(activation_type=QuantType.QUInt16)
    plan = imported(source)
    assert Kind.FLOAT not in kinds(plan).values()
    np.testing.assert_allclose(again(plan), run(source, optimised=False), atol=1e-4)


def test_scales_are_those_of_the_source_to_the_bit(static: Callable[..., Path]) -> None:
    source = static(per_channel=True)
    scales = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(source).graph.initializer}
    plan = imported(source)
    assert plan.tensors["x"].tensor_scale == float(scales["x_scale"])
    assert plan.tensors["left.weight"].scale.tolist() == scales["left.weight_scale"].tolist()
    assert plan.tensors["left.weight"].axis == 0


def test_the_form_is_that_of_the_source(static: Callable[..., Path]) -> None:
    source = static(quant_format=QuantFormat.QOperator)
    assert plan_of_file(source, FLOAT, load_recipe(), keep_form=True).config.form == "qoperator"
    assert plan_of_file(DATA / "nncf.onnx", FLOAT, load_recipe(), keep_form=True).config.form == "qdq"


def test_integers_that_are_not_the_nearest_are_kept(static: Callable[..., Path], tmp_path: Path) -> None:
    model = onnx.load(static())
    for constant in model.graph.initializer:
        if constant.name in ("left.weight_quantized", "left.bias_quantized"):
            values = onnx.numpy_helper.to_array(constant).copy()
            values.reshape(-1)[::3] -= np.sign(values.reshape(-1)[::3])
            constant.CopyFrom(onnx.numpy_helper.from_array(values, constant.name))
    source = tmp_path / "rounded.onnx"
    onnx.save(model, source)
    plan = imported(source)
    assert list(plan.adjustments.roundings) == ["left"]
    assert list(plan.adjustments.biases) == ["left"]
    assert np.array_equal(again(plan), run(source))
    assert any("1 weights have the integers of rounded.onnx" in note for note in map(str, plan.findings))


def test_dynamic_products_and_convolutions_are_dynamic(dynamic: Path) -> None:
    plan = imported(dynamic)
    assert {plan.nodes[name].kind for name in ("stem", "left", "last")} == {Kind.DYNAMIC}
    assert np.array_equal(again(plan), run(dynamic))


def test_a_target_without_dynamic_kernels_computes_with_the_weights_of_the_source(dynamic: Path) -> None:
    recipe = load_recipe()
    recipe = replace(recipe, target=replace(recipe.target, dynamic=()))
    plan = plan_of_file(dynamic, FLOAT, recipe)
    assert plan.nodes["stem"].kind is Kind.WEIGHT_ONLY
    assert plan.nodes["stem"].float_reason.code is ReasonCode.NO_DYNAMIC_KERNEL
    assert np.isfinite(again(plan)).all()


def test_dynamic_nodes_that_have_float_activations_in_the_plan_are_told(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.onnx"
    quantize_dynamic(FLOAT, path, weight_type=QuantType.QUInt8, per_channel=True)
    plan = imported(path)
    lost = [name for name, kind in kinds(plan).items() if kind is Kind.WEIGHT_ONLY]
    note = f"{len(lost)} nodes are dynamic in dynamic.onnx, such as '{lost[0]}', and have float activations"
    assert f"{note} here" in map(str, plan.findings)
    assert plan.nodes[lost[0]].reason.endswith("in a dynamic product, as its channels have zero points")


def test_a_table_that_an_embedding_and_a_product_share_is_quantized_in_both(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (int64[n] x) => (float[n,16] y) '
        "{ e = Gather(E, x) t = Transpose<perm = [1, 0]>(E) y = MatMul(e, t) }"
    )
    for node in model.graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    table = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "E"))
    plain, source = tmp_path / "plain.onnx", tmp_path / "source.onnx"
    onnx.save(model, plain)
    quantize_dynamic(plain, source, weight_type=QuantType.QInt8)
    plan = plan_of_file(source, plain, load_recipe())
    assert kinds(plan) == {"Gather_e": Kind.PASS_THROUGH, "MatMul_y": Kind.QUANTIZED}


def test_a_node_that_the_source_leaves_float_stays_float(static: Callable[..., Path]) -> None:
    plan = imported(static(nodes_to_exclude=["right"]))
    assert plan.nodes["right"].float_reason.code is ReasonCode.NO_SOURCE_PARAMETERS
    assert plan.nodes["left"].kind is Kind.QUANTIZED


def test_what_another_target_does_not_take_is_float_with_the_reason(static: Callable[..., Path]) -> None:
    plan = imported(static(), target="tensorrt")
    assert plan.nodes["stem"].float_reason.code is ReasonCode.PARAMETERS_NOT_TAKEN
    symmetric = {"activation_type": QuantType.QInt8, "extra_options": {"ActivationSymmetric": True}}
    source = static(**symmetric)
    plan = imported(source, target="tensorrt")
    assert plan.nodes["stem"].kind is Kind.QUANTIZED
    assert not any(params.qtype.name == "int32" for params in plan.tensors.values())  # biases are float there
    lowered = lower(open_prepared(FLOAT).model, plan).model
    check_conformity(lowered, load_recipe("tensorrt").target, "plan")
    assert np.allclose(again(plan), run(source), atol=0.05)


def test_scales_that_follow_a_product_are_folded_into_its_weight(tmp_path: Path) -> None:
    """Of a model whose BatchNormalization the tool did not fold, as preparation does."""
    text = "a = Conv(x, w) n = BatchNormalization(a, s, o, m, v) y = Relu(n)"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1,3,8,8] x) => (float[1,8,6,6] y) {{ {text} }}'
    )
    rng = np.random.default_rng(4)
    sizes = {"w": (8, 3, 3, 3), "s": (8,), "o": (8,), "m": (8,), "v": (8,)}
    for name, size in sizes.items():
        drawn = rng.standard_normal(size).astype(np.float32)
        array = np.abs(drawn) if name == "v" else drawn  # some scales are negative
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    plain, source = tmp_path / "plain.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, plain)
    quantize_static(plain, source, Reader(), weight_type=QuantType.QInt8, per_channel=True)
    plan = plan_of_file(source, plain, load_recipe())
    assert [entry.kind for entry in plan.nodes.values()] == [Kind.QUANTIZED, Kind.PASS_THROUGH]
    assert any(
        "1 products have the scales folded into their weights" in note for note in map(str, plan.findings)
    )
    planned = open_plan(open_prepared(plain), plan)
    outputs = run(ir.to_proto(lower(planned.model, plan).model).SerializeToString())
    error = outputs - run(plain)
    assert np.mean(error**2) <= 1.1 * np.mean((run(source) - run(plain)) ** 2)


@pytest.mark.parametrize(
    ("between", "said"),
    [
        ("r = Relu(c)", "that source.onnx leaves to saturation are pass-through nodes"),
        (
            "t = Transpose<perm = [0, 1, 3, 2]>(c) r = Relu(t)",
            "are not computed by source.onnx, whose parameters do not saturate there, such as 'Relu_r': the "
            "plan has them, and so other results",
        ),
    ],
)
def test_what_is_left_to_saturation_is_told_from_what_is_left_out(
    tmp_path: Path, between: str, said: str
) -> None:
    """onnxruntime's tool drops a Relu behind a Transpose, and calibrates the tensor before it."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1,3,8,8] x) => (float[1,8,8,8] y) '
        f"{{ c = Conv(x, w) {between} y = Conv(r, v) }}"
    )
    for node in model.graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    rng = np.random.default_rng(0)
    for name, size in {"w": (8, 3, 1, 1), "v": (8, 8, 1, 1)}.items():
        array = rng.standard_normal(size).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    plain, source = tmp_path / "plain.onnx", tmp_path / "source.onnx"
    onnx.save(model, plain)
    quantize_static(plain, source, Reader(), quant_format=QuantFormat.QOperator)
    plan = plan_of_file(source, plain, load_recipe())
    assert [note for note in map(str, plan.findings) if "functions" in note] == [
        f"1 activation functions {said}"
    ]
    assert plan.nodes["Relu_r"].kind is Kind.PASS_THROUGH


def test_what_is_not_in_the_float_model_is_counted() -> None:
    notes = [*map(str, imported(DATA / "quark-XINT8.onnx").findings)]
    assert any("nodes of quark-XINT8.onnx are not in the prepared float model" in note for note in notes)
    assert any("written by quark.onnx 0.13" in note for note in notes)


def test_a_model_of_another_float_model_is_refused() -> None:
    digits = Path(__file__).parents[5] / "examples" / "digits" / "model.onnx"
    with pytest.raises(ModelError, match="none of its quantized nodes is in the float model; give"):
        plan_of_file(DATA / "nncf.onnx", digits, load_recipe())


def test_a_model_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes((DATA / "nncf.onnx").read_bytes()[:3000])
    with pytest.raises(ModelError, match=r"cut\.onnx: not an ONNX model, or cut off"):
        imported(path)
