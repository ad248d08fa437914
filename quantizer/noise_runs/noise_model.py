"""The noise model: the prepared graph, a copy with rounded activations and one with rounded weights, as one
graph whose outputs are sums of squares."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ...profiles.instrumentation.activations import resolved
from ...profiles.instrumentation.subgraphs import graph_attributes
from ..model.editing import is_standard, value_names
from ..model.graph import constant_of
from .rounded_weights import quantizable_constants, rounded_weight
from .shape_risks import compute_shapes, shapes_at_risk, values_read
from .statistics import (
    MAGIC,
    FloatValue,
    NodeMaker,
    error_total,
    float_value,
    is_singular_at_zero,
    rounded,
    rounding_step,
)


@dataclass(frozen=True)
class Copies:
    """Which copies a noise model has besides the float one.

    Attributes:
        activations: whether one has rounded activations.
        weights: whether one has rounded weights.
    """

    activations: bool = True
    weights: bool = True


@dataclass(frozen=True)
class Sums:
    """Outputs of a noise model that belong to one tensor; "" for what is 0 in every sample, None for no copy.

    Attributes:
        total: sum of squares in the float copy.
        count: number of elements, where the shape is declared, or the output that holds it.
        activations, weights: sums of the squares of the errors in the two other copies.
    """

    total: str
    count: str | int
    activations: str | None
    weights: str | None


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """A noise model.

    Attributes:
        model: its graph; inputs are those of the prepared model.
        sums: name of a tensor to its outputs, in graph order.
        at_risk: those whose shape may change.
        prefix: begins the names of all that is not in the float copy.
    """

    model: ir.Model
    sums: Mapping[str, Sums]
    at_risk: frozenset[str]
    prefix: str

    def origin(self, name: str) -> str:
        """Return the activation that a value of another copy is a copy of, by their names."""
        return name.removeprefix(self.prefix).partition(":")[2]


class _Copy:
    """A copy of the main graph, in which the float nodes stand for those that compute the same."""

    def __init__(
        self, model: ir.Model, values: Mapping[str, ir.Value], at_risk: Collection[str], prefix: str
    ) -> None:
        """Clone a model.

        Args:
            model: to be cloned; `values` are those of its main graph by name.
            values: of the float graph.
            at_risk: values whose shape may differ. They are declared without one: where two have the same
                names of dimensions, onnxruntime takes them to be equally large.
            prefix: begins the names of what the nodes of the copy make.
        """
        clone = model.clone()
        clone.graph.outputs.clear()
        self._nodes = list(clone.graph)
        clone.graph.remove(self._nodes)
        own = [*clone.graph.inputs, *clone.graph.initializers.values()]
        own += [value for node in self._nodes for value in node.outputs]
        self._names = {value: value.name for value in own if value.name}
        for value in own:
            if value.name in at_risk:
                value.shape = None
        self._values, self._prefix = values, prefix
        self.current = dict(values)

    def taken(self, number: int, constants: Mapping[int, ir.Value]) -> list[ir.Node]:
        """Return the copy of a node, none where the node itself can stand for it.

        Args:
            number: of the node.
            constants: inputs that differ from those of the node.
        """
        own = self._nodes[number]
        read = {self._names[value] for value in values_read(own) if value in self._names}
        if not constants and all(self.current[name] is self._values[name] for name in read):
            return []
        for node in _with_inner(own):
            for index, value in enumerate(node.inputs):
                if value in self._names:
                    node.replace_input_with(index, self.current[self._names[value]])
        for index, value in constants.items():
            own.replace_input_with(index, value)
        own.name = f"{self._prefix}{own.name}"
        for value in own.outputs:
            if value.name:
                self.current[value.name] = value
                value.name = f"{self._prefix}{value.name}"
        return [own]


def _with_inner(node: ir.Node) -> Iterator[ir.Node]:
    yield node
    for graph in graph_attributes(node):
        for inner in graph:
            yield from _with_inner(inner)


def noise_model(model: ir.Model, names: Collection[str], copies: Copies) -> NoiseModel:
    """Return the noise model of a prepared model, which is unchanged.

    A sum that nothing can make differ from 0 has no output. The nodes of the copies follow those of the float
    graph one by one, so that few tensors are alive at a time.

    Args:
        model: the prepared model.
        names: the activations of the main graph that are rounded and measured; others are passed over, and
            so is what only computes shapes.
        copies: which ones there are.
    """
    return _Builder(model, names, copies).built()


class _Builder:
    """Puts the copies together."""

    def __init__(self, model: ir.Model, names: Collection[str], copies: Copies) -> None:
        wanted = set(names) - compute_shapes(model)
        dtypes = {str(value.name): dtype for value, dtype in resolved(model) if value.name in wanted}
        self._dtypes = {name: dtype for name, dtype in dtypes.items() if dtype in MAGIC}
        self._model = model.clone()
        graph = self._model.graph
        self._prefix = prefix = free_prefix(value_names(model))
        self._values = {str(v.name): v for v in (*graph.inputs, *graph.initializers.values())}
        self._values |= {str(v.name): v for node in graph for v in node.outputs if v.name}
        self._make = NodeMaker(f"{prefix}n")
        self._at_risk = shapes_at_risk(model, self._dtypes)
        outside = self._values, self._at_risk
        self._activations = _Copy(model, *outside, f"{prefix}a:") if copies.activations else None
        self._weights = _Copy(model, *outside, f"{prefix}w:") if copies.weights else None
        self._rounded: dict[tuple[str, int | None], ir.Value] = {}
        self._sums: dict[str, Sums] = {}
        self._outputs: list[ir.Value] = []

    def built(self) -> NoiseModel:
        """Return the noise model."""
        graph = self._model.graph
        nodes = list(graph)
        graph.outputs.clear()
        graph.remove(nodes)
        for value in graph.inputs:
            self._measure(value)
        ordered = self._make.taken()
        for number, node in enumerate(nodes):
            ordered.append(node)
            if self._activations is not None:
                ordered += self._activations.taken(number, {})
            if self._weights is not None:
                ordered += self._weights.taken(number, self._constants(node))
            for value in node.outputs:
                self._measure(value)
            ordered += self._make.taken()
        graph.extend(ordered)
        graph.outputs.extend(self._outputs)
        for constant in (*self._make.constants.values(), *self._rounded.values()):
            graph.register_initializer(constant)
        return NoiseModel(self._model, self._sums, self._at_risk & self._sums.keys(), self._prefix)

    def _constants(self, node: ir.Node) -> dict[int, ir.Value]:
        """Return the rounded weights of a node, by input index."""
        found = {}
        for index, layout in quantizable_constants(node):
            value = node.inputs[index]
            weight = constant_of(value)
            assert value is not None
            assert weight is not None
            key = str(value.name), layout.axis(node, weight.ndim)
            if key not in self._rounded:
                array = rounded_weight(node, layout, weight)
                if array is None:
                    continue
                self._rounded[key] = self._make.constant(array)
            found[index] = self._rounded[key]
        return found

    def _measure(self, value: ir.Value) -> None:
        """Measure a value in all copies, and round it in the one with rounded activations."""
        name = str(value.name)
        if name not in self._dtypes:
            return
        value.dtype = self._dtypes[name]
        singular = any(is_singular_at_zero(use.node, use.idx) for use in value.uses())
        signal = float_value(self._make, value, _feeds_softmax(value))
        activations = self._error(self._activations, name, signal)
        weights = self._error(self._weights, name, signal)
        count = signal.count if isinstance(signal.count, int) else self._kept(signal.count)
        self._sums[name] = Sums(self._kept(signal.total), count, activations, weights)
        if self._activations is not None:
            step = rounding_step(self._make, signal)
            noisy = self._activations.current[name]
            self._activations.current[name] = rounded(self._make, noisy, step, keeps_nonzero=singular)

    def _error(self, copy: _Copy | None, name: str, signal: FloatValue) -> str | None:
        """Return the output that holds what a tensor of a copy has of error; "" where there is none."""
        if copy is None:
            return None
        value = copy.current[name]
        if value is signal.value:
            return ""
        return self._kept(error_total(self._make, value, signal, name in self._at_risk))

    def _kept(self, value: ir.Value) -> str:
        self._outputs.append(value)
        return str(value.name)


def free_prefix(taken: Collection[str]) -> str:
    """Return a text that begins none of the names."""
    prefix = "noise:"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    return prefix


def _feeds_softmax(value: ir.Value) -> bool:
    return any(is_standard(use.node, "Softmax") for use in value.uses())
