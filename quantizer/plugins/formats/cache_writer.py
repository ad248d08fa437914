"""Caches of keys and values in int8 (setting `kv_cache`), in a model that a form has written.

An attention of onnxruntime reads the integers and the scales. In standard operators new keys and values are
quantized, Concat appends integers to integers, and all other readers get floats:

    past (int8) ───────────────────────────┐
                                           ├─► Concat ─► present (int8) ─► Cast ─► (Mul scale) ─► MatMul
    new ─► (Div scale) ─► QuantizeLinear ──┘

A Cast of the whole cache takes half the time of DequantizeLinear in onnxruntime. If only a MatMul reads the
result, the scale is applied to smaller tensors: the query is multiplied by the scale of keys, and the result
by that of values. Tensors without their scale have separate names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.errors import PlanError
from ....profiles.instrumentation.subgraphs import value_names
from ...lowering.emitter import integer_type, new_value
from ...model.editing import FreeNames, add_initializer, discard, free_name
from ...model.graph import subgraphs
from ...numerics.affine import QuantParams
from ...operators.graph import index
from ...operators.table import facts_of
from ...plan.plan import QuantPlan
from .caches import PLACES
from .concat_caches import CacheProduct, cache_product, concat_caches

Floats = npt.NDArray[np.float32]

Use = tuple[ir.Node, int]
"""A node that reads a value, and as which input."""

CACHE_BITS = "kv_cache_bit_width"
"""Attribute of GroupQueryAttention."""


def write_attention_caches(model: ir.Model, plan: QuantPlan) -> None:
    """Write the planned caches of attentions in int8, in place; their scales are inputs of each node."""
    taken = value_names(model)
    for node in index(model).nodes:
        entry = plan.nodes.get(node.name)
        if entry is None or not entry.keeps_int8_cache:
            continue
        for place in PLACES:
            params, attention = entry.inputs.get(place.past), node.ir_node
            if params is None:
                continue
            past, present = attention.inputs[place.past], attention.outputs[place.present]
            assert past is not None
            name = free_name(f"{present.name}_scale", taken)
            kind, scales = "PER_TENSOR", params.scale
            if params.axis is not None:  # (1, heads, 1, elements)
                heads = node.attributes.get_int("kv_num_heads", 1) or 1
                kind, scales = "PER_CHANNEL", params.scale.reshape(1, heads, 1, -1)
            scale = add_initializer(model.graph, name, np.array(scales, np.float32))
            attention.resize_inputs(max(len(attention.inputs), place.scale + 1))
            attention.replace_input_with(place.scale, scale)
            attention.attributes[place.type_attribute] = ir.AttrString(place.type_attribute, kind)
            attention.attributes[CACHE_BITS] = ir.AttrInt64(CACHE_BITS, params.qtype.bits)
            past.type = present.type = ir.TensorType(ir.DataType.INT8)


# In standard operators --------------------------------------------------------------------------------------


def write_concat_caches(model: ir.Model, plan: QuantPlan) -> None:
    """Write the caches in standard operators that are borders of the plan in int8, in place.

    The model then takes and returns int8 in their inputs and outputs. Shapes and names stay. Raises PlanError
    if a border with channels is no cache of the model.
    """
    graph = index(model)
    caches = [cache for cache in concat_caches(graph) if cache.past in plan.borders]
    held = {name for cache in caches for name in (cache.past, cache.present)}
    for name, params in plan.borders.items():
        if params.axis is not None and name not in held:
            raise PlanError(f"border '{name}': it is not a cache of the model; make a new plan for it")
    names = FreeNames(value_names(model))
    products = {  # of each reader of a cache, or of what is appended to, the product at which it ends
        cache: {
            (node.ir_node, position): cache_product(graph, node, position, cache.growth)
            for name in (cache.past, cache.present, *(node.output for node in cache.appends))
            for node, position in graph.consumers(name)
        }
        for cache in caches
    }
    for cache in caches:
        past = graph.values[cache.past]
        writer = _CacheWriter(model.graph, past, plan.borders[cache.past], products[cache], names)
        writer.write([node.ir_node for node in cache.appends], cache.present)


class _CacheWriter:
    """Writes one cache in int8; `products` has None for a reader that is no product."""

    def __init__(
        self,
        main: ir.Graph,
        past: ir.Value,
        params: QuantParams,
        products: Mapping[Use, CacheProduct | None],
        names: FreeNames,
    ) -> None:
        self._main, self._past, self._products, self._names = main, past, products, names
        self._dtype, self._by_channel = integer_type(params), params.axis is not None
        shape = [1] * (0 if past.shape is None else len(past.shape))
        if params.axis is not None:
            shape[params.axis] = -1
        self._scale: Floats = params.scale.reshape(shape if self._by_channel else ())
        self._constants: dict[str, ir.Value] = {}
        self._integers = {past: past}

    def write(self, appends: Sequence[ir.Node], present: str) -> None:
        """Write the cache that the Concat nodes `appends` extend; `present` is its output."""
        self._past.type = ir.TensorType(self._dtype)
        for node in appends:
            self._append(node)
        for place, value in enumerate(self._main.outputs):
            if value.name == present:
                integers = self._as_output(value, self._main)
                if integers is not value:
                    value.name, integers.name = self._names.take(f"{present}_float"), present
                    integers.shape = value.shape
                    self._main.outputs[place] = integers
        for node in appends:
            discard(node)
        written = {value.producer() for value in self._integers.values()}
        self._read_as_float(self._past, [use for use in self._past.uses() if use.node not in written])

    def _append(self, node: ir.Node) -> None:
        """Append integers to integers, and let readers of the result read its floats."""
        result, inputs = node.outputs[0], list[ir.Value]()
        graph = _graph_of(node)
        for value in node.inputs:
            assert value is not None
            if value is self._past:
                inputs.append(value)
            else:
                nodes, integers = self._quantized(value)
                graph.insert_before(node, nodes)
                inputs.append(integers)
        integers = self._new(f"{result.name}_int8", self._dtype, result)
        graph.insert_after(node, self._node("Concat", inputs, integers, list(node.attributes.values())))
        self._integers[result] = integers
        self._read_as_float(integers, list(result.uses()))

    def _as_output(self, value: ir.Value, graph: ir.Graph) -> ir.Value:
        """Return the integers of an output of a graph, which are made in it."""
        maker = value.producer()
        if value in self._integers:
            return self._integers[value]
        if maker is not None and maker.op_type == "If" and not maker.domain:
            place, readers = list(maker.outputs).index(value), list(value.uses())
            for branch in subgraphs(maker):
                branch.outputs[place] = self._as_output(branch.outputs[place], branch)
            value.type = ir.TensorType(self._dtype)
            self._integers[value] = value
            self._read_as_float(value, readers)
            return value
        nodes, integers = self._quantized(value)
        graph.extend(nodes)
        self._integers[value] = integers
        return integers

    def _quantized(self, value: ir.Value) -> tuple[list[ir.Node], ir.Value]:
        """Return new nodes that quantize a value, and their result."""
        nodes, source, scale = list[ir.Node](), value, self._constant("scale", self._scale)
        if self._by_channel:
            source = self._new(f"{value.name}_divided", ir.DataType.FLOAT, value)
            nodes = self._node("Div", [value, scale], source)
            scale = self._constant("one", np.ones((), np.float32))
        zero = self._constant("zero_point", np.zeros((), self._dtype.numpy()))
        result = self._new(f"{value.name}_quantized", self._dtype, value)
        return nodes + self._node("QuantizeLinear", [source, scale, zero], result), result

    def _read_as_float(self, integers: ir.Value, uses: Sequence[Use]) -> None:
        """Let nodes read the floats of integers, made in their own graph; some read no values."""
        floating = [(node, position) for node, position in uses if not facts_of(node).reads_shape_only]
        for node, position in uses:
            if facts_of(node).reads_shape_only:
                node.replace_input_with(position, integers)
        for graph in dict.fromkeys(_graph_of(node) for node, _ in floating):
            own = [(node, position) for node, position in floating if node.graph is graph]
            cast = self._new(f"{integers.name}_cast", ir.DataType.FLOAT, integers)
            to_float = [ir.AttrInt64("to", int(ir.DataType.FLOAT))]
            nodes, floats = self._node("Cast", [integers], cast, to_float), cast
            products = [self._products.get(use) for use in own]
            if None in products:
                floats = self._new(f"{integers.name}_dequantized", ir.DataType.FLOAT, integers)
                nodes += self._node("Mul", [cast, self._constant("scale", self._scale)], floats)
            maker = integers.producer()
            if maker is not None and maker.graph is graph:
                graph.insert_after(maker, nodes)
            else:
                graph.insert_before(graph[0], nodes)
            for node, position in own:
                node.replace_input_with(position, floats)
            for product in products if floats is cast else ():
                assert product is not None
                self._scale_product(product)

    def _scale_product(self, product: CacheProduct) -> None:
        """Multiply a product's first input, or its result, by the scale of the second; names stay."""
        reader, sums_steps, between = product
        node = reader.ir_node
        graph = _graph_of(node)
        scale = self._constant("scale", self._scale)
        if self._by_channel:  # the elements of a head last, as in what the product reads and gives
            shape = [1] * (self._scale.ndim - 1)
            scale = self._constant("last_scale", self._scale.reshape([*shape, -1]))
        for moving in between:
            moved = moving.ir_node.outputs[0]
            moved.name = self._names.take(f"{moved.name}_unscaled")
        if sums_steps:
            result, uses = node.outputs[0], list(node.outputs[0].uses())
            name = str(result.name)
            result.name = self._names.take(f"{name}_unscaled")
            scaled = new_value(name, ir.DataType.FLOAT, result)
            nodes = self._node("Mul", [result, scale], scaled)
            nodes[0].name = self._names.take(f"{name}_scaled")  # nodes have names of their own
            graph.insert_after(node, nodes)
            for use in uses:
                use.node.replace_input_with(use.idx, scaled)
        else:
            query = node.inputs[0]
            assert query is not None
            scaled = self._new(f"{query.name}_scaled", ir.DataType.FLOAT, query)
            graph.insert_before(node, self._node("Mul", [query, scale], scaled))
            node.replace_input_with(0, scaled)

    def _new(self, name: str, dtype: ir.DataType, like: ir.Value) -> ir.Value:
        return new_value(self._names.take(name), dtype, like)

    @staticmethod
    def _node(
        op_type: str, inputs: Sequence[ir.Value], output: ir.Value, attributes: Sequence[ir.Attr] = ()
    ) -> list[ir.Node]:
        return [ir.Node("", op_type, inputs, attributes, outputs=[output], name=output.name)]

    def _constant(self, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
        """Return the constant of a name, perhaps a new one of the main graph."""
        if name not in self._constants:
            full = self._names.take(f"{self._past.name}_{name}")
            self._constants[name] = add_initializer(self._main, full, array)
        return self._constants[name]


def _graph_of(node: ir.Node) -> ir.Graph:
    assert isinstance(node.graph, ir.Graph)
    return node.graph
