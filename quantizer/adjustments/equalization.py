"""Equalization scales of what recurrent nodes read in float and quantize at run time. Pure.

Such a node has one scale for the whole of its input. Where the bins of a spectrum differ by decades, those of
low power would be lost, however much the node makes of them. What each choice of scales costs is not judged
by powers, as it is for products: gates saturate, so that an error in a step of high level costs less than its
power says. The node's cell is run instead (`Judge`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError, ProfileError
from ...profiles.instrumentation.subgraphs import graph_attributes
from ...profiles.records.channel_statistics import Channels, divided
from ...profiles.records.histogram import EqualBins
from ...profiles.records.profile import Profile, TensorProfile
from ..model.editing import add_initializer, free_name, replace_constant, value_names
from ..model.graph import check_scopes, constant_of, name_of
from ..noise.activation_ranges import RangeCache
from ..numerics.affine import TYPES
from ..numerics.calibrators import Range, calibrate
from ..numerics.density import ChannelDensities, ChannelDensity, channel_mse, equalized, signal_power
from ..numerics.quantization_noise import decibels
from ..numerics.schemas import SCHEMAS, choose_params, dynamic_params
from ..operators.graph import Graph, Node, Use, index
from ..operators.operands import channel_layout
from ..operators.table import ChannelScaling, product_layout, weight_axes
from ..operators.weight_layout import Array
from ..plan.plan import EqualizationScales, Kind, QuantPlan
from ..targets.config import QuantConfig
from .equalization_paths import EqualizationPath, absorbs_scales, find_path

# Equalization scales and corrected biases applied to a float model, which stays as it is ------------------


def equalized_name(name: str) -> str:
    """Return the name of an activation after equalization, and of the Mul that divides it, if there is one.

    A name keeps its meaning: the activation before equalization is another one.
    """
    return f"{name}_scaled"


def apply_equalization(
    model: ir.Model, scales: Mapping[str, EqualizationScales], where: str = "plan"
) -> ir.Model:
    """Return the prepared model with equalized channels; in float it computes the same.

    Args:
        model: the prepared model.
        scales: by activation; none give the model itself back.
        where: how to name the plan in messages.

    Raises:
        PlanError: they do not fit the model: an activation or a number of channels is another, or nothing
            can take them.
    """
    if not scales:
        return model
    work = model.clone()
    taken = Names(value_names(work), {node.name for node in work.graph.all_nodes() if node.name})
    graph = index(work)
    for name, entry in scales.items():
        _equalize(graph, name, entry, taken, f"{where}: adjustments: equalization of '{name}'")
        # A shared constant was copied, perhaps. A new index each time would make this quadratic.
        new = {n: value for n, value in work.graph.initializers.items() if n not in graph.values}
        if new:
            graph = replace(graph, values={**graph.values, **new})
    return check_scopes(work, f"{where}: adjustments: equalization")


def apply_biases(model: ir.Model, biases: Mapping[str, tuple[float, ...]], where: str = "plan") -> ir.Model:
    """Return the model with corrected biases. Entries of nodes that it does not have are left out.

    Raises:
        PlanError: a node has no constant bias, or another number of output channels.
    """
    if not biases:
        return model
    work = model.clone()
    taken = value_names(work)
    for node in list(work.graph):
        if node.name is not None and node.name in biases:
            place = f"{where}: adjustments: bias of '{node.name}'"
            _add_to_bias(node, np.asarray(biases[node.name], np.float32), taken, place)
    return check_scopes(work, f"{where}: adjustments: biases")


def inserted_nodes(model: ir.Model, adjusted: ir.Model) -> tuple[str, ...]:
    """Return the names of the nodes that adjustments have added, in graph order."""
    old = {node.name for node in model.graph.all_nodes()}
    return tuple(name_of(node) for node in adjusted.graph.all_nodes() if node.name not in old)


@dataclass(frozen=True)
class Names:
    """The names of the values and of the nodes of a model, which grow by those that are given to new ones."""

    values: set[str]
    nodes: set[str]


def _equalize(graph: Graph, name: str, entry: EqualizationScales, taken: Names, where: str) -> None:
    """Divide the channels of one activation, and multiply its readers' weights."""
    scales = _checked_scales(graph, name, entry, where)
    readers = [use for use in graph.consumers(name) if absorbs_scales(graph, use, entry.axis)]
    if not readers:
        raise PlanError(f"{where}: no reader has a constant weight that could take them; remove the entry")
    if not entry.inserted:
        path = find_path(graph, name, entry.axis, scales.size)
        if path is None or len(readers) != len(graph.consumers(name)):
            raise PlanError(
                f"{where}: its producer or readers cannot take all scales; set inserted, or remove it"
            )
        _divide_upstream(path, scales, taken.values, where)
        for equalized in (name, *(tensor.name for tensor in path.tensors)):
            graph.values[equalized].name = _free_name(equalized_name(equalized), taken.values, where)
    for node, _ in readers:
        layout = channel_layout(node)
        assert layout is not None
        weight = node.constant(layout.index)
        assert weight is not None
        along_inputs = weight_axes(node, weight.shape).along_inputs(scales)
        _multiply(node.ir_node, layout.index, along_inputs, taken.values, where)
    if entry.inserted:
        _insert_mul(graph.values[name], entry, [node.ir_node for node, _ in readers], taken, where)


