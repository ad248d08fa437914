"""Cross-layer equalization: which activations have their channels equalized, and by which scales. Pure.

An activation has one scale; a channel that is much smaller than the largest keeps few quantized values.
Dividing the channels by equalization scales that the weights of the readers take back moves the differences
into the weights, where every output channel has a scale of its own (cross-layer equalization: Nagel et al.
2019, section 4.1; between an activation and a MatMul: SmoothQuant, Xiao et al. 2022, equation 4). Both are
one mechanism here; they differ in what divides: constants upstream, for nothing, or a Mul that is inserted.

The equalization scales of channel c are r_c^a / w_c^b for a small grid of exponents, with r_c the largest
magnitude of the channel and w_c that of the weights that read it, rounded to powers of two. Those are taken
whose expected noise at the readers' outputs is least, relative to their signal:

    activation:  sum over c of  e_c * s_c^2 * |W_c|^2,   e_c = min(step^2 / 12, E[x_c^2])
    weight:      sum over outputs o and inputs c of  step_o^2 / 12 * taps * E[x_c^2]

where x_c are the divided channels. A channel smaller than half a step is lost, which costs no more than all
of it: hence the minimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.records.profile import Profile
from ..model.graph import Graph, name_of, output_name
from ..numerics.affine import TYPES
from ..numerics.channel_density import ChannelDensities, ChannelDensity, channel_mse, equalized
from ..numerics.density import signal_power
from ..numerics.quantization_noise import decibels
from ..numerics.schemas import SCHEMAS, choose_params
from ..operators.table import ChannelScaling, product_layout, rule_of, weight_axes
from ..plan.adjustments import EqualizationScales
from ..plan.plan import Kind, QuantPlan
from ..ranges.activation_ranges import RangeCache
from ..ranges.calibrators import Range, calibrate
from ..targets.config import QuantConfig
from .apply import equalized_name
from .paths import absorbs_scales, find_path

Floats = npt.NDArray[np.float64]

EXPONENTS = (
    (0.25, 0.0),
    (0.5, 0.0),
    (0.75, 0.0),
    (1.0, 0.0),
    (0.5, 0.5),
    (0.75, 0.25),
    (0.75, 0.5),
    (1.0, 0.5),
)
"""Exponents a and b of the range of the activation and of the weights."""

LARGEST_RATIO = 2.0**12
"""Largest ratio of two scales: channels that are smaller still have no share in the result."""

FREE_GAIN_DB, INSERTED_GAIN_DB = 0.5, 2.0
"""Least expected gain at the readers for which scales are taken: for nothing, or at the price of a pass.

