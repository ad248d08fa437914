"""Pointwise chains: nodes that together are a function of one variable: x * sigmoid(x), a written-out Gelu.

A chain reads one activation, and scalar constants; each of its operators works element by element; no
other node reads its inner tensors. So it can be one look-up table with no rounding but the last, which no
sequence of integer operators is. A target says by `Target.lookup_tables` what it does with them:

===========  ===============================================================================================
"separate"   each operator is planned by itself, where all of them can be quantized; elsewhere the chain stays
             float as a whole
"portable"   one look-up table, in standard ONNX
"runtime"    float between conversions, which the runtime compiles as it likes
===========  ===============================================================================================

SiLU and GELU may be one operator of the runtime's own too, in float (`Target.spellings`): a SiLU whose
operators would be quantized each by itself is that where the table of kernel times says that it is faster,
with no gate of 8 bits.

A chain that is planned as one is one node while the plan is made (`contracted`): its inner tensors need no
profile and have no parameters. In the plan each of its nodes has an entry;
`Kind.LOOKUP_TABLE` without parameters of the output means a part of the look-up table of the node after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import onnx_ir as ir

from ...profiles.records.profile import Profile
from ..model.graph import name_of, output_name
from ..operators.decompositions import GIVEN_AWAY_BY, written_out
from ..operators.functions import CHAIN, CHAIN_DOMAIN, PointwiseChain, nodes_between
from ..operators.fused_functions import fused_function
from ..operators.graph import Graph, Node, node_view
from ..operators.table import is_clip, rule_of
from ..plan.plan import FUSED_CHAIN, Kind, NodePlan, QuantPlan
from ..targets.forms import RUNTIME_FORMS
from ..targets.target import Target, chain_implementation, lut_implementation
from .facts import PlanningFacts, named_16bit

REACH = 64
"""Tensors back from a node that a chain can begin at: it bounds the search, and the longest chain."""


def find_chains(graph: Graph) -> tuple[PointwiseChain, ...]:
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
        lineages[node.output] = tuple(n for n in histories[0] if n in common)[:REACH]
    found: list[PointwiseChain] = []
    taken: set[ir.Node] = set()
    for node in reversed(graph.nodes):
        # What varies has a lineage, and nothing else.
        if node.ir_node in taken or len(node.outputs) != 1 or node.output not in lineages:
            continue
        for source in reversed(lineages[node.output]):
            chain = _chain(node, source, graph)
            if chain is not None:
                found.append(chain)
                taken.update(chain.nodes)
                break
    return tuple(reversed(found))


def _varying(node: Node, graph: Graph) -> tuple[str, ...]:
    """Return the activations that an element-wise operator reads besides scalars; () for any other node."""
    rule = node.rule
    if rule is None or not (rule.unary or rule.elementwise) or len(node.outputs) != 1:
        return ()
    if not graph.is_float(node.output) or rule.refusal(node, graph):
        return ()
    names: dict[str, None] = {}
    for name in filter(None, node.inputs):
        if graph.is_constant(name):
            shape = graph.values[name].shape
            if shape is None or any(dim != 1 for dim in shape):
                return ()
        elif graph.is_float(name):
            names[name] = None
        else:
            return ()
    return tuple(names)


def _chain(end: Node, source: str, graph: Graph) -> PointwiseChain | None:
    """Return the nodes from a tensor to `end`, None when they are no chain."""
    readers = graph.consumers(source)
    if len(readers) == 1 and is_clip(readers[0][0]):
        return None
    nodes, sources = nodes_between(
        end.ir_node.outputs[0],
        lambda value: value.name != source,
        lambda value: graph.is_constant(name_of(value)),
    )
    inside = set(nodes)
    if len(nodes) < 2 or {value.name for value in sources} != {source}:
        return None
    rank = len(graph.shape(source) or ())
    for node in nodes:
        if node.graph is not end.ir_node.graph:
            return None
        if any(
            v.shape is not None and len(v.shape) > rank
            for v in node.inputs
            if v and graph.is_constant(name_of(v))
        ):
            return None  # it would give the result more dimensions than the source has
        name = output_name(node)
        if node is not end.ir_node and (
            graph.is_result(name) or any(reader.ir_node not in inside for reader, _ in graph.consumers(name))
        ):
            return None
    return PointwiseChain(nodes, sources[0])


def planned_separately(
    chain: PointwiseChain, target: Target, tables: str = "target", seen: Collection[str] | None = None
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
    """Whether an operator can be quantized by itself."""
    rule = rule_of(node)
    curve = rule is not None and rule.unary
    return node.op_type in target.operators or (
        curve and lut_implementation(node.op_type, target, tables) != ""
    )


def with_chains(facts: PlanningFacts) -> PlanningFacts:
    """Return the facts with the chains that are planned as one node.

    A chain with an activation inside that is to have 16 bits is planned node by node.

    Raises:
        ConfigError: a setting names nothing in the model.
    """
    graph, config = facts.graph, facts.config
    named = named_16bit(graph, config.keep_16bit)
    found = [
        chain
        for chain in find_chains(graph)
        if not planned_separately(chain, facts.target, config.lookup_tables, facts.profile)
    ]
    whole = {node for chain in found for node in chain.nodes}
    found = [replace(chain, fused=_fused(chain, facts)) for chain in found]
    found += [chain for chain in _faster_fused(facts) if whole.isdisjoint(chain.nodes)]
    chains = {
        chain.name: chain
        for chain in found
        if not any(node.outputs[0].name in named for node in chain.nodes[:-1])
    }
    return replace(facts, chains=chains)


def _fused(chain: PointwiseChain, facts: PlanningFacts) -> str:
    """Return the kernel of the one float operator that the target has for a chain, "" where it has none."""
    if FUSED_CHAIN not in facts.target.spellings or facts.config.form not in RUNTIME_FORMS:
        return ""
    function = fused_function(chain, facts.identity.opset)
    return "" if function is None else function.kernel


def _faster_fused(facts: PlanningFacts) -> Iterator[PointwiseChain]:
    """Yield the functions whose operators would be quantized apart, and are faster as one in float."""
    model, graph = facts.cost_model, facts.graph
    if model is None or FUSED_CHAIN not in facts.target.spellings or facts.config.lookup_tables != "target":
        return
    for node in graph.nodes:
        function = written_out(node, graph) if node.op_type in GIVEN_AWAY_BY else None
        if function is None:
            continue
        last, sources = function.nodes[-1], _varying(function.nodes[0], graph)
        chain = _chain(last, sources[0], graph) if len(sources) == 1 else None
        if chain is None or not planned_separately(chain, facts.target, seen=facts.profile):
            continue
        kernel = _fused(chain, facts)
        entry = NodePlan(Kind.LOOKUP_TABLE, implementation=FUSED_CHAIN)
        apart = sum(model.integer_time(part, NodePlan(Kind.QUANTIZED)) for part in function.nodes)
        if kernel and model.integer_time(last, entry) <= apart:
            yield replace(chain, fused=kernel, quantized_fused=True)


def of_adjusted(facts: PlanningFacts, graph: Graph, profile: Profile) -> PlanningFacts:
    """Return the facts of the model after an adjustment, with its copies of the chains."""
    copies = {name: _copy(chain, graph) for name, chain in facts.chains.items()}
    chains = {name: chain for name, chain in copies.items() if chain is not None}
    return replace(facts, graph=graph, profile=profile, chains=chains)


def _copy(chain: PointwiseChain, graph: Graph) -> PointwiseChain | None:
    """Return a chain in a copy of its model; None where an adjustment made another function of it."""
    reader, place = next((n, n.inputs.index(chain.source)) for n in chain.nodes if chain.source in n.inputs)
    if not all(_varying(graph.node(name_of(node)), graph) for node in chain.nodes):
        return None
    copy = _chain(graph.node(chain.name), graph.node(name_of(reader)).input(place), graph)
    return None if copy is None else replace(copy, fused=chain.fused, quantized_fused=chain.quantized_fused)


def contracted(facts: PlanningFacts) -> PlanningFacts:
    """Return the facts with a node in the place of each chain, and without the tensors inside chains.

    The model itself is left as it is: the nodes that stand for chains are in the index alone.
    """
    if not facts.chains:
        return facts
    graph = facts.graph
    calls = {chain.name: _call(chain) for chain in facts.chains.values()}
    inside = {name_of(node) for chain in facts.chains.values() for node in chain.nodes}
    inner = inner_tensors(facts.chains.values())
    nodes = tuple(
        calls.get(node.name, node) for node in graph.nodes if node.name not in inside or node.name in calls
    )
    position = {node: number for number, node in enumerate(nodes)}
    uses = {name: tuple(u for u in found if u[0].name not in inside) for name, found in graph.uses.items()}
    for call in calls.values():
        source = call.inputs[0]
        uses[source] = tuple(sorted((*uses[source], (call, 0)), key=lambda use: position[use[0]]))
    view = Graph(
        nodes,
        graph.inputs,
        graph.outputs,
        {name: value for name, value in graph.values.items() if name not in inner},
        {name: found for name, found in uses.items() if found},
        graph.producers | {call.output: call for call in calls.values()},
    )
    tensors = {name: tensor for name, tensor in facts.profile.tensors.items() if name not in inner}
    return replace(facts, graph=view, profile=replace(facts.profile, tensors=tensors))


def _call(chain: PointwiseChain) -> Node:
    """Return the node that stands for a chain. Its input and output only have the names of the model's
    own."""
    ends = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in (chain.source, chain.result)]
    call = ir.Node(CHAIN_DOMAIN, CHAIN, [ends[0]], outputs=[ends[1]], name=chain.name)
    call.meta[CHAIN] = chain
    return node_view(call)


def expanded(plan: QuantPlan, facts: PlanningFacts) -> QuantPlan:
    """Return the plan of a contracted graph as one of the model itself, whose facts are given."""
    if not facts.chains:
        return plan
    entries: dict[str, NodePlan] = {}
    for name, entry in plan.nodes.items():
        chain = facts.chains.get(name)
        entries |= {name: entry} if chain is None else _entries(chain, entry)
    return replace(plan, nodes={node.name: entries[node.name] for node in facts.graph.nodes})


def _entries(chain: PointwiseChain, entry: NodePlan) -> dict[str, NodePlan]:
    """Return the entry of every node of a chain."""
    if entry.kind is Kind.FLOAT:
        return {name_of(node): entry for node in chain.nodes}
    found = {}
    for node in chain.nodes:
        inputs = (
            {i: entry.inputs[0] for i, v in enumerate(node.inputs) if v is chain.source}
            if entry.inputs
            else {}
        )
        remark = f"part of the look-up table of '{chain.name}'"
        if node is chain.nodes[-1]:
            fused = entry.implementation == FUSED_CHAIN
            remark = f"one {'float operator' if fused else 'look-up table'} for {chain.operators}"
        found[name_of(node)] = replace(entry, inputs=inputs, because=remark)
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
    return plan.is_part(name_of(node), output_name(node))


def inner_tensors(chains: Iterable[PointwiseChain]) -> set[str]:
    """Return the tensors that are made and read inside chains alone."""
    return {output_name(node) for chain in chains for node in chain.nodes[:-1]}
