"""Chains: pieces of a graph that are one function of one variable: x * sigmoid(x), a written-out Gelu.

A chain reads one activation, and scalar constants; each of its operators works element by element; nobody
else reads what it makes on the way. So it can be one look-up table with no rounding but the last, which no
sequence of integer operators is. A target says by `Target.lookup_tables` what it does with them:

===========  ===============================================================================================
"separate"   each operator is planned by itself, where all of them can be in codes; elsewhere the chain stays
             float as a whole
"portable"   one table, looked up in standard ONNX
"runtime"    one piece in float between conversions, which the runtime compiles as it likes
===========  ===============================================================================================

A chain that is taken as one is one node while the plan is made (`Contracted`): its inner tensors need no
profile and have no parameters. In the plan each of its nodes has an entry;
`Kind.LOOKUP_TABLE` without parameters of the output means a part of the table behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from ...profiles.records.profile import Profile
from ..model.editing import take_over
from ..model.graph import Graph, index
from ..operators.functions import CHAIN, CHAIN_DOMAIN, Chain, nodes_between
from ..operators.operands import match_nodes, name_of
from ..operators.table import is_clip, rule_of
from ..plan.plan import Kind, NodePlan, QuantPlan
from ..targets.config import QuantConfig
from ..targets.target import Target, chain_implementation, lut_implementation
from .mixed_precision import named_wide

REACH = 64
"""Tensors back from a node that a chain can begin at: it bounds the search, and the longest chain."""


def find_chains(graph: Graph) -> tuple[Chain, ...]:
    """Return the largest chains of two nodes and more, in graph order; no node is in two.

    A clip that alone reads the source is left before the chain, where it is free.
    """
    lineages: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        names = _varying(node, graph)
        if not names:
            continue
        histories = [(name, *lineages.get(name, ())) for name in names]
        common = set(histories[0]).intersection(*histories[1:])
        lineages[node.outputs[0].name or ""] = tuple(n for n in histories[0] if n in common)[:REACH]
    found: list[Chain] = []
    taken: set[ir.Node] = set()
    for node in reversed(graph.nodes):
        if node in taken or not _varying(node, graph):
            continue
        for source in reversed(lineages[node.outputs[0].name or ""]):
            chain = _chain(node, source, graph)
            if chain is not None:
                found.append(chain)
                taken.update(chain.nodes)
                break
    return tuple(reversed(found))


def _varying(node: ir.Node, graph: Graph) -> tuple[str, ...]:
    """Return the activations that an element-wise operator reads besides scalars; () for any other node."""
    rule = rule_of(node)
    if rule is None or not (rule.curve or rule.elementwise) or len(node.outputs) != 1:
        return ()
    if not graph.is_float(node.outputs[0].name or "") or rule.refusal(node, graph):
        return ()
    names: dict[str, None] = {}
    for value in node.inputs:
        if value is None:
            continue
        name = value.name or ""
        if graph.is_constant(name):
            if value.shape is None or any(dim != 1 for dim in value.shape):
                return ()
        elif graph.is_float(name):
            names[name] = None
        else:
            return ()
    return tuple(names)


def _chain(end: ir.Node, source: str, graph: Graph) -> Chain | None:
    """Return the nodes from a tensor to `end`, None when they are no chain."""
    readers = graph.consumers(source)
    if len(readers) == 1 and is_clip(readers[0][0]):
        return None
    nodes, sources = nodes_between(
        end.outputs[0],
        lambda value: value.name != source,
        lambda value: graph.is_constant(value.name or ""),
    )
    inside = set(nodes)
    if len(nodes) < 2 or {value.name for value in sources} != {source}:
        return None
    rank = len(graph.shape(source) or ())
    for node in nodes:
        if node.graph is not end.graph:
            return None
        if any(
            v.shape is not None and len(v.shape) > rank
            for v in node.inputs
            if v and graph.is_constant(v.name or "")
        ):
            return None  # it would give the result more dimensions than the source has
        name = node.outputs[0].name or ""
        if node is not end and (
            graph.is_result(name) or any(reader not in inside for reader, _ in graph.consumers(name))
        ):
            return None
    return Chain(nodes, sources[0])


def taken_apart(
    chain: Chain, target: Target, tables: str = "target", seen: Collection[str] | None = None
) -> bool:
    """Whether each operator of a chain is planned by itself.

    Args:
        chain: the chain.
        target: the runtime.
        tables: `QuantConfig.lookup_tables`.
        seen: tensors with a profile; without one of what the chain makes on the way it stays one. None for
            all.
    """
    if chain_implementation(target, tables) != "separate":
        return False
    if seen is not None and any(node.outputs[0].name not in seen for node in chain.nodes):
        return False
    return all(_alone(node, target, tables) for node in chain.nodes)


def _alone(node: ir.Node, target: Target, tables: str) -> bool:
    """Whether an operator can be in codes by itself."""
    rule = rule_of(node)
    curve = rule is not None and rule.curve
    return node.op_type in target.operators or (
        curve and lut_implementation(node.op_type, target, tables) != ""
    )


@dataclass(frozen=True, eq=False)
class Contracted:
    """A model in which a node stands for each chain that is taken as one.

    Attributes:
        graph: its index.
        keep_float: the patterns of the settings that name something in it, and the chains that they name.
        kept: chain -> the pattern that named one of its nodes.
        chains: by name, their nodes being those of the model itself.
        nodes: names of the nodes of the model itself, in graph order.
    """

    graph: Graph
    keep_float: tuple[str, ...]
    kept: Mapping[str, str]
    chains: Mapping[str, Chain]
    nodes: tuple[str, ...]

    def seen(self, profile: Profile) -> Profile:
        """Return the profile without the tensors inside chains."""
        inner = inner_tensors(self.chains.values())
        if not inner:
            return profile
        return replace(profile, tensors={n: t for n, t in profile.tensors.items() if n not in inner})


def contracted(
    model: ir.Model, graph: Graph, config: QuantConfig, target: Target, seen: Collection[str]
) -> Contracted:
    """Return a model as it is planned for a target; the argument stays as it is.

    Args:
        model: the prepared model.
        graph: its index.
        config: what was asked for. A chain of which a node is to stay float stays so as a whole; one whose
            inner tensors are to have 16 bits is taken apart.
        target: the runtime.
        seen: tensors with a profile.

    Raises:
        ConfigError: a setting names nothing in the model.
    """
    names = tuple(name_of(node) for node in graph.nodes)
    wide = named_wide(graph, config.keep_16bit)
    chains = {
        chain.name: chain
        for chain in find_chains(graph)
        if not taken_apart(chain, target, config.lookup_tables, seen)
        and not any(node.outputs[0].name in wide for node in chain.nodes[:-1])
    }
    if not chains:
        return Contracted(graph, config.keep_float, {}, {}, names)
    matched = match_nodes(graph, config.keep_float)
    kept = {
        name: matched[name_of(node)]
        for name, chain in chains.items()
        for node in chain.nodes
        if name_of(node) in matched
    }
    view = model.clone()
    by_name = {name_of(node): node for part in view.graphs() for node in part}
    for chain in chains.values():
        _replace(chain, by_name)
    inside = {name_of(node) for chain in chains.values() for node in chain.nodes}
    outside = {pattern for name, pattern in matched.items() if name not in inside}
    patterns = [pattern for pattern in config.keep_float if pattern in outside]
    return Contracted(index(view), (*patterns, *kept), kept, chains, names)


def _replace(chain: Chain, nodes: Mapping[str, ir.Node]) -> None:
    """Put one node in the place of a chain, in a copy of the model whose nodes are given by name."""
    own = [nodes[name_of(node)] for node in chain.nodes]
    source = next(v for node in own for v in node.inputs if v is not None and v.name == chain.source.name)
    end, graph = own[-1], own[-1].graph
    assert graph is not None
    call = ir.Node(CHAIN_DOMAIN, CHAIN, [source], name=end.name)
    call.meta[CHAIN] = chain
    graph.insert_before(end, call)
    take_over(call.outputs[0], end.outputs[0])
    for node in reversed(own):
        graph.remove(node, safe=True)


def expanded(plan: QuantPlan, view: Contracted) -> QuantPlan:
    """Return the plan of a contracted model as one of the model itself."""
    if not view.chains:
        return plan
    entries: dict[str, NodePlan] = {}
    for name, entry in plan.nodes.items():
        chain = view.chains.get(name)
        entries |= {name: entry} if chain is None else _entries(chain, entry, view.kept.get(name, ""))
    return replace(plan, nodes={name: entries[name] for name in view.nodes})


def _entries(chain: Chain, entry: NodePlan, pattern: str) -> dict[str, NodePlan]:
    """Return the entry of every node of a chain."""
    if entry.kind is Kind.FLOAT:
        reason = f"kept float by request ('{pattern}')" if pattern else entry.reason
        return {name_of(node): replace(entry, reason=reason) for node in chain.nodes}
    found = {}
    for node in chain.nodes:
        inputs = (
            {i: entry.inputs[0] for i, v in enumerate(node.inputs) if v is chain.source}
            if entry.inputs
            else {}
        )
        told = f"part of the table of '{chain.name}'"
        if node is chain.nodes[-1]:
            told = f"one table for {chain.operators}"
        found[name_of(node)] = replace(entry, inputs=inputs, reason=told)
    return found


def planned_chains(nodes: Iterable[ir.Node], plan: QuantPlan) -> dict[str, tuple[ir.Node, ...]]:
    """Return the nodes of every table that has parts, by the name of the one that makes its result, the last.

    Args:
        nodes: of the model.
        plan: its plan.
    """
    found = {}
    for node in nodes:
        if plan.nodes[name_of(node)].kind is not Kind.LOOKUP_TABLE or _is_part(node, plan):
            continue
        inside, _ = nodes_between(
            node.outputs[0],
            lambda value: (maker := value.producer()) is not None and _is_part(maker, plan),
            lambda value: value.is_initializer(),
        )
        if len(inside) > 1:
            found[name_of(node)] = inside
    return found


def _is_part(node: ir.Node, plan: QuantPlan) -> bool:
    return plan.is_part(name_of(node), node.outputs[0].name or "")


def inner_tensors(chains: Iterable[Chain]) -> set[str]:
    """Return the tensors that are made and read inside chains alone."""
    return {node.outputs[0].name or "" for chain in chains for node in chain.nodes[:-1]}
