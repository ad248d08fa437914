"""What onnxruntime takes and the standard does not, put as the standard says; each mend is told in a note.

A mended model computes what onnxruntime computes with the model as it is. Each function changes the message
and yields the sentences for the user, none where there was nothing to mend.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper
from google.protobuf.descriptor import FieldDescriptor

from ...profiles.base.errors import ModelError
from ...profiles.runtime.session import has_map
from .external_data import check_sparse, check_tensor, clear_typed_fields
from .protobuf import Block, all_tensors, blocks, graphs_in, subgraphs_of, tensors_in

# What must hold of a model file before it is converted; what cannot be run is refused with the place.

MOST_INPUT_ELEMENTS = 1 << 38
"""An input with more elements, in its fixed dimensions, is in no sample: 2^38 float32 values take 1 TiB."""


_MESSAGES = {
    onnx.AttributeProto.TENSOR: "t",
    onnx.AttributeProto.GRAPH: "g",
    onnx.AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    onnx.AttributeProto.TYPE_PROTO: "tp",
}
"""Types of attributes whose value is a message, and its field."""


def check_proto(proto: onnx.ModelProto, where: str) -> None:
    """Check what conversion and the steps after it rely on.

    Args:
        proto: as `read_proto` gives it: its text is UTF-8.
        where: the file, for messages.

    Raises:
        ModelError: a tensor has another amount of data than its type and dimensions take, a name is made
            twice, an input is no tensor of a known type, a Constant has no value, or an output of a subgraph
            is made outside of it.
    """
    if not proto.graph.output:
        raise ModelError(f"{where}: the graph has no outputs; export it with at least one")
    for block in (proto.graph, *proto.functions):
        _check_block(block, frozenset(), where)
    initializers = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name not in initializers:
            _check_input(value, where)


def _check_block(block: Block, outer: frozenset[str], where: str) -> None:
    """Check a graph or function and the graphs inside; `outer` are the names that it sees from outside."""
    for tensor in tensors_in(block):
        check_tensor(tensor, where)
    for sparse in () if isinstance(block, onnx.FunctionProto) else block.sparse_initializer:
        check_sparse(sparse, where)
    made = _made_names(block)
    twice = next((name for name, count in made.items() if count > 1), None)
    if twice is not None:
        makers = ", ".join(f"'{n.name}' ({n.op_type})" for n in block.node if twice in n.output)
        raise ModelError(
            f"{where}: '{twice}' in graph '{block.name}' is made more than once"
            f"{f', by node {makers}' if makers else ''}; give each value a name of its own and export again"
        )
    names = outer.union(made, {""})
    for node in block.node:
        _check_node(node, names, f"{where}: node '{node.name}' ({node.op_type})")
    results = (
        block.output if isinstance(block, onnx.FunctionProto) else [value.name for value in block.output]
    )
    for name in results:
        if not name or name not in names:
            raise ModelError(
                f"{where}: output '{name}' of graph '{block.name}' is made by no node; export it again"
            )


def _made_names(block: Block) -> Counter[str]:
    """Return how often each name is made in a graph. An initialiser may be an input too."""
    made = Counter(name for node in block.node for name in node.output if name)
    if isinstance(block, onnx.FunctionProto):
        made.update(block.input)
        return made
    inputs = [value.name for value in block.input]
    made.update(inputs)
    constants = {tensor.name for tensor in block.initializer}
    made.update(constants.union(sparse.values.name for sparse in block.sparse_initializer) - {"", *inputs})
    return made


def _check_node(node: onnx.NodeProto, names: frozenset[str], where: str) -> None:
    for name in node.input:
        if name not in names:
            raise ModelError(f"{where}: reads '{name}', which nothing in the model makes; export it again")
    for attribute in node.attribute:
        if not attribute.type and not attribute.ref_attr_name:
            raise ModelError(f"{where}: attribute '{attribute.name}' has no type; export it again")
        field = _MESSAGES.get(attribute.type)
        if field is not None and not attribute.ref_attr_name and not attribute.HasField(field):
            raise ModelError(f"{where}: attribute '{attribute.name}' has no value; export it again")
        if attribute.HasField("sparse_tensor"):
            check_sparse(attribute.sparse_tensor, where)
    if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.attribute) != 1:
        raise ModelError(
            f"{where}: has {len(node.attribute)} attributes and needs the one with its value; export it again"
        )
    for graph in subgraphs_of(node):
        made = _made_names(graph)
        for value in graph.output:
            if value.name not in made:
                raise ModelError(
                    f"{where}: output '{value.name}' of its graph '{graph.name}' is made outside of it; put "
                    "an Identity between"
                )
        _check_block(graph, names, where.partition(": node ")[0])


def _check_input(value: onnx.ValueInfoProto, where: str) -> None:
    """Raise for an input of the main graph of which no sample can be given; onnxruntime refuses these too."""
    where, kind = f"{where}: input '{value.name}'", value.type
    if kind.HasField("map_type"):
        raise ModelError(f"{where}: is a map; export the model with tensors as inputs")
    if kind.WhichOneof("value") is None or (kind.HasField("tensor_type") and not kind.tensor_type.elem_type):
        raise ModelError(f"{where}: has no type; export the model with typed inputs")
    if not kind.HasField("tensor_type"):
        return
    if kind.tensor_type.elem_type not in onnx.TensorProto.DataType.values():
        raise ModelError(
            f"{where}: is of type {kind.tensor_type.elem_type}, which ONNX does not have; export it again"
        )
    dims = [dim.dim_value for dim in kind.tensor_type.shape.dim if dim.dim_value > 0]
    if math.prod(dims) > MOST_INPUT_ELEMENTS:
        raise ModelError(
            f"{where}: has the dimensions {dims}, {math.prod(dims)} elements: no sample of it fits into "
            "memory; export it with smaller or free dimensions"
        )


# Mends of what onnxruntime takes and the check of `soundness` refuses; they come before it.
#
# As in `mends`, a mended model computes what onnxruntime computes with the model as it is. Of the message
# it is known that it has a graph and that its text is UTF-8.

Notes = Iterator[str]

OPSET = 14
"""Opset that a model gets whose own is none, and whose standard operators are constants alone."""


def one_constant_per_name(proto: onnx.ModelProto) -> Notes:
    """Keep the last of several Constant nodes that make one name, and no initialiser or input of that name.

    So onnxruntime does in the main graph, where all are of one type and shape; it refuses others, and those
    of subgraphs and functions.
    """
    graph = proto.graph
    last: dict[str, onnx.NodeProto] = {}
    forms: dict[str, set[object]] = defaultdict(set)
    count = Counter(value.name for value in (*graph.initializer, *graph.input))
    for node in graph.node:
        if _is_constant(node) and len(node.output) == 1:
            last[node.output[0]] = node
            forms[node.output[0]].add(_form(node))
            count[node.output[0]] += 1
    for tensor in graph.initializer:
        forms[tensor.name].add(_tensor_form(tensor))
    twice = {name for name in last if count[name] > 1 and len(forms[name]) == 1}
    if not twice:
        return
    _keep(graph.node, lambda node: not _is_constant(node) or _is_last(node, last, twice))
    _keep(graph.initializer, lambda tensor: tensor.name not in twice)
    _keep(graph.input, lambda value: value.name not in twice)
    for name in sorted(twice):
        yield f"'{name}' is made more than once: its last Constant holds, as in onnxruntime"


def _keep(fields: Any, wanted: Callable[[Any], bool]) -> None:
    """Delete the entries of a repeated field that are not wanted."""
    for index in reversed(range(len(fields))):
        if not wanted(fields[index]):
            del fields[index]


def _is_last(node: onnx.NodeProto, last: Mapping[str, onnx.NodeProto], twice: Collection[str]) -> bool:
    name = node.output[0] if len(node.output) == 1 else ""
    return name not in twice or node is last[name]


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def _form(node: onnx.NodeProto) -> object:
    """Return something that is equal for Constants of one type and shape."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            return _tensor_form(attribute.t)
        return attribute.name, len(attribute.floats), len(attribute.ints), len(attribute.strings)
    return ()


