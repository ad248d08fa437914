"""What recurrent operators make of noise."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.samples import Sample
from qprof_onnx.quantizer.model.graph import index
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.noise.recurrence import Recurrence, recurrence_of
from qprof_onnx.quantizer.prepare.prepare import prepare

UNITS, STEPS = 16, 12


def recurrence(operator: str = "LSTM", level: float = 1.0, returned: float = 1.0) -> Recurrence:
    """Return that of an operator with normal weights: rows of W have power 1, those of R `returned`."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    net (float[{STEPS}, 1, {UNITS}] x) => (float[] y) {{
      y = {operator} <hidden_size = {UNITS}> (x, w, r)
    }}"""
    proto, rng = onnx.parser.parse_model(text), np.random.default_rng(5)
    for name, power in (("w", 1.0), ("r", returned)):
        array = rng.standard_normal((1, gates * UNITS, UNITS))
        array *= np.sqrt(power / np.square(array).sum() * gates * UNITS)
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    model = prepare(ir.serde.deserialize_model(proto)).model
    x = (level * rng.standard_normal((STEPS, 1, UNITS))).astype(np.float32)
    profile = calibrate(model, [Sample("0", {"x": x})], model_id(model, "net"))
    (node,) = (node for node in model.graph if node.op_type == operator)
    found = recurrence_of(node, index(model), profile)
    assert found is not None
    return found


def test_the_gates_saturate_where_the_preactivations_have_power_1() -> None:
    assert recurrence().knee == pytest.approx(1.0, rel=1e-6)  # weights are float32


def test_of_small_levels_noise_is_as_much_as_of_the_input() -> None:
    found = recurrence(level=0.05)
    power = 0.05**2
    assert found.per_unit() == pytest.approx(found.accumulation / power, rel=0.2)  # 192 values are a sample
    assert found.of_weight(1e-4) == pytest.approx(found.accumulation * 1e-4, rel=1e-9)


def test_beyond_the_knee_an_error_of_the_weights_grows_with_the_level() -> None:
    assert recurrence(level=100.0).of_weight(1e-4) > 20.0 * recurrence(level=1.0).of_weight(1e-4)


def test_rounding_loses_no_more_than_the_elements() -> None:
    found = recurrence(level=0.05)
    assert found.of_rounding(1e6) == pytest.approx(found.accumulation, rel=1e-9)


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_noise_accumulates_with_what_returns_and_at_most_over_all_steps(operator: str) -> None:
    little, much, all_of_it = (recurrence(operator, returned=power).accumulation for power in (0.1, 1.0, 1e4))
    assert 1.0 <= little < much <= all_of_it <= STEPS
