"""The following activation function: what all readers of a tensor together compute of it. Pure.

A convolution is often followed by x * sigmoid(x), LeakyRelu or another activation that is flat, or nearly, on
one side. Quantized values of the convolution's output that lie there are wasted. What counts is the error
after the function, and by that the range of the tensor is chosen (see `calibrators`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.records.profile import TensorProfile
from ..model.graph import Graph, output_name
from ..numerics.arrays import UnaryFunction
from ..operators.functions import PointwiseChain, function_of_chain
from ..operators.table import OPERAND_SCALING, STANDARD_DOMAINS, is_clip, rule_of

LONGEST = 8
"""Most nodes of a function: a decomposed HardSwish has four, a tanh-GELU eight."""

STEEPEST = 1.5
"""Largest slope of a function that is taken into account, that of HardSwish. The readers of a steeper one,
such as a logarithm or a root, are not linear either, and squared error after it is not what they suffer
from."""

PLACES = 1024
"""Points at which the slope is computed."""


@dataclass(frozen=True, eq=False)
class FollowingFunction:
    """The nodes that together compute a function of one activation.

    Equal ones compute the same function: of the same nodes, by name, and the same constants, as objects.

    Attributes:
        chain: the nodes, and the activation.
    """

    chain: PointwiseChain

    @cached_property
    def _key(self) -> tuple[object, ...]:
        constants = (v.const_value for n in self.chain.nodes for v in n.inputs if v is not None)
        return (*(node.name for node in self.chain.nodes), *(None if c is None else id(c) for c in constants))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FollowingFunction) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def following_function(graph: Graph, name: str, tensor: TensorProfile, opset: int) -> UnaryFunction | None:
    """Return the function that the readers of a tensor compute of it together.

    Args:
        graph: the prepared model.
        name: an activation.
        tensor: its profile.
        opset: version of the default operator domain.

    Returns:
        The function up to the first tensor that nothing else leads around; None where there is none, where it
        is only a clip (which takes the range of its output, see `planning.shared_scales`), or where it is
        steep or not finite somewhere in the range of the tensor.
    """
    found = find_following(graph, name)
    return None if found is None else evaluated(found, tensor, opset)


def find_following(graph: Graph, name: str) -> FollowingFunction | None:
    """Return the nodes after a tensor that are a function of it, None where there are none or only a clip."""
    uses = graph.consumers(name)
    return None if len(uses) == 1 and is_clip(uses[0][0]) else find_following_or_clip(graph, name)


def find_following_or_clip(graph: Graph, name: str) -> FollowingFunction | None:
    """Return the nodes after a tensor that are a function of it, a clip too; None where there are none."""
    if not any(_bends(n) for n, _ in graph.consumers(name)):
        return None
    made, nodes = [name], list[ir.Node]()
    for _ in range(LONGEST + 1):
        readers = {t: [n for n, _ in graph.consumers(t) if n not in nodes] for t in made}
        open_ends = [t for t in made if graph.is_result(t) or readers[t]]
        if open_ends != [name] and len(open_ends) == 1 and any(map(_bends, nodes)):
            return FollowingFunction(PointwiseChain(tuple(nodes), graph.values[name]))
        further = (n for t in open_ends for n in readers[t] if _is_a_function_of(n, made, graph))
        node = next(further, None)
        if node is None:
            return None
        nodes.append(node)
        made.append(output_name(node))
    return None


def evaluated(following: FollowingFunction, tensor: TensorProfile, opset: int) -> UnaryFunction | None:
    """Return the function that nodes compute, None where it is steep or not finite in the tensor's range."""
    try:
        curve = function_of_chain(following.chain, opset)
    except PlanError:
        return None
    return curve if _is_gentle(curve, tensor) else None


def _is_a_function_of(node: ir.Node, made: Sequence[str], graph: Graph) -> bool:
    """Whether a node reads nothing but tensors of these, and numbers."""
    if node.domain not in STANDARD_DOMAINS or len(node.outputs) != 1:
        return False
    names = [name for name in graph.inputs_of(node) if name]
    rule = rule_of(node)
    if rule is not None and rule.scaling in OPERAND_SCALING:  # two terms or factors
        return all(name in made or _is_number(graph, name) for name in names)
    return _bends(node) and names[0] in made and all(_has_one_element(graph, name) for name in names[1:])


def _has_one_element(graph: Graph, name: str) -> bool:
    value = graph.constant(name)
    return value is not None and value.size == 1


def _is_number(graph: Graph, name: str) -> bool:
    value = graph.constant(name)
    return _has_one_element(graph, name) and value is not None and value.dtype.kind == "f"


def _bends(node: ir.Node) -> bool:
    """Whether a node is a function of one variable that is not linear."""
    rule = rule_of(node)
    return rule is not None and (rule.unary or is_clip(node))


def _is_gentle(curve: UnaryFunction, tensor: TensorProfile) -> bool:
    """Whether a function is finite and nowhere steep between 0 and the ends of a tensor's range."""
    low, high = min(tensor.minimum, 0.0), max(tensor.maximum, 0.0)
    if not low < high:
        return False
    places = np.linspace(low, high, PLACES)
    with np.errstate(all="ignore"):
        values = curve(places)
    if not np.isfinite(values).all():
        return False
    steepest = float(np.abs(np.diff(values)).max()) / float(places[1] - places[0])
    return steepest <= STEEPEST * (1.0 + 1e-6)
