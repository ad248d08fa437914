"""The decision which tensors are observed, where each is read, and which axis counts its channels."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ..base.errors import ConfigError, nearest
from .subgraphs import STANDARD_DOMAINS, subgraph_tensors, typed_activations

_SAME_ORDER = ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators whose output holds exactly the elements of their first input, in the same order."""

_SAME_ELEMENTS = (*_SAME_ORDER, "Transpose", "DepthToSpace", "SpaceToDepth")
"""Operators whose output holds exactly the elements of their first input, in whatever order."""


@dataclass(frozen=True, eq=False)
class Observation:
    """A tensor that a profile is wanted of, or that is read in place of one (`same_as`: equal elements).

    `axis` has the channels that are recorded; `scan_axes`, of a tensor of a subgraph (else None), counts
    leading dimensions that are iterations of Scans; `source` is the output of the edited graph, None for an
    input.
    """

    name: str
    dtype: ir.DataType
    shape: ir.Shape | None
    producer: str
    same_as: str | None = None
    axis: int | None = None
    scan_axes: int | None = None
    source: str | None = None
    input_only: bool = False

    @property
    def channels(self) -> int:
        """Declared number of channels that are recorded one by one; 0 for none, or an unknown rank."""
        dim = 0 if self.axis is None or self.shape is None else self.shape[self.axis]
        return dim if isinstance(dim, int) else 0

    @property
    def blocks_keep_channels(self) -> bool:
        """Whether blocks of channels, which are on axis 1, have the recorded channels."""
        return self.axis is not None and self.shape is not None and self.axis % len(self.shape) == 1


def observations(
    model: ir.Model, wanted: Collection[str] | None = None, channels: Mapping[str, int] | None = None
) -> tuple[Observation, ...]:
    """Return the tensors that are read, in graph order: those wanted (None: all), and those in their place.

    `channels` are the axes of the channels to be recorded; a free number of channels is left out.
    """
    # The activations that can be read: of the main graph, then of subgraphs.
    in_subgraphs = {str(inner.value.name): inner for inner in subgraph_tensors(model) if not inner.hidden}
    types = {str(value.name): (value, dtype) for value, dtype in typed_activations(model)}
    types |= {name: (inner.value, inner.dtype) for name, inner in in_subgraphs.items() if inner.dtype}
    values = {name: value for name, (value, _) in types.items()}
    chosen = set(types) if wanted is None else set(wanted)
    if unknown := sorted(chosen - set(values)):
        raise ConfigError(
            f"tensor '{unknown[0]}': is not a floating-point activation of the model; "
            f"give names of the prepared model.{nearest(unknown[0], values)}"
        )
    names = [name for name in values if name in chosen]

    # The axes of channels whose number is declared; of an unknown rank it is that of the arrays.
    axes = {}
    for name in names:
        axis, shape = (channels or {}).get(name), values[name].shape
        if axis is not None and (shape is None or -len(shape) <= axis < len(shape)):
            dim = 1 if shape is None else shape[axis]
            if isinstance(dim, int) and dim > 0:
                axes[name] = axis

    # Tensors with the same elements, by the one that all of a group are made of. A tensor without a declared
    # shape is in no group: its shape is only known from its own arrays.
    groups: dict[str, list[str]] = {}
    for name in names:
        if values[name].shape is not None:
            groups.setdefault(str(_origin(values[name], values, _SAME_ELEMENTS).name), []).append(name)

    # One of each group is read: the first, or where that has not the same channels the first member whose
    # channels are recorded. A member with other channels than the tensor that is read is read itself.
    same_as: dict[str, str] = {}
    for first, members in groups.items():
        read, axis = first, axes.get(first)
        with_channels = next((name for name in members if name in axes), None)
        if with_channels is not None and axis is None:
            axis = _same_channels(values, first, with_channels, axes[with_channels])
            if axis is not None:
                axes[first] = axis
            elif first not in chosen or first in members:
                read, axis = with_channels, axes[with_channels]
        shape = values[read].shape
        for name in members:
            own_axis = axes.get(name)
            if name == read:
                continue
            if own_axis is None or (
                axis is not None
                and shape is not None
                and _same_channels(values, read, name, own_axis) == axis % len(shape)
            ):
                same_as[name] = read

    observed = {*names, *same_as.values()}
    return tuple(
        Observation(
            name,
            dtype,
            value.shape,
            _producer_text(value),
            same_as.get(name),
            axes.get(name),
            in_subgraphs[name].scan_axes if name in in_subgraphs else None,
        )
        for name, (value, dtype) in types.items()
        if name in observed
    )


def _same_channels(values: Mapping[str, ir.Value], read: str, name: str, axis: int) -> int | None:
    """Return the axis of `read` on which its channels are those of `name` on `axis`; None for none."""
    shape, own = values[name].shape, values[read].shape
    if shape is None or own is None:
        return None
    if read == name:
        return axis % len(shape)
    inner = _inner_size(shape, axis % len(shape))
    if inner is None or _origin(values[read], values, _SAME_ORDER) is not _origin(
        values[name], values, _SAME_ORDER
    ):
        return None
    axes = (i for i, dim in enumerate(own) if isinstance(dim, int) and dim == shape[axis])
    return next((i for i in axes if _inner_size(own, i) == inner), None)


def _inner_size(shape: ir.Shape, axis: int) -> int | None:
    """Return the product of the dimensions after an axis; None when one is free."""
    dims = [dim for dim in shape[axis + 1 :] if isinstance(dim, int)]
    return math.prod(dims) if len(dims) == len(shape) - axis - 1 else None


def _origin(value: ir.Value, values: Mapping[str, ir.Value], operators: Collection[str]) -> ir.Value:
    """Return the first of a chain of activations, each made from the one before by one of the operators."""
    while (node := value.producer()) is not None:
        source = node.inputs[0] if node.inputs else None
        if node.op_type not in operators or node.domain not in STANDARD_DOMAINS or source is None:
            break
        if values.get(str(source.name)) is not source or source.graph is not value.graph:
            break  # a subgraph runs as often as its node decides
        value = source
    return value


def _producer_text(value: ir.Value) -> str:
    node = value.producer()
    if node is None:
        return f"graph input '{value.name}'"
    return f"{node.op_type} node '{node.name}'" if node.name else f"unnamed {node.op_type} node"
