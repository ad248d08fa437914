"""Where each profiled tensor is read while a model runs: a graph input, an output, or an equal tensor.

Tensors inside the bodies of If, Loop and Scan are brought out as `body_taps` tells.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from ..base.errors import ConfigError, nearest
from .activations import resolved
from .subgraph_outputs import show_inner
from .subgraph_tensors import inner_tensors

_SAME_ORDER = ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators whose output holds exactly the elements of their first input, in the same order."""

_SAME_ELEMENTS = (*_SAME_ORDER, "Transpose", "DepthToSpace", "SpaceToDepth")
"""Operators whose output holds exactly the elements of their first input, in whatever order."""


@dataclass(frozen=True, eq=False)
class Tap:
    """A tensor to be profiled.

    Attributes:
        name: of the tensor.
        dtype: its element type.
        shape: its declared shape.
        maker: who makes it, for messages.
        source: graph output that holds it; None for a graph input, and where `same_as` says more.
        same_as: tensor with exactly the same elements, which is profiled in its place; None for none.
        axis: axis of the channels that are recorded one by one; None for none.
        stacked: for a tensor of a body, how many dimensions its arrays have in front that count the steps of
            Scans; None for a tensor of the main graph. A body may run many times, or not at all.
    """

    name: str
    dtype: ir.DataType
    shape: ir.Shape | None
    maker: str
    source: str | None
    same_as: str | None = None
    axis: int | None = None
    stacked: int | None = None

    @property
    def channels(self) -> int:
        """Number of channels that are recorded one by one; 0 for none."""
        dim = 0 if self.axis is None or self.shape is None else self.shape[self.axis]
        return dim if isinstance(dim, int) else 0

    @property
    def blocks_keep_channels(self) -> bool:
        """Whether blocks of channels, which are of axis 1, hold those that are recorded."""
        return self.axis is not None and self.shape is not None and self.axis % len(self.shape) == 1


def tapped(
    model: ir.Model, wanted: Collection[str] | None = None, channels: Mapping[str, int] | None = None
) -> tuple[ir.Model, tuple[Tap, ...]]:
    """Return a copy of the model that has the tensors to be profiled as outputs, and where each is found.

    Args:
        model: the prepared model; unchanged.
        wanted: names of the tensors; None for all floating-point activations that can be shown.
        channels: axis of the channels of the tensors whose channels are to be recorded; where the number of
            channels is not known, and where a tensor is not wanted, that is passed over.

    Raises:
        ConfigError: a wanted tensor is no floating-point activation, or cannot be shown.
        ModelError: a type is unknown, and onnxruntime cannot load the model.
    """
    found = {str(value.name): (value, dtype) for value, dtype in resolved(model)}
    inner = {str(i.value.name): i for i in inner_tensors(model) if not i.hidden}
    found |= {name: (i.value, i.dtype) for name, i in inner.items() if i.dtype is not None}
    names = list(found) if wanted is None else _known(wanted, found)
    values_of = {name: value for name, (value, _) in found.items()}
    axes = _known_axes(values_of, names, channels or {})
    twins, axes = _readers(values_of, names, axes)
    read = {twins.get(name, name) for name in names}
    copy = model.clone()
    values: dict[str, Any] = {v.name: v for node in copy.graph for v in node.outputs if v.name}
    there = {v.name for v in copy.graph.outputs}
    inputs = {v.name for v in copy.graph.inputs}
    taps: list[Tap] = []
    shown = show_inner(copy, read & set(inner))
    for name, (value, dtype) in found.items():
        if name not in read and name not in names:
            continue
        source, stacked = shown.get(name), inner[name].stacked if name in inner else None
        if name in read and name not in inputs and source is None:
            source = _output(copy, name, dtype, values, there)
        twin = twins.get(name)
        if name in names:
            taps.append(Tap(name, dtype, value.shape, _maker(value), source, twin, axes.get(name), stacked))
        else:  # read for others alone
            shape, axis = value.shape, axes.get(name)
            taps.append(Tap(name, dtype, shape, _maker(value), source, axis=axis, stacked=stacked))
    return copy, tuple(taps)


def _known(wanted: Collection[str], found: Mapping[str, object]) -> list[str]:
    unknown = sorted(set(wanted) - set(found))
    if unknown:
        raise ConfigError(
            f"tensor '{unknown[0]}': is no floating-point activation of the model; "
            f"name tensors as they are called after preparation.{nearest(unknown[0], found)}"
        )
    chosen = set(wanted)
    return [name for name in found if name in chosen]


