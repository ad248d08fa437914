"""The forms of a tensor (float, quantized, dequantized), each written once and only when it is asked for.

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

A subgraph of Loop, If or Scan has an emitter of its own, inside that of the graph around it. What it wants of
a tensor from outside is written outside, right before the node that has the subgraph: once, and not in every
iteration. Only DequantizeLinear is put beside its reader, where runtimes look for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..model.graph import name_of
from ..numerics.affine import INT32, QuantParams, quantize
from .graph_writer import Array, GraphWriter, constant_array, integer_type, new_value
from .written import Written, WrittenNames


@dataclass(frozen=True)
class Dynamic:
    """A tensor in uint8 with scale (float32) and zero point (uint8) computed at run time, both scalars."""

    quantized: ir.Value
    scale: ir.Value
    zero_point: ir.Value


@dataclass
class _Forms:
    """The forms of one tensor that are written so far.

    Attributes:
        stored: parameters of the quantized form that the tensor is stored in, None when stored as float.
        quantized, dequantized: forms by their parameters.
        folded: of a constant, float forms that are computed when the model is loaded.
        packed: of a constant, forms in which several values share a byte.
        dynamic: the form with parameters computed at run time.
    """

    stored: QuantParams | None = None
    quantized: dict[QuantParams, ir.Value] = field(default_factory=dict)
    dequantized: dict[QuantParams, ir.Value] = field(default_factory=dict)
    folded: dict[QuantParams, ir.Value] = field(default_factory=dict)
    packed: dict[Hashable, ir.Value] = field(default_factory=dict)
    dynamic: Dynamic | None = None


class Emitter(GraphWriter):
    """Writes the forms of tensors into one graph, which it changes in place.

    Nodes must be lowered in their order: a new node is put right before the one that asks for it
    (`before`), or at the end of the graph where that is None.

    Args:
        graph: the graph, with its subgraphs.
        outside: for a subgraph, the emitter of the graph around it and the node that has the subgraph.
    """

    def __init__(self, graph: ir.Graph, outside: tuple[Emitter, ir.Node] | None = None) -> None:
        super().__init__(graph, None if outside is None else outside[0])
        self._outside = outside
        self._inner: list[Emitter] = []
        self._forms: dict[ir.Value, _Forms] = {}
        self._clipped: set[ir.Value] = set()

    def inside(self, subgraph: ir.Graph, owner: ir.Node) -> Emitter:
        """Return an emitter for a subgraph of `owner`, a node of this graph."""
        inner = type(self)(subgraph, (self, owner))
        self._inner.append(inner)
        return inner

    def stored(self, value: ir.Value) -> QuantParams | None:
        """Return the parameters of a tensor that is stored quantized, None for any other."""
        emitter, _ = self._home(value, None)
        return emitter._of(value).stored

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
        params = emitter._of(value).stored
        return value if params is None else emitter.dequantized(value, params, place)

    def quantized(self, value: ir.Value, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Return the form of a tensor that is quantized with the given parameters."""
        emitter, place = self._home(value, before)
        forms, constant = emitter._of(value), constant_array(value)
        if constant is not None and params.qtype == INT32:
            # One bias for each node: onnxruntime copies a shared one, under a name that may be taken.
            return emitter._quantized_constant(value, constant, params)
        if params not in forms.quantized:
            if constant is not None:
                form = emitter._quantized_constant(value, constant, params)
            else:
                source = emitter.floating(value, place)
                if value in emitter._clipped:
                    clipped = new_value(f"{self.name(value)}_clipped", ir.DataType.FLOAT, value)
                    source = emitter.add("Clip", [source], clipped, place)
                form = emitter._insert(emitter._quantize_nodes(source, self.name(value), params), place)
            forms.quantized[params] = form
        return forms.quantized[params]

    def dequantized(self, value: ir.Value, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Return the float values that a tensor quantized with the given parameters stands for."""
        forms, name = self._of(value), self.name(value)
        unshared = params.qtype == INT32 and constant_array(value) is not None
        if unshared or params not in forms.dequantized:
            output = name if forms.stored == params else self._free(f"{name}_dequantized")
            quantized = self.quantized(value, params, before)
            nodes = self._dequantize_nodes(quantized, name, output, params)
            forms.dequantized[params] = self._insert(nodes, before)
        return forms.dequantized[params]

    def folded(self, value: ir.Value, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Return the float values of a quantized constant, as Cast and arithmetic on constants.

        A runtime computes these once, when it loads the model, where it would keep DequantizeLinear.
        """
        emitter, place = self._home(value, before)
        forms, name = emitter._of(value), self.name(value)
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
        pack: Callable[[], Array],
        *,
        before: ir.Node | None,
        suffix: str = "packed",
        dtype: ir.DataType = ir.DataType.UINT8,
    ) -> ir.Value:
        """Return an initialiser with what `pack` returns for a constant, the same for the same key."""
        emitter, _ = self._home(value, before)
        forms = emitter._of(value)
        if key not in forms.packed:
            forms.packed[key] = emitter._computed(f"{self.name(value)}_{suffix}", shape, dtype, pack)
        return forms.packed[key]

    def dynamic(self, value: ir.Value, before: ir.Node | None) -> Dynamic:
        """Return a tensor quantized to uint8 with parameters computed from its values at run time."""
        emitter, place = self._home(value, before)
        forms = emitter._of(value)
        if forms.dynamic is None:
            source = emitter.floating(value, place)
            forms.dynamic = emitter._quantize_dynamically(source, self.name(value), place)
        return forms.dynamic

    def dequantize(
        self, quantized: ir.Value, name: str, params: QuantParams, before: ir.Node | None
    ) -> ir.Value:
        """Add DequantizeLinear, with parameters that may differ from those of `quantized`."""
        return self._insert(self._dequantize_nodes(quantized, name, self._free(name), params), before)

    def quantize(self, value: ir.Value, name: str, params: QuantParams, before: ir.Node | None) -> ir.Value:
        """Add QuantizeLinear of a float tensor, for the tensor called `name`."""
        return self._insert(self._quantize_nodes(value, name, params), before)

    def written(self) -> WrittenNames:
        """Return what stands for the tensors and nodes of the original graph, under the names of now."""
        emitters = self._all()
        tensors = {
            name: _written(value, [e._forms[value] for e in emitters if value in e._forms])
            for value, name in self._names.items()
            if name
        }
        added: dict[str, list[str]] = {}
        for node, owner in self._owners:
            if node.graph is not None:
                added.setdefault(owner, []).append(name_of(node))
        nodes = {
            name_of(node): (
                *([name_of(node)] * (node.graph is not None)),
                *added.get(name_of(node), ()),
            )
            for node in self._nodes
        }
        return WrittenNames(tensors, nodes)

    def _all(self) -> list[Emitter]:
        return [self, *(emitter for inner in self._inner for emitter in inner._all())]

    def _of(self, value: ir.Value) -> _Forms:
        return self._forms.setdefault(value, _Forms())

    def _home(self, value: ir.Value, before: ir.Node | None) -> tuple[Emitter, ir.Node | None]:
        """Return the emitter of the graph that a tensor is of, and the node of that graph that asks for it.

        A tensor without a graph was just created for this one, and is not in it yet.
        """
        if self._outside is None or value.graph is None or value.graph is self._graph:
            return self, before
        emitter, owner = self._outside
        return emitter._home(value, owner)

    def _quantized_constant(self, value: ir.Value, constant: Array, params: QuantParams) -> ir.Value:
        name, dtype = f"{self.name(value)}_quantized", integer_type(params)
        elements = value.const_value
        assert elements is not None
        return self._computed(name, constant.shape, dtype, lambda: quantize(elements.numpy(), params))

    def _quantize_nodes(self, value: ir.Value, name: str, params: QuantParams) -> list[ir.Node]:
        """Return new nodes of which the last quantizes a float tensor, the one called `name` originally."""
        inputs = [value, *self.param_values(name, params, _sizes(value))]
        output = new_value(self._free(f"{name}_quantized"), integer_type(params), value)
        return [self._node("QuantizeLinear", inputs, [output], _axis(params))]

    def _dequantize_nodes(
        self, quantized: ir.Value, name: str, output: str, params: QuantParams
    ) -> list[ir.Node]:
        """Return new nodes of which the last dequantizes a tensor; its result is called `output`."""
        inputs = [quantized, *self.param_values(name, params, _sizes(quantized))]
        if params.qtype == INT32:
            inputs.pop()  # its zero point is 0, which is the default
        result = new_value(output, ir.DataType.FLOAT, quantized)
        return [self._node("DequantizeLinear", inputs, [result], _axis(params))]

    def _cast_nodes(self, quantized: ir.Value, name: str, output: str, params: QuantParams) -> list[ir.Node]:
        """Return new nodes as `_dequantize_nodes` does: Cast, Sub of the zero point, Mul with the scale.

        Between two Reshapes where there are blocks: these are an axis then.
        """
        scale, zero_point = self._broadcast_params(name, params, quantized)
        steps: list[tuple[str, list[ir.Value], str]] = [("Cast", [], "float")]
        if params.zero_point.any():
            steps.append(("Sub", [zero_point], "centred"))
        steps.append(("Mul", [scale], "scaled"))
        if params.block_size is not None:
            split, whole = _in_blocks(params, _sizes(quantized)), _sizes(quantized)
            steps.insert(1, ("Reshape", [self.constant(f"{name}_blocks", np.array(split))], "in_blocks"))
            steps.append(("Reshape", [self.constant(f"{name}_shape", np.array(whole))], "whole"))
        nodes: list[ir.Node] = []
        value = quantized
        for number, (op_type, others, suffix) in enumerate(steps, 1):
            written = output if number == len(steps) else self._free(f"{name}_{suffix}")
            result = new_value(written, ir.DataType.FLOAT, quantized)
            if params.block_size is not None and 1 < number < len(steps):
                result.shape = ir.Shape(_in_blocks(params, _sizes(quantized)))
            to = {"to": int(ir.DataType.FLOAT)} if op_type == "Cast" else None
            nodes.append(self._node(op_type, [value, *others], [result], to))
            value = result
        return nodes

    def _broadcast_params(self, name: str, params: QuantParams, value: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return scale and zero point as float32, in shapes that broadcast with a tensor.

        One in blocks along an axis must have been split there.

        Raises:
            PlanError: there is a scale for each channel, and the rank of the tensor is not known.
        """
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

    def _quantize_dynamically(self, value: ir.Value, name: str, before: ir.Node | None) -> Dynamic:
        """Add what quantizes a float tensor with parameters computed from its values."""
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
        return Dynamic(*outputs)


def _written(value: ir.Value, forms: Sequence[_Forms]) -> Written:
    """Return the names of a tensor's forms, those that emitters of several graphs wrote."""
    quantized = {form: params for entry in forms for params, form in entry.quantized.items()}
    floats = [form for entry in forms for form in entry.dequantized.values()]
    if value not in quantized and _is_present(value):
        floats.insert(0, value)
    return Written(
        tuple(dict.fromkeys(name_of(form) for form in floats)),
        {name_of(form): params for form, params in quantized.items()},
        next((str(e.quantized[e.stored].name) for e in forms if e.stored is not None), ""),
    )


def _is_present(value: ir.Value) -> bool:
    """Return whether a tensor is still in its graph."""
    producer = value.producer()
    if producer is None:
        return value.is_graph_input() or value.is_initializer()
    return producer.graph is not None


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
