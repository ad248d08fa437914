"""Checks of a model file before it is converted, and repairs of faults that onnxruntime accepts.

The ONNX checker and onnxruntime reject most damaged files. The checks here find faults that both accept, such
as tensors of a wrong size. A repaired model computes the same as onnxruntime with the original file. Each
repair is for files that exist:

==========================  ================================================================================
one_opset_per_domain        the model zoo of 2018 has an opset twice (onnx-caffe2 issue 267); some converters
                            call the standard domain "ai.onnx" (burn-onnx pull request 447)
import_domains              onnxruntime's transformer optimizer before 1.14 writes operators of com.microsoft
                            without their opset (onnxruntime pull request 13978)
drop_device_configurations  since ONNX 1.18 a node may say on which device it runs, which nothing here reads
untype_maps                 classifiers of skl2onnx end in a list of maps (logreg_iris.onnx of onnxruntime)

Of 2,212 files (the test models of onnx 1.23, those in packages, and the trained models of the benchmarks) one
needs a repair: logreg_iris.onnx. Faults that no known tool writes are rejected: a value that is made twice,
elements given twice, nodes without an operator, an opset below 1, attributes of a function outside of one,
functions with the name of a standard operator, and sparse tensors.
=======
==========================  ================================================================================
"""

from __future__ import annotations

import math

import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ...profiles.instrumentation.subgraphs import STANDARD_DOMAINS
from ...profiles.runtime.session import has_map
from .external_data import bytes_needed
from .protobuf import all_tensors, blocks, graphs_in, is_outside

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


def check_proto(proto: onnx.ModelProto, where: str) -> None:
    """Check the facts that conversion and the steps after it rely on, in a message from `read_proto`."""
    if not proto.graph.output:
        raise ModelError(f"{where}: the graph has no outputs; export it with at least one")
    for block in blocks(proto):
        for sparse in block.sparse_initializer if isinstance(block, onnx.GraphProto) else ():
            name = sparse.values.name
            raise ModelError(f"{where}: tensor '{name}' is sparse; export it with dense weights")
    for tensor in all_tensors(proto):
        _check_tensor(tensor, where)
    _check_nodes(proto, where)
    initializers = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name not in initializers:
            _check_input(value, where)


def _check_nodes(proto: onnx.ModelProto, where: str) -> None:
    """Check what neither the ONNX checker nor onnxruntime refuses, and what would become another model."""
    for node in (node for block in blocks(proto) for node in block.node):
        if node.op_type == "Constant" and node.domain in STANDARD_DOMAINS and len(node.attribute) != 1:
            raise ModelError(
                f"{where}: node '{node.name}' (Constant): has {len(node.attribute)} attributes and needs the "
                "one with its value; export it again"
            )
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
            raise ModelError(
                f"{where}: contains text as raw bytes, which ONNX does not allow; export it again"
            )
    elif bytes_needed(tensor) > MOST_BYTES:
        raise ModelError(
            f"{where}: has the dimensions {list(tensor.dims)}, too many elements; export it again"
        )
    if not is_outside(tensor):
        _check_amount(tensor, where)


def _check_amount(tensor: onnx.TensorProto, where: str) -> None:
    kind = ir.DataType(tensor.data_type)
    field = "raw_data" if tensor.HasField("raw_data") else _FIELD_OF.get(kind.name, "int32_data")
    twice = [name for name in _TYPED_FIELDS if name != field and len(getattr(tensor, name))]
    if twice:
        raise ModelError(f"{where}: has elements in {twice[0]}, which belong in {field}; export it again")
    have, unit = len(getattr(tensor, field)), "elements"
    if field == "raw_data":
        need, unit = bytes_needed(tensor), "bytes"
    else:
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


def mend(proto: onnx.ModelProto) -> None:
    """Mend the faults that the module's docstring lists."""
    one_opset_per_domain(proto)
    import_domains(proto)
    drop_device_configurations(proto)
    untype_maps(proto)


def one_opset_per_domain(proto: onnx.ModelProto) -> None:
    """Keep the last opset of each domain, as onnxruntime does; "ai.onnx" and "" are one."""
    for imports in (proto.opset_import, *(function.opset_import for function in proto.functions)):
        versions = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}
        if len(versions) < len(imports):
            del imports[:]
            for domain, version in versions.items():
                imports.add(domain=domain, version=version)


def import_domains(proto: onnx.ModelProto) -> None:
    """Import the domains that nodes use and the model does not import; onnxruntime knows its own."""
    imported = {entry.domain for entry in (*proto.opset_import, *proto.functions)}
    used = {
        node.domain for block in blocks(proto) if isinstance(block, onnx.GraphProto) for node in block.node
    }
    for domain in sorted(used.difference(imported, STANDARD_DOMAINS)):
        version = max((s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain), default=1)
        proto.opset_import.add(domain=domain, version=version)


def drop_device_configurations(proto: onnx.ModelProto) -> None:
    """Drop the assignment of nodes to several devices, which onnxruntime does not read."""
    for node in (node for block in blocks(proto) for node in block.node):
        node.ClearField("device_configurations")
    proto.ClearField("configuration")


def untype_maps(proto: onnx.ModelProto) -> None:
    """Take the type from values that are maps, which onnx_ir does not have: it follows from the node."""
    for block in blocks(proto):
        declared = [*block.output, *block.input] if isinstance(block, onnx.GraphProto) else []
        for value in (*declared, *block.value_info):
            if has_map(value.type):
                value.ClearField("type")
