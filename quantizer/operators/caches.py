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
    """Where an attention has its keys, or its values.

    Attributes:
        past: input with those of earlier steps.
        present: output with the new ones after them.
        scale: input with their scale.
        type_attribute: says what has a scale of its own.
    """

    past: int
    present: int
    scale: int
    type_attribute: str


PLACES = (CachePlace(3, 1, 12, "k_quant_type"), CachePlace(4, 2, 13, "v_quant_type"))
"""Keys and values of `ATTENTION`."""


def has_own_cache(node: Node, graph: Graph) -> bool:
    """Tell whether an attention's keys and values go in and out of the model in float, and nowhere else.

    Those of one that has scales are integers already.
    """
    if (node.domain, node.op_type) != (MICROSOFT, ATTENTION):
        return False
    for place in PLACES:
        past = node.input(place.past)
        present = node.outputs[place.present] if place.present < len(node.outputs) else ""
        if past not in graph.inputs or present not in graph.outputs or node.input(place.scale):
            return False
        alone = len(graph.consumers(past)) == 1 and not graph.consumers(present)
        if not alone or not graph.is_float(past) or not graph.is_float(present):
            return False
    return True
