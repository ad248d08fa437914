"""Equalization scales and corrected biases applied to a float model. Pure: the given model stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.instrumentation.subgraphs import graph_attributes
from ..model.editing import add_initializer, free_name, replace_constant, value_names
from ..model.graph import Graph, constant_of, index, name_of
from ..model.scopes import check_scopes
from ..operators.operands import channel_layout
from ..operators.table import product_layout, weight_axes
from ..operators.weight_layout import Array
from ..plan.adjustments import EqualizationScales
from .paths import EqualizationPath, absorbs_scales, find_path


def equalized_name(name: str) -> str:
    """Return the name of an activation after equalization, and of the Mul that divides it, if there is one.

    A name keeps its meaning: the activation before equalization is another one.
    """
    return f"{name}_scaled"


def apply_equalization(
    model: ir.Model, scales: Mapping[str, EqualizationScales], where: str = "plan"
) -> ir.Model:
    """Return the prepared model with equalized channels; in float it computes the same.

    Args:
        model: the prepared model.
        scales: by activation; none give the model itself back.
        where: how to name the plan in messages.

    Raises:
        PlanError: they do not fit the model: an activation or a number of channels is another, or nothing
            can take them.
    """
    if not scales:
        return model
    work = model.clone()
    taken = Names(value_names(work), {node.name for node in work.graph.all_nodes() if node.name})
    graph = index(work)
    for name, entry in scales.items():
        _equalize(graph, name, entry, taken, f"{where}: adjustments: equalization of '{name}'")
        # A shared constant was copied, perhaps. A new index each time would make this quadratic.
        new = {n: value for n, value in work.graph.initializers.items() if n not in graph.values}
        if new:
            graph = replace(graph, values={**graph.values, **new})
    return check_scopes(work, f"{where}: adjustments: equalization")


def apply_biases(model: ir.Model, biases: Mapping[str, tuple[float, ...]], where: str = "plan") -> ir.Model:
    """Return the model with corrected biases. Entries of nodes that it does not have are left out.

    Raises:
        PlanError: a node has no constant bias, or another number of output channels.
    """
    if not biases:
        return model
    work = model.clone()
    taken = value_names(work)
    for node in list(work.graph):
        if node.name is not None and node.name in biases:
            place = f"{where}: adjustments: bias of '{node.name}'"
            _add_to_bias(node, np.asarray(biases[node.name], np.float32), taken, place)
    return check_scopes(work, f"{where}: adjustments: biases")


def inserted_nodes(model: ir.Model, adjusted: ir.Model) -> tuple[str, ...]:
    """Return the names of the nodes that adjustments have added, in graph order."""
    old = {node.name for node in model.graph.all_nodes()}
    return tuple(name_of(node) for node in adjusted.graph.all_nodes() if node.name not in old)


@dataclass(frozen=True)
class Names:
    """The names of the values and of the nodes of a model, which grow by those that are given to new ones."""

    values: set[str]
    nodes: set[str]


def _equalize(graph: Graph, name: str, entry: EqualizationScales, taken: Names, where: str) -> None:
    """Divide the channels of one activation, and multiply its readers' weights."""
    scales = _checked_scales(graph, name, entry, where)
    readers = [use for use in graph.consumers(name) if absorbs_scales(graph, use, entry.axis)]
    if not readers:
        raise PlanError(f"{where}: no reader has a constant weight that could take them; remove the entry")
    if not entry.inserted:
        path = find_path(graph, name, entry.axis, scales.size)
        if path is None or len(readers) != len(graph.consumers(name)):
            raise PlanError(
                f"{where}: its producer or readers cannot take all scales; set inserted, or remove it"
            )
        _divide_upstream(path, scales, taken.values, where)
        for equalized in (name, *(tensor.name for tensor in path.tensors)):
            graph.values[equalized].name = _free_name(equalized_name(equalized), taken.values, where)
    for node, _ in readers:
        layout = channel_layout(node)
        weight = None if layout is None else constant_of(node.inputs[layout.index])
        assert layout is not None
        assert weight is not None
        along_inputs = weight_axes(node, weight.shape).along_inputs(scales)
        _multiply(node, layout.index, along_inputs, taken.values, where)
    if entry.inserted:
        _insert_mul(graph.values[name], entry, [node for node, _ in readers], taken, where)


