"""Small networks with seeded weights and samples, whose estimated SQNR is held against what is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
from onnx import numpy_helper
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.options import Judge
from qprof_onnx.quantizer.noise.estimate_check import Estimate, estimates_of
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
Floats = npt.NDArray[np.float32]
Weights = Mapping[str, tuple[int, ...] | npt.NDArray[Any]]
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
    """

    name: str
    graph: str
    weights: Weights
    samples: Samples
    settings: Mapping[str, Any] = field(default_factory=dict)


class Checked(NamedTuple):
    """The estimate of an output, and what was measured (dB)."""

    estimate: Estimate
    measured: float


def estimates(case: Case, samples: int = 8) -> list[Checked]:
    """Return estimate and measurement of each output of a case, the latter on samples of their own."""
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.onnx"
        onnx.save(model_of(case), model)
        known, new = ([{"x": case.samples(rng)} for _ in range(samples)] for _ in range(2))
        return _estimates(model, known, new, Path(folder), case.settings)


def estimates_of_digits() -> list[Checked]:
    """Return estimate and measurement of the model of examples/digits."""
    with tempfile.TemporaryDirectory() as folder:
        return _estimates(DIGITS / "model.onnx", DIGITS / "calibration", DIGITS / "heldout", Path(folder), {})


def _estimates(model: Path, known: Any, new: Any, folder: Path, settings: Mapping[str, Any]) -> list[Checked]:
    profile, quantized = folder / "profile.yaml", folder / "q.onnx"
    profile_model(model, known, profile)
    write_quantized(model, profile, quantized, recipe=load_recipe("onnxruntime-x86", dict(settings)))
    found = evaluate(model, quantized, new, measuring=Judge(latency=None))
    measured = {one.name: one.difference.sqnr for one in found.outputs if one.difference}
    assert found.provenance is not None
    return [Checked(one, measured[one.output]) for one in estimates_of(found.provenance)]


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


def _normal(*shape: int) -> Samples:
    return lambda rng: rng.normal(size=shape).astype(np.float32)


def _levels(steps: int, features: int, decades: float) -> Samples:
    """Return a function that draws sequences [steps, 1, features]; each step has a level in these decades."""

    def draw(rng: np.random.Generator) -> Floats:
        level = 10.0 ** rng.uniform(-decades / 2, decades / 2, (steps, 1, 1))
        return np.asarray(rng.normal(size=(steps, 1, features)) * level, np.float32)

    return draw


def _recurrent(name: str, operator: str, **settings: Any) -> Case:
    """Return a case of three recurrent layers of 96 units, with weights as frameworks initialise them."""
    size, gates = 96, {"LSTM": 4, "GRU": 3}[operator]
    rng, nodes, source = np.random.default_rng(7), "", "x"
    weights: dict[str, tuple[int, ...] | npt.NDArray[Any]] = {"one": np.array([1], np.int64)}
    for layer in range(3):
        for kind in "wr":
            drawn = rng.uniform(-1, 1, (1, gates * size, size)).astype(np.float32)
            weights[f"{kind}{layer}"] = drawn * np.float32(1.7 / size**0.5)
        weights[f"b{layer}"] = rng.uniform(-0.1, 0.1, (1, 2 * gates * size)).astype(np.float32)
        nodes += f"""
  s{layer} = {operator} <hidden_size = {size}> ({source}, w{layer}, r{layer}, b{layer})
  h{layer} = Squeeze (s{layer}, one)"""
        source = f"h{layer}"
    graph = f"net (float[N, 1, {size}] x) => (float[N, 1, {size}] y) {{{nodes}\n  y = Identity ({source})\n}}"
    return Case(name, graph, weights, _levels(40, size, 5.0), settings)


def _residual(blocks: int) -> Case:
    """Return a case of residual blocks of convolutions, one of them for each channel, and pooling."""
    nodes, source = "", "x"
    weights: dict[str, tuple[int, ...] | npt.NDArray[Any]] = {}
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
    return Case(f"residual, depthwise, {blocks} blocks", graph, weights, _normal(2, 32, 12, 12))


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
ATTENTION_WEIGHTS: Weights = {
    "wq": (64, 64),
    "wk": (64, 64),
    "wv": (64, 64),
    "wo": (64, 64),
    "eighth": np.array(0.125, np.float32),
}
SIGMOID = """net (float[N, 64] x) => (float[N, 64] y) {
  a = MatMul (x, w0)
  f = Sigmoid (a)
  y = MatMul (f, w1)
}"""

LSTM_LEVELS = _recurrent("LSTM levels by step", "LSTM", min_output_sqnr=0.0)
CASES: Sequence[Case] = (
    Case("Conv", CONV, CONV_WEIGHTS, _normal(2, 8, 12, 12)),
    Case("MatMul", MLP, MLP_WEIGHTS, _normal(16, 64)),
    Case(
        "MatMul levels dynamic",
        MLP,
        MLP_WEIGHTS,
        lambda rng: np.asarray(rng.normal(size=(16, 64)) * 10.0 ** rng.uniform(-2, 2, (16, 1)), np.float32),
        {"mode": "dynamic"},
    ),
    Case("MatMul weight-only", MLP, MLP_WEIGHTS, _normal(16, 64), {"mode": "weight-only"}),
    Case("attention", ATTENTION, ATTENTION_WEIGHTS, _normal(2, 24, 64)),
    Case(
        "LUT Sigmoid",
        SIGMOID,
        {"w0": (64, 64), "w1": (64, 64)},
        _normal(16, 64),
        {"min_output_sqnr": 0.0},
    ),
    LSTM_LEVELS,
    _recurrent("GRU weight-only", "GRU", mode="weight-only"),
    _residual(2),
)
