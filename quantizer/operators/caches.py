"""The cache of keys and values that an attention of onnxruntime reads and extends.

Source: GroupQueryAttention in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from .graph import Graph, Node
from .table import MICROSOFT

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
    """

    past: int
    present: int
    scale: int
    type_attribute: str


PLACES = (CachePlace(3, 1, 12, "k_quant_type"), CachePlace(4, 2, 13, "v_quant_type"))
"""The cache of keys and that of values of `ATTENTION`."""


def has_own_cache(node: Node, graph: Graph) -> bool:
    """Tell whether an attention alone reads and writes its cache, a float input and output of the model.

    The cache of an attention that has scales holds integers already.
    """
    if (node.domain, node.op_type) != (MICROSOFT, ATTENTION):
        return False
    for place in PLACES:
        past = node.input(place.past)
        present = node.outputs[place.present] if place.present < len(node.outputs) else ""
        if past not in graph.inputs or present not in graph.outputs or node.input(place.scale):
            return False
        is_shared = len(graph.consumers(past)) != 1 or graph.consumers(present)
        if is_shared or not graph.is_float(past) or not graph.is_float(present):
            return False
    return True
