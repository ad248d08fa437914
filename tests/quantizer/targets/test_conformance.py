"""A written model is held against the documents of its runtime; OpenVINO, which is at hand, is run."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import parser
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api.from_profile import write_quantized as quantize_model
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.api.results import QuantizeResult
from qprof_onnx.quantizer.targets.conformance import check_conformity
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.packaged import target_names
from qprof_onnx.quantizer.targets.target import Target

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def written(profile: Path, target: str, **overrides: object) -> tuple[Path, QuantizeResult]:
    path = profile.with_name(f"{target}.onnx")
    return path, quantize_model(DIGITS / "model.onnx", profile, path, recipe=load_recipe(target, overrides))


def heldout() -> npt.NDArray[np.float32]:
    images = [np.load(path)["image"] for path in sorted((DIGITS / "heldout").glob("*.npz"))]
    return np.concatenate([image.reshape(-1, *image.shape[-3:]) for image in images])[:100]


@pytest.mark.parametrize("target", target_names())
def test_the_digits_model_is_written_for_every_target_and_keeps_its_answers(
    profile: Path, target: str
) -> None:
    path, result = written(profile, target)
    assert result.kinds["quantized"] >= 5
    images = heldout()
    (expected,) = ort.InferenceSession(DIGITS / "model.onnx").run(None, {"image": images})
    (got,) = ort.InferenceSession(path).run(None, {"image": images})
    assert np.mean(expected.argmax(1) == got.argmax(1)) >= 0.97  # 100 images; 8 bits change an answer or two


def test_a_softmax_whose_codes_do_not_cover_0_to_1_does_not_suit_onnxruntime() -> None:
    def model(scale: float) -> ir.Model:
        text = f"""<ir_version: 8, opset_import: ["": 17]> g (uint8[2, 4] x) => (uint8[2, 4] y)
            <float s = {{{scale}}}, uint8 z = {{0}}>
            {{ d = DequantizeLinear (x, s, z) p = Softmax (d) y = QuantizeLinear (p, s, z) }}"""
        return ir.from_proto(onnx.shape_inference.infer_shapes(parser.parse_model(text)))

    target = load_recipe("onnxruntime-x86").target
    assert check_conformity(model(1 / 256), target, "m.onnx") == ()
    with pytest.raises(ConfigError, match="computes Softmax wrongly if the parameters"):
        check_conformity(model(0.0039), target, "m.onnx")


@pytest.mark.extra
def test_openvino_gives_what_onnxruntime_gives(profile: Path) -> None:
    openvino = pytest.importorskip("openvino")
    path, _ = written(profile, "openvino")
    images = heldout()
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (expected,) = ort.InferenceSession(path, plain).run(None, {"image": images})
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU")
    got = compiled({"image": images})[0]
    # OpenVINO rounds sums in other places: a code of the last activations, a few hundredths of the logits.
    assert np.abs(got - expected).max() <= 0.05 * np.abs(expected).max()
    precisions = {
        (op.get_rt_info()["layerType"].astype(str), op.get_rt_info()["runtimePrecision"].astype(str))
        for op in compiled.get_runtime_model().get_ordered_ops()
        if "runtimePrecision" in op.get_rt_info()
    }
    assert ("Convolution", "u8") in precisions
    assert ("Convolution", "f32") not in precisions


@pytest.mark.parametrize("target", ["tensorrt", "migraphx"])
def test_symmetric_runtimes_get_int8_with_zero_point_0_and_a_float_bias(profile: Path, target: str) -> None:
    path, _ = written(profile, target)
    model = onnx.load(path)
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    conversions = [n for n in model.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert len(conversions) > 10
    for node in conversions:
        assert constants[node.input[2]].dtype == np.int8
        assert not constants[node.input[2]].any()


# Breaches


JOINED = """
<ir_version: 9, opset_import: ["": 17]>
net (float[N, 4] x) => (float[N, 8] y)
<float s = {0.5}, uint8 z = {ZERO}, float t = {0.25}>
{ j = Concat <axis = 1> (x, x)
  r = RELU (j)
  q = QuantizeLinear (r, s, z)
  d = DequantizeLinear (q, s, z)
  e = RELU (d)
  p = QuantizeLinear (e, t, z)
  y = DequantizeLinear (p, t, z) }
