"""`load_model`: a model file to an `onnx_ir.Model`, the only way in.

Models that onnxruntime can run are accepted, all others are rejected. The ONNX checker tests a model first,
without the values of its weights. If it objects, onnxruntime decides.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import ModelError
from ...profiles.base.output_files import temporary_folder
from ...profiles.instrumentation.subgraphs import nested_graphs
from ...profiles.runtime.external_weights import save_with_weights
from ...profiles.runtime.providers import (
    RUNTIME_ERRORS,
    disable_prepacking,
    first_line,
    new_session,
    new_session_options,
)
from ...profiles.samples.samples import set_title
from .external_data import SharedFileTensor, bytes_needed, check_external, has_few_bit_floats, shared_file
from .protobuf import all_tensors, is_outside, read_proto
from .repairs import check_proto, mend
from .unread_types import UNREAD, without_unread

SMALL = 1024
"""Bytes up to which a tensor in external data is read at once: axes, shapes and scales, which shape inference
and the opset converter look at."""


def load_model(path: str | os.PathLike[str]) -> ir.Model:
    """Read, check and mend an ONNX file; nodes are put in topological order, external weights are mapped."""
    proto = read_proto(path)
    if not proto.HasField("ir_version") or not proto.HasField("graph"):
        raise ModelError(f"{path}: not an ONNX model, or empty; export or download it again")
    check_proto(proto, str(path))
    check_external(proto, path)
    runtime_outputs = cache(partial(_runtime_outputs, path))  # onnxruntime is asked once, where it has to be
    objection = _objection(proto)
    if objection and isinstance(runtime_outputs(), str):
        raise ModelError(f"{path}: not a valid ONNX model: {objection}; export it again")
    mend(proto)
    model = converted(proto, path)
    set_title(model, path)
    _sort(model, path)
    _detach(model, path)
    del proto
    _type_outputs(model, path, runtime_outputs)
    return model


def converted(proto: onnx.ModelProto, path: str | os.PathLike[str]) -> ir.Model:
    """Return the model of a message; only this function converts exceptions of onnx_ir to errors of qprof."""
    try:
        with _quiet():
            return ir.from_proto(proto)
    except (ir.serde.SerdeError, UnicodeDecodeError, ValueError, TypeError) as problem:
        cause: BaseException = problem
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ModelError(f"{path}: cannot be read as a graph: {_sentence(cause)}; export it again") from None


def _sort(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Put the nodes in topological order; onnxruntime takes them in any."""
    try:
        model.graph.sort()
        for function in model.functions.values():
            function.sort()
    except ValueError:
        raise ModelError(f"{path}: not a valid ONNX model: its nodes form a cycle; export it again") from None


RuntimeOutputs = Callable[[], Mapping[str, ir.Value] | str]
"""The outputs of a file in onnxruntime, or why that refuses the file."""


def _runtime_outputs(path: str | os.PathLike[str]) -> Mapping[str, ir.Value] | str:
    """Return the output tensors of a file in onnxruntime, by name; or why onnxruntime refuses it."""
    if has_few_bit_floats(os.fspath(path), UNREAD):
        with temporary_folder() as folder:
            readable = Path(folder, "model.onnx")
            with _quiet():
                save_with_weights(without_unread(ir.load(path)), readable)
            return _runtime_outputs(readable)
    options = new_session_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised
    disable_prepacking(options)  # nothing will be run
    try:
        session = new_session(os.fspath(path), options, "CPUExecutionProvider")
    except RUNTIME_ERRORS as error:
        return first_line(error)
    types = {f"tensor({kind.name.lower()})": kind for kind in ir.DataType}
    return {
        output.name: ir.Value(
            name=output.name,
            type=ir.TensorType(types[output.type]),
            shape=ir.Shape(output.shape) if output.shape else None,
        )
        for output in session.get_outputs()
        if output.type in types
    }


