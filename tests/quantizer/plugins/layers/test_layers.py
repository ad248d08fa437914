import json
import math

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.api.profiling import profile as profile_of
from qprof_onnx.quantizer.api.quantize import quantize
from qprof_onnx.quantizer.lowering.lowered import EQUALIZED, RECORD
from qprof_onnx.quantizer.plugins.layers.layers import layers_of, matches

FLOAT = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 2] x) => (float[N, 2] y)
<float[2, 2] w = {1, 0.5, -0.5, 1}, float[1] b = {0.25}> {
  [mm] m = MatMul (x, w)
  [add] a = Add (m, b)
  [relu] r = Relu (a)
  [tanh] t = Tanh (r)
  [last] y = Add (t, b)
}"""

# As the lowering writes it: tensors keep their names on the dequantized form; the Relu went into the
# saturation of `a`.
QUANTIZED = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 2] x) => (float[N, 2] y)
<float[2, 2] w = {1, 0.5, -0.5, 1}, float[1] b = {0.25}, float sx = {0.0078125}, uint8 zx = {128},
 float sa = {0.5}, uint8 za = {0}> {
  x_quantized = QuantizeLinear (x, sx, zx)
  x_dequantized = DequantizeLinear (x_quantized, sx, zx)
  m = MatMul (x_dequantized, w)
  a_raw = Add (m, b)
  a_quantized = QuantizeLinear (a_raw, sa, za)
  r = DequantizeLinear (a_quantized, sa, za)
  t = Tanh (r)
  y = Add (t, b)
}"""


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str):
        path = tmp_path / name
        onnx.save(onnx.parser.parse_model(text), path)
        return path

    return write


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        np.save(folder / f"{number}.npy", rng.uniform(-1, 0.99, (4, 2)).astype(np.float32))
    return folder


def read(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(text))


def typed(text: str) -> ir.Model:
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def test_the_layer_with_the_lowest_sqnr_is_found(write, data) -> None:
    report = layers_of(write("a.onnx", FLOAT), write("b.onnx", QUANTIZED), data)
    layers = {layer.tensor: layer for layer in report.layers}
    assert list(layers) == ["x", "m", "r", "t", "y"]  # graph order
    assert report.missing == ("a",)
    assert (layers["x"].op_type, layers["x"].type) == ("input", "quantized")
    assert layers["x"].difference.sqnr > 40
    assert (layers["m"].type, layers["m"].node, layers["m"].op_type) == ("float", "mm", "MatMul")
    assert (layers["r"].type, layers["r"].op_type) == ("quantized", "Relu")
    assert layers["r"].difference.sqnr < 17  # scale 0.5 on values up to 1.5
    assert report.worst(1)[0].effective.sqnr == min(layer.effective.sqnr for layer in report.layers)


def test_quantized_values_are_dequantized_as_the_operator_does(write, data) -> None:
    report = layers_of(write("a.onnx", FLOAT), write("b.onnx", QUANTIZED), data)
    x = np.concatenate([np.load(p) for p in sorted(data.iterdir())]).astype(np.float64)
    real = (np.clip(np.rint(x * 128) + 128, 0, 255) - 128) / 128
    expected = 10 * math.log10((x**2).sum() / ((x - real) ** 2).sum())
    assert report.layers[0].difference.sqnr == pytest.approx(expected, rel=1e-12)  # order of float64 sums


def test_the_sqnr_drop_is_what_a_node_adds(write, data) -> None:
    report = layers_of(write("a.onnx", FLOAT), write("b.onnx", QUANTIZED), data)
    layers = {layer.tensor: layer for layer in report.layers}
    assert layers["x"].sqnr_drop is None
    assert layers["m"].sqnr_drop == layers["x"].difference.sqnr - layers["m"].difference.sqnr
    # `a` is not in the quantized model and stands for what it was made from
    assert layers["r"].sqnr_drop == layers["m"].difference.sqnr - layers["r"].effective.sqnr


