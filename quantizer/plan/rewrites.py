"""Rewrites: nodes written as other operators that compute the same.

A target names them, and a plan says which nodes are rewritten (`NodePlan.implementation`). They are a
plug-in: without it `rewrites` is empty, and no node is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...profiles.base.extras import OptionalModule
from ..operators.graph import Node

TABLE = OptionalModule("the rewrites of nodes", "quantizer.plugins.rewrites.table")
"""Has `REWRITES`."""


@dataclass(frozen=True)
class Rewrite:
    """One way of writing a node as others, before a form writes these.

    Attributes:
        refusal: why a node cannot be written so, "" if it can; without regard to time if it is False.
        write: puts the others in its place; its argument is a `lowering.replacement.Replacement`.
    """

    refusal: Callable[[Node, bool], str]
    write: Callable[[Any], None]


SUB_PIXEL = "sub-pixel"
"""ConvTranspose as a Conv with an output channel for each phase, whose results are interleaved."""


@cache
def rewrites() -> Mapping[str, Rewrite]:
    """Return the rewrites that are installed, by the word for each in targets and plans."""
    table: Mapping[str, Rewrite] = TABLE.load().REWRITES if TABLE.is_installed else {}
    return table


def rewrite_refusal(word: str, node: Node, *, regards_time: bool) -> str:
    """Return why a node is not rewritten in a way, "" if it can be."""
    rewrite = rewrites().get(word)
    return f"'{word}' is not installed" if rewrite is None else rewrite.refusal(node, regards_time)
