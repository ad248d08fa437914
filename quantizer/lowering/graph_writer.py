"""Adds nodes and initialisers to one graph: free names, shared constants, places.

It knows the original names of tensors, and for which node each node was added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.editing import free_name
from ..model.graph import name_of
from ..numerics.affine import QuantParams

Array = npt.NDArray[np.generic]
Attributes = Mapping[str, int | float | str | Sequence[int] | ir.Attr]


class GraphWriter:
    """Adds to one graph, which it changes in place.

    Args:
        graph: the graph, with its subgraphs.
        outside: for a subgraph, the writer of the graph around it: names are free in both or in neither.
    """

    def __init__(self, graph: ir.Graph, outside: GraphWriter | None = None) -> None:
        self._graph = graph
        self._names: dict[ir.Value, str] = (
            {value: name_of(value) for value in _all_values(graph)} if outside is None else outside._names
        )
        self._taken: set[str] = set(_all_names(graph)) if outside is None else outside._taken
        self._nodes: list[ir.Node] = list(graph.all_nodes()) if outside is None else outside._nodes
        self._owners: list[tuple[ir.Node, str]] = [] if outside is None else outside._owners
        self._params: dict[tuple[QuantParams, tuple[int, ...]], tuple[ir.Value, ir.Value]] = {}
        self._constants: dict[tuple[str, bytes], ir.Value] = {}

    def name(self, value: ir.Value) -> str:
        """Return the name of a tensor in the original graph."""
        return self._names[value]

    def rename(self, value: ir.Value, name: str) -> None:
        """Call a tensor `name`, or that with a number where it is taken."""
        value.name = self._free(name)

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
        """Add a node for `before`, right before it, with the result `output`; at the end for None.

        The result gets a number to its name where that is taken.
        """
        self.rename(output, output.name or op_type)
        node = self._node(op_type, inputs, [output], attributes, domain)
        if before is not None:
            self._owners.append((node, name_of(before)))
        return self._insert([node], before)

    def constant(self, name: str, array: Array) -> ir.Value:
        """Return an initialiser with these elements; one for all that ask for the same."""
        key = (f"{array.dtype}{array.shape}", array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._initializer(name, array)
        return self._constants[key]

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

    def drop_unused(self) -> None:
        """Remove initialisers that are no longer read, such as the float weights."""
        for name, value in list(self._graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                del self._graph.initializers[name]

    def _initializer(self, name: str, array: Array) -> ir.Value:
        unique = self._free(name)
        return self._registered(ir.Tensor(array, name=unique))  # ir.tensor would try a dozen types first

    def _computed(
        self, name: str, shape: Sequence[int], dtype: ir.DataType, compute: Callable[[], Array]
    ) -> ir.Value:
        """Return an initialiser whose elements are computed whenever they are read, as when it is written.

        So no more than one large weight of a model is in memory, whatever their number.
        """
        unique = self._free(name)

        def tensor() -> ir.TensorProtocol:
            return ir.Tensor(compute(), dtype=dtype, name=unique)

        return self._registered(ir.LazyTensor(tensor, dtype, ir.Shape(shape), name=unique))

    def _registered(self, tensor: ir.TensorProtocol) -> ir.Value:
        value = ir.Value(
            name=tensor.name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
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
        name = self._free(f"{outputs[0].name}_{op_type}")
        return ir.node(op_type, inputs, dict(attributes or {}), domain=domain, outputs=outputs, name=name)

    def _insert(self, nodes: Sequence[ir.Node], before: ir.Node | None) -> ir.Value:
        """Put nodes before another, or at the end of the graph for None; return what the last gives."""
        if before is None:
            self._graph.extend(nodes)
        else:
            self._graph.insert_before(before, nodes)
        return nodes[-1].outputs[0]

    def _free(self, name: str) -> str:
        return free_name(name, self._taken, first=1)


def constant_array(value: ir.Value) -> Array | None:
    """Return the elements of an initialiser, None for any other tensor."""
    if value.is_initializer() and not value.is_graph_input() and value.const_value is not None:
        return value.const_value.numpy()
    return None


def constant_shape(value: ir.Value) -> tuple[int, ...] | None:
    """Return the shape of an initialiser, whose elements are not read, None for any other tensor."""
    if value.is_initializer() and not value.is_graph_input() and value.const_value is not None:
        return tuple(value.const_value.shape.numpy())
    return None


def new_value(name: str, dtype: ir.DataType, like: ir.Value) -> ir.Value:
    """Return a new tensor with the shape of another; a node is to be given it as its output."""
    shape = None if like.shape is None else like.shape.copy()
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=shape)


def integer_type(params: QuantParams) -> ir.DataType:
    """Return the ONNX element type of tensors that are quantized with these parameters."""
    return ir.DataType[params.qtype.storage.upper()]


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
        yield name_of(value)
    for node in graph.all_nodes():
        yield name_of(node)
