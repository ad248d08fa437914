"""Constant folding: computes nodes with only constant inputs, by onnx's reference evaluator.

A written model contains the nodes of large constants again if they need fewer bytes (`unfold_constants`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import value_names
from ..model.editing import Array, add_initializer, free_name, is_standard, static_shape
from ..model.external_data import WidenedTensor
from ..model.graph import constant_of, is_constant, name_of

LIMIT = 64 << 20
"""Bytes that a folded constant may have when it is larger than the constants that it is computed from."""

MOVES = frozenset(
    {
        *("Cast", "CastLike", "Concat", "ConstantOfShape", "Expand", "EyeLike", "Flatten"),
        *("Gather", "GatherElements", "GatherND", "Identity", "Pad", "Range", "Reshape", "Slice"),
        *("Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
"""Foldable operators that are computed in the type of their inputs: they move values, or the type matters."""

MAKES = frozenset({"Cast", "CastLike", "ConstantOfShape", "EyeLike", "Range"})
"""Those of `MOVES` whose results have other elements than their inputs."""

COMPUTES = frozenset(
    {
        *("Abs", "Add", "And", "Ceil", "Clip", "Cos", "Div", "Equal", "Erf", "Exp", "Floor"),
        *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "MatMul", "Max", "Min", "Mod"),
        *("Mul", "Neg", "NonZero", "Not", "Or", "Pow", "Reciprocal", "ReduceMax", "ReduceMean"),
        *("ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Resize", "Round", "ScatterElements", "ScatterND"),
        *("Shape", "Sigmoid", "Sign", "Sin", "Size", "Sqrt", "Sub", "Sum", "Tanh", "Trilu"),
        *("Where", "Xor"),
    }
)
"""Foldable operators that are computed in float64.

Operators in neither set stay in the graph: they draw random numbers, belong to the quantization of a
quantized model (QuantizeLinear, DequantizeLinear, ...), or are too rare on constants to rely on their
evaluation.
"""

SMALL = 1024
"""Elements up to which the values of an input are given to shape inference, and are part of a key."""

_EVALUATOR_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError),
    *(RuntimeError, TypeError, ValueError),
    *(onnx.checker.ValidationError, onnx.shape_inference.InferenceError, onnx.defs.SchemaError),
)
"""What the reference evaluator and shape inference raise for a node that they cannot compute."""

_NUMPY = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BOOL} | {
    *(ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64),
    *(ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64),
}


def lift_constants(model: ir.Model) -> int:
    """Turn the Constant nodes into initialisers of the same name, but for outputs and strings."""
    lifted = 0
    for node in list(model.graph.all_nodes()):
        if not is_standard(node, "Constant") or node.outputs[0].is_graph_output():
            continue
        (attribute,) = node.attributes.values()
        match attribute.name:  # `ir.convenience.get_const_tensor` names the tensor, which the original shares
            case "value" if attribute.value.dtype != ir.DataType.STRING:
                array = attribute.value.numpy()
            case "value_int" | "value_ints":
                array = np.array(attribute.value, np.int64)
            case "value_float" | "value_floats":
                array = np.array(attribute.value, np.float32)
            case _:
                continue
        assert isinstance(node.graph, ir.Graph)
        _replace(node, [array], node.graph)
        lifted += 1
    return lifted


def fold_constants(model: ir.Model) -> int:
    """Compute the nodes of a graph whose inputs are all constants; return how many.

    Shapes, and nodes that extract known sizes from them, fold too. Floats are computed in float64 and rounded
    once, which is the same on every machine except for a few of many million values. If a constant outside a
    subgraph has other consumers, its large result goes to the graph of that constant, once for all subgraphs.
    """
    folded, foldable = 0, MOVES | COMPUTES
    versions = model.graph.opset_imports
    for node in list(model.graph):
        if not is_standard(node) or node.op_type not in foldable or not node.outputs:
            continue
        if any(value.is_graph_output() for value in node.outputs):
            continue
        narrow = _moved_type(node)
        results = _known_shape(node) if node.op_type in ("Shape", "Size") else None
        if results is None:
            inputs = _constant_inputs(node, narrow)
            results = None if inputs is None else _evaluate(node, inputs, versions.get("", 1))
        if results is None and node.op_type in ("Gather", "Slice"):
            results = _known_sizes(node)
        if results is not None:
            outputs = tuple(value.name or "" for value in node.outputs)
            attributes, inputs_read = tuple(node.attributes.values()), tuple(node.inputs)
            folded_node = FoldedNode(node.op_type, attributes, inputs_read, outputs, versions.get("", 1))
            graph = _graph_of_results(node, results)
            if graph is not node.graph and _read_what_is_there(node, folded_node, graph):
                folded += 1
                continue
            for index, value in enumerate(_replace(node, results, graph)):
                if value is not None and value.const_value is not None and narrow is not None:
                    bits = ir.Tensor(
                        value.const_value.numpy().view(narrow.numpy()), dtype=narrow, name=value.name
                    )
                    value.const_value, value.type = WidenedTensor(bits), ir.TensorType(ir.DataType.FLOAT)
                if value is not None and value.const_value is not None and value.const_value.nbytes >= LARGE:
                    value.meta[FOLDED] = folded_node, index, value.const_value
            folded += 1
    return folded


def _graph_of_results(node: ir.Node, results: Sequence[Array]) -> ir.Graph:
    """Return the graph for a node's results: its own, or of large ones that of a shared outer constant."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    if any(array.size > SMALL for array in results):
        outside = (value.graph for value in node.inputs if value is not None and len(value.uses()) > 1)
        return next((other for other in outside if other is not None and other is not graph), graph)
    return graph


