"""What to think of a model, in one word and one sentence. Pure."""

from __future__ import annotations

import math

from .content import GateResult, OutputQuality, Speed, Verdict
from .measured import quality_words, sqnr_of
from .records import NoiseBudget

GOOD, FAIR = 30.0, 20.0
"""SQNR in dB of the worst output from which a model is good, and fair, where no limit of its own is known."""

DOMINANT = 0.25
"""Share of all noise from which one node is named as its cause."""


def verdict_of(
    outputs: tuple[OutputQuality, ...],
    gates: tuple[GateResult, ...],
    speed: Speed | None,
    budgets: tuple[NoiseBudget, ...],
) -> Verdict:
    """Return the verdict: gates decide where there are some, else the SQNR of the outputs."""
    level = _level(outputs, gates, budgets)
    slower = speed is not None and speed.speedup < 1.0
    words = (
        [f"{sum(not gate.passed for gate in gates)} of {len(gates)} gates failed"]
        if level == "poor" and any(not gate.passed for gate in gates)
        else [f"{len(gates)} of {len(gates)} gates passed"]
        if gates
        else []
    )
    words += [text] if (text := quality_words(outputs)) else []
    if speed is not None:
        words.append(f"{speed.speedup:.2f} times as fast as float, {speed.how}")
    causes = []
    if budgets and level != "good":
        part = budgets[0].parts[0]
        if part.share >= DOMINANT:
            causes.append(f"{part.node} makes {100 * part.share:.0f} % of the noise in '{budgets[0].output}'")
    if slower:
        causes.append("the quantized model is slower than the float one")
        level = "fair" if level == "good" else level
    return Verdict(level, "; ".join(words) if words else "nothing was measured or estimated", tuple(causes))


def _level(
    outputs: tuple[OutputQuality, ...], gates: tuple[GateResult, ...], budgets: tuple[NoiseBudget, ...]
) -> str:
    if any(not gate.passed for gate in gates):
        return "poor"
    if gates:
        return "good"
    worst = min(map(sqnr_of, outputs), default=math.inf)
    if worst == math.inf and not outputs:
        return "unknown"
    limits = [budget.limit for budget in budgets if budget.limit is not None]
    kept = all(b.limit is None or b.sqnr >= b.limit for b in budgets) if limits else False
    if worst >= GOOD:
        return "good"
    return "fair" if worst >= FAIR or kept else "poor"
