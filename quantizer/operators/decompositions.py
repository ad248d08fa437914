"""Functions that exporters write as several nodes: SiLU, Gelu, layer normalisation and Softmax.

A function is recognised by the one operator in it that few others have, its marker: the Sigmoid of a SiLU,
the Erf of a Gelu, the square root of a layer normalisation, the division of a Softmax.
"""

from __future__ import annotations

from typing import TypeAlias

from .graph import Graph, Node

POINTWISE_MARKERS = ("Sigmoid", "Erf")
"""Operators by which functions of one variable are recognised."""

MAX_NODES_AFTER_MARKER = 4
"""Most nodes of a decomposed function after its marker."""

NORMALIZATION = ("Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Cast")
"""Operators that a layer normalisation is written with."""

NORMS = ("ReduceL2", "ReduceSum", "Sqrt")
"""Operators that compute a norm, or the number of elements that a sum is divided by."""

MAX_NODES_AFTER_NORM = 6
"""Nodes from one of `NORMS` to the division by its result, at most."""


DecomposedFunction: TypeAlias = tuple[str, tuple[Node, ...]]
"""The kernel that onnxruntime makes of several nodes in float, and these; the last returns the result."""


def decomposed_function(marker: Node, graph: Graph) -> DecomposedFunction | None:
    """Return the function that a node marks: x Sigmoid(a x), Gelu, division by a deviation; or None."""
    if marker.op_type == "Sigmoid":
        nodes, kernel = _silu(marker, graph), "Silu"
    elif marker.op_type == "Erf":
        nodes, kernel = _gelu(marker, graph), "Gelu"
    elif marker.op_type == "Sqrt":
        nodes, kernel = _layer_normalization(marker, graph), "LayerNormalization"
    else:
        return None
    return (kernel, nodes) if nodes else None


def pointwise_function(last: Node, graph: Graph) -> DecomposedFunction | None:
    """Return the function of one variable (SiLU, Gelu) that makes a node's result, or None."""
    nodes = [last]
    for _ in range(MAX_NODES_AFTER_MARKER):
        producers = [graph.producer(name) for node in nodes for name in node.inputs]
        nodes = [producer for producer in producers if producer is not None]
        for node in nodes:
            function = decomposed_function(node, graph) if node.op_type in POINTWISE_MARKERS else None
            if function is not None and function[1][-1] is last:
                return function
    return None


def _silu(sigmoid: Node, graph: Graph) -> tuple[Node, ...]:
    """x * Sigmoid(x), or x * Sigmoid(alpha * x)."""
    readers = graph.consumers(sigmoid.output)
    if len(readers) != 1 or readers[0][0].op_type != "Mul":
        return ()
    product, scaled = readers[0][0], graph.producer(sigmoid.input(0))
    if sigmoid.input(0) in product.inputs:
        return (sigmoid, product)
    if scaled is None or scaled.op_type != "Mul" or not graph.is_read_once(scaled.output):
        return ()
    sources = [name for name in scaled.inputs if not graph.is_constant(name)]
    return (scaled, sigmoid, product) if len(sources) == 1 and sources[0] in product.inputs else ()


def _gelu(erf: Node, graph: Graph) -> tuple[Node, ...]:
    """x / sqrt(2), Erf, + 1, * x, * 0.5, in whichever order the products are."""
    scaled, added = graph.producer(erf.input(0)), graph.only_reader(erf.output)
    if scaled is None or scaled.op_type not in ("Mul", "Div") or added is None or added.op_type != "Add":
        return ()
    products = []
    reader: Node | None = added
    for _ in range(2):
        reader = None if reader is None else graph.only_reader(reader.output)
        if reader is not None and reader.op_type == "Mul":
            products.append(reader)
    return (scaled, erf, added, *products) if products else ()


def _layer_normalization(root: Node, graph: Graph) -> tuple[Node, ...]:
    """The root of a variance, and the division by it, with the mean before it and the scale after it."""
    divide = graph.only_reader(root.output)
    shifted = None if divide is None or divide.op_type != "Div" else graph.producer(divide.input(0))
    if divide is None or shifted is None or shifted.op_type != "Sub":
        return ()
    nodes = {node.name: node for node in (root, divide, shifted)}
    node: Node | None = root
    while node is not None and node is not shifted and node.op_type in NORMALIZATION:  # the variance
        nodes[node.name] = node
        node = graph.producer(node.input(0))
    mean = graph.producer(shifted.input(1))
    if mean is not None and mean.op_type == "ReduceMean":
        nodes[mean.name] = mean
    last = divide
    for op_type in ("Mul", "Add"):  # scale and bias
        reader = graph.only_reader(last.output)
        if reader is not None and reader.op_type == op_type:
            last = reader
    scale = graph.only_reader(divide.output)
    if scale is not None and scale is not last and scale.op_type in NORMALIZATION:
        nodes[scale.name] = scale
    return (*(node for node in nodes.values() if node is not last), last)


def softmax_input(divide: Node, graph: Graph) -> str:
    """Return the input of a Softmax that is written as a division of an Exp, or ""."""
    exponential = graph.producer(divide.input(0)) if divide.op_type == "Div" else None
    if exponential is None or exponential.op_type != "Exp":
        return ""
    shifted = graph.producer(exponential.input(0))
    return (shifted if shifted is not None and shifted.op_type == "Sub" else exponential).input(0)


def divides_by_norm(node: Node, graph: Graph) -> bool:
    """Whether a node divides by a norm or a number of elements."""
    if node.op_type != "Div":
        return False
    divisor = graph.producer(node.input(1))
    for _ in range(MAX_NODES_AFTER_NORM):
        if divisor is None:
            return False
        if divisor.op_type in NORMS:
            return True
        divisor = graph.producer(divisor.input(0))
    return False


def is_normalized(graph: Graph, name: str) -> bool:
    """Whether a LayerNormalization reads a tensor, or the operators that it is written with."""
    readers = {reader.op_type for reader, index in graph.consumers(name) if index == 0}
    return "LayerNormalization" in readers or {"ReduceMean", "Sub"} <= readers
