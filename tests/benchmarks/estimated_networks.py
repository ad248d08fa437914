"""Small networks with seeded weights and samples: what stage estimates holds estimates against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
from onnx import numpy_helper

Floats = npt.NDArray[np.float32]
Samples = Callable[[np.random.Generator], Floats]


@dataclass(frozen=True)
class Case:
    """One network and how it is quantized.

    Attributes:
        name: kind of nodes, and what is particular.
        graph: inputs, outputs and nodes as ONNX text.
        weights: shape (drawn from a normal distribution, over the root of the fan-in) or array, by name.
        samples: draws one sample.
        settings: of the plan.
        target: name.
    """

    name: str
    graph: str
    weights: Mapping[str, tuple[int, ...] | Floats]
    samples: Samples
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: str = "onnxruntime-x86"


def normal(*shape: int) -> Samples:
    """Return what draws samples of a normal distribution."""
    return lambda rng: rng.normal(size=shape).astype(np.float32)


def levels(steps: int, features: int, decades: float, *, each: str) -> Samples:
    """Return what draws sequences [steps, 1, features]; each sample or step has a level in these decades."""

    def draw(rng: np.random.Generator) -> Floats:
        count = 1 if each == "sample" else steps
        level = 10.0 ** rng.uniform(-decades / 2, decades / 2, (count, 1, 1))
        return np.asarray(rng.normal(size=(steps, 1, features)) * level, np.float32)

    return draw


def _lstms(layers: int, size: int, operator: str = "LSTM") -> tuple[str, dict[str, tuple[int, ...] | Floats]]:
    """Return nodes from x [steps, 1, size] to y, and their weights as frameworks initialise them."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    rng, nodes, weights, source = np.random.default_rng(7), "", {}, "x"
    for layer in range(layers):
        for name, shape in (("w", (1, gates * size, size)), ("r", (1, gates * size, size))):
            weights[f"{name}{layer}"] = rng.uniform(-1, 1, shape).astype(np.float32) * np.float32(
                1.7 / size**0.5
            )
        weights[f"b{layer}"] = rng.uniform(-0.1, 0.1, (1, 2 * gates * size)).astype(np.float32)
        nodes += f"""
        s{layer} = {operator} <hidden_size = {size}> ({source}, w{layer}, r{layer}, b{layer})
        h{layer} = Squeeze (s{layer}, one)"""
        source = f"h{layer}"
    return f"{nodes}\n        y = Identity ({source})", {"one": np.array([1], np.int64), **weights}  # type: ignore[dict-item]


def recurrent(name: str, layers: int, samples: Samples, operator: str = "LSTM", **settings: Any) -> Case:
    """Return a case of stacked recurrent layers of 96 units."""
    nodes, weights = _lstms(layers, 96, operator)
    graph = f"net (float[N, 1, 96] x) => (float[N, 1, 96] y) {{{nodes}\n}}"
    return Case(name, graph, weights, samples, settings)


CONV = """net (float[N, 8, 12, 12] x) => (float[N, 12, 12, 12] y) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w0, b0)
  ra = Relu (a)
  b = Conv <pads = [1, 1, 1, 1]> (ra, w1, b1)
  rb = Relu (b)
  c = Conv <pads = [1, 1, 1, 1]> (rb, w2, b2)
  rc = Relu (c)
  y = Conv <pads = [1, 1, 1, 1]> (rc, w3, b3)
}"""
CONV_WEIGHTS = {
    "w0": (32, 8, 3, 3),
    "b0": (32,),
    "w1": (32, 32, 3, 3),
    "b1": (32,),
    "w2": (32, 32, 3, 3),
    "b2": (32,),
    "w3": (12, 32, 3, 3),
    "b3": (12,),
}
MLP = """net (float[N, 64] x) => (float[N, 16] y) {
  a = MatMul (x, w0)
  ra = Relu (a)
  b = MatMul (ra, w1)
  rb = Relu (b)
  y = MatMul (rb, w2)
}"""
MLP_WEIGHTS = {"w0": (64, 256), "w1": (256, 256), "w2": (256, 16)}
GEMM = (
    MLP.replace("MatMul (x, w0)", "Gemm (x, w0, b0)")
    .replace("(ra, w1)", "(ra, w1)")
    .replace("MatMul", "Gemm")
)
ATTENTION = """net (float[N, 24, 64] x) => (float[N, 24, 64] y) {
  q = MatMul (x, wq)
  k = MatMul (x, wk)
  v = MatMul (x, wv)
  kt = Transpose <perm = [0, 2, 1]> (k)
  s = MatMul (q, kt)
  scaled = Mul (s, eighth)
  p = Softmax <axis = -1> (scaled)
  o = MatMul (p, v)
  z = MatMul (o, wo)
  y = Add (x, z)
}"""
ATTENTION_WEIGHTS = {
    "wq": (64, 64),
    "wk": (64, 64),
    "wv": (64, 64),
    "wo": (64, 64),
    "eighth": np.array(0.125, np.float32),
}
UNARY = """net (float[N, 64] x) => (float[N, 64] y) {
  a = MatMul (x, w0)
  f = F (a)
  y = MatMul (f, w1)
}"""
UNARY_WEIGHTS = {"w0": (64, 64), "w1": (64, 64)}


