"""The one normalisation that a model passes before it is profiled, planned or rewritten: `prepare`.

It is pure, deterministic, and independent of the installed onnxruntime: a profile made on one machine fits
the prepared model on another. Each step is a function of a module of this room, or a pass of onnx_ir. A step
replaces onnx_ir's pass if that would prepare another model; its module explains the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedOpsetsPass, TopologicalSortPass

from ...profiles.base.errors import ModelError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.seconds import clocked
from ...profiles.records.profile import Dim, ModelId, Profile
from ...profiles.runtime.session import runtime_dtypes
from ...profiles.samples.samples import set_title
from ..model.files import ModelLike, model_bytes, model_file
from ..model.folders import model_in
from ..model.graph import name_of, subgraphs
from ..model.identity import model_id
from ..model.loading import load_model
from ..operators.graph import Graph, index
from ..operators.table import CONVERSIONS, draws
from .cleanup import (
    drop_noops,
    merge_equal_initializers,
    name_nodes,
    name_values,
    remove_dead,
    scalar_ranges,
    sums_to_adds,
    trim_inputs,
    trim_outputs,
    unshare_names,
)
from .constant_folding import fold_constants, lift_constants
from .float16 import narrow_type, widen
from .fusion import (
    flatten_biases,
    fold_batch_normalizations,
    fold_into_convolutions,
    fold_pads,
    fold_scales_and_shifts,
    fuse_hard_sigmoid,
    fuse_hard_swish,
    join_biases,
    merge_affine_chains,
    pad_all_axes,
    split_batch_normalizations,
    widen_numbers,
)
from .inlining import inline_functions, raise_ir_version, take_constant_branches, unlist_initializers
from .opset import raise_opset
from .shapes import clean_shapes, infer_shapes
from .unfusing import refuse_blocked_layouts, unfuse

Step = Callable[[ir.Model], object]
Repeated = Callable[[ir.Model], int]

FIRST_STEPS: Sequence[Step] = (
    refuse_blocked_layouts,
    TopologicalSortPass(),
    unlist_initializers,
    raise_ir_version,
    name_nodes,
    inline_functions,
    name_nodes,
    name_values,
    unshare_names,
    clean_shapes,
    lift_constants,
    widen,
    raise_opset,
)
"""Steps done once, in this order. Findings that a step returns are for the user."""

SHARED_STEPS: Sequence[Repeated] = (
    lift_constants,
    infer_shapes,
    unfuse,
    fold_constants,
    take_constant_branches,
    trim_outputs,
    sums_to_adds,
    scalar_ranges,
    drop_noops,
    pad_all_axes,
    fold_pads,
    join_biases,
)
REPEATED_STEPS: Sequence[Repeated] = (
    *SHARED_STEPS,
    fold_batch_normalizations,
    split_batch_normalizations,
    fold_scales_and_shifts,
    merge_affine_chains,
    fuse_hard_sigmoid,
    fuse_hard_swish,
    fold_into_convolutions,
    flatten_biases,
    widen_numbers,
    remove_dead,
)
"""Steps repeated in this order until none of them changes anything; each returns how much it changed."""

LOADING_STEPS: Sequence[Repeated] = (
    *SHARED_STEPS,
    partial(fold_batch_normalizations, as_loaded=True),
    partial(fold_scales_and_shifts, as_loaded=True),
    flatten_biases,
    remove_dead,
)
"""The repeated steps that onnxruntime does too when it loads a model, of two only a part, and steps that
remove nodes without time. `unfuse` is one of these, because fused operators are priced as their parts."""

WHOLE_MODEL_STEPS: Sequence[Step] = (lift_constants, infer_shapes)
"""Repeated steps that treat the subgraphs (of If, Loop, Scan) of a model themselves. The others get each
subgraph as a separate model."""

LAST_STEPS: Sequence[Step] = (
    trim_inputs,
    merge_equal_initializers,
    RemoveUnusedOpsetsPass(),
    TopologicalSortPass(),
    name_nodes,
    clean_shapes,
    infer_shapes,
)
"""Steps done once at the end. Shapes are inferred again, so that they depend only on the final graph."""


@dataclass(frozen=True)
class Prepared:
    """A normalised model."""

    model: ir.Model  # inputs, outputs, and the nodes and tensors that remain have their original names
    findings: tuple[Finding, ...]  # what was changed, such as the opset
    narrow: ir.DataType | None  # the type of a model that was in float16 or bfloat16
    unimproved: ir.Model | None  # before the steps after `SHARED_STEPS`, unless onnxruntime does them too


def prepare(model: ir.Model) -> Prepared:
    """Return the normalised form of a model, with names unique over all graphs; the argument stays."""
    work = model.clone()
    findings: list[Finding] = []
    narrow = narrow_type(work)
    for step in FIRST_STEPS:
        of_step = step(work)
        if isinstance(of_step, tuple):
            findings.extend(of_step)
    idle = set[Repeated]()
    _improve(work, SHARED_STEPS, idle)
    unimproved = work.clone()
    changed = _improve(work, REPEATED_STEPS[len(SHARED_STEPS) :], idle)
    changed |= improve(work, REPEATED_STEPS, LAST_STEPS, idle)
    beyond = changed.difference(LOADING_STEPS)
    findings.extend(_drawing(node) for node in work.graph.all_nodes() if draws(node))
    return Prepared(work, tuple(findings), narrow, unimproved if beyond or narrow else None)


def _drawing(node: ir.Node) -> Finding:
    """Return the finding on a node that makes other values in each run."""
    drops = node.op_type == "Dropout"
    why = " in training mode drops activations at random" if drops else " draws its values"
    sentence = f"{node.op_type} node '{node.name}'{why}: activations after it differ in each run"
    remedy = "export the model for inference" if drops else "no output that depends on it can be compared"
    return Finding(Code.UNCOMPARED_OUTPUT, sentence, node.name or "", remedy=remedy)


def improve(
    model: ir.Model, steps: Sequence[Repeated], last: Sequence[Step], idle: set[Repeated]
) -> set[Repeated]:
    """Do the repeated steps and the last ones in place; return the repeated steps that changed the model."""
    changed: set[Repeated] = set()
    while latest := _improve(model, steps, idle):
        changed |= latest
    for step in last:
        step(model)
    return changed


def _improve(model: ir.Model, steps: Sequence[Repeated], idle: set[Repeated]) -> set[Repeated]:
    """Do every repeated step once, on the graph and its subgraphs; return those that changed something.

    `idle` steps are skipped: they, and all steps since they ran, changed nothing.
    """
    changed = set[Repeated]()
    for step in (step for step in steps if step not in idle):
        idle.add(step)
        if sum([step(part) for part in ([model] if step in WHOLE_MODEL_STEPS else _with_subgraphs(model))]):
            changed.add(step)
            idle.clear()
    if unshare_names(model):  # steps on a subgraph do not see the names outside
        idle.clear()
    return changed


def _with_subgraphs(model: ir.Model) -> Iterator[ir.Model]:
    """Yield the model, and its subgraphs as models, the outermost first."""
    yield model
    for node in list(model.graph):
        for subgraph in subgraphs(node):
            subgraph.opset_imports.update(model.opset_imports)
            yield from _with_subgraphs(ir.Model(subgraph, ir_version=model.ir_version))


# A model file opened and prepared ---------------------------------------------------------------------------

ProfileLike: TypeAlias = str | os.PathLike[str] | Profile
"""A profile: a file, or the object."""


@dataclass(frozen=True)
class PreparedModel:
    """A model file, read and normalised."""

    model: ir.Model  # the prepared model
    graph: Graph  # its index
    identity: ModelId  # its fingerprint, with the name of the file
    findings: tuple[Finding, ...]  # what preparation changed
    narrow: ir.DataType | None = None  # the type of a model in float16 or bfloat16
    untyped: str = ""  # why some types are not known, "" where they are
    unimproved: ir.Model | None = None  # see `Prepared`
    shapes: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)  # of a run, see `with_shapes_of_run`

    @cached_property
    @clocked("prepare")
    def loaded(self) -> Graph:
        """The file as onnxruntime loads it, not prepared further."""
        if self.unimproved is None:
            return self.graph
        model = self.unimproved.clone()
        # Constants of float16 with several readers are cast in each run: equal ones stay apart.
        last = [step for step in LAST_STEPS if self.narrow is None or step is not merge_equal_initializers]
        improve(model, LOADING_STEPS, last, set())
        return index(model)


@dataclass(frozen=True, eq=False)
class ModelFile(os.PathLike[str]):
    """A model's file, read and prepared once, when that is first asked for; it stands for its path."""

    path: Path  # the file
    output: Path | None = None  # what it becomes once it is judged; None where it is in its place

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path) if self.output is None else f"{self.output} (not written)"

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return self.destination.name

    @property
    def destination(self) -> Path:
        """The file, or its future path."""
        return self.output or self.path

    @cached_property
    @clocked("read model")
    def model(self) -> ir.Model:
        """The model as read; ModelError if it cannot be read."""
        try:
            model = load_model(self.path)
        except ModelError as error:
            raise ModelError(str(error).replace(str(self.path), str(self))) from error
        set_title(model, self.destination)
        return model

    @cached_property
    def bytes(self) -> int:
        """The size, external data included."""
        return model_bytes(self.path)

    @cached_property
    @clocked("prepare")
    def normalised(self) -> PreparedModel:
        """The normalised model, float or not; raises ModelError if it cannot be read or normalised."""
        model = self.model
        try:
            prepared = prepare(model)
        except ModelError as error:
            raise ModelError(f"{self}: {error}") from error
        network, findings, narrow = prepared.model, prepared.findings, prepared.narrow
        set_title(network, self.destination)
        untyped, identity = _add_runtime_types(network), model_id(network, self.name)
        return PreparedModel(
            network, index(network), identity, findings, narrow, untyped, prepared.unimproved
        )

    @cached_property
    def prepared(self) -> PreparedModel:
        """The normalised float model; ModelError also if it is quantized or instrumented."""
        operators = quantized_operators(self.model)
        if operators or nodes_said_to_be_quantized(self.model):
            evidence = f"it has {', '.join(operators[:3])}" if operators else "according to its metadata"
            raise ModelError(f"{self}: this model is quantized already ({evidence}); give the float model")
        if is_instrumented(self.model):
            raise ModelError(f"{self}: this model is instrumented already; give the original model")
        return self.normalised


