"""Attention with masks of every usual spelling: ranges, powers and estimates without the fillers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser, shape_inference
from qprof_onnx import profile, quantize
from qprof_onnx.quantizer.noise.kept_samples import with_noise_of_kept
from qprof_onnx.quantizer.noise.mask_fillers import (
    VANISHING_DISTANCE,
    filler_rows,
    reach_below,
    saturating_low,
    with_fillers_apart,
    without_fillers,
)
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plugins.layers.layers import layers_of
from qprof_onnx.quantizer.prepare.prepare import prepare

Array = npt.NDArray[np.float32]
LOWEST = float(np.finfo(np.float32).min)
STEPS, WIDTH = 12, 32
RNG = np.random.default_rng(5)
WEIGHTS = {n: RNG.normal(0.0, 0.25, (WIDTH, WIDTH)).astype(np.float32) for n in ("wq", "wk", "wv", "wo")}
CAUSAL = np.triu(np.ones((STEPS, STEPS), np.float32), 1)
SAMPLES: Sequence[Mapping[str, Array]] = [
    {
        "x": RNG.normal(size=(2, STEPS, WIDTH)).astype(np.float32),
        "seen": np.repeat((np.arange(STEPS) < 8 + i % 4)[None, None].astype(np.float32), 2, axis=0),
    }
    for i in range(12)
]

ADDED = "masked = Add(scores, mask)"
CHOSEN = "masked = Where(hidden, filler, scores)"
GIVEN = "unseen = Sub(one, seen) far = Mul(unseen, filler) masked = Add(scores, far)"
SUBTRACTED = "masked = Sub(scores, unmask)"
WITH_BIAS = "near = Add(bias, mask) masked = Add(scores, near)"
SOFTMAX = "p = Softmax<axis = -1>(masked)"
WRITTEN_OUT = """top = ReduceMax<axes = [-1], keepdims = 1>(masked) low = Sub(masked, top) e = Exp(low)
    total = ReduceSum<keepdims = 1>(e, last) p = Div(e, total)"""
MOVED = "m4 = Unsqueeze(masked, first) m3 = Squeeze(m4, first) p = Softmax<axis = -1>(m3)"


def attention(masking: str, softmax: str, filler: float) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    net (float[n, {STEPS}, {WIDTH}] x, float[n, 1, {STEPS}] seen) => (float[n, {STEPS}, {WIDTH}] y) {{
        q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv) t = Transpose<perm = [0, 2, 1]>(k)
        products = MatMul(q, t) scores = Mul(products, scale)
        {masking}
        {softmax}
        read = MatMul(p, v) y = MatMul(read, wo)
    }}"""
    model = parser.parse_model(text)
    if "seen" not in masking:
        del model.graph.input[1]
    constants = {
        **WEIGHTS,
        "scale": np.float32(0.3),
        "mask": CAUSAL * np.float32(filler),
        "unmask": CAUSAL * np.float32(-filler),
        "hidden": CAUSAL > 0.0,
        "filler": np.float32(filler),
        "one": np.float32(1.0),
        "bias": np.linspace(-3.0, 3.0, STEPS, dtype=np.float32),
        "last": np.array([-1]),
        "first": np.array([0]),
    }
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items() if name in read
    )
    return model


def samples_of(model: onnx.ModelProto) -> list[dict[str, Array]]:
    names = [value.name for value in model.graph.input]
    return [{name: sample[name] for name in names} for sample in SAMPLES]


def outputs(file: Path, samples: Sequence[Mapping[str, Array]], name: str = "y") -> npt.NDArray[np.float64]:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact sums without VNNI too
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run([name], sample)[0] for sample in samples]).astype(np.float64)