def _tensor_form(tensor: onnx.TensorProto) -> object:
    return tensor.data_type, tuple(tensor.dims)


def opset_of_constants(proto: onnx.ModelProto) -> Notes:
    """Give a model an opset whose own is below 1, if of the standard operators it has Constant alone."""
    nodes = [node for graph in graphs_in(proto.graph) for node in graph.node]
    if any(node.domain in ("", "ai.onnx") and not _is_constant(node) for node in nodes):
        return
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < 1:
            yield f"there is no opset {entry.version}; opset {OPSET} is taken"
            entry.version = OPSET


def own_attribute_values(proto: onnx.ModelProto) -> Notes:
    """Take what an attribute holds where it refers to one of a function and its node is in none."""
    for node in (node for graph in graphs_in(proto.graph) for node in graph.node):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                attribute.ClearField("ref_attr_name")
                yield (
                    f"node '{node.name}' ({node.op_type}): attribute '{attribute.name}' is that of a "
                    "function, and the node is in none: the value in the node holds, as in onnxruntime"
                )


FIRST_MENDS: Sequence[Callable[[onnx.ModelProto], Notes]] = (
    one_constant_per_name,
    opset_of_constants,
    own_attribute_values,
)


def mend(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Mend all that is listed in `MENDS` and return the notes. Tensors hold as much data as they need."""
    return _notes(MENDS, proto)


def mend_first(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Mend what `soundness` would refuse, and return the notes. Only text has been checked yet."""
    return _notes(FIRST_MENDS, proto)


def _notes(steps: Sequence[Callable[[onnx.ModelProto], Notes]], proto: onnx.ModelProto) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for step in steps for note in step(proto)))


