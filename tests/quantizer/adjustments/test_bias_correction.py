"""No bias is corrected where a constant error does more harm than one in proportion to the values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx import profile, quantize
from qprof_onnx.quantizer.plan.plan import QuantPlan

Array = npt.NDArray[np.float32]

READERS = {
    "logarithm": "a = Add(p, tiny)  r = Log(a)",
    "logarithm_of_a_negative": "n = Neg(p)  a = Sub(tiny, n)  r = Log(a)",
    "clipped_logarithm": "a = Clip(p, tiny)  r = Log(a)",
    "logarithm_behind_max_and_moves": "a = Max(p, tiny)  t = Transpose <perm = [1, 0]> (a)  l = Log(t)  "
    "r = Transpose <perm = [1, 0]> (l)",
    "root": "a = Relu(p)  c = Add(a, tiny)  r = Sqrt(c)",
    "fractional_power": "r = Pow(p, third)",
    "negative_power": "a = Add(p, tiny)  c = Pow(a, minus_half)  r = Mul(c, p)",
    "reciprocal": "a = Add(p, tiny)  r = Reciprocal(a)",
    "divisor": "a = Add(p, tiny)  r = Div(q, a)",
    "divided_by_the_product_of_a_reciprocal": "a = Add(q, tiny)  c = Reciprocal(a)  r = Mul(p, c)",
    "root_as_divisor": "a = Add(p, tiny)  s = Sqrt(a)  r = Div(q, s)",
    "sum": "a = ReduceSum <keepdims = 1> (p, last)  c = Add(a, tiny)  l = Log(c)  r = Mul(l, ones)",
    "logarithm_of_a_sum": "l = ReduceLogSum <axes = [1], keepdims = 1> (p)  r = Mul(l, ones)",
    "product_of_one_sign": "a = MatMul(p, u)  c = Add(a, tiny)  r = Log(c)",
    "product_of_two": "a = Mul(p, q)  c = Add(a, tiny)  r = Log(c)",
    "joined": "a = Concat <axis = 1> (p, q)  c = Add(a, tiny)  l = Log(c)  r = Slice(l, zero, width, one)",
    "generalized_divisive_normalisation": "a = Add(p, thousandth)  s = Sqrt(a)  c = Sqrt(q)  r = Div(c, s)",
}
"""What reads `p`, a product of weights and inputs that are not negative; `q` is another of the kind."""


def net(reader: str) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> net (float[n, 48] x) => (float[n, 16] y) {'
        f"e = Mul(x, x)  p = Gemm(e, w, b)  q = Gemm(e, v)  {reader}  y = MatMul(r, out) }}"
    )
    weights = {
        "w": np.abs(rng.normal(0, 0.1, (48, 32))),
        "b": np.zeros(32),
        "v": np.abs(rng.normal(0, 0.1, (48, 32))),
        "u": np.abs(rng.normal(0, 0.1, (32, 32))),
        "out": rng.normal(0, 0.2, (32, 16)),
        "tiny": 1e-6,
        "thousandth": 1e-3,
        "third": 1 / 3,
        "minus_half": -0.5,
        "ones": np.ones(32),
    }
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    for name, number in {"zero": 0, "width": 32, "one": 1, "last": 1}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray([number], np.int64), name))
    return model


def sounds(seed: int, count: int, quietest: float = -2.0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    loudness = [10.0 ** rng.uniform(quietest, 0.0, (4, 1)) for _ in range(count)]
    return [{"x": (rng.normal(size=(4, 48)) * loud).astype(np.float32)} for loud in loudness]


def outputs(model: str | bytes, samples: list[dict[str, Array]]) -> npt.NDArray[np.float64]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, sample)[0] for sample in samples]).astype(np.float64)


def sqnr(exact: npt.NDArray[np.float64], found: npt.NDArray[np.float64]) -> float:
    return float(10 * np.log10((exact**2).sum() / ((exact - found) ** 2).sum()))


@pytest.mark.parametrize("reader", READERS)
def test_no_bias_is_corrected_where_a_quiet_sample_would_change_its_sign(reader: str, tmp_path: Path) -> None:
    model = net(READERS[reader])
    profiled = profile(model, sounds(1, 12), progress=False)
    samples = sounds(2, 12, quietest=-3.0)  # quieter than what was profiled
    exact = outputs(model.SerializeToString(), samples)
    found = {}
    for correction in ("auto", "off"):
        result = quantize(
            model,
            profiled,
            target="onnxruntime-x86",
            bias_correction=correction,
            cost_model="off",
            min_output_sqnr=0,
        )
        result.save(tmp_path / "q.onnx")
        found[correction] = outputs(str(tmp_path / "q.onnx"), samples)
        assert "p" not in corrected(result.plan)
    assert np.isfinite(found["auto"]).all()
    assert sqnr(exact, found["auto"]) > sqnr(exact, found["off"]) - 1.0


BEARING = {
    "ordinary": ("p", "r = Relu(p)"),
    "bounded_below": ("p", "s = Softplus(p)  r = Log(s)"),
    "written_out_softmax": ("h", "s = Exp(h)  d = ReduceSum <keepdims = 1> (s, last)  r = Div(s, d)"),
    "normalised_alike": (
        "h",
        "s = Mul(h, h)  d = ReduceSum <keepdims = 1> (s, last)  l = Sqrt(d)  r = Div(h, l)",
    ),
}
"""Readers of `p`, or of another product `h` of it, where a constant error is as good as any other."""


@pytest.mark.parametrize("case", BEARING)
def test_biases_are_corrected_where_a_constant_error_is_one_as_any_other(case: str) -> None:
    name, reader = BEARING[case]
    model = net(f"g = Relu(p)  h = Gemm(g, u)  {reader}" if name == "h" else reader)
    samples = sounds(1, 12, quietest=-0.1)
    plan = quantize(
        model, profile(model, samples, progress=False), target="onnxruntime-x86", cost_model="off"
    ).plan
    assert name in corrected(plan)


def corrected(plan: QuantPlan) -> set[str]:
    return {name.rsplit("_", 1)[-1] for name in plan.adjustments.biases}


def test_a_bias_that_several_products_share_is_quantized_in_each_after_its_correction(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> unrolled (float[n, 64] x) => (float[n, 48] y) {'
        " a, c = Split <axis = 1> (x)  p = Gemm (a, w, b)  q = Gemm (c, w, b)  t = Tanh (q)  y = Mul (p, t) }"
    )
    for name, array in {"w": rng.normal(0.1, 0.3, (32, 48)), "b": rng.normal(0, 1, 48)}.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    file, out = tmp_path / "net.onnx", tmp_path / "q.onnx"
    onnx.save(model, file)
    samples = [{"x": rng.normal(1.0, 1.0, (8, 64)).astype(np.float32)} for _ in range(8)]
    result = quantize(file, profile(file, samples), out, cost_model="off")
    assert len(result.plan.adjustments.biases) == 2
    written = onnx.load(out).graph
    makers = {name: node.op_type for node in written.node for name in node.output}
    biases = [makers.get(node.input[2]) for node in written.node if node.op_type == "Gemm"]
    assert biases == ["DequantizeLinear", "DequantizeLinear"]
