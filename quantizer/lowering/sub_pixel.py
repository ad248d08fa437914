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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import value_names
from ..model.editing import FreeNames, add_initializer
from ..model.graph import name_of
from ..numerics.affine import QuantParams
from ..operators.sub_pixel import SubPixel, sub_pixel_of
from ..plan.plan import Implementation, Kind, NodePlan, QuantPlan
from ..plan.reasons import ReasonCode, because
from .emitter import become, constant_shape
from .lowered import LoweredModel, WrittenNames, with_record

SLICE_TO_END = np.iinfo(np.int64).max
"""End of a Slice, beyond every tensor."""


def write_as_convolutions(model: ir.Model, plan: QuantPlan) -> tuple[ir.Model, QuantPlan, dict[str, str]]:
    """Return the model and its plan with a Conv for each ConvTranspose that is planned so.

    Args:
        model: nodes of the prepared model, with the adjustments of the plan; left as it was.
        plan: with entries for these nodes and perhaps more.

    Returns:
        Model and plan for a form; and added node -> node of the prepared model that it is a part of.
    """

    def is_planned_so(node: ir.Node) -> bool:
        entry = plan.nodes.get(name_of(node))
        return entry is not None and entry.implementation == Implementation.SUB_PIXEL

    if not any(map(is_planned_so, model.graph)):
        return model, plan, {}
    model = model.clone()
    names = FreeNames(value_names(model) | {name_of(node) for node in model.graph.all_nodes()})
    tensors, nodes, owners = dict(plan.tensors), dict(plan.nodes), dict[str, str]()
    for node in filter(is_planned_so, list(model.graph)):
        new_tensors, new_nodes = _write_as_convolution(model.graph, node, plan, names)
        tensors |= new_tensors
        nodes |= new_nodes
        owners |= {name: name_of(node) for name in new_nodes if name != name_of(node)}
    return model, replace(plan, tensors=tensors, nodes=nodes), owners


def in_prepared_names(lowered: LoweredModel, prepared: ir.Model, owners: Mapping[str, str]) -> LoweredModel:
    """Return a written model with the names of the prepared model alone.

    Args:
        lowered: the written form of a model that `write_as_convolutions` has returned.
        prepared: the model before.
        owners: added node -> node of the prepared model.
    """
    if not owners:
        return lowered
    written, tensors = lowered.names, value_names(prepared)
    nodes = {name: parts for name, parts in written.nodes.items() if name not in owners}
    for added, owner in owners.items():
        nodes[owner] = (*nodes[owner], *written.nodes[added])
    names = WrittenNames({name: t for name, t in written.tensors.items() if name in tensors}, nodes)
    return with_record(replace(lowered, names=names))


@dataclass(frozen=True)
class _Step:
    """One node of those that replace a ConvTranspose.

    Attributes:
        op_type, attributes: the operator.
        shape: of its result, None for a size that is not known.
        operands: its inputs besides the result of the step before.
    """

    op_type: str
    shape: Sequence[int | None]
    operands: Sequence[ir.Value | None] = ()
    attributes: Mapping[str, Sequence[int] | int] = field(default_factory=dict)

    def inputs(self, previous: ir.Value | None) -> list[ir.Value | None]:
        return [*([] if previous is None else [previous]), *self.operands]


