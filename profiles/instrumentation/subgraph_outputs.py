"""Tensors inside the bodies of If, Loop and Scan, made outputs of the model.

onnxruntime gives outputs of the main graph alone. So every tensor of a body is gathered in a sequence that
goes through the node that has the body: into the body of a Loop as one more of its states, into the branches
of an If as what they see from outside; each time the body runs, one more array is inserted. Nothing is padded
and shapes may differ from one iteration to the next. The states of a Scan cannot be sequences, so a tensor of
its body becomes a scan output instead: its arrays are stacked, and have to be of one shape.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from .subgraph_tensors import LOOPS, Inner, inner_tensors, values_of

SEQUENCE_OPSET = 14
"""The first in which Identity takes a sequence."""


def show_inner(model: ir.Model, names: Collection[str]) -> dict[str, str]:
    """Make tensors of bodies outputs of a model, which is changed; return tensor -> output.

    An output is a sequence with an array for each time that the tensor was made; but for a tensor whose only
    bodies are those of Scans, it is one array. Arrays have `Inner.stacked` more dimensions in front.

    Args:
        model: its names are unique over all graphs.
        names: of `inner_tensors` that are not hidden.
    """
    wanted = [inner for inner in inner_tensors(model) if inner.value.name in names]
    if not wanted:
        return {}
    imports = model.opset_imports
    imports[""] = max(imports[""], SEQUENCE_OPSET)
    return _Threading(model).shown(wanted)


@dataclass
class _Threading:
    """Writes the nodes; it knows the names that are taken."""

    model: ir.Model
    taken: set[str] = field(init=False)
    empty: dict[ir.DataType, ir.Value] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.taken = {v.name for graph in self.model.graphs() for v in values_of(graph) if v.name}
        self.taken |= {name for graph in self.model.graphs() for name in graph.initializers}

    def shown(self, wanted: Sequence[Inner]) -> dict[str, str]:
        graph = self.model.graph
        states = {inner: self.nothing(inner) for inner in wanted if inner.owners[0].op_type in LOOPS}
        found = self.through(graph, wanted, states)
        graph.outputs.extend(found[inner] for inner in wanted)
        return {str(inner.value.name): str(found[inner].name) for inner in wanted}

    def nothing(self, inner: Inner) -> ir.Value:
        """Return an empty sequence in the main graph."""
        dtype = _given(inner)
        if dtype not in self.empty:
            node = self.node("SequenceEmpty", [], inner, [ir.AttrInt64("dtype", int(dtype))])
            self.model.graph.insert_before(self.model.graph[0], node)
            self.empty[dtype] = node.outputs[0]
        return self.empty[dtype]

    def through(
        self, graph: ir.Graph, wanted: Sequence[Inner], states: Mapping[Inner, ir.Value], depth: int = 0
    ) -> dict[Inner, ir.Value]:
        """Pass what is wanted through the nodes of one graph; return where it is found at its end.

        Args:
            graph: the main graph or a body.
            wanted: tensors of this graph and of bodies in it.
            states: the sequence so far, of those that have one.
            depth: how many graphs are around this one.
        """
        found = dict(states)
        for owner in list(graph):
            inside = [i for i in wanted if len(i.owners) > depth and i.owners[depth] is owner]
            if inside:
                pass_through = {"If": self.branch, "Loop": self.loop, "Scan": self.scan}[owner.op_type]
                found |= pass_through(owner, inside, found, depth + 1)
        if depth:
            for inner in wanted:
                if len(inner.owners) == depth:
                    found[inner] = self.kept(graph, inner, self.real(graph, inner), found)
        return found

    def branch(
        self, owner: ir.Node, inside: Sequence[Inner], states: Mapping[Inner, ir.Value], depth: int
    ) -> dict[Inner, ir.Value]:
        for attribute in owner.attributes.values():
            body = attribute.as_graph()
            mine = [i for i in inside if _is_in(i, body, depth)]
            found = self.through(body, mine, {i: states[i] for i in mine}, depth)
            for inner in inside:
                if inner not in found:
                    node = self.node("Identity", [states[inner]], inner)
                    body.append(node)
                    found[inner] = node.outputs[0]
                body.outputs.append(found[inner])
        return self.more_outputs(owner, inside, len(owner.outputs))

    def loop(
        self, owner: ir.Node, inside: Sequence[Inner], states: Mapping[Inner, ir.Value], depth: int
    ) -> dict[Inner, ir.Value]:
        body = owner.attributes["body"].as_graph()
        carried = len(body.inputs) - 2
        own = {inner: self.sequence(inner) for inner in inside}
        body.inputs.extend(own.values())
        found = self.through(body, inside, own, depth)
        for place, inner in enumerate(inside, start=1 + carried):
            body.outputs.insert(place, found[inner])
        owner.resize_inputs(2 + carried + len(inside))
        for place, inner in enumerate(inside, start=2 + carried):
            owner.replace_input_with(place, states[inner])
        return self.more_outputs(owner, inside, carried)

    def scan(
        self, owner: ir.Node, inside: Sequence[Inner], states: Mapping[Inner, ir.Value], depth: int
    ) -> dict[Inner, ir.Value]:
        body = owner.attributes["body"].as_graph()
        found = self.through(body, inside, {}, depth)
        body.outputs.extend(found[inner] for inner in inside)
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
            value.name, value.type = self.name(inner), ir.TensorType(_given(inner))
            results[inner] = self.kept(graph, inner, value, states, owner)
        return results

    def kept(
        self,
        graph: ir.Graph,
        inner: Inner,
        value: ir.Value,
        states: Mapping[Inner, ir.Value],
        after: ir.Node | None = None,
    ) -> ir.Value:
        """Insert an array into its sequence; where it has none, because it is in a Scan, keep it as it is."""
        if inner in states:
            node = self.node("SequenceInsert", [states[inner], value], inner)
        elif after is None and (value.producer() is None or value.is_graph_output()):
            node = self.node("Identity", [value], inner, tensor=True)  # no input, and no output twice
        else:
            return value
        if after is None:
            graph.append(node)
        else:
            graph.insert_after(after, node)
        return node.outputs[0]

    def real(self, graph: ir.Graph, inner: Inner) -> ir.Value:
        """Return the tensor in a type that numpy knows."""
        if _given(inner) == inner.dtype:
            return inner.value
        attribute = ir.AttrInt64("to", int(_given(inner)))
        node = self.node("Cast", [inner.value], inner, [attribute], tensor=True)
        graph.append(node)
        return node.outputs[0]

    def more_outputs(self, owner: ir.Node, inside: Sequence[Inner], place: int) -> dict[Inner, ir.Value]:
        """Give a node outputs from `place` on, by putting another in its place."""
        graph = owner.graph
        assert graph is not None
        old = list(owner.outputs)
        new = [ir.Value(type=value.type, shape=value.shape) for value in old]
        found = {inner: self.sequence(inner) for inner in inside}
        outputs = [*new[:place], *found.values(), *new[place:]]
        node = ir.Node(
            owner.domain,
            owner.op_type,
            owner.inputs,
            list(owner.attributes.values()),
            outputs=outputs,
            name=owner.name,
        )
        graph.insert_before(owner, node)
        for mine, value in zip(old, new, strict=True):
            name = mine.name
            mine.replace_all_uses_with(value, replace_graph_outputs=True)
            value.name = name
        graph.remove(owner, safe=True)
        return found

    def sequence(self, inner: Inner) -> ir.Value:
        return ir.Value(name=self.name(inner), type=ir.SequenceType(ir.TensorType(_given(inner))))

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        inner: Inner,
        attributes: Sequence[ir.Attr] = (),
        *,
        tensor: bool = False,
    ) -> ir.Node:
        made = self.sequence(inner)
        if tensor:
            made.type = ir.TensorType(_given(inner))
        return ir.Node("", op_type, inputs, attributes, outputs=[made], name=made.name)

    def name(self, inner: Inner) -> str:
        number = len(self.taken)
        while (name := f"qprof:inside:{inner.value.name}:{number}") in self.taken:
            number += 1
        self.taken.add(name)
        return name


def _given(inner: Inner) -> ir.DataType:
    """Return the element type that is read; numpy knows no bfloat16, and float32 holds each of its values."""
    assert inner.dtype is not None
    return ir.DataType.FLOAT if inner.dtype == ir.DataType.BFLOAT16 else inner.dtype


def _is_in(inner: Inner, body: ir.Graph, depth: int) -> bool:
    graph = inner.value.graph if len(inner.owners) == depth else inner.owners[depth].graph
    return graph is body