def _checked_scales(graph: Graph, name: str, entry: EqualizationScales, where: str) -> Array:
    """Return the equalization scales of an activation, float32, after a check that there is one per channel.

    Raises:
        PlanError: the model has no such activation, or another number of channels.
    """
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


def _divide_upstream(path: EqualizationPath, scales: Array, taken: set[str], where: str) -> None:
    """Let the constants of a path take the scales."""
    for scalable in path.constants:
        with np.errstate(over="ignore"):  # `_multiply` refuses what comes of it
            vector = (1 / scales if scalable.divide else scales).reshape(scalable.shape)
        _multiply(scalable.node.ir_node, scalable.index, vector, taken, where)


def _insert_mul(
    source: ir.Value, entry: EqualizationScales, readers: list[ir.Node], taken: Names, where: str
) -> None:
    """Put a Mul by 1 / scales between an activation and some of its readers.

    It is in the graph of the activation, before the first node there that reads it or runs a reader, so that
    readers in this graph and in its subgraphs see it.
    """
    name, graph = name_of(source), source.graph
    assert isinstance(graph, ir.Graph)
    assert source.shape is not None
    inverse = 1 / np.asarray(entry.scales, np.float32)
    along = inverse.reshape(-1, *(1,) * (len(source.shape) - entry.axis - 1))
    vector = add_initializer(graph, free_name(f"{name}_factors", taken.values), along)
    nested = any(reader.graph is not graph for reader in readers)
    first = next(n for n in graph if n in readers or (nested and _runs_any(n, readers)))
    node = ir.Node("", "Mul", [source, vector], name=free_name(equalized_name(name), taken.nodes))
    result = node.outputs[0]
    result.name = _free_name(equalized_name(name), taken.values, where)
    result.type, result.shape = source.type, source.shape.copy()
    for reader in readers:
        reader.replace_input_with(0, result)
    graph.insert_before(first, node)


def _runs_any(node: ir.Node, readers: list[ir.Node]) -> bool:
    """Whether the graphs that a node holds have one of the readers."""
    return any(inner in readers for subgraph in graph_attributes(node) for inner in subgraph.all_nodes())


def _free_name(name: str, taken: set[str], where: str) -> str:
    """Return a name after entering it as taken.

    Raises:
        PlanError: something is called so already.
    """
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


def _add_to_bias(node: ir.Node, delta: Array, taken: set[str], where: str) -> None:
    """Add a vector to the bias of a product, which gets one when it has none and can have one."""
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


