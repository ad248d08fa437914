"""Cross-layer equalization and SmoothQuant: channels divided by scales that the readers' weights take back.

In order: the activations of products whose channels are equalized, and their scales; a copy of the float
model with these scales; and its profile. `equalization_paths` finds the places for scales. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError, ProfileError
from ...profiles.base.tuned import tuned
from ...profiles.instrumentation.subgraphs import graph_attributes, value_names
from ...profiles.records.channel_statistics import divided
from ...profiles.records.histogram import EqualBins
from ...profiles.records.profile import Profile, TensorProfile
from ..model.editing import add_initializer, free_name, replace_constant
from ..model.graph import constant_of, name_of
from ..noise.activation_ranges import RangeCache
from ..numerics.affine import TYPES
from ..numerics.calibrators import Range, calibrate
from ..numerics.density import ChannelDensities, ChannelDensity, channel_mse, equalized, signal_power
from ..numerics.quantization_noise import decibels
from ..numerics.schemas import SCHEMAS, choose_params
from ..operators.graph import Graph, Node, index
from ..operators.table import ChannelScaling, channel_layout, product_layout, weight_axes
from ..operators.weight_layout import Array
from ..plan.plan import EqualizationScales, Kind, QuantPlan
from ..targets.config import QuantConfig
from .equalization_paths import absorbs_scales, find_path

Floats = npt.NDArray[np.float64]

# Which activations of products have their channels equalized, and by which scales ------------------------

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

MAX_SCALE_RATIO = 2.0**12
"""Largest ratio of two scales: channels that are smaller still have no share in the result."""

FREE_GAIN_DB = tuned(0.5, figure="none", chosen_on="by hand", holds=(0.4, 0.5))
"""Least expected gain at the readers for scales that constants can absorb."""

INSERTED_GAIN_DB = tuned(
    2.0,
    figure=(
        "a Mul before QuantizeLinear takes 14 us for 96 x 2 x 384 values, 16 of them 1 % of the time "
        "(DECISIONS.md, 10)"
    ),
    chosen_on="a sentence encoder",
    holds=(1.6, 2.5),
)
"""Least expected gain at the readers for which a Mul is added.

