"""Which values of each activation its quantized values should cover. Pure; a step of planning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from ...profiles.base.once import computed_once
from ...profiles.base.tuned import tuned
from ...profiles.instrumentation.subgraphs import STANDARD_DOMAINS
from ...profiles.records.profile import Profile, TensorProfile
from ..numerics.affine import TYPES, QuantParams, QuantType, UnaryFunction
from ..numerics.calibrators import Range, calibrate, parse_calibrator
from ..numerics.density import Density, density
from ..numerics.quantization_noise import Noise, expected_noise
from ..numerics.schemas import SCHEMAS
from ..operators.functions import PointwiseChain, chain_nodes, function_of_chain
from ..operators.graph import Graph, Node
from ..operators.table import CHAIN_RULE, OPERAND_SCALING, Constraint, is_clip
from ..targets.config import QuantConfig
from ..targets.target import Recipe
from .mask_fillers import saturating_low

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]
"""Low and high, which may be infinite."""


@dataclass(eq=False)
class RangeCache:
    """The computed ranges and densities of tensors: kept from plan to plan.

    Keyed by a tensor's profile itself, by identity: if the float model is adjusted, a tensor whose values
    change gets another profile, and only that one is calibrated again.
    """

    # by identity; they must not vanish as long as their identity is a key
    profiles: dict[int, TensorProfile] = field(default_factory=dict)
    densities: dict[int, Density] = field(default_factory=dict)
    ranges: dict[tuple[int, str, FollowingFunction | None], Range] = field(default_factory=dict)
    # None where they cannot be computed, or are steep
    functions: dict[tuple[int, FollowingFunction], UnaryFunction | None] = field(default_factory=dict)
    # scales of channels and the dB that they gain, by profile and readers
    equalized: dict[tuple[int, tuple[str, ...]], tuple[Floats, float]] = field(default_factory=dict)

    def key(self, tensor: TensorProfile) -> int:
        """Return the key of a profile in the other tables."""
        return id(self.profiles.setdefault(id(tensor), tensor))

    def density(self, tensor: TensorProfile) -> Density:
        """Return how the values of a tensor are spread."""
        key = self.key(tensor)
        if key not in self.densities:
            self.densities[key] = density(tensor)
        return self.densities[key]

    def calibrated(
        self,
        tensor: TensorProfile,
        config: QuantConfig,
        qtype: QuantType,
        following: FollowingFunction | None = None,
    ) -> Range:
        """Return the range that a tensor should cover in a type, cached for one calibrator and schema."""
        key = (self.key(tensor), qtype.name, following)
        if key not in self.ranges:
            curve = None if following is None else self.functions[key[0], following]
            self.ranges[key] = calibrate(tensor, config.calibrator, SCHEMAS[config.schema], qtype, curve)
        return self.ranges[key]


class ActivationRanges:
    """The ranges of a model's activations, each computed when it is first asked for."""

    def __init__(
        self, graph: Graph, profile: Profile, recipe: Recipe, opset: int, cache: RangeCache | None = None
    ) -> None:
        """Take the facts that ranges follow from; `cache` has the ranges of earlier plans."""
        self.graph, self.profile, self.opset = graph, profile, opset
        self.names = tuple(n for n, tensor in profile.items() if tensor.dtype == "float" and tensor.count)
        self._recipe = recipe
        self._cache = RangeCache() if cache is None else cache
        self._observed = frozenset(self.names)
        self._aims_at_functions = parse_calibrator(recipe.config.calibrator)[0].uses_function

    def calibrated(self, name: str, qtype: QuantType | None = None) -> Range:
        """Return the range that one activation should cover in a type; None for the activation type."""
        config, producer = self._recipe.config, self.graph.producer(name)
        # The smallest and the largest value that the mathematics allows, where it bounds them.
        bounds = None if producer is None or producer.rule is None else producer.rule.bounds
        has_full_range = producer is not None and producer.op_type in self._recipe.target.full_range
        if has_full_range and bounds is not None and all(map(math.isfinite, bounds)):
            return Range(*bounds)
        qtype = qtype or TYPES[config.activation_type]
        following = self._following(name) if qtype == TYPES[config.activation_type] else None
        chosen = self._cache.calibrated(self.profile[name], config, qtype, following)
        low = saturating_low(self.graph, name, self.profile.tensors)
        chosen = chosen if low is None else Range(min(chosen.low, low), chosen.high)
        return clamp_range(chosen if bounds is None else clamp_range(chosen, bounds), self._distinct(name))

    def effective(self, name: str) -> Interval:
        """Return the interval outside which no reader distinguishes values, or the chosen range."""
        if name in self._observed and self._following(name) is not None:
            chosen = self.calibrated(name)
            return chosen.low, chosen.high
        return self._distinct(name)

    @computed_once
    def noise(self, name: str, params: QuantParams) -> Noise:
        """Return the expected noise of quantizing an activation, within its effective range."""
        tensor = self.profile[name]
        values = self._cache.density(tensor) if tensor.histogram.total else None
        return expected_noise(tensor, params, self.effective(name), values)

    @computed_once
    def _distinct(self, name: str) -> Interval:
        """Return `effective_range` of an activation, computed once."""
        return effective_range(self.graph, name)

    @computed_once
    def _following(self, name: str) -> FollowingFunction | None:
        """Return the function after an activation by whose error its range is chosen; None without one."""
        following = find_following(self.graph, name) if self._aims_at_functions else None
        if following is None:
            return None
        tensor, curves = self.profile[name], self._cache.functions
        key = (self._cache.key(tensor), following)
        if key not in curves:
            curves[key] = evaluated(following, tensor, self.opset)
        return None if curves[key] is None else following