# The profile of a model after equalization, estimated -----------------------------------------------------

Floats = npt.NDArray[np.float64]


def equalized_profile(
    graph: Graph,
    profile: Profile,
    scales: Mapping[str, EqualizationScales],
    densities: ChannelDensities | None = None,
) -> Profile:
    """Return the profile of a model after `apply_equalization`, as far as it is known without data.

    Args:
        graph: the prepared model, before equalization.
        profile: its profile.
        scales: what was applied.
        densities: of the profile's channels, as far as they are known; None for nothing.

    Raises:
        ProfileError: the profile has no records of the channels of such an activation.
    """
    densities = densities or ChannelDensities(profile)
    replaced: dict[str, dict[str, TensorProfile]] = {}
    for name, entry in scales.items():
        divisors, density = np.asarray(entry.scales), densities.of(name)
        if density is None:
            raise ProfileError(f"tensor '{name}': the profile has no records of its channels; profile again")
        new = replace(equalized(profile[name], density, divisors), channels=_divided(profile[name], divisors))
        replaced[name] = {name: profile[name]} if entry.inserted else {}
        replaced[name][equalized_name(name)] = new
        if not entry.inserted:
            replaced |= _along_path(graph, profile, name, entry, new)
    tensors: dict[str, TensorProfile] = {}
    for name, tensor in profile.items():
        tensors |= replaced.get(name, {name: tensor})
    return replace(profile, tensors=tensors)


def _along_path(
    graph: Graph, profile: Profile, name: str, entry: EqualizationScales, new: TensorProfile
) -> dict[str, dict[str, TensorProfile]]:
    """Return what stands for the activations between the divided constants and an activation.

    Args:
        graph, profile: before equalization.
        name: the activation.
        entry: its equalization scales.
        new: its profile after equalization.
    """
    path = find_path(graph, name, entry.axis, len(entry.scales))
    assert path is not None
    scales = np.asarray(entry.scales)
    return {
        tensor.name: {
            equalized_name(tensor.name): new if tensor.keeps_range else _bounded(profile[tensor.name], scales)
        }
        for tensor in path.tensors
        if tensor.name in profile
    }


def _divided(tensor: TensorProfile, scales: Floats) -> Channels | None:
    """Return the statistics of the channels after they were divided."""
    channels = tensor.channels
    return None if channels is None else divided(channels, scales)


def _bounded(tensor: TensorProfile, scales: Floats) -> TensorProfile:
    """Return a profile whose range is wide enough whichever channel the ends were in."""
    least = float(scales.min())
    low, high = min(tensor.minimum, 0.0) / least, max(tensor.maximum, 0.0) / least
    histogram = EqualBins(low, high, np.array([float(tensor.count)]))
    return replace(tensor, minimum=low, maximum=high, histogram=histogram, channels=None, extremes=None)


# Cross-layer equalization: which activations have their channels equalized, and by which scales -----------


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
    densities: ChannelDensities,
    ranges: RangeCache,
) -> dict[str, EqualizationScales]:
    """Return the equalization scales of every activation that gains enough by them, in graph order.

    An activation has one scale; a channel that is much smaller than the largest keeps few quantized values.
    Dividing the channels by equalization scales that the weights of the readers take back moves the
    differences into the weights, where every output channel has a scale of its own (cross-layer equalization:
    Nagel et al. 2019, section 4.1; between an activation and a MatMul: SmoothQuant, Xiao et al. 2022,
    equation 4). Both are one mechanism here; they differ in what divides: constants upstream, for nothing, or
    a Mul that is inserted.

    The equalization scales of channel c are r_c^a / w_c^b for a small grid of exponents, with r_c the largest
    magnitude of the channel and w_c that of the weights that read it, rounded to powers of two. Those are
    taken whose expected noise at the readers' outputs is least, relative to their signal:

        activation:  sum over c of  e_c * s_c^2 * |W_c|^2,   e_c = min(step^2 / 12, E[x_c^2])
        weight:      sum over outputs o and inputs c of  step_o^2 / 12 * taps * E[x_c^2]

    where x_c are the divided channels. A channel smaller than half a step is lost, which costs no more than
    all of it: hence the minimum.

    Args:
        graph: the prepared model.
        profile: its profile; activations without records of their channels are left alone.
        config: what was asked for.
        plan: the plan of the model without adjustments: only what is quantized there is considered.
        densities: of the profile's channels; what is estimated is kept there.
        ranges: calibrated for `config`, those of the plan.
    """
    search = _Search(graph, profile, config, plan, densities, ranges)
    order = [*graph.inputs, *(name for node in graph.nodes for name in node.outputs if name)]
    by_name = {name: _scales_of(search, name) for name in order if name in profile and name in densities}
    return {name: scales for name, scales in by_name.items() if scales is not None}


