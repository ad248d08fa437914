"""Channels padded as the plan says: zeros beside the weights that make and read an activation.

See `plan.channel_groups` for why the results stay the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..model.graph import constant_of, name_of
from ..numerics.affine import QuantParams
from ..operators.graph import index
from ..plan.channel_groups import CHANNELS, ChannelGroup, channel_groups
from ..plan.plan import QuantPlan
from ..plan.provenance import write_metadata
from .lowered import PADDED


def pad_channels(model: ir.Model, plan: QuantPlan, *, whole: bool) -> tuple[ir.Model, QuantPlan]:
    """Return a model and its plan with padded channels; unless `whole`, groups at its ends may be cut off."""
    wanted = plan.adjustments.padded_channels
    if not wanted:
        return model, plan
    model = model.clone()
    graph = index(model)
    padded_groups: list[tuple[ChannelGroup, int]] = []
    for group in channel_groups(graph, plan):
        sizes = {wanted.get(name, group.channels) for name in group.tensors}
        if sizes == {group.channels}:
            continue
        if len(sizes) != 1 or min(sizes) < group.channels:
            raise PlanError(
                f"plan: adjustments: padded_channels of '{group.tensors[0]}': it and its tied tensors need "
                f"one number of at least {group.channels}; correct the entries"
            )
        padded_groups.append((group, sizes.pop()))
    float_channels = {name: group.channels for group, _ in padded_groups for name in group.tensors}
    unknown = wanted.keys() - float_channels.keys()
    if unknown and whole:
        raise PlanError(
            f"plan: adjustments: padded_channels of '{min(unknown)}': the nodes around it cannot take more "
            "channels; remove the entry"
        )

    params = dict(plan.tensors)
    for group, channels in padded_groups:
        more = channels - group.channels
        for name in group.tensors:
            sizes_of_tensor = graph.values[name].shape
            assert sizes_of_tensor is not None
            graph.values[name].shape = ir.Shape(
                [channels if axis == CHANNELS else size for axis, size in enumerate(sizes_of_tensor)]
            )
        for name in group.depthwise:
            graph.node(name).attributes["group"] = ir.AttrInt64("group", channels)
        for node, position, axis_padded in group.constants:
            value = graph.node(node).ir_node.inputs[position]
            array = constant_of(value)
            assert value is not None
            assert array is not None
            widths = [(0, more if axis == axis_padded else 0) for axis in range(array.ndim)]
            padded = np.pad(array, widths)
            value.const_value, value.shape = ir.Tensor(padded, name=value.name), ir.Shape(padded.shape)
            known = params.get(name_of(value))
            if known is not None and known.axis == axis_padded:  # the added ones have those of the last
                scale, zero_point = (np.pad(n, (0, more), "edge") for n in (known.scale, known.zero_point))
                params[name_of(value)] = QuantParams(
                    scale, zero_point, known.qtype, known.axis, known.block_size
                )
    write_metadata(model, {PADDED: float_channels})
    return model, replace(plan, tensors=params)
