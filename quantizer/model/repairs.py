"""Checks of a model file before it is converted, and repairs of faults that onnxruntime accepts.

A repaired model computes the same as onnxruntime with the original file. Each repair is for files that exist:

==========================  ==================================================================================
name_graphs                 Caffe2's exporter leaves the graph without a name (onnx issues 980 and 1593)
one_opset_per_domain        the model zoo of 2018 has an opset twice (onnx-caffe2 issue 267); some converters
                            call the standard domain "ai.onnx" (burn-onnx pull request 447)
import_domains              onnxruntime's transformer optimizer before 1.14 writes operators of com.microsoft
                            without their opset (onnxruntime pull request 13978)
drop_device_configurations  since ONNX 1.18 a node may say on which device it runs, which nothing here reads
readable_texts              text for people may be in any encoding, and protobuf hands such text out as bytes
untype_maps                 classifiers of skl2onnx end in a list of maps (logreg_iris.onnx of onnxruntime)
==========================  ==================================================================================

Of 2,212 files (the test models of onnx 1.23, those in packages, and the trained models of the benchmarks) one
needs a repair: logreg_iris.onnx. Faults that no known tool writes are rejected: a value that is made twice,
elements given twice, nodes without an operator, an opset below 1, attributes of a function outside of one,
functions with the name of a standard operator, and sparse tensors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper
import onnx_ir as ir
from google.protobuf.descriptor import FieldDescriptor

from ...profiles.base.errors import ModelError
from ...profiles.instrumentation.subgraphs import STANDARD_DOMAINS
from ...profiles.runtime.session import has_map
from .external_data import bytes_needed
from .protobuf import Block, blocks, graphs_in, is_outside, subgraphs_of, tensors_in

# What must hold of a model file before it is converted; what cannot be run is refused with the place -------

MOST_INPUT_ELEMENTS = 1 << 38
"""An input with more elements, in its fixed dimensions, is in no sample: 2^38 float32 values take 1 TiB."""

MOST_DIMENSIONS = 64
"""Dimensions that numpy knows at most."""

MOST_BYTES = 1 << 48
"""More bytes than a process can address: 2^48."""

_TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
_FIELD_OF = {
    **{"FLOAT": "float_data", "COMPLEX64": "float_data", "INT64": "int64_data", "STRING": "string_data"},
    **dict.fromkeys(("DOUBLE", "COMPLEX128"), "double_data"),
    **dict.fromkeys(("UINT64", "UINT32"), "uint64_data"),
}
"""Field of the elements by type; int32_data for all others."""

_TYPES = frozenset(int(kind) for kind in ir.DataType if kind != ir.DataType.UNDEFINED)

_MESSAGES = {
    onnx.AttributeProto.TENSOR: "t",
    onnx.AttributeProto.GRAPH: "g",
    onnx.AttributeProto.TYPE_PROTO: "tp",
}
"""Types of attributes whose value is a message, and its field."""


def check_proto(proto: onnx.ModelProto, where: str) -> None:
    """Check the facts that conversion and the steps after it rely on, in a message from `read_proto`."""
    if not proto.graph.output:
        raise ModelError(f"{where}: the graph has no outputs; export it with at least one")
    for block in (proto.graph, *proto.functions):
        _check_block(block, frozenset(), where)
    for entry in proto.opset_import:
        if entry.domain in STANDARD_DOMAINS and entry.version < 1:
            raise ModelError(f"{where}: there is no opset {entry.version}; export the model again")
    for node in (node for graph in graphs_in(proto.graph) for node in graph.node):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise ModelError(
                    f"{where}: node '{node.name}' ({node.op_type}): attribute '{attribute.name}' is that of "
                    "a function, and the node is in none; export it again"
                )
    opset = next((e.version for e in proto.opset_import if e.domain in STANDARD_DOMAINS), 0)
    for function in proto.functions:
        if function.domain in STANDARD_DOMAINS and onnx.defs.has(function.name, opset, ""):
            raise ModelError(
                f"{where}: function '{function.name}' has the name of a standard operator; rename it"
            )
    initializers = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name not in initializers:
            _check_input(value, where)


def _check_block(block: Block, outer: frozenset[str], where: str) -> None:
    """Check a graph or function and the graphs inside; `outer` are the names that it sees from outside."""
    for tensor in tensors_in(block):
        _check_tensor(tensor, where)
    for sparse in () if isinstance(block, onnx.FunctionProto) else block.sparse_initializer:
        raise ModelError(f"{where}: tensor '{sparse.values.name}' is sparse; export it with dense weights")
    made = _made_names(block)
    twice = next((name for name, count in made.items() if count > 1), None)
    if twice is not None:
        makers = ", ".join(f"'{n.name}' ({n.op_type})" for n in block.node if twice in n.output)
        raise ModelError(
            f"{where}: '{twice}' in graph '{block.name}' is made more than once"
            f"{f', by node {makers}' if makers else ''}; give each value a unique name and export again"
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
    constants = [tensor.name for tensor in block.initializer]
    made.update(name for name in constants if name and name not in inputs)
    made.update(name for name, count in Counter(constants).items() if count > 1 and name in inputs)
    return made


def _check_node(node: onnx.NodeProto, names: frozenset[str], where: str) -> None:
    if not node.op_type:
        raise ModelError(f"{where}: has no operator; export it again")
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
            raise ModelError(f"{where}: attribute '{attribute.name}' is sparse; export it with dense weights")
    if node.op_type == "Constant" and node.domain in STANDARD_DOMAINS and len(node.attribute) != 1:
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


def _check_tensor(tensor: onnx.TensorProto, where: str) -> None:
    """Check type, dimensions and the amount of data of a tensor; raises ModelError."""
    where = f"{where}: tensor '{tensor.name}'"
    if tensor.data_type not in _TYPES:
        raise ModelError(f"{where}: is of type {tensor.data_type}, which ONNX does not have; export it again")
    if len(tensor.dims) > MOST_DIMENSIONS:
        raise ModelError(
            f"{where}: has {len(tensor.dims)} dimensions; at most {MOST_DIMENSIONS} can be; export it again"
        )
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"{where}: has the dimensions {list(tensor.dims)}, one below 0; export it again")
    if ir.DataType(tensor.data_type) == ir.DataType.STRING:
        if is_outside(tensor) or tensor.HasField("raw_data"):
            raise ModelError(f"{where}: holds text as raw bytes, which ONNX does not allow; export it again")
    elif bytes_needed(tensor) > MOST_BYTES:
        raise ModelError(
            f"{where}: has the dimensions {list(tensor.dims)}, too many elements; export it again"
        )
    if not is_outside(tensor):
        _check_amount(tensor, where)


def _check_amount(tensor: onnx.TensorProto, where: str) -> None:
    kind = ir.DataType(tensor.data_type)
    if tensor.HasField("raw_data"):
        twice = [name for name in _TYPED_FIELDS if len(getattr(tensor, name))]
        if twice:
            raise ModelError(f"{where}: has elements in raw_data and in {twice[0]}; export it again")
        have, need, unit = len(tensor.raw_data), bytes_needed(tensor), "bytes"
    else:
        have, unit = len(getattr(tensor, _FIELD_OF.get(kind.name, "int32_data"))), "elements"
        need = math.prod(map(int, tensor.dims))
        if kind.name.startswith("COMPLEX"):
            need *= 2
        elif kind != ir.DataType.STRING and kind.bitwidth < 8:  # one number for a byte of small ones
            need = bytes_needed(tensor)
    if have != need:
        raise ModelError(
            f"{where}: its type {kind.name.lower()} and its dimensions {list(tensor.dims)} take {need} "
            f"{unit}, and it has {have}; the file is damaged: export or download it again"
        )


def _check_input(value: onnx.ValueInfoProto, where: str) -> None:
    """Raise for an input of the main graph that no sample can fill; onnxruntime refuses these too."""
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


# What is repaired ------------------------------------------------------------------------------------------


def mend(proto: onnx.ModelProto) -> bool:
    """Mend each fault listed in `MENDS`; return whether there was one. `check_proto` has passed the model."""
    mended = [step(proto) for step in MENDS]
    return any(mended)


def name_graphs(proto: onnx.ModelProto) -> bool:
    """Give graphs without a name one."""
    unnamed = [one for one in blocks(proto) if isinstance(one, onnx.GraphProto) and not one.name]
    for graph in unnamed:
        graph.name = "graph"
    return bool(unnamed)


def one_opset_per_domain(proto: onnx.ModelProto) -> bool:
    """Keep the last opset of each domain, as onnxruntime does; "ai.onnx" and "" are one."""
    is_mended = False
    for imports in (proto.opset_import, *(function.opset_import for function in proto.functions)):
        versions = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}
        if len(versions) < len(imports):
            del imports[:]
            for domain, version in versions.items():
                imports.add(domain=domain, version=version)
            is_mended = True
    return is_mended


def import_domains(proto: onnx.ModelProto) -> bool:
    """Import the domains that nodes use and the model does not import; onnxruntime knows its own."""
    imported = {entry.domain for entry in (*proto.opset_import, *proto.functions)}
    used = {
        node.domain for block in blocks(proto) if isinstance(block, onnx.GraphProto) for node in block.node
    }
    missing = sorted(used.difference(imported, STANDARD_DOMAINS))
    for domain in missing:
        version = max((s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain), default=1)
        proto.opset_import.add(domain=domain, version=version)
    return bool(missing)


def drop_device_configurations(proto: onnx.ModelProto) -> bool:
    """Drop the assignment of nodes to several devices, which onnxruntime does not read."""
    configured = [node for block in blocks(proto) for node in block.node if node.device_configurations]
    is_configured = bool(configured or proto.configuration)
    for node in configured:
        node.ClearField("device_configurations")
    proto.ClearField("configuration")
    return is_configured


def readable_texts(proto: onnx.ModelProto) -> bool:
    """Replace bytes that are not UTF-8 in texts without effect; protobuf hands such text out as bytes."""
    bad = list(_unreadable(proto))
    for message, field in bad:
        setattr(message, field, getattr(message, field).decode("utf-8", "replace"))
    return bool(bad)


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


def untype_maps(proto: onnx.ModelProto) -> bool:
    """Take the type from values that are maps, which onnx_ir does not have: it follows from the node."""
    for block in blocks(proto):
        declared = [*block.output, *block.input] if isinstance(block, onnx.GraphProto) else []
        for value in (*declared, *block.value_info):
            if has_map(value.type):
                value.ClearField("type")
    return False  # the checker takes the file with them


MENDS: Sequence[Callable[[onnx.ModelProto], bool]] = (
    name_graphs,
    one_opset_per_domain,
    import_domains,
    drop_device_configurations,
    readable_texts,
    untype_maps,
)
"""In this order."""
