"""Values inside a graph that become steps: rounded to whole numbers, compared, or used to choose. Pure.

A step function makes a small error large: if a duration of 3.01 frames becomes 2.99, a frame is missing, and
all later frames move. So the input of a step function inside a network has a noise limit, as if it were an
output. A step at the end, such as an ArgMax or a threshold on an output, belongs to the output. Lengths and
masks that depend only on inputs have no noise.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..operators.facts import Arithmetic, Steps, Values
from ..operators.graph import Graph, Node
from .value_paths import before_move, downstream, upstream


@dataclass(frozen=True)
class Step:
    """A tensor whose values become steps inside a network."""

    tensor: str
    node: str  # that makes steps of it
    operator: str
    width: float | None  # of the steps; None if steps are where two values are equal
    chooses: bool  # from candidates, so that what it takes in error is nearly as good


def find_steps(graph: Graph) -> tuple[Step, ...]:
    """Return the tensors whose values become steps inside a network, in graph order."""
    steps: dict[str, Step] = {}
    for node in graph.nodes:
        width = 1.0 if _makes_whole_numbers(node, graph) else None
        if width is None and node.facts.steps is Steps.NONE:
            continue
        if not _decides_a_product_or_size(node, graph) or _is_continuous(node, graph):
            continue
        for name in filter(graph.is_float, node.inputs):
            # Values of only inputs and constants are exact.
            if any(one.rule is not None and one.rule.constants for one in upstream(graph, [name])):
                chooses = node.facts.steps is Steps.CANDIDATES
                steps.setdefault(name, Step(name, node.name, node.op_type, width, chooses))
    return tuple(steps.values())


def _makes_whole_numbers(node: Node, graph: Graph) -> bool:
    """Whether a node rounds floats to whole numbers, as Floor, or a Cast to integers."""
    if node.facts.values is not Values.CONVERTED:
        return node.facts.steps is Steps.WHOLE_NUMBERS
    target = graph.dtype(node.output) if node.output else None
    source = node.input(0)
    return target is not None and target.is_integer() and bool(source) and graph.is_float(source)


def _is_continuous(node: Node, graph: Graph) -> bool:
    """Whether other nodes compensate for a step: x - Floor(x), or a choice between functions of the value."""
    sources = {n for n in node.inputs if n and not graph.is_constant(n)}
    readers = [reader for name in set(node.outputs) for reader, _ in graph.consumers(name)]
    beside = (reader for reader in readers if sources & set(reader.inputs))
    if any(reader.facts.arithmetic is Arithmetic.DIFFERENCE for reader in beside):
        return True
    if len(sources) != 1 or not readers or not all(reader.facts.picks_by_condition for reader in readers):
        return False
    for chosen in (name for reader in readers for name in reader.inputs[1:]):
        source: str | None = chosen
        while source is not None and source not in sources and not graph.is_constant(source):
            source = before_move(graph, source)
        if source is None:
            return False
    return True


def _decides_a_product_or_size(node: Node, graph: Graph) -> bool:
    """Whether a step decides which values the network computes next, or how many: a product or size."""
    for reader, index in downstream(graph, [name for name in node.outputs if name]):
        rule = reader.rule
        if rule is not None and (rule.is_recurrent or (rule.weight is not None and rule.weight.is_product)):
            return True
        if reader.facts.sizes_result and not graph.is_float(reader.input(index)):
            return True
    return False


def before_steps(graph: Graph, steps: tuple[Step, ...]) -> dict[str, Step]:
    """Return the nodes that lead to steps, back to the last that have weights, each with its step.

    They stay float: with 256 values, many compared values are equal, and the first would be chosen each time.
    """
    before: dict[str, Step] = {}
    for step in steps:
        waiting, visited = [step.tensor], set[Node]()
        while waiting:
            node = graph.producer(waiting.pop(0))
            if node is None or node in visited:
                continue
            visited.add(node)
            before.setdefault(node.name, step)
            rule = node.rule
            if rule is None or not (rule.is_recurrent or rule.is_lookup or rule.weight is not None):
                waiting += [n for n in node.inputs if n and graph.is_float(n)]
    return before
