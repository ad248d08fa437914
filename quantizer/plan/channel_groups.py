"""Which quantized activations can have more channels than the model gives them, together. Pure.

Integer kernels want channels in whole blocks. Where all nodes around an activation can do with more channels,
it is padded: convolutions that make it get filters of zeros, convolutions that read it get weights of zero
for these channels, and what computes channel by channel in between computes on. What the padded channels hold
does not matter, since only weights of zero read it; so the results stay the same, integer for integer.

Activations that a node in between ties to one another, such as the input and the output of a depthwise
convolution, are one group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..operators.facts import Arithmetic, KernelSizes
from ..operators.graph import Graph, Node
from ..operators.table import ChannelScaling
from .plan import Kind, QuantPlan

CHANNELS = 1
"""The axis of the channels in what convolutions read and make."""


@dataclass(frozen=True)
class PaddedConstant:
    """A constant that gets zeros along an axis.

    Attributes:
        node: the only node that reads it.
        index: at which input.
        axis: along which, counted from the front.
    """

    node: str
    index: int
    axis: int


@dataclass(frozen=True)
class ChannelGroup:
    """Activations whose channels can be padded together.

    Attributes:
        tensors: their names, in graph order.
        channels: how many each has in the model.
        nodes: every node that makes or reads one of them, in graph order.
        depthwise: the depthwise convolutions among them.
        constants: what has to be padded with them.
    """

    tensors: tuple[str, ...]
    channels: int
    nodes: tuple[str, ...]
    depthwise: tuple[str, ...]
    constants: tuple[PaddedConstant, ...]


@dataclass(frozen=True)
class _Role:
    """What a node asks of the activations around it.

    Attributes:
        tied: activations that must have the same channels.
        constants: activation -> the constants that are padded with it.
        barred: activations whose channels must stay.
    """

    tied: tuple[str, ...] = ()
    constants: tuple[tuple[str, PaddedConstant], ...] = ()
    barred: tuple[str, ...] = ()


def channel_groups(graph: Graph, plan: QuantPlan) -> tuple[ChannelGroup, ...]:
    """Return the groups of activations that can be padded, in graph order.

    Args:
        graph: what is written.
        plan: its plan.
    """
    roles = {node.name: _role(node, graph, plan) for node in graph.nodes}
    group_of = _tied(roles)
    barred = {group_of(name) for role in roles.values() for name in role.barred}
    barred |= {group_of(name) for name in graph.values if _stays(name, graph, plan)}
    members: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        for name in node.results:
            if group_of(name) not in barred:
                members[group_of(name)].append(name)
    return tuple(group for names in members.values() if (group := _group(names, roles, graph)) is not None)


def _group(names: list[str], roles: Mapping[str, _Role], graph: Graph) -> ChannelGroup | None:
    channels = {(graph.shape(name) or (None, None))[CHANNELS] for name in names}
    size = next(iter(channels))
    if len(channels) != 1 or size is None:
        return None
    inside = set(names)
    touching = [n for n in graph.nodes if inside & {*n.results, *n.inputs}]
    found = [c for n in touching for tensor, c in roles[n.name].constants if tensor in inside]
    depthwise = [n.name for n in touching if _is_convolution(n) and _is_depthwise(n)]
    depthwise = [name for name in depthwise if inside & set(roles[name].tied)]
    return ChannelGroup(
        tuple(names), size, tuple(n.name for n in touching), tuple(depthwise), tuple(dict.fromkeys(found))
    )


def _tied(roles: Mapping[str, _Role]) -> Callable[[str], str]:
    """Return the function that tells the group of a tensor, by the name of one of its members."""
    parent: dict[str, str] = {}

    def find(name: str) -> str:
        while parent.get(name, name) != name:
            name = parent[name]
        return name

    for role in roles.values():
        for name in role.tied[1:]:
            parent[find(name)] = find(role.tied[0])
    return find


def _stays(name: str, graph: Graph, plan: QuantPlan) -> bool:
    """Whether the channels of a tensor must stay as they are, whatever the nodes around it can do."""
    if graph.is_constant(name):
        return False
    maker, shape = graph.producer(name), graph.shape(name)
    if maker is None or shape is None or len(shape) < 3 or name not in plan.tensors or graph.is_result(name):
        return True
    readers = graph.consumers(name)
    return not readers or any(index < 0 or node.name not in plan.nodes for node, index in readers)


def _role(node: Node, graph: Graph, plan: QuantPlan) -> _Role:
    """Return what a node asks; one that is not known to compute channel by channel leaves all as it is."""
    entry, rule = plan.nodes[node.name], node.rule
    names = (*filter(None, node.inputs), *node.results)
    activations = tuple(name for name in names if not graph.is_constant(name))
    if not entry.kind.reads_quantized or rule is None or any(node.outputs[i] for i in _further(node)):
        return _Role(barred=activations)
    if entry.kind is Kind.LOOKUP_TABLE and entry.implementation == "portable":
        return _Role(barred=activations)
    role: _Role | None = None
    if _is_convolution(node):
        role = _convolution(node, graph)
    elif rule.scaling is ChannelScaling.POOLED or rule.unary:  # each channel, or each element, by itself
        role = _Role(tied=(node.input(0), node.output))
    elif rule.elementwise and rule.arithmetic is not Arithmetic.QUOTIENT:
        role = _elementwise(node, graph)
    return role or _Role(barred=activations)


def _further(node: Node) -> range:
    return range(1, len(node.outputs))


def _is_convolution(node: Node) -> bool:
    return node.facts.kernel is KernelSizes.CONVOLUTION


def _is_depthwise(node: Node) -> bool:
    groups = node.attributes.get_int("group", 1)
    shape = node.ir_node.inputs[1].shape if node.ir_node.inputs[1] is not None else None
    return shape is not None and groups != 1 and shape[0] == groups and shape[1] == 1


def _convolution(node: Node, graph: Graph) -> _Role | None:
    name, source, result = node.name, node.input(0), node.output
    if not all(_belongs_to(graph, node.input(i)) for i in (1, 2) if node.input(i)):
        return None
    made = [PaddedConstant(name, index, 0) for index in (1, 2) if node.input(index)]
    constants = [(result, constant) for constant in made]
    if node.attributes.get_int("group", 1) == 1:
        return _Role(constants=(*constants, (source, PaddedConstant(name, 1, 1))))
    return _Role(tied=(source, result), constants=tuple(constants)) if _is_depthwise(node) else None


def _belongs_to(graph: Graph, name: str) -> bool:
    """Whether a tensor is a constant that one node alone reads."""
    return graph.is_constant(name) and len(graph.consumers(name)) == 1 and not graph.is_result(name)


def _elementwise(node: Node, graph: Graph) -> _Role | None:
    """Return what an operator asks that computes element by element; None where its operands do not allow."""
    result = node.output
    shape = graph.shape(result)
    if shape is None or len(shape) < 3 or shape[CHANNELS] is None:
        return None
    tied, barred = [result], []
    constants: list[tuple[str, PaddedConstant]] = []
    for index in range(len(node.inputs)):
        name = node.input(index)
        if not name:
            continue
        operand = graph.shape(name)
        axis = None if operand is None else CHANNELS - (len(shape) - len(operand))
        if operand is None or axis is None:
            return None
        constant, size = graph.is_constant(name), operand[axis] if axis >= 0 else 1
        if size == shape[CHANNELS] and size != 1:
            if not constant:
                tied.append(name)
            elif _belongs_to(graph, name):
                constants.append((result, PaddedConstant(node.name, index, axis)))
            else:
                return None
        elif size != 1 or shape[CHANNELS] == 1:
            return None
        elif not constant:
            barred.append(name)
    return _Role(tuple(tied), tuple(constants), tuple(barred))