def left_by_equalization(
    graph: Graph,
    profile: Profile,
    config: QuantConfig,
    plan: QuantPlan,
    *,
    densities: ChannelDensities,
    ranges: RangeCache,
) -> dict[str, float]:
    """Return what equalization leaves of the noise of rounding, over that without: by activation and weight.

    In float the equalized model computes the same, so that noise travels in it as it was measured before: an
    error in channel c of what was divided by s_c is one of s_c times as much before, and one in the weights
    that take the scales back one of 1 / s_c. Both are summed as `find_equalization_scales` does, whose
    arguments these are.
    """
    scales = find_equalization_scales(graph, profile, config, plan, densities=densities, ranges=ranges)
    search = _Search(graph, profile, config, plan, densities, ranges)
    left: dict[str, float] = {}
    for name, entry in scales.items():
        left |= _left(search, name, entry)
    return left


def _left(search: _Search, name: str, entry: EqualizationScales) -> Iterator[tuple[str, float]]:
    """Yield an activation and the weights that read it, each with the part of its noise that is left."""
    graph, tensor, density = search.graph, search.profile[name], search.densities.of(name)
    assert density is not None
    config, schema = search.config, SCHEMAS[search.config.schema]
    uses = [use for use in graph.consumers(name) if _rounds(use[0], search.plan)]
    taking = [use for use in uses if absorbs_scales(graph, use, entry.axis)]
    readers = {node.input(1): _reader(graph, search.profile, node) for node, _ in taking}
    scales = np.asarray(entry.scales)
    before, after = (
        [_weight_noise(density, each, [reader], config) for reader in readers.values()]
        for each in (np.ones_like(scales), scales)
    )
    for weight, old, new in zip(readers, before, after, strict=True):
        if old and old[0].noise > 0.0 and len(graph.consumers(weight)) == 1:
            yield weight, new[0].noise / old[0].noise
    if len(taking) < len(uses):
        return  # another node reads the activation as it was
    equal = calibrate(
        equalized(tensor, density, scales), config.calibrator, schema, TYPES[config.activation_type]
    )
    usual = search.ranges.calibrated(tensor, config, TYPES[config.activation_type])
    noise = [
        _noise(limits, density, each, [replace(part, noise=0.0) for parts in found for part in parts], config)
        for limits, each, found in ((usual, np.ones_like(scales), before), (equal, scales, after))
    ]
    if noise[0] > 0.0:
        path = None if entry.inserted else find_path(graph, name, entry.axis, scales.size)
        for each in () if path is None else path.tensors:
            if each.keeps_range:
                yield each.name, noise[1] / noise[0]
        yield name, noise[1] / noise[0]


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
    key = search.ranges.key(search.profile[name]), tuple(node.name for node in nodes)
    if key not in search.ranges.equalized:
        readers = [_reader(graph, search.profile, node) for node in nodes]
        search.ranges.equalized[key] = _best(search, name, readers)
    scales, gain = search.ranges.equalized[key]
    if gain < (FREE_GAIN_DB if free else INSERTED_GAIN_DB):
        return None
    return EqualizationScales(axis, tuple(scales.tolist()), not free)


