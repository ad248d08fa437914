"""Nodes that onnxruntime makes a part of another one in float, and so cost nothing or little. Pure.

Seen in the graphs that onnxruntime 1.31 executes. Each rule names the node that has the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ..model.graph import Graph, input_name, name_of, output_name
from .kernels import Sizes

AFTER_CONV = ("Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "Clip")
"""Activation functions that a float convolution applies itself, where nothing else reads its result."""

SCALINGS = ("Mul", "Div")
ERF_GELU = ("Div", "Mul", "Erf", "Add")
NORMALIZATION = ("Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Cast")


@dataclass(frozen=True)
class Fusion:
    """What becomes of a float node that is fused with others.

    Attributes:
        kernel: the kernel that has its time; "" for nothing: the time is another node's.
        parts: names of the nodes that must be float for that.
    """

    kernel: str
    parts: tuple[str, ...]


def fused_nodes(graph: Graph, sizes: Sizes) -> Mapping[str, Fusion]:
    """Return what becomes of the float nodes that are fused, by name."""
    fused: dict[str, Fusion] = {}
    for node in graph.nodes:
        if name_of(node) not in fused:
            kernels = dict(_found(node, graph, sizes))
            maker = graph.producer(input_name(node, 0)) if node.inputs and input_name(node, 0) else None
            parts = (*kernels, name_of(maker)) if len(kernels) == 1 else tuple(kernels)
            fused |= {name: Fusion(kernel, parts) for name, kernel in kernels.items()}
    return fused


def _found(node: ir.Node, graph: Graph, sizes: Sizes) -> Iterator[tuple[str, str]]:
    """Yield the nodes that are fused where a node is found, and their kernels."""
    maker = graph.producer(input_name(node, 0)) if node.inputs and input_name(node, 0) else None
    alone = maker is not None and is_read_once(graph, output_name(maker))
    if maker is not None and alone and maker.op_type == "Conv" and _joins_convolution(node, graph, sizes):
        yield name_of(node), f"{node.op_type}:fused"
    elif maker is not None and alone and maker.op_type == "MatMul" and _scales(node, sizes):
        yield name_of(node), ""
    elif node.op_type == "Sigmoid":
        yield from _silu(node, graph)
    elif node.op_type == "Erf":
        yield from _gelu(node, graph)
    elif node.op_type == "Sqrt":
        yield from _layer_normalization(node, graph)
    elif node.op_type == "Identity":
        yield name_of(node), ""
    elif node.op_type == "LayerNormalization" and maker is not None and alone and _adds(maker, sizes):
        yield name_of(maker), ""
        yield name_of(node), "SkipLayerNormalization"


def is_read_once(graph: Graph, name: str) -> bool:
    """Whether one node alone reads a tensor."""
    return len(graph.consumers(name)) == 1 and not graph.is_result(name)


def _joins_convolution(node: ir.Node, graph: Graph, sizes: Sizes) -> bool:
    if node.op_type in ("Mul", "Add"):  # by a constant for each channel: folded into weights and bias
        other = input_name(node, 1)
        shape = sizes.shape(other)
        return graph.is_constant(other) and sizes.elements(other) == max([1, *shape[:-2][-1:]])
    return node.op_type in AFTER_CONV and all(
        value is None or graph.is_constant(name_of(value)) for value in node.inputs[1:]
    )


def _adds(node: ir.Node, sizes: Sizes) -> bool:
    """Whether a node adds two sequences of vectors of one shape."""
    shapes = {sizes.shape(name) for name in sizes.graph.inputs_of(node)}
    return node.op_type == "Add" and len(shapes) == 1 and len(sizes.output(node)) == 3


def _scales(node: ir.Node, sizes: Sizes) -> bool:
    other = input_name(node, 1)
    return node.op_type in SCALINGS and sizes.graph.is_constant(other) and sizes.elements(other) == 1


def _silu(node: ir.Node, graph: Graph) -> Iterator[tuple[str, str]]:
    """x * Sigmoid(x) is one operator, QuickGelu."""
    readers = graph.consumers(output_name(node))
    if len(readers) == 1 and readers[0][0].op_type == "Mul":
        reader = readers[0][0]
        if input_name(node, 0) in graph.inputs_of(reader):
            yield name_of(node), ""
            yield name_of(reader), "Silu"


def _gelu(node: ir.Node, graph: Graph) -> Iterator[tuple[str, str]]:
    """x / sqrt(2), Erf, + 1, * x, * 0.5 are one operator, Gelu, in whichever order the products are."""
    before = graph.producer(input_name(node, 0))
    after = _only_reader(node, graph)
    if before is None or before.op_type not in SCALINGS or after is None or after.op_type != "Add":
        return
    products = []
    here: ir.Node | None = after
    for _ in range(2):
        here = None if here is None else _only_reader(here, graph)
        if here is not None and here.op_type == "Mul":
            products.append(here)
    if products:
        yield from ((name_of(part), "") for part in (before, node, after, *products[:-1]))
        yield name_of(products[-1]), "Gelu"


def _layer_normalization(node: ir.Node, graph: Graph) -> Iterator[tuple[str, str]]:
    """The square root of a variance, and what it divides: one operator with the mean before it."""
    divide = _only_reader(node, graph)
    shifted = None if divide is None or divide.op_type != "Div" else graph.producer(input_name(divide, 0))
    if divide is None or shifted is None or shifted.op_type != "Sub":
        return
    parts = {name_of(part): part for part in (node, divide, shifted)}
    here: ir.Node | None = node
    while here is not None and here is not shifted and here.op_type in NORMALIZATION:
        parts[name_of(here)] = here
        here = graph.producer(input_name(here, 0))
    mean = graph.producer(input_name(shifted, 1))
    if mean is not None and mean.op_type == "ReduceMean":
        parts[name_of(mean)] = mean
    last = divide
    for op in ("Mul", "Add"):
        after = _only_reader(last, graph)
        if after is not None and after.op_type == op:
            last = after
    for part in (divide, _only_reader(divide, graph)):
        if part is not None and part is not last and part.op_type in NORMALIZATION:
            parts[name_of(part)] = part
    yield from ((name, "") for name in parts if name != name_of(last))
    yield name_of(last), "LayerNormalization"


def _only_reader(node: ir.Node, graph: Graph) -> ir.Node | None:
    name = output_name(node)
    return graph.consumers(name)[0][0] if is_read_once(graph, name) else None
