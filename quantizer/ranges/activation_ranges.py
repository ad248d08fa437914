"""Which values of each activation its codes should cover. Pure; a step of planning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ...profiles.records.profile import Profile
from ..model.graph import Graph
from ..numerics.affine import TYPES, QuantType
from ..numerics.arrays import Curve
from ..numerics.schemas import SCHEMAS
from ..operators.operands import outputs_of
from ..operators.table import Constraint, rule_of
from ..targets.config import with_limit
from ..targets.target import Recipe
from .calibrators import Range, calibrate
from .following_function import curve_behind


class _Ranges(Mapping[str, Range]):
    """Ranges by name, each calibrated when it is first asked for: many activations never are in codes."""

    def __init__(self, names: Iterable[str], calibrated: Callable[[str], Range]) -> None:
        self._names = dict.fromkeys(names)
        self._calibrated = calibrated
        self._known: dict[str, Range] = {}

    def __getitem__(self, name: str) -> Range:
        if name not in self._known:
            if name not in self._names:
                raise KeyError(name)
            self._known[name] = self._calibrated(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Spans:
    """Which values of activations count.

    Attributes:
        ranges: calibrated range of every float activation that was seen.
        useful: see `noise_budget.UsefulRange`.
    """

    ranges: Mapping[str, Range]
    useful: UsefulRange


def find_spans(graph: Graph, profile: Profile, recipe: Recipe, opset: int) -> Spans:
    """Return the spans of a model's activations.

    Args:
        graph, profile: of the prepared model.
        recipe: names the calibrator, the schema, and what the runtime demands.
        opset: of the model.
    """
    config = with_limit(recipe.config)
    qtype = TYPES[config.activation_type]
    seen = [name for name, tensor in profile.items() if tensor.dtype == "float" and tensor.count]

    @cache
    def behind(name: str) -> Curve | None:
        return curve_behind(graph, name, profile[name], opset) if config.calibrator == "mse" else None

    def calibrated(name: str) -> Range:
        return range_of(name, qtype, graph, profile, recipe, curve=behind(name))

    ranges = _Ranges(seen, calibrated)

    def useful(name: str) -> tuple[float, float]:
        if name in ranges and behind(name) is not None:  # what is cut was weighed when the range was chosen
            return ranges[name].low, ranges[name].high
        return useful_range(graph, name)

    return Spans(ranges, useful)


def range_of(
    name: str,
    qtype: QuantType,
    graph: Graph,
    profile: Profile,
    recipe: Recipe,
    *,
    curve: Curve | None = None,
) -> Range:
    """Return the range that the codes of one activation should cover in a type."""
    producer, config = graph.producer(name), recipe.config
    choice = calibrate(profile[name], config.calibrator, SCHEMAS[config.schema], qtype, curve)
    rule = None if producer is None else rule_of(producer)
    if rule is not None and rule.bounds is not None:
        if rule.op_type in recipe.target.full_range:
            return Range(*rule.bounds)
        choice = _within(choice, rule.bounds)
    return _within(choice, useful_range(graph, name))


def _within(span: Range, limits: tuple[float, float]) -> Range:
    """Cut a range; 0 stays in it."""
    return Range(min(max(span.low, limits[0]), 0.0), max(min(span.high, limits[1]), 0.0))


def useful_range(graph: Graph, name: str) -> tuple[float, float]:
    """Return the interval outside which no reader of a tensor tells one value from another.

    What is merely moved is looked at where it arrives.
    """
    uses = graph.consumers(name)
    if not uses or graph.is_result(name):
        return -math.inf, math.inf
    low, high = math.inf, -math.inf
    for reader, index in uses:
        rule = rule_of(reader)
        if rule is None or index != 0:
            return -math.inf, math.inf
        spans = []
        if rule.useful is not None:
            spans = [rule.useful(reader, graph)]
        elif rule.constraint is Constraint.SAME and not rule.refusal(reader, graph):
            if len(outputs_of(reader)) < len(reader.outputs):
                # Beside values there are indices (TopK): it matters which of two values is the larger.
                return -math.inf, math.inf
            spans = [useful_range(graph, output) for output in outputs_of(reader)]
        if not spans:
            return -math.inf, math.inf
        low, high = min(low, *(s[0] for s in spans)), max(high, *(s[1] for s in spans))
    return low, high


UsefulRange = Callable[[str], tuple[float, float]]
"""Returns the interval of a tensor outside which no reader tells one value from another."""
