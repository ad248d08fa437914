"""Float nodes written so that onnxruntime does not replace them by something slower.

============  ===============================================================================================
clip          a Clip without bounds before the QuantizeLinear of its result, which onnxruntime would otherwise
              move in front of the node. It drops the Clip
sum           Add as Sum, which onnxruntime does not fuse into SkipLayerNormalization (several times slower
              than Add and LayerNormalization), nor with a quantized MatMul into a float Gemm
============  ===============================================================================================
"""

from __future__ import annotations

from ...lowering.writers import Task, float_node
from ...operators.decompositions import is_normalized
from ...operators.facts import KernelSizes
from ...operators.graph import Graph, Node
from ...planning.parameters import Parameters


def is_quantized_after(node: Node, _: Graph, parameters: Parameters) -> bool:
    """Whether the result of a node is quantized."""
    return node.output in parameters.activations


def is_fused(node: Node, graph: Graph, parameters: Parameters) -> bool:
    """Whether onnxruntime would fuse an Add with a neighbouring node."""
    return is_normalized(graph, node.output) or _is_bias(node, graph, parameters)


def _is_bias(node: Node, graph: Graph, parameters: Parameters) -> bool:
    """Whether an Add is the bias of a quantized MatMul, so that a float Gemm can replace both."""
    for name in node.inputs:
        product = graph.producer(name)
        if product is None or product.facts.kernel is not KernelSizes.MATRIX_STACK:
            continue
        if len(graph.consumers(name)) != 1:
            continue
        weight = product.input(1)
        if graph.is_constant(weight) and weight in parameters.tensors:
            for other in (other for other in node.inputs if other != name):
                row = graph.shape(other)  # added to each row of a matrix, or to a matrix
                if graph.is_constant(other) or (row is not None and len(row) <= 2):
                    return True
            return False
    return False


def write_before_clip(task: Task) -> bool:
    """Put a Clip without bounds, which changes nothing, before the result of a float node is quantized."""
    task.emitter.clip_before_quantizing(task.node.outputs[0])
    return float_node(task)


def write_as_sum(task: Task) -> bool:
    """Write a float Add as Sum, which is the same."""
    task.node.op_type = "Sum"
    return float_node(task)