def _read_what_is_there(node: ir.Node, wanted: FoldedNode, graph: ir.Graph) -> bool:
    """Have the readers of a node read an equal node's result in another subgraph, if there is one."""
    there: dict[int, ir.Value] = {}
    for value in graph.initializers.values():
        made_by, index, tensor = _folded(value)
        if made_by is not None and tensor is value.const_value and made_by.computes_as(wanted):
            there[index] = value
    read = [index for index, value in enumerate(node.outputs) if value.uses()]
    if not there.keys() >= set(read):
        return False
    for index in read:
        node.outputs[index].replace_all_uses_with(there[index])
    _remove(node)
    return True


def _replace(node: ir.Node, arrays: Sequence[Array], graph: ir.Graph) -> list[ir.Value | None]:
    """Replace a node by initialisers of a graph, its own or one around it, named after its outputs."""
    constants: list[ir.Value | None] = []
    for value, array in zip(node.outputs, arrays, strict=True):
        constants.append(None)
        if value.name and value.uses():
            name = value.name
            value.name = None
            if graph is not node.graph:  # steps on a subgraph do not see the names outside
                name = free_name(name, value_names(ir.Model(graph, ir_version=10)))
            constants[-1] = constant = add_initializer(graph, name, array)
            value.replace_all_uses_with(constant)
    _remove(node)
    return constants


def _remove(node: ir.Node) -> None:
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def _known_shape(node: ir.Node) -> list[Array] | None:
    """Return the result of Shape (with start and end) or Size when the shape is static, else None."""
    shape = static_shape(node.inputs[0])
    if shape is None:
        return None
    result = np.prod(shape) if node.op_type == "Size" else _part_of_shape(node, shape)
    return [np.array(result, np.int64)]


