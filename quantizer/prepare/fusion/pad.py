"""Pad has amounts for all axes; zeros before a convolution move into the convolution's own pads."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...model.editing import (
    ORIGIN,
    feeding,
    has_input,
    is_standard,
    origins,
    rank,
    replace_constant,
    value_names,
)
from ...model.graph import constant_of


def fold_pads(model: ir.Model) -> int:
    """Fold Pad with constant zeros into the Conv after it; return how many.

    The Pad must have no other consumer and pad spatial axes only, not by negative numbers, and the
    convolution must have explicit pads (`auto_pad` NOTSET or VALID).
    """
    folded = 0
    for node in list(model.graph):
        if not is_standard(node, "Conv"):
            continue
        pad = feeding(node.inputs[0], "Pad")
        weight = node.inputs[1]
        if pad is None or weight is None or weight.shape is None:
            continue
        amounts = _spatial_zeros(pad, len(weight.shape))
        mode = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else "NOTSET"
        if amounts is None or mode not in ("NOTSET", "VALID"):
            continue
        own = (
            list(node.attributes["pads"].as_ints()) if "pads" in node.attributes and mode == "NOTSET" else []
        )
        total = [a + b for a, b in zip(amounts, own or [0] * len(amounts), strict=True)]
        node.attributes.pop("auto_pad", None)
        node.attributes["pads"] = ir.AttrInt64s("pads", total)
        node.replace_input_with(0, pad.inputs[0])
        node.meta[ORIGIN] = origins((pad, node))
        assert node.graph is not None
        node.graph.remove(pad, safe=True)
        folded += 1
    return folded


def pad_all_axes(model: ir.Model) -> int:
    """Write the amounts of Pad for all axes where its input `axes` is constant; return how many.

    A value is dropped in modes that do not read it. onnxruntime 1.31 mishandles `axes` beside an integer
    Conv: its layout optimizer gathers the amounts of axes that are not there.
    """
    changed = 0
    taken: set[str] = set()
    for node in model.graph:
        if not is_standard(node, "Pad"):
            continue
        if has_input(node, 2) and node.attributes.get_string("mode", "constant") != "constant":
            node.replace_input_with(2, None)
            changed += 1
        amounts, dims = _amounts(node), rank(node.inputs[0])
        if not has_input(node, 3) or amounts is None or dims is None:
            continue
        taken = taken or value_names(model)
        pads = [amounts.get(axis, (0, 0)) for axis in range(dims)]
        array = np.array([begin for begin, _ in pads] + [end for _, end in pads], np.int64)
        replace_constant(node, 1, array, taken)
        node.resize_inputs(3 if has_input(node, 2) else 2)
        changed += 1
    return changed


def _amounts(pad: ir.Node) -> dict[int, tuple[int, int]] | None:
    """Return the amounts at begin and end by axis; None where they or the axes are not constant, or an axis
    is named twice."""
    dims, pads = rank(pad.inputs[0]), constant_of(pad.inputs[1]) if has_input(pad, 1) else None
    axes = constant_of(pad.inputs[3]) if has_input(pad, 3) else np.arange(dims or 0)
    if dims is None or pads is None or axes is None or pads.size != 2 * axes.size:
        return None
    numbers = [int(axis) % dims for axis in axes.reshape(-1)]
    if len(set(numbers)) < len(numbers):
        return None
    ends = pads.reshape(2, -1)
    return {axis: (int(ends[0, i]), int(ends[1, i])) for i, axis in enumerate(numbers)}


def _spatial_zeros(pad: ir.Node, dims: int) -> list[int] | None:
    """Return begins and ends of the spatial axes; None unless the Pad adds zeros on those axes alone."""
    mode = pad.attributes["mode"].as_string() if "mode" in pad.attributes else "constant"
    pads = constant_of(pad.inputs[1]) if has_input(pad, 1) else None
    if mode != "constant" or pads is None or np.any(pads < 0):
        return None
    if has_input(pad, 2):
        value = constant_of(pad.inputs[2])
        if value is None or np.any(value != 0):
            return None
    axes = list(range(dims))
    if has_input(pad, 3):
        padded = constant_of(pad.inputs[3])
        if padded is None:
            return None
        axes = [int(axis) % dims for axis in padded]
    if pads.size != 2 * len(axes):
        return None
    begins, ends = [0] * dims, [0] * dims
    for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        begins[axis], ends[axis] = int(begin), int(end)
    if any(begins[:2]) or any(ends[:2]):
        return None
    return begins[2:] + ends[2:]
