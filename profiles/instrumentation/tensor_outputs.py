"""The observed tensors made outputs of the model: the edit that `observations` decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from ..base.errors import free_name
from .observations import Observation
from .subgraphs import SEQUENCE_OPERATORS, SubgraphTensor, readable_dtype, subgraph_tensors, value_names

# Tensors inside the subgraphs of If, Loop and Scan, made outputs of the model.
#
# onnxruntime returns outputs of the main graph only. So the arrays of a tensor of a subgraph are collected in
# a sequence, which is passed through the node that owns the subgraph: as one more state of a Loop, or as a
# value from outside that the branches of an If read and return. Each time the subgraph runs, one more array
# is inserted. Nothing is padded, and shapes may differ from one iteration to the next. The states of a Scan
# cannot be sequences, so a tensor of its subgraph becomes a scan output: its arrays are stacked and must have
# one shape.

Tensors = Sequence[SubgraphTensor]
Held = dict[SubgraphTensor, ir.Value]
Values = Mapping[SubgraphTensor, ir.Value]
"""For each tensor the value of one graph that holds it, or all its arrays so far."""

SEQUENCE_OPSET = 14
"""The first opset whose Identity takes a sequence."""


def expose_subgraph_tensors(model: ir.Model, names: Collection[str]) -> dict[str, str]:
    """Make tensors of subgraphs outputs of a model, which is changed; return tensor -> output.

    An output is a sequence of the arrays of all iterations; inside Scans only, it is one array with leading
    axes.
    """
    wanted = [inner for inner in subgraph_tensors(model, tuple(ir.DataType)) if inner.value.name in names]
    if not wanted:
        return {}
    imports = model.opset_imports
    imports[""] = max(imports[""], SEQUENCE_OPSET)
    return _Rewriter(model).exposed(wanted)


class _Rewriter:
    """Adds the nodes that collect the arrays; `replaced` are outputs of nodes that have more now."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.taken = value_names(model)
        self.empty: dict[ir.DataType, ir.Value] = {}
        self.replaced: dict[ir.Value, ir.Value] = {}

    def exposed(self, wanted: Tensors) -> dict[str, str]:
        """Make the tensors outputs of the model; return tensor -> output."""
        graph = self.model.graph
        states = {
            inner: self.empty_sequence(inner)
            for inner in wanted
            if inner.owners[0].op_type in SEQUENCE_OPERATORS
        }
        outputs = self.through(graph, wanted, states)
        graph.outputs.extend(outputs[inner] for inner in wanted)
        return {str(inner.value.name): str(outputs[inner].name) for inner in wanted}

    def empty_sequence(self, inner: SubgraphTensor) -> ir.Value:
        """Return an empty sequence in the main graph."""
        dtype = _read_dtype(inner)
        if dtype not in self.empty:
            node = self.node("SequenceEmpty", [], inner, [ir.AttrInt64("dtype", int(dtype))])
            self.model.graph.insert_before(self.model.graph[0], node)
            self.empty[dtype] = node.outputs[0]
        return self.empty[dtype]

    def through(self, graph: ir.Graph, wanted: Tensors, states: Values, depth: int = 0) -> Held:
        """Pass the wanted tensors through a graph; return the values for them at its end."""
        held = dict(states)
        for owner in list(graph):
            inside = [i for i in wanted if len(i.owners) > depth and i.owners[depth] is owner]
            if inside:
                pass_through = {"If": self.branch, "Loop": self.loop, "Scan": self.scan}[owner.op_type]
                held |= pass_through(owner, inside, held, depth + 1)
        if depth:
            for inner in wanted:
                if len(inner.owners) == depth:
                    held[inner] = self.collected(graph, inner, self.readable(graph, inner), held)
        return held

    def branch(self, owner: ir.Node, inside: Tensors, states: Values, depth: int) -> Held:
        """Let both branches of an If return all sequences, also those that only the other one extends."""
        for attribute in owner.attributes.values():
            subgraph = attribute.as_graph()
            # A tensor is of this branch itself, or of a graph that a node of the branch owns.
            branch = [
                i
                for i in inside
                if (i.value.graph if len(i.owners) == depth else i.owners[depth].graph) is subgraph
            ]
            held = self.through(subgraph, branch, {i: states[i] for i in branch}, depth)
            for inner in inside:
                if inner not in held:
                    node = self.node("Identity", [states[inner]], inner)
                    subgraph.append(node)
                    held[inner] = node.outputs[0]
                subgraph.outputs.append(held[inner])
        return self.more_outputs(owner, inside, len(owner.outputs))

    def loop(self, owner: ir.Node, inside: Tensors, states: Values, depth: int) -> Held:
        """Make the sequences states of a Loop, after its own."""
        subgraph = owner.attributes["body"].as_graph()
        carried = len(subgraph.inputs) - 2
        own = {inner: self.sequence(inner) for inner in inside}
        subgraph.inputs.extend(own.values())
        held = self.through(subgraph, inside, own, depth)
        for place, inner in enumerate(inside, start=1 + carried):
            subgraph.outputs.insert(place, held[inner])
        owner.resize_inputs(2 + carried + len(inside))
        for place, inner in enumerate(inside, start=2 + carried):
            owner.replace_input_with(place, states[inner])
        return self.more_outputs(owner, inside, carried)

    def scan(self, owner: ir.Node, inside: Tensors, states: Values, depth: int) -> Held:
        """Make the tensors scan outputs of a Scan; insert these into the sequences around it, if any."""
        subgraph = owner.attributes["body"].as_graph()
        held = self.through(subgraph, inside, {}, depth)
        subgraph.outputs.extend(held[inner] for inner in inside)
        for name in ("scan_output_axes", "scan_output_directions"):
            if name in owner.attributes:
                before = owner.attributes[name].as_ints()
                owner.attributes[name] = ir.AttrInt64s(name, [*before, *(0 for _ in inside)])
        first = len(owner.outputs)
        owner.resize_outputs(first + len(inside))
        graph = owner.graph
        assert graph is not None
        results = {}
        for inner, value in zip(inside, owner.outputs[first:], strict=True):
            value.name, value.type = self.name(inner), ir.TensorType(_read_dtype(inner))
            results[inner] = self.collected(graph, inner, value, states, owner)
        return results

    def collected(
        self,
        graph: ir.Graph,
        inner: SubgraphTensor,
        value: ir.Value,
        states: Values,
        after: ir.Node | None = None,
    ) -> ir.Value:
        """Insert an array into its sequence; in a Scan, which has no sequence, return the array itself."""
        if inner in states:
            node = self.node("SequenceInsert", [states[inner], value], inner)
        elif after is None and (value.producer() is None or value.is_graph_output()):
            # An output of a graph is neither one of its inputs nor an output twice.
            node = self.node("Identity", [value], inner, tensor=True)
        else:
            return value
        if after is None:
            graph.append(node)
        else:
            graph.insert_after(after, node)
        return node.outputs[0]

    def readable(self, graph: ir.Graph, inner: SubgraphTensor) -> ir.Value:
        """Return the tensor in an element type that numpy has."""
        value = self.replaced.get(inner.value, inner.value)
        if _read_dtype(inner) == inner.dtype:
            return value
        attribute = ir.AttrInt64("to", int(_read_dtype(inner)))
        node = self.node("Cast", [value], inner, [attribute], tensor=True)
        graph.append(node)
        return node.outputs[0]

    def more_outputs(self, owner: ir.Node, inside: Tensors, place: int) -> Held:
        """Give a node more outputs, from index `place` on, by putting another node in its place."""
        graph = owner.graph
        assert graph is not None
        old = list(owner.outputs)
        new = [ir.Value(type=value.type, shape=value.shape) for value in old]
        held = {inner: self.sequence(inner) for inner in inside}
        outputs = [*new[:place], *held.values(), *new[place:]]
        node = ir.Node(
            owner.domain,
            owner.op_type,
            owner.inputs,
            list(owner.attributes.values()),
            outputs=outputs,
            name=owner.name,
        )
        graph.insert_before(owner, node)
        for before, value in zip(old, new, strict=True):
            name = before.name
            before.replace_all_uses_with(value, replace_graph_outputs=True)
            value.name = name
            self.replaced[before] = value
        graph.remove(owner, safe=True)
        return held

    def sequence(self, inner: SubgraphTensor) -> ir.Value:
        return ir.Value(name=self.name(inner), type=ir.SequenceType(ir.TensorType(_read_dtype(inner))))

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        inner: SubgraphTensor,
        attributes: Sequence[ir.Attr] = (),
        *,
        tensor: bool = False,
    ) -> ir.Node:
        output = self.sequence(inner)
        if tensor:
            output.type = ir.TensorType(_read_dtype(inner))
        return ir.Node("", op_type, inputs, attributes, outputs=[output], name=output.name)

    def name(self, inner: SubgraphTensor) -> str:
        name = free_name(f"qprof:subgraph:{inner.value.name}", self.taken)
        self.taken.add(name)
        return name


