"""Equalization scales of what recurrent nodes read in float and quantize at run time. Pure.

Such a node has one scale for the whole of its input. Where the bins of a spectrum differ by decades, those of
low power would be lost, however much the node makes of them. What each choice of scales costs is not judged
by powers, as it is for products: gates saturate, so that an error in a step of high level costs less than its
power says. The node's cell is run instead (`Judge`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.records.channel_statistics import Channels
from ...profiles.records.profile import Profile
from ..model.graph import Graph, Use, input_name
from ..numerics.schemas import dynamic_params
from ..operators.operands import channel_layout
from ..plan.adjustments import EqualizationScales
from .apply import equalized_name
from .paths import absorbs_scales
from .scales import EXPONENTS, INSERTED_GAIN_DB, powers_of_two

Floats = npt.NDArray[np.float64]

Judge = Callable[[ir.Node, Floats, float], float]
"""Returns the SQNR (dB) that a recurrent node keeps at its output: of the node, the scales of its input's
channels, and the step to multiples of which the divided input is rounded."""

LARGEST_RATIO = 2.0**24
"""Largest ratio of two scales. That of products, 2**12, leaves alone what has no share in their sums; the
weights of a recurrent node that was trained on standardized inputs can make up for any level."""


def find_recurrent_scales(
    graph: Graph, profile: Profile, nodes: Collection[ir.Node], judge: Judge
) -> dict[str, EqualizationScales]:
    """Return the scales of every activation that gains enough by them, by name; a Mul is added for each.

    Args:
        graph: the prepared model.
        profile: its profile; activations without records of their channels are left alone.
        nodes: the recurrent nodes with dynamic parameters, whose input is float.
        judge: says what they make of scales.
    """
    found: dict[str, EqualizationScales] = {}
    for name in dict.fromkeys(input_name(node, 0) for node in nodes):
        tensor, shape = profile.get(name), graph.shape(name)
        if tensor is None or tensor.channels is None or shape is None or tensor.count == 0:
            continue
        channels, axis = tensor.channels, tensor.channels.axis % len(shape)
        uses = [use for use in graph.consumers(name) if use[0] in nodes and absorbs_scales(graph, use, axis)]
        if not uses or shape[axis] != channels.minimum.size or equalized_name(name) in graph.values:
            continue
        scales = _best(graph, channels, uses, judge)
        if scales is not None:
            found[name] = EqualizationScales(axis, tuple(scales.tolist()), inserted=True)
    return found


def _best(graph: Graph, channels: Channels, uses: Collection[Use], judge: Judge) -> Floats | None:
    """Return the scales that keep the highest SQNR at the reader where it is lowest; None for no scales."""
    ones = np.ones_like(channels.minimum)
    by_scales = {scales.tobytes(): scales for scales in (ones, *_candidates(graph, channels, uses))}
    judged = {key: _lowest(channels, scales, uses, judge) for key, scales in by_scales.items()}
    best = max(judged, key=lambda key: judged[key])  # of equal ones the first
    return by_scales[best] if judged[best] >= judged[ones.tobytes()] + INSERTED_GAIN_DB else None


def _candidates(graph: Graph, channels: Channels, uses: Collection[Use]) -> Iterator[Floats]:
    energy = np.zeros_like(channels.minimum)
    for node, _ in uses:
        layout = channel_layout(node)
        assert layout is not None
        weight = graph.constant(input_name(node, layout.index))
        assert weight is not None
        energy += np.square(weight, dtype=np.float64).sum(tuple(range(weight.ndim - 1)))
    for a, b in EXPONENTS:
        yield powers_of_two(channels.magnitude, np.sqrt(energy), (a, b), LARGEST_RATIO)


def _lowest(channels: Channels, scales: Floats, uses: Collection[Use], judge: Judge) -> float:
    low, high = channels.minimum / scales, channels.maximum / scales
    step = dynamic_params(float(low.min()), float(high.max())).scale[0]
    return round(min(judge(node, scales, step) for node, _ in uses), 2)  # no last bits decide
