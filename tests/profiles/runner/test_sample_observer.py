"""The observers of samples: arrays counted in one call or alone, by each thread, merged to one profile."""

from __future__ import annotations

from functools import reduce

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records.profile import ModelId, Profile
from qprof_onnx.profiles.records.store import dumps
from qprof_onnx.profiles.runner import sample_pass as observer_module
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.sample_pass import Statistics
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample

ID = ModelId("structure", "weights", 13)
AXES = {"x": 1, "y": 1, "l": -1}


def model() -> ir.Model:
    """A net with small and large arrays of free shapes, and logarithms of what may be negative or zero."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        net (float[N, 3, H] x) => (float[N, 3, 1] m, float[N, 3, H] e) {
            y = Mul (x, x)
            s = Mul (y, column)
            l = Log (x)
            e = Exp (s)
            m = ReduceMax <axes = [2]> (y)
        }"""
    )
    column = np.array([[0.1], [0.2], [-0.3]], np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(column, "column"))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def samples(low: float = 0.5) -> list[Sample]:
    """Samples of ten shapes, of values from `low` on."""
    rng = np.random.default_rng(0)
    shapes = [(1 + i % 2, 3, 4 + 7 * (i % 5)) for i in range(10)]
    arrays = [rng.uniform(low, 2.0 + i, shape).astype(np.float32) for i, shape in enumerate(shapes)]
    return [Sample(f"{i}", {"x": array}) for i, array in enumerate(arrays)]


def profile(low: float = 0.5) -> Profile:
    return calibrate(model(), samples(low), ID, RunSettings(channels=AXES, threads=1))


@pytest.mark.parametrize("low", [0.5, -2.0])
def test_arrays_counted_together_and_alone_give_the_same_profile(low: float) -> None:
    """From -2.0 on some logarithms are NaN."""
    together, alone = profile(low), TensorObserver("float", axis=1, channels=3)
    assert (together["l"].nan > 0) == (low < 0)
    for sample in samples(low):
        alone.add(sample.arrays["x"] ** 2, together["y"].shape)
    assert alone.profile() == together["y"]


def test_plans_may_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = profile()
    monkeypatch.setattr(observer_module, "PLANS", 1)
    assert dumps(profile()) == dumps(kept)


def test_of_several_tensors_with_nan_the_first_is_named() -> None:
    """The logarithms are NaN all the time; then one element of the input is infinite too."""
    x = np.full((1, 3, 8), -1.0, np.float32)
    for tensor, counts in (("l", (24, 0)), ("x", (0, 1))):
        first = calibrate(model(), [Sample("a", {"x": x})], ID).non_finite
        assert first is not None
        assert (first.sample, first.tensor, (first.nan, first.inf), first.elements) == (
            "a",
            tensor,
            counts,
            24,
        )
        x[0, 0, 0] = np.inf


def test_inputs_may_lie_in_memory_in_any_order() -> None:
    mixed = [Sample(s.name, {"x": np.ascontiguousarray(s.arrays["x"].T).T}) for s in samples()]
    assert not any(s.arrays["x"].flags.c_contiguous for s in mixed)
    assert dumps(calibrate(model(), mixed, ID, RunSettings(channels=AXES))) == dumps(profile())


def test_inputs_need_not_be_aligned() -> None:
    (one,) = samples()[:1]
    x = one.arrays["x"]
    bytes_of = np.empty(x.nbytes + 1, np.uint8)
    odd = bytes_of[1:].view(np.float32).reshape(x.shape)
    odd[...] = x
    assert not odd.flags.aligned
    settings = RunSettings(channels=AXES)
    found = [calibrate(model(), [Sample("0", {"x": array})], ID, settings) for array in (x, odd)]
    assert dumps(found[0]) == dumps(found[1])


def test_what_only_some_threads_have_seen_is_in_the_profile() -> None:
    whole = profile()
    parts = [Statistics({"x": whole["x"]}), Statistics(), Statistics({"y": whole["y"]})]
    assert reduce(Statistics.merged, parts).tensors == {"x": whole["x"], "y": whole["y"]}
