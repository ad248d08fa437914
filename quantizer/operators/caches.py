"""The cache of keys and values that an attention of onnxruntime reads and extends.

Source: GroupQueryAttention in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .graph import Graph, Node
from .table import MICROSOFT

Floats = npt.NDArray[np.float64]

ATTENTION = "GroupQueryAttention"
"""The operator that can keep its cache in integers."""


@dataclass(frozen=True)
class CachePlace:
    """The inputs, output and attribute of an attention that belong to its cache of keys, or of values.

    Attributes:
        past: position of the input that holds the cache of earlier steps.
        present: position of the output that holds it with the new keys or values appended.
        scale: position of the input that holds the scale of an integer cache.
        type_attribute: attribute that says whether a tensor or a channel has a scale of its own.
        new: position of the input that holds what is appended, before positions turn it.
    """

    past: int
    present: int
    scale: int
    type_attribute: str
    new: int


PLACES = (CachePlace(3, 1, 12, "k_quant_type", 1), CachePlace(4, 2, 13, "v_quant_type", 2))
"""The cache of keys and that of values of `ATTENTION`."""

PAST_KEYS = {"Attention": 4, "MultiHeadAttention": 6, ATTENTION: PLACES[0].past}
"""Operator of an attention -> position of the input with the keys of earlier steps: (batch, heads, steps,
elements of a head)."""


def new_entries(node: Node, place: CachePlace) -> tuple[str, int]:
    """Return the tensor whose last axis has the channels of new keys or values, and where they begin in it.

    The first input of an attention without a key holds queries, keys and values side by side. How many they
    are is the heads of keys and values times the elements of a head.
    """
    if node.input(place.new):
        return node.input(place.new), 0
    heads, stored = (node.attributes.get_int(name, 1) or 1 for name in ("num_heads", "kv_num_heads"))
    return node.input(0), heads + (place.new - 1) * stored


def turns_pairs(node: Node, place: CachePlace) -> bool:
    """Whether positions turn the entries of a cache: the keys of an attention with `do_rotary`."""
    return place is PLACES[0] and node.attributes.get_int("do_rotary", 0) == 1


def channel_magnitudes(node: Node, place: CachePlace, magnitudes: Floats) -> Floats:
    """Return the largest magnitude of each element of each head of a cache, (heads, elements).

    Positions turn pairs of elements of a key by any angle, so both can become as large as the pair is long.
    `magnitudes` are those of the channels of the tensor that `new_entries` gives.
    """
    attributes = node.attributes
    heads, stored = (attributes.get_int(name, 1) or 1 for name in ("num_heads", "kv_num_heads"))
    _, first = new_entries(node, place)
    each = len(magnitudes) // (stored if node.input(place.new) else heads + 2 * stored)
    own = magnitudes[first * each : (first + stored) * each].reshape(stored, each).copy()
    if turns_pairs(node, place):
        size = attributes.get_int("rotary_embedding_dim", each) or each
        turned = own[:, :size]
        if attributes.get_int("rotary_interleaved", 0):
            parts = turned[:, 0::2], turned[:, 1::2]
        else:
            half = turned.shape[1] // 2
            parts = turned[:, :half], turned[:, half:]
        lengths = np.hypot(*parts)
        for part in parts:
            part[...] = lengths
    return own


def has_own_cache(node: Node, graph: Graph) -> bool:
    """Tell whether an attention alone reads the values of its cache, a float input and output of the model.

    The cache of an attention that has scales holds integers already.
    """
    if (node.domain, node.op_type) != (MICROSOFT, ATTENTION):
        return False
    for place in PLACES:
        past = node.input(place.past)
        present = node.outputs[place.present] if place.present < len(node.outputs) else ""
        if past not in graph.inputs or present not in graph.outputs or node.input(place.scale):
            return False
        others = (reader for name in (past, present) for reader, _ in graph.consumers(name))
        is_shared = any(reader is not node and not reader.facts.reads_shape_only for reader in others)
        is_shared = is_shared or node.inputs.count(past) != 1
        if is_shared or not graph.is_float(past) or not graph.is_float(present):
            return False
    return True