@pytest.mark.parametrize("target", ["qnn", pytest.param("onnx", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("masking", "softmax", "filler"),
    [
        pytest.param(ADDED, SOFTMAX, -100.0, id="as Swin masks"),
        pytest.param(ADDED, SOFTMAX, -1e4, id="added"),
        pytest.param(ADDED, SOFTMAX, -1e9, id="added, -1e9"),
        pytest.param(ADDED, SOFTMAX, LOWEST, id="added, lowest"),
        pytest.param(ADDED, MOVED, -1e4, id="moved before the Softmax"),
        pytest.param(ADDED, WRITTEN_OUT, -1e4, id="Softmax written out"),
        pytest.param(CHOSEN, SOFTMAX, -1e9, id="chosen"),
        pytest.param(CHOSEN, SOFTMAX, LOWEST, id="chosen, lowest"),
        pytest.param(GIVEN, SOFTMAX, -1e4, id="mask is an input"),
        pytest.param(GIVEN, SOFTMAX, LOWEST, id="mask is an input, lowest"),
        pytest.param(SUBTRACTED, SOFTMAX, -1e4, id="subtracted"),
        pytest.param(WITH_BIAS, SOFTMAX, -1e4, id="mask and bias"),
    ],
)
def test_masked_attention_keeps_what_the_plan_says(
    tmp_path: Path, masking: str, softmax: str, filler: float, target: str
) -> None:
    file, written = tmp_path / "m.onnx", tmp_path / "q.onnx"
    model = attention(masking, softmax, filler)
    onnx.save(model, file)
    samples = samples_of(model)
    weights = "int8" if target == "onnx" else "uint8"  # QNN has no other, and its kernels are exact
    result = quantize(file, profile(file, samples), written, target=target, weight_type=weights)
    exact, found = outputs(file, samples), outputs(written, samples)
    measured = 10.0 * np.log10(np.square(exact).sum() / np.square(exact - found).sum())
    low, high = result.plan.origin.sqnr_bands["y"]
    assert measured > 20.0
    assert low <= measured <= high, result.plan.tensors


@pytest.mark.parametrize("filler", [-1e4, LOWEST])
@pytest.mark.parametrize("masking", [ADDED, CHOSEN, GIVEN, SUBTRACTED])
def test_beside_fillers_a_tensor_holds_what_lies_near_its_largest_value(
    tmp_path: Path, masking: str, filler: float
) -> None:
    model = attention(masking, SOFTMAX, filler)
    onnx.save(model, tmp_path / "m.onnx")
    seen = profile(tmp_path / "m.onnx", samples_of(model), keep_samples=0)
    masked = with_fillers_apart(seen, index(prepare(ir.from_proto(model)).model)).tensors["masked"]
    top = seen.tensors["masked"].maximum
    assert (masked.minimum, masked.maximum) == (top - VANISHING_DISTANCE, top)
    assert masked.count + masked.inf == seen.tensors["masked"].count
    assert masked.histogram.total == pytest.approx(masked.count)


def test_a_bias_beside_the_mask_keeps_its_range(tmp_path: Path) -> None:
    model = attention(WITH_BIAS, SOFTMAX, -1e4)
    onnx.save(model, tmp_path / "m.onnx")
    graph = index(prepare(ir.from_proto(model)).model)
    seen = profile(tmp_path / "m.onnx", samples_of(model))
    apart = with_fillers_apart(seen, graph)
    masked = apart.tensors["masked"]
    low = saturating_low(graph, "masked", apart.tensors)
    assert low == pytest.approx(masked.maximum - VANISHING_DISTANCE)


@pytest.mark.parametrize(
    ("reads", "vanish"),
    [
        ("y = Softmax<axis = -1>(x)", True),
        ("y = Sigmoid(x)", True),
        ("m = Identity(x) y = Softmax<axis = -1>(m)", True),
        ("m = Neg(x) y = Softmax<axis = -1>(m)", False),
        ("y = LogSoftmax<axis = -1>(x)", False),  # its results are as far down
        ("m = LogSoftmax<axis = -1>(x) y = Exp(m)", True),
        ("m, i = TopK(x, two) y = Softmax<axis = -1>(m)", True),
        ("m, i = TopK<largest = 0>(x, two) y = Softmax<axis = -1>(m)", False),
        ("i = ArgMax<axis = -1>(x) y = Cast<to = 1>(i)", True),
        ("i = ArgMin<axis = -1>(x) y = Cast<to = 1>(i)", False),
        ("y = ReduceMax(x)", True),
        ("y = Relu(x) z = Softmax<axis = -1>(x)", False),
    ],
)
def test_fillers_vanish_where_only_the_largest_values_are_looked_at(reads: str, vanish: bool) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> net (float[4, 8] v) => (float y)
        <int64[1] two = {{2}}> {{ x = Abs(v) {reads} }}"""
    value = next(v for node in ir.from_onnx_text(text).graph for v in node.outputs if v.name == "x")
    assert (reach_below(value) is not None) is vanish


def test_values_without_a_gap_are_no_fillers() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> net (float[n, 64] x) => (float[n, 64] y)
        { s = Mul(x, big) y = Softmax<axis = -1>(s) }"""
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(200.0), "big"))
    graph = index(prepare(ir.from_proto(model)).model)
    wide = profile(model, [{"x": RNG.uniform(-1.0, 1.0, (64, 64)).astype(np.float32)}])
    assert wide.tensors["s"].minimum < wide.tensors["s"].maximum - 200.0
    assert with_fillers_apart(wide, graph) is wide


