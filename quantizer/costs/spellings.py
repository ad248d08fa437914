"""Spellings: equivalent ways of writing a node (`NodePlan.implementation`), and the kernels of each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..operators.decompositions import pointwise_function
from ..operators.functions import chain_of
from ..operators.graph import Node
from ..operators.table import CHAIN_RULE, DEQUANTIZE, QUANTIZE
from ..plan.plan import Implementation
from ..plan.rewrites import float_rewrites
from .kernels import Sizes, Work, work_of

Piece = tuple[Work, str]
"""A kernel of a spelling, and its arithmetic: "integer", "dynamic" or "float"."""

Pieces = Callable[[Node, Sizes], tuple[Piece, ...]]
"""The kernels that stand for a node; none for a node that is written together with a later one."""


def _prelu(node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """A PRelu as a product and a sum that saturate."""
    work = work_of(node, sizes, integer=True)
    _, colon, broadcast = work.kernel.partition(":")  # of the slopes along the input
    kernels = (f"Mul{colon}{broadcast}", "Add")
    return tuple((replace(work, kernel=kernel), "integer") for kernel in kernels)


def _fused_chain(node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """One float operator between conversions for all nodes of a chain, charged to the last of them."""
    if node.facts is CHAIN_RULE:
        kernel = chain_of(node.ir_node).fused
    else:
        function = pointwise_function(node, sizes.graph)
        kernel = "" if function is None else function[0]
    if not kernel:
        return ()
    elements = (float(max(sizes.elements(node.output), 1)),)
    return (
        (Work(DEQUANTIZE, elements), "integer"),
        (Work(kernel, elements), "float"),
        (Work(QUANTIZE, elements), "integer"),
    )


def _rows_of_integers(node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """Entries of a table in 8 bits, the scale of each, and their product."""
    rows = work_of(node, sizes, integer=True)
    run, elements = rows.sizes
    return (
        (rows, "integer"),
        (Work(rows.kernel, (1.0, elements / run)), "float"),
        (Work("Cast", (elements,)), "float"),
        (Work("Mul:channel", (run, elements)), "float"),
    )


SPELLINGS: Mapping[str, Pieces] = {
    Implementation.SATURATING: _prelu,
    Implementation.FUSED: _fused_chain,
    Implementation.INTEGER: _rows_of_integers,
}
"""Implementation -> the kernels that it consists of, besides those of `float_rewrites`."""


def has_own_price(name: str) -> bool:
    """Whether a float node in an implementation does not take the time of its operator."""
    rewrite = float_rewrites().get(name)
    return rewrite is not None and rewrite.works is not None


def pieces_of(name: str, node: Node, sizes: Sizes) -> tuple[Piece, ...]:
    """Return the kernels of a node in an implementation with a separate price."""
    if name in SPELLINGS:
        return SPELLINGS[name](node, sizes)
    works = float_rewrites()[name].works
    return () if works is None else tuple((work, "float") for work in works(node, sizes))
