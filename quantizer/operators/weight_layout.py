"""Weight layouts of Conv, ConvTranspose, Gemm, MatMul: channel axes, groups, where the bias is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.editing import constant


def attribute_value(node: ir.Node, name: str, default: object) -> object:
    """Return the value of an attribute, or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value


def conv_transpose_axis(node: ir.Node, rank: int) -> int | None:
    """Return the axis of the output channels, None where groups have several on one position."""
    # The weight is [in, out / group, ...]: with groups one position of axis 1 serves several output channels.
    return 1 if attribute_value(node, "group", 1) == 1 else None


def gemm_axis(node: ir.Node, rank: int) -> int | None:
    """Return the axis of the output channels of the second matrix of Gemm."""
    return 0 if attribute_value(node, "transB", 0) == 1 else 1


def looked_up_axis(node: ir.Node, rank: int) -> int | None:
    """Return the axis along which entries of a table are read, None for a table of single numbers."""
    return node.attributes.get_int("axis", 0) % rank if rank >= 2 else None


def gates_axis(node: ir.Node, rank: int) -> int | None:
    """Return the axis of the gates in a weight of a recurrent operator, [directions, gates, inputs]."""
    return 1


def last_axis(node: ir.Node, rank: int) -> int | None:
    """Return the last axis of a matrix."""
    return rank - 1 if rank >= 2 else None


def axis_0(node: ir.Node, rank: int) -> int | None:
    """Return axis 0."""
    return 0


def no_axis(node: ir.Node, rank: int) -> int | None:
    """Return None: one scale for the whole constant."""
    return None


def bias_place(node: ir.Node) -> tuple[ir.Node, int] | None:
    """Return the node and the input whose constant is added to each output channel; None without one.

    Of Conv, ConvTranspose and Gemm it is their own third input, present or not; of MatMul the constant of an
    Add that alone reads it.
    """
    if node.op_type in ("Conv", "ConvTranspose", "Gemm"):
        given = len(node.inputs) > 2 and node.inputs[2] is not None
        return (node, 2) if not given or constant(node.inputs[2]) is not None else None
    output = node.outputs[0]
    uses = list(output.uses())
    if node.op_type != "MatMul" or len(uses) != 1 or output.is_graph_output():
        return None
    add, at = uses[0].node, uses[0].idx
    if add.op_type != "Add" or add.graph is not node.graph:
        return None
    bias = constant(add.inputs[1 - at])
    fits = bias is not None and bias.size == bias_size(node) and bias.shape[-1:] == (bias.size,)
    return (add, 1 - at) if fits else None


def bias_size(node: ir.Node) -> int:
    """Return the number of output channels of a node with a constant weight."""
    weight = constant(node.inputs[1])
    assert weight is not None
    match node.op_type:
        case "Conv":
            return int(weight.shape[0])
        case "ConvTranspose":
            return int(weight.shape[1]) * node.attributes.get_int("group", 1)
        case "Gemm" if node.attributes.get_int("transB", 0):
            return int(weight.shape[0])
    return int(weight.shape[-1])


Array = npt.NDArray[Any]


def reader_factors(node: ir.Node, shape: tuple[int, ...], vector: Array) -> Array:
    """Return factors that broadcast with a reader's weight of `shape`, given one for each input channel."""
    if node.op_type == "MatMul":
        return vector.reshape(-1, 1) if len(shape) > 1 else vector
    if node.op_type == "Gemm":
        return vector.reshape(1, -1) if node.attributes.get_int("transB", 0) else vector.reshape(-1, 1)
    spatial = (1,) * (len(shape) - 2)
    if node.op_type == "ConvTranspose":  # [in, out / group, ...]
        return vector.reshape(-1, 1, *spatial)
    groups = node.attributes.get_int("group", 1)  # [out, in / group, ...]: outputs of a group lie together
    repeated = np.repeat(vector.reshape(groups, -1), shape[0] // groups, axis=0)
    return np.asarray(repeated.reshape(shape[0], -1, *spatial))


def input_channels(node: ir.Node, shape: tuple[int, ...]) -> int:
    """Return the number of input channels of a reader with a weight of `shape`."""
    match node.op_type:
        case "MatMul":
            return shape[-2] if len(shape) > 1 else shape[0]
        case "Gemm":
            return shape[1] if node.attributes.get_int("transB", 0) else shape[0]
        case "ConvTranspose":
            return shape[0]
    return shape[1] * node.attributes.get_int("group", 1)


def blocks(node: ir.Node, weight: Array, size: int) -> Array:
    """Return a reader's weight as (groups, outputs, inputs, taps), outputs and inputs of one group.

    Output channel o of group g is channel g * outputs + o of the result, and so are the inputs. A stack of
    matrices counts as one matrix of several taps.

    Args:
        node: the reader.
        weight: its constant.
        size: number of input channels.
    """
    groups = node.attributes.get_int("group", 1) if node.op_type in ("Conv", "ConvTranspose") else 1
    match node.op_type:
        case "MatMul":
            last = weight.shape[-1] if weight.ndim > 1 else 1
            return weight.reshape(-1, size, last).transpose(2, 1, 0)[None]
        case "Gemm":
            return (weight if node.attributes.get_int("transB", 0) else weight.T)[None, :, :, None]
        case "ConvTranspose":
            split: Array = weight.reshape(groups, size // groups, weight.shape[1], -1)
            return split.transpose(0, 2, 1, 3)
    return np.asarray(weight.reshape(groups, weight.shape[0] // groups, size // groups, -1))


def unblocked(node: ir.Node, flat: Array, shape: tuple[int, ...]) -> Array:
    """Return what `blocks` has made of a weight of `shape` in that shape again."""
    match node.op_type:
        case "MatMul":
            return np.asarray(flat[0].transpose(2, 1, 0).reshape(shape))
        case "Gemm":
            matrix = flat[0, :, :, 0]
            return np.asarray(matrix if node.attributes.get_int("transB", 0) else matrix.T)
        case "ConvTranspose":
            return flat.transpose(0, 2, 1, 3).reshape(shape)
    return np.asarray(flat.reshape(shape))