def _part_of_shape(node: ir.Node, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the output of Shape for a tensor of these sizes."""
    return sizes[node.attributes.get_int("start", 0) : node.attributes.get_int("end", len(sizes))]


def _known_sizes(node: ir.Node) -> list[Array] | None:
    """Return the result of a Gather or Slice that takes sizes out of a Shape, or None if one is unknown."""
    shape_node = None if node.inputs[0] is None else node.inputs[0].producer()
    if shape_node is None or not is_standard(shape_node, "Shape") or len(node.inputs) == 1:
        return None
    shape = None if shape_node.inputs[0] is None else shape_node.inputs[0].shape
    given = [(value, constant_of(value)) for value in node.inputs[1:]]
    if shape is None or any(array is None and value for value, array in given):
        return None
    sizes = np.array(_part_of_shape(shape_node, tuple(shape)), object)
    first, end, axes, steps = (*(array for _, array in given), None, None, None)[:4]
    try:
        if node.op_type == "Gather":
            axis, taken = node.attributes.get_int("axis", 0), sizes[first]
        else:
            part = (None if array is None else array.item() for array in (first, end, steps))
            axis, taken = 0 if axes is None else axes.item(), sizes[slice(*part)]
    except (IndexError, ValueError):  # elements that are not there, and several axes
        return None
    known = axis in (0, -1) and all(isinstance(size, int) for size in np.array(taken, object).flat)
    return [np.array(taken, np.int64)] if known else None


def _constant_inputs(node: ir.Node, narrow: ir.DataType | None) -> list[Array | None] | None:
    """Return the constant inputs, floats of type `narrow` as integers of their bits; None if one varies."""
    given = [value for value in node.inputs if value is not None]
    if not node.inputs or not all(is_constant(value) and value.dtype in _NUMPY for value in given):
        return None
    tensors = [None if value is None else value.const_value for value in node.inputs]
    return [
        tensor.narrow.numpy().view(np.uint16)
        if narrow is not None and isinstance(tensor, WidenedTensor)
        else None
        if tensor is None
        else tensor.numpy()
        for tensor in tensors
    ]


def _moved_type(node: ir.Node) -> ir.DataType | None:
    """Return the 16-bit type that all floats moved by a node are stored in, or None."""
    types = {
        value.const_value.narrow.dtype if isinstance(value.const_value, WidenedTensor) else None
        for value in node.inputs
        if value is not None and value.dtype == ir.DataType.FLOAT
    }
    return types.pop() if node.op_type in MOVES - MAKES and len(types) == 1 else None


def _evaluate(node: ir.Node, inputs: Sequence[Array | None], version: int) -> list[Array] | None:
    """Return the outputs; None when one is not computed, a type is unknown, or a result is too large."""
    array, allowed = inputs[0], max(LIMIT, sum(array.nbytes for array in inputs if array is not None))
    if node.op_type == "Reshape" and array is not None and np.all(inputs[1]):
        with suppress(ValueError):
            return [array.reshape(inputs[1])]
    if node.op_type == "Cast" and array is not None:
        kind = ir.DataType(node.attributes["to"].as_int())
        if kind in _NUMPY and array.size * kind.itemsize <= allowed:
            with np.errstate(all="ignore"):
                return [array.astype(kind.numpy())]
    from onnx.reference import ReferenceEvaluator  # takes a tenth of a second, and many models need none

    arrays = {f"i{index}": array for index, array in enumerate(inputs) if array is not None}
    proto = ir.serde.serialize_node(node)
    del proto.input[:], proto.output[:]
    proto.input.extend(f"i{index}" if array is not None else "" for index, array in enumerate(inputs))
    proto.output.extend(f"o{index}" if value.name else "" for index, value in enumerate(node.outputs))
    named = [name for name in proto.output if name]
    types = _output_types(proto, arrays, version, allowed)
    if types is None:
        return None
    if node.op_type in COMPUTES:
        narrow = (np.float16, np.float32)
        arrays = {name: a.astype(np.float64) if a.dtype in narrow else a for name, a in arrays.items()}
    graph = onnx.helper.make_graph(
        [proto],
        "fold",
        [onnx.helper.make_value_info(name, _type_of(array)) for name, array in arrays.items()],
        [onnx.helper.make_empty_tensor_value_info(name) for name in named],
    )
    try:
        with np.errstate(all="ignore"):
            computed = ReferenceEvaluator(graph, {"": version}).run(None, arrays)
            results = {
                name: np.asarray(array).astype(types[name], copy=False)
                for name, array in zip(named, computed, strict=True)
            }
    except _EVALUATOR_ERRORS:
        return None
    if sum(array.nbytes for array in results.values()) > allowed:
        return None
    return [results.get(name, np.zeros(0)) for name in proto.output]


def _output_types(
    proto: onnx.NodeProto, arrays: Mapping[str, Array], version: int, allowed: int
) -> dict[str, np.dtype[np.generic]] | None:
    """Return the type of every output; None when one is unknown, or known to take more bytes than allowed."""
    try:
        schema = onnx.defs.get_schema(proto.op_type, version, "")
        inferred = onnx.shape_inference.infer_node_outputs(
            schema,
            proto,
            {name: _type_of(array) for name, array in arrays.items()},
            {name: onnx.numpy_helper.from_array(a) for name, a in arrays.items() if a.size <= SMALL},
            opset_imports=[onnx.helper.make_opsetid("", version)],
        )
    except _EVALUATOR_ERRORS:
        return None
    types: dict[str, np.dtype[np.generic]] = {}
    for name in filter(None, proto.output):
        tensor = inferred[name].tensor_type if name in inferred else None
        if tensor is None or ir.DataType(tensor.elem_type) not in _NUMPY:
            return None
        types[name] = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if math.prod(dim.dim_value or 1 for dim in tensor.shape.dim) * types[name].itemsize > allowed:
            return None
    return types


def _type_of(array: Array) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


# Large constants that a written model computes as the original does ----------------------------------------

FOLDED = "qprof.folded"
"""Key in `Value.meta` of a folded constant: its `FoldedNode`, the index of the output, and its
replacement."""

LARGE = 4 << 10
"""Bytes from which on a folded constant is computed again in a written model: less is not worth the nodes."""


@dataclass(frozen=True, eq=False)
class FoldedNode:
    """A node that was folded."""

    op_type: str  # of the default domain
    attributes: tuple[ir.Attr, ...]
    inputs: tuple[ir.Value | None, ...]  # constants, perhaps folded ones; None where one is left out
    outputs: tuple[str, ...]  # their names; "" for one that is left out
    opset: int  # of the model then

    def computes_as(self, other: FoldedNode) -> bool:
        """Whether another node computes the same of the same constants."""
        return (
            (self.op_type, self.attributes, self.opset) == (other.op_type, other.attributes, other.opset)
            and len(self.inputs) == len(other.inputs)
            and all(mine is its for mine, its in zip(self.inputs, other.inputs, strict=True))
        )


def unfold_constants(model: ir.Model) -> None:
    """Put back, in place, the nodes of large constants that take more bytes than their inputs.

    A window table left as Range, Mul and Cos would make a written model larger than the original.
    """
    graph, opset = model.graph, model.opset_imports.get("", 1)
    names, node_names = value_names(model), {node.name for node in model.graph.all_nodes() if node.name}
    nodes: dict[int, ir.Node] = {}  # by the id of the folded node, in an order in which they can run
    constants: dict[int, ir.Value] = {}  # what these begin with, by the id of the constant of another graph

    def written(value: ir.Value | None) -> ir.Value | None:
        if value is None:
            return None
        made_by, index, _ = _folded(value)
        return constants[id(value)] if made_by is None else nodes[id(made_by)].outputs[index]

    for name, value in list(graph.initializers.items()):
        last, index, tensor = _folded(value)
        if last is None or tensor is None or tensor is not value.const_value or value.is_graph_output():
            continue
        made_by, begin = _made_by(value)
        stored = {id(constant): _stored(constant, graph) for constant in begin}
        constants |= {key: own for key, own in stored.items() if own is not None}
        if 2 * _bytes_of(c for c in begin if id(c) not in constants) > tensor.nbytes:
            continue
        if not all(_is_the_same(node.op_type, node.opset, opset) for node in made_by):
            continue
        names.discard(name)
        del graph.initializers[name]
        for constant in begin:
            if id(constant) not in constants:
                assert constant.const_value is not None
                own = free_name(name_of(constant), names)
                constants[id(constant)] = add_initializer(graph, own, constant.const_value.numpy())
        for node in made_by:
            if id(node) not in nodes:
                inputs, many = [written(each) for each in node.inputs], len(node.outputs)
                new = ir.Node("", node.op_type, inputs, node.attributes, num_outputs=many)
                new.name = free_name(f"{node.op_type}_{node.outputs[0]}", node_names)
                for output, wanted in zip(new.outputs, node.outputs, strict=True):
                    output.name = free_name(wanted, names) if wanted else ""
                nodes[id(node)] = new
        result = nodes[id(last)].outputs[index]
        result.name, result.type, result.shape = name, value.type, value.shape
        names.add(name)
        value.replace_all_uses_with(result)
    if nodes:
        graph.insert_before(graph[0], list(nodes.values()))


def _stored(constant: ir.Value, graph: ir.Graph) -> ir.Value | None:
    """Return the initialiser of a written graph that still is this constant, or None if it was changed."""
    own = graph.initializers.get(name_of(constant))
    return own if own is not None and own.const_value is constant.const_value else None


def _bytes_of(constants: Iterable[ir.Value]) -> int:
    return sum(constant.const_value.nbytes for constant in constants if constant.const_value is not None)


def bytes_computed_from(value: ir.Value) -> int | None:
    """Return the bytes of the constants behind a large folded one; None for others, and if it was changed."""
    made_by, _, tensor = _folded(value)
    if made_by is None or tensor is not value.const_value:
        return None
    _, begin = _made_by(value)
    return _bytes_of(begin)


def _folded(value: ir.Value) -> tuple[FoldedNode | None, int, ir.TensorProtocol | None]:
    """Return the entry of a constant in `FOLDED`; no nodes for a constant that was not folded."""
    folded: tuple[FoldedNode | None, int, ir.TensorProtocol | None] = value.meta.get(FOLDED, (None, 0, None))
    return folded


def _made_by(value: ir.Value) -> tuple[list[FoldedNode], list[ir.Value]]:
    """Return the folded nodes behind a constant, each after those that it reads, and their first inputs."""
    nodes: dict[int, FoldedNode] = {}
    begin: dict[int, ir.Value] = {}
    waiting = [value]
    while waiting:
        made_by, _, _ = _folded(waiting[-1])
        if made_by is None:
            value = waiting.pop()
            begin[id(value)] = value
            continue
        left = [each for each in made_by.inputs if each is not None and id(each) not in begin]
        left = [each for each in left if id(_folded(each)[0]) not in nodes]
        waiting += left
        if not left:
            waiting.pop()
            nodes[id(made_by)] = made_by
    return list(nodes.values()), list(begin.values())


def _is_the_same(op_type: str, opset: int, other: int) -> bool:
    """Tell whether two opsets have one version of an operator."""
    first, second = (onnx.defs.get_schema(op_type, at, "").since_version for at in (opset, other))
    return first == second