def name_graphs(proto: onnx.ModelProto) -> Notes:
    """Give graphs without a name one."""
    for block in blocks(proto):
        if isinstance(block, onnx.GraphProto) and not block.name:
            block.name = "graph"
            yield "a graph without a name is called 'graph' now"


def one_opset_per_domain(proto: onnx.ModelProto) -> Notes:
    """Keep the last opset of each domain, as onnxruntime does; "ai.onnx" and "" are one."""
    for imports in (proto.opset_import, *(function.opset_import for function in proto.functions)):
        versions: dict[str, list[int]] = {}
        for entry in imports:
            versions.setdefault("" if entry.domain == "ai.onnx" else entry.domain, []).append(entry.version)
        if len(versions) == len(imports):
            continue
        del imports[:]
        for domain, given in versions.items():
            imports.add(domain=domain, version=given[-1])
            if len(set(given)) > 1:
                yield (
                    f"domain '{domain}' is imported with the opsets {', '.join(map(str, given))}: the last "
                    "holds, as in onnxruntime"
                )


def import_domains(proto: onnx.ModelProto) -> Notes:
    """Import the domains that nodes use and the model does not import; onnxruntime knows its own."""
    imported = {entry.domain for entry in proto.opset_import} | {
        function.domain for function in proto.functions
    }
    used = {
        node.domain for block in blocks(proto) if isinstance(block, onnx.GraphProto) for node in block.node
    }
    for domain in sorted(used - imported - {"", "ai.onnx"}):
        version = max((s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain), default=1)
        proto.opset_import.add(domain=domain, version=version)
        yield f"domain '{domain}' was not imported; opset {version} is taken"


def one_initializer_per_name(proto: onnx.ModelProto) -> Notes:
    """Keep the last of several initialisers of one name, as onnxruntime does; drop those without a name."""
    for block in blocks(proto):
        if not isinstance(block, onnx.GraphProto):
            continue
        last = {tensor.name: index for index, tensor in enumerate(block.initializer) if tensor.name}
        for index in reversed(range(len(block.initializer))):
            name = block.initializer[index].name
            if last.get(name) != index:
                del block.initializer[index]
                yield (
                    f"initialiser '{name}' is there more than once: the last holds, as in onnxruntime"
                    if name
                    else "an initialiser without a name, which no node can read, is left out"
                )


def raw_data_alone(proto: onnx.ModelProto) -> Notes:
    """Keep the raw data of tensors that hold their elements in two ways, as onnxruntime does."""
    for tensor in all_tensors(proto):
        if clear_typed_fields(tensor):
            yield f"tensor '{tensor.name}' holds its elements twice: the raw data holds, as in onnxruntime"


def drop_empty_nodes(proto: onnx.ModelProto) -> Notes:
    """Drop nodes without operator, inputs and outputs."""
    for block in blocks(proto):
        for index in reversed(range(len(block.node))):
            node = block.node[index]
            if not (node.op_type or node.input or node.output):
                del block.node[index]
                yield "a node without operator, inputs and outputs is left out"