DOMAIN, OP_TYPE = "qprof", "QuantizationProfile"
"""Name of the function that records an activation in an instrumented model, as in Glow."""


def is_instrumented(model: ir.Model) -> bool:
    """Return whether a model has the profiling function; form `regions` uses the same domain for its own."""
    return any(key[:2] == (DOMAIN, OP_TYPE) for key in model.functions)


def file_of(model: str | os.PathLike[str]) -> ModelFile:
    """Return the file of a model or a folder (`model_in`), or that of an earlier step with its results."""
    return model if isinstance(model, ModelFile) else ModelFile(model_in(model))


@contextmanager
def opened(model: ModelLike, name: str = "") -> Iterator[ModelFile]:
    """Yield the file of a model, which may be temporary; see `model_file`."""
    if isinstance(model, ModelFile):
        yield model
        return
    with model_file(model, name) as path:
        yield ModelFile(path)


def open_prepared(path: str | os.PathLike[str]) -> PreparedModel:
    """Read a float model and normalise it, if that was not done; see `ModelFile.prepared`."""
    return file_of(path).prepared


def _add_runtime_types(model: ir.Model) -> str:
    """Give outputs the types that only onnxruntime infers, outside the fingerprint; return the reason if it
    cannot."""
    results = (value for node in model.graph for value in node.outputs)
    unknown = {value.name: value for value in results if value.name and value.type is None}
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
    """Return the name of a profile for messages: its path, or that it is an object."""
    return "the profile" if isinstance(source, Profile) else os.fspath(source)


