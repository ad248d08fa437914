"""Scale migration: which activations get their channels evened out, and by which factors. Pure.

An activation has one scale; a channel that is much smaller than the largest keeps few codes. Dividing the
channels by factors that the weights of the readers take back moves the spread into the weights, where every
output channel has a scale of its own (cross-layer equalization: Nagel et al. 2019, section 4.1; between an
activation and a MatMul: SmoothQuant, Xiao et al. 2022, equation 4). Both are one mechanism here; they differ
in who divides: constants upstream, for nothing, or a Mul that is put in.

The factors of channel c are r_c^a / w_c^b for a small grid of exponents, with r_c the largest magnitude of
the channel and w_c that of the weights that read it, rounded to powers of two. The one is taken whose
expected noise at the readers' outputs is least, relative to their signal:

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

from ...profiles.records.profile import Profile, TensorProfile
from ..model.graph import Graph
from ..numerics.affine import TYPES
from ..numerics.channel_density import Spread, Spreads, channel_errors, divided
from ..numerics.density import signal_power
from ..numerics.schemas import SCHEMAS, choose_params
from ..operators.weight_layout import blocks
from ..plan.adjustments import EqualizationScales
from ..plan.plan import Kind, QuantPlan
from ..ranges.calibrators import calibrate
from ..targets.config import QuantConfig
from .apply import SCALED
from .paths import HOMOGENEOUS, SAME_RANGE, takes_factors, upstream

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

WIDEST = 2.0**12
"""Largest ratio of two factors: channels that are smaller still are as good as dead."""

FREE_GAIN_DB, INSERTED_GAIN_DB = 0.5, 2.0
"""Least expected gain at the readers for which factors are taken: for nothing, or at the price of a pass.

A Mul before QuantizeLinear takes onnxruntime 1.31 14 microseconds for 96 x 2 x 384 values; the 16 of MiniLM
take 1 % of its time. QuantizeLinear with a scale for each channel would do without, in 1,557 microseconds.
Gains are judged at the readers: at the outputs, `noise_flow` has it, only factors of MiniLM's later half
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


def find_factors(
    graph: Graph, profile: Profile, config: QuantConfig, plan: QuantPlan, spreads: Spreads | None = None
) -> dict[str, EqualizationScales]:
    """Return the factors of every activation that gains enough by them, in graph order.

    Args:
        graph: the prepared model.
        profile: its profile; activations without records of their channels are left alone.
        config: what was asked for.
        plan: the plan of the model without adjustments: only what is in integers there is considered.
        spreads: of the profile; what is reckoned is kept there.
    """
    found: dict[str, EqualizationScales] = {}
    spreads = spreads or Spreads(profile)
    order = [*graph.inputs, *(v.name for node in graph.nodes for v in node.outputs if v.name)]
    for name in order:
        factors = _factors(graph, profile, config, plan, name, spreads=spreads) if name in profile else None
        if factors is not None:
            found[name] = factors
    return found


def _factors(
    graph: Graph, profile: Profile, config: QuantConfig, plan: QuantPlan, name: str, *, spreads: Spreads
) -> EqualizationScales | None:
    channels, shape = profile[name].channels, graph.shape(name)
    if (
        channels is None
        or shape is None
        or name not in plan.tensors
        or not _may_be_renamed(graph, config, name)
    ):
        return None
    axis = channels.axis % len(shape)
    size = channels.minimum.size
    uses = [use for use in graph.consumers(name) if takes_factors(graph, use, axis)]
    nodes = [node for node, _ in uses if plan.nodes[node.name or ""].kind is Kind.QUANTIZED]
    if not nodes or shape[axis] != size:
        return None
    free = len(uses) == len(graph.consumers(name)) and _is_free(graph, plan, config, name, axis)
    if not free and (config.equalization == "free" or not _is_float(graph, plan, name)):
        return None
    readers = [_reader(graph, profile, node, size) for node in nodes]
    divisors, gain = _best(profile[name], spreads.of(name), readers, config)
    if gain < (FREE_GAIN_DB if free else INSERTED_GAIN_DB):
        return None
    return EqualizationScales(axis, tuple(divisors.tolist()), not free)


def _may_be_renamed(graph: Graph, config: QuantConfig, name: str) -> bool:
    """Whether no setting knows an activation by its name, and the name that it gets divided is free."""
    known = any(fnmatchcase(name, pattern) for pattern in config.keep_16bit)
    return not known and f"{name}{SCALED}" not in graph.values


def _is_free(graph: Graph, plan: QuantPlan, config: QuantConfig, name: str, axis: int) -> bool:
    """Whether constants can divide an activation, and what lies between is in no codes of unknown range."""
    size = (graph.shape(name) or ())[axis]
    path = None if size is None else upstream(graph, name, axis, size)
    if path is None or any(_is_in_a_table(graph, plan, n) for n in (name, *(n for n, _ in path.inner))):
        return False
    return all(
        (inner not in plan.tensors or reader in SAME_RANGE) and _may_be_renamed(graph, config, inner)
        for inner, reader in path.inner
    )


def _is_in_a_table(graph: Graph, plan: QuantPlan, name: str) -> bool:
    """Whether a constant beside the activation is a part of a table, which has one scale for all channels."""
    node = graph.producer(name)
    table = node is not None and plan.nodes[node.name or ""].kind is Kind.LOOKUP_TABLE
    return table and node is not None and node.op_type not in HOMOGENEOUS