def clamp_range(chosen: Range, limits: Interval) -> Range:
    """Return a range cut to an interval; 0 stays in it."""
    return Range(min(max(chosen.low, limits[0]), 0.0), max(min(chosen.high, limits[1]), 0.0))


def effective_range(graph: Graph, name: str) -> Interval:
    """Return the interval outside which no reader of a tensor distinguishes values, through passing nodes."""
    uses = graph.consumers(name)
    if not uses or graph.is_result(name):
        return -math.inf, math.inf
    low, high = math.inf, -math.inf
    for reader, index in uses:
        rule = reader.rule
        if rule is None or index != 0:
            return -math.inf, math.inf
        intervals = []
        if rule.effective_range is not None:
            intervals = [rule.effective_range(reader, graph)]
        elif rule.constraint is Constraint.SAME and not rule.refusal(reader, graph):
            if len(reader.results) < len(reader.outputs):
                # Beside values there are indices (TopK): it matters which of two values is the larger.
                return -math.inf, math.inf
            intervals = [effective_range(graph, output) for output in reader.results]
        if not intervals:
            return -math.inf, math.inf
        low, high = min(low, *(i[0] for i in intervals)), max(high, *(i[1] for i in intervals))
    return low, high


# Tensors that only a clip reads ---------------------------------------------------------------------------


def clip_outputs(graph: Graph) -> dict[str, str]:
    """Return the tensors that only one clip reads, each with the output of the clip.

    Values outside the clip need no quantized values, and the rest is the same in both, so the profile of the
    output serves for the input: the runtime may then fuse the clip with the operator before it.
    """
    outputs: dict[str, str] = {}
    for node in reversed(graph.nodes):
        if not is_clip(node):
            continue
        name, output = node.input(0), node.output
        maker = graph.producer(name) if name else None
        if not name or not output or maker is None or maker.ir_node.graph is not node.ir_node.graph:
            continue  # a subgraph runs another number of times than the graph around it
        if len(graph.consumers(name)) == 1 and not graph.is_result(name):
            outputs[name] = outputs.get(output, output)
    return outputs


def with_clip_profiles(profile: Profile, graph: Graph) -> Profile:
    """Return the profile with the clip's output in place of a tensor that only the clip reads.

    Then a profile of all tensors and one of the needed tensors lead to the same plan.
    """
    clipped = {name: profile[to] for name, to in clip_outputs(graph).items() if to in profile}
    return replace(profile, tensors={**profile.tensors, **clipped})


# What all readers of a tensor together compute of it ------------------------------------------------------


