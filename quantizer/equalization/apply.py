"""Adjustments applied to a float model. Pure: the model that is given stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..model.editing import add_initializer, constant, fresh, replace_constant, value_names
from ..model.graph import Graph, index
from ..operators.table import rule_of
from ..operators.weight_layout import Array, bias_place, bias_size, reader_factors
from ..plan.adjustments import EqualizationScales
from .paths import takes_factors, upstream

SCALED = "_scaled"
"""Ends the name of an activation whose channels are divided, and of the Mul that divides it, if there is one.
A name keeps its meaning: the activation without factors is another one."""


def apply_factors(
    model: ir.Model, factors: Mapping[str, EqualizationScales], where: str = "plan"
) -> ir.Model:
    """Return the prepared model with its factors; in real numbers it computes the same.

    Args:
        model: the prepared model.
        factors: by activation; none give the model itself back.
        where: how to name them in messages.

    Raises:
        PlanError: they do not fit the model: an activation or a number of channels is another, or nothing
            can take them.
    """
    if not factors:
        return model
    work = model.clone()
    taken = value_names(work)
    graph = index(work)
    for name, entry in factors.items():
        _apply_factors(graph, name, entry, taken, f"{where}: adjustments: factors of '{name}'")
        # A shared constant was copied, perhaps. A new index each time would make this quadratic.
        new = {n: value for n, value in work.graph.initializers.items() if n not in graph.values}
        if new:
            graph = replace(graph, values={**graph.values, **new})
    return work


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
            told = f"{where}: adjustments: bias of '{node.name}'"
            _add_to_bias(node, np.asarray(biases[node.name], np.float32), taken, told)
    return work


def inserted_nodes(model: ir.Model, adjusted: ir.Model) -> tuple[str, ...]:
    """Return the names of the nodes that adjustments have added, in graph order."""
    old = {node.name for node in model.graph}
    return tuple(node.name or "" for node in adjusted.graph if node.name not in old)


def _apply_factors(graph: Graph, name: str, factors: EqualizationScales, taken: set[str], where: str) -> None:
    if name not in graph.values:
        raise PlanError(f"{where}: the model has no such activation; correct the name")
    shape = graph.shape(name)
    divisors = np.asarray(factors.scales, np.float32)
    if shape is None or not 0 <= factors.axis < len(shape) or shape[factors.axis] != divisors.size:
        raise PlanError(
            f"{where}: {divisors.size} divisors along axis {factors.axis} do not fit its shape "
            f"{None if shape is None else list(shape)}; give one for each channel"
        )
    readers = [use for use in graph.consumers(name) if takes_factors(graph, use, factors.axis)]
    if not readers:
        raise PlanError(f"{where}: no reader has a constant weight that could take them; remove the entry")
    if not factors.inserted:
        path = upstream(graph, name, factors.axis, divisors.size)
        if path is None or len(readers) != len(graph.consumers(name)):
            raise PlanError(
                f"{where}: whoever makes or reads it cannot take them all; set inserted, or remove the entry"
            )
        for site in path.sites:
            with np.errstate(over="ignore"):  # `_multiply` refuses what comes of it
                vector = (1 / divisors if site.divide else divisors).reshape(site.shape)
            _multiply(site.node, site.index, vector, taken, where)
        for divided in (name, *(inner for inner, _ in path.inner)):
            graph.values[divided].name = _free(f"{divided}{SCALED}", taken, where)
    for node, _ in readers:
        position = _weight_index(node)
        weight = constant(node.inputs[position])
        assert weight is not None
        _multiply(node, position, reader_factors(node, weight.shape, divisors), taken, where)
    if factors.inserted:
        _insert(graph.values[name], factors, [node for node, _ in readers], taken, where)


def _insert(
    source: ir.Value, factors: EqualizationScales, readers: list[ir.Node], taken: set[str], where: str
) -> None:
    """Put a Mul by 1 / divisors between an activation and some of its readers."""
    name, graph = source.name or "", readers[0].graph
    assert isinstance(graph, ir.Graph)
    assert source.shape is not None
    inverse = 1 / np.asarray(factors.scales, np.float32)
    along = inverse.reshape(-1, *(1,) * (len(source.shape) - factors.axis - 1))
    vector = add_initializer(graph, fresh(f"{name}_factors", taken), along)
    names = {node.name for node in graph if node.name}
    node = ir.Node("", "Mul", [source, vector], name=fresh(f"{name}{SCALED}", names))
    result = node.outputs[0]
    result.name = _free(f"{name}{SCALED}", taken, where)
    result.type, result.shape = source.type, source.shape.copy()
    for reader in readers:
        reader.replace_input_with(0, result)
    graph.insert_before(readers[0], node)


def _free(name: str, taken: set[str], where: str) -> str:
    """Return a name after entering it as taken.

    Raises:
        PlanError: something is called so already.
    """
    if name in taken:
        raise PlanError(f"{where}: something else is called '{name}'; remove the entry")
    taken.add(name)
    return name


def _multiply(node: ir.Node, position: int, factors: Array, taken: set[str], where: str) -> None:
    value, old = node.inputs[position], constant(node.inputs[position])
    assert value is not None
    assert old is not None
    with np.errstate(over="ignore"):
        new = np.asarray(old * factors, old.dtype)
    if not np.all(np.isfinite(new)):
        raise PlanError(f"{where}: a constant of '{node.name}' overflows; give divisors nearer to 1")
    if len(value.uses()) == 1 and not value.is_graph_output():
        # The value stays, so that the index of the graph still knows it.
        value.const_value, value.shape = ir.Tensor(new, name=value.name), ir.Shape(new.shape)
    else:
        replace_constant(node, position, new, taken)


def _weight_index(node: ir.Node) -> int:
    rule = rule_of(node)
    assert rule is not None
    assert rule.weight is not None
    return rule.weight.index


def _add_to_bias(node: ir.Node, delta: Array, taken: set[str], where: str) -> None:
    """Add a vector to the bias of a node, which gets one when it has none; behind MatMul to the Add."""
    place = bias_place(node)
    if place is None:
        raise PlanError(f"{where}: the node has no constant bias; remove the entry")
    holder, position = place
    old = constant(holder.inputs[position]) if position < len(holder.inputs) else None
    channels = bias_size(node)
    if delta.size != channels:
        raise PlanError(f"{where}: {delta.size} numbers for {channels} output channels; give one for each")
    if old is not None:
        made = old + delta.reshape(old.shape if old.size == delta.size else delta.shape)
        replace_constant(holder, position, np.asarray(made, np.float32), taken)
        return
    graph = holder.graph
    assert graph is not None
    holder.resize_inputs(position + 1)
    value = add_initializer(graph, fresh(f"{holder.outputs[0].name}_bias", taken), delta)
    holder.replace_input_with(position, value)