A Mul before QuantizeLinear takes onnxruntime 1.31 14 microseconds for 96 x 2 x 384 values; the 16 of MiniLM
take 1 % of its time. QuantizeLinear with a scale for each channel would do without, in 1,557 microseconds.
Gains are estimated at the readers: at the outputs, `noise_flow` has it, only scales of MiniLM's later half
matter, where the earlier half gains more when measured (1.7 dB against 0.6).
"""


@dataclass(frozen=True)
class Reader:
    """A product that reads the activation.

    Attributes:
        energy: of the weights that read each channel, summed squares.
        largest: largest magnitude of the weights from each input channel to each output channel, (out, in);
            0 where there is none.
        taps: weights between two channels.
        signal: mean square of the output's elements times the output's channels.
    """

    energy: Floats
    largest: Floats
    taps: int
    signal: float

    @cached_property
    def connected(self) -> Floats:
        """1 where there is a weight between an input and an output channel, (out, in)."""
        return (self.largest > 0.0).astype(np.float64)


@dataclass(frozen=True)
class _Search:
    """What equalization scales are looked for in.

    Attributes:
        graph: the prepared model.
        profile: its profile.
        config: what was asked for.
        plan: of the model without adjustments.
        densities: of the channels of the profile's tensors.
        ranges: calibrated ranges of these tensors.
    """

    graph: Graph
    profile: Profile
    config: QuantConfig
    plan: QuantPlan
    densities: ChannelDensities
    ranges: RangeCache


def find_equalization_scales(
    graph: Graph,
    profile: Profile,
    config: QuantConfig,
    plan: QuantPlan,
    *,
    densities: ChannelDensities | None = None,
    ranges: RangeCache | None = None,
) -> dict[str, EqualizationScales]:
    """Return the equalization scales of every activation that gains enough by them, in graph order.

    Args:
        graph: the prepared model.
        profile: its profile; activations without records of their channels are left alone.
        config: what was asked for.
        plan: the plan of the model without adjustments: only what is quantized there is considered.
        densities: of the profile's channels; what is estimated is kept there.
        ranges: calibrated for `config`, those of the plan.
    """
    densities, ranges = densities or ChannelDensities(profile), ranges or RangeCache()
    search = _Search(graph, profile, config, plan, densities, ranges)
    order = [*graph.inputs, *(v.name for node in graph.nodes for v in node.outputs if v.name)]
    by_name = {name: _scales_of(search, name) for name in order if name in profile and name in densities}
    return {name: scales for name, scales in by_name.items() if scales is not None}


def _scales_of(search: _Search, name: str) -> EqualizationScales | None:
    graph, plan, config = search.graph, search.plan, search.config
    channels, shape = search.profile[name].channels, graph.shape(name)
    if channels is None or shape is None or name not in plan.tensors or not _may_be_renamed(search, name):
        return None
    axis = channels.axis % len(shape)
    size = channels.minimum.size
    uses = [use for use in graph.consumers(name) if absorbs_scales(graph, use, axis)]
    nodes = [node for node, _ in uses if _rounds(node, plan)]
    if not nodes or shape[axis] != size:
        return None
    free = len(uses) == len(graph.consumers(name)) and _is_free(search, name, axis)
    if not free and (config.equalization == "free" or not _is_float(graph, plan, name)):
        return None
    readers = [_reader(graph, search.profile, node) for node in nodes]
    scales, gain = _best(search, name, readers)
    if gain < (FREE_GAIN_DB if free else INSERTED_GAIN_DB):
        return None
    return EqualizationScales(axis, tuple(scales.tolist()), not free)


def _rounds(node: ir.Node, plan: QuantPlan) -> bool:
    """Whether a node computes on a quantized activation: a recurrent one with dynamic parameters, too."""
    kind = plan.nodes[name_of(node)].kind
    return kind is Kind.QUANTIZED or (kind is Kind.DYNAMIC and product_layout(node) is None)


def _may_be_renamed(search: _Search, name: str) -> bool:
    """Whether no setting refers to an activation by its name, and the name that it gets is free."""
    named = any(fnmatchcase(name, pattern) for pattern in search.config.keep_16bit)
    return not named and equalized_name(name) not in search.graph.values


def _is_free(search: _Search, name: str, axis: int) -> bool:
    """Whether constants can divide an activation, and all ranges on the way to them are known."""
    size = (search.graph.shape(name) or ())[axis]
    path = None if size is None else find_path(search.graph, name, axis, size)
    if path is None:
        return False
    if any(_is_in_lut(search, each) for each in (name, *(tensor.name for tensor in path.tensors))):
        return False
    return all(
        (tensor.name not in search.plan.tensors or tensor.keeps_range)
        and _may_be_renamed(search, tensor.name)
        for tensor in path.tensors
    )


def _is_in_lut(search: _Search, name: str) -> bool:
    """Whether a look-up table makes an activation with a constant: it has one scale for all channels.

    A function that is homogeneous in every channel has no constant of its own.
    """
    node = search.graph.producer(name)
    rule = None if node is None else rule_of(node)
    if node is None or search.plan.nodes[name_of(node)].kind is not Kind.LOOKUP_TABLE:
        return False
    return rule is None or rule.scaling not in (ChannelScaling.ELEMENTS, ChannelScaling.POOLED)


def _is_float(graph: Graph, plan: QuantPlan, name: str) -> bool:
    """Whether an activation is made in float: a Mul then changes it before it is rounded."""
    producer = graph.producer(name)
    return producer is not None and plan.nodes[name_of(producer)].stays_float


def _reader(graph: Graph, profile: Profile, node: ir.Node) -> Reader:
    weight = np.asarray(graph.constant(name_of(node.inputs[1])), np.float64)
    energy, largest, taps = _per_channel(node, weight)
    output = output_name(node)
    power = signal_power(profile[output]) if output in profile and profile[output].count else 0.0
    return Reader(energy, largest, taps, power * largest.shape[0])


def _per_channel(node: ir.Node, weight: Floats) -> tuple[Floats, Floats, int]:
    """Return energy by input channel, largest magnitude (out, in), and weights between two channels."""
    blocks = weight_axes(node, weight.shape).blocks(weight)
    groups, outs, ins, taps = blocks.shape
    energy = np.square(blocks).sum((1, 3)).reshape(-1)
    largest = np.zeros((groups, outs, groups, ins))
    every = np.arange(groups)
    largest[every, :, every] = np.abs(blocks).max(3)
    return energy, largest.reshape(groups * outs, groups * ins), taps


def _best(search: _Search, name: str, readers: list[Reader]) -> tuple[Floats, float]:
    """Return the scales with the least expected noise, and what they gain in dB."""
    tensor, density, config = search.profile[name], search.densities.of(name), search.config
    schema, qtype = SCHEMAS[config.schema], TYPES[config.activation_type]
    channels = tensor.channels
    if channels is None or density is None:
        return np.ones(0), 0.0
    largest = np.maximum(np.abs(channels.minimum), np.abs(channels.maximum))
    weights = np.sqrt(sum((r.energy for r in readers), np.zeros_like(largest)))
    ones = np.ones_like(largest)
    limits = search.ranges.calibrated(tensor, config, qtype)
    before = _noise(limits, density, ones, _weight_noise(density, ones, readers, config), config)
    best, least = ones, before
    tried = {ones.tobytes()}
    for a, b in EXPONENTS:
        scales = powers_of_two(largest, weights, (a, b), LARGEST_RATIO)
        if scales.tobytes() in tried:  # rounded to powers of two, several are equal
            continue
        tried.add(scales.tobytes())
        weight_noise = _weight_noise(density, scales, readers, config)
        if sum(part.noise / part.signal for part in weight_noise) > least:
            continue  # the activation's noise, which takes longer to compute, can only add to that
        limits = calibrate(equalized(tensor, density, scales), config.calibrator, schema, qtype)
        noise = _noise(limits, density, scales, weight_noise, config)
        if noise < least:
            best, least = scales, noise
    return (ones, 0.0) if least <= 0.0 else (best, decibels(before, least))


def powers_of_two(largest: Floats, weights: Floats, exponents: tuple[float, float], most: float) -> Floats:
    """Return powers of two near largest^a / weights^b; that of the channel with the largest range is 1.

    Args:
        largest: magnitude of each channel.
        weights: magnitude of what each channel is multiplied with.
        exponents: a and b.
        most: largest ratio to 1.
    """
    a, b = exponents
    alive = (largest > 0.0) & (weights > 0.0)
    if not alive.any():
        return np.ones_like(largest)
    exponent = np.zeros_like(largest)
    exponent[alive] = a * np.log2(largest[alive]) - b * np.log2(weights[alive])
    width = np.where(alive, np.log2(np.where(alive, largest, 1.0)), -np.inf)
    exponent -= float(exponent[int(np.argmax(width))])
    exponent = np.clip(np.rint(exponent), -math.log2(most), math.log2(most))
    return np.asarray(np.ldexp(1.0, np.where(alive, exponent, 0.0).astype(int)), np.float64)


def _noise(
    limits: Range,
    density: ChannelDensity,
    scales: Floats,
    weight_noise: list[WeightNoise],
    config: QuantConfig,
) -> float:
    """Return the expected noise of the readers' outputs relative to their signal, summed.

    Args:
        limits: range of the equalized activation.
        density: of the channels before they are equalized.
        scales: one for each channel.
        weight_noise: what the rounding of the readers' weights adds.
        config: schemas and types.
    """
    params = choose_params(limits.low, limits.high, SCHEMAS[config.schema], TYPES[config.activation_type])
    errors = channel_mse(density, scales, params) * scales**2
    total = 0.0
    for part in weight_noise:
        total += (float(errors @ part.energy) + part.noise) / part.signal
    return total


@dataclass(frozen=True, eq=False)
class WeightNoise:
    """What the rounding of a reader's weights adds to its outputs.

    Attributes:
        noise: expected, summed over the outputs.
        energy, signal: see `Reader`; the signal is above 0.
    """

    noise: float
    energy: Floats
    signal: float


def _weight_noise(
    density: ChannelDensity, scales: Floats, readers: list[Reader], config: QuantConfig
) -> list[WeightNoise]:
    """Return the noise of the weights of each reader with a signal; see `_noise`."""
    half = 2.0 ** (TYPES[config.weight_type].bits - 1) - 1
    found = []
    for reader in readers:
        if reader.signal <= 0.0:
            continue
        step = (reader.largest * scales).max(1) / half
        if config.granularity == "per-tensor":
            step = np.full_like(step, step.max())
        noise = float((step**2 / 12.0) @ (reader.connected @ (density.power / scales**2))) * reader.taps
        found.append(WeightNoise(noise, reader.energy, reader.signal))
    return found
