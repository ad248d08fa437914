"""Bias correction: the bias undoes the shift that rounded weights give each output channel. Pure.

A quantized weight differs from the float one by an error that is the same for every sample, so the output of
a channel is off by the sum over inputs of error times mean input (Nagel et al., "Data-Free Quantization
Through Weight Equalization and Bias Correction", 2019, section 4.2; Finkelstein et al., "Fighting
Quantization Bias With Bias", 2019). The means are in the profile. At the borders of a padded convolution
fewer inputs take part; that is not taken into account. A result that a logarithm, a root or a quotient reads
bears no constant error (`noise.constant_errors`): its bias stays.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.instrumentation.subgraphs import value_names
from ...profiles.records.profile import Profile
from ..model.editing import add_initializer, free_name, replace_constant
from ..model.graph import constant_of
from ..numerics.quantization_noise import weight_error
from ..operators.graph import Graph, Node
from ..operators.table import product_layout, weight_axes
from ..operators.weight_layout import Array, Kernel, WeightLayout
from ..plan.plan import BIAS_CORRECTED, EqualizationScales, QuantPlan
from .equalization import equalized_name
from .equalization_paths import absorbs_scales

Floats = npt.NDArray[np.float64]


ChannelMeans = tuple[int, Floats]
"""The axis of an activation that counts channels, from the end if negative, and the mean of each."""


def find_biases(
    graph: Graph,
    rounded: Graph,
    means: Mapping[str, ChannelMeans],
    plan: QuantPlan,
    without: Collection[str] = (),
) -> dict[str, tuple[float, ...]]:
    """Return the bias correction of each quantized node with a constant weight, in graph order."""
    biases: dict[str, tuple[float, ...]] = {}
    for node in graph.nodes:
        layout, name = product_layout(node), node.input(0)
        if plan.nodes[node.name].kind not in BIAS_CORRECTED or layout is None or name not in means:
            continue
        if node.output in without:
            continue
        if plan.params_read(node.name, layout.index, node.input(layout.index)) is None:
            continue
        rank, (axis, mean) = len(graph.shape(name) or ()), means[name]
        if not rank or not absorbs_scales(graph, (node, 0), axis % rank):
            continue
        if layout.bias_place(node.ir_node) is None:
            continue
        delta = -_mean_error(graph, rounded, node, layout, plan=plan, mean=mean).astype(np.float32)
        if np.any(delta) and np.all(np.isfinite(delta)):
            biases[node.name] = tuple(delta.tolist())
    return biases


def channel_means(profile: Profile, scales: Mapping[str, EqualizationScales]) -> dict[str, ChannelMeans]:
    """Return the mean of each channel of the activations of a model after `apply_equalization`."""
    means: dict[str, ChannelMeans] = {}
    for name, tensor in profile.items():
        if tensor.channels is None or tensor.count == 0:
            continue
        axis, mean = tensor.channels.axis, np.asarray(tensor.channels.mean, np.float64)
        if name in scales:
            means[equalized_name(name)] = axis, mean / np.asarray(scales[name].scales)
        if name not in scales or scales[name].inserted:
            means[name] = axis, mean
    return means


def _mean_error(
    graph: Graph, rounded: Graph, node: Node, layout: WeightLayout, *, plan: QuantPlan, mean: Floats
) -> Floats:
    """Return the mean error that a quantized weight adds to each output channel, (outputs,)."""
    name = node.input(layout.index)
    weight, rounded_weight = graph.constant(name), rounded.constant(name)
    params = plan.params_read(node.name, layout.index, name)
    assert weight is not None
    assert rounded_weight is not None
    assert params is not None
    error = weight_error(weight.astype(np.float64), params, rounded_weight.astype(np.float32, copy=False))
    blocks = layout.axes(node, weight.shape).blocks(error)
    means = mean.reshape(blocks.shape[0], -1)
    total: Floats = np.einsum("goit,gi->go", blocks, means).reshape(-1)
    if layout.kernel is Kernel.SCATTERS:  # an output element gets one of strides x strides taps
        total = total / math.prod(node.attributes.get_ints("strides", (1,)))
    return total


# Corrected biases applied to a float model, which stays as it is ------------------------------------------


def apply_biases(model: ir.Model, biases: Mapping[str, tuple[float, ...]], where: str = "plan") -> ir.Model:
    """Return the model with corrected biases, without those of unknown nodes."""
    if not biases:
        return model
    work = model.clone()
    taken = value_names(work)
    for node in list(work.graph):
        if node.name is not None and node.name in biases:
            place = f"{where}: adjustments: bias of '{node.name}'"
            _add_to_bias(node, np.asarray(biases[node.name], np.float32), taken, place)
    return work


def _add_to_bias(node: ir.Node, delta: Array, taken: set[str], where: str) -> None:
    """Add a vector to the bias of a product; create the bias if it is missing and allowed."""
    layout = product_layout(node)
    weight = None if layout is None else constant_of(node.inputs[layout.index])
    place = None if layout is None else layout.bias_place(node)
    if weight is None or place is None:
        raise PlanError(f"{where}: the node has no constant bias; remove the entry")
    channels = weight_axes(node, weight.shape).output_channels
    if delta.size != channels:
        raise PlanError(f"{where}: {delta.size} numbers for {channels} output channels; give one for each")
    holder, position = place
    old = constant_of(holder.inputs[position]) if position < len(holder.inputs) else None
    if old is not None:
        new = old + delta.reshape(old.shape if old.size == delta.size else delta.shape)
        replace_constant(holder, position, np.asarray(new, np.float32), taken)
        return
    graph = holder.graph
    assert graph is not None
    holder.resize_inputs(position + 1)
    value = add_initializer(graph, free_name(f"{holder.outputs[0].name}_bias", taken), delta)
    holder.replace_input_with(position, value)