def _read_dtype(inner: SubgraphTensor) -> ir.DataType:
    """Return the element type for reading the tensor."""
    assert inner.dtype is not None
    return readable_dtype(inner.dtype)


def with_outputs(
    model: ir.Model, observed: Iterable[Observation]
) -> tuple[ir.Model, tuple[Observation, ...]]:
    """Return a copy of a model with the observed tensors as outputs, and the observations with `source`."""
    copy, observed = model.clone(), tuple(observed)
    inner = {observation.name for observation in observed if observation.scan_axes is not None}
    sources = expose_subgraph_tensors(copy, inner)
    sources |= _expose(copy, [observation for observation in observed if observation.scan_axes is None])
    return copy, tuple(replace(o, source=sources.get(o.name)) for o in observed)


def _expose(model: ir.Model, observed: Iterable[Observation]) -> dict[str, str]:
    """Make tensors of the main graph outputs of the model, which is changed; return tensor -> output."""
    taken = value_names(model)
    values = {value.name: value for node in model.graph for value in node.outputs if value.name}
    outputs = {value.name for value in model.graph.outputs}
    sources: dict[str, str] = {}
    for observation in observed:
        value = values.get(observation.name)
        if value is None:  # a graph input
            continue
        dtype = readable_dtype(observation.dtype)
        if dtype != observation.dtype:
            node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))])
            value = node.outputs[0]
            value.name = free_name(f"{observation.name}:float", taken)
            taken.add(value.name)
            model.graph.append(node)
        if value.name not in outputs:
            model.graph.outputs.append(value)
        sources[observation.name] = str(value.name)
    return sources
