"""One node never stops a command: a node that cannot be written, or run as it was written, stays float.

Planning knows what no form and no runtime can have. What only shows in the written model comes back as an
`UnfitNodesError`: a form has no way to write a node, the target's documents refuse one, onnxruntime does not
load or run one. The plan is then made again with these nodes in float, each with its reason and a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ..lowering.written import Lowered
from ..model.graph import Graph, name_of
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReason, ReasonCode, UnfitNodesError, because
from ..planning.facts import PlanningFacts
from ..planning.plan_model import PlannedModel
from ..targets.conformance import ConformityError

T = TypeVar("T")

MOST_RUNS = 16
"""Models that onnxruntime refuses before its error is the user's: it names one node at a time."""

_NAMES = (r"Name:'([^']+)'", r"[Nn]ode ?\(([^()]+)\)", r"node name: ([^)\s]+)", r"node '([^']+)'")
"""How onnxruntime's messages name a node."""


def without_unfit_nodes(facts: PlanningFacts, attempt: Callable[[PlanningFacts], T]) -> T:
    """Return what an attempt to plan and write a model returns, with more nodes in float where it fails.

    Raises:
        UnfitNodesError: onnxruntime refused too many models.
    """
    runs = 0
    while True:
        try:
            return attempt(facts)
        except UnfitNodesError as error:
            reasons = {name: reason for name, reason in error.reasons.items() if name not in facts.unfit}
            runs += any(reason.code is ReasonCode.REFUSED_BY_RUNTIME for reason in reasons.values())
            if not reasons or runs > MOST_RUNS:
                raise
            facts = facts.with_unfit(reasons)


@contextmanager
def blamed_on_nodes(planned: PlannedModel, lowered: Lowered) -> Iterator[None]:
    """Turn an error about the nodes of a written model into one about nodes of its plan, where it names any.

    Raises:
        UnfitNodesError: the nodes are quantized; in float they may suit. Other errors are let through.
    """
    try:
        yield
    except ConformityError as error:
        reasons: dict[str, FloatReason] = {}
        for breach in error.breaches:
            nodes = planned_nodes(breach.node, lowered, planned.plan, planned.graph)
            if not nodes:
                raise
            because_of = because(ReasonCode.REFUSED_BY_TARGET, target=error.target, text=breach.sentence)
            reasons |= dict.fromkeys(nodes, because_of)
        raise UnfitNodesError(str(error), reasons) from error
    except ModelError as error:
        named = [name for pattern in _NAMES for name in re.findall(pattern, str(error))]
        found = (planned_nodes(name, lowered, planned.plan, planned.graph) for name in named)
        nodes = next((nodes for nodes in found if nodes), ())
        if not nodes:
            raise
        text = " ".join(str(error).split(": ", 1)[-1].split())
        refused = because(ReasonCode.REFUSED_BY_RUNTIME, text=text)
        raise UnfitNodesError(str(error), dict.fromkeys(nodes, refused)) from error


def planned_nodes(written: str, lowered: Lowered, plan: QuantPlan, graph: Graph) -> tuple[str, ...]:
    """Return the nodes of a plan, none of them float, that a node of the written model stands for.

    A conversion stands for the node that makes its tensor, or for those that read it. onnxruntime gives a
    node that it fuses a longer name.
    """
    quantized = {name for name, entry in plan.nodes.items() if entry.kind is not Kind.FLOAT}
    if written in quantized:
        return (written,)
    owners = [name for name, parts in lowered.names.nodes.items() if written in parts and name in quantized]
    if owners:
        return tuple(owners[:1])
    touching = _touching(_tensors_of(written, lowered), graph, quantized)
    if touching:
        return touching
    inside = [name for name in quantized if name and name in written]
    return (max(inside, key=lambda name: (len(name), name)),) if inside else ()


def _tensors_of(written: str, lowered: Lowered) -> list[str]:
    """Return the tensors of the plan that a written node makes or reads a quantized form of."""
    forms: Mapping[str, str] = {
        form: tensor for tensor, known in lowered.names.tensors.items() for form in known.quantized
    }
    node = next((n for n in lowered.model.graph.all_nodes() if name_of(n) == written), None)
    values: Iterable[ir.Value | None] = () if node is None else (*node.outputs, *node.inputs)
    return [forms[name_of(value)] for value in values if name_of(value) in forms]


def _touching(tensors: list[str], graph: Graph, quantized: set[str]) -> tuple[str, ...]:
    """Return the quantized nodes that make the tensors; where there are none, those that read them."""
    known = [name for name in tensors if name in graph.values]
    makers = [name_of(graph.producer(name)) for name in known]
    readers = [name_of(reader) for name in known for reader, _ in graph.consumers(name)]
    for names in (makers, readers):
        found = tuple(dict.fromkeys(name for name in names if name in quantized))
        if found:
            return found
    return ()
