"""A node written as several others before a form writes them: nodes of a float model, entries of its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import value_names
from ..model.editing import FreeNames, add_initializer
from ..model.graph import name_of
from ..numerics.affine import QuantParams
from ..plan.plan import Kind, NodePlan, QuantPlan
from ..plan.reasons import ReasonCode, because
from .emitter import become, constant_shape
from .lowered import LoweredModel, WrittenNames, with_record

PART = NodePlan(Kind.FLOAT, because(ReasonCode.UNKNOWN, text="a part of a rewritten node"))
"""The entry of a float node among those that replace another."""

Shape = Sequence[int | None]
"""None for a size that is not known."""


@dataclass(frozen=True)
class Step:
    """One node of those that replace another."""

    op_type: str
    shape: Shape  # of its result
    operands: Sequence[ir.Value | None] = ()  # its inputs besides the result of the step before
    attributes: Mapping[str, Sequence[int] | int] = field(default_factory=dict)

    def inputs(self, previous: ir.Value | None) -> list[ir.Value | None]:
        """Return its inputs, given the result of the step before."""
        return [*([] if previous is None else [previous]), *self.operands]


@dataclass(frozen=True)
class Replacement:
    """The nodes that are written in the place of one, which becomes the last of them or is removed."""

    graph: ir.Graph  # with the node
    node: ir.Node
    plan: QuantPlan  # with an entry for it
    names: FreeNames  # those that are free
    tensors: dict[str, QuantParams] = field(default_factory=dict)  # of what was added, and of the node itself
    nodes: dict[str, NodePlan] = field(default_factory=dict)
    is_inside: bool = False  # whether the graph is the body of an added node, and others are added at its end

    @property
    def entry(self) -> NodePlan:
        """The plan's entry of the node."""
        return self.plan.nodes[name_of(self.node)]

    def constant(self, suffix: str, array: npt.NDArray[Any]) -> ir.Value:
        """Return a new initialiser."""
        return add_initializer(self.graph, self.names.take(f"{name_of(self.node)}_{suffix}"), array)

    def of_constant(
        self,
        index: int,
        suffix: str,
        changed: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
        changed_params: Callable[[QuantParams], QuantParams],
    ) -> ir.Value | None:
        """Return an operand made of a constant, with planned parameters; other operands unchanged."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None or constant_shape(value) is None:
            return value
        assert value.const_value is not None
        operand = self.constant(suffix, changed(value.const_value.numpy()))
        params = self.plan.params_read(name_of(self.node), index, name_of(value))
        if params is not None:
            self.tensors[name_of(operand)] = changed_params(params)
        return operand

    def value(self, name: str, shape: Shape, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
        """Return a new tensor."""
        return ir.Value(name=self.names.take(name), type=ir.TensorType(dtype), shape=ir.Shape(shape))

    def add_node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        shapes: Sequence[Shape],
        attributes: Mapping[str, Any] | None = None,
        *,
        entry: NodePlan = PART,
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> tuple[ir.Value, ...]:
        """Write a node with an output of each shape before the replaced one, and return these."""
        name = self.names.take(f"{name_of(self.node)}_{op_type}")
        outputs = [self.value(f"{name}_output", shape, dtype) for shape in shapes]
        new = ir.node(op_type, inputs, dict(attributes or {}), outputs=outputs, name=name)
        if self.is_inside:
            self.graph.append(new)
        else:
            self.graph.insert_before(self.node, new)
        self.nodes[name] = entry
        return tuple(outputs)

    def add(self, step: Step, previous: ir.Value | None, entry: NodePlan) -> ir.Value:
        """Write a step before the node, and return its result."""
        read = step.inputs(previous)
        return self.add_node(step.op_type, read, [step.shape], step.attributes, entry=entry)[0]

    def finish(self, step: Step, previous: ir.Value | None, entry: NodePlan) -> None:
        """Make the node the last step."""
        become(self.node, step.op_type, step.inputs(previous), step.attributes)
        self.nodes[name_of(self.node)] = entry


def replaced(
    model: ir.Model,
    plan: QuantPlan,
    is_replaced: Callable[[ir.Node], bool],
    write: Callable[[Replacement], None],
) -> tuple[ir.Model, QuantPlan, dict[str, str]]:
    """Return a copy of model and plan with some nodes replaced, and the replaced node of each added one."""
    if not any(map(is_replaced, model.graph.all_nodes())):
        return model, plan, {}
    model = model.clone()
    names = FreeNames(value_names(model) | {name_of(node) for node in model.graph.all_nodes()})
    tensors, nodes, owners = dict(plan.tensors), dict(plan.nodes), dict[str, str]()
    for node in filter(is_replaced, list(model.graph.all_nodes())):
        assert isinstance(node.graph, ir.Graph)
        replacement = Replacement(node.graph, node, plan, names)
        write(replacement)
        tensors |= replacement.tensors
        nodes |= replacement.nodes
        owners |= {name: name_of(node) for name in replacement.nodes if name != name_of(node)}
    return model, replace(plan, tensors=tensors, nodes=nodes), owners


def in_prepared_names(lowered: LoweredModel, prepared: ir.Model, owners: Mapping[str, str]) -> LoweredModel:
    """Return a written model of `replaced` with only the names of the prepared model."""
    if not owners:
        return lowered
    written, tensors = lowered.names, value_names(prepared)
    nodes = {name: parts for name, parts in written.nodes.items() if name not in owners}
    for added, owner in owners.items():
        nodes[owner] = (*nodes.get(owner, ()), *written.nodes[added])
    names = WrittenNames({name: t for name, t in written.tensors.items() if name in tensors}, nodes)
    return with_record(replace(lowered, names=names))
