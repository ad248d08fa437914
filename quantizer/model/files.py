"""ONNX files that are read: `load_model`, and `model_file` for a model in memory."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from ...profiles.base.errors import ModelError, QprofError
from .saving import PROTOBUF_LIMIT, save_model

ModelLike: TypeAlias = str | os.PathLike[str] | onnx.ModelProto | ir.Model
"""A model: a file, or an object in memory."""


def load_model(path: str | os.PathLike[str]) -> ir.Model:
    """Read and check an ONNX file; its nodes are put in topological order.

    Weights in external files stay there and are mapped on demand.

    Raises:
        ModelError: there is no such file, it is a folder, it is no ONNX model or cut off, its external
            data is missing or short, the ONNX checker refuses it, or it has no outputs.
    """
    file = Path(path)
    check_name(file)
    if file.is_dir():
        raise ModelError(f"{path}: is a folder; name an .onnx file")
    try:
        proto = onnx.load_model(file, format="protobuf", load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; check the path of the model") from None
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read: {problem.strerror or problem}; check the path") from None
    except DecodeError:
        raise ModelError(f"{path}: not an ONNX model, or cut off; export or download it again") from None
    if not proto.ir_version or not proto.HasField("graph"):
        raise ModelError(f"{path}: not an ONNX model, or empty; export or download it again")
    if not proto.graph.output:
        raise ModelError(f"{path}: the graph has no outputs; export it with at least one")
    if proto.graph.sparse_initializer:
        name = proto.graph.sparse_initializer[0].values.name
        raise ModelError(f"{path}: initializer '{name}' is sparse; export the model with dense weights")
    _check_outer_outputs(proto.graph, str(path))
    _check_external(proto, file)
    _check(proto, file)
    with _quiet():
        model = ir.from_proto(proto)
    model.graph.sort()
    _attach(model, file.parent)
    _detach(model)
    return model


def check_name(path: Path) -> None:
    """Raise ModelError for a file whose name is not UTF-8: neither onnx nor onnxruntime can open it."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise ModelError(f"{path}: its name is not UTF-8, and onnx cannot open it; rename it") from None


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards; errors of qprof inside name its files without it."""
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        except QprofError as error:
            error.args = tuple(str(part).replace(f"{folder}{os.sep}", "") for part in error.args)
            raise


@contextmanager
def model_file(model: ModelLike, name: str = "") -> Iterator[Path]:
    """Yield the file of a model: the one given, or a temporary one with what is in memory.

    An object is only read. So a model in memory is checked, prepared and run as a file is, and the same model
    gives the same bytes.

    Args:
        model: a path, or an object; an `onnx_ir.Model` may have external data, a `ModelProto` in memory has
            no folder in which it could be.
        name: of the temporary file; made of the name of the graph when "".

    Raises:
        ModelError: the object is no model, or its weights are elsewhere or missing.
    """
    if isinstance(model, str | os.PathLike):
        yield Path(model)
        return
    with temporary_folder() as folder:
        path = folder / (name or model_name(model))
        _write_object(model, path)
        yield path


def model_name(model: ModelLike) -> str:
    """Return the name of a model's file; for an object one made of the name of its graph.

    Raises:
        ModelError: it is no model.
    """
    if isinstance(model, str | os.PathLike):
        return Path(model).name
    if not isinstance(model, onnx.ModelProto | ir.Model):
        raise ModelError(
            f"model: is of type {type(model).__name__}; give a path, an onnx.ModelProto or an onnx_ir.Model"
        )
    name = re.sub(r"[^\w.-]+", "_", model.graph.name or "").strip("._")[:100]
    return f"{name or 'model'}.onnx"


def _write_object(model: onnx.ModelProto | ir.Model, path: Path) -> None:
    if isinstance(model, ir.Model):
        try:
            save_model(model, path)
        except (OSError, ValueError, TypeError) as problem:
            raise ModelError(f"{path.name}: cannot be written out: {problem}; check the model") from problem
        return
    outside = [t for t in _tensors(model.graph) if t.data_location == onnx.TensorProto.EXTERNAL]
    if outside:
        raise ModelError(
            f"{path.name}: tensor '{outside[0].name}' has its data in a file, and a model in memory has no "
            "folder; give its path, or load it with its data"
        )
    if model.ByteSize() >= PROTOBUF_LIMIT:
        save_model(ir.from_proto(model), path)
    else:
        path.write_bytes(model.SerializeToString(deterministic=True))


def external_files(path: str | os.PathLike[str]) -> set[Path]:
    """Return the files beside a model in which its external data is, as the model names them.

    Raises:
        OSError: the model cannot be read. ModelError: it is no ONNX model.
    """
    try:
        proto = onnx.load_model(path, format="protobuf", load_external_data=False)
    except DecodeError:
        raise ModelError(f"{path}: not an ONNX model, or cut off; export or download it again") from None
    tensors = [*_tensors(proto.graph), *(t for function in proto.functions for t in _tensors(function))]
    outside = [t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL]
    return {
        Path(path).parent / entry.value
        for t in outside
        for entry in t.external_data
        if entry.key == "location"
    }


def _check(proto: onnx.ModelProto, file: Path) -> None:
    """Run the ONNX checker on the file (by path, so that 2 GiB are no limit).

    onnxruntime, and tools that go with it, take and write nodes in any order, which the checker does not: for
    that they are sorted first, as in the model that is returned.
    """
    try:
        onnx.checker.check_model(str(file))
    except onnx.checker.ValidationError as problem:
        if "topologically sorted" in str(problem) and _is_valid_when_sorted(proto):
            return
        sentence = re.sub(r"\s+", " ", str(problem).replace("==> Context:", " in:")).strip().rstrip(".")
        if len(sentence) > 300:
            sentence = sentence[:297] + "..."
        raise ModelError(f"{file}: not a valid ONNX model: {sentence}; export it again") from None


def _is_valid_when_sorted(proto: onnx.ModelProto) -> bool:
    """Check a sorted copy. It is in memory and has no folder, so external data is left out of it."""
    with _quiet():
        model = ir.from_proto(proto)
    try:
        model.graph.sort()
        checked = ir.to_proto(model)
        for tensor in _tensors(checked.graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                empty = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0])
                tensor.CopyFrom(empty)
        onnx.checker.check_model(checked)
    except (ValueError, onnx.checker.ValidationError):  # ValueError: a cycle
        return False
    return True


def _check_external(proto: onnx.ModelProto, file: Path) -> None:
    """Raise for external data that is missing or shorter than its tensor."""
    for tensor in _tensors(proto.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        where = {entry.key: entry.value for entry in tensor.external_data}
        data = file.parent / where.get("location", "")
        if not data.is_file():
            raise ModelError(
                f"{file}: tensor '{tensor.name}' has its data in '{where.get('location', '')}', "
                "which is missing; put that file beside the model"
            )
        end = int(where.get("offset", "0")) + int(where.get("length", "0"))
        if data.stat().st_size < end:
            raise ModelError(
                f"{data}: {data.stat().st_size} bytes, but tensor '{tensor.name}' of {file.name} ends at "
                f"byte {end}; the file is cut off, copy it again"
            )


def _check_outer_outputs(graph: onnx.GraphProto, path: str) -> None:
    """Raise for a branch or loop body whose output is a tensor of the graph around it: runtimes refuse it."""
    for node in graph.node:
        for body in _bodies(node):
            made = {name for inner in body.node for name in inner.output}
            made |= {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
            for value in body.output:
                if value.name not in made:
                    raise ModelError(
                        f"{path}: node '{node.name}' ({node.op_type}): output '{value.name}' of its graph "
                        f"'{body.name}' is made outside of it; put an Identity between"
                    )
            _check_outer_outputs(body, path)


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    single = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return single + [body for attribute in node.attribute for body in attribute.graphs]


def _tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Yield the initialisers and the tensors in attributes, of subgraphs too."""
    if isinstance(graph, onnx.GraphProto):
        yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
        for body in _bodies(node):
            yield from _tensors(body)


