"""Results of plans that were tried are passed beside the facts of a model, which do not change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ...profiles.base.findings import Finding
from ..plan.reasons import FloatReasons, stays_float
from ..targets.weight_formats import WeightFormat

if TYPE_CHECKING:
    from .planner import Decision


@dataclass(frozen=True)
class Known:
    """What a plan follows from besides the facts of its model."""

    floats: FloatReasons = field(
        default_factory=dict
    )  # nodes that do not compute in integers; weights may be
    unfit: FloatReasons = field(default_factory=dict)  # nodes in float with their weights, as a run showed
    findings: tuple[Finding, ...] = ()  # on these
    # Output -> dB that its noise may be above its limit: it was seen to bear more than was estimated.
    looser: Mapping[str, float] = field(default_factory=dict, compare=False)  # of rules, not of decisions
    floats_fit: bool = False  # whether a size chooses float too, of weights that are their node's only one
    size_error: float = 0.0  # bytes of a written model beyond the estimate; infinity for the smallest formats
    # Whether plans are timed: no prediction of a whole one decides anything then.
    timed: bool = field(default=False, compare=False)
    lost_in_float16: FloatReasons = field(default_factory=dict)  # nodes that lose too much in float16
    # By constant of a float node, if it is not the one asked for.
    formats: Mapping[str, WeightFormat] = field(default_factory=dict)
    # The last decisions of a search, which goes on from them; without a search there is no room for any.
    decided: deque[Decision] = field(default_factory=partial(deque, maxlen=0), compare=False, repr=False)

    def with_floats(self, reasons: FloatReasons) -> Known:
        """Return it with more nodes that do not compute in integers."""
        return replace(self, floats={**self.floats, **reasons})

    def with_unfit(self, reasons: FloatReasons) -> Known:
        """Return it with more nodes that are unfit, and a finding on each."""
        findings = (stays_float(name, reason) for name, reason in reasons.items())
        return replace(self, unfit={**self.unfit, **reasons}, findings=(*self.findings, *findings))

    def renamed(self, by_planned_node: Callable[[FloatReasons], FloatReasons]) -> Known:
        """Return it with the nodes of the planning, in which a chain is one node."""
        return replace(self, floats=by_planned_node(self.floats), unfit=by_planned_node(self.unfit))


NOTHING = Known()  # before any plan was tried
