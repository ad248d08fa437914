"""What a file of parameters leaves to the model: axes, tensors that are only moved, folded weights. Pure.

Files of parameters are for converters that know the model, so that they do not say what follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import constant_of
from ..numerics.affine import QuantParams
from ..operators.graph import Graph, Node
from ..operators.table import Constraint
from ..operators.weight_layout import WeightLayout
from .folded_scales import folded_factors, folded_params
from .values import ForeignParams


def with_moved_values(params: ForeignParams, graph: Graph) -> ForeignParams:
    """Return parameters with those of the outputs of operators that only move or select values.

    Files of parameters are for converters that know the model: AIMET and onnxruntime give the output of
    Reshape or MaxPool no parameters, since it has those of its input.

    Args:
        params: as read.
        graph: of the prepared model.
    """
    tensors, added = dict(params.tensors), []
    for node in graph.nodes:
        rule, source = node.rule, tensors.get(node.input(0))
        if (
            rule is None
            or rule.constraint is not Constraint.SAME
            or source is None
            or source.axis is not None
        ):
            continue
        missing = [name for name in node.results if name not in tensors and graph.is_float(name)]
        tensors.update(dict.fromkeys(missing, source))
        added += missing
    if not added:
        return params
    some = f"'{added[0]}'" if len(added) == 1 else f"'{added[0]}' and {len(added) - 1} more"
    note = f"taken from what they read, for the file has no parameters of them: {some}"
    return replace(params, tensors=tensors, notes=(*params.notes, note))


def with_folded_constants(params: ForeignParams, original: ir.Model, graph: Graph) -> ForeignParams:
    """Return parameters for the constants of the prepared model, where preparation gave them other values.

    A weight into which a BatchNormalization was folded keeps its name, and has the same integers with scales
    that are multiplied by what was folded in, channel by channel. Other constants that were changed have no
    parameters.

    Args:
        params: as read, for the model as its file has it, with axes (`with_axes`).
        original: that model.
        graph: of the prepared model.
    """
    values, tensors = original.graph.initializers, dict(params.tensors)
    folded, lost = list[str](), list[str]()
    for name in params.tensors:
        before = constant_of(values[name]) if name in values else None
        after = graph.constant(name)
        if before is None or after is None or np.array_equal(before, after):
            continue
        multiplied = _folded_weight(name, before, params.tensors[name], graph)
        if multiplied is None:
            del tensors[name]
        else:
            tensors[name] = multiplied
        (lost if multiplied is None else folded).append(name)
    notes = (*params.notes, *_folding_notes(folded, lost))
    return replace(params, tensors=tensors, notes=notes)


def _folded_weight(
    name: str, before: npt.NDArray[Any], params: QuantParams, graph: Graph
) -> QuantParams | None:
    """Return the parameters of a weight that was multiplied channel by channel; None where it was not."""
    after, readers = graph.constant(name), tuple(graph.consumers(name))
    if after is None or len(readers) != 1:
        return None
    ((node, position),) = readers
    rule = node.rule
    layout = None if rule is None else rule.weight
    axis = layout.axis(node, after.ndim) if layout is not None and layout.index == position else None
    if axis is None:
        return None
    factors = folded_factors(before, after, axis % after.ndim)
    return None if factors is None else folded_params(params, factors, axis % after.ndim)


def _folding_notes(folded: list[str], lost: list[str]) -> Iterator[str]:
    if folded:
        yield (
            f"{len(folded)} weights have a BatchNormalization folded in, such as '{folded[0]}': their scales "
            "are multiplied by what is, channel by channel"
        )
    if lost:
        yield (
            f"left out: {len(lost)} constants that preparation changed, such as '{lost[0]}', in another way "
            "than by a factor for each output channel: change them in the float model, and make the file for "
            "that"
        )


def with_axes(params: ForeignParams, graph: Graph) -> ForeignParams:
    """Return parameters whose axes are those of the model, where the file does not name them.

    A scale for each channel belongs to the output channels of the operator that reads the constant, or, where
    no operator says which those are, to the only axis of that length. Blocks lie along its input
    channels, in the order of AIMET 1.0: all blocks of the first output channel first. Scales of blocks that
    are the same for all taps of a kernel are written for each.

    Args:
        params: as read; `ForeignParams.axis_unknown` names the constants.
        graph: of the prepared model.

    Returns:
        Parameters without `axis_unknown`; what does not fit the model is left out, with a note.
    """
    tensors, notes = dict[str, QuantParams](), list(params.notes)
    for name in params.tensors:
        placed = _along_axis(name, params, graph)
        if placed is not None:
            tensors[name] = placed
        elif graph.is_constant(name):
            notes.append(f"left out: '{name}': its scales do not fit an axis of the model's constant")
        else:
            notes.append(f"left out: '{name}': it is an activation, and has several scales")
    return replace(params, tensors=tensors, notes=tuple(notes), axis_unknown=frozenset[str]())


def _along_axis(name: str, params: ForeignParams, graph: Graph) -> QuantParams | None:
    """Return the parameters of a tensor along the right axis; None where none fits."""
    known = params.tensors[name]
    if known.axis is None or name not in graph.values:
        return known
    shape = graph.shape(name)
    if shape is None or not graph.is_constant(name):
        one = len(known.scale) == 1 and known.block_size is None
        return replace(known, axis=None) if one else None
    sizes = tuple(size or 0 for size in shape)
    if known.block_size is not None:
        return _blocks_along(known, sizes, name in params.axis_unknown, _layouts(name, graph))
    if name not in params.axis_unknown:
        return known
    by_operator = [layout.axis(node, len(sizes)) for node, layout in _layouts(name, graph)]
    axes = (*by_operator, _only_axis(known, sizes))
    axis = next((a % len(sizes) for a in axes if a is not None and sizes[a] == len(known.scale)), None)
    return None if axis is None else replace(known, axis=axis)


def _layouts(name: str, graph: Graph) -> tuple[tuple[Node, WeightLayout], ...]:
    """Return the nodes that read a constant as a weight, with its layout there."""
    return tuple(
        (node, layout)
        for node, position in graph.consumers(name)
        if (rule := node.rule) is not None
        for layout in rule.constants
        if layout.index == position
    )


def _only_axis(params: QuantParams, sizes: tuple[int, ...]) -> int | None:
    axes = [axis for axis, size in enumerate(sizes) if size == len(params.scale)]
    return axes[0] if len(axes) == 1 else None


def _blocks_along(
    params: QuantParams,
    sizes: tuple[int, ...],
    unknown: bool,
    layouts: tuple[tuple[Node, WeightLayout], ...],
) -> QuantParams | None:
    """Return parameters of blocks with a scale for each block of ONNX's array, in its order."""
    assert params.axis is not None
    assert params.block_size is not None
    axes = [layout.blocked_axis(node, len(sizes)) for node, layout in layouts] if unknown else [params.axis]
    axis = next((axis % len(sizes) for axis in axes if axis is not None), None)
    if axis is None or axis > 1 or len(sizes) < 2:
        return None
    if sizes[axis] % params.block_size:
        return None
    blocks = sizes[axis] // params.block_size
    outer = [blocks if i == axis else sizes[i] for i in range(2)]
    taps = math.prod(sizes[2:])
    count = len(params.scale)
    if count == math.prod(outer) * taps and taps != 1 and not unknown:
        return params
    if count != math.prod(outer):
        return None
    swapped = unknown and axis == 0 and len(sizes) == 2  # the file has the output channels first
    order = np.arange(count).reshape(outer[::-1] if swapped else outer)
    places = (order.T if swapped else order).reshape(-1).repeat(taps)
    return replace(params, axis=axis, scale=params.scale[places], zero_point=params.zero_point[places])