def _rounds(node: Node, plan: QuantPlan) -> bool:
    """Whether a node computes on a quantized activation: a recurrent one with dynamic parameters, too."""
    kind = plan.nodes[node.name].kind
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
    rule = None if node is None else node.rule
    if node is None or search.plan.nodes[node.name].kind is not Kind.LOOKUP_TABLE:
        return False
    return rule is None or rule.scaling not in (ChannelScaling.ELEMENTS, ChannelScaling.POOLED)


def _is_float(graph: Graph, plan: QuantPlan, name: str) -> bool:
    """Whether an activation is made in float: a Mul then changes it before it is rounded."""
    producer = graph.producer(name)
    return producer is not None and plan.nodes[producer.name].stays_float


def _reader(graph: Graph, profile: Profile, node: Node) -> Reader:
    weight = np.asarray(node.constant(1), np.float64)
    energy, largest, taps = _per_channel(node, weight)
    output = node.output
    power = signal_power(profile[output]) if output in profile and profile[output].count else 0.0
    return Reader(energy, largest, taps, power * largest.shape[0])


def _per_channel(node: Node, weight: Floats) -> tuple[Floats, Floats, int]:
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


Judge = Callable[[Node, Floats, float], float]
"""Returns the SQNR (dB) that a recurrent node keeps at its output: of the node, the scales of its input's
channels, and the step to multiples of which the divided input is rounded."""

LARGEST_RECURRENT_RATIO = 2.0**24
"""Largest ratio of two scales. That of products, 2**12, leaves alone what has no share in their sums; the
weights of a recurrent node that was trained on standardized inputs can make up for any level."""


def find_recurrent_scales(
    graph: Graph, profile: Profile, nodes: Collection[Node], judge: Judge
) -> dict[str, EqualizationScales]:
    """Return the scales of every activation that gains enough by them, by name; a Mul is added for each.

    Args:
        graph: the prepared model.
        profile: its profile; activations without records of their channels are left alone.
        nodes: the recurrent nodes with dynamic parameters, whose input is float.
        judge: says what they make of scales.
    """
    found: dict[str, EqualizationScales] = {}
    for name in dict.fromkeys(node.input(0) for node in nodes):
        tensor, shape = profile.get(name), graph.shape(name)
        if tensor is None or tensor.channels is None or shape is None or tensor.count == 0:
            continue
        channels, axis = tensor.channels, tensor.channels.axis % len(shape)
        uses = [use for use in graph.consumers(name) if use[0] in nodes and absorbs_scales(graph, use, axis)]
        if not uses or shape[axis] != channels.minimum.size or equalized_name(name) in graph.values:
            continue
        scales = _best_of_recurrent_scales(graph, channels, uses, judge)
        if scales is not None:
            found[name] = EqualizationScales(axis, tuple(scales.tolist()), inserted=True)
    return found


def _best_of_recurrent_scales(
    graph: Graph, channels: Channels, uses: Collection[Use], judge: Judge
) -> Floats | None:
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
        weight = graph.constant(node.input(layout.index))
        assert weight is not None
        energy += np.square(weight, dtype=np.float64).sum(tuple(range(weight.ndim - 1)))
    for a, b in EXPONENTS:
        yield powers_of_two(channels.magnitude, np.sqrt(energy), (a, b), LARGEST_RECURRENT_RATIO)


def _lowest(channels: Channels, scales: Floats, uses: Collection[Use], judge: Judge) -> float:
    low, high = channels.minimum / scales, channels.maximum / scales
    step = dynamic_params(float(low.min()), float(high.max())).tensor_scale
    return round(min(judge(node, scales, step) for node, _ in uses), 2)  # no last bits decide