def _attach(model: ir.Model, folder: Path) -> None:
    """Tell external tensors where their folder is; load those in attributes, which are never written out."""
    ir.external_data.set_base_dir(model.graph, folder)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                node.attributes[name] = ir.AttrTensor(name, ir.Tensor(attribute.value.numpy().copy()))


def _detach(model: ir.Model) -> None:
    """Let go of the protobuf message: reading a weight from it copies the weight, every time."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.serde.TensorProtoTensor):
                value.const_value = _own(value.const_value)
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if attribute.type == ir.AttributeType.TENSOR and isinstance(
                    attribute.value, ir.serde.TensorProtoTensor
                ):
                    node.attributes[name] = ir.AttrTensor(name, _own(attribute.value))


def _own(tensor: ir.serde.TensorProtoTensor) -> ir.TensorProtocol:
    """Return the tensor in memory of its own, in a shape that is written as it was read."""
    plain = tensor.dtype != ir.DataType.STRING and tensor.dtype.bitwidth >= 8
    plain = plain and bool(tensor.name or not tensor.raw.HasField("name"))
    if plain and tensor.raw.HasField("raw_data") and not tensor.doc_string and not tensor.metadata_props:
        return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)
    alone = onnx.TensorProto()
    alone.CopyFrom(tensor.raw)
    return ir.serde.TensorProtoTensor(alone)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep onnx_ir's log lines off the terminal: what they tell is checked above or is harmless."""
    log = logging.getLogger("onnx_ir")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def model_bytes(path: str | Path) -> int:
    """Return the size of a model in bytes, files of external data included, each once.

    Raises:
        ModelError: a file is missing, or the model is not ONNX.
    """
    try:
        files = {Path(path).resolve(), *(file.resolve() for file in external_files(path))}
        return sum(file.stat().st_size for file in sorted(files))
    except OSError as error:
        raise ModelError(
            f"{path}: cannot tell its size: {error.filename or ''}: {error.strerror or error}"
        ) from error