def _is_float(graph: Graph, plan: QuantPlan, name: str) -> bool:
    """Whether an activation is made in float: a Mul then changes it before it is rounded."""
    producer = graph.producer(name)
    return producer is not None and plan.nodes[producer.name or ""].kind is Kind.FLOAT


def _reader(graph: Graph, profile: Profile, node: ir.Node, size: int) -> Reader:
    weight = np.asarray(graph.constant(node.inputs[1].name or ""), np.float64)  # type: ignore[union-attr]
    squares, largest, taps = _per_channel(node, weight, size)
    output = node.outputs[0].name or ""
    power = signal_power(profile[output]) if output in profile and profile[output].count else 0.0
    return Reader(squares, largest, taps, power * largest.shape[0])


def _per_channel(node: ir.Node, weight: Floats, size: int) -> tuple[Floats, Floats, int]:
    """Return energy by input channel, largest magnitude (out, in), and weights between two channels."""
    flat = blocks(node, weight, size)
    groups = flat.shape[0]
    outs = flat.shape[1]
    energy = np.square(flat).sum((1, 3)).reshape(-1)
    largest = np.zeros((groups, outs, groups, size // groups))
    every = np.arange(groups)
    largest[every, :, every] = np.abs(flat).max(3)
    return energy, largest.reshape(groups * outs, size), flat.shape[3]


def _best(
    tensor: TensorProfile, spread: Spread | None, readers: list[Reader], config: QuantConfig
) -> tuple[Floats, float]:
    """Return the divisors with the least expected noise, and what they gain in dB."""
    channels = tensor.channels
    if channels is None or spread is None:
        return np.ones(0), 0.0
    largest = np.maximum(np.abs(channels.minimum), np.abs(channels.maximum))
    weights = np.sqrt(sum((r.energy for r in readers), np.zeros_like(largest)))
    none = np.ones_like(largest)
    before = _noise(
        tensor, spread, none, readers, config, weight_noise=_weight_noise(spread, none, readers, config)
    )
    best, least = none, before
    tried = {none.tobytes()}
    for a, b in EXPONENTS:
        divisors = _divisors(largest, weights, a, b)
        if divisors.tobytes() in tried:  # rounded to powers of two, several come out equal
            continue
        tried.add(divisors.tobytes())
        weights_only = _weight_noise(spread, divisors, readers, config)
        if sum(n / r.signal for n, r in zip(weights_only, readers, strict=True) if r.signal > 0.0) > least:
            continue  # the activation's noise, which takes longer to compute, can only add to that
        changed = divided(tensor, spread, divisors)
        noise = _noise(changed, spread, divisors, readers, config, weight_noise=weights_only)
        if noise < least:
            best, least = divisors, noise
    if least <= 0.0:
        return none, 0.0
    return best, 10.0 * math.log10(before / least)


def _divisors(largest: Floats, weights: Floats, a: float, b: float) -> Floats:
    """Return powers of two near largest^a / weights^b, such that the widest channel keeps its width."""
    alive = (largest > 0.0) & (weights > 0.0)
    if not alive.any():
        return np.ones_like(largest)
    exponent = np.zeros_like(largest)
    exponent[alive] = a * np.log2(largest[alive]) - b * np.log2(weights[alive])
    width = np.where(alive, np.log2(np.where(alive, largest, 1.0)), -np.inf)
    exponent -= float(exponent[int(np.argmax(width))])
    exponent = np.clip(np.rint(exponent), -math.log2(WIDEST), math.log2(WIDEST))
    return np.asarray(np.ldexp(1.0, np.where(alive, exponent, 0.0).astype(int)), np.float64)


def _noise(
    tensor: TensorProfile,
    spread: Spread,
    divisors: Floats,
    readers: list[Reader],
    config: QuantConfig,
    *,
    weight_noise: list[float],
) -> float:
    """Return the expected noise of the readers' outputs relative to their signal, summed.

    Args:
        tensor: profile of the divided activation.
        spread: of the channels before they are divided.
        divisors: one for each channel.
        readers: what reads it.
        config: calibrator, schemas and types.
        weight_noise: see `_weight_noise`.
    """
    schema, qtype = SCHEMAS[config.schema], TYPES[config.activation_type]
    span = calibrate(tensor, config.calibrator, schema, qtype)
    params = choose_params(span.low, span.high, schema, qtype)
    errors = channel_errors(spread, divisors, params) * divisors**2
    total = 0.0
    for reader, of_weights in zip(readers, weight_noise, strict=True):
        if reader.signal > 0.0:
            total += (float(errors @ reader.energy) + of_weights) / reader.signal
    return total


def _weight_noise(
    spread: Spread, divisors: Floats, readers: list[Reader], config: QuantConfig
) -> list[float]:
    """Return the expected noise that the rounding of each reader's weights adds to its output, summed."""
    half = 2.0 ** (TYPES[config.weight_type].bits - 1) - 1
    found = []
    for reader in readers:
        largest = (reader.largest * divisors).max(1) / half
        if config.granularity == "per-tensor":
            largest = np.full_like(largest, largest.max())
        connected = reader.connected
        found.append(float((largest**2 / 12.0) @ (connected @ (spread.power / divisors**2))) * reader.taps)
    return found
