"""The results of plans that were tried are passed beside the facts of a model, which stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ...profiles.base.findings import Finding
from ..plan.reasons import FloatReasons, stays_float


@dataclass(frozen=True, eq=False)
class Known:
    """What a plan follows from besides the facts of its model.

    Attributes:
        floats: nodes that do not compute in integers, each with the reason; their weights may be quantized.
        unfit: nodes that stay float with their weights: an earlier plan could not be written or run with them
            quantized, or was too far from float.
        findings: on these.
        usual: nodes that are written in the usual way, whatever way the target has of its own.
        looser: output -> by how many dB its noise may be above what its limit makes of it, since it was seen
            to bear more than was estimated.
        run_dynamic: recurrent nodes that are dynamic, each in an implementation, whatever is estimated of
            their noise: plans with them are run.
        second_gain: decibels by which `second_type` has to keep more than integers where a product has it.
        left_out: types of weights that a size does not choose.
        floats_fit: whether a size chooses float too, of weights that are their node's only one.
        size_error: bytes that a written model takes more than was estimated; settings `fit_size` counts them.
            Infinity for the smallest formats, whatever they take.
        timed: whether plans are timed: what is predicted that the whole of one saves decides nothing then.
        lost_in_float16: nodes that lose too much in float16, each with the reason.
    """

    floats: FloatReasons = field(default_factory=dict)
    unfit: FloatReasons = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    usual: frozenset[str] = frozenset()
    looser: Mapping[str, float] = field(default_factory=dict)
    run_dynamic: Mapping[str, str] = field(default_factory=dict)
    second_gain: float = 0.0
    left_out: frozenset[str] = frozenset()
    floats_fit: bool = False
    size_error: float = 0.0
    timed: bool = False
    lost_in_float16: FloatReasons = field(default_factory=dict)

    @property
    def decided_from(self) -> tuple[object, ...]:
        """All that one decision follows from; the rules, the formats and the adjustments read the rest."""
        return self.floats, self.unfit, self.findings, self.usual, self.run_dynamic, self.second_gain

    def with_floats(self, reasons: FloatReasons) -> Known:
        """Return it with more nodes that do not compute in integers."""
        return replace(self, floats={**self.floats, **reasons})

    def with_unfit(self, reasons: FloatReasons) -> Known:
        """Return it with more nodes that are unfit, and a finding on each."""
        findings = (stays_float(name, reason) for name, reason in reasons.items())
        return replace(self, unfit={**self.unfit, **reasons}, findings=(*self.findings, *findings))

    def renamed(self, by_planned_node: Callable[[FloatReasons], FloatReasons]) -> Known:
        """Return it with the nodes as they are planned: a chain is one of them."""
        return replace(self, floats=by_planned_node(self.floats), unfit=by_planned_node(self.unfit))


NOTHING = Known()
"""Before any plan was tried."""