QuantizeLinear with a scale for each channel would replace it, in 1,557 microseconds. Gains are estimated at
the readers. Estimates at the outputs by `noise_flow` favour an encoder's later half, but measurements show a
larger gain in the earlier half (1.7 dB against 0.6).
"""


@dataclass(frozen=True)
class Reader:
    """A product that reads the activation."""

    energy: Floats  # of the weights that read each channel, summed squares
    largest: Array  # magnitude between two channels, (out, in); 0 where there is no weight
    taps: int  # weights between two channels
    signal: float  # mean square of the output's elements times the output's channels
    noises: dict[bytes, float] = field(default_factory=dict)

    def reaching(self, powers: Floats) -> Floats:
        """Return the sum of the powers of input channels with a weight to each output channel."""
        return np.asarray(powers.sum() if self._connected is None else self._connected @ powers)

    @cached_property
    def _connected(self) -> Floats | None:
        return None if self.largest.all() else (self.largest > 0.0).astype(np.float64)


@dataclass(frozen=True)
class EqualizationSearch:
    """The search for the equalization scales of every activation that gains enough by them.

    They are r_c^a / w_c^b for channel c, rounded to powers of two, r_c being the largest magnitude of the
    channel and w_c that of the weights that read it. The least expected noise at the readers' outputs, over
    their signal, chooses the exponents (cross-layer equalization: Nagel et al. 2019, section 4.1;
    SmoothQuant: Xiao et al. 2022, equation 4):

        activation:  sum over c of  e_c * s_c^2 * |W_c|^2,   e_c = min(step^2 / 12, E[x_c^2])
        weight:      sum over outputs o and inputs c of  step_o^2 / 12 * taps * E[x_c^2]

    x_c are the divided channels. One smaller than half a step is lost, and costs all of it at most: the
    minimum.
    """

    graph: Graph
    profile: Profile
    config: QuantConfig
    plan: QuantPlan
    densities: ChannelDensities
    ranges: RangeCache
    _readers: dict[str, Reader] = field(default_factory=dict)

    def scales(self) -> Iterator[tuple[str, EqualizationScales]]:
        """Yield the activations that gain enough, in graph order, with their scales."""
        order = [*self.graph.inputs, *(name for node in self.graph.nodes for name in node.outputs if name)]
        for name in dict.fromkeys(order):
            entry = self.scales_of(name) if name in self.profile and name in self.densities else None
            if entry is not None:
                yield name, entry
            self._readers.clear()  # of the next activation they are others

    def all_noise_left(self) -> dict[str, float]:
        """Return the noise of rounding with equalization over that without, by activation and weight.

        Noise travels as measured before: an error in a channel divided by s_c is s_c times as large there,
        one in the weights that take the scales back 1 / s_c times.
        """
        left: dict[str, float] = {}
        for name, entry in self.scales():
            left |= self.noise_left(name, entry)
        return left

    def scales_of(self, name: str) -> EqualizationScales | None:
        """Return the scales of an activation; None if no scales help enough."""
        channels, shape = self.profile[name].channels, self.graph.shape(name)
        if (
            channels is None
            or shape is None
            or name not in self.plan.tensors
            or not self._may_be_renamed(name)
        ):
            return None
        axis, size = channels.axis % len(shape), channels.minimum.size
        readers = self.graph.consumers(name)
        uses = [use for use in readers if absorbs_scales(self.graph, use, axis)]
        nodes = [node for node, _ in uses if self._rounds(node)]
        if not nodes or shape[axis] != size:
            return None
        is_free = len(uses) == len(readers) and self._is_free(name, axis, size)
        if not is_free:  # a Mul is inserted, which changes an activation that is made in float
            producer = self.graph.producer(name)
            is_float = producer is not None and self.plan.nodes[producer.name].stays_float
            if self.config.equalization == "free" or not is_float:
                return None
        key = self.ranges.key(self.profile[name]), tuple(node.name for node in nodes)
        if key not in self.ranges.equalized:
            self.ranges.equalized[key] = self._best_scales(name, [self._reader(node) for node in nodes])
        scales, gain = self.ranges.equalized[key]
        if gain < (FREE_GAIN_DB if is_free else INSERTED_GAIN_DB):
            return None
        return EqualizationScales(axis, tuple(scales.tolist()), not is_free)

    def _rounds(self, node: Node) -> bool:
        """Whether a node computes on integers of an activation; float types of few bits have fine steps
        anyway."""
        kind = self.plan.nodes[node.name].kind
        if self.plan.float_type_of(node.name, node.inputs):
            return False
        return kind is Kind.QUANTIZED or (kind is Kind.DYNAMIC and product_layout(node) is None)

    def _may_be_renamed(self, name: str) -> bool:
        """Whether the name that an activation gets is free."""
        return equalized_name(name) not in self.graph.values

    def _is_free(self, name: str, axis: int, size: int) -> bool:
        """Whether constants can divide an activation, and the ranges of all tensors between are known."""
        path = find_path(self.graph, name, axis, size)
        if path is None:
            return False
        for each in (name, *(between for between, _ in path.tensors)):
            # A look-up table with a constant has one scale for all channels; a function that is homogeneous
            # in every channel has no constant of its own.
            maker = self.graph.producer(each)
            if maker is not None and self.plan.nodes[maker.name].kind is Kind.LOOKUP_TABLE:
                homogeneous = (ChannelScaling.ELEMENTS, ChannelScaling.POOLED)
                if maker.rule is None or maker.rule.scaling not in homogeneous:
                    return False
        return all(
            (between not in self.plan.tensors or keeps_range) and self._may_be_renamed(between)
            for between, keeps_range in path.tensors
        )

    def _reader(self, node: Node) -> Reader:
        if node.name not in self._readers:
            self._readers[node.name] = self._new_reader(node)
        return self._readers[node.name]

    def _new_reader(self, node: Node) -> Reader:
        weight = node.constant(1)
        assert weight is not None
        blocks = weight_axes(node, weight.shape).blocks(weight)
        groups, outs, ins, taps = blocks.shape
        energy = np.square(blocks, dtype=np.float64).sum((1, 3)).reshape(-1)
        largest = np.zeros((groups, outs, groups, ins), weight.dtype)
        every = np.arange(groups)
        largest[every, :, every] = np.abs(blocks).max(3)
        output = self.profile.get(node.output)
        power = signal_power(output) if output is not None and output.count else 0.0
        channels = groups * outs
        return Reader(energy, largest.reshape(channels, groups * ins), taps, power * channels)

    def _best_scales(self, name: str, readers: list[Reader]) -> tuple[Floats, float]:
        """Return the scales with the least expected noise, and their gain in dB."""
        tensor, density, config = self.profile[name], self.densities.of(name), self.config
        schema, qtype = SCHEMAS[config.schema], TYPES[config.activation_type]
        channels = tensor.channels
        if channels is None or density is None:
            return np.ones(0), 0.0
        largest = np.maximum(np.abs(channels.minimum), np.abs(channels.maximum))
        weights = np.sqrt(sum((r.energy for r in readers), np.zeros_like(largest)))
        readers = [reader for reader in readers if reader.signal > 0.0]
        ones = np.ones_like(largest)
        limits = self.ranges.calibrated(tensor, config, qtype)
        weight_noise = [(reader, _weight_noise(density, ones, reader, config)) for reader in readers]
        before = _output_noise(limits, density, ones, weight_noise, config)
        best, least = ones, before
        tried = {ones.tobytes()}
        for exponents in EXPONENTS:
            scales = powers_of_two(largest, weights, exponents, MAX_SCALE_RATIO)
            if scales.tobytes() in tried:  # rounded to powers of two, several are equal
                continue
            tried.add(scales.tobytes())
            weight_noise = [(reader, _weight_noise(density, scales, reader, config)) for reader in readers]
            if sum(noise / reader.signal for reader, noise in weight_noise) > least:
                continue  # the activation's noise, which takes longer to compute, can only add to that
            limits = calibrate(equalized(tensor, density, scales), config.calibrator, schema, qtype)
            noise = _output_noise(limits, density, scales, weight_noise, config)
            if noise < least:
                best, least = scales, noise
        return (ones, 0.0) if least <= 0.0 else (best, decibels(before, least))

    def noise_left(self, name: str, entry: EqualizationScales) -> dict[str, float]:
        """Return the part of the noise that is left of an activation and of the weights that read it."""
        graph, config, density = self.graph, self.config, self.densities.of(name)
        assert density is not None
        left: dict[str, float] = {}
        uses = [use for use in graph.consumers(name) if self._rounds(use[0])]
        taking = [node for node, position in uses if absorbs_scales(graph, (node, position), entry.axis)]
        by_weight = {node.input(1): self._reader(node) for node in taking}
        scales = np.asarray(entry.scales)
        ones = np.ones_like(scales)
        for weight, reader in by_weight.items():
            if reader.signal > 0.0 and len(graph.consumers(weight)) == 1:
                before, after = (_weight_noise(density, each, reader, config) for each in (ones, scales))
                if before > 0.0:
                    left[weight] = after / before
        if len(taking) < len(uses):
            return left  # another node reads the activation as it was
        schema, qtype = SCHEMAS[config.schema], TYPES[config.activation_type]
        tensor = self.profile[name]
        exact_weights = [(reader, 0.0) for reader in by_weight.values() if reader.signal > 0.0]
        usual = self.ranges.calibrated(tensor, config, qtype)
        before = _output_noise(usual, density, ones, exact_weights, config)
        narrowed = calibrate(equalized(tensor, density, scales), config.calibrator, schema, qtype)
        after = _output_noise(narrowed, density, scales, exact_weights, config)
        if before > 0.0:
            path = None if entry.inserted else find_path(graph, name, entry.axis, scales.size)
            for between, keeps_range in () if path is None else path.tensors:
                if keeps_range:
                    left[between] = after / before
            left[name] = after / before
        return left


def _weight_noise(density: ChannelDensity, scales: Floats, reader: Reader, config: QuantConfig) -> float:
    """Return the noise that a reader's rounded weights add to its outputs, expected and summed over these."""
    key = scales.tobytes()
    if key not in reader.noises:
        reader.noises[key] = _new_weight_noise(density, scales, reader, config)
    return reader.noises[key]


