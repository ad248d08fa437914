"""The one normalisation that a model passes before it is profiled, planned or rewritten: `prepare`.

It is pure, deterministic, and never asks the installed onnxruntime: a profile made on one machine belongs to
the prepared model on another. Each step is a function of one file beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ..model.subgraphs import bodies
from .fusion.batch_norm import fold_batch_normalizations, fold_scales_and_shifts, split_batch_normalizations
from .fusion.gemm import flatten_biases, join_biases
from .fusion.hard_swish import fuse_hard_swish
from .fusion.mul_add import merge_affine_chains
from .fusion.pad import fold_pads
from .passes.cleanup import (
    merge_equal_initializers,
    remove_dead,
    remove_unused_opsets,
    sort_nodes,
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
    sort_nodes,
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
"""Done once, in this order. A step that returns sentences has them told to the user."""

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
    fold_pads,
    fold_batch_normalizations,
    split_batch_normalizations,
    fold_scales_and_shifts,
    merge_affine_chains,
    fuse_hard_swish,
    join_biases,
    flatten_biases,
    remove_dead,
)
"""Repeated in this order until none of them finds anything to do; each returns how much it did."""

WHOLE: Sequence[Step] = (lift_constants, infer_shapes)
"""Those of them that see to the bodies in a model (branches, loops) themselves. The others are given each
body as a model of its own."""

LAST: Sequence[Step] = (
    trim_inputs,
    merge_equal_initializers,
    remove_unused_opsets,
    sort_nodes,
    name_nodes,
    mark_origin,
    clean_shapes,
    infer_shapes,
)
"""Done once at the end. Shapes are inferred afresh, so that they do not tell of the steps on the way."""


@dataclass(frozen=True)
class Prepared:
    """A normalised model.

    Attributes:
        model: the model; names of its inputs and outputs are those of the original, and so are the names of
            nodes and tensors that are left.
        notes: sentences for the user, such as an opset that had to be raised.
        narrow: the type of a model that was in float16 or bfloat16, and is in float32 now; None for others.
        origin: name of every node of the main graph, in graph order, to the names of the original nodes that
            it stands for (a Conv and the BatchNormalization folded into it).
            A nameless original node is called `<operator>_<first output>`.
    """

    model: ir.Model
    notes: tuple[str, ...]
    narrow: ir.DataType | None
    origin: Mapping[str, tuple[str, ...]]


def prepare(model: ir.Model) -> Prepared:
    """Return the normalised form of a model; the argument stays as it is.

    The result computes the same as the original up to rounding of weights that were folded. Preparing a
    prepared model changes nothing. Every node and every tensor has a name that is unique over the graph and
    the bodies of its nodes (branches, loops). The bodies are normalised as the graph is.

    Raises:
        ModelError: an operator cannot be raised to opset 13, or a model-local function cannot be inlined.
    """
    work = model.clone()
    notes: list[str] = []
    narrow = narrow_type(work)
    for step in FIRST:
        told = step(work)
        if isinstance(told, tuple):
            notes.extend(told)
    while _improve(work):
        pass
    for step in LAST:
        step(work)
    return Prepared(work, tuple(notes), narrow, collect_origin(work))


def _improve(model: ir.Model) -> int:
    """Do every repeated step once, on the graph and on the bodies in it; return how much was done."""
    done = 0
    for step in REPEATED:
        done += sum(step(part) for part in ([model] if step in WHOLE else _parts(model)))
    unshare_names(model)  # a body does not see the names outside
    return done


def _parts(model: ir.Model) -> Iterator[ir.Model]:
    """Yield the model, and the bodies in it as models, the outermost first."""
    yield model
    for node in list(model.graph):
        for body in bodies(node):
            body.opset_imports.update(model.opset_imports)
            yield from _parts(ir.Model(body, ir_version=model.ir_version))
