"""Bias correction: what rounding does to the mean of each output channel is taken back in the bias. Pure.

The codes of a weight differ from it by an error that is the same for every sample, so the output of a channel
is off by the sum over inputs of error times mean input (Nagel et al., "Data-Free Quantization Through Weight
Equalization and Bias Correction", 2019, section 4.2; Finkelstein et al., "Fighting Quantization Bias With
Bias", 2019). The means are in the profile. At the borders of a padded convolution fewer inputs take part;
that is not reckoned with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.records.profile import Profile
from ..model.graph import Graph, input_name
from ..numerics.affine import dequantize, quantize
from ..operators.weight_layout import bias_place, blocks
from ..plan.adjustments import EqualizationScales
from ..plan.plan import Kind, QuantPlan
from .apply import SCALED
from .paths import takes_factors

Floats = npt.NDArray[np.float64]


def find_biases(
    graph: Graph, rounded: Graph, means: Mapping[str, Floats], plan: QuantPlan
) -> dict[str, tuple[float, ...]]:
    """Return what to add to the bias of each integer node with a constant weight, in graph order.

    Args:
        graph: the model that is planned.
        rounded: the same with the weights that will be quantized (see `rounding`).
        means: of the channels of activations, float64.
        plan: its plan.
    """
    found: dict[str, tuple[float, ...]] = {}
    for node in graph.nodes:
        name = (node.inputs[0].name or "") if node.inputs and node.inputs[0] is not None else ""
        if plan.nodes[node.name or ""].kind is not Kind.QUANTIZED or name not in means:
            continue
        rank = len(graph.shape(name) or ())
        if not any(takes_factors(graph, (node, 0), axis) for axis in range(rank)) or bias_place(node) is None:
            continue
        delta = _delta(graph, rounded, node, means[name], plan).astype(np.float32)
        if np.any(delta) and np.all(np.isfinite(delta)):
            found[node.name or ""] = tuple(delta.tolist())
    return found


def channel_means(profile: Profile, factors: Mapping[str, EqualizationScales]) -> dict[str, Floats]:
    """Return the mean of each channel of the activations of a model after `apply_factors`."""
    means: dict[str, Floats] = {}
    for name, tensor in profile.items():
        if tensor.channels is None or tensor.count == 0:
            continue
        mean = np.asarray(tensor.channels.mean, np.float64)
        if name in factors:
            means[f"{name}{SCALED}"] = mean / np.asarray(factors[name].scales)
        if name not in factors or factors[name].inserted:
            means[name] = mean
    return means


def _delta(graph: Graph, rounded: Graph, node: ir.Node, mean: Floats, plan: QuantPlan) -> Floats:
    name = input_name(node, 1)
    weight, taken = graph.constant(name), rounded.constant(name)
    params = plan.params_read(node.name or "", 1, name)
    assert weight is not None
    assert taken is not None
    assert params is not None
    error = dequantize(quantize(taken, params), params).astype(np.float64) - weight.astype(np.float64)
    flat = blocks(node, error, mean.size)
    delta: Floats = -np.einsum("goit,gi->go", flat, mean.reshape(flat.shape[0], -1)).reshape(-1)
    if node.op_type == "ConvTranspose":  # an output element gets one in so many of the taps
        delta = delta / math.prod(node.attributes.get_ints("strides", (1,)))
    return delta