def _new_weight_noise(density: ChannelDensity, scales: Floats, reader: Reader, config: QuantConfig) -> float:
    with np.errstate(over="ignore"):  # else powers of two change no digit of a weight, of whatever type
        widest = (reader.largest * scales.astype(reader.largest.dtype)).max(1).astype(np.float64)
    step = widest / (2.0 ** (TYPES[config.weight_type].bits - 1) - 1)
    if config.granularity == "per-tensor":
        step = np.full_like(step, step.max())
    return float((step**2 / 12.0 * reader.reaching(density.power / scales**2)).sum()) * reader.taps


def _output_noise(
    limits: Range,
    density: ChannelDensity,
    scales: Floats,
    weight_noise: list[tuple[Reader, float]],
    config: QuantConfig,
) -> float:
    """Return the expected noise of the readers' outputs relative to their signal, summed."""
    params = choose_params(limits.low, limits.high, SCHEMAS[config.schema], TYPES[config.activation_type])
    errors = channel_mse(density, scales, params) * scales**2
    total = 0.0
    for reader, noise in weight_noise:
        total += (float(errors @ reader.energy) + noise) / reader.signal
    return total


def powers_of_two(largest: Floats, weights: Floats, exponents: tuple[float, float], most: float) -> Floats:
    """Return powers of two near largest^a / weights^b; that of the channel with the largest range is 1."""
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


