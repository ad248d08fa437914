"""The forms of a tensor (float, codes, dequantized codes), each made once and only when it is asked for.

A tensor has one home form. It is *stored* in codes when the node that makes it computes on codes; else it is
float, as are graph inputs and constants. From the home form every other one is derived:

=====================  ======================================  ===============================
wanted                 stored in codes                         at home in float
=====================  ======================================  ===============================
float                  DequantizeLinear, under the tensor's    the tensor itself
                       own name
codes                  the codes; with other parameters        QuantizeLinear; for a constant
                       QuantizeLinear of the float form        a new initialiser
dequantized            DequantizeLinear of those codes         DequantizeLinear of those codes
=====================  ======================================  ===============================

So whoever reads a tensor by name, a float node, a graph output, the body of an If, finds real numbers under
the name that it had before.

The body of a Loop, If or Scan has an emitter of its own, inside that of the graph around it. What it wants of
a tensor from outside is made outside, right before the node that has the body: once, and not in every
iteration. Only DequantizeLinear is put beside its reader, where runtimes look for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...numerics.affine import INT32, QuantParams, quantize
from ...operators.table import DEQUANTIZE, QUANTIZE

Array = npt.NDArray[np.generic]
Attributes = Mapping[str, int | float | str | Sequence[int] | ir.Attr]


@dataclass(frozen=True)
class _Stored:
    """Codes that a tensor is at home in."""

    codes: ir.Value
    params: QuantParams


@dataclass(frozen=True)
class Dynamic:
    """Codes in uint8 with parameters that are tensors without dimensions, of float32 and uint8."""

    codes: ir.Value
    scale: ir.Value
    zero_point: ir.Value


class Emitter:
    """Adds nodes and initialisers to one graph, which it changes in place.

    Nodes must be lowered in their order: a new node is put right before the one that asks for it
    (`before`), or at the end of the graph where that is None.

    Args:
        graph: the graph, with the graphs inside it.
        outside: for the body of a node, the emitter of the graph around it and that node.
    """

    def __init__(self, graph: ir.Graph, outside: tuple[Emitter, ir.Node] | None = None) -> None:
        self._graph = graph
        self._outside = outside
        self._taken: set[str] = set(_all_names(graph)) if outside is None else outside[0]._taken
        self._names: dict[ir.Value, str] = (
            {value: value.name or "" for value in _all_values(graph)}
            if outside is None
            else outside[0]._names
        )
        self._stored: dict[ir.Value, _Stored] = {}
        self._codes: dict[tuple[ir.Value, QuantParams], ir.Value] = {}
        self._dequantized: dict[tuple[ir.Value, QuantParams], ir.Value] = {}
        self._params: dict[tuple[QuantParams, tuple[int, ...]], tuple[ir.Value, ir.Value]] = {}
        self._dynamic: dict[ir.Value, Dynamic] = {}
        self._tables: dict[tuple[str, bytes], ir.Value] = {}

    def name(self, value: ir.Value) -> str:
        """Return the name that a tensor of the original graph had there."""
        return self._names[value]

    def stored(self, value: ir.Value) -> QuantParams | None:
        """Return the parameters of a tensor that is at home in codes, None for any other."""
        if self._outside is not None and self._is_outer(value):
            return self._outside[0].stored(value)
        entry = self._stored.get(value)
        return None if entry is None else entry.params

    def store(self, value: ir.Value, codes: ir.Value, params: QuantParams) -> None:
        """Record that a tensor is at home in `codes`."""
        self._taken.add(self._names.setdefault(value, value.name or ""))
        self._stored[value] = _Stored(codes, params)

    def quantize_output(self, value: ir.Value, params: QuantParams, after: ir.Node) -> None:
        """Put QuantizeLinear behind the node that makes a tensor, which is at home in codes from then on."""
        self.store(value, self.quantize_behind(value, params, after), params)

    def quantize_behind(self, value: ir.Value, params: QuantParams, after: ir.Node) -> ir.Value:
        """Put QuantizeLinear behind the node that makes a tensor, rename that, and return the codes."""
        name = self.name(value)
        self.rename(value, f"{name}_raw")
        nodes = self._quantize_nodes(value, name, params)
        self._graph.insert_after(after, nodes)
        return nodes[-1].outputs[0]

    def real(self, value: ir.Value, before: ir.Node | None) -> ir.Value:
        """Return the float form of a tensor."""
        if self._outside is not None and self._is_outer(value):
            emitter, owner = self._outside
            return emitter.real(value, owner)
        entry = self._stored.get(value)
        return value if entry is None else self.dequantized(value, entry.params, before)

    def codes(self, value: ir.Value, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Return a tensor in codes with the given parameters."""
        if self._outside is not None and self._is_outer(value):
            emitter, owner = self._outside
            return emitter.codes(value, params, owner)
        entry = self._stored.get(value)
        if entry is not None and entry.params == params:
            return entry.codes
        constant = constant_array(value)
        if constant is not None and params.qtype == INT32:
            # One bias for each node: onnxruntime copies a shared one, under a name that may be taken.
            return self._quantized_constant(value, constant, params)
        key = (value, params)
        if key not in self._codes:
            if constant is not None:
                self._codes[key] = self._quantized_constant(value, constant, params)
            else:
                nodes = self._quantize_nodes(self.real(value, before), self.name(value), params)
                self._codes[key] = self._insert(nodes, before)
        return self._codes[key]

    def dequantized(self, value: ir.Value, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Return the real numbers that the codes of a tensor with the given parameters stand for."""
        key = (value, params)
        unshared = params.qtype == INT32 and constant_array(value) is not None
        if unshared or key not in self._dequantized:
            name = self.name(value)
            own = self._stored.get(value)
            output = name if own is not None and own.params == params else self._unique(f"{name}_dequantized")
            codes = self.codes(value, params, before)
            self._dequantized[key] = self._insert(self._dequantize_nodes(codes, name, output, params), before)
        return self._dequantized[key]

    def dequantize(self, codes: ir.Value, name: str, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Add DequantizeLinear of `codes`, whatever parameters they were made with; its result is `name`."""
        return self._insert(self._dequantize_nodes(codes, name, self._unique(name), params), before)

    def quantize(self, real: ir.Value, name: str, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Add QuantizeLinear of `real`; its result is called `name`_quantized."""
        return self._insert(self._quantize_nodes(real, name, params), before)

    def add(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        output: ir.Value,
        before: ir.Node | None,
        attributes: Attributes | None = None,
        *,
        domain: str = "",
    ) -> ir.Value:
        """Add a node with the result `output`, which gets a number to its name where that is taken."""
        self.rename(output, output.name or op_type)
        return self._insert([self._node(op_type, inputs, [output], attributes, domain)], before)

    def dynamic(self, value: ir.Value, before: ir.Node | None) -> Dynamic:
        """Return a tensor in uint8 codes whose parameters are computed from its values at run time."""
        if self._outside is not None and self._is_outer(value):
            emitter, owner = self._outside
            return emitter.dynamic(value, owner)
        if value not in self._dynamic:
            self._dynamic[value] = self._quantize_dynamically(
                self.real(value, before), self.name(value), before
            )
        return self._dynamic[value]

    def rename(self, value: ir.Value, name: str) -> None:
        """Call a tensor `name`, or that with a number where it is taken."""
        value.name = self._unique(name)

    def constant(self, name: str, array: Array) -> ir.Value:
        """Return an initialiser with these elements; one for all that ask for the same."""
        key = (f"{array.dtype}{array.shape}", array.tobytes())
        if key not in self._tables:
            self._tables[key] = self._initializer(name, array)
        return self._tables[key]

    def inside(self, body: ir.Graph, owner: ir.Node) -> Emitter:
        """Return an emitter for a body of `owner`, a node of this graph."""
        return type(self)(body, (self, owner))

    def drop_unused(self) -> None:
        """Remove initialisers that nobody reads any more, such as the float weights."""
        for name, value in list(self._graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                del self._graph.initializers[name]

    def _is_outer(self, value: ir.Value) -> bool:
        """Whether a tensor is of a graph around this one. What was just made for a body is not in it yet."""
        return value.graph is not None and value.graph is not self._graph

    def _quantized_constant(self, value: ir.Value, constant: Array, params: QuantParams) -> ir.Value:
        return self._initializer(f"{self.name(value)}_quantized", quantize(constant, params))

    def _quantize_nodes(self, real: ir.Value, name: str, params: QuantParams) -> list[ir.Node]:
        """Return new nodes of which the last makes codes of `real`."""
        inputs = [real, *self.param_values(name, params, _sizes(real))]
        output = new_value(self._unique(f"{name}_quantized"), code_type(params), real)
        return [self._node(QUANTIZE, inputs, [output], _axis(params))]

    def _dequantize_nodes(
        self, codes: ir.Value, name: str, output: str, params: QuantParams
    ) -> list[ir.Node]:
        """Return new nodes of which the last makes real numbers of `codes`, called `output`."""
        inputs = [codes, *self.param_values(name, params, _sizes(codes))]
        if params.qtype == INT32:
            inputs.pop()  # its zero point is 0, which is the default
        result = new_value(output, ir.DataType.FLOAT, codes)
        return [self._node(DEQUANTIZE, inputs, [result], _axis(params))]

    def _quantize_dynamically(self, real: ir.Value, name: str, before: ir.Node | None) -> Dynamic:
        scalar = ir.Shape(())
        outputs = (
            new_value(self._unique(f"{name}_quantized"), ir.DataType.UINT8, real),
            ir.Value(name=self._unique(f"{name}_scale"), type=ir.TensorType(ir.DataType.FLOAT), shape=scalar),
            ir.Value(
                name=self._unique(f"{name}_zero_point"), type=ir.TensorType(ir.DataType.UINT8), shape=scalar
            ),
        )
        self._insert([self._node("DynamicQuantizeLinear", [real], outputs, None)], before)
        return Dynamic(*outputs)

    def param_values(
        self, name: str, params: QuantParams, shape: tuple[int, ...] = ()
    ) -> tuple[ir.Value, ir.Value]:
        """Return scale and zero point; tensors with equal parameters share them."""
        grid = params.grid_shape(shape) if params.block_size is not None else params.scale_array.shape
        key = (params, grid)
        if key not in self._params:
            self._params[key] = (
                self._initializer(f"{name}_scale", params.scale_array.reshape(grid)),
                self._initializer(f"{name}_zero_point", params.zero_point_array.reshape(grid)),
            )
        return self._params[key]

    def _initializer(self, name: str, array: Array) -> ir.Value:
        unique = self._unique(name)
        tensor = ir.Tensor(array, name=unique)  # ir.tensor would try a dozen types first
        value = ir.Value(
            name=unique, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
        )
        self._graph.register_initializer(value)
        return value

    def _node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        outputs: Sequence[ir.Value],
        attributes: Attributes | None,
        domain: str = "",
    ) -> ir.Node:
        name = self._unique(f"{outputs[0].name}_{op_type}")
        return ir.node(op_type, inputs, dict(attributes or {}), domain=domain, outputs=outputs, name=name)

    def _insert(self, nodes: Sequence[ir.Node], before: ir.Node | None) -> ir.Value:
        if before is None:
            self._graph.extend(nodes)
        else:
            self._graph.insert_before(before, nodes)
        return nodes[-1].outputs[0]

    def _unique(self, name: str) -> str:
        """Return `name`, or the first of name_1, name_2, ... that nothing in the graph is called."""
        chosen, number = name, 0
        while chosen in self._taken:
            number += 1
            chosen = f"{name}_{number}"
        self._taken.add(chosen)
        return chosen


def constant_array(value: ir.Value) -> Array | None:
    """Return the elements of an initialiser, None for any other tensor."""
    if value.is_initializer() and not value.is_graph_input() and value.const_value is not None:
        return value.const_value.numpy()
    return None


def new_value(name: str, dtype: ir.DataType, like: ir.Value) -> ir.Value:
    """Return a tensor that no node makes yet, with the shape of another."""
    shape = None if like.shape is None else like.shape.copy()
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=shape)


def code_type(params: QuantParams) -> ir.DataType:
    """Return the ONNX element type of codes."""
    return ir.DataType[params.qtype.storage.upper()]


def _axis(params: QuantParams) -> dict[str, int]:
    axis = {} if params.axis is None else {"axis": params.axis}
    return axis if params.block_size is None else {**axis, "block_size": params.block_size}


def _sizes(value: ir.Value) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else 0 for d in value.shape) if value.shape is not None else ()


def _all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph.all_nodes():
        yield from node.outputs
    for inner in graph.subgraphs():
        yield from inner.inputs
        yield from inner.initializers.values()


def _all_names(graph: ir.Graph) -> Iterator[str]:
    for value in _all_values(graph):
        yield value.name or ""
    for node in graph.all_nodes():
        yield node.name or ""
