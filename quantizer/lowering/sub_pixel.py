"""ConvTranspose written as Conv, where the plan says so: before a form writes the nodes, in terms of both.

See `operators.sub_pixel` for the arithmetic. The Conv computes quantized values with the parameters of the
result; what interleaves them moves values only:

=========  ===============================================  ==================================================
Conv       [N, groups * phases * channels, *sizes]          the sums, requantized
Transpose  [N, *sizes, groups * phases * channels]          channels last
Reshape    [N, *sizes, groups, *phases, channels]
Transpose  [N, size, phase, size, phase, groups, channels]  left out where there is one axis and one group
Reshape    [N, *sizes * phases, groups * channels]
Slice      the sizes of the result                          left out where nothing has to be cropped
Transpose  [N, groups * channels, *sizes]
=========  ===============================================  ==================================================

DepthToSpace says the same in one node. onnxruntime 1.31 on x86-64 computes quantized convolutions with the
channels last and cancels the outer two Transposes against its own, and the inner one moves whole runs of
channels: 0.05 ms for 64 channels of 112 x 112, where DepthToSpace takes 0.65 and two changes of layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.editing import FreeNames, add_initializer, value_names
from ..model.graph import name_of
from ..numerics.affine import QuantParams
from ..operators.sub_pixel import SubPixel, sub_pixel_of
from ..plan.plan import SUB_PIXEL, Kind, NodePlan, QuantPlan
from ..plan.reasons import ReasonCode, because
from .emitter import become, constant_array
from .lowered import Lowered, WrittenNames, with_record

END = np.iinfo(np.int64).max
"""Of a Slice, beyond every tensor."""

Attributes = Mapping[str, Sequence[int] | int]
Dims = Sequence[int | None]


@dataclass(frozen=True)
class Rewritten:
    """A model and plan in which ConvTranspose is Conv and nodes that move values.

    Attributes:
        model, plan: to be given to a form.
        nodes: node of the prepared model -> the nodes that were added for it, besides itself.
        tensors: what was added between them.
    """

    model: ir.Model
    plan: QuantPlan
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tensors: frozenset[str] = frozenset()

    def in_original_names(self, lowered: Lowered) -> Lowered:
        """Return what a form has written, with the names of the prepared model alone."""
        if not self.nodes:
            return lowered
        added = {name for names in self.nodes.values() for name in names}
        written = lowered.names.nodes
        nodes = {
            name: (*names, *(part for other in self.nodes.get(name, ()) for part in written[other]))
            for name, names in written.items()
            if name not in added
        }
        tensors = {name: forms for name, forms in lowered.names.tensors.items() if name not in self.tensors}
        return with_record(replace(lowered, names=WrittenNames(tensors, nodes)))


def write_as_convolutions(model: ir.Model, plan: QuantPlan) -> Rewritten:
    """Return the model with a Conv for each ConvTranspose that is planned so; the arguments are left alone.

    Args:
        model: nodes of the prepared model, with the adjustments of the plan.
        plan: with entries for these nodes and perhaps more.
    """
    if not any(_is_planned_so(node, plan) for node in model.graph):
        return Rewritten(model, plan)
    model = model.clone()
    names = FreeNames(value_names(model) | {name_of(node) for node in model.graph.all_nodes()})
    writers = [_Writer(model.graph, node, plan, names) for node in model.graph if _is_planned_so(node, plan)]
    for writer in writers:
        writer.write()
    tensors = {name: params for writer in writers for name, params in writer.tensors.items()}
    nodes = {name: entry for writer in writers for name, entry in writer.nodes.items()}
    return Rewritten(
        model,
        replace(plan, tensors={**plan.tensors, **tensors}, nodes={**plan.nodes, **nodes}),
        {writer.name: tuple(name for name in writer.nodes if name != writer.name) for writer in writers},
        frozenset(name for writer in writers for name in writer.added),
    )


def _is_planned_so(node: ir.Node, plan: QuantPlan) -> bool:
    entry = plan.nodes.get(name_of(node))
    return entry is not None and entry.implementation == SUB_PIXEL


@dataclass(frozen=True)
class _Step:
    """One node.

    Attributes:
        op_type, attributes: the operator.
        others: its inputs besides the result of the step before.
        shape: of its result, None for a size that is not known.
    """

    op_type: str
    shape: Dims
    others: Sequence[ir.Value | None] = ()
    attributes: Attributes = field(default_factory=dict)


class _Writer:
    """Writes one ConvTranspose, whose node becomes the last of those that replace it.

    Attributes:
        name: of the node.
        nodes, tensors: entries of the plan for what was written.
        added: names of the new tensors.
    """

    def __init__(self, graph: ir.Graph, node: ir.Node, plan: QuantPlan, names: FreeNames) -> None:
        self.name = name_of(node)
        self.nodes: dict[str, NodePlan] = {}
        self.tensors: dict[str, QuantParams] = {}
        self.added: list[str] = []
        self._graph, self._node, self._plan, self._names = graph, node, plan, names
        self._entry = plan.nodes[self.name]
        self._result = plan.tensors.get(name_of(node.outputs[0]))
        weight = constant_array(_given(node.inputs[1]))
        assert weight is not None
        self._form = sub_pixel_of(node, weight.shape)

    def write(self) -> None:
        """Replace the node."""
        *steps, last = self._steps()
        value: ir.Value | None = None
        for step in steps:
            value = self._add(step, value)
            if self._result is not None:
                self.tensors[name_of(value)] = self._result
        become(self._node, last.op_type, _inputs(last, value), last.attributes)
        self.nodes[self.name] = self._planned(last)

    def _steps(self) -> Iterator[_Step]:
        """Yield what is written, each node reading the result of the one before."""
        form, data = self._form, _given(self._node.inputs[0])
        count, channels = len(form.axes), form.groups * form.channels
        batch, _, *before = [None] * (count + 2) if data.shape is None else _dims(data.shape)
        sizes = [None if n is None else n + axis.growth for n, axis in zip(before, form.axes, strict=True)]
        conv: Attributes = {"kernel_shape": form.kernel, "pads": form.pads, "group": form.groups}
        yield _Step("Conv", [batch, channels * form.phases, *sizes], self._operands(), conv)
        if form.phases == 1 and not form.crops:
            return
        last = {"perm": [0, *range(2, count + 2), 1]}
        yield _Step("Transpose", [batch, *sizes, channels * form.phases], (), last)
        shape = self._interleaved_shape(sizes)
        if form.groups > 1 or count > 1:
            yield from self._phases_beside_sizes([batch, *sizes])
        sizes = [None if n is None else n * s for n, s in zip(sizes, form.strides, strict=True)]
        yield _Step("Reshape", [batch, *sizes, channels], [shape])
        if form.crops:
            crops = [axis.crop for axis in form.axes]
            sizes = [None if n is None else n - sum(crop) for n, crop in zip(sizes, crops, strict=True)]
            yield _Step("Slice", [batch, *sizes, channels], self._bounds(crops))
        first = {"perm": [0, count + 1, *range(1, count + 1)]}
        yield _Step("Transpose", [batch, channels, *sizes], (), first)

    def _phases_beside_sizes(self, sizes: Dims) -> Iterator[_Step]:
        """Yield what moves each phase behind its axis, in runs of elements that are as long as can be."""
        form, count = self._form, len(self._form.axes)
        if form.groups > 1:
            split = [form.groups, *form.strides, form.channels]
            order = [count + 1, 2 * count + 2]
        else:  # the last phase and the channels are side by side before and after
            split = [*form.strides[:-1], form.strides[-1] * form.channels]
            order = []
        phases = range(count + 1 + len(order) // 2, 2 * count + 1 + len(order) // 2)
        perm = [0, *(axis for pair in zip(range(1, count + 1), phases, strict=True) for axis in pair), *order]
        shape = self._constant("split", np.array([0] * (count + 1) + split, np.int64))
        before = [*sizes, *split]
        yield _Step("Reshape", before, [shape])
        yield _Step("Transpose", [before[axis] for axis in perm], (), {"perm": perm})

    def _operands(self) -> list[ir.Value | None]:
        """Return the inputs of the Conv, which are given the parameters that those of the node have."""
        operands: list[ir.Value | None] = [self._node.inputs[0]]
        for index, value in enumerate(self._node.inputs[1:3], start=1):
            array = None if value is None else constant_array(value)
            if value is None or array is None:
                operands.append(value)
                continue
            params = self._plan.params_read(self.name, index, name_of(value))
            made = self._form.weight(array) if index == 1 else self._form.per_phase(array)
            constant = self._constant("weight" if index == 1 else "bias", made)
            if params is not None:
                self.tensors[name_of(constant)] = _per_phase(self._form, params)
            operands.append(constant)
        return operands

    def _bounds(self, crops: Sequence[tuple[int, int]]) -> list[ir.Value]:
        starts = np.array([before for before, _ in crops], np.int64)
        ends = np.array([-after if after else END for _, after in crops], np.int64)
        axes = np.arange(1, len(crops) + 1, dtype=np.int64)
        return [self._constant(n, a) for n, a in (("starts", starts), ("ends", ends), ("axes", axes))]

    def _interleaved_shape(self, sizes: Dims) -> ir.Value:
        """Return the shape before cropping, computed at run time where several sizes are not known."""
        form = self._form
        channels = form.groups * form.channels
        if sum(size is None for size in sizes) <= 1:
            whole = [-1 if n is None else n * s for n, s in zip(sizes, form.strides, strict=True)]
            return self._constant("shape", np.array([0, *whole, channels], np.int64))
        order = [0, *range(2, len(sizes) + 2), 1]
        factors = [1, *form.strides, 0]
        terms = [0, *(axis.stride * axis.growth for axis in form.axes), channels]
        shape = self._shape_step("Shape", self._node.inputs[0])
        shape = self._shape_step("Gather", shape, order)
        return self._shape_step("Add", self._shape_step("Mul", shape, factors), terms)

    def _shape_step(self, op_type: str, value: ir.Value | None, constant: Sequence[int] = ()) -> ir.Value:
        """Add a node that computes a shape from another and a constant."""
        others = [self._constant("sizes", np.array(constant, np.int64))] if constant else []
        made = self._add(_Step(op_type, [len(self._form.axes) + 2], others), value)
        made.type = ir.TensorType(ir.DataType.INT64)
        self.nodes[name_of(made.producer())] = NodePlan(Kind.FLOAT, because(ReasonCode.SHAPE_ARITHMETIC))
        return made

    def _constant(self, what: str, array: npt.NDArray[Any]) -> ir.Value:
        name = self._names.take(f"{self.name}_{what}")
        self.added.append(name)
        return add_initializer(self._graph, name, array)

    def _add(self, step: _Step, value: ir.Value | None) -> ir.Value:
        name = self._names.take(f"{self.name}_{step.op_type}")
        output = ir.Value(
            name=self._names.take(f"{name}_output"),
            type=ir.TensorType(ir.DataType.FLOAT),
            shape=ir.Shape(step.shape),
        )
        self.added.append(name_of(output))
        node = ir.node(step.op_type, _inputs(step, value), dict(step.attributes), outputs=[output], name=name)
        self._graph.insert_before(self._node, [node])
        self.nodes[name] = self._planned(step)
        return output

    def _planned(self, step: _Step) -> NodePlan:
        """Return the entry of a node; the Conv's constants have parameters of their own."""
        if step.op_type != "Conv":
            return NodePlan(Kind.PASS_THROUGH if self._result is not None else Kind.FLOAT)
        data = {index: params for index, params in self._entry.inputs.items() if index == 0}
        return replace(self._entry, inputs=data, implementation="")


def _inputs(step: _Step, value: ir.Value | None) -> list[ir.Value | None]:
    return [*([] if value is None else [value]), *step.others]


def _per_phase(form: SubPixel, params: QuantParams) -> QuantParams:
    """Return the parameters of a weight or bias of the Conv."""
    if params.axis is None:
        return params
    channels = form.groups * form.channels
    repeats = channels // len(params.scale)  # a weight of several groups has its channels anew in each
    scale = form.per_phase(np.tile(params.scale, repeats))
    zero_point = form.per_phase(np.tile(params.zero_point, repeats))
    return QuantParams(scale, zero_point, params.qtype, 0, params.block_size)


def _dims(shape: ir.Shape) -> list[int | None]:
    return [dim if isinstance(dim, int) else None for dim in shape]


def _given(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value
