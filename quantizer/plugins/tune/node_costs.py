"""What onnxruntime executes, charged to the nodes of the plan and to the tensors that are converted. Pure.

onnxruntime fuses nodes, renames them and adds others that change the layout. The lowering maps names in the
quantized model to nodes and tensors of the prepared model (`WrittenNames`); onnxruntime's additions to names
are removed. Each executed node belongs to

- the node of the prepared model whose name, or whose output's name, it still carries;
- the *conversion* of a tensor, when it is QuantizeLinear, DequantizeLinear, or a change of layout beside one;
- else the first node downstream that one of these is true of.

A node that was fused into another costs nothing; the other has the whole time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...costs.predicted import Costs, is_quantized
from ...lowering.lowered import WrittenNames
from ...operators.graph import Graph, Node
from ...operators.table import CONVERSIONS, PRODUCTS
from ...plan.plan import Kind, QuantPlan
from .node_times import ExecutedNode

LAYOUTS = ("ReorderInput", "ReorderOutput", "Transpose")
FLOAT_PRODUCTS = (*PRODUCTS, *(f"Fused{op}" for op in PRODUCTS))

FUSED = 4  # nodes in a row that are looked at for the product that carries the name of what was fused into it

_ADDED = re.compile(r"(_token_\d+|_nchwc|/duplicated|/[A-Za-z]*Fusion[A-Za-z]*/?)$")
"""What onnxruntime appends to a name."""


def find_costs(
    graph: Graph,
    plan: QuantPlan,
    floats: Sequence[ExecutedNode],
    quantized: Sequence[ExecutedNode],
    *,
    names: WrittenNames,
    prepared: Graph | None = None,
) -> Costs:
    """Charge executed nodes of the prepared and of the planned model to the nodes and tensors of a plan."""
    no_plan = QuantPlan(plan.model, plan.config, {}, {})
    floating, _, _ = _Charged(prepared or graph, floats, WrittenNames()).costs(no_plan)
    integer, border, products = _Charged(graph, quantized, names).costs(plan)
    unfused = [
        name
        for name, entry in plan.nodes.items()
        if entry.kind is Kind.QUANTIZED and products.get(name) in FLOAT_PRODUCTS
    ]
    return Costs(integer, floating, border, tuple(unfused))


class _Charged:
    """The executed nodes of one model, and the node or tensor that each belongs to."""

    def __init__(self, graph: Graph, executed: Sequence[ExecutedNode], names: WrittenNames) -> None:
        self._graph = graph
        self._executed = executed
        nodes = {node.name: node for node in graph.nodes}
        self._nodes = {written: nodes[n] for n in names.nodes if n in nodes for written in names.nodes[n]}
        self._nodes |= nodes
        self._tensors = {name: name for name in graph.values}
        for tensor, forms in names.tensors.items():
            if tensor in graph.values:
                for name in (*forms.floats, *forms.quantized):
                    self._tensors.setdefault(name, tensor)
        self._maker = {name: number for number, e in enumerate(executed) for name in e.outputs if name}
        self._readers: dict[str, list[int]] = defaultdict(list)
        for number, node in enumerate(executed):
            for name in node.inputs:
                self._readers[name].append(number)

    def costs(self, plan: QuantPlan) -> tuple[dict[str, float], dict[str, float], dict[str, str]]:
        """Return microseconds by node, microseconds by converted tensor, and the operator run for a node."""
        spent: dict[str, float] = defaultdict(float)
        products: dict[str, str] = {}
        chains: dict[str, list[int]] = defaultdict(list)
        for number, executed in enumerate(self._executed):
            owner, tensor = self.owner(executed), self._converted(number)
            if owner:
                spent[owner] += executed.microseconds
                products[owner] = executed.op_type
            elif tensor and not self._graph.is_constant(tensor):
                chains[tensor].append(number)
            else:
                spent[self._downstream(number)] += executed.microseconds
        border = {}
        for tensor, chain in chains.items():
            time = sum(self._executed[number].microseconds for number in chain)
            converted = any(self._executed[number].op_type in CONVERSIONS for number in chain)
            if converted and _crosses(tensor, plan, self._graph):
                border[tensor] = time
            else:
                maker = self._graph.producer(tensor)
                spent[self._downstream(chain[-1]) if maker is None or converted else maker.name] += time
        return dict(spent), border, products

    def owner(self, executed: ExecutedNode) -> str:
        """Return the node that an executed node carries the name of; "" for conversions and others."""
        if executed.op_type in CONVERSIONS:
            return ""
        names = [executed.name, *executed.outputs]
        if executed.op_type in LAYOUTS:
            names = names[:1]  # one that was added gives its output the name of the tensor that it moves
        for name in names:
            for stem in _stems(name):
                node = self._nodes.get(stem)
                if executed.op_type in LAYOUTS and node is not None and node.op_type != executed.op_type:
                    continue
                if node is None and executed.op_type not in LAYOUTS and stem in self._tensors:
                    node = self._graph.producer(self._tensors[stem])
                if node is not None:
                    return self._product(node, executed.op_type).name
        return ""

    def _product(self, node: Node, executed: str) -> Node:
        """Return the node that has the time: a product may carry the name of a node fused into it."""
        wanted = next((op for op in PRODUCTS if executed in (op, f"Fused{op}", f"QLinear{op}")), "")
        here = [node]
        for _ in range(FUSED):
            for candidate in here:
                if not wanted or candidate.op_type in PRODUCTS:
                    return candidate
            makers = [self._graph.producer(name) for n in here for name in n.inputs]
            here = [maker for maker in makers if maker is not None]
        return node

    def _converted(self, number: int) -> str:
        """Return the tensor that a conversion or a change of layout is of, "" for any other node."""
        here: int | None = number
        if self._executed[number].op_type not in (*CONVERSIONS, *LAYOUTS):
            return ""
        for _ in range(4):  # a chain has at most a conversion and two changes of layout
            if here is None:
                return ""
            executed = self._executed[here]
            if executed.op_type not in (*CONVERSIONS, *LAYOUTS):
                maker = self._nodes.get(self.owner(executed))
                return "" if maker is None else maker.output
            for name in (*executed.outputs, *executed.inputs[:1]):
                tensor = next((self._tensors[stem] for stem in _stems(name) if stem in self._tensors), "")
                if tensor:
                    return tensor
            here = self._maker.get(executed.inputs[0])
        return ""

    def _downstream(self, number: int) -> str:
        """Return the first node of the model at or after an executed one; "" without one."""
        waiting, seen = [number], {number}
        while waiting:
            here = waiting.pop(0)
            owner = self.owner(self._executed[here])
            if owner:
                return owner
            for name in self._executed[here].outputs:
                later = [n for n in self._readers[name] if n not in seen]
                waiting += later
                seen.update(later)
        return ""


def _stems(name: str) -> Iterator[str]:
    """Yield a name, and its beginnings before each suffix that onnxruntime appended to it."""
    while name:
        yield name
        shorter = _ADDED.sub("", name)
        name = shorter if shorter != name else ""


def _crosses(tensor: str, plan: QuantPlan, graph: Graph) -> bool:
    """Return whether one node makes or reads a tensor as float and another one quantized."""
    states = {is_quantized(reader.name, plan) for reader, _ in graph.consumers(tensor)}
    if graph.is_result(tensor):
        states.add(False)
    maker = graph.producer(tensor)
    states.add(maker is not None and is_quantized(maker.name, plan))
    return len(states) > 1
