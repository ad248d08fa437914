"""Estimated SQNR of small networks and of an example against what is measured on samples of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import pytest
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


def estimates(case: Case, folder: Path) -> list[Checked]:
    """Return estimate and measurement of each output of a case."""
    rng, model = np.random.default_rng(11), folder / "model.onnx"
    onnx.save(model_of(case), model)
    known, new = ([{"x": case.samples(rng)} for _ in range(8)] for _ in range(2))
    return measured(model, known, new, folder, case.settings)


def measured(model: Path, known: Any, new: Any, folder: Path, settings: Mapping[str, Any]) -> list[Checked]:
    profile, quantized = folder / "profile.yaml", folder / "q.onnx"
    profile_model(model, known, profile)
    write_quantized(model, profile, quantized, recipe=load_recipe("onnxruntime-x86", dict(settings)))
    found = evaluate(model, quantized, new, measuring=Judge(latency=None))
    sqnr = {one.name: one.difference.sqnr for one in found.outputs if one.difference}
    assert found.provenance is not None
    return [Checked(one, sqnr[one.output]) for one in estimates_of(found.provenance)]


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


MLP = """net (float[N, 64] x) => (float[N, 16] y) {
  a = MatMul (x, w0)
  ra = Relu (a)
  b = MatMul (ra, w1)
  rb = Relu (b)
  y = MatMul (rb, w2)
}"""
MLP_WEIGHTS = {"w0": (64, 256), "w1": (256, 256), "w2": (256, 16)}
LSTM_LEVELS = _recurrent("LSTM levels by step", "LSTM", min_output_sqnr=0.0)
CASES: Sequence[Case] = (
    Case(
        "MatMul levels dynamic",
        MLP,
        MLP_WEIGHTS,
        lambda rng: np.asarray(rng.normal(size=(16, 64)) * 10.0 ** rng.uniform(-2, 2, (16, 1)), np.float32),
        {"mode": "dynamic"},
    ),
    Case(
        "MatMul weight-only",
        MLP,
        MLP_WEIGHTS,
        lambda rng: rng.normal(size=(16, 64)).astype(np.float32),
        {"mode": "weight-only"},
    ),
    LSTM_LEVELS,
    _recurrent("GRU weight-only", "GRU", mode="weight-only"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_estimate_is_more_than_3_db_too_good(case: Case, tmp_path: Path) -> None:
    exact = replace(case, settings={"weight_type": "int8", **case.settings})
    (check,) = estimates(exact, tmp_path)
    assert check.measured >= check.estimate.low, check


def test_the_examples_estimate_is_kept(tmp_path: Path) -> None:
    (check,) = measured(DIGITS / "model.onnx", DIGITS / "calibration", DIGITS / "heldout", tmp_path, {})
    assert abs(check.estimate.estimated - check.measured) < 3.0, check  # 38.7 and 39.0 dB


def test_lstms_whose_inputs_span_decades_are_not_within_the_default_budget(tmp_path: Path) -> None:
    (check,) = estimates(LSTM_LEVELS, tmp_path)
    assert check.measured < 18.0  # what the budget asks of every output by default
    assert check.estimate.estimated < 18.0