def test_a_model_against_itself_loses_nothing(write, data) -> None:
    path = write("a.onnx", FLOAT)
    report = layers_of(path, path, data)
    assert report.missing == ()
    assert {layer.difference.sqnr for layer in report.layers} == {math.inf}
    assert {layer.type for layer in report.layers} == {"float"}
    assert [layer.sqnr_drop for layer in report.layers] == [None] * 6


def test_models_without_a_common_tensor_are_refused(write, data) -> None:
    other = """<ir_version: 8, opset_import: ["": 13]>
    agraph (float[N, 2] other) => (float[N, 2] z) { z = Neg (other) }"""
    with pytest.raises(ModelError, match=r"b\.onnx: has no activation of .*a\.onnx"):
        layers_of(write("a.onnx", FLOAT), write("b.onnx", other), data)


def test_quantized_values_of_an_absorbed_clip_are_not_taken_for_its_input() -> None:
    found = {match.tensor: match for match in matches(typed(FLOAT), read(QUANTIZED))}
    assert "a" not in found
    assert found["r"].exposed == "a_quantized"


TABLES = """<ir_version: 8, opset_import: ["": 13] %s>
agraph (float[N, 2] x) => (float[N, 2] y)
<float s = {0.5}, uint8 z = {3}, float s2 = {1}, float s256 = {0.00390625}, uint8 z0 = {0}> {
  x_quantized = QuantizeLinear (x, s, z)
  x_doubled = DequantizeLinear (x_quantized, s2, z)
  t_sigmoid = Sigmoid (x_doubled)
  t_quantized = QuantizeLinear (t_sigmoid, s256, z0)
  u_quantized = MaxPool <kernel_shape = [1]> (t_quantized)
  y = DequantizeLinear (u_quantized, s, z)
}"""
TANH = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 2, 2] x) => (float[N, 2, 2] y) {
  t = Tanh (x)
  u = MaxPool <kernel_shape = [1]> (t)
  y = Neg (u)
}"""


def test_quantized_values_that_mean_another_tensor_are_not_guessed() -> None:
    assert [match.tensor for match in matches(typed(TANH), read(TABLES % ""))] == ["x", "y"]


def record_of(**entries: object) -> str:
    """Return the header with the record of a written model, in the parser's language."""
    text = json.dumps(entries).replace('"', '\\"')
    return f', metadata_props: ["{RECORD}": "{text}"]'


def test_the_record_of_a_written_model_explains_what_its_graph_does_not() -> None:
    params = {"scale": [1 / 128], "zero_point": [128]}
    record = record_of(t={"name": "t_quantized", **params}, u={"name": "u_quantized", **params})
    found = {match.tensor: match for match in matches(typed(TANH), read(TABLES % record))}
    assert list(found) == ["x", "t", "u", "y"]
    assert found["u"].dequantized(np.array([[128, 0]], np.uint8)).tolist() == [[0.0, -1.0]]


@pytest.mark.parametrize("spoiled", ["{", "[]", '{"t": 1}', '{"t": {"name": "t_quantized"}}'])
def test_a_spoiled_record_counts_as_none(spoiled: str) -> None:
    model = read(TABLES % "")
    model.metadata_props[RECORD] = spoiled
    assert [match.tensor for match in matches(typed(TANH), model)] == ["x", "y"]


def test_a_record_of_tensors_that_are_gone_counts_as_none() -> None:
    record = record_of(t={"name": "gone", "scale": [1.0], "zero_point": [0]})
    assert [match.tensor for match in matches(typed(TANH), read(TABLES % record))] == ["x", "y"]


