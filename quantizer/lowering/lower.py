"""Lowering: a prepared float model and its plan become a quantized ONNX model, in one of several forms.

A form only rewrites; every decision is in the plan. Adding a form is adding a file with one function and an
entry to `LOWERINGS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ConfigError, PlanError, nearest
from ..adjustments.equalization import apply_biases
from ..adjustments.rounded_weights import round_weights
from ..model.graph import check_scopes, constant_of
from ..numerics.affine import QuantParams
from ..operators.graph import Graph, index
from ..plan.channel_groups import CHANNELS, ChannelGroup, PaddedConstant, channel_groups
from ..plan.plan import BIAS_CORRECTED, QuantPlan
from ..plan.provenance import provenance_of, write_provenance
from .forms.integer import lower_integer
from .forms.primitives import lower_primitives
from .forms.qdq import lower_qdq
from .forms.qoperator import lower_qoperator
from .forms.regions import lower_regions
from .sub_pixel import write_as_convolutions
from .written import PADDED, Lowered, write_equalization

# Channels padded as the plan says: zeros beside the weights that make and read an activation.
#
# See `plan.channel_groups` for why the results stay the same.


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


LOWERINGS: Mapping[str, Callable[[ir.Model, QuantPlan], Lowered]] = {
    "qdq": lower_qdq,
    "qoperator": lower_qoperator,
    "integer": lower_integer,
    "primitives": lower_primitives,
    "regions": lower_regions,
}
"""Form -> what writes it; `targets.config.FORMS` has the same names."""


def lower(model: ir.Model, plan: QuantPlan) -> Lowered:
    """Return the quantized model that `plan` describes, in the form that it asks for, with its provenance.

    Args:
        model: the prepared float model with the equalization of the plan applied: opset 13 or later,
            nodes named, constants as initialisers. It is left as it was.
        plan: the plan of this model, verified.

    Returns:
        A model with the same graph inputs and outputs: names, order, element types. Its metadata say where
        it comes from (`Provenance`), and which channels are equalized.

    Raises:
        ConfigError: the form of the plan does not exist.
        PlanError: the plan does not fit the model, or the form cannot write a part of it.
    """
    lowered = _lowered(model, plan, whole=True)
    write_provenance(lowered.model, provenance_of(plan))
    write_equalization(lowered.model, plan.adjustments.equalization)
    return lowered


def lower_part(model: ir.Model, plan: QuantPlan) -> Lowered:
    """Return the quantized form of a part of a model without provenance, which is that of a whole.

    Args:
        model: nodes of the prepared model.
        plan: with entries for these nodes and perhaps more.

    Raises:
        ConfigError, PlanError: see `lower`.
    """
    return _lowered(model, plan, whole=False)


def _lowered(model: ir.Model, plan: QuantPlan, *, whole: bool) -> Lowered:
    form = plan.config.form
    if form not in LOWERINGS:
        names = tuple(LOWERINGS)
        raise ConfigError(f"form '{form}': no such form; use {', '.join(names)}.{nearest(form, names)}")
    padded, padded_plan = padded_channels(compensated(model, plan), plan, whole=whole)
    rewritten = write_as_convolutions(padded, padded_plan)
    lowered = rewritten.in_original_names(LOWERINGS[form](rewritten.model, rewritten.plan))
    check_scopes(lowered.model, f"form {form}")
    return lowered


def compensated(model: ir.Model, plan: QuantPlan) -> ir.Model:
    """Return the float model with the plan's corrected biases, and with weights rounded as it says.

    These weights are multiples of their scales, so that no form has to know how weights are rounded.
    """
    rounded = {name for name, entry in plan.nodes.items() if entry.kind in BIAS_CORRECTED}
    biases = {name: delta for name, delta in plan.adjustments.biases.items() if name in rounded}
    return apply_biases(round_weights(model, plan), biases)
