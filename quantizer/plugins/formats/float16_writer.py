"""Writes float16 instead of float32 (setting `float_type`), the last step of lowering.

Each node computes in one type: float16, unless the plan has a reason against it (`NodePlan.float32`) or the
operator has no float16 in its schema. A tensor has the type of its producer; inputs and outputs of the model
keep theirs. If nodes read a tensor in the other type, one Cast for all of them follows its producer. Three
kinds of tensors need no Cast:

constants       are stored in the type of their readers, twice if these differ
integers        DequantizeLinear returns the type that its readers need, in two nodes if they differ;
                QuantizeLinear reads both types
bodies          the inputs and outputs of the graphs of If, Loop and Scan have the type of that node

QuantizeLinear and DequantizeLinear have float16 scales if these are normal numbers of float16, as plans
choose them (`float16_scales.in_float16`); with any other scale, such as that of an int32 bias, the conversion
stays in float32 and has a Cast beside it.

A runtime without float16 kernels computes in float32 and rounds nothing between nodes. `emulated` returns a
model that rounds like float16 kernels in any runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import onnx_ir as ir

from ....profiles.instrumentation.subgraphs import graph_attributes, value_names
from ...lowering.emitter import new_value
from ...model.editing import FreeNames, bypass, is_standard
from ...model.graph import name_of
from ...operators.table import facts_of
from ...prepare.float16 import widen
from .float16_scales import LARGEST_16, LOWEST_16, with_fillers_16
from .float_types import float16_places

FLOAT, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16

_TYPES = ("to", "dtype", "output_datatype")
"""Attributes of standard operators that hold the element type of an output."""

_TYPED_SCALES = {"MatMulNBits": (2,), "GatherBlockQuantized": (2,)}
"""Operators whose scales are constants with the type of their activations, by position."""


def has_conversions(model: ir.Model) -> bool:
    """Whether QuantizeLinear or DequantizeLinear stands in a model."""
    return any(is_standard(node, "QuantizeLinear", "DequantizeLinear") for node in model.graph.all_nodes())


def narrow_floats(model: ir.Model, wide: Collection[str]) -> None:
    """Let all nodes that can compute in float16, except those of `wide`, in place."""
    _Narrowing(model, frozenset(wide)).apply()


def is_exact(scales: ir.Value | None) -> bool:
    """Whether all scales are normal numbers of float16."""
    tensor = None if scales is None else scales.const_value
    if tensor is None:
        return False
    array = tensor.numpy().astype(np.float32)
    if not array.size or array.max() > LARGEST_16 or array.min() < LOWEST_16:
        return False
    return bool(np.array_equal(array.astype(np.float16).astype(np.float32), array))


Uses = Mapping[ir.DataType, list[tuple[ir.Node, int]]]
"""The nodes that read a tensor, with the index of the input, by the type in which they want it."""


class _Narrowing:
    """The type of each node's arithmetic in a model, and the tensors added in another type."""

    def __init__(self, model: ir.Model, wide: frozenset[str]) -> None:
        self.model, self.wide = model, wide
        self.opset = model.opset_imports.get("", 0)
        self.nodes = list(model.graph.all_nodes())
        self.names = FreeNames(value_names(model) | {name_of(node) for node in self.nodes})
        self.owners = {graph: node for node in self.nodes for graph in graph_attributes(node)}
        self.made: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self.exact = {
            node
            for node in self.nodes
            if _is_conversion(node) and is_exact(node.inputs[1]) and not _makes_scales(node)
        }
        self.types = {node: self._type_of(node) for node in self.nodes if not _is_conversion(node)}
        # Of conversions the type of the float side, which is that of what is around.
        for node in (node for node in self.nodes if is_standard(node, "DequantizeLinear")):
            self.types[node] = HALF if node in self.exact and self._is_read_narrow(node.outputs[0]) else FLOAT
        for node in (node for node in self.nodes if is_standard(node, "QuantizeLinear")):
            source = node.inputs[0]
            narrow = node in self.exact and source is not None and self._made_as(source) is HALF
            self.types[node] = HALF if narrow else FLOAT

    def apply(self) -> None:
        """Give every tensor its type."""
        wanted: dict[ir.Value, dict[ir.DataType, list[tuple[ir.Node, int]]]] = {}
        for node in self.nodes:
            for index, value in enumerate(node.inputs):
                if value is not None and value.dtype is FLOAT and not facts_of(node).reads_shape_only:
                    uses = wanted.setdefault(value, {})
                    uses.setdefault(self._wanted(node, index), []).append((node, index))
        results = [
            (graph, index, value, FLOAT if owner is None else self.types[owner])
            for graph, owner in ((self.model.graph, None), *self.owners.items())
            for index, value in enumerate(graph.outputs)
            if value.dtype is FLOAT
        ]
        types = {value: self._made_as(value) for value in self._activations()}
        for value, uses in wanted.items():
            if _is_constant(value):
                self._narrow_constant(value, uses)
                continue
            for dtype, readers in uses.items():
                if dtype is not types.get(value, FLOAT):
                    other = self._in_type(value, dtype)
                    for node, index in readers:
                        node.replace_input_with(index, other)
        for graph, index, value, dtype in results:
            self._give_result(graph, index, value, dtype, types.get(value, FLOAT))
        for value, dtype in types.items():
            if dtype is HALF:
                value.type = ir.TensorType(HALF)
        for node, dtype in self.types.items():
            if dtype is HALF:
                _narrow_attributes(node)
        self._without_casts()

    def _type_of(self, node: ir.Node) -> ir.DataType:
        """Return the type of a node's arithmetic."""
        values = [*node.inputs, *node.outputs]
        for graph in graph_attributes(node):
            values += [*graph.inputs, *graph.outputs]
        kinds = [value.type for value in values if value is not None and value.name]
        if not all(isinstance(kind, ir.TensorType) for kind in kinds):
            return FLOAT  # a sequence, or of unknown type
        if name_of(node) in self.wide or _makes_scales(node):
            return FLOAT
        if any(not is_exact(node.inputs[at]) for at in _TYPED_SCALES.get(node.op_type, ())):
            return FLOAT
        if graph_attributes(node):
            return HALF
        return FLOAT if float16_places(node, self.opset) is None else HALF

    def _wanted(self, node: ir.Node, index: int) -> ir.DataType:
        """Return the type of a float input for a node."""
        if self.types[node] is FLOAT or graph_attributes(node) or _is_conversion(node):
            return self.types[node]
        places = float16_places(node, self.opset)
        narrow = places is not None and (not places or places[min(index, len(places) - 1)])
        return HALF if narrow else FLOAT

    def _made_as(self, value: ir.Value) -> ir.DataType:
        """Return the type that a float32 activation is computed in."""
        maker = value.producer()
        if maker is None and value.graph in self.owners and value.is_graph_input():
            maker = self.owners[value.graph]
        return FLOAT if maker is None else self.types[maker]

    def _is_read_narrow(self, value: ir.Value) -> bool:
        """Whether a reader of a dequantized tensor wants float16, or none wants float32 either."""
        readers = [
            use
            for use in value.uses()
            if not (is_standard(use.node, "QuantizeLinear") or facts_of(use.node).reads_shape_only)
        ]
        if any(self._wanted(use.node, use.idx) is HALF for use in readers):
            return True
        held = (owner for graph, owner in self.owners.items() if any(v is value for v in graph.outputs))
        if any(self.types[owner] is HALF for owner in held):
            return True
        return not readers and not value.is_graph_output()

    def _activations(self) -> Iterable[ir.Value]:
        for graph in self.model.graphs():
            inputs = () if graph is self.model.graph else graph.inputs
            for value in (*inputs, *(v for node in graph for v in node.outputs)):
                if value.dtype is FLOAT:
                    yield value

    # Tensors of two types

    def _narrow_constant(self, value: ir.Value, uses: Uses) -> None:
        """Store a constant in float16, and also in float32 if a reader needs it."""
        if HALF not in uses:
            return
        tensor = _narrowed(value)
        shape_alone = any(facts_of(use.node).reads_shape_only for use in value.uses())
        if len(uses) == 1 and not value.is_graph_output() and not shape_alone:
            value.const_value, value.type = tensor, ir.TensorType(HALF)
            return
        copy = self._constant(value, tensor)
        for node, index in uses[HALF]:
            node.replace_input_with(index, copy)

    def _constant(self, value: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
        """Return a further constant beside one."""
        tensor.name = self.names.take(f"{value.name}_{tensor.dtype.name.lower()}")
        copy = ir.Value(
            name=tensor.name, type=ir.TensorType(tensor.dtype), shape=value.shape, const_value=tensor
        )
        assert value.graph is not None
        value.graph.register_initializer(copy)
        return copy

    def _in_type(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a tensor in another type than it is made in: by Cast, or a second DequantizeLinear."""
        if (value, dtype) not in self.made:
            maker, graph = value.producer(), value.graph
            assert graph is not None
            result = new_value(self.names.take(f"{value.name}_{dtype.name.lower()}"), dtype, value)
            if maker is not None and maker in self.exact:
                integers, scale, *point = maker.inputs
                inputs = [integers, self._scale(scale, dtype), *point]
                name = self.names.take(f"{result.name}_DequantizeLinear")
                kept = list(maker.attributes.values())
                node = ir.Node("", "DequantizeLinear", inputs, kept, outputs=[result], name=name)
            else:
                node = _cast(value, result, self.names.take(f"{result.name}_Cast"))
            if maker is not None:
                graph.insert_after(maker, [node])
            elif len(graph):
                graph.insert_before(graph[0], [node])
            else:
                graph.append(node)
            self.made[value, dtype] = result
        return self.made[value, dtype]

    def _scale(self, scale: ir.Value | None, dtype: ir.DataType) -> ir.Value:
        """Return a scale in a type; it is the same number in both."""
        assert scale is not None
        assert scale.const_value is not None
        if scale.dtype is dtype:
            return scale
        if (scale, dtype) not in self.made:
            array = scale.const_value.numpy().astype(dtype.numpy())
            self.made[scale, dtype] = self._constant(scale, ir.Tensor(array, dtype=dtype))
        return self.made[scale, dtype]

    def _give_result(
        self, graph: ir.Graph, index: int, value: ir.Value, wanted: ir.DataType, made: ir.DataType
    ) -> None:
        """Give an output of a graph its type, under its name."""
        made = HALF if value.dtype is HALF else made  # a constant that has its type already
        if wanted is made:
            return
        if graph is self.model.graph and value.producer() is not None:
            other = self._in_type(value, wanted)
            name = value.name
            value.name, other.name = self.names.take(f"{name}_{made.name.lower()}"), name
        else:  # names of the outputs of bodies are known inside alone
            other = new_value(self.names.take(f"{value.name}_{wanted.name.lower()}"), wanted, value)
            graph.append(_cast(value, other, self.names.take(f"{other.name}_Cast")))
        graph.outputs[index] = other

    def _without_casts(self) -> None:
        """Leave out each Cast to the type that a tensor has."""
        for node in list(self.model.graph.all_nodes()):
            if not is_standard(node, "Cast") or node.inputs[0] is None:
                continue
            source, result = node.inputs[0], node.outputs[0]
            if source.dtype is result.dtype and source.dtype in (FLOAT, HALF):
                bypass(node, source)


def _cast(value: ir.Value, result: ir.Value, name: str) -> ir.Node:
    """Return a Cast to the type of its result."""
    assert result.dtype is not None
    to = ir.AttrInt64("to", int(result.dtype))
    return ir.Node("", "Cast", [value], [to], outputs=[result], name=name)


def _is_conversion(node: ir.Node) -> bool:
    return is_standard(node, "DequantizeLinear", "QuantizeLinear")


def _makes_scales(node: ir.Node) -> bool:
    """Whether a node computes the scales of blocks, which may be no normal numbers of float16."""
    return any(use.idx == 1 and _is_conversion(use.node) for use in node.outputs[0].uses())


def _is_constant(value: ir.Value) -> bool:
    return value.is_initializer() and not value.is_graph_input() and value.const_value is not None


def _narrowed(value: ir.Value) -> ir.TensorProtocol:
    """Return a float32 constant in float16, rounded when it is read; only mask fillers exceed its range."""
    tensor = value.const_value
    assert tensor is not None

    def narrow() -> ir.TensorProtocol:
        array = with_fillers_16(tensor.numpy()).astype(np.float16)
        return ir.Tensor(array, dtype=HALF, name=tensor.name)

    return ir.LazyTensor(narrow, HALF, ir.Shape(tensor.shape.numpy()), name=tensor.name)


def _narrow_attributes(node: ir.Node) -> None:
    if is_standard(node, "ConstantOfShape"):
        value = node.attributes.get("value")
        if value is None or value.as_tensor().dtype is FLOAT:
            number = 0.0 if value is None else float(value.as_tensor().numpy().reshape(-1)[0])
            tensor = ir.Tensor(np.array([number], np.float16), dtype=HALF)
            node.attributes["value"] = ir.AttrTensor("value", tensor)
        return
    for name in _TYPES if is_standard(node) else ():
        attribute = node.attributes.get(name)
        if attribute is not None and attribute.type is ir.AttributeType.INT and attribute.as_int() == FLOAT:
            node.attributes[name] = ir.AttrInt64(name, int(HALF))


# The same numbers in a runtime without float16 ------------------------------------------------------------


def emulated(model: ir.Model) -> ir.Model:
    """Return a copy of a float16 model in float32 that rounds to float16 between its nodes.

    Inputs of QuantizeLinear and results of DequantizeLinear are not rounded: there float16 is finer than a
    step of 8 bits, and runtimes compute on the integers themselves.
    """
    model = model.clone()
    rounded = [
        str(value.name)
        for node in model.graph.all_nodes()
        if not (is_standard(node, "DequantizeLinear") or facts_of(node).moves_values)
        for value in node.outputs
        if isinstance(value.type, ir.TensorType) and value.dtype is HALF and _rounds(value)
    ]
    outputs = {str(value.name) for value in model.graph.outputs}
    widen(model)
    names = FreeNames(value_names(model) | {name_of(node) for node in model.graph.all_nodes()})
    values = {str(v.name): v for node in model.graph.all_nodes() for v in node.outputs}
    for name in rounded:
        value = values.get(name)
        if value is None or value.dtype is not FLOAT or name in outputs:
            continue
        maker, graph = value.producer(), value.graph
        assert maker is not None
        assert graph is not None
        readers = [use for use in value.uses() if not is_standard(use.node, "QuantizeLinear")]
        narrow = new_value(names.take(f"{name}_rounded"), HALF, value)
        wide = new_value(names.take(f"{name}_widened"), FLOAT, value)
        casts = [_cast(value, narrow, str(narrow.name)), _cast(narrow, wide, str(wide.name))]
        graph.insert_after(maker, casts)
        for use in readers:
            use.node.replace_input_with(use.idx, wide)
        for inner in model.graphs():
            for index, output in enumerate(inner.outputs):
                if output is value:
                    inner.outputs[index] = wide
    return model


def _rounds(value: ir.Value) -> bool:
    """Whether the readers of a float16 tensor read its rounded values."""
    uses = list(value.uses())
    return not uses or not all(is_standard(use.node, "QuantizeLinear") for use in uses)
