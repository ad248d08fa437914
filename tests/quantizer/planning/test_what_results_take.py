"""What results take of a tensor by moving, choosing or simple arithmetic is left in 8 bits, or is float."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx import profile, quantize

Array = npt.NDArray[Any]
Samples = Callable[[np.random.Generator], dict[str, Array]]
LEAST = np.finfo(np.float32).min


@dataclass(frozen=True)
class Case:
    text: str  # its inputs, its outputs and nodes
    weights: Mapping[str, Any]  # shapes of random weights, or numbers
    draws: Samples
    part: tuple[slice, ...] = ()  # of the output that is compared


def masked(rng: np.random.Generator) -> dict[str, Array]:
    mask = np.concatenate([np.zeros((2, 4, 1), bool), rng.random((2, 4, 1)) < 0.6], axis=1)
    return {"x": rng.normal(size=(2, 8, 64)).astype(np.float32), "mask": mask}


def hidden_rows(rng: np.random.Generator) -> dict[str, Array]:
    mask = rng.random((2, 8, 1)) < 0.5
    mask[0] = rng.random() < 0.3
    return {"x": rng.normal(size=(2, 8, 64)).astype(np.float32), "mask": mask}


MASKED = "(float[2,8,64] x, bool[2,8,1] mask) => (float[2,16] y)"
WEIGHTS = {"w": (64, 64), "v": (64, 16)}


def masked_case(nodes: str, filler: float) -> Case:
    return Case(
        f"{MASKED} {{ a = MatMul(x, w)  d = Abs(a)  {nodes}  y = MatMul(r, v) }}",
        {
            **WEIGHTS,
            "filler": filler,
            "last": [1],
            "first": [0],
            "fourth": [4],
            "flat": [2, 64],
            "least": -5.0,
            "most": 5.0,
        },
        masked,
    )


def kept(rng: np.random.Generator) -> dict[str, Array]:
    hidden = rng.random((8, 64)) < 0.2
    values = rng.normal(size=(8, 64)).astype(np.float32)
    return {"x": values, "mask": hidden, "keep": (~hidden).astype(np.float32)}


KEPT = "(float[8,64] x, bool[8,64] mask, float[8,64] keep) => (float[8,16] y)"


def kept_case(nodes: str, **more: Any) -> Case:
    text = f"{KEPT} {{ h = MatMul(x, w)  {nodes}  a = MatMul(k, u)  r = Relu(a)  y = MatMul(r, v) }}"
    return Case(text, {**WEIGHTS, "u": (64, 64), **more}, kept)


SPREAD = np.concatenate([[1e7, 1e4, 50.0], np.ones(29)])
MEANS = np.concatenate([[1.6e9, 5e4, 1e3], np.zeros(29)])


def picture(rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.normal(size=(1, 8, 12, 12)).astype(np.float32)}


BOXES = (
    "(float[1,8,12,12] x) => (float[1,12,144] y) { c = Conv <pads = [1,1,1,1]> (x, w)  r = Relu(c)"
    "  p = Conv(r, wb)  q = Conv(r, wc, bias)  p1 = Reshape(p, four)  q1 = Reshape(q, eight)"
    "  q2 = Sigmoid(q1)  p2 = Sigmoid(p1)  p3 = Mul(p2, size)"
)
HEADS = {
    "w": (8, 8, 3, 3),
    "wb": (4, 8, 1, 1),
    "wc": (8, 8, 1, 1),
    "bias": np.full(8, -4.0),
    "four": [1, 4, 144],
    "eight": [1, 8, 144],
    "size": 640.0,
}

CASES = {
    "masked_maximum": masked_case(
        "f = Where(mask, filler, a)  r = ReduceMax <axes = [1], keepdims = 0> (f)", -1e9
    ),
    "masked_maximum_by_a_pool": masked_case(
        "f = Where(mask, filler, a)  t = Transpose <perm = [0, 2, 1]> (f)"
        "  m = MaxPool <kernel_shape = [8]> (t)  r = Reshape(m, flat)",
        -1e5,
    ),
    "masked_maximum_by_a_sum": masked_case(
        "i = Cast <to = 1> (mask)  j = Mul(i, filler)  f = Add(a, j)"
        "  t = Transpose <perm = [0, 2, 1]> (f)  m = GlobalMaxPool(t)  r = Reshape(m, flat)",
        -1e7,
    ),
    "masked_minimum": masked_case(
        "f = Where(mask, filler, d)  r = ReduceMin <axes = [1], keepdims = 0> (f)", 1e9
    ),
    "masked_maximum_of_rows_that_are_filler_alone": Case(
        f"{MASKED} {{ a = MatMul(x, w)  f = Where(mask, filler, a)"
        "  m = ReduceMax <axes = [1], keepdims = 0> (f)  c = Less(m, far)"
        "  r = Where(c, zero, m)  y = MatMul(r, v) }",
        {**WEIGHTS, "filler": -1e9, "far": -1e5, "zero": 0.0},
        hidden_rows,
    ),
    "masked_mean": masked_case(
        "n = Not(mask)  i = Cast <to = 1> (n)  f = Where(mask, filler, a)  g = Mul(f, i)"
        "  r = ReduceMean <axes = [1], keepdims = 0> (g)",
        1e6,
    ),
    "masked_and_cut_off": masked_case(
        "f = Where(mask, filler, a)  g = Slice(f, first, fourth, last)"
        "  r = ReduceMean <axes = [1], keepdims = 0> (g)",
        1e6,
    ),
    "masked_maximum_beside_another_reader": masked_case(
        "f = Where(mask, filler, a)  m = ReduceMax <axes = [1], keepdims = 0> (f)  g = Clip(f, least, most)"
        "  s = ReduceMean <axes = [1], keepdims = 0> (g)  r = Add(m, s)",
        -1e6,
    ),
    "logarithm_of_a_masked_sum": masked_case(
        "f = Where(mask, filler, a)  r = ReduceLogSumExp <axes = [1], keepdims = 0> (f)", -1e6
    ),
    "smallest_values": Case(
        "(float[8,64] x, bool[8,64] mask) => (float[8,16] y) { a = MatMul(x, w)  d = Abs(a)"
        "  f = Where(mask, big, d)  s, i = TopK <largest = 0> (f, k)  y = MatMul(s, v) }",
        {"w": (64, 64), "v": (8, 16), "big": 1e9, "k": [8]},
        lambda rng: {name: array for name, array in kept(rng).items() if name != "keep"},
    ),
    "guarded_reciprocal": kept_case(
        "ha = Abs(h)  he = Add(ha, tiny)  rc = Reciprocal(he)  c = Less(ha, bound)  k = Where(c, zero, rc)",
        tiny=1e-9,
        bound=0.3,
        zero=0.0,
    ),
    "masked_product": kept_case("hb = Where(mask, big, h)  k = Mul(hb, keep)", big=1e6),
    "clipped_from_above": kept_case("hb = Where(mask, big, h)  k = Min(hb, most)", big=1e7, most=6.0),
    "filler_that_is_added_and_taken_away": kept_case("hb = Add(h, big)  k = Sub(hb, big)", big=300.0),
    "padded_pool": Case(
        "(float[1,8,12,12] x) => (float[1,16,4,4] y) { c = Conv <pads = [1,1,1,1]> (x, w, b)"
        "  a = Pad(c, pads, least)  m = MaxPool <kernel_shape = [3,3], strides = [2,2]> (a)"
        "  y = Conv(m, u) }",
        {
            "w": (8, 8, 3, 3),
            "b": (8,),
            "u": (16, 8, 3, 3),
            "pads": [0, 0, 0, 0, 0, 0, 1, 1],
            "least": float(LEAST),
        },
        picture,
    ),
    "columns_that_the_model_scales": Case(
        "(float[8,32] x) => (float[8,16] y) { d = Sub(x, mu)  z = Div(d, sd)  a = Gemm(z, w, b)  r = Relu(a)"
        "  y = MatMul(r, v) }",
        {"w": (32, 64), "b": (64,), "v": (64, 16), "mu": MEANS, "sd": SPREAD},
        lambda rng: {"x": (rng.normal(size=(8, 32)) * SPREAD + MEANS).astype(np.float32)},
    ),
    "pressure": Case(
        "(float[8,32] x) => (float[8,16] y) { d = Sub(x, mu)  z = Mul(d, sd)  a = Gemm(z, w, b)  r = Relu(a)"
        "  y = MatMul(r, v) }",
        {"w": (32, 64), "b": (64,), "v": (64, 16), "mu": 101325.0, "sd": 0.02},
        lambda rng: {"x": (rng.normal(size=(8, 32)) * 50.0 + 101325.0).astype(np.float32)},
    ),
    "scores_beside_boxes": Case(
        f"{BOXES}  y = Concat <axis = 1> (p3, q2) }}", HEADS, picture, (slice(None), slice(4, None))
    ),
    "scores_cut_off_boxes": Case(
        BOXES.replace("[1,12,144]", "[1,8,144]") + "  n = Concat <axis = 1> (p3, q2)"
        "  t, s = Split <axis = 1> (n, sizes)  y = Identity(s) }",
        {**HEADS, "sizes": [4, 8]},
        picture,
    ),
}
TARGETS = ("onnxruntime-x86", "onnxruntime-arm", "tensorrt", "qnn", "glow", "onnx")


def build(case: Case) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {case.text}')
    rng = np.random.default_rng(3)
    for name, value in case.weights.items():
        if isinstance(value, tuple):
            fan_in = value[0] if len(value) == 2 else max(1, int(np.prod(value[1:])))
            array = rng.normal(size=value) / fan_in**0.5
        else:
            array = np.asarray(value)
        kind = np.float32 if array.dtype.kind == "f" else np.int64
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, kind), name))
    return model


def outputs(
    model: str | bytes, samples: list[dict[str, Array]], *, fused: bool = True
) -> npt.NDArray[np.float64]:
    options = ort.SessionOptions()
    if not fused:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, sample)[0] for sample in samples]).astype(np.float64)


def sqnr(exact: npt.NDArray[np.float64], found: npt.NDArray[np.float64]) -> float:
    return float(10 * np.log10(np.square(exact).sum() / max(np.square(exact - found).sum(), 1e-30)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_a_result_takes_of_a_tensor_is_left_on_every_target(name: str, tmp_path: Path) -> None:
    case, rng = CASES[name], np.random.default_rng(1)
    model = build(case)
    profiled = profile(model, [case.draws(rng) for _ in range(16)], progress=False)
    samples = [case.draws(rng) for _ in range(8)]
    exact = outputs(model.SerializeToString(), samples)[case.part]
    for target in TARGETS:
        result = quantize(model, profiled, target=target, float_type="float32")
        result.save(tmp_path / "q.onnx")
        fused = target == "onnxruntime-x86"  # whose weights saturate on no processor
        measured = sqnr(exact, outputs(str(tmp_path / "q.onnx"), samples, fused=fused)[case.part])
        assert measured > 15.0, target
