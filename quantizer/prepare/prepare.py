"""The one normalisation that a model passes before it is profiled, planned or rewritten: `prepare`.

It is pure, deterministic, and never asks the installed onnxruntime: a profile made on one machine belongs to
the prepared model on another. Each step is a function of a module in `passes` or `fusion`, or a pass of
onnx_ir. Steps of our own remain where onnx_ir's pass would prepare another model; their modules say how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedOpsetsPass, TopologicalSortPass

from ..model.subgraphs import subgraphs
from .fusion.batch_norm import fold_batch_normalizations, fold_scales_and_shifts, split_batch_normalizations
from .fusion.gemm import flatten_biases, join_biases
from .fusion.hard_swish import fuse_hard_sigmoid, fuse_hard_swish
from .fusion.mul_add import merge_affine_chains
from .fusion.pad import fold_pads, pad_all_axes
from .passes.cleanup import (
    merge_equal_initializers,
    remove_dead,
    trim_inputs,
    trim_outputs,
)
from .passes.constant_folding import fold_constants, lift_constants
from .passes.float16 import narrow_type, widen
from .passes.inlining import inline_functions, raise_ir_version, take_constant_branches, unlist_initializers
from .passes.names import collect_origin, forget_origin, mark_origin, name_nodes, name_values, unshare_names
from .passes.noops import drop_noops, merge_transposes, scalar_ranges, sums_to_adds
from .passes.opset import raise_opset
from .passes.shapes import clean_shapes, infer_shapes

Step = Callable[[ir.Model], object]

FIRST: Sequence[Step] = (
    forget_origin,
    TopologicalSortPass(),
    unlist_initializers,
    raise_ir_version,
    name_nodes,
    inline_functions,
    name_nodes,
    name_values,
    unshare_names,
    mark_origin,
    clean_shapes,
    lift_constants,
    infer_shapes,
    widen,
    raise_opset,
)
"""Steps done once, in this order. Sentences that a step returns are notes for the user."""

REPEATED: Sequence[Callable[[ir.Model], int]] = (
    lift_constants,
    infer_shapes,
    fold_constants,
    take_constant_branches,
    trim_outputs,
    sums_to_adds,
    scalar_ranges,
    drop_noops,
    merge_transposes,
    pad_all_axes,
    fold_pads,
    fold_batch_normalizations,
    split_batch_normalizations,
    fold_scales_and_shifts,
    merge_affine_chains,
    fuse_hard_swish,
    fuse_hard_sigmoid,
    join_biases,
    flatten_biases,
    remove_dead,
)
"""Steps repeated in this order until none of them changes anything; each returns how much it changed."""

WHOLE: Sequence[Step] = (lift_constants, infer_shapes)
"""Repeated steps that treat the subgraphs (of If, Loop, Scan) of a model themselves. The others are given
each subgraph as a model of its own."""

LAST: Sequence[Step] = (
    trim_inputs,
    merge_equal_initializers,
    RemoveUnusedOpsetsPass(),
    TopologicalSortPass(),
    name_nodes,
    mark_origin,
    clean_shapes,
    infer_shapes,
)
"""Steps done once at the end. Shapes are inferred afresh, so that they depend on the final graph alone."""


@dataclass(frozen=True)
class Prepared:
    """A normalised model.

    Attributes:
        model: the model; its inputs and outputs, and the nodes and tensors that remain, have their original
            names.
        notes: sentences for the user, such as that the opset was raised.
        narrow: the type of a model that was in float16 or bfloat16 and is in float32 now; None for others.
        origin: name of every node of the main graph, in graph order, to the names of the original nodes that
            it stands for (a Conv and the BatchNormalization folded into it).
            A nameless original node is called `<operator>_<first output>`.
    """

    model: ir.Model
    notes: tuple[str, ...]
    narrow: ir.DataType | None
    origin: Mapping[str, tuple[str, ...]]


def prepare(model: ir.Model) -> Prepared:
    """Return the normalised form of a model; the argument is not changed.

    The result computes the same as the original up to rounding of weights that were folded. Preparing a
    prepared model changes nothing. Every node and every tensor has a name that is unique over the graph and
    its subgraphs (of If, Loop, Scan). Subgraphs are normalised as the main graph is.

    Raises:
        ModelError: an operator cannot be raised to opset 13, or a model-local function cannot be inlined.
    """
    work = model.clone()
    notes: list[str] = []
    narrow = narrow_type(work)
    for step in FIRST:
        sentences = step(work)
        if isinstance(sentences, tuple):
            notes.extend(sentences)
    improve(work)
    return Prepared(work, tuple(notes), narrow, collect_origin(work))


def improve(model: ir.Model) -> None:
    """Do the repeated steps and the last ones on a model that has passed the first, in place."""
    while _improve(model):
        pass
    for step in LAST:
        step(model)


def _improve(model: ir.Model) -> int:
    """Do every repeated step once, on the graph and its subgraphs; return how much was changed."""
    changed = 0
    for step in REPEATED:
        changed += sum(step(part) for part in ([model] if step in WHOLE else _with_subgraphs(model)))
    unshare_names(model)  # steps on a subgraph do not see the names outside
    return changed


def _with_subgraphs(model: ir.Model) -> Iterator[ir.Model]:
    """Yield the model, and its subgraphs as models, the outermost first."""
    yield model
    for node in list(model.graph):
        for subgraph in subgraphs(node):
            subgraph.opset_imports.update(model.opset_imports)
            yield from _with_subgraphs(ir.Model(subgraph, ir_version=model.ir_version))
