"""What onnxruntime takes and the standard does not, put as the standard says; each mend is told in a note.

A mended model computes what onnxruntime computes with the model as it is. Each function changes the message
and yields the sentences for the user, none where there was nothing to mend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper
from google.protobuf.descriptor import FieldDescriptor

from ....profiles.runtime.typed_graphs import has_map
from .first_mends import FIRST_MENDS
from .protobuf import Block, all_tensors, blocks
from .tensor_data import clear_typed_fields

Notes = Iterator[str]


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