# Scales applied to a float model, which stays as it is ----------------------------------------------------


def equalized_name(name: str) -> str:
    """Return the name of an equalized activation, and of the Mul that divides it, if there is one."""
    return f"{name}_scaled"


def apply_equalization(
    model: ir.Model, scales: Mapping[str, EqualizationScales], where: str = "plan"
) -> ir.Model:
    """Return the prepared model with equalized channels, or itself without scales; in float it is equal."""
    if not scales:
        return model
    work = model.clone()
    taken = value_names(work)
    node_names = {node.name for node in work.graph.all_nodes() if node.name}
    graph = index(work)
    for name, entry in scales.items():
        place = f"{where}: adjustments: equalization of '{name}'"
        _equalize(graph, name, entry, taken, node_names=node_names, where=place)
        # A shared constant was copied, perhaps. A new index each time would make this quadratic.
        new = {n: value for n, value in work.graph.initializers.items() if n not in graph.values}
        if new:
            graph = replace(graph, values={**graph.values, **new})
    return work


def inserted_nodes(model: ir.Model, adjusted: ir.Model) -> tuple[str, ...]:
    """Return the names of the nodes that adjustments have added, in graph order."""
    old = {node.name for node in model.graph.all_nodes()}
    return tuple(name_of(node) for node in adjusted.graph.all_nodes() if node.name not in old)


def _equalize(
    graph: Graph, name: str, entry: EqualizationScales, taken: set[str], *, node_names: set[str], where: str
) -> None:
    """Divide the channels of one activation, and multiply its readers' weights; new names become taken."""
    scales = _checked_scales(graph, name, entry, where)
    readers = [node for node, at in graph.consumers(name) if absorbs_scales(graph, (node, at), entry.axis)]
    if not readers:
        raise PlanError(f"{where}: no reader has a constant weight that could take them; remove the entry")
    if not entry.inserted:
        path = find_path(graph, name, entry.axis, scales.size)
        if path is None or len(readers) != len(graph.consumers(name)):
            raise PlanError(
                f"{where}: its producer or readers cannot take all scales; set inserted, or remove it"
            )
        for constant in path.constants:
            with np.errstate(over="ignore"):  # `_multiply` refuses what comes of it
                vector = (1 / scales if constant.divide else scales).reshape(constant.shape)
            _multiply(constant.node.ir_node, constant.index, vector, taken, where)
        for divided_name in (name, *(between for between, _ in path.tensors)):
            graph.values[divided_name].name = _claim_name(equalized_name(divided_name), taken, where)
    for node in readers:
        layout = channel_layout(node)
        assert layout is not None
        weight = node.constant(layout.index)
        assert weight is not None
        along_inputs = weight_axes(node, weight.shape).along_inputs(scales)
        _multiply(node.ir_node, layout.index, along_inputs, taken, where)
    if entry.inserted:
        readers_of_mul = [node.ir_node for node in readers]
        node_name = free_name(equalized_name(name), node_names)
        _insert_mul(graph.values[name], entry, readers_of_mul, taken, node_name=node_name, where=where)


def _checked_scales(graph: Graph, name: str, entry: EqualizationScales, where: str) -> Array:
    """Return the float32 scales of an activation; raise PlanError unless there is one for each channel."""
    if name not in graph.values:
        raise PlanError(f"{where}: the model has no such activation; correct the name")
    shape = graph.shape(name)
    scales = np.asarray(entry.scales, np.float32)
    if shape is None or not 0 <= entry.axis < len(shape) or shape[entry.axis] != scales.size:
        raise PlanError(
            f"{where}: {scales.size} divisors along axis {entry.axis} do not fit its shape "
            f"{None if shape is None else list(shape)}; give one for each channel"
        )
    return scales