def transformer(blocks: int) -> Case:
    """Return a case of blocks with attention, normalization and a Gelu."""
    nodes, source = "", "x"
    weights: dict[str, tuple[int, ...] | Floats] = {
        "eighth": np.array(0.125, np.float32),
        "half": np.array(0.5, np.float32),
        "one": np.array(1.0, np.float32),
        "root": np.array(2.0**-0.5, np.float32),
        "scale": np.ones(64, np.float32),
        "shift": np.zeros(64, np.float32),
    }
    for i in range(blocks):
        weights |= {f"w{n}{i}": (64, 64) for n in "qkvo"} | {f"wf{i}": (64, 256), f"wp{i}": (256, 64)}
        nodes += f"""
  n{i} = LayerNormalization ({source}, scale, shift)
  q{i} = MatMul (n{i}, wq{i})
  k{i} = MatMul (n{i}, wk{i})
  v{i} = MatMul (n{i}, wv{i})
  kt{i} = Transpose <perm = [0, 2, 1]> (k{i})
  s{i} = MatMul (q{i}, kt{i})
  d{i} = Mul (s{i}, eighth)
  p{i} = Softmax <axis = -1> (d{i})
  o{i} = MatMul (p{i}, v{i})
  z{i} = MatMul (o{i}, wo{i})
  a{i} = Add ({source}, z{i})
  m{i} = LayerNormalization (a{i}, scale, shift)
  f{i} = MatMul (m{i}, wf{i})
  r{i} = Mul (f{i}, root)
  e{i} = Erf (r{i})
  e1{i} = Add (e{i}, one)
  g{i} = Mul (f{i}, e1{i})
  h{i} = Mul (g{i}, half)
  t{i} = MatMul (h{i}, wp{i})
  y{i} = Add (a{i}, t{i})"""
        source = f"y{i}"
    graph = f"net (float[N, 24, 64] x) => (float[N, 24, 64] y) {{{nodes}\n  y = Identity ({source})\n}}"
    return Case(f"transformer of {blocks} blocks", graph, weights, normal(2, 24, 64))


def residual(blocks: int) -> Case:
    """Return a case of residual blocks of convolutions, one of them for each channel, and pooling."""
    nodes, source = "", "x"
    weights: dict[str, tuple[int, ...] | Floats] = {}
    for i in range(blocks):
        weights |= {f"wd{i}": (32, 1, 3, 3), f"w{i}": (96, 32, 1, 1), f"v{i}": (32, 96, 1, 1)}
        nodes += f"""
  d{i} = Conv <group = 32, pads = [1, 1, 1, 1]> ({source}, wd{i})
  a{i} = Conv (d{i}, w{i})
  r{i} = Relu (a{i})
  b{i} = Conv (r{i}, v{i})
  y{i} = Add ({source}, b{i})"""
        source = f"y{i}"
    graph = (
        f"net (float[N, 32, 12, 12] x) => (float[N, 32, 1, 1] z) {{{nodes}"
        f"\n  c = Relu ({source})\n  z = GlobalAveragePool (c)\n}}"
    )
    return Case(f"residual, depthwise, {blocks} blocks", graph, weights, normal(2, 32, 12, 12))


