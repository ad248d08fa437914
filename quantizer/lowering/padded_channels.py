"""Channels padded as the plan says: zeros beside the weights that make and read an activation.

See `plan.channel_groups` for why the results stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..model.graph import constant_of
from ..numerics.affine import QuantParams
from ..operators.graph import Graph, index
from ..plan.channel_groups import CHANNELS, ChannelGroup, PaddedConstant, channel_groups
from ..plan.plan import QuantPlan
from .lowered import PADDED


def padded_channels(model: ir.Model, plan: QuantPlan, *, whole: bool = True) -> tuple[ir.Model, QuantPlan]:
    """Return a float model and its plan with padded channels; the given ones where the plan pads none.

    Args:
        model: with the adjustments of the plan that change values; left as it was.
        plan: of this model.
        whole: whether it is a whole model. Of a part, a group that reaches its ends is left as it is.

    Raises:
        PlanError: an activation is padded that cannot be, or to fewer channels than it has, or to others than
            those that it is tied to.
    """
    wanted = plan.adjustments.padded_channels
    if not wanted:
        return model, plan
    work = model.clone()
    graph = index(work)
    chosen = list(_chosen(graph, plan, wanted))
    unknown = wanted.keys() - {name for group, _ in chosen for name in group.tensors}
    if unknown and whole:
        raise PlanError(
            f"plan: adjustments: padded_channels of '{min(unknown)}': the nodes around it cannot take more "
            "channels; remove the entry"
        )
    params: dict[str, QuantParams] = {}
    nodes = {node.name: node for node in graph.nodes}
    for group, channels in chosen:
        _pad_group(group, channels, graph)
        for constant in group.constants:
            name = nodes[constant.node].inputs[constant.index]
            known = params.get(name, plan.tensors.get(name))
            if known is not None:
                params[name] = _params(known, constant, channels - group.channels)
    sizes = {name: group.channels for group, _ in chosen for name in group.tensors}
    work.metadata_props[PADDED] = json.dumps(sizes, separators=(",", ":"), ensure_ascii=False)
    return work, replace(plan, tensors={**plan.tensors, **params})


def _chosen(graph: Graph, plan: QuantPlan, wanted: Mapping[str, int]) -> Iterator[tuple[ChannelGroup, int]]:
    """Yield the groups that are padded, each with the channels that it gets."""
    for group in channel_groups(graph, plan):
        sizes = {wanted.get(name, group.channels) for name in group.tensors}
        if sizes == {group.channels}:
            continue
        if len(sizes) != 1 or min(sizes) < group.channels:
            raise PlanError(
                f"plan: adjustments: padded_channels of '{group.tensors[0]}': it and what it is tied to need "
                f"one number of at least {group.channels}; correct the entries"
            )
        yield group, next(iter(sizes))


def _pad_group(group: ChannelGroup, channels: int, graph: Graph) -> None:
    for name in group.tensors:
        shape = graph.values[name].shape
        assert shape is not None
        graph.values[name].shape = ir.Shape(
            [channels if axis == CHANNELS else dim for axis, dim in enumerate(shape)]
        )
    for name in group.depthwise:
        graph.node(name).attributes["group"] = ir.AttrInt64("group", channels)
    for constant in group.constants:
        value = graph.node(constant.node).ir_node.inputs[constant.index]
        array = constant_of(value)
        assert value is not None
        assert array is not None
        more = [(0, channels - group.channels if axis == constant.axis else 0) for axis in range(array.ndim)]
        new = np.pad(array, more)
        value.const_value, value.shape = ir.Tensor(new, name=value.name), ir.Shape(new.shape)


def _params(params: QuantParams, constant: PaddedConstant, more: int) -> QuantParams:
    """Return the parameters of a constant with more channels: those of the last one for each."""
    if params.axis != constant.axis:
        return params
    scale, zero_point = np.pad(params.scale, (0, more), "edge"), np.pad(params.zero_point, (0, more), "edge")
    return QuantParams(scale, zero_point, params.qtype, params.axis, params.block_size)
