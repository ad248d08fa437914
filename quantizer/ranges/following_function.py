"""What all readers of a tensor together make of it, where that is a function of one variable. Pure.

A convolution is often followed by x * sigmoid(x), LeakyRelu or another activation that is flat, or nearly, on
one side. Codes of the convolution's output that lie there are wasted. What counts is the error that is left
behind the function, and by that the range of the tensor is chosen (see `calibrators`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.records.profile import TensorProfile
from ..model.graph import Graph
from ..numerics.arrays import Curve
from ..operators.functions import function_of
from ..operators.table import Constraint, rule_of

Floats = npt.NDArray[np.float64]

LONGEST = 8
"""Nodes that are followed: a decomposed HardSwish has four, a tanh-GELU eight."""

STEEPEST = 1.5
"""Largest slope of a function that is looked behind, that of HardSwish. Of a steeper one, as a logarithm or a
root, the readers are not linear either, and squared error behind it is not what they suffer from."""

PLACES = 1024
"""Points at which the slope is looked at."""

_BINARY: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}


def curve_behind(graph: Graph, name: str, tensor: TensorProfile, opset: int) -> Curve | None:
    """Return the function that the readers of a tensor compute of it together.

    Args:
        graph: the prepared model.
        name: an activation.
        tensor: its profile.
        opset: version of the default operator domain.

    Returns:
        The function up to the first tensor that nothing else leads around; None where there is none, where it
        is only a clip (which takes the range of its output, see `groups`), or where it is steep or not finite
        somewhere in the range of the tensor.
    """
    uses = graph.consumers(name)
    if not uses or (len(uses) == 1 and _is_clip(uses[0][0])) or not any(_bends(n) for n, _ in uses):
        return None
    found = _followed(graph, name, opset)
    return found if found is not None and _is_gentle(found, tensor) else None


def _followed(graph: Graph, name: str, opset: int) -> Curve | None:
    made: dict[str, Curve] = {name: lambda x: x}
    done: set[str] = set()
    curved = False
    for _ in range(LONGEST + 1):
        open_ends = [
            t
            for t in made
            if graph.is_result(t) or any((n.name or "") not in done for n, _ in graph.consumers(t))
        ]
        if curved and len(open_ends) == 1 and open_ends[0] != name:
            return made[open_ends[0]]
        readers = [n for t in open_ends for n, _ in graph.consumers(t) if (n.name or "") not in done]
        for node in readers:
            curve = _step(node, graph, made, opset)
            if curve is not None:
                break
        else:
            return None
        made[node.outputs[0].name or ""] = curve
        done.add(node.name or "")
        curved |= _bends(node)
    return None


def _step(node: ir.Node, graph: Graph, made: Mapping[str, Curve], opset: int) -> Curve | None:
    """Return the output of a node as a function of the tensor; None where it is none, or not yet."""
    if node.domain not in ("", "ai.onnx") or len(node.outputs) != 1:
        return None
    names = [value.name or "" for value in node.inputs if value is not None]
    if node.op_type in _BINARY:
        sides = [made.get(name) or _constant(graph, name) for name in names]
        if len(sides) != 2 or sides[0] is None or sides[1] is None:
            return None
        return _combined(_BINARY[node.op_type], sides[0], sides[1])
    if not _bends(node) or names[0] not in made:
        return None
    try:
        curve = function_of(node, opset)
    except PlanError:
        return None
    inner = made[names[0]]
    return lambda x: curve(inner(x))


def _constant(graph: Graph, name: str) -> Curve | None:
    value = graph.constant(name)
    if value is None or value.size != 1 or value.dtype.kind != "f":
        return None
    number = float(value.reshape(-1)[0])
    return lambda x: np.full_like(x, number)


def _combined(operator: Callable[[Floats, Floats], Floats], first: Curve, second: Curve) -> Curve:
    return lambda x: operator(first(x), second(x))


def _bends(node: ir.Node) -> bool:
    """Whether a node is a function of one variable that is not linear."""
    rule = rule_of(node)
    return rule is not None and (rule.curve or _is_clip(node))


def _is_clip(node: ir.Node) -> bool:
    rule = rule_of(node)
    return rule is not None and rule.constraint is Constraint.CLAMP


def _is_gentle(curve: Curve, tensor: TensorProfile) -> bool:
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