"""


@pytest.mark.parametrize("between", ["Relu", "MaxPool <kernel_shape = [1]>"])
@pytest.mark.parametrize("zero", ["0", "3"])
def test_joined_values_are_quantized_a_second_time_from_zero_alone_for_openvino(
    zero: str, between: str
) -> None:
    text = JOINED.replace("ZERO", zero).replace("RELU", between)
    model = ir.serde.deserialize_model(parser.parse_model(text))
    if between == "Relu" and zero != "0":
        with pytest.raises(ConfigError, match="quantizes joined 'j' a second time, from a zero point"):
            check_conformity(model, load_recipe("openvino").target, "q.onnx")
    else:
        check_conformity(model, load_recipe("openvino").target, "q.onnx")
    check_conformity(model, load_recipe("onnxruntime-x86").target, "q.onnx")


def test_what_runs_elsewhere_is_a_remark() -> None:
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    net (float[N, 4] x) => (float[N, 4] y) { y = Hardmax (x) }
    """
    model = ir.serde.deserialize_model(parser.parse_model(text))
    remarks = check_conformity(model, load_recipe("qnn").target, "q.onnx")
    assert tuple(remark.text for remark in remarks) == (
        "qnn wants fixed shapes: input 'x' has free dimensions; fix them before use",
        "qnn has no Hardmax (1 nodes): they run elsewhere, or not at all",
    )


def test_nothing_is_written_when_the_target_refuses(profile: Path) -> None:
    path = profile.with_name("never.onnx")
    with pytest.raises(ConfigError, match="openvino does not read form 'qoperator'"):
        load_recipe("openvino", {"form": "qoperator"})
    model = profile.with_name("new.onnx")
    proto = onnx.version_converter.convert_version(onnx.load(DIGITS / "model.onnx"), 21)
    onnx.save(proto, model)
    data = profile.with_name("new.yaml")
    profile_model(model, DIGITS / "calibration", data, RunSettings(limit=2))
    with pytest.raises(ConfigError, match="opset 21: migraphx reads 13 to 19"):
        quantize_model(model, data, path, recipe=load_recipe("migraphx"))
    assert not path.exists()


def test_an_operator_of_full_range_that_has_no_bounds_is_told() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x) => (uint8[2, 4] y)
        <float s = {0.1}, uint8 z = {0}> { p = Softmaxx (x) y = QuantizeLinear (p, s, z) }"""
    model = ir.from_proto(parser.parse_model(text))
    for value in model.graph.all_nodes():
        value.outputs[0].dtype = ir.DataType.UINT8
    target = Target("mine", full_range=("Softmaxx",))
    with pytest.raises(ConfigError, match=r"no bounds of Softmaxx are known; .* Did you mean 'Softmax'"):
        check_conformity(model, target, "m.onnx")


@pytest.mark.parametrize(
    ("before", "refused"),
    [
        ("f = DequantizeLinear (x, s, z)", True),
        ("d = DequantizeLinear (x, s, z) f = Transpose (d)", True),
        ("d = DequantizeLinear (x, s, z) f = Exp (d)", False),
    ],
)
def test_a_softmax_between_float_values_has_the_float_kernel(before: str, refused: bool) -> None:
    """As onnxruntime shows in the graph that it executes."""
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (uint8[4, 4] x) => (uint8[4, 4] y)
        <float s = {{0.001}}, uint8 z = {{0}}> {{ {before} p = Softmax (f) y = QuantizeLinear (p, s, z) }}"""
    model = ir.from_proto(parser.parse_model(text))
    target = load_recipe("onnxruntime-x86").target
    with pytest.raises(ConfigError, match="computes Softmax wrongly") if refused else nullcontext():
        check_conformity(model, target, "m.onnx")