def _write_as_convolution(
    graph: ir.Graph, node: ir.Node, plan: QuantPlan, names: FreeNames
) -> tuple[dict[str, QuantParams], dict[str, NodePlan]]:
    """Write one ConvTranspose, whose node becomes the last of those that replace it.

    Returns:
        Entries of the plan for the new tensors and nodes, and for the node itself.
    """
    name, data, weight = name_of(node), node.inputs[0], node.inputs[1]
    entry, result = plan.nodes[name], plan.tensors.get(name_of(node.outputs[0]))
    assert data is not None
    assert weight is not None
    weight_shape = constant_shape(weight)
    assert weight_shape is not None
    form = sub_pixel_of(node, weight_shape)
    channels, rank = form.groups * form.channels, len(form.axes) + 2
    tensors: dict[str, QuantParams] = {}
    nodes: dict[str, NodePlan] = {}

    def constant(suffix: str, array: npt.NDArray[Any]) -> ir.Value:
        return add_initializer(graph, names.take(f"{name}_{suffix}"), array)

    def planned(step: _Step) -> NodePlan:
        if step.op_type != "Conv":
            return NodePlan(Kind.PASS_THROUGH if result is not None else Kind.FLOAT)
        # The Conv's constants have parameters of their own.
        data_params = {index: params for index, params in entry.inputs.items() if index == 0}
        return replace(entry, inputs=data_params, implementation=Implementation.USUAL)

    def add(step: _Step, previous: ir.Value | None, plan_entry: NodePlan) -> ir.Value:
        step_name = names.take(f"{name}_{step.op_type}")
        output = ir.Value(
            name=names.take(f"{step_name}_output"),
            type=ir.TensorType(ir.DataType.FLOAT),
            shape=ir.Shape(step.shape),
        )
        attributes = dict(step.attributes)
        new = ir.node(step.op_type, step.inputs(previous), attributes, outputs=[output], name=step_name)
        graph.insert_before(node, [new])
        nodes[step_name] = plan_entry
        return output

    # 1. The Conv, its weight and bias repeated for each phase.
    operands: list[ir.Value | None] = [data]
    for index, value in enumerate(node.inputs[1:3], start=1):
        if value is None or constant_shape(value) is None:
            operands.append(value)
            continue
        assert value.const_value is not None
        array = value.const_value.numpy()
        params = plan.params_read(name, index, name_of(value))
        if index == 1:
            operand = constant("weight", form.weight(array))
        else:
            operand = constant("bias", form.repeat_per_phase(array))
        if params is not None:
            tensors[name_of(operand)] = _params_per_phase(form, params)
        operands.append(operand)
    shape = [None] * rank if data.shape is None else [d if isinstance(d, int) else None for d in data.shape]
    batch, sizes = shape[0], shape[2:]
    sizes = [None if n is None else n + axis.growth for n, axis in zip(sizes, form.axes, strict=True)]
    conv: Mapping[str, Sequence[int] | int] = {
        "kernel_shape": form.kernel,
        "pads": form.pads,
        "group": form.groups,
    }
    steps = [_Step("Conv", [batch, channels * form.phases, *sizes], operands, conv)]
    if form.phases > 1 or form.crops:
        # 2. The shape that the phases are interleaved to, computed at run time where several
        # sizes are unknown.
        if sizes.count(None) <= 1:
            whole = [-1 if n is None else n * s for n, s in zip(sizes, form.strides, strict=True)]
            interleaved = constant("shape", np.array([0, *whole, channels], np.int64))
        else:
            interleaved = data
            for op_type, numbers in (
                ("Shape", []),
                ("Gather", [0, *range(2, rank), 1]),
                ("Mul", [1, *form.strides, 0]),
                ("Add", [0, *(axis.stride * axis.growth for axis in form.axes), channels]),
            ):
                others = [constant("sizes", np.array(numbers, np.int64))] if numbers else []
                reason = because(ReasonCode.SHAPE_ARITHMETIC)
                interleaved = add(_Step(op_type, [rank], others), interleaved, NodePlan(Kind.FLOAT, reason))
                interleaved.type = ir.TensorType(ir.DataType.INT64)
        # 3. Channels last; each phase behind its axis.
        channels_last = {"perm": [0, *range(2, rank), 1]}
        steps.append(_Step("Transpose", [batch, *sizes, channels * form.phases], (), channels_last))
        if form.groups > 1 or len(form.axes) > 1:
            split, perm = _phases_beside_sizes(form)
            before = [batch, *sizes, *split]
            split_shape = constant("split", np.array([0] * (rank - 1) + split, np.int64))
            steps.append(_Step("Reshape", before, [split_shape]))
            steps.append(_Step("Transpose", [before[axis] for axis in perm], (), {"perm": perm}))
        sizes = [None if n is None else n * s for n, s in zip(sizes, form.strides, strict=True)]
        steps.append(_Step("Reshape", [batch, *sizes, channels], [interleaved]))
        # 4. The sizes of the result; channels first.
        if form.crops:
            crops = [axis.crop for axis in form.axes]
            sizes = [None if n is None else n - sum(crop) for n, crop in zip(sizes, crops, strict=True)]
            bounds = [
                constant("starts", np.array([start for start, _ in crops], np.int64)),
                constant("ends", np.array([-end if end else SLICE_TO_END for _, end in crops], np.int64)),
                constant("axes", np.arange(1, rank - 1, dtype=np.int64)),
            ]
            steps.append(_Step("Slice", [batch, *sizes, channels], bounds))
        channels_first = {"perm": [0, rank - 1, *range(1, rank - 1)]}
        steps.append(_Step("Transpose", [batch, channels, *sizes], (), channels_first))

    value = None
    for step in steps[:-1]:
        value = add(step, value, planned(step))
        if result is not None:
            tensors[name_of(value)] = result
    become(node, steps[-1].op_type, steps[-1].inputs(value), steps[-1].attributes)
    nodes[name] = planned(steps[-1])
    return tensors, nodes


def _phases_beside_sizes(form: SubPixel) -> tuple[list[int], list[int]]:
    """Return how the Conv's channels are split, and the permutation that puts each phase behind its axis.

    Runs of elements that are moved together are as long as can be.
    """
    count = len(form.axes)
    if form.groups > 1:
        split = [form.groups, *form.strides, form.channels]
        order = [count + 1, 2 * count + 2]
    else:  # the last phase and the channels are side by side before and after
        split = [*form.strides[:-1], form.strides[-1] * form.channels]
        order = []
    phases = range(count + 1 + len(order) // 2, 2 * count + 1 + len(order) // 2)
    interleaved = (axis for pair in zip(range(1, count + 1), phases, strict=True) for axis in pair)
    return split, [0, *interleaved, *order]


def _params_per_phase(form: SubPixel, params: QuantParams) -> QuantParams:
    """Return the parameters of a weight or bias of the Conv."""
    if params.axis is None:
        return params
    repeats = form.groups * form.channels // len(params.scale)  # each group of a weight has its channels anew
    scale = form.repeat_per_phase(np.tile(params.scale, repeats))
    zero_point = form.repeat_per_phase(np.tile(params.zero_point, repeats))
    return QuantParams(scale, zero_point, params.qtype, 0, params.block_size)