def nodes_said_to_be_quantized(model: ir.Model) -> int | None:
    """Return how many nodes the metadata call quantized, or None; form `primitives` shows it only there."""
    text = model.metadata_props.get("qprof.quantized_nodes", "")
    return int(text) if text.isdecimal() and text.isascii() else None


def quantized_operators(model: ir.Model) -> tuple[str, ...]:
    """Return the operator types of quantized computation, sorted, those of subgraphs too; empty for float."""
    types = {node.op_type for node in ir.traversal.RecursiveGraphIterator(model.graph)}
    quantized = (*CONVERSIONS, "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")
    return tuple(sorted(t for t in types if t in quantized or t.startswith(("QLinear", "QGemm"))))


# Shapes that a model does not tell -------------------------------------------------------------------------


def with_shapes_of_run(prepared: PreparedModel, profile: Profile) -> PreparedModel:
    """Return the model with missing shapes from a profile's samples, and those inferred of them."""
    given: dict[str, tuple[Dim, ...]] = {}
    while shapes := _shapes_of_run(prepared.graph, profile):
        where_it_stops = {
            name: shape
            for name, shape in shapes.items()
            if (maker := prepared.graph.producer(name)) is not None
            and all(prepared.graph.shape(read) is not None for read in maker.inputs if read)
        }
        given |= where_it_stops or shapes
        model = with_shapes(prepared.model, given)
        prepared = replace(prepared, model=model, graph=index(model), shapes=given)
    return prepared


def _shapes_of_run(graph: Graph, profile: Profile) -> dict[str, tuple[Dim, ...]]:
    """Return the shapes of the tensors that only a profile knows."""
    shapes: dict[str, tuple[Dim, ...]] = {}
    for name, value in graph.values.items():
        tensor = profile.get(name)
        is_unknown = value.shape is None and value.type is not None and graph.producer(name) is not None
        if not is_unknown or tensor is None or tensor.shape is None:
            continue
        sizes, channels = list(tensor.shape), tensor.channels
        if channels is not None:
            sizes[channels.axis] = channels.count.size
        shapes[name] = tuple(sizes)
    return shapes


def with_shapes(model: ir.Model, shapes: Mapping[str, tuple[Dim, ...]]) -> ir.Model:
    """Return a model whose activations of unknown rank have these shapes, and those inferred from them."""
    if not shapes:
        return model
    model = model.clone()
    for value in (value for node in model.graph.all_nodes() for value in node.outputs):
        shape = shapes.get(name_of(value))
        if shape is not None and value.shape is None and value.type is not None:
            value.shape = ir.Shape(shape)
    infer_shapes(model)
    return model
