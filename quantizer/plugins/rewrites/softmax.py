"""Softmax along an axis that is not the last, which onnxruntime transposes: exponentials over their sum.

The largest value is subtracted first, so no exponential overflows.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ...costs.kernels import Sizes, Work
from ...lowering.emitter import become, new_value
from ...lowering.writers import Task
from ...operators.facts import KernelSizes
from ...operators.graph import Graph, Node

AXES_OF_MAXIMUM = 18
"""The first opset in which ReduceMax reads its axes as a tensor."""


def along_inner_axis(node: Node, graph: Graph) -> bool:
    """Whether a node is a Softmax along an axis that is not the last, which onnxruntime transposes."""
    shape = graph.shape(node.input(0))
    if node.facts.kernel is not KernelSizes.SOFTMAX or node.op_type != "Softmax" or not shape:
        return False
    return node.attributes.get_int("axis", -1) % len(shape) < len(shape) - 1


def softmax_works(node: Node, sizes: Sizes) -> tuple[Work, ...]:
    """The kernels of a Softmax that is written out."""
    elements, read = float(max(sizes.elements(node.output), 1)), sizes.input(node)
    axis = node.attributes.get_int("axis", -1) % max(len(read), 1)
    run = float(max(math.prod(read[axis + 1 :]), 1))
    kernels = ("ReduceMax:inner", "Sub:row", "Exp", "ReduceSum:inner", "Div:row")
    return tuple(
        Work(kernel, (run, elements) if kernel.endswith(":row") else (elements,)) for kernel in kernels
    )


def write_softmax(task: Task) -> bool:
    """Write a float Softmax as exponentials over their sum; the operator becomes the division."""
    node, emitter = task.node, task.emitter
    source, result, name = node.inputs[0], node.outputs[0], emitter.name(node.outputs[0])
    assert source is not None
    value = emitter.floating(source, node)
    axis = node.attributes.get_int("axis", -1)

    def step(op_type: str, word: str, *inputs: ir.Value, **attributes: int | ir.Attr) -> ir.Value:
        output = new_value(f"{name}_{word}", ir.DataType.FLOAT, result)
        if attributes and output.shape is not None:
            output.shape[axis] = 1
        return emitter.add(op_type, inputs, output, node, attributes)

    axes = emitter.constant(f"{name}_axes", np.array([axis], np.int64))
    if task.opset >= AXES_OF_MAXIMUM:
        top = step("ReduceMax", "largest", value, axes, keepdims=1)
    else:
        top = step("ReduceMax", "largest", value, axes=ir.AttrInt64s("axes", [axis]), keepdims=1)
    exponents = step("Sub", "exponents", value, top)
    powers = step("Exp", "powers", exponents)
    total = step("ReduceSum", "total", powers, axes, keepdims=1)
    become(node, "Div", [powers, total])
    return False
