"""ConvTranspose written as Conv.

See `phases` for the arithmetic. The Conv computes quantized values with the parameters of the result; the
operators after it only move values:

=========  ===============================================  ==================================================
Conv       [N, groups * phases * channels, *sizes]          the sums, requantized
Transpose  [N, *sizes, groups * phases * channels]          channels last
Reshape    [N, *sizes, groups, *phases, channels]
Transpose  [N, size, phase, size, phase, groups, channels]  omitted for one axis and one group
Reshape    [N, *sizes * phases, groups * channels]
Slice      the sizes of the result                          omitted if nothing must be cropped
Transpose  [N, groups * channels, *sizes]
=========  ===============================================  ==================================================

DepthToSpace does the same in one node. But onnxruntime 1.31 on x86-64 computes quantized convolutions with
channels last, and cancels the outer two Transposes with its own; the inner one moves whole runs of channels.
This takes 0.05 ms for 64 channels of 112 x 112; DepthToSpace takes 0.65 ms and two changes of layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ...lowering.emitter import constant_shape
from ...lowering.replacement import Replacement, Step
from ...model.graph import name_of
from ...numerics.affine import QuantParams
from ...plan.plan import Implementation, Kind, NodePlan
from ...plan.reasons import ReasonCode, because
from .phases import SubPixel, sub_pixel_of

SLICE_TO_END = np.iinfo(np.int64).max
"""End of a Slice, beyond every tensor."""


def write_convolution(written: Replacement) -> None:
    """Write one ConvTranspose."""
    node, entry = written.node, written.entry
    result = written.plan.tensors.get(name_of(node.outputs[0]))
    data, weight = node.inputs[:2]
    assert data is not None
    assert weight is not None
    weight_shape = constant_shape(weight)
    assert weight_shape is not None
    form = sub_pixel_of(node, weight_shape)
    channels, rank = form.groups * form.channels, len(form.axes) + 2

    def planned(step: Step) -> NodePlan:
        if step.op_type != "Conv":
            return NodePlan(Kind.PASS_THROUGH if result is not None else Kind.FLOAT)
        # The Conv's constants have parameters of their own.
        data_params = {index: params for index, params in entry.inputs.items() if index == 0}
        return replace(entry, inputs=data_params, implementation=Implementation.USUAL)

    # 1. The Conv, its weight and bias repeated for each phase.
    def per_phase(params: QuantParams) -> QuantParams:
        return _params_per_phase(form, params)

    operands = [data, written.of_constant(1, "weight", form.weight, per_phase)]
    if len(node.inputs) > 2:
        operands.append(written.of_constant(2, "bias", form.repeat_per_phase, per_phase))
    shape = [None] * rank if data.shape is None else [d if isinstance(d, int) else None for d in data.shape]
    batch, sizes = shape[0], shape[2:]
    sizes = [None if n is None else n + axis.growth for n, axis in zip(sizes, form.axes, strict=True)]
    conv: Mapping[str, Sequence[int] | int] = {
        "kernel_shape": form.kernel,
        "pads": form.pads,
        "group": form.groups,
    }
    steps = [Step("Conv", [batch, channels * form.phases, *sizes], operands, conv)]
    if form.phases > 1 or form.crops:
        # 2. The shape that the phases are interleaved to, computed at run time where several
        # sizes are unknown.
        if sizes.count(None) <= 1:
            whole = [-1 if n is None else n * s for n, s in zip(sizes, form.strides, strict=True)]
            interleaved = written.constant("shape", np.array([0, *whole, channels], np.int64))
        else:
            interleaved = data
            for op_type, numbers in (
                ("Shape", []),
                ("Gather", [0, *range(2, rank), 1]),
                ("Mul", [1, *form.strides, 0]),
                ("Add", [0, *(axis.stride * axis.growth for axis in form.axes), channels]),
            ):
                others = [written.constant("sizes", np.array(numbers, np.int64))] if numbers else []
                reason = because(ReasonCode.SHAPE_ARITHMETIC)
                interleaved = written.add(
                    Step(op_type, [rank], others), interleaved, NodePlan(Kind.FLOAT, reason)
                )
                interleaved.type = ir.TensorType(ir.DataType.INT64)
        # 3. Channels last; each phase behind its axis.
        channels_last = {"perm": [0, *range(2, rank), 1]}
        steps.append(Step("Transpose", [batch, *sizes, channels * form.phases], (), channels_last))
        if form.groups > 1 or len(form.axes) > 1:
            split, perm = _phases_beside_sizes(form)
            before = [batch, *sizes, *split]
            split_shape = written.constant("split", np.array([0] * (rank - 1) + split, np.int64))
            steps.append(Step("Reshape", before, [split_shape]))
            steps.append(Step("Transpose", [before[axis] for axis in perm], (), {"perm": perm}))
        sizes = [None if n is None else n * s for n, s in zip(sizes, form.strides, strict=True)]
        steps.append(Step("Reshape", [batch, *sizes, channels], [interleaved]))
        # 4. The sizes of the result; channels first.
        if form.crops:
            crops = [axis.crop for axis in form.axes]
            sizes = [None if n is None else n - sum(crop) for n, crop in zip(sizes, crops, strict=True)]
            bounds = [
                written.constant("starts", np.array([start for start, _ in crops], np.int64)),
                written.constant(
                    "ends", np.array([-end if end else SLICE_TO_END for _, end in crops], np.int64)
                ),
                written.constant("axes", np.arange(1, rank - 1, dtype=np.int64)),
            ]
            steps.append(Step("Slice", [batch, *sizes, channels], bounds))
        channels_first = {"perm": [0, rank - 1, *range(1, rank - 1)]}
        steps.append(Step("Transpose", [batch, channels, *sizes], (), channels_first))

    value = None
    for step in steps[:-1]:
        value = written.add(step, value, planned(step))
        if result is not None:
            written.tensors[name_of(value)] = result
    written.finish(steps[-1], value, planned(steps[-1]))


def _phases_beside_sizes(form: SubPixel) -> tuple[list[int], list[int]]:
    """Return the split of the Conv's channels, and the permutation that puts each phase behind its axis."""
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
