"""Equalization scales: which activations get some, and what they are."""

from __future__ import annotations

import math

import numpy as np
from qprof_onnx.quantizer.adjustments.equalization import MAX_SCALE_RATIO, EqualizationSearch
from qprof_onnx.quantizer.noise.activation_ranges import RangeCache
from qprof_onnx.quantizer.numerics.density import ChannelDensities
from qprof_onnx.quantizer.plan.plan import EqualizationScales
from qprof_onnx.quantizer.targets.config import QuantConfig
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import Network, network

RANGES = np.array([1.0, 0.5, 0.1, 0.04, 0.02, 0.02, 0.01, 1e-6], np.float32)


def uneven(text: str = "a = Conv(x, w) t = Relu(a) y = Conv(t, v)") -> Network:
    """Two convolutions between which the ranges of the channels differ, and all matter as much."""
    rng = np.random.default_rng(1)
    first, second = (rng.standard_normal((8, 8, 3, 3)).astype("f") for _ in range(2))
    weights = {"w": first * RANGES[:, None, None, None], "v": second / RANGES[:, None, None]}
    return network(text, weights)


def scales_of(net: Network, **settings: object) -> dict[str, EqualizationScales]:
    config: QuantConfig = load_recipe("onnxruntime-x86", settings).config
    plan = net.plan(**{**settings, "equalization": "off", "bias_correction": "off"})
    densities, ranges = ChannelDensities(net.profile), RangeCache()
    return dict(EqualizationSearch(net.graph, net.profile, config, plan, densities, ranges).scales())


def test_scales_are_powers_of_two_within_a_bound() -> None:
    (entry,) = scales_of(uneven()).values()
    assert all(math.frexp(scale)[0] == 0.5 for scale in entry.scales)
    assert min(entry.scales) >= 1.0 / MAX_SCALE_RATIO


def test_the_channel_with_the_largest_range_keeps_its_scale() -> None:
    (entry,) = scales_of(uneven()).values()
    assert entry.scales[0] == 1.0
    assert entry.scales[0] > entry.scales[3] > entry.scales[6]
