"""Where a copy with rounded activations lost its signal, what was measured there says nothing of a plan."""

from __future__ import annotations

import pytest
from qprof_onnx.profiles.records.profile import SampleNoise, TensorNoise
from qprof_onnx.quantizer.noise.propagation import measured_gains

from ..networks import network


@pytest.mark.parametrize(("over_signal", "is_taken"), [(0.01, True), (100.0, False)])
def test_noise_far_above_the_signal_counts_as_not_measured(over_signal: float, is_taken: bool) -> None:
    net = network("a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)", {"w": (8, 8), "v": (8, 8)}, (4, 8))

    def corrections(noise_of_b: float | None) -> object:
        known = {name: TensorNoise(1.0, 1e-4, 1e-4) for name in "xay"}
        sample = SampleNoise("0" * 32, {**known, "b": TensorNoise(1.0, noise_of_b, 1e-4)})
        gains = measured_gains(net.graph, net.profile, 17, (sample,))
        return gains.rounding_corrections, gains.weight_corrections

    assert (corrections(over_signal) != corrections(None)) is is_taken


def test_what_a_node_makes_of_noise_that_was_not_measured_is_not_known() -> None:
    net = network("a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)", {"w": (8, 8), "v": (8, 8)}, (4, 8))
    known = {name: TensorNoise(1.0, 0.1, 0.1) for name in "xay"}
    sample = SampleNoise("0" * 32, {**known, "b": TensorNoise(1.0, 100.0, 0.1)})
    gains = measured_gains(net.graph, net.profile, 17, (sample,))
    assert gains.rounding_corrections["y"] == 1.0
    assert gains.weight_corrections["y"] != 1.0
