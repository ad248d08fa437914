"""Where each profiled tensor is read while a model runs: a graph input, an output, or an equal tensor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from .errors import ConfigError, nearest
from .instrument import resolved

_SAME_ELEMENTS = (
    *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"),
    *("Transpose", "DepthToSpace", "SpaceToDepth"),
)
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
    """

    name: str
    dtype: ir.DataType
    shape: ir.Shape | None
    maker: str
    source: str | None
    same_as: str | None = None


def tapped(model: ir.Model, wanted: Collection[str] | None = None) -> tuple[ir.Model, tuple[Tap, ...]]:
    """Return a copy of the model that has the tensors to be profiled as outputs, and where each is found.

    Args:
        model: the prepared model; unchanged.
        wanted: names of the tensors; None for all floating-point activations.

    Raises:
        ConfigError: a wanted tensor is no floating-point activation.
        ModelError: a type is unknown, and onnxruntime cannot load the model.
    """
    found = {str(value.name): (value, dtype) for value, dtype in resolved(model)}
    names = list(found) if wanted is None else _known(wanted, found)
    twins = {name: twin for name in names if (twin := _twin(found[name][0], found)) is not None}
    read = {twins.get(name, name) for name in names}
    copy = model.clone()
    values: dict[str, Any] = {v.name: v for node in copy.graph for v in node.outputs if v.name}
    there = {v.name for v in copy.graph.outputs}
    inputs = {v.name for v in copy.graph.inputs}
    taps: list[Tap] = []
    for name, (value, dtype) in found.items():
        if name not in read and name not in names:
            continue
        source = None
        if name in read and name not in inputs:
            source = _output(copy, name, dtype, values, there)
        twin = twins.get(name)
        if name in names:
            taps.append(Tap(name, dtype, value.shape, _maker(value), source, twin))
        else:  # read for others alone
            taps.append(Tap(name, dtype, None, _maker(value), source))
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


def _twin(value: ir.Value, found: Mapping[str, tuple[ir.Value, ir.DataType]]) -> str | None:
    """Return the first of a chain of profiled tensors that hold the same elements; None if it is `value`."""
    if value.shape is None:
        return None  # its shape shows in its array alone
    first = value
    while (node := first.producer()) is not None and _keeps_elements(node):
        source = node.inputs[0]
        if source is None or found.get(str(source.name), (None,))[0] is not source:
            break
        first = source
    return None if first is value else str(first.name)


def _keeps_elements(node: ir.Node) -> bool:
    return node.op_type in _SAME_ELEMENTS and node.domain in ("", "ai.onnx")


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