NAMED = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 2] x) => (float[N, 2] y)
<float[2, 2] w = {1, 0.5, -0.5, 1}, float[1] b = {0.25}, float sa = {0.5}, uint8 za = {0}> {
  [mm] p = MatMul (x, w)
  q = QuantizeLinear (p, sa, za)
  d = DequantizeLinear (q, sa, za)
  [add] y = Add (d, b)
}"""


def test_a_node_of_the_same_name_leads_to_the_quantized_tensor_after_it() -> None:
    found = {match.tensor: match for match in matches(typed(FLOAT), read(NAMED))}
    assert found["m"].exposed == "q"
    assert found["m"].scale.tolist() == [0.5]


def test_parameters_by_channel_are_applied_along_their_axis() -> None:
    text = """<ir_version: 8, opset_import: ["": 13]>
    agraph (float[N, 2] x) => (float[N, 2] y) <float[2] s = {0.5, 2}, uint8[2] z = {0, 1}> {
      q = QuantizeLinear <axis = 1> (x, s, z)
      y = DequantizeLinear <axis = 1> (q, s, z)
    }"""
    quantized = typed(text)
    found = {match.tensor: match for match in matches(typed(TANH), quantized)}
    assert found["y"].dequantized(np.array([[3, 3]], np.uint8)).tolist() == [[1.5, 4.0]]


ACTIVATED = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 1, 4, 4] x) => (float[N, 2, 4, 4] y)
<float[2, 1, 1, 1] w = {4, 2}, float[2, 2, 1, 1] v = {1, 0.5, -0.5, 1}, float[2] b = {-2, -1},
 float sx = {0.0157}, uint8 zx = {128}, float sc = {0.045}, uint8 zc = {111}> {
  %s
  %s
  [second] y = Conv (a, v)
}"""
FUNCTIONS = {"Relu": "a = Relu (%s)", "Sigmoid, Mul": "s = Sigmoid (%s)  a = Mul (%s, s)"}


def activated(operators: str, clipped: bool) -> str:
    """Return Conv, function, Conv; `clipped`: input and first Conv quantized, the Conv clipped below -5."""
    function = FUNCTIONS[operators]
    if not clipped:
        return ACTIVATED % ("[first] c = Conv (x, w, b)", function.replace("%s", "c"))
    quantized = """xq = QuantizeLinear (x, sx, zx)  xd = DequantizeLinear (xq, sx, zx)
  [first] c = Conv (xd, w, b)
  q = QuantizeLinear (c, sc, zc)  d = DequantizeLinear (q, sc, zc)"""
    return ACTIVATED % (quantized, function.replace("%s", "d"))


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    np.save(folder / "0.npy", np.random.default_rng(0).uniform(-2, 2, (4, 1, 4, 4)).astype(np.float32))
    return folder


@pytest.mark.parametrize("operators", FUNCTIONS)
def test_a_tensor_is_compared_after_the_function_that_clips_it_too(write, images, operators) -> None:
    floats = write("a.onnx", activated(operators, clipped=False))
    report = layers_of(floats, write("b.onnx", activated(operators, clipped=True)), images)
    layers = {layer.tensor: layer for layer in report.layers}
    conv, after = layers["c"], layers["a"]
    assert conv.difference.sqnr < 15
    assert conv.after == operators
    assert conv.effective == conv.difference_after
    # The readers' result, which the runtime computes in float32.
    assert conv.difference_after.sqnr == pytest.approx(after.difference.sqnr, abs=0.01)
    assert after.sqnr_drop == pytest.approx(0.0, abs=0.01)
    assert (after.after, after.difference_after, after.effective) == ("", None, after.difference)
    (row,) = [row for row in report.presentation().tables[0].rows if row[0] == "c"]
    assert row[-1] == operators


def test_a_tensor_with_another_reader_is_compared_itself(write, images) -> None:
    both = "Conv (%s, v)  y = Add (p, a)"
    text = [activated("Relu", c).replace("[second] y = Conv (a, v)", f"p = {both}") for c in (False, True)]
    report = layers_of(write("a.onnx", text[0] % "c"), write("b.onnx", text[1] % "d"), images)
    conv = next(layer for layer in report.layers if layer.tensor == "c")
    assert (conv.after, conv.difference_after) == ("", None)
    assert conv.effective.sqnr < 15


