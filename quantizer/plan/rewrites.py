"""Rewrites: nodes written as other operators that compute the same. They are a plug-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ...profiles.base.extras import OptionalModule
from ..operators.graph import Graph, Node

if TYPE_CHECKING:
    from ..costs.kernels import Sizes, Work

TABLE = OptionalModule("the rewrites of nodes", "quantizer.plugins.rewrites.table")
"""Has `REWRITES` and `FLOAT_REWRITES`."""

WIDTHS = OptionalModule("the folding of widths", "quantizer.plugins.rewrites.folded_widths")
"""Has `best_fold`, `folded_time` and `fold_widths`, of `Adjustments.folded_widths`."""

SUB_PIXEL = "sub-pixel"
"""ConvTranspose as a Conv with an output channel for each phase, whose results are interleaved."""


Rewrite = tuple[Callable[[Node, bool], str], Callable[[Any], None]]
"""One way of writing a quantized node as others, before a form writes these: the reason against it, or "",
without regard to time if False; the writing, of a `lowering.replacement.Replacement`."""


@dataclass(frozen=True)
class FloatRewrite:
    """One way of writing a float node."""

    write: Callable[[Any], bool]  # writes it in a form; its argument is a `lowering.writers.Task`
    is_needed: Callable[[Node, Graph, Any], bool] = lambda *_: False
    fits: Callable[[Node, Graph], bool] = lambda *_: False
    works: Callable[[Node, Sizes], tuple[Work, ...]] | None = None  # its float kernels


@cache
def rewrites() -> Mapping[str, Rewrite]:
    """Return the rewrites of quantized nodes, by the word for each in targets and plans."""
    table: Mapping[str, Rewrite] = TABLE.load().REWRITES if TABLE.is_installed else {}
    return table


@cache
def float_rewrites() -> Mapping[str, FloatRewrite]:
    """Return the rewrites of float nodes, by the word for each in targets and plans."""
    table: Mapping[str, FloatRewrite] = TABLE.load().FLOAT_REWRITES if TABLE.is_installed else {}
    return table


def rewrite_refusal(word: str, node: Node, *, regards_time: bool) -> str:
    """Return why a node is not rewritten in a way, "" if it can be."""
    rewrite = rewrites().get(word)
    return f"rewrite '{word}' is not installed" if rewrite is None else rewrite[0](node, regards_time)
