"""How much probability the noise of a plan moves at outputs that are probabilities, from the profile. Pure.

Noise of standard deviation s at the input of p = f(x) changes p by s |f'(x)| times a normal deviate, whose
magnitude is sqrt(2 / pi) in the mean. So of all probability moves

    sqrt(2 / pi) s mean |f'(x)| / mean f(x)     of values that are judged each by itself (Sigmoid)
    sqrt(2 / pi) s (1 - K mean p^2)             of K values that add up to 1 (Softmax; LogSoftmax by its exp)

to first order, and with noise that is the same wherever probability is. On the models of the benchmarks that
is right to a factor of two, and of three at most (DECISIONS.md, 68).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from ...profiles.base.errors import PlanError
from ..numerics.density import density, mean_of, signal_power
from ..operators.facts import Classes, Meaning
from ..operators.functions import function_of
from ..operators.graph import Graph, Node
from .activation_ranges import ActivationRanges
from .value_paths import maker_of, parts_of

MOST_MOVED = 0.047
"""Share of the probability that may move (DECISIONS.md, 68)."""

MEAN_NORMAL_MAGNITUDE = math.sqrt(2.0 / math.pi)
"""Mean magnitude of a normal deviate."""

SLOPE_STEP = 1e-4
"""Over which a slope is taken: of the unit in which logits are counted."""


def deciding_inputs(graph: Graph) -> list[str]:
    """Return the tensors that probabilities are made of, whose noise `expected_moves` asks for."""
    return sorted({node.input(0) for name in graph.outputs for node in _deciding(graph, name)})


def expected_moves(activations: ActivationRanges, estimated: Mapping[str, float]) -> dict[str, float]:
    """Return the share of the probability that is expected to move at each output that has any, in [0, 1].

    Args:
        activations: of the model.
        estimated: SQNR in dB of `deciding_inputs`, as far as it is known.
    """
    graph, profile = activations.graph, activations.profile
    moves = {}
    for name in graph.outputs:
        moved = total = 0.0
        for node in _deciding(graph, name):
            source, result = node.input(0), node.output
            probability = _probability(activations, node)
            if source not in estimated or probability is None or result not in profile:
                continue
            mean, slope = probability
            deviation = math.sqrt(signal_power(profile[source])) * 10.0 ** (-estimated[source] / 20.0)
            count = profile[result].count
            moved += count * min(MEAN_NORMAL_MAGNITUDE * deviation * slope, mean)
            total += count * mean
        if total > 0.0:
            moves[name] = round(moved / total, 4)
    return moves


def _deciding(graph: Graph, name: str) -> Iterator[Node]:
    """Yield the nodes that make the probabilities that an output is put together from."""
    for part in parts_of(graph, name):
        node = maker_of(graph, part)
        if node is not None and (
            node.facts.classes is Classes.COMPETE or node.facts.meaning is Meaning.DECISION_OR_PICTURE
        ):
            yield node


def _probability(activations: ActivationRanges, node: Node) -> tuple[float, float] | None:
    """Return the mean of a node's result and of the magnitude of its slope; None where they are not known."""
    profile = activations.profile
    source, result = profile.get(node.input(0)), profile.get(node.output)
    if source is None or result is None or not (source.histogram.total and result.histogram.total):
        return None
    if node.facts.classes is Classes.COMPETE:
        shape = result.shape
        axis = node.attributes.get_int("axis", -1)
        classes = None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]
        if classes is None or classes < 2:
            return None
        log = result.maximum <= 0.0
        squares = mean_of(density(result), (lambda y: np.exp(2.0 * y)) if log else np.square)
        return 1.0 / classes, max(0.0, 1.0 - classes * squares) / classes
    values = density(source)
    try:
        function = function_of(node.ir_node, activations.opset)
        mean = mean_of(values, function)
        slope = mean_of(
            values, lambda x: np.abs(function(x + SLOPE_STEP) - function(x - SLOPE_STEP)) / (2.0 * SLOPE_STEP)
        )
    except PlanError:
        return None
    return (mean, slope) if mean > 0.0 else None


def moved_texts(moves: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence for each output of which more probability is expected to move than may."""
    for name, moved in moves.items():
        if moved > MOST_MOVED:
            yield (
                f"output '{name}': {100.0 * moved:.0f} % of the probability is expected to move, more than "
                f"{100.0 * MOST_MOVED:.1f}: with samples (--data) the model is run, and held to that"
            )
