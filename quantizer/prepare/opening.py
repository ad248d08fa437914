"""A model file opened and prepared, and what names a profile."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ...profiles.instrumentation.profiling_function import is_instrumented
from ...profiles.records.profile import ModelId, Profile
from ...profiles.runtime.profiling_session import runtime_dtypes
from ...profiles.samples.model_title import set_title
from ..model.editing import is_in_onnx
from ..model.graph import Graph, index
from ..model.identity import model_id
from ..model.loading.reading import read_model
from ..operators.table import CONVERSIONS
from .passes.shapes import infer_shapes
from .prepare import prepare

ProfileLike: TypeAlias = str | os.PathLike[str] | Profile
"""A profile: a file, or the object."""


@dataclass(frozen=True)
class PreparedModel:
    """A model file, read and normalised.

    Attributes:
        model: the prepared model.
        graph: its index.
        identity: its fingerprint, with the name of the file.
        notes: remarks for the user: what was mended in the file, and what preparation changed.
        narrow: the type of a model in float16 or bfloat16, which is prepared in float32; None for others.
        untyped: why the types after operators that ONNX does not have are not known, "" where they are.
    """

    model: ir.Model
    graph: Graph
    identity: ModelId
    notes: tuple[str, ...]
    narrow: ir.DataType | None = None
    untyped: str = ""


def open_prepared(path: str | Path) -> PreparedModel:
    """Read a float model and normalise it.

    Raises:
        ModelError: it cannot be read, is quantized already, or is instrumented already.
    """
    loaded = read_model(path)
    found = quantized_operators(loaded.model)
    if not found and nodes_said_to_be_quantized(loaded.model):
        raise ModelError(
            f"{path}: this model is quantized already (its metadata says so); give the float model"
        )
    if found:
        raise ModelError(
            f"{path}: this model is quantized already (it has {', '.join(found[:3])}); give the float model"
        )
    if is_instrumented(loaded.model):
        raise ModelError(f"{path}: this model is instrumented already; give the original model")
    try:
        result = prepare(loaded.model)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    set_title(result.model, path)
    untyped = _add_runtime_types(result.model)
    return PreparedModel(
        result.model,
        index(result.model),
        model_id(result.model, Path(path).name),
        (*loaded.notes, *result.notes),
        result.narrow,
        untyped,
    )


def _add_runtime_types(model: ir.Model) -> str:
    """Give outputs of operators that ONNX does not have the types that onnxruntime infers.

    Types do not enter the fingerprint, so this is no part of `prepare`. Where onnxruntime does not have an
    operator, its output stays of no known type, and why is returned, else "".
    """
    unknown = {
        value.name: value
        for node in model.graph
        if not is_in_onnx(node)
        for value in node.outputs
        if value.name and value.type is None
    }
    if not unknown:
        return ""
    try:
        types = runtime_dtypes(model, tuple(unknown))
    except ModelError as refused:
        return str(refused)
    for name, dtype in types.items():
        unknown[name].type = None if dtype is None else ir.TensorType(dtype)
    infer_shapes(model)
    return ""


def profile_name(source: ProfileLike) -> str:
    """Return what messages call a profile: its path, or that it is an object."""
    return "the profile" if isinstance(source, Profile) else os.fspath(source)


QUANTIZED_NODES = "qprof.quantized_nodes"
"""Key in the metadata of a written model: how many nodes have integer values."""

_TYPES = frozenset(
    {*CONVERSIONS, "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"},
)


def nodes_said_to_be_quantized(model: ir.Model) -> int | None:
    """Return how many nodes are quantized, as the metadata says; None where it does not.

    Form `primitives` has no operator that tells.
    """
    text = model.metadata_props.get(QUANTIZED_NODES, "")
    return int(text) if text.isdecimal() and text.isascii() else None


def quantized_operators(model: ir.Model) -> tuple[str, ...]:
    """Return the operator types of quantized computation in the model, sorted; empty for a float model.

    Those are QuantizeLinear and DequantizeLinear, the integer operators, and every type that begins with
    "QLinear" (also in onnxruntime's own domain) or "QGemm"; subgraphs count.
    """
    found = {
        node.op_type
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
        if node.op_type in _TYPES or node.op_type.startswith(("QLinear", "QGemm"))
    }
    return tuple(sorted(found))