def _first(value: ir.Value, found: Mapping[str, ir.Value], operators: Collection[str]) -> ir.Value:
    """Return the first of a chain of profiled tensors that such operators make of one another."""
    while (node := value.producer()) is not None:
        source = node.inputs[0] if node.inputs else None
        known = node.op_type in operators and node.domain in ("", "ai.onnx")
        if not known or source is None or found.get(str(source.name)) is not source:
            break
        if source.graph is not value.graph:
            break  # a body runs as often as it likes
        value = source
    return value


def _known_axes(
    found: Mapping[str, ir.Value], names: Collection[str], channels: Mapping[str, int]
) -> dict[str, int]:
    """Return the axes of those names whose number of channels is declared."""
    axes = {}
    for name in names:
        axis, shape = channels.get(name), found[name].shape
        if axis is not None and shape is not None and -len(shape) <= axis < len(shape):
            dim = shape[axis]
            if isinstance(dim, int) and dim > 0:
                axes[name] = axis
    return axes


def _readers(
    found: Mapping[str, ir.Value], names: Collection[str], axes: Mapping[str, int]
) -> tuple[dict[str, str], dict[str, int]]:
    """Return who is profiled in the place of whom, and the axes of all channels that are then recorded.

    Of tensors with the same elements one is read: the first, or the first whose channels are recorded where
    these cannot be told in the first. Others whose channels differ from its are read as well.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        if found[name].shape is not None:  # else its shape shows in its array alone
            alike.setdefault(str(_first(found[name], found, _SAME_ELEMENTS).name), []).append(name)
    twins: dict[str, str] = {}
    axes = dict(axes)
    for first, members in alike.items():
        asking = [name for name in members if name in axes]
        reader, axis = first, axes.get(first)
        if asking and axis is None:
            axis = _same_channels(found, first, asking[0], axes[asking[0]])
            if axis is not None:
                axes[first] = axis
            elif first not in names or first in members:
                reader, axis = asking[0], axes[asking[0]]
        for name in members:
            shared = name not in axes or (
                axis is not None
                and _same_channels(found, reader, name, axes[name]) == axis % _rank(found, reader)
            )
            if name != reader and shared:
                twins[name] = reader
    return twins, axes


def _rank(found: Mapping[str, ir.Value], name: str) -> int:
    shape = found[name].shape
    return 0 if shape is None else len(shape)


def _same_channels(found: Mapping[str, ir.Value], reader: str, name: str, axis: int) -> int | None:
    """Return the axis of `reader` on which its channels are those of `name` on `axis`; None for none."""
    shape, own = found[name].shape, found[reader].shape
    if shape is None or own is None:
        return None
    if reader == name:
        return axis % len(shape)
    firsts = [_first(found[n], found, _SAME_ORDER) for n in (reader, name)]
    behind = _known_product(shape, axis % len(shape))
    if firsts[0] is not firsts[1] or behind is None:
        return None
    for i, dim in enumerate(own):
        if dim == shape[axis] and isinstance(dim, int) and _known_product(own, i) == behind:
            return i
    return None


def _known_product(shape: ir.Shape, axis: int) -> int | None:
    """Return the product of the dimensions behind an axis; None when one is free."""
    dims = [dim for dim in shape[axis + 1 :] if isinstance(dim, int)]
    return math.prod(dims) if len(dims) == len(shape) - axis - 1 else None


def _output(copy: ir.Model, name: str, dtype: ir.DataType, values: dict[str, Any], there: set[Any]) -> str:
    """Make a tensor an output of the copy and return the output's name."""
    value = values[name]
    if dtype == ir.DataType.BFLOAT16:  # numpy knows none; float32 holds each of its values
        cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(ir.DataType.FLOAT))])
        value = cast.outputs[0]
        value.name = _free(f"{name}:float", values)
        values[value.name] = value
        copy.graph.append(cast)
    if value.name not in there:
        copy.graph.outputs.append(value)
        there.add(value.name)
    return str(value.name)


def _free(name: str, taken: Mapping[Any, object]) -> str:
    while name in taken:
        name += "_"
    return name


def _maker(value: ir.Value) -> str:
    node = value.producer()
    if node is None:
        return f"graph input '{value.name}'"
    return f"{node.op_type} node '{node.name}'" if node.name else f"unnamed {node.op_type} node"
