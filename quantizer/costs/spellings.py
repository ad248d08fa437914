"""Spellings: equivalent ways of writing a node, and the kernels that each consists of. Pure.

An entry is an implementation (`NodePlan.implementation`) whose time is not that of the operator's own kernel.
A form writes it (`lowering.forms`), a target says that its runtime may gain by it (`Target.spellings`), and
planning takes it where the table of kernel times says that it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ...profiles.records.profile import Profile
from ..operators.decompositions import pointwise_function
from ..operators.facts import KernelSizes
from ..operators.functions import chain_of
from ..operators.graph import Graph, Node
from ..operators.saturating import Saturation
from ..operators.table import CHAIN_RULE, DEQUANTIZE, QUANTIZE
from ..operators.two_parts import features_of
from ..operators.written_out import softplus_before, written_out
from ..plan.plan import Implementation
from .kernels import Sizes, Work, work_of


@dataclass(frozen=True)
class Piece:
    """A kernel that a spelling consists of.

    Attributes:
        work: the kernel and its sizes.
        form: the word for what it computes on: "integer", "dynamic" or "float".
    """

    work: Work
    form: str


Pieces = Callable[[Node, Sizes], tuple[Piece, ...]]
"""The kernels that stand for a node; none for a node that is written together with a later one."""


def _saturating(node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """An activation function as sums and products that saturate."""
    rule = node.rule
    assert rule is not None
    assert rule.saturation is not None
    work = work_of(node, sizes, integer=True)
    _, colon, broadcast = work.kernel.partition(":")  # of the slopes along the input
    kernels = {
        Saturation.CUT_LINE: ("Add:scalar",),
        Saturation.GATED: ("Add:scalar", "Mul"),
        Saturation.CORRECTED: (f"Mul{colon}{broadcast}", "Add"),
    }
    return tuple(Piece(replace(work, kernel=kernel), "integer") for kernel in kernels[rule.saturation])


def _fused_chain(node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """One float operator between conversions for all nodes of a chain, charged to the last of them."""
    if node.facts is CHAIN_RULE:
        kernel = chain_of(node.ir_node).fused
    else:
        function = pointwise_function(node, sizes.graph)
        kernel = "" if function is None else function.kernel
    if not kernel:
        return ()
    elements = (float(max(sizes.elements(node.output), 1)),)
    return (
        Piece(Work(DEQUANTIZE, elements), "integer"),
        Piece(Work(kernel, elements), "float"),
        Piece(Work(QUANTIZE, elements), "integer"),
    )


MAX_EXPONENT = 60.0
"""What the exponents of a Softmax without its largest value are cut off at: exp(60) is 1.1e26, and of 1e12 of
them float32 holds the sum."""

MAX_PROFILED_EXPONENT = MAX_EXPONENT / 2.0
"""Within this all values of a profile must be, so that no sample of its kind comes near `MAX_EXPONENT`."""


def _softmax_along(node: Node, graph: Graph, _: Profile) -> bool:
    """Whether a node is a Softmax along an axis that is not the last, which onnxruntime transposes."""
    shape = graph.shape(node.input(0))
    if node.facts.kernel is not KernelSizes.SOFTMAX or node.op_type != "Softmax" or not shape:
        return False
    return node.attributes.get_int("axis", -1) % len(shape) < len(shape) - 1


def _is_bounded(node: Node, graph: Graph, profile: Profile) -> bool:
    """Whether a node is such a Softmax whose exponents need not be shifted by the largest of them."""
    tensor, limit = profile.get(node.input(0)), MAX_PROFILED_EXPONENT
    if tensor is None or tensor.nan or tensor.inf:
        return False
    return -limit <= tensor.minimum and tensor.maximum <= limit and _softmax_along(node, graph, profile)


def _written_out_softmax(first: tuple[str, ...], node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """The kernels of a Softmax that is written out, its exponents made by those given."""
    elements, read = float(max(sizes.elements(node.output), 1)), sizes.input(node)
    axis = node.attributes.get_int("axis", -1) % max(len(read), 1)
    run = float(max(math.prod(read[axis + 1 :]), 1))
    kernels = (*first, "Exp", "ReduceSum:inner", "Div:row")
    works = (Work(kernel, (run, elements) if kernel.endswith(":row") else (elements,)) for kernel in kernels)
    return tuple(Piece(work, "float") for work in works)


def _written_out(node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """The operators that stand for a function; those of Tanh(Softplus(x)) are charged to the Softplus."""
    ir_node, usual = node.ir_node, sizes.float_work(node)
    if softplus_before(ir_node) is not None:
        return ()
    tanh = next((use.node for use in node.ir_node.outputs[0].uses()), ir_node)
    instead = written_out(tanh if softplus_before(tanh) is ir_node else ir_node)
    elements, pieces = float(max(sizes.elements(node.output), 1)), []
    for step in () if instead is None else instead.steps:
        kernel = step.op_type
        has_constant = any(not isinstance(operand, int) for operand in step.operands)
        work = Work(kernel, (elements,))
        if has_constant and kernel != "Clip":
            _, colon, broadcast = usual.kernel.partition(":")  # of the divisor
            of_divisor = replace(usual, kernel=f"{kernel}{colon}{broadcast}")
            work = of_divisor if node.op_type == "Div" else replace(work, kernel=f"{kernel}:scalar")
        pieces.append(Piece(work, "float"))
    return tuple(pieces)


def _is_written_out(node: Node, graph: Graph, _: Profile) -> bool:
    return written_out(node.ir_node) is not None


def _rows_of_integers(node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """Entries of a table in 8 bits, the scale of each, and their product."""
    rows = work_of(node, sizes, integer=True)
    run, elements = rows.sizes
    return (
        Piece(rows, "integer"),
        Piece(Work(rows.kernel, (1.0, elements / run)), "float"),
        Piece(Work("Cast", (elements,)), "float"),
        Piece(Work("Mul:channel", (run, elements)), "float"),
    )


def _two_parts(node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """A recurrent operator with its input in two parts, and what makes these."""
    work, read = work_of(node, sizes, integer=True), sizes.input(node)
    hidden, features, batch, length = work.sizes
    elements, steps = max(float(math.prod(read)), 1.0), max(length * batch, 1.0)
    both = float(features_of(int(features)))
    in_float = (  # a minimum takes as long as a maximum
        *(Work(kernel, (elements,)) for kernel in ("ReduceMax", "ReduceMax", "Sub", "Mul:scalar")),
        *(Work(kernel, (1.0,)) for kernel in ("Max", "Max", "Max", "Sub", "Mul", "Neg")),
        *(Work(kernel, (steps,)) for kernel in ("Max:scalar", "Max:scalar")),
        Work("Slice", (1.0, steps)),
        Work("Concat", (both, steps * both)),
    )
    converted = ((QUANTIZE, elements), (DEQUANTIZE, elements), (QUANTIZE, 1.0), *((DEQUANTIZE, 1.0),) * 2)
    return (
        *(Piece(piece, "float") for piece in in_float),
        *(Piece(Work(kernel, (size,)), "integer") for kernel, size in converted),
        Piece(replace(work, sizes=(hidden, both, batch, length)), "dynamic"),
    )


Fits = Callable[[Node, Graph, Profile], bool]
"""Whether a spelling computes what an operator does, to rounding."""

SPELLINGS: Mapping[str, Pieces] = {
    Implementation.SATURATING: _saturating,
    Implementation.FUSED: _fused_chain,
    Implementation.EXP_SUM: partial(_written_out_softmax, ("Clip",)),
    Implementation.EXP_SUM_MAX: partial(_written_out_softmax, ("ReduceMax:inner", "Sub:row")),
    Implementation.WRITTEN_OUT: _written_out,
    Implementation.TWO_PARTS: _two_parts,
    Implementation.INTEGER: _rows_of_integers,
}
"""Implementation -> the kernels that it consists of."""

FLOAT_SPELLINGS: Mapping[str, Fits] = {
    Implementation.EXP_SUM: _is_bounded,
    Implementation.EXP_SUM_MAX: _softmax_along,
    Implementation.WRITTEN_OUT: _is_written_out,
}
"""Those of one node that stays float -> where they may be used."""
