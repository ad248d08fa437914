"""Equalization scales of what recurrent nodes read: when there are some, and what they keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.adjustments.equalization import apply_equalization
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.planning.needed_tensors import weighted_channels
from qprof_onnx.quantizer.planning.plan_model import (
    PlannedModel,
    model_facts,
    open_plan,
    plan_from,
)
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, prepare
from qprof_onnx.quantizer.targets.loading import load_recipe

Floats = npt.NDArray[np.float32]
STEPS, BINS, UNITS = 24, 48, 48
SPECTRUM = np.geomspace(1.0, 1e-5, BINS).astype(np.float32)
EVEN = np.ones(BINS, np.float32)


def spectra(seed: int, levels: Floats) -> dict[str, Floats]:
    """Return magnitudes [steps, 1, bins], each bin with its level, louder and less loud from step to step."""
    rng = np.random.default_rng(seed)
    loud = np.exp(0.5 * rng.normal(size=(STEPS, 1, 1)))
    return {"x": (loud * np.abs(rng.normal(size=(STEPS, 1, BINS))) * levels).astype(np.float32)}


def prepared(levels: Floats, operator: str = "LSTM") -> PreparedModel:
    """Return a network that was trained on standardized bins, the standardization folded into its weights."""
    rng = np.random.default_rng(2)
    gates = {"LSTM": 4, "GRU": 3}[operator]
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{STEPS}, 1, {BINS}] x) => (float[a, b, c, d] y) '
        f"{{ y = {operator} <hidden_size = {UNITS}> (x, w, r) }}"
    )
    w = rng.standard_normal((1, gates * UNITS, BINS)) / levels / BINS**0.5
    r = rng.standard_normal((1, gates * UNITS, UNITS)) / UNITS**0.5
    for name, array in (("w", w), ("r", r)):
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    model = prepare(ir.serde.deserialize_model(proto)).model
    return PreparedModel(model, index(model), model_id(model, "net.onnx"), ())


def planned(levels: Floats, operator: str = "LSTM", **settings: Any) -> tuple[PreparedModel, PlannedModel]:
    found = prepared(levels, operator)
    samples = [Sample(str(seed), spectra(seed, levels)) for seed in range(4)]
    run = RunSettings(channels=weighted_channels(found.graph))
    profile = calibrate(found.model, samples, found.identity, run)
    return found, plan_from(model_facts(found, profile, load_recipe(None, settings)))


def sqnr(exact: ir.Model, model: ir.Model, levels: Floats) -> float:
    a, b = (outputs(m, levels) for m in (exact, model))
    return float(10.0 * np.log10(np.square(a).sum() / np.square(a - b).sum()))


def outputs(model: ir.Model, levels: Floats) -> Floats:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    return np.asarray(session.run(["y"], spectra(9, levels))[0])


def test_an_lstm_keeps_bins_that_are_decades_below_others() -> None:
    model, found = planned(SPECTRUM)
    assert found.plan.nodes["LSTM_y"].kind is Kind.DYNAMIC
    entry = found.plan.adjustments.equalization["x"]
    assert (entry.axis, entry.inserted) == (2, True)
    assert sqnr(model.model, lower(found.model, found.plan).model, SPECTRUM) > 25.0
    _, without = planned(SPECTRUM, equalization="off", min_output_sqnr=0.0)
    assert sqnr(model.model, lower(without.model, without.plan).model, SPECTRUM) < 10.0


def test_in_float_the_equalized_model_computes_the_same() -> None:
    model, found = planned(SPECTRUM)
    scaled = apply_equalization(model.model, found.plan.adjustments.equalization)
    expected = outputs(model.model, SPECTRUM)
    np.testing.assert_array_equal(outputs(scaled, SPECTRUM), expected)  # powers of two: nothing is rounded


def test_the_plan_that_was_written_has_the_scales() -> None:
    model, found = planned(SPECTRUM)
    again = open_plan(model, loads(dumps(found.plan)))
    assert again.plan.adjustments == found.plan.adjustments
    first, second = (outputs(lower(p.model, p.plan).model, SPECTRUM) for p in (found, again))
    np.testing.assert_array_equal(first, second)


def test_without_scales_the_noise_is_seen_and_the_lstm_stays_float() -> None:
    _, found = planned(SPECTRUM, equalization="off")
    entry = found.plan.nodes["LSTM_y"]
    assert entry.kind is not Kind.DYNAMIC
    assert "quantization noise" in entry.reason


@pytest.mark.parametrize(
    ("levels", "operator", "settings"),
    [
        (EVEN, "LSTM", {}),
        (SPECTRUM, "GRU", {}),
        (SPECTRUM, "LSTM", {"form": "integer"}),
        (SPECTRUM, "LSTM", {"min_output_sqnr": 90.0}),
        (SPECTRUM, "LSTM", {"equalization": "free"}),
    ],
    ids=["even bins", "no dynamic kernel", "no dynamic form", "float for its noise", "no added Mul"],
)
def test_nothing_is_scaled_where_it_gains_nothing(
    levels: Floats, operator: str, settings: dict[str, object]
) -> None:
    _, found = planned(levels, operator, **settings)
    assert not found.plan.adjustments.equalization