def _without_values(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of all that the checker looks at, without the values of large tensors."""

    def is_large(tensor: onnx.TensorProto) -> bool:
        return tensor.HasField("raw_data") and bytes_needed(tensor) > SMALL

    own = model.graph
    graph = onnx.GraphProto(name=own.name, node=own.node, input=own.input, output=own.output)
    graph.value_info.extend(own.value_info)
    for tensor in own.initializer:
        if is_large(tensor):  # a copy of all is slow
            graph.initializer.add(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=b""
            )
        else:
            graph.initializer.append(tensor)
    proto = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=graph)
    proto.functions.extend(model.functions)
    for tensor in all_tensors(proto):
        if is_outside(tensor) or is_large(tensor):
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.raw_data, tensor.dims[:] = b"", [0, *tensor.dims[1:]]
    return proto


def _objection(model: onnx.ModelProto) -> str:
    """Return the ONNX checker's objection to a model, or ""."""
    try:
        onnx.checker.check_model(_without_values(model))
    except onnx.checker.ValidationError as problem:
        return _sentence(problem)
    except UnicodeDecodeError as problem:  # the message quotes a name
        return _sentence(problem.object.decode("utf-8", "backslashreplace"))
    return ""


def _sentence(problem: object) -> str:
    """Return a message of a library on one line, and not a long one."""
    sentence = re.sub(r"\s+", " ", str(problem).replace("==> Context:", " in:")).strip().rstrip(".")
    return sentence if len(sentence) <= 300 else sentence[:297] + "..."


def _type_outputs(model: ir.Model, path: str | os.PathLike[str], runtime_outputs: RuntimeOutputs) -> None:
    """Give outputs without a type the one that onnxruntime infers, also behind nodes outside the standard."""
    untyped = [value for value in model.graph.outputs if value.type is None]
    inferred = runtime_outputs() if untyped else {}
    if isinstance(inferred, str):
        raise ModelError(f"{path}: onnxruntime cannot load it: {inferred}; export the model again")
    for value in untyped:
        known = inferred.get(str(value.name))
        if known is not None:
            value.type = known.type
            value.shape = known.shape if value.shape is None else value.shape


def _detach(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Let go of the message, which copies a weight that is read; load small external tensors, map others."""
    files: dict[str, ir.ExternalTensor] = {}

    def own(tensor: Any, largest: int = SMALL) -> Any:
        if isinstance(tensor, ir.serde.TensorProtoTensor):
            return _own(tensor)
        if not isinstance(tensor, ir.ExternalTensor):
            return tensor
        place = os.fspath(tensor.location)
        if place not in files:
            files[place] = shared_file(tensor, path)
        mapped = SharedFileTensor(tensor, files[place])
        is_small = mapped.nbytes <= largest
        return ir.Tensor(mapped.numpy().copy(), dtype=mapped.dtype, name=mapped.name) if is_small else mapped

    for block in (model.graph, *model.functions.values()):
        for graph in (block, *(graph for _, graph in nested_graphs(block))):
            for value in graph.initializers.values() if isinstance(graph, ir.Graph) else ():
                value.const_value = own(value.const_value)
            for node in graph:
                for name, attribute in list(node.attributes.items()) if node.attributes else ():
                    tensor = attribute.value if attribute.type == ir.AttributeType.TENSOR else None
                    if (owned := own(tensor, sys.maxsize)) is not tensor:  # attributes stay inside
                        node.attributes[name] = ir.AttrTensor(name, owned)


def _own(tensor: ir.serde.TensorProtoTensor) -> ir.TensorProtocol:
    """Return a tensor in separate memory, with the shape kept as it was read."""
    plain = tensor.dtype != ir.DataType.STRING and tensor.dtype.bitwidth >= 8
    plain = plain and bool(tensor.name or not tensor.raw.HasField("name"))
    if plain and tensor.raw.HasField("raw_data") and not tensor.doc_string and not tensor.metadata_props:
        return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)
    alone = onnx.TensorProto()
    alone.CopyFrom(tensor.raw)
    return ir.serde.TensorProtoTensor(alone)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep onnx_ir's log lines and warnings off the terminal: their faults are checked above, or harmless."""
    log = logging.getLogger("onnx_ir")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