MAX_FUNCTION_NODES = 8
"""Most nodes of a function: a decomposed HardSwish has four, a tanh-GELU eight."""

MAX_SLOPE = tuned(
    1.5,
    figure="functions up to HardSwish, whose largest slope this is",
    chosen_on="by hand",
    holds=(1.2, 1.875),
)
"""Largest slope of a function that counts: readers of a steeper one, such as a logarithm, are not linear, and
squared error after it is not the right measure."""

SLOPE_POINTS = 1024
"""Points at which the slope is computed."""


@dataclass(frozen=True, eq=False)
class FollowingFunction:
    """The nodes that together compute a function of one activation; equal by names and constants."""

    chain: PointwiseChain

    @cached_property
    def _key(self) -> tuple[object, ...]:
        constants = (v.const_value for n in self.chain.nodes for v in n.inputs if v is not None)
        return (*(node.name for node in self.chain.nodes), *(None if c is None else id(c) for c in constants))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FollowingFunction) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def find_following(graph: Graph, name: str) -> FollowingFunction | None:
    """Return the nodes after a tensor that compute a function of it; None without such nodes, or for a single
    clip.

    A convolution is often followed by an activation that is flat on one side, so quantized values there are
    wasted: the error after the function decides the range (see `calibrators`). The function ends at the first
    tensor on all paths.
    """
    uses = graph.consumers(name)
    return None if len(uses) == 1 and is_clip(uses[0][0]) else find_following_or_clip(graph, name)


def find_following_or_clip(graph: Graph, name: str) -> FollowingFunction | None:
    """Return the nodes after a tensor that compute a function of it, also a clip, or None."""
    if not any(_bends(n) for n, _ in graph.consumers(name)):
        return None
    made, nodes = [name], list[Node]()
    for _ in range(MAX_FUNCTION_NODES + 1):
        readers = {t: [n for n, _ in graph.consumers(t) if n not in nodes] for t in made}
        open_ends = [t for t in made if graph.is_result(t) or readers[t]]
        if open_ends != [name] and len(open_ends) == 1 and any(map(_bends, nodes)):
            parts = (part for node in nodes for part in chain_nodes(node.ir_node))
            return FollowingFunction(PointwiseChain(tuple(parts), graph.values[name]))
        further = (n for t in open_ends for n in readers[t] if is_function_of(n, made, graph))
        node = next(further, None)
        if node is None:
            return None
        nodes.append(node)
        made.append(node.output)
    return None


def evaluated(following: FollowingFunction, tensor: TensorProfile, opset: int) -> UnaryFunction | None:
    """Return the function of nodes; None if it is steep or not finite from 0 to the ends of the range."""
    try:
        curve = function_of_chain(following.chain, opset)
    except PlanError:
        return None
    low, high = min(tensor.minimum, 0.0), max(tensor.maximum, 0.0)
    if not low < high:
        return None
    points = np.linspace(low, high, SLOPE_POINTS)
    with np.errstate(all="ignore"):
        values = curve(points)
    if not np.isfinite(values).all():
        return None
    steepest = float(np.abs(np.diff(values)).max()) / float(points[1] - points[0])
    return curve if steepest <= MAX_SLOPE * (1.0 + 1e-6) else None


def is_function_of(node: Node, made: Sequence[str], graph: Graph) -> bool:
    """Whether a node reads nothing but tensors of these, and numbers."""
    if node.facts is CHAIN_RULE:
        return node.input(0) in made
    if node.domain not in STANDARD_DOMAINS or len(node.outputs) != 1:
        return False
    names = [name for name in node.inputs if name]
    rule = node.rule
    if rule is not None and rule.scaling in OPERAND_SCALING:  # two terms or factors
        constants = [graph.constant(name) for name in names if name not in made]
        return all(c is not None and c.size == 1 and c.dtype.kind == "f" for c in constants)
    if not _bends(node) or names[0] not in made:
        return False
    constants = [graph.constant(name) for name in names[1:]]
    return all(constant is not None and constant.size == 1 for constant in constants)


def _bends(node: Node) -> bool:
    """Whether a node is a function of one variable that is not linear."""
    rule = node.rule
    return rule is not None and (rule.unary or is_clip(node))
