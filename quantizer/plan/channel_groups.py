"""Which quantized activations can have more channels than the model gives them, together. Pure.

Integer kernels need channels in whole blocks. An activation is padded if all nodes around it support more
channels: convolutions that make it get filters of zeros, convolutions that read it get weights of zero for
these channels, and channelwise operators in between compute them too. The values of padded channels do not
matter, because only weights of zero read them, so the results are the same, integer for integer.

Activations that a node in between ties to one another, such as the input and the output of a depthwise
convolution, are one group.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ..operators.facts import Arithmetic, KernelSizes
from ..operators.graph import Graph, Node
from ..operators.table import ChannelScaling
from .plan import Implementation, Kind, QuantPlan

CHANNELS = 1
"""The axis of the channels in inputs and outputs of convolutions."""


PaddedConstant = tuple[str, int, int]
"""A constant that gets zeros: the only node that reads it, at which input, and the axis from the front."""


@dataclass(frozen=True)
class ChannelGroup:
    """Activations whose channels can be padded together."""

    tensors: tuple[str, ...]  # their names, in graph order
    channels: int  # how many each has in the model
    nodes: tuple[str, ...]  # every node that makes or reads one of them, in graph order
    depthwise: tuple[str, ...]  # the depthwise convolutions among them
    constants: tuple[PaddedConstant, ...]  # what has to be padded with them


def channel_groups(graph: Graph, plan: QuantPlan) -> tuple[ChannelGroup, ...]:
    """Return the groups of activations of a planned model that can be padded, in graph order."""
    demands = {node.name: _demand(node, graph, plan) for node in graph.nodes}

    # Tied activations are one group, named by one of its members: union and find.
    parent: dict[str, str] = {}

    def group_of(name: str) -> str:
        while parent.get(name, name) != name:
            name = parent[name]
        return name

    for demand in demands.values():
        for name in demand.tied[1:]:
            parent[group_of(name)] = group_of(demand.tied[0])

    barred = {group_of(name) for demand in demands.values() for name in demand.barred}
    barred |= {group_of(name) for name in graph.values if _must_stay(name, graph, plan)}
    members: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        for name in node.results:
            if group_of(name) not in barred:
                members[group_of(name)].append(name)

    groups = []
    for names in members.values():
        sizes = {(graph.shape(name) or (None, None))[CHANNELS] for name in names}
        channels = sizes.pop()
        if sizes or channels is None:
            continue
        inside = set(names)
        around = {user.name for name in names for user, _ in graph.consumers(name)}
        around |= {graph.maker(name) for name in names}
        nodes = graph.part(around & graph.by_name.keys()).nodes
        depthwise = [
            node.name
            for node in nodes
            if _is_convolution(node) and _is_depthwise(node) and inside & set(demands[node.name].tied)
        ]
        constants = dict.fromkeys(
            constant
            for node in nodes
            for tensor, constant in demands[node.name].constants
            if tensor in inside
        )
        touching = tuple(node.name for node in nodes)
        groups.append(ChannelGroup(tuple(names), channels, touching, tuple(depthwise), tuple(constants)))
    return tuple(groups)


def _must_stay(name: str, graph: Graph, plan: QuantPlan) -> bool:
    """Whether the channels of a tensor cannot be padded, regardless of the nodes around it."""
    if graph.is_constant(name):
        return False
    maker, shape = graph.producer(name), graph.shape(name)
    if maker is None or shape is None or len(shape) < 3 or name not in plan.tensors or graph.is_result(name):
        return True
    readers = graph.consumers(name)
    return not readers or any(index < 0 or node.name not in plan.nodes for node, index in readers)


@dataclass(frozen=True)
class _Demand:
    """A node's demands on the activations around it."""

    tied: tuple[str, ...] = ()  # activations that must have the same channels
    constants: tuple[tuple[str, PaddedConstant], ...] = ()  # activation -> a constant that is padded with it
    barred: tuple[str, ...] = ()  # activations whose channels must stay


def _demand(node: Node, graph: Graph, plan: QuantPlan) -> _Demand:
    """Return a node's demands; a node that may mix channels leaves all unchanged."""
    entry, rule = plan.nodes[node.name], node.rule
    is_gathered = entry.kind is Kind.LOOKUP_TABLE and entry.implementation == Implementation.PORTABLE
    demand: _Demand | None = None
    if rule is not None and entry.kind.reads_quantized and not is_gathered and not any(node.outputs[1:]):
        if _is_convolution(node):
            demand = _demand_of_convolution(node, graph)
        elif rule.scaling is ChannelScaling.POOLED or rule.unary:  # each channel, or each element, by itself
            demand = _Demand(tied=(node.input(0), node.output))
        elif rule.elementwise and rule.arithmetic is not Arithmetic.QUOTIENT:
            demand = _demand_of_elementwise(node, graph)
    if demand is not None:
        return demand
    names = (*filter(None, node.inputs), *node.results)
    return _Demand(barred=tuple(name for name in names if not graph.is_constant(name)))


def _is_convolution(node: Node) -> bool:
    return node.facts.kernel is KernelSizes.CONVOLUTION


def _is_depthwise(node: Node) -> bool:
    groups, weight = node.attributes.get_int("group", 1), node.ir_node.inputs[1]
    shape = None if weight is None else weight.shape
    return shape is not None and groups != 1 and shape[0] == groups and shape[1] == 1


def _demand_of_convolution(node: Node, graph: Graph) -> _Demand | None:
    """Return a convolution's demands, or None if others read its constants or its groups are wide."""
    indices = [index for index in (1, 2) if node.input(index)]
    if not all(_belongs_to_one_node(graph, node.input(index)) for index in indices):
        return None
    source, result = node.input(0), node.output
    constants = [(result, (node.name, index, 0)) for index in indices]
    if node.attributes.get_int("group", 1) == 1:
        return _Demand(constants=(*constants, (source, (node.name, 1, 1))))
    return _Demand(tied=(source, result), constants=tuple(constants)) if _is_depthwise(node) else None


def _belongs_to_one_node(graph: Graph, name: str) -> bool:
    """Whether a tensor is a constant with a single reader."""
    return graph.is_constant(name) and len(graph.consumers(name)) == 1 and not graph.is_result(name)


def _demand_of_elementwise(node: Node, graph: Graph) -> _Demand | None:
    """Return an elementwise operator's demands, or None if its operands do not allow any."""
    result = node.output
    shape = graph.shape(result)
    if shape is None or len(shape) < 3 or shape[CHANNELS] is None:
        return None
    tied, barred = [result], []
    constants: list[tuple[str, PaddedConstant]] = []
    for index, name in enumerate(node.inputs):
        if not name:
            continue
        operand, is_constant = graph.shape(name), graph.is_constant(name)
        if operand is None:
            return None
        axis = CHANNELS - (len(shape) - len(operand))
        size = operand[axis] if axis >= 0 else 1
        if size == shape[CHANNELS] and size != 1:
            if not is_constant:
                tied.append(name)
            elif _belongs_to_one_node(graph, name):
                constants.append((result, (node.name, index, axis)))
            else:
                return None
        elif size != 1 or shape[CHANNELS] == 1:
            return None
        elif not is_constant:
            barred.append(name)
    return _Demand(tuple(tied), tuple(constants), tuple(barred))