def drop_device_configurations(proto: onnx.ModelProto) -> Notes:
    """Drop what says on which of several devices nodes run, which onnxruntime does not read."""
    configured = [node for block in blocks(proto) for node in block.node if node.device_configurations]
    if configured or proto.configuration:
        for node in configured:
            node.ClearField("device_configurations")
        proto.ClearField("configuration")
        yield "configurations of devices, which onnxruntime does not read, are left out"


def readable_texts(proto: onnx.ModelProto) -> Notes:
    """Replace what is not UTF-8 in texts on which nothing depends; protobuf hands such text out as bytes."""
    bad = list(_unreadable(proto))
    for message, field in bad:
        setattr(message, field, getattr(message, field).decode("utf-8", "replace"))
    if bad:
        yield f"text that is not UTF-8 was replaced in {', '.join(sorted({field for _, field in bad}))}"


def _unreadable(message: Any) -> Iterator[tuple[Any, str]]:
    """Yield messages with the fields of theirs, of texts for people, that are no UTF-8."""
    if isinstance(message, onnx.TensorProto):  # the fields with the numbers are not touched
        if isinstance(message.doc_string, bytes):
            yield message, "doc_string"
        return
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes):
            yield message, field.name
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from _unreadable(inner)


def one_entry_per_metadata_key(proto: onnx.ModelProto) -> Notes:
    """Keep the last entry of each key of the metadata."""
    entries = {entry.key: entry.value for entry in proto.metadata_props}
    if len(entries) < len(proto.metadata_props):
        del proto.metadata_props[:]
        for key, value in entries.items():
            proto.metadata_props.add(key=key, value=value)
        yield "the metadata has a key more than once: the last entry is kept"


def dense_initializers(proto: onnx.ModelProto) -> Notes:
    """Write sparse initialisers as dense ones, as onnxruntime does when it loads a model."""
    for block in blocks(proto):
        for sparse in () if isinstance(block, onnx.FunctionProto) else tuple(block.sparse_initializer):
            block.initializer.append(_dense(sparse))
            yield f"initialiser '{sparse.values.name}' was sparse and is dense now"
        if not isinstance(block, onnx.FunctionProto):
            del block.sparse_initializer[:]


def dense_constants(proto: onnx.ModelProto) -> Notes:
    """Write the sparse value of Constant nodes as a dense one."""
    for block in blocks(proto):
        for node in block.node:
            sparse = [a for a in node.attribute if a.name == "sparse_value" and a.HasField("sparse_tensor")]
            if node.op_type == "Constant" and sparse:
                value = onnx.helper.make_attribute("value", _dense(sparse[0].sparse_tensor))
                sparse[0].CopyFrom(value)
                yield f"the value of the Constant '{node.output[0]}' was sparse and is dense now"


def drop_shadowed_functions(proto: onnx.ModelProto) -> Notes:
    """Drop functions of the name of a standard operator, which onnxruntime runs in their place."""
    opset = next((entry.version for entry in proto.opset_import if not entry.domain), 0)
    for index in reversed(range(len(proto.functions))):
        function = proto.functions[index]
        if function.domain in ("", "ai.onnx") and onnx.defs.has(function.name, opset, ""):
            yield f"function '{function.name}' has the name of a standard operator, which is run"
            del proto.functions[index]


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    values = onnx.numpy_helper.to_array(sparse.values)
    indices = onnx.numpy_helper.to_array(sparse.indices)
    array = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        array.reshape(-1)[indices] = values
    else:
        array[tuple(indices.T)] = values
    return onnx.numpy_helper.from_array(array, sparse.values.name)


def untype_maps(proto: onnx.ModelProto) -> Notes:
    """Take the type from values that are maps, which onnx_ir does not have: it follows from the node."""
    for block in blocks(proto):
        for value in _infos(block):
            if has_map(value.type):
                value.ClearField("type")
    yield from ()


def _infos(block: Block) -> list[onnx.ValueInfoProto]:
    declared = [*block.output, *block.input] if isinstance(block, onnx.GraphProto) else []
    return [*declared, *block.value_info]


MENDS: Sequence[Callable[[onnx.ModelProto], Notes]] = (
    name_graphs,
    one_opset_per_domain,
    import_domains,
    drop_shadowed_functions,
    dense_initializers,
    dense_constants,
    one_initializer_per_name,
    raw_data_alone,
    drop_empty_nodes,
    drop_device_configurations,
    readable_texts,
    one_entry_per_metadata_key,
    untype_maps,
)
"""In this order."""
