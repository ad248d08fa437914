"""What rounding a tensor does to results that hold its values: noise that no signal hides. Pure.

`NoiseGains` lets no node pass on more noise, relative to the signal, than it was given: what sums and
products would gain beyond that is not met in practice. But a maximum, a slice or a choice by a condition may
leave out what makes the signal of its input, as the fillers of a mask are, and the difference from a constant
what all values have in common. The rounding of what is left is the same as before: a step is a step. So from
the tensor that is rounded up to the next product, mean or function, noise power follows from the graph alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..operators.facts import Arithmetic
from ..operators.graph import Node
from .propagation import NoiseGains
from .value_paths import holds_values


@dataclass(frozen=True)
class ExactGain:
    """How the rounding of a tensor reaches a result."""

    node: Node  # the last node on the way
    index: int
    source: str  # the input that it reads
    result: str
    gain: float  # noise power in the result for one unit in the tensor


def exact_gains(gains: NoiseGains, name: str) -> Iterator[ExactGain]:
    """Yield results with a signal that a tensor's rounding reaches with a known gain, each once."""
    graph, powers = gains.graph, gains.powers
    waiting, seen = [(name, 1.0)], {name}
    while waiting:
        source, gain = waiting.pop(0)
        for node, index in graph.consumers(source):
            moved = holds_values(node, index)
            own = 1.0 if moved else _gain(gains, node, index)
            if own is None:
                continue
            for result in node.results:
                if result not in seen and powers.get(result):
                    seen.add(result)
                    yield ExactGain(node, index, source, result, gain * own)
                    waiting.append((result, gain * own))


def _gain(gains: NoiseGains, node: Node, index: int) -> float | None:
    """Return the gain of arithmetic and of straight functions; None if it depends on the signal."""
    arithmetic, rule = node.facts.arithmetic, node.rule
    if index < 0:
        return None
    if arithmetic in (Arithmetic.SUM, Arithmetic.DIFFERENCE):
        return 1.0
    if rule is not None and rule.unary and index == 0:
        return gains.straight_gain(node)
    if len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
        return None
    constant = node.constant(1 - index)
    if arithmetic is Arithmetic.PRODUCT:
        if constant is None:
            return gains.powers.get(node.inputs[1 - index])
        return float(np.square(constant, dtype=np.float64).mean()) if constant.size else None
    if arithmetic is Arithmetic.QUOTIENT and index == 0 and constant is not None and constant.all():
        return float(np.square(1.0 / constant.astype(np.float64)).mean())
    return None
