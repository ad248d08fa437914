"""Why the nodes of an imported plan are float, a line for each reason."""

from __future__ import annotations

from collections import defaultdict

from ...quantizer.plan.plan import QuantPlan
from ...quantizer.plan.reasons import FloatReason, ReasonCode, summary


def float_lines(plan: QuantPlan) -> list[str]:
    """Return a line for each reason that keeps nodes float: the most frequent first."""
    by_code: dict[ReasonCode, list[FloatReason]] = defaultdict(list)
    for entry in plan.nodes.values():
        if entry.stays_float:
            by_code[entry.float_reason.code].append(entry.float_reason)
    ordered = sorted(by_code.values(), key=len, reverse=True)
    return [f"  {len(reasons)} float: {summary(reasons)}" for reasons in ordered]
