"""Gains of noise, corrected by the noise that was measured while the model ran. Pure.

The gains of single nodes follow from profile and weights, and take every noise as independent of every other.
But errors of weights are the same at each place and in each sample, gates and softmaxes saturate, and sums
cancel: after fifty layers such an estimate is off by 20 dB either way. A profile may hold how much noise
each tensor had when all activations were rounded by a known step, and how much when all weights were in int8.
What the gains predict for the result of a node, from the noise that was measured in its inputs, is held
against what was measured there, and the gains of the node are multiplied by the ratio. So a plan that rounded
as the measurement did would be estimated to have just the noise that was measured, at each tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...profiles.noise.measurements import TensorNoise
from ...profiles.records.profile import Profile
from ..model.graph import Graph, input_name, name_of
from ..noise_runs.rounded_weights import quantizable_constants, rounded_weight
from ..numerics.quantization_noise import relative_power
from ..operators.table import product_layout
from ..ranges.clipped_activations import clip_outputs
from .propagation import Corrections, NoiseGains

MOST = 1e4
"""Most by which a gain is corrected, and its inverse the least: 40 dB."""


def measured_gains(
    graph: Graph, profile: Profile, opset: int, measured: Mapping[str, TensorNoise]
) -> NoiseGains:
    """Return the gains of the nodes of a model, corrected by measured noise.

    Args:
        graph, profile, opset: of the prepared model.
        measured: pooled noise of its tensors; empty for gains that are not corrected.
    """
    gains = NoiseGains(graph, profile, opset)
    return gains.corrected(_corrections(gains, measured)) if measured else gains


@dataclass(frozen=True)
class _Level:
    """Noise in one tensor, scaled to the samples of the profile; NaN for what was not measured.

    Attributes:
        injected: what rounding it added.
        rounding: what it had before, where activations were rounded.
        weights: what it had where weights were rounded.
    """

    injected: float
    rounding: float
    weights: float


def _levels(gains: NoiseGains, measured: Mapping[str, TensorNoise]) -> dict[str, _Level]:
    """Return the noise in each tensor: of a few samples it is relative to their signal.

    A tensor that only a clip reads has the profile of the clip's output; so its noise is taken relative to
    that.
    """
    clipped = clip_outputs(gains.graph)
    levels = {}
    for name, noise in measured.items():
        profiled = clipped.get(name, name)
        power, other = gains.powers.get(profiled), measured.get(profiled)
        if power and other is not None and other.signal:
            scale = power / other.signal
            figures = (noise.injected, noise.activation_noise, noise.weight_noise)
            levels[name] = _Level(*(math.nan if figure is None else figure * scale for figure in figures))
    return levels


def _corrections(gains: NoiseGains, measured: Mapping[str, TensorNoise]) -> Corrections:
    rounding, weights = {}, {}
    levels = _levels(gains, measured)
    for node in gains.graph.nodes:
        for result in (name_of(value) for value in node.outputs):
            found = levels.get(result)
            if gains.powers.get(result) and found is not None:
                of_rounding, of_weights = _expected(gains, node, result, levels)
                rounding[result] = _ratio(found.rounding, of_rounding)
                weights[result] = _ratio(found.weights, of_weights + _own(gains, node, result))
    return Corrections(rounding, weights)


def _expected(
    gains: NoiseGains, node: ir.Node, result: str, levels: Mapping[str, _Level]
) -> tuple[float, float]:
    """Return the power that both kinds of noise in the inputs of a node should have in its result."""
    of_rounding = of_weights = 0.0
    for index in range(len(node.inputs)):
        name = input_name(node, index)
        level = levels.get(name)
        if not gains.powers.get(name) or level is None:
            continue
        coloured, white = gains.coloured(node, index, name, result), gains.white(node, index)
        of_rounding += coloured * _known(level.rounding)
        of_rounding += (coloured if white is None else white) * _known(level.injected)
        of_weights += coloured * _known(level.weights)
    return of_rounding, of_weights


def _known(noise: float) -> float:
    return 0.0 if math.isnan(noise) else noise


def _own(gains: NoiseGains, node: ir.Node, result: str) -> float:
    """Return the noise that the weights of a node bring into its result in int8, as they were measured."""
    total = 0.0
    for index, layout in quantizable_constants(node):
        exact = gains.graph.constant(input_name(node, index))
        rounded = None if exact is None else rounded_weight(node, layout, exact)
        if exact is not None and rounded is not None and exact.any():
            share = relative_power(rounded - exact, exact)
            total += gains.of_weight_error(node, index, share, result)
    return total


def _ratio(measured: float, expected: float) -> float:
    if math.isnan(measured) or expected <= 0.0:
        return 1.0
    return min(max(measured / expected, 1.0 / MOST), MOST)


def left_by_bias_correction(gains: NoiseGains, node: ir.Node) -> float:
    """Return the part of the noise of a rounded weight that bias correction cannot take away.

    It takes the error of the mean input. What is left of the power of each input channel is its variance. An
    error is taken to be as large as the largest weight of its output channel, over which a step is shared.
    """
    layout, tensor = product_layout(node), gains.profile.get(input_name(node, 0))
    if layout is None or tensor is None or tensor.channels is None or layout.bias_place(node) is None:
        return 1.0
    weight = gains.graph.constant(input_name(node, layout.index))
    mean, power = (np.asarray(v, np.float64) for v in (tensor.channels.mean, tensor.channels.power))
    if weight is None:
        return 1.0
    blocks = layout.axes(node, weight.shape).blocks(np.asarray(weight, np.float64))
    if blocks.shape[0] * blocks.shape[2] != mean.size:
        return 1.0
    steps = np.square(np.abs(blocks).max(axis=(2, 3)))  # of each output channel
    whole = float(np.einsum("go,gi->", steps, power.reshape(blocks.shape[0], -1)))
    varying = np.maximum(power - np.square(mean), 0.0).reshape(blocks.shape[0], -1)
    return float(np.einsum("go,gi->", steps, varying)) / whole if whole > 0.0 else 1.0
