"""Pointwise chains: nodes that together are a function of one variable: x * sigmoid(x), a written-out Gelu.

A chain reads one activation, and scalar constants; each of its operators works element by element; no other
node reads its inner tensors. So it can be one look-up table with a single rounding, unlike a sequence of
integer operators. `Target.lookup_tables` defines how a target handles chains:

===========  ===============================================================================================
"separate"   each operator is planned by itself if all of them can be quantized; if not, the chain stays float
             as a whole
"portable"   one look-up table, in standard ONNX
"runtime"    float between conversions, compiled by the runtime
===========  ===============================================================================================

SiLU and GELU may also be one float operator of the runtime (`Target.spellings`): for a SiLU whose operators
would be quantized separately, this is used if the table of kernel times predicts that it is faster.

A chain that is planned as one is one node while the plan is made (`PlanningFacts.contracted`): its inner
tensors need no profile and have no parameters. In the plan each of its nodes has an entry;
`Kind.LOOKUP_TABLE` without parameters of the output means a part of the look-up table of the node after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import onnx_ir as ir

from ..model.graph import name_of, output_name
from ..operators.decompositions import POINTWISE_MARKERS, decomposed_function
from ..operators.functions import CHAIN, CHAIN_DOMAIN, PointwiseChain, nodes_between
from ..operators.graph import Graph, Node, node_view
from ..operators.table import is_clip, rule_of
from ..plan.plan import QuantPlan
from ..targets.target import Target, chain_implementation, lut_implementation

MAX_TENSORS_BACK = 64
"""Tensors back from a node that a chain can begin at: it bounds the search, and the longest chain."""


def find_chains(graph: Graph) -> tuple[PointwiseChain, ...]:
    """Return the largest chains of two nodes and more, no node in two; a clip before a chain stays there."""
    # An element-wise result -> the tensors that every path to it goes through, the nearest first.
    lineages: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        names = _varying(node, graph)
        if not names:
            continue
        histories = [(name, *lineages.get(name, ())) for name in names]
        common = set(histories[0]).intersection(*histories[1:])
        lineages[node.output] = tuple(n for n in histories[0] if n in common)[:MAX_TENSORS_BACK]
    chains: list[PointwiseChain] = []
    taken: set[ir.Node] = set()
    for node in reversed(graph.nodes):
        if node.ir_node in taken or len(node.outputs) != 1 or node.output not in lineages:
            continue
        for source in reversed(lineages[node.output]):
            chain = _chain(node, source, graph)
            if chain is not None:
                chains.append(chain)
                taken.update(chain.nodes)
                break
    return tuple(reversed(chains))


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
    chain: PointwiseChain, target: Target, profiled: Collection[str] | None = None
) -> bool:
    """Whether each operator of a chain is planned by itself."""
    if chain_implementation(target) != "separate":
        return False
    if profiled is not None and any(node.outputs[0].name not in profiled for node in chain.nodes):
        return False
    for node in chain.nodes:
        rule = rule_of(node)
        curve = rule is not None and rule.unary
        has_table = curve and lut_implementation(node.op_type, target) != ""
        if node.op_type not in target.operators and not has_table:
            return False
    return True


def functions_of_one_variable(graph: Graph) -> Iterator[tuple[PointwiseChain, tuple[Node, ...]]]:
    """Yield functions that a runtime has an operator for and that are chains, each with its operators."""
    for node in graph.nodes:
        function = decomposed_function(node, graph) if node.op_type in POINTWISE_MARKERS else None
        if function is not None:
            nodes = tuple(function[1])
            sources = _varying(nodes[0], graph)
            chain = _chain(nodes[-1], sources[0], graph) if len(sources) == 1 else None
            if chain is not None:
                yield chain, nodes


def adjusted_chain(chain: PointwiseChain, graph: Graph) -> PointwiseChain | None:
    """Return a chain in the graph of an adjusted model, None if the adjustment changed its function."""
    reader, place = next((n, n.inputs.index(chain.source)) for n in chain.nodes if chain.source in n.inputs)
    if not all(_varying(graph.node(name_of(node)), graph) for node in chain.nodes):
        return None
    copy = _chain(graph.node(chain.name), graph.node(name_of(reader)).input(place), graph)
    return copy and replace(copy, fused=chain.fused, quantized_fused=chain.quantized_fused)


def contracted_graph(graph: Graph, chains: Collection[PointwiseChain]) -> Graph:
    """Return a graph with one node instead of each chain, and without the tensors inside chains."""
    calls: dict[str, Node] = {}
    for chain in chains:
        # Its input and output only have the names of the model's own.
        source, result = (
            ir.Value(name=v.name, type=v.type, shape=v.shape) for v in (chain.source, chain.result)
        )
        call = ir.Node(CHAIN_DOMAIN, CHAIN, [source], outputs=[result], name=chain.name)
        call.meta[CHAIN] = chain
        calls[chain.name] = node_view(call)
    inside = {name_of(node) for chain in chains for node in chain.nodes}
    inner = inner_tensors(chains)
    nodes = tuple(
        calls.get(node.name, node) for node in graph.nodes if node.name not in inside or node.name in calls
    )
    position = {node: number for number, node in enumerate(nodes)}
    uses = {name: tuple(u for u in own if u[0].name not in inside) for name, own in graph.uses.items()}
    for call_node in calls.values():
        source_name = call_node.inputs[0]
        readers = (*uses[source_name], (call_node, 0))
        uses[source_name] = tuple(sorted(readers, key=lambda use: position[use[0]]))
    return Graph(
        nodes,
        graph.inputs,
        graph.outputs,
        {name: value for name, value in graph.values.items() if name not in inner},
        {name: own for name, own in uses.items() if own},
        graph.producers | {call_node.output: call_node for call_node in calls.values()},
        graph.holders,
    )


def planned_chains(nodes: Iterable[ir.Node], plan: QuantPlan) -> dict[str, tuple[ir.Node, ...]]:
    """Return the nodes of every table with several parts, by the name of the last, which makes its result."""
    tables = ((name_of(node), plan.table_nodes(node)) for node in nodes)
    return {name: parts for name, parts in tables if len(parts) > 1}


def inner_tensors(chains: Iterable[PointwiseChain]) -> set[str]:
    """Return the tensors that only chains make and read."""
    return {output_name(node) for chain in chains for node in chain.nodes[:-1]}
