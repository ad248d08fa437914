"""The Casts that onnxruntime's CPU provider puts into a float16 model when it loads it. Pure.

It has float16 kernels for the operators that move values and few others (`HALF_KERNELS`). All others compute
in float32: a tensor that one side has in float16 and the other in float32 is cast once, in each run. A chain
of operators of one kind needs no Casts inside, and a single operator with a float16 kernel between others
without one computes in float32 too.
"""

from __future__ import annotations

from ...costs.kernels import is_half_cast
from ...operators.graph import Graph, Node

HALF_KERNELS = frozenset(
    [
        "Attention",
        "Celu",
        "Clip",
        "Compress",
        "Concat",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "GroupQueryAttention",
        "Identity",
        "If",
        "IsInf",
        "IsNaN",
        "LayerNormalization",
        "Loop",
        "Max",
        "Min",
        "Mod",
        "RMSNormalization",
        "Reshape",
        "ReverseSequence",
        "RotaryEmbedding",
        "Round",
        "Scan",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Shrink",
        "Sign",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ]
)
"""Operators of which onnxruntime 1.32 has float16 kernels on x86-64; a test asks the installed one."""

WITH_SUBGRAPHS = ("If", "Loop", "Scan")


def inserted_casts(graph: Graph) -> dict[str, int]:
    """Return how many Casts onnxruntime adds to each tensor of a model that was float16, by name.

    -1 stands for a Cast at an input or output (`prepare.float16.widen`) that its file does not need.
    """
    half = {node.name for node in graph.nodes if node.op_type in HALF_KERNELS}
    half -= {node.name for node in graph.nodes if node.name in half and _is_alone(node, graph, half)}
    casts: dict[str, int] = {}
    for name in graph.values:
        if not graph.is_float(name):
            continue
        maker = graph.producer(name)
        readers = [node for node, _ in graph.consumers(name)]
        computing = [node for node in readers if not is_half_cast(node, graph)]
        in_half = [node for node in computing if node.name in half]
        in_float = len(computing) - len(in_half)
        if graph.is_constant(name):
            # One reader of its own has the constant in float32 from when the model is loaded.
            count = int(len({node.name for node in computing if node.name not in half}) > 1)
        elif maker is None:
            count = 0
        elif is_half_cast(maker, graph):
            count = -int(not in_float and bool(in_half))
        elif maker.name in half:
            count = int(in_float > 0) - (len(readers) - len(computing))
        else:
            count = int(bool(in_half) and len(computing) == len(readers))
        if count:
            casts[name] = count
    return casts


def _is_alone(node: Node, graph: Graph, half: set[str]) -> bool:
    """Whether no neighbour of a node has a float16 kernel, neither an input nor an output of the graph."""
    if node.op_type in WITH_SUBGRAPHS:
        return False
    makers = [graph.producer(name) for name in node.inputs if name and graph.is_float(name)]
    made = [maker for maker in makers if maker is not None and not is_half_cast(maker, graph)]
    readers = [
        reader
        for name in node.outputs
        if name and graph.is_float(name)
        for reader, _ in graph.consumers(name)
    ]
    if not made or any(graph.is_result(name) for name in node.outputs if name):
        return False
    return not any(other.name in half or is_half_cast(other, graph) for other in (*made, *readers))
