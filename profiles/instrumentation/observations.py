"""Chooses the tensors to observe, the place to read each, and the axis of its channels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ..base.errors import ConfigError, nearest
from .subgraphs import subgraph_tensors, typed_activations


@dataclass(frozen=True, eq=False)
class Observation:
    """A tensor that a profile is wanted of.

    `axis` has the channels that are recorded; `scan_axes`, of a tensor of a subgraph (else None), counts
    leading dimensions that are iterations of Scans; `source` is the output of the edited graph, None for an
    input.
    """

    name: str
    dtype: ir.DataType
    shape: ir.Shape | None
    producer: str
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
    """Return the wanted tensors (None: all), in graph order.

    `channels` are the axes of the channels to be recorded; a free number of channels is left out.
    """
    # The activations that can be read: of the main graph, then of subgraphs.
    in_subgraphs = {str(inner.value.name): inner for inner in subgraph_tensors(model) if not inner.hidden}
    types = {str(value.name): (value, dtype) for value, dtype in typed_activations(model)}
    types |= {name: (inner.value, inner.dtype) for name, inner in in_subgraphs.items() if inner.dtype}
    values = {name: value for name, (value, _) in types.items()}
    chosen = set(types) if wanted is None else set(wanted)
    if unknown := sorted({*chosen, *(channels or {})} - set(values)):
        raise ConfigError(
            f"tensor '{unknown[0]}': is not a floating-point activation of the model; "
            f"give names of the prepared model.{nearest(unknown[0], values)}"
        )

    # The axes of channels whose number is declared; of an unknown rank it is that of the arrays.
    axes = {}
    for name in chosen:
        axis, shape = (channels or {}).get(name), values[name].shape
        if axis is not None and (shape is None or -len(shape) <= axis < len(shape)):
            dim = 1 if shape is None else shape[axis]
            if isinstance(dim, int) and dim > 0:
                axes[name] = axis

    scan_axes = {name: inner.scan_axes for name, inner in in_subgraphs.items()}
    return tuple(
        Observation(name, dtype, value.shape, _producer_text(value), axes.get(name), scan_axes.get(name))
        for name, (value, dtype) in types.items()
        if name in chosen
    )


def _producer_text(value: ir.Value) -> str:
    node = value.producer()
    if node is None:
        return f"graph input '{value.name}'"
    return f"{node.op_type} node '{node.name}'" if node.name else f"unnamed {node.op_type} node"