def test_a_function_that_is_not_finite_on_quantized_values_does_not_count(write, images) -> None:
    text = [activated("Relu", clipped).replace("Relu", "Log") for clipped in (False, True)]
    for old, new in (("{-2, -1}", "{8.001, 4.001}"), ("{0.045}", "{0.5}"), ("{111}", "{0}")):
        text = [t.replace(old, new) for t in text]
    report = layers_of(write("a.onnx", text[0]), write("b.onnx", text[1]), images)
    conv = next(layer for layer in report.layers if layer.tensor == "c")
    assert (conv.after, conv.effective) == ("", conv.difference)


def equalized(folder):
    """Quantize a network whose LayerNormalization is equalized; return both files, samples and the plan."""
    rng = np.random.default_rng(0)
    gain = np.exp(rng.normal(0.0, 1.2, 32)).astype(np.float32)
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 32] x) => (float[n, 32] y) {
      ln = LayerNormalization <axis = -1> (x, gain, bias)
      h = MatMul (ln, first) r = Relu (h) y = MatMul (r, second)
    }"""
    proto = onnx.parser.parse_model(text)
    weights = {"gain": gain, "bias": np.zeros(32), "first": rng.normal(0.0, 0.1, (32, 64))}
    weights["second"] = rng.normal(0.0, 0.1, (64, 32))
    for name, values in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), name))
    onnx.save(proto, folder / "m.onnx")
    samples = [{"x": rng.normal(size=(16, 32)).astype(np.float32)} for _ in range(4)]
    profile = profile_of(folder / "m.onnx", samples)
    made = quantize(folder / "m.onnx", profile, folder / "q.onnx", cost_model="off", weight_type="int7")
    assert made.plan.adjustments.equalization
    return folder / "m.onnx", folder / "q.onnx", samples, made.plan


def test_equalized_channels_are_compared_with_and_without_the_plan(tmp_path) -> None:
    *given, plan = equalized(tmp_path)
    with_plan, without = layers_of(*given, plan=plan), layers_of(*given)
    assert [layer.tensor for layer in without.layers] == [layer.tensor for layer in with_plan.layers]
    assert [layer.difference for layer in without.layers] == [layer.difference for layer in with_plan.layers]
    assert all(layer.difference.sqnr > 25.0 for layer in without.layers)


def test_an_equalized_tensor_of_which_nobody_says_it_is_left_out(tmp_path) -> None:
    floats, path, samples, plan = equalized(tmp_path)
    proto = onnx.load(path)
    (place,) = (at for at, entry in enumerate(proto.metadata_props) if entry.key == EQUALIZED)
    del proto.metadata_props[place]
    onnx.save(proto, path)
    report = layers_of(floats, path, samples)
    assert set(plan.adjustments.equalization) <= set(report.missing)
    assert all(layer.difference.sqnr > 25.0 for layer in report.layers)


def test_a_record_of_equalized_channels_that_does_not_fit_leaves_it_out(tmp_path) -> None:
    floats, path, samples, _ = equalized(tmp_path)
    proto = onnx.load(path)
    (entry,) = (entry for entry in proto.metadata_props if entry.key == EQUALIZED)
    entry.value = '{"ln": {"axis": 1, "scales": [2.0], "inserted": false}}'
    onnx.save(proto, path)
    report = layers_of(floats, path, samples)
    assert "ln" in report.missing


def test_what_a_node_with_a_body_makes_is_compared(write, tmp_path) -> None:
    inner = "then_branch = t () => (u) { u = Tanh (x) }, else_branch = e () => (v) { v = Neg (x) }"
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 2] x, bool b) => (float[N, 2] y) {{ z = If (b) <{inner}>  y = Neg (z) }}"""
    np.savez(tmp_path / "0.npz", x=np.ones((4, 2), np.float32), b=np.array(True))
    report = layers_of(write("a.onnx", text), write("b.onnx", text), tmp_path / "0.npz")
    assert [(layer.tensor, layer.op_type) for layer in report.layers] == [
        ("x", "input"),
        ("z", "If"),
        ("y", "Neg"),
    ]
