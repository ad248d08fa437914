"""The forms of a tensor (float, quantized, dequantized), each written once, on demand.

A tensor is stored in one form. It is *stored quantized* when its node has quantized outputs; else it is
stored as float, as are graph inputs and constants. Every other form is derived from that:

=====================  ======================================  ===============================
wanted                 stored quantized                        stored as float
=====================  ======================================  ===============================
float                  DequantizeLinear, under the tensor's    the tensor itself
                       own name
quantized              the stored tensor; with other           QuantizeLinear; for a constant
                       parameters QuantizeLinear of the float  a new initialiser
                       form
dequantized            DequantizeLinear of the quantized form  DequantizeLinear of the quantized form
=====================  ======================================  ===============================

So everything that reads a tensor by name, a float node, a graph output, the subgraph of an If, finds float
values under the name that it had before.

A subgraph of Loop, If or Scan has its own emitter, inside that of the graph around it. Conversions of a
tensor from outside are written outside, right before the node with the subgraph: once, and not in every
iteration. Only DequantizeLinear is put beside its reader, because runtimes expect it there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError, free_name
from ..model.editing import is_standard
from ..model.graph import name_of
from ..numerics.affine import INT32, QuantParams, quantize
from ..numerics.block_scales import FLOAT_BLOCKS
from .lowered import TensorForms, WrittenNames

Array = npt.NDArray[np.generic]
Attributes = Mapping[str, int | float | str | Sequence[int] | ir.Attr]


@dataclass(frozen=True)
class Factor:
    """A quantized tensor that is multiplied, and its zero point: a scalar of the same type, None for 0."""

    quantized: ir.Value
    zero_point: ir.Value | None
    scale: ir.Value | None = None  # a scalar, if it is computed at run time


@dataclass
class _Forms:
    """The written forms of one tensor; `stored` are its parameters, None for float."""

    stored: QuantParams | None = None
    quantized: dict[QuantParams, ir.Value] = field(default_factory=dict)
    dequantized: dict[QuantParams, ir.Value] = field(default_factory=dict)
    folded: dict[QuantParams, ir.Value] = field(default_factory=dict)
    packed: dict[Hashable, ir.Value] = field(default_factory=dict)
    dynamic: Factor | None = None


class Emitter:
    """Adds nodes and initialisers to one graph, in place: the forms of tensors, and others.

    A new node goes right before the one that needs it (`before`), or to the end of the graph for None, and
    nodes are lowered in their order. `outside` is the emitter around a subgraph, and the node that has it.
    """

    def __init__(self, graph: ir.Graph, outside: tuple[Emitter, ir.Node] | None = None) -> None:
        self._graph, self._outside = graph, outside
        self._forms: dict[ir.Value, _Forms] = {}
        self._clipped: set[ir.Value] = set()
        self._integers: dict[ir.Value | None, tuple[ir.Value, QuantParams]] = {}  # of what is dequantized
        self._params: dict[tuple[QuantParams, tuple[int, ...]], tuple[ir.Value, ir.Value]] = {}
        self._constants: dict[tuple[str, bytes], ir.Value] = {}
        if outside is None:
            nodes = list(graph.all_nodes())
            values = [*graph.inputs, *graph.initializers.values()]
            values += (value for node in nodes for value in node.outputs)
            for inner in graph.subgraphs():
                values += (*inner.inputs, *inner.initializers.values())
            self._names: dict[ir.Value, str] = {value: name_of(value) for value in values}
            self._taken: set[str] = {*map(name_of, values), *map(name_of, nodes)}
            self._nodes: list[ir.Node] = nodes
            self._owners: list[tuple[ir.Node, str]] = []
            self._emitters: list[Emitter] = []
        else:
            around = outside[0]
            self._names, self._taken = around._names, around._taken
            self._nodes, self._owners = around._nodes, around._owners
            self._emitters = around._emitters
        self._emitters.append(self)

    # Nodes and initialisers

    def name(self, value: ir.Value) -> str:
        """Return the name of a tensor in the original graph."""
        return self._names[value]

    def rename(self, value: ir.Value, name: str) -> None:
        """Rename a tensor to `name`, followed by a number if the name is taken."""
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
        """Add a node before `before`, at the end for None; its result's name gets a number if taken."""
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

    # The forms of tensors

    def stored_params(self, value: ir.Value) -> QuantParams | None:
        """Return the parameters of a tensor that is stored quantized, None for any other."""
        emitter, _ = self._home(value, None)
        return emitter._forms_of(value).stored

    def store(self, value: ir.Value, quantized: ir.Value, params: QuantParams) -> None:
        """Record that a tensor is stored in the form `quantized`."""
        self._taken.add(self._names.setdefault(value, name_of(value)))
        self._forms[value] = _Forms(params, {params: quantized})

    def clip_before_quantizing(self, value: ir.Value) -> None:
        """Have a Clip without bounds put before each QuantizeLinear of a tensor that is stored as float."""
        self._clipped.add(value)

    def quantize_output(self, value: ir.Value, params: QuantParams, after: ir.Node) -> None:
        """Put QuantizeLinear after the node of a tensor, which is stored quantized from then on."""
        self.store(value, self.quantize_after(value, params, after), params)

    def quantize_after(self, value: ir.Value, params: QuantParams, after: ir.Node) -> ir.Value:
        """Put QuantizeLinear after the node of a tensor, which is renamed, and return the quantized one."""
        name = self.name(value)
        self.rename(value, f"{name}_raw")
        nodes = self._quantize_nodes(value, name, params)
        self._graph.insert_after(after, nodes)
        return nodes[-1].outputs[0]

    def floating(self, value: ir.Value, before: ir.Node | None) -> ir.Value:
        """Return the float form of a tensor."""
        emitter, place = self._home(value, before)
        params = emitter._forms_of(value).stored
        return value if params is None else emitter.dequantized(value, params, place)

    def quantized(self, value: ir.Value, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Return the form of a tensor that is quantized with the given parameters."""
        emitter, place = self._home(value, before)
        forms, shape = emitter._forms_of(value), constant_shape(value)
        unshared = _is_bias(value, params)
        if params in forms.quantized and not unshared:
            return forms.quantized[params]
        # What an Identity hands on has the form of its input: onnxruntime removes the node, and aborts where
        # it then removes DequantizeLinear and QuantizeLinear side by side whose integers a subgraph reads.
        maker = value.producer()
        if maker is not None and is_standard(maker, "Identity"):
            integers, own = emitter._integers.get(maker.inputs[0], (None, None))
            if integers is not None and own == params:
                return integers
        if shape is not None:
            elements = value.const_value
            assert elements is not None
            name, dtype = f"{self.name(value)}_quantized", integer_type(params)
            form = emitter._computed(name, shape, dtype, lambda: quantize(elements.numpy(), params))
        else:
            source = emitter.floating(value, place)
            if value in emitter._clipped:
                clipped = new_value(f"{self.name(value)}_clipped", ir.DataType.FLOAT, value)
                source = emitter.add("Clip", [source], clipped, place)
            form = emitter._insert(emitter._quantize_nodes(source, self.name(value), params), place)
        if not unshared:
            forms.quantized[params] = form
        return form

    def dequantized(self, value: ir.Value, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Return the float values that a tensor quantized with the given parameters stands for."""
        forms, name = self._forms_of(value), self.name(value)
        if _is_bias(value, params) or params not in forms.dequantized:
            output = name if forms.stored == params else self._free(f"{name}_dequantized")
            quantized = self.quantized(value, params, before)
            nodes = self._dequantize_nodes(quantized, name, output, params)
            forms.dequantized[params] = self._insert(nodes, before)
            self._integers[forms.dequantized[params]] = quantized, params
        return forms.dequantized[params]

    def dequantized_at_home(self, value: ir.Value, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """As `dequantized`, in the constant's graph: onnxruntime's MatMulNBits reads no other graph."""
        emitter, place = self._home(value, before)
        return emitter.dequantized(value, params, place)

    def folded(self, value: ir.Value, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Return a quantized constant as float by Cast and arithmetic, which runtimes compute at loading."""
        emitter, place = self._home(value, before)
        forms, name = emitter._forms_of(value), self.name(value)
        if params not in forms.folded:
            quantized = emitter.quantized(value, params, place)
            nodes = emitter._cast_nodes(quantized, name, emitter._free(f"{name}_dequantized"), params)
            forms.folded[params] = emitter._insert(nodes, place)
        return forms.folded[params]

    def packed(
        self,
        value: ir.Value,
        key: Hashable,
        shape: Sequence[int],
        compute: Callable[[], Array],
        *,
        before: ir.Node | None,
        suffix: str,
        dtype: ir.DataType,
    ) -> ir.Value:
        """Return an initialiser with the result of `compute` for a constant, the same for the same key."""
        emitter, _ = self._home(value, before)
        forms = emitter._forms_of(value)
        if key not in forms.packed:
            forms.packed[key] = emitter._computed(f"{self.name(value)}_{suffix}", shape, dtype, compute)
        return forms.packed[key]

    def dynamic(self, value: ir.Value, before: ir.Node | None) -> Factor:
        """Return a tensor quantized to uint8 with parameters computed from its values at run time."""
        emitter, place = self._home(value, before)
        forms = emitter._forms_of(value)
        if forms.dynamic is None:
            source = emitter.floating(value, place)
            forms.dynamic = emitter._quantize_dynamically(source, self.name(value), place)
        return forms.dynamic

    def add_dequantize(
        self, quantized: ir.Value, name: str, params: QuantParams, before: ir.Node | None
    ) -> ir.Value:
        """Add DequantizeLinear, with parameters that may differ from those of `quantized`."""
        return self._insert(self._dequantize_nodes(quantized, name, self._free(name), params), before)

    def add_quantize(
        self, value: ir.Value, name: str, params: QuantParams, before: ir.Node | None
    ) -> ir.Value:
        """Add QuantizeLinear of a float tensor, for the tensor called `name`."""
        return self._insert(self._quantize_nodes(value, name, params), before)

    # Subgraphs, and what stands for what in the end

    def inside(self, subgraph: ir.Graph, owner: ir.Node) -> Emitter:
        """Return an emitter for a subgraph of `owner`, a node of this graph."""
        return type(self)(subgraph, (self, owner))

    def written_names(self) -> WrittenNames:
        """Return the written names of the tensors and nodes of the original graph."""
        tensors: dict[str, TensorForms] = {}
        for value, name in self._names.items():
            if not name:
                continue
            forms = [emitter._forms[value] for emitter in self._emitters if value in emitter._forms]
            quantized = {form: params for entry in forms for params, form in entry.quantized.items()}
            floats = [form for entry in forms for form in entry.dequantized.values()]
            producer = value.producer()
            if producer is None:
                is_present = value.is_graph_input() or value.is_initializer()
            else:
                is_present = producer.graph is not None
            if is_present and value not in quantized:
                floats.insert(0, value)
            tensors[name] = TensorForms(
                tuple(dict.fromkeys(name_of(form) for form in floats)),
                {name_of(form): params for form, params in quantized.items()},
                next((name_of(e.quantized[e.stored]) for e in forms if e.stored is not None), ""),
            )
        added: dict[str, list[str]] = {}
        for node, owner in self._owners:
            if node.graph is not None:
                added.setdefault(owner, []).append(name_of(node))
        nodes: dict[str, tuple[str, ...]] = {}
        for node in self._nodes:
            itself = [name_of(node)] if node.graph is not None else []
            nodes[name_of(node)] = (*itself, *added.get(name_of(node), ()))
        return WrittenNames(tensors, nodes)

    def _forms_of(self, value: ir.Value) -> _Forms:
        return self._forms.setdefault(value, _Forms())

    def _home(self, value: ir.Value, before: ir.Node | None) -> tuple[Emitter, ir.Node | None]:
        """Return the emitter of a tensor's graph, this one for a new tensor, and the node that needs it."""
        if self._outside is None or value.graph is None or value.graph is self._graph:
            return self, before
        emitter, owner = self._outside
        return emitter._home(value, owner)

    def _quantize_nodes(self, value: ir.Value, name: str, params: QuantParams) -> list[ir.Node]:
        """Return new nodes; the last quantizes a float tensor, whose original name is `name`."""
        inputs = [value, *self.param_values(name, params, _sizes(value))]
        output = new_value(self._free(f"{name}_quantized"), integer_type(params), value)
        return [self._node("QuantizeLinear", inputs, [output], _axis(params))]

    def _dequantize_nodes(
        self, quantized: ir.Value, name: str, output: str, params: QuantParams
    ) -> list[ir.Node]:
        """Return new nodes; the last dequantizes a tensor to `output`."""
        result = new_value(output, ir.DataType.FLOAT, quantized)
        if params.qtype.scales is not None:
            scale = self._block_scale_node(name, params, _sizes(quantized))
            inputs = [quantized, scale.outputs[0]]
            return [scale, self._node("DequantizeLinear", inputs, [result], _axis(params))]
        inputs = [quantized, *self.param_values(name, params, _sizes(quantized))]
        if params.qtype == INT32 or (params.qtype.is_float and params.block_size is not None):
            inputs.pop()  # its zero point is 0, which is the default
        return [self._node("DequantizeLinear", inputs, [result], _axis(params))]

    def _block_scale_node(self, name: str, params: QuantParams, shape: tuple[int, ...]) -> ir.Node:
        """Return a node that computes scales of blocks: Cast of powers of two, which are not dequantized."""
        stored, whole = FLOAT_BLOCKS.load(params.qtype.name).stored_scales(params)
        grid = params.grid_shape(shape)
        scales = self._initializer(f"{name}_scale", stored.reshape(grid))
        result = ir.Value(
            name=self._free(f"{name}_float_scale"),
            type=ir.TensorType(ir.DataType.FLOAT),
            shape=ir.Shape(grid),
        )
        if whole is None:
            return self._node("Cast", [scales], [result], {"to": int(ir.DataType.FLOAT)})
        factor = self._initializer(f"{name}_tensor_scale", np.array(whole))
        return self._node("DequantizeLinear", [scales, factor], [result], None)

    def _cast_nodes(self, quantized: ir.Value, name: str, output: str, params: QuantParams) -> list[ir.Node]:
        """Return nodes as `_dequantize_nodes` does: Cast, Sub, Mul; with blocks between two Reshapes."""
        scale, zero_point = self._broadcast_params(name, params, quantized)
        steps: list[tuple[str, list[ir.Value], str]] = [("Mul", [scale], "scaled")]
        if params.zero_point.any():
            steps.insert(0, ("Sub", [zero_point], "centred"))
        whole = in_blocks = _sizes(quantized)
        if params.block_size is not None:
            in_blocks = _in_blocks(params, whole)
            split = self.constant(f"{name}_blocks", np.array(in_blocks))
            joined = self.constant(f"{name}_shape", np.array(whole))
            steps = [("Reshape", [split], "in_blocks"), *steps, ("Reshape", [joined], "whole")]
        last, value = steps[-1], new_value(self._free(f"{name}_float"), ir.DataType.FLOAT, quantized)
        nodes = [self._node("Cast", [quantized], [value], {"to": int(ir.DataType.FLOAT)})]
        for step in steps:
            op_type, constants, suffix = step
            step_name = output if step is last else self._free(f"{name}_{suffix}")
            result = new_value(step_name, ir.DataType.FLOAT, quantized)
            if params.block_size is not None and step is not last:
                result.shape = ir.Shape(in_blocks)
            nodes.append(self._node(op_type, [value, *constants], [result], None))
            value = result
        return nodes

    def _broadcast_params(self, name: str, params: QuantParams, value: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return scale and zero point as float32, that broadcast with a tensor, which is split in blocks."""
        shape: tuple[int, ...] = ()
        if params.block_size is not None and params.axis is not None:
            split = _in_blocks(params, _sizes(value))
            shape = (*split[: params.axis + 1], 1, *split[params.axis + 2 :])
        elif params.axis is not None:
            if value.shape is None:
                raise PlanError(
                    f"tensor '{name}': its rank is not known, so scales of channels cannot be written as "
                    "plain arithmetic; use form qdq"
                )
            shape = tuple(len(params.scale) if i == params.axis else 1 for i in range(len(value.shape)))
        zero_point = params.zero_point.astype(np.float32).reshape(shape)
        return (
            self.constant(f"{name}_scale", params.scale_array.reshape(shape)),
            self.constant(f"{name}_zero_point", zero_point),
        )

    def _quantize_dynamically(self, value: ir.Value, name: str, before: ir.Node | None) -> Factor:
        """Add the nodes that quantize a float tensor with parameters computed from its values."""
        scalar = ir.Shape(())
        outputs = (
            new_value(self._free(f"{name}_quantized"), ir.DataType.UINT8, value),
            ir.Value(name=self._free(f"{name}_scale"), type=ir.TensorType(ir.DataType.FLOAT), shape=scalar),
            ir.Value(
                name=self._free(f"{name}_zero_point"), type=ir.TensorType(ir.DataType.UINT8), shape=scalar
            ),
        )
        node = self._node("DynamicQuantizeLinear", [value], outputs, None)
        if before is not None:
            self._owners.append((node, name_of(before)))
        self._insert([node], before)
        quantized, scale, zero_point = outputs
        return Factor(quantized, zero_point, scale)

    def _initializer(self, name: str, array: Array) -> ir.Value:
        unique = self._free(name)
        return self._registered(ir.Tensor(array, name=unique))  # ir.tensor would try a dozen types first

    def _computed(
        self, name: str, shape: Sequence[int], dtype: ir.DataType, compute: Callable[[], Array]
    ) -> ir.Value:
        """Return an initialiser computed whenever it is read: at most one large weight is in memory."""
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
        """Put nodes before another, or at the end of the graph for None; return the output of the last."""
        if before is None:
            self._graph.extend(nodes)
        else:
            self._graph.insert_before(before, nodes)
        return nodes[-1].outputs[0]

    def _free(self, name: str) -> str:
        unique = free_name(name, self._taken)
        self._taken.add(unique)
        return unique


def _in_blocks(params: QuantParams, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a tensor whose blocks along an axis are an axis of their own, after that."""
    assert params.axis is not None
    assert params.block_size is not None
    blocks = shape[params.axis] // params.block_size
    return (*shape[: params.axis], blocks, params.block_size, *shape[params.axis + 1 :])


def _axis(params: QuantParams) -> dict[str, int]:
    axis = {} if params.axis is None else {"axis": params.axis}
    return axis if params.block_size is None else {**axis, "block_size": params.block_size}


def _sizes(value: ir.Value) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else 0 for d in value.shape) if value.shape is not None else ()


def _is_bias(value: ir.Value, params: QuantParams) -> bool:
    """Whether a tensor is a bias: onnxruntime copies a shared bias, under a name that may be taken."""
    return params.qtype == INT32 and constant_shape(value) is not None


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


def become(
    node: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Attributes | None = None,
    domain: str = "",
) -> None:
    """Make a node another one under its name and with its outputs: its readers need not be changed."""
    new = ir.node(op_type, [], dict(attributes or {})).attributes
    node.op_type, node.domain = op_type, domain
    node.attributes.clear()
    node.attributes.update(new)
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)