def test_layers_of_masked_attention_are_compared_without_fillers(tmp_path: Path) -> None:
    file, written = tmp_path / "m.onnx", tmp_path / "q.onnx"
    model = attention(ADDED, SOFTMAX, LOWEST)
    onnx.save(model, file)
    samples = samples_of(model)
    quantize(file, profile(file, samples), written, target="qnn", equalization="off")
    layers = {layer.tensor: layer for layer in layers_of(file, written, samples).layers}
    scores, masked = layers["scores"].effective, layers["masked"].effective
    assert scores is not None
    assert masked is not None
    assert scores.sqnr - 6.0 < masked.sqnr < scores.sqnr + 1.0


@pytest.mark.parametrize(
    ("reads", "rows"),
    [
        ("y = Softmax<axis = -1>(x)", {(-1,)}),
        ("y = Softmax<axis = 0>(x)", {(-3,)}),
        ("m = Identity(x) y = Softmax<axis = 1>(m)", {(-2,)}),
        ("m = Transpose<perm = [2, 0, 1]>(x) y = Softmax<axis = 0>(m)", {(-1,)}),
        ("m = Add(x, x) y = Softmax(m)", {(-1,)}),
        ("m = Reshape(x, flat) y = Softmax(m)", {(-1,)}),
        ("m = Reshape(x, all) y = Softmax(m)", {()}),
        ("m, i = TopK(x, two) y = Softmax(m)", {(-1,)}),
        ("m = LogSoftmax<axis = 1>(x) y = Exp(m)", {(-2,)}),
        ("y = ReduceMax<axes = [1, -1]>(x)", {(-2, -1)}),
        ("y = Exp(x)", {()}),
        ("m = Softmax<axis = -1>(x) n = Softmax<axis = 1>(x) y = Add(m, n)", {(-1,), (-2,)}),
        ("y = Relu(x)", None),
    ],
)
def test_fillers_are_told_in_the_rows_that_the_reader_looks_at(
    reads: str, rows: set[tuple[int, ...]] | None
) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> net (float[2, 4, 8] v) => (float y)
        <int64[1] two = {{2}}, int64[2] flat = {{8, 8}}, int64[1] all = {{64}}> {{ x = Abs(v) {reads} }}"""
    model = ir.from_proto(shape_inference.infer_shapes(parser.parse_model(text)))
    value = next(v for node in model.graph for v in node.outputs if v.name == "x")
    assert filler_rows(value) == rows


def test_values_that_lie_below_the_largest_of_another_row_are_no_fillers() -> None:
    values = np.array([[0.0, -3.0, -1e4], [300.0, 299.0, 200.0], [-1e4, -1e4 + 3.0, -1e4]], np.float32)
    kept = np.array([[True, True, False], [True, True, False], [False, False, False]])
    assert (without_fillers(values, frozenset({(-1,)})) == kept).all()
    assert (without_fillers(values) == [[False] * 3, [True, True, False], [False] * 3]).all()


def test_logits_below_those_of_other_rows_are_not_left_out_of_a_profile() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> net (float[n, 8] x) => (float[n, 8] y)
        { s = Mul(x, one) y = Softmax<axis = -1>(s) }"""
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(2.0), "one"))
    graph = index(prepare(ir.from_proto(model)).model)
    rows = RNG.uniform(-5.0, 5.0, (64, 8)) + np.where(np.arange(64) % 2, 150.0, 0.0)[:, None]
    apart = profile(model, [{"x": rows.astype(np.float32)}])
    assert with_fillers_apart(apart, graph) is apart


def test_rows_whose_logits_have_other_heights_do_not_depend_on_each_other() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> net (float[n, 16] x) => (float[n, 8] y)
        { z = MatMul(x, w) y = Softmax<axis = -1>(z) }"""
    model = parser.parse_model(text)
    weight = RNG.normal(size=(16, 8)).astype(np.float32) * 6.0
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    rows = RNG.normal(size=(16, 16)) * np.geomspace(0.3, 6.0, 16)[:, None]
    batches = [{"x": batch.astype(np.float32)} for batch in rows.reshape(4, 4, 16)]
    measured, _ = with_noise_of_kept(profile(model, batches), prepare(ir.from_proto(model)).model)
    assert len(measured.noise) == 8