def _insert_mul(
    source: ir.Value,
    entry: EqualizationScales,
    readers: list[ir.Node],
    taken: set[str],
    *,
    node_name: str,
    where: str,
) -> None:
    """Put a Mul by 1 / scales before the first of some readers of an activation, in its graph."""
    name, graph = name_of(source), source.graph
    assert isinstance(graph, ir.Graph)
    assert source.shape is not None
    inverse = 1 / np.asarray(entry.scales, np.float32)
    along = inverse.reshape(-1, *(1,) * (len(source.shape) - entry.axis - 1))
    vector = add_initializer(graph, free_name(f"{name}_factors", taken), along)

    def runs_reader(node: ir.Node) -> bool:
        return any(inner in readers for body in graph_attributes(node) for inner in body.all_nodes())

    nested = any(reader.graph is not graph for reader in readers)
    first = next(n for n in graph if n in readers or (nested and runs_reader(n)))
    node = ir.Node("", "Mul", [source, vector], name=node_name)
    result = node.outputs[0]
    result.name = _claim_name(equalized_name(name), taken, where)
    result.type, result.shape = source.type, source.shape.copy()
    for reader in readers:
        reader.replace_input_with(0, result)
    graph.insert_before(first, node)


def _claim_name(name: str, taken: set[str], where: str) -> str:
    """Return a name after marking it as taken; PlanError if it was already taken."""
    if name in taken:
        raise PlanError(f"{where}: something else is called '{name}'; remove the entry")
    taken.add(name)
    return name


def _multiply(node: ir.Node, position: int, scales: Array, taken: set[str], where: str) -> None:
    """Multiply a constant input of a node by an array; a constant that others read is copied first."""
    value, old = node.inputs[position], constant_of(node.inputs[position])
    assert value is not None
    assert old is not None
    with np.errstate(over="ignore"):
        new = np.asarray(old * scales, old.dtype)
    if not np.all(np.isfinite(new)):
        raise PlanError(f"{where}: a constant of '{node.name}' overflows; give divisors nearer to 1")
    if len(value.uses()) == 1 and not value.is_graph_output():
        # The value stays, so that the index of the graph still knows it.
        value.const_value, value.shape = ir.Tensor(new, name=value.name), ir.Shape(new.shape)
    else:
        replace_constant(node, position, new, taken)


# The profile of a model after equalization, estimated -----------------------------------------------------


def equalized_profile(
    graph: Graph,
    profile: Profile,
    scales: Mapping[str, EqualizationScales],
    densities: ChannelDensities | None = None,
) -> Profile:
    """Return the profile of a model after `apply_equalization`, as far as it follows without data."""
    densities = densities or ChannelDensities(profile)
    replaced: dict[str, dict[str, TensorProfile]] = {}  # by name, what stands in its place
    for name, entry in scales.items():
        tensor, divisors, density = profile[name], np.asarray(entry.scales), densities.of(name)
        if density is None:
            raise ProfileError(f"tensor '{name}': the profile has no records of its channels; profile again")
        channels = None if tensor.channels is None else divided(tensor.channels, divisors)
        new = replace(equalized(tensor, density, divisors), channels=channels)
        if entry.inserted:
            replaced[name] = {name: tensor, equalized_name(name): new}
            continue
        replaced[name] = {equalized_name(name): new}
        path = find_path(graph, name, entry.axis, divisors.size)
        assert path is not None
        for between, keeps_range in path.tensors:
            if between in profile:
                before = profile[between]
                after = replace(new, shape=before.shape) if keeps_range else _bounded(before, divisors)
                replaced[between] = {equalized_name(between): after}
    tensors: dict[str, TensorProfile] = {}
    for name, tensor in profile.items():
        tensors |= replaced.get(name, {name: tensor})
    return replace(profile, tensors=tensors)


def _bounded(tensor: TensorProfile, scales: Floats) -> TensorProfile:
    """Return a profile whose range is wide enough whichever channel the ends were in."""
    least = float(scales.min())
    low, high = min(tensor.minimum, 0.0) / least, max(tensor.maximum, 0.0) / least
    histogram = EqualBins(low, high, np.array([float(tensor.count)]))
    return replace(tensor, minimum=low, maximum=high, histogram=histogram, channels=None)