CASES: Sequence[Case] = (
    transformer(1),
    transformer(6),
    residual(2),
    residual(8),
    Case("Conv", CONV, CONV_WEIGHTS, normal(2, 8, 12, 12)),
    Case("Conv qoperator", CONV, CONV_WEIGHTS, normal(2, 8, 12, 12), {"form": "qoperator"}),
    Case("Conv tensorrt", CONV, CONV_WEIGHTS, normal(2, 8, 12, 12), target="tensorrt"),
    Case("Conv weight-only", CONV, CONV_WEIGHTS, normal(2, 8, 12, 12), {"mode": "weight-only"}),
    Case("MatMul", MLP, MLP_WEIGHTS, normal(16, 64)),
    Case("MatMul kl", MLP, MLP_WEIGHTS, normal(16, 64), {"calibrator": "kl"}),
    Case("Gemm", GEMM, {**MLP_WEIGHTS, "b0": (256,)}, normal(16, 64)),
    Case("MatMul dynamic", MLP, MLP_WEIGHTS, normal(16, 64), {"mode": "dynamic"}),
    Case("MatMul weight-only", MLP, MLP_WEIGHTS, normal(16, 64), {"mode": "weight-only"}),
    Case(
        "MatMul weight-only int4",
        MLP,
        MLP_WEIGHTS,
        normal(16, 64),
        {"mode": "weight-only", "weight_type": "int4", "block_size": 32},
    ),
    Case(
        "MatMul levels dynamic",
        MLP,
        MLP_WEIGHTS,
        lambda rng: np.asarray(rng.normal(size=(16, 64)) * 10.0 ** rng.uniform(-2, 2, (16, 1)), np.float32),
        {"mode": "dynamic"},
    ),
    Case("attention", ATTENTION, ATTENTION_WEIGHTS, normal(2, 24, 64)),
    Case(
        "attention softmax",
        ATTENTION.replace("y = Add (x, z)", "y = Softmax <axis = -1> (z)"),
        ATTENTION_WEIGHTS,
        normal(2, 24, 64),
    ),
    *(
        Case(
            f"LUT {f}",
            UNARY.replace("F (", f"{f} ("),
            UNARY_WEIGHTS,
            normal(16, 64),
            {"min_output_sqnr": 0.0},
        )
        for f in ("Sigmoid", "Tanh", "Softplus", "Elu", "Erf")
    ),
    recurrent("LSTM one layer, one level", 1, normal(40, 1, 96), min_output_sqnr=0.0),
    recurrent("LSTM three layers, one level", 3, normal(40, 1, 96), min_output_sqnr=0.0),
    recurrent("LSTM levels by step", 3, levels(40, 96, 5.0, each="step"), min_output_sqnr=0.0),
    recurrent("LSTM levels by sample", 3, levels(40, 96, 5.0, each="sample"), min_output_sqnr=0.0),
    recurrent(
        "LSTM small levels by step",
        3,
        lambda rng: levels(40, 96, 5.0, each="step")(rng) / 100,
        min_output_sqnr=0.0,
    ),
    recurrent("LSTM weight-only", 3, levels(40, 96, 5.0, each="step"), mode="weight-only"),
    recurrent("LSTM long weight-only", 3, normal(300, 1, 96), mode="weight-only"),
    recurrent("LSTM long", 3, normal(300, 1, 96), min_output_sqnr=0.0),
    recurrent("GRU weight-only", 3, levels(40, 96, 5.0, each="step"), "GRU", mode="weight-only"),
    recurrent("GRU weight-only, one level", 3, normal(40, 1, 96), "GRU", mode="weight-only"),
    recurrent("RNN weight-only", 2, normal(40, 1, 96), "RNN", mode="weight-only"),
)


def model_of(case: Case) -> onnx.ModelProto:
    """Return the model of a case."""
    text = f'<ir_version: 8, opset_import: ["": 17]>\n{case.graph}'
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(3)
    for name, given in case.weights.items():
        array = given
        if isinstance(given, tuple):
            fan_in = given[0] if len(given) == 2 else int(np.prod(given[1:])) or 1
            scale = 0.1 if len(given) == 1 else (2.0 / fan_in) ** 0.5
            array = (rng.normal(size=given) * scale).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model
