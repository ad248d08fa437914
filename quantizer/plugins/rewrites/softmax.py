"""Softmax along an axis that is not the last, which onnxruntime transposes: exponentials over their sum.

"exp-sum" clips the values before, where the profile shows that the Clip changes nothing; "exp-sum-max"
subtracts the largest of them.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ....profiles.records.profile import Profile
from ...costs.kernels import Sizes, Work
from ...lowering.emitter import become, new_value
from ...lowering.writers import Task
from ...operators.facts import KernelSizes
from ...operators.graph import Graph, Node

AXES_OF_MAXIMUM = 18
"""The first opset in which ReduceMax reads its axes as a tensor."""

MAX_EXPONENT = 60.0
"""At which exponents of a Softmax without its largest value are cut off: exp(60) is 1.1e26."""

MAX_PROFILED_EXPONENT = MAX_EXPONENT / 2.0
"""Within this all values of a profile must be, so that no sample of its kind comes near `MAX_EXPONENT`."""


def along_inner_axis(node: Node, graph: Graph, _: Profile) -> bool:
    """Whether a node is a Softmax along an axis that is not the last, which onnxruntime transposes."""
    shape = graph.shape(node.input(0))
    if node.facts.kernel is not KernelSizes.SOFTMAX or node.op_type != "Softmax" or not shape:
        return False
    return node.attributes.get_int("axis", -1) % len(shape) < len(shape) - 1


def is_bounded(node: Node, graph: Graph, profile: Profile) -> bool:
    """Whether a node is such a Softmax whose exponents need not be shifted by the largest of them."""
    tensor, limit = profile.get(node.input(0)), MAX_PROFILED_EXPONENT
    if tensor is None or tensor.nan or tensor.inf:
        return False
    return -limit <= tensor.minimum and tensor.maximum <= limit and along_inner_axis(node, graph, profile)


def softmax_works(first: tuple[str, ...], node: Node, sizes: Sizes) -> tuple[Work, ...]:
    """The kernels of a Softmax that is written out, its exponents made by those given."""
    elements, read = float(max(sizes.elements(node.output), 1)), sizes.input(node)
    axis = node.attributes.get_int("axis", -1) % max(len(read), 1)
    run = float(max(math.prod(read[axis + 1 :]), 1))
    kernels = (*first, "Exp", "ReduceSum:inner", "Div:row")
    return tuple(
        Work(kernel, (run, elements) if kernel.endswith(":row") else (elements,)) for kernel in kernels
    )


def write_softmax(task: Task, *, largest: bool) -> bool:
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
    if largest:
        if task.opset >= AXES_OF_MAXIMUM:
            top = step("ReduceMax", "largest", value, axes, keepdims=1)
        else:
            top = step("ReduceMax", "largest", value, axes=ir.AttrInt64s("axes", [axis]), keepdims=1)
        exponents = step("Sub", "exponents", value, top)
    else:
        low = emitter.constant("low", np.array(-MAX_EXPONENT, np.float32))
        high = emitter.constant("high", np.array(MAX_EXPONENT, np.float32))
        exponents = step("Clip", "exponents", value, low, high)
    powers = step("Exp", "powers", exponents)
    total = step("ReduceSum", "total", powers, axes, keepdims=1)
    become(node, "Div", [powers, total])
    return False
