"""Which values of each activation its quantized values should cover. Pure; a step of planning."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ...profiles.records.profile import Profile, TensorProfile
from ..model.graph import Graph
from ..numerics.affine import TYPES, QuantParams, QuantType
from ..numerics.arrays import UnaryFunction
from ..numerics.density import Density, density
from ..numerics.quantization_noise import Noise, expected_noise
from ..numerics.schemas import SCHEMAS
from ..operators.operands import outputs_of
from ..operators.table import Constraint, rule_of
from ..targets.config import QuantConfig
from ..targets.target import Recipe
from .calibrators import Range, calibrate, parse_calibrator
from .following_function import FollowingFunction, evaluated, find_following

Interval = tuple[float, float]
"""Low and high, which may be infinite."""


@dataclass(eq=False)
class RangeCache:
    """What was computed of tensors: kept from plan to plan.

    Keyed by a tensor's profile itself, not by its name: where the float model is adjusted, a tensor whose
    values change gets another profile, and only that one is calibrated again.

    Attributes:
        profiles: by identity; they must not vanish as long as their identity is a key.
        densities: of the values of a profile.
        ranges: calibrated, by profile, type and what follows.
        functions: what follows, by profile and nodes, where it can be computed and is nowhere steep.
    """

    profiles: dict[int, TensorProfile] = field(default_factory=dict)
    densities: dict[int, Density] = field(default_factory=dict)
    ranges: dict[tuple[int, str, FollowingFunction | None], Range] = field(default_factory=dict)
    functions: dict[tuple[int, FollowingFunction], UnaryFunction | None] = field(default_factory=dict)

    def key(self, tensor: TensorProfile) -> int:
        """Return what stands for a profile in the other tables."""
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
        followed: FollowingFunction | None = None,
    ) -> Range:
        """Return the range that a tensor should cover in a type.

        Args:
            tensor: its profile.
            config: names calibrator and schema, the same in all calls.
            qtype: the type.
            followed: the function after it by whose error the range is chosen, one of `functions`.
        """
        key = (self.key(tensor), qtype.name, followed)
        if key not in self.ranges:
            curve = None if followed is None else self.functions[key[0], followed]
            self.ranges[key] = calibrate(tensor, config.calibrator, SCHEMAS[config.schema], qtype, curve)
        return self.ranges[key]


class ActivationRanges:
    """The ranges of a model's activations, each computed when it is first asked for: many are never
    quantized.

    Attributes:
        graph, profile: of the model.
        opset: version of the default operator domain.
        names: every float activation that was observed.
    """

    def __init__(
        self, graph: Graph, profile: Profile, recipe: Recipe, opset: int, cache: RangeCache | None = None
    ) -> None:
        """Take what ranges follow from.

        Args:
            graph, profile: of the model.
            recipe: names the calibrator, the schema, and what the runtime demands.
            opset: of the model.
            cache: what is known already.
        """
        self.graph, self.profile, self.opset = graph, profile, opset
        self.names = tuple(n for n, tensor in profile.items() if tensor.dtype == "float" and tensor.count)
        self._recipe = recipe
        self._cache = RangeCache() if cache is None else cache
        self._observed = frozenset(self.names)
        self._aims = parse_calibrator(recipe.config.calibrator)[0].for_function is not None
        self._following: dict[str, FollowingFunction | None] = {}
        self._effective: dict[str, Interval] = {}
        self._noise: dict[tuple[str, QuantParams], Noise] = {}

    def calibrated(self, name: str, qtype: QuantType | None = None) -> Range:
        """Return the range that one activation should cover in a type; None for the activation type."""
        config, bounds = self._recipe.config, self._bounds(name)
        producer = self.graph.producer(name)
        full = producer is not None and producer.op_type in self._recipe.target.full_range
        if full and bounds is not None and math.isfinite(bounds[0]) and math.isfinite(bounds[1]):
            return Range(*bounds)
        qtype = qtype or TYPES[config.activation_type]
        followed = self._followed(name) if qtype == TYPES[config.activation_type] else None
        chosen = self._cache.calibrated(self.profile[name], config, qtype, followed)
        return clamp_range(chosen if bounds is None else clamp_range(chosen, bounds), self._changes(name))

    def effective(self, name: str) -> Interval:
        """Return the interval of an activation outside which no reader tells one value from another.

        Of one whose range was chosen by the error after the following function that is the range: what is cut
        off was weighed there.
        """
        if name in self._observed and self._followed(name) is not None:
            chosen = self.calibrated(name)
            return chosen.low, chosen.high
        return self._changes(name)

    def noise(self, name: str, params: QuantParams) -> Noise:
        """Return the expected noise of quantizing an activation, within its effective range."""
        if (name, params) not in self._noise:
            tensor = self.profile[name]
            seen = self._cache.density(tensor) if tensor.histogram.total else None
            self._noise[name, params] = expected_noise(tensor, params, self.effective(name), seen)
        return self._noise[name, params]

    def _bounds(self, name: str) -> Interval | None:
        """Return the smallest and the largest value that the mathematics allows, where it bounds them."""
        producer = self.graph.producer(name)
        rule = None if producer is None else rule_of(producer)
        return None if rule is None else rule.bounds

    def _changes(self, name: str) -> Interval:
        if name not in self._effective:
            self._effective[name] = effective_range(self.graph, name)
        return self._effective[name]

    def _followed(self, name: str) -> FollowingFunction | None:
        """Return the function after an activation by whose error its range is chosen; None without one."""
        if name not in self._following:
            self._following[name] = self._found(name) if self._aims else None
        return self._following[name]

    def _found(self, name: str) -> FollowingFunction | None:
        followed = find_following(self.graph, name)
        if followed is None:
            return None
        key = (self._cache.key(self.profile[name]), followed)
        if key not in self._cache.functions:
            self._cache.functions[key] = evaluated(followed, self.profile[name], self.opset)
        return None if self._cache.functions[key] is None else followed


def clamp_range(chosen: Range, limits: Interval) -> Range:
    """Return a range cut to an interval; 0 stays in it."""
    return Range(min(max(chosen.low, limits[0]), 0.0), max(min(chosen.high, limits[1]), 0.0))


def effective_range(graph: Graph, name: str) -> Interval:
    """Return the interval outside which no reader of a tensor tells one value from another.

    What is only passed through is looked at where it arrives.
    """
    uses = graph.consumers(name)
    if not uses or graph.is_result(name):
        return -math.inf, math.inf
    low, high = math.inf, -math.inf
    for reader, index in uses:
        rule = rule_of(reader)
        if rule is None or index != 0:
            return -math.inf, math.inf
        intervals = []
        if rule.effective_range is not None:
            intervals = [rule.effective_range(reader, graph)]
        elif rule.constraint is Constraint.SAME and not rule.refusal(reader, graph):
            if len(outputs_of(reader)) < len(reader.outputs):
                # Beside values there are indices (TopK): it matters which of two values is the larger.
                return -math.inf, math.inf
            intervals = [effective_range(graph, output) for output in outputs_of(reader)]
        if not intervals:
            return -math.inf, math.inf
        low, high = min(low, *(i[0] for i in intervals)), max(high, *(i[1] for i in intervals))
    return low, high