def _checked_scales(graph: Graph, name: str, entry: EqualizationScales, where: str) -> Array:
    """Return the equalization scales of an activation, float32, after a check that there is one per channel.

    Raises:
        PlanError: the model has no such activation, or another number of channels.
    """
    if name not in graph.values:
        raise PlanError(f"{where}: the model has no such activation; correct the name")
    shape = graph.shape(name)
    scales = np.asarray(entry.scales, np.float32)
    if shape is None or not 0 <= entry.axis < len(shape) or shape[entry.axis] != scales.size:
        raise PlanError(
            f"{where}: {scales.size} divisors along axis {entry.axis} do not fit its shape "
            f"{None if shape is None else list(shape)}; give one for each channel"
        )
    return scales


def _divide_upstream(path: EqualizationPath, scales: Array, taken: set[str], where: str) -> None:
    """Let the constants of a path take the scales."""
    for scalable in path.constants:
        with np.errstate(over="ignore"):  # `_multiply` refuses what comes of it
            vector = (1 / scales if scalable.divide else scales).reshape(scalable.shape)
        _multiply(scalable.node, scalable.index, vector, taken, where)


def _insert_mul(
    source: ir.Value, entry: EqualizationScales, readers: list[ir.Node], taken: Names, where: str
) -> None:
    """Put a Mul by 1 / scales between an activation and some of its readers.

    It is in the graph of the activation, before the first node there that reads it or runs a reader, so that
    readers in this graph and in its subgraphs see it.
    """
    name, graph = name_of(source), source.graph
    assert isinstance(graph, ir.Graph)
    assert source.shape is not None
    inverse = 1 / np.asarray(entry.scales, np.float32)
    along = inverse.reshape(-1, *(1,) * (len(source.shape) - entry.axis - 1))
    vector = add_initializer(graph, free_name(f"{name}_factors", taken.values), along)
    nested = any(reader.graph is not graph for reader in readers)
    first = next(n for n in graph if n in readers or (nested and _runs_any(n, readers)))
    node = ir.Node("", "Mul", [source, vector], name=free_name(equalized_name(name), taken.nodes))
    result = node.outputs[0]
    result.name = _free_name(equalized_name(name), taken.values, where)
    result.type, result.shape = source.type, source.shape.copy()
    for reader in readers:
        reader.replace_input_with(0, result)
    graph.insert_before(first, node)


def _runs_any(node: ir.Node, readers: list[ir.Node]) -> bool:
    """Whether the graphs that a node holds have one of the readers."""
    return any(inner in readers for subgraph in graph_attributes(node) for inner in subgraph.all_nodes())


def _free_name(name: str, taken: set[str], where: str) -> str:
    """Return a name after entering it as taken.

    Raises:
        PlanError: something is called so already.
    """
    if name in taken:
        raise PlanError(f"{where}: something else is called '{name}'; remove the entry")
    taken.add(name)
    return name


def _multiply(node: ir.Node, position: int, scales: Array, taken: set[str], where: str) -> None:
    """Multiply a constant input of a node by an array; a constant that others read is copied first."""
    value, old = node.inputs[position], constant_of(node.inputs[position])
    assert value is not None
    assert old is not None
    with np.errstate(over="ignore"):
        new = np.asarray(old * scales, old.dtype)
    if not np.all(np.isfinite(new)):
        raise PlanError(f"{where}: a constant of '{node.name}' overflows; give divisors nearer to 1")
    if len(value.uses()) == 1 and not value.is_graph_output():
        # The value stays, so that the index of the graph still knows it.
        value.const_value, value.shape = ir.Tensor(new, name=value.name), ir.Shape(new.shape)
    else:
        replace_constant(node, position, new, taken)


def _add_to_bias(node: ir.Node, delta: Array, taken: set[str], where: str) -> None:
    """Add a vector to the bias of a product, which gets one when it has none and can have one."""
    layout = product_layout(node)
    weight = None if layout is None else constant_of(node.inputs[layout.index])
    place = None if layout is None else layout.bias_place(node)
    if weight is None or place is None:
        raise PlanError(f"{where}: the node has no constant bias; remove the entry")
    channels = weight_axes(node, weight.shape).output_channels
    if delta.size != channels:
        raise PlanError(f"{where}: {delta.size} numbers for {channels} output channels; give one for each")
    holder, position = place
    old = constant_of(holder.inputs[position]) if position < len(holder.inputs) else None
    if old is not None:
        new = old + delta.reshape(old.shape if old.size == delta.size else delta.shape)
        replace_constant(holder, position, np.asarray(new, np.float32), taken)
        return
    graph = holder.graph
    assert graph is not None
    holder.resize_inputs(position + 1)
    value = add_initializer(graph, free_name(f"{holder.outputs[0].name}_bias", taken), delta)
    holder.replace_input_with(position, value)
