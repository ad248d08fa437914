"""Functions that exporters write out: which nodes together are SiLU, Gelu, layer normalisation or Softmax.

Each function begins at the node that gives it away and returns the nodes in which it is written, the last of
them that which returns the result, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from .graph import Graph, Node

SCALINGS = ("Mul", "Div")
NORMALIZATION = ("Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Cast")
NORMS = ("ReduceL2", "ReduceSum", "Sqrt")
"""What a norm, or a number of elements that a sum is divided by, is computed with."""

NORM_STEPS = 6
"""Operators back from a division in which its divisor must be found to be a norm or a number of elements."""


@dataclass(frozen=True)
class WrittenOut:
    """A function that is written as several nodes.

    Attributes:
        kernel: of the operator that onnxruntime makes of it in float.
        nodes: those in which it is written; the last returns the result.
    """

    kernel: str
    nodes: tuple[Node, ...]


def written_out(node: Node, graph: Graph) -> WrittenOut | None:
    """Return the function that a node gives away, None for all others.

    A Sigmoid gives away x * Sigmoid(x) and x * Sigmoid(alpha x), an Erf a Gelu, and a square root the
    normalisation by the root of a variance.
    """
    if node.op_type == "Sigmoid":
        nodes, kernel = _silu(node, graph), "Silu"
    elif node.op_type == "Erf":
        nodes, kernel = _gelu(node, graph), "Gelu"
    elif node.op_type == "Sqrt":
        nodes, kernel = _layer_normalization(node, graph), "LayerNormalization"
    else:
        return None
    return WrittenOut(kernel, nodes) if nodes else None


def _silu(sigmoid: Node, graph: Graph) -> tuple[Node, ...]:
    readers = graph.consumers(sigmoid.output)
    if len(readers) != 1 or readers[0][0].op_type != "Mul":
        return ()
    product, scaled = readers[0][0], graph.producer(sigmoid.input(0))
    if sigmoid.input(0) in product.inputs:
        return (sigmoid, product)
    if scaled is None or scaled.op_type != "Mul" or only_reader(scaled, graph) is None:
        return ()
    sources = [name for name in scaled.inputs if not graph.is_constant(name)]
    return (scaled, sigmoid, product) if len(sources) == 1 and sources[0] in product.inputs else ()


def _gelu(erf: Node, graph: Graph) -> tuple[Node, ...]:
    """x / sqrt(2), Erf, + 1, * x, * 0.5, in whichever order the products are."""
    before = graph.producer(erf.input(0))
    after = only_reader(erf, graph)
    if before is None or before.op_type not in SCALINGS or after is None or after.op_type != "Add":
        return ()
    products = []
    here: Node | None = after
    for _ in range(2):
        here = None if here is None else only_reader(here, graph)
        if here is not None and here.op_type == "Mul":
            products.append(here)
    return (before, erf, after, *products) if products else ()


def _layer_normalization(root: Node, graph: Graph) -> tuple[Node, ...]:
    """The square root of a variance, and what it divides, with the mean before it and the scale after it."""
    divide = only_reader(root, graph)
    shifted = None if divide is None or divide.op_type != "Div" else graph.producer(divide.input(0))
    if divide is None or shifted is None or shifted.op_type != "Sub":
        return ()
    parts = {part.name: part for part in (root, divide, shifted)}
    here: Node | None = root
    while here is not None and here is not shifted and here.op_type in NORMALIZATION:
        parts[here.name] = here
        here = graph.producer(here.input(0))
    mean = graph.producer(shifted.input(1))
    if mean is not None and mean.op_type == "ReduceMean":
        parts[mean.name] = mean
    last = divide
    for op_type in ("Mul", "Add"):
        after = only_reader(last, graph)
        if after is not None and after.op_type == op_type:
            last = after
    for part in (divide, only_reader(divide, graph)):
        if part is not None and part is not last and part.op_type in NORMALIZATION:
            parts[part.name] = part
    return (*(part for part in parts.values() if part is not last), last)


def softmax_input(divide: Node, graph: Graph) -> str:
    """Return what a Softmax that is written as a division of an Exp is computed from; "" for no such one.

    That is before its largest value is taken off, where it is.
    """
    exponential = graph.producer(divide.input(0)) if divide.op_type == "Div" else None
    if exponential is None or exponential.op_type != "Exp":
        return ""
    shifted = graph.producer(exponential.input(0))
    return (shifted if shifted is not None and shifted.op_type == "Sub" else exponential).input(0)


def divides_by_norm(node: Node, graph: Graph) -> bool:
    """Whether a node divides by a norm or a number of elements."""
    if node.op_type != "Div":
        return False
    here = graph.producer(node.input(1))
    for _ in range(NORM_STEPS):
        if here is None:
            return False
        if here.op_type in NORMS:
            return True
        here = graph.producer(here.input(0))
    return False


def is_normalized(graph: Graph, name: str) -> bool:
    """Whether a LayerNormalization reads a tensor, or the operators that it is written with."""
    readers = {reader.op_type for reader, index in graph.consumers(name) if index == 0}
    return "LayerNormalization" in readers or {"ReduceMean", "Sub"} <= readers


def is_read_once(graph: Graph, name: str) -> bool:
    """Whether one node alone reads a tensor."""
    return len(graph.consumers(name)) == 1 and not graph.is_result(name)


def only_reader(node: Node, graph: Graph) -> Node | None:
    """Return the node that alone reads a node's result; None where several do, or none."""
    name = node.output
    return graph.consumers(name)[0][0] if is_read_once(graph, name) else None


GIVEN_AWAY_BY = ("Sigmoid", "Erf")
"""What gives away a function of one variable."""

LONGEST = 4
"""Operators back from the last one of such a function to the one that gives it away, at most."""


def pointwise_function(last: Node, graph: Graph) -> WrittenOut | None:
    """Return the function of one variable (SiLU, Gelu) whose result a node returns, None where it is none."""
    here = [last]
    for _ in range(LONGEST):
        makers = [graph.producer(name) for node in here for name in node.inputs]
        here = [maker for maker in makers if maker is not None]
        for maker in here:
            found = written_out(maker, graph) if maker.op_type in GIVEN_AWAY_BY else None
            if found is not None and found.nodes[-1] is last:
                return found
    return None
