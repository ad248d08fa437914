"""Per-channel scaling and shifting folded into the linear operator before it.

The output of a convolution or matrix product, times a constant for each channel, plus a constant for each
channel, is the same operator with other weights: `f * (W x + b) + s = (f W) x + (f b + s)`. The new weights
are computed in float64 and rounded once. BatchNormalization of inference is such a pair: with scale g, bias
b, mean m and variance v (ONNX operator specification), `f = g / sqrt(v + epsilon)` and `s = b - f m`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...model.editing import (
    ORIGIN,
    Array,
    add_initializer,
    constant,
    feeding,
    fresh,
    has_input,
    is_standard,
    merge_into,
    origins,
    rank,
    replace_constant,
    value_names,
)
from ...operators.table import product_layout
from ...operators.weight_layout import WeightLayout

Float64 = npt.NDArray[np.float64]


def fold_batch_normalizations(model: ir.Model) -> int:
    """Fold BatchNormalization into the Conv, ConvTranspose, Gemm or MatMul + Add before it; return how many.

    The operator before must have no other user, and its weights and all parameters must be constants. A
    BatchNormalization in training mode stays.
    """
    folded = 0
    taken = value_names(model)
    for node in list(model.graph):
        pair = _batch_normalization(node)
        if pair is None:
            continue
        before = feeding(node.inputs[0])
        if before is not None and _may_absorb(before) and _absorb(before, *pair, axis=1, taken=taken):
            merge_into(before, node)
            folded += 1
    return folded


def split_batch_normalizations(model: ir.Model) -> int:
    """Turn every other BatchNormalization of inference into Mul and Add by constants; return how many.

    One whose input has unknown rank, or another type than its parameters, stays.
    """
    split = 0
    taken = value_names(model)
    for node in list(model.graph):
        pair = _batch_normalization(node)
        dims = rank(node.inputs[0]) if pair is not None else None
        if pair is None or dims is None or dims < 2:
            continue
        graph, source, output = model.graph, node.inputs[0], node.outputs[0]
        scale, shift = node.inputs[1], node.inputs[2]
        assert source is not None
        assert scale is not None
        assert shift is not None
        if source.dtype != scale.dtype or scale.dtype is None:
            continue
        kind = scale.dtype.numpy()
        per_channel = (-1, *(1,) * (dims - 2))
        with np.errstate(over="ignore"):
            factors = [np.asarray(a.astype(kind)).reshape(per_channel) for a in pair]
        if not all(np.isfinite(a).all() for a in factors):
            continue
        names = [fresh(f"{value.name}_{node.name}", taken) for value in (scale, shift)]
        constants = [add_initializer(graph, n, a) for n, a in zip(names, factors, strict=True)]
        scaled = ir.Node("", "Mul", [source, constants[0]], name=f"{node.name}_scale")
        scaled.outputs[0].name = fresh(f"{output.name}_scaled", taken)
        scaled.outputs[0].type, scaled.outputs[0].shape = output.type, output.shape
        shifted = ir.Node("", "Add", [scaled.outputs[0], constants[1]], name=f"{node.name}_shift")
        graph.insert_before(node, [scaled, shifted])
        scaled.meta[ORIGIN] = shifted.meta[ORIGIN] = origins((node,))
        merge_into(shifted, node)
        split += 1
    return split


def fold_scales_and_shifts(model: ir.Model) -> int:
    """Fold Mul, Div, Add, Sub by a constant per channel into the linear operator before; return how many.

    An Add after MatMul stays: there is no bias input to put it in.
    """
    folded = 0
    taken = value_names(model)
    for node in list(model.graph):
        if not is_standard(node, "Mul", "Div", "Add", "Sub"):
            continue
        for index in (0, 1) if node.op_type in ("Mul", "Add") else (0,):
            array = constant(node.inputs[1 - index])
            before = feeding(node.inputs[index])
            layout = None if before is None else product_layout(before)
            if array is None or before is None or layout is None or array.dtype.kind != "f":
                continue
            if layout.bias is None and node.op_type in ("Add", "Sub"):
                continue
            vector = _per_channel(array, before)
            pair = None if vector is None else _factor_and_shift(node.op_type, vector)
            if pair is not None and _absorb(before, *pair, axis=None, taken=taken):
                merge_into(before, node)
                folded += 1
                break
    return folded


def _may_absorb(node: ir.Node) -> bool:
    """Whether a node is a product, or an Add, which may be the bias of one."""
    return product_layout(node) is not None or is_standard(node, "Add")


def _factor_and_shift(operator: str, vector: Float64) -> tuple[Float64, Float64] | None:
    one, zero = np.ones(1), np.zeros(1)
    match operator:
        case "Mul":
            return vector, zero
        case "Div":
            return None if np.any(vector == 0) else (1 / vector, zero)
        case "Add":
            return one, vector
        case _:
            return one, -vector


def _batch_normalization(node: ir.Node) -> tuple[Float64, Float64] | None:
    """Return factor and shift of a BatchNormalization of inference with constant parameters, each [C]."""
    if not is_standard(node, "BatchNormalization") or len(node.outputs) != 1:
        return None
    if "training_mode" in node.attributes and node.attributes["training_mode"].as_int():
        return None
    arrays = [constant(value) for value in node.inputs[1:5]]
    if any(a is None for a in arrays):
        return None
    scale, bias, mean, variance = (a.astype(np.float64) for a in arrays if a is not None)
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + np.float64(np.float32(epsilon)))
    shift = bias - factor * mean
    return (factor, shift) if np.isfinite(factor).all() and np.isfinite(shift).all() else None


def _per_channel(array: Array, linear: ir.Node) -> Float64 | None:
    """Return a constant that meets the output of `linear` as [C] or [1]; None when it varies otherwise."""
    layout, weight = product_layout(linear), constant(linear.inputs[1])
    if layout is None or weight is None:
        return None
    if layout.bias is None:  # MatMul, whose output may have any rank; channels are its last axis
        if array.size == 1 and array.ndim <= 1:
            return array.astype(np.float64).reshape(1)
        fits = array.ndim == 1 and weight.ndim == 2 and array.shape[0] == weight.shape[1]
        return array.astype(np.float64) if fits and linear.outputs[0].dtype is not None else None
    dims = weight.ndim  # the output of a convolution or Gemm has the rank of its weight
    if array.size == 1 and array.ndim <= dims:
        return array.astype(np.float64).reshape(1)
    shape = (1,) * (dims - array.ndim) + array.shape
    if len(shape) != dims or any(size != 1 for axis, size in enumerate(shape) if axis != layout.result_axis):
        return None
    return array.astype(np.float64).reshape(-1)


def _absorb(linear: ir.Node, factor: Float64, shift: Float64, axis: int | None, taken: set[str]) -> bool:
    """Multiply the output of `linear` by `factor` and add `shift` by other constants; False if impossible.

    Args:
        linear: the node: a product, or an Add after one.
        factor, shift: float64 [C] or [1].
        axis: axis of the channels in the output, None for the axis that the operator has them on.
        taken: names of values in use, extended.
    """
    layout = product_layout(linear)
    if layout is None:
        return axis == 1 and _absorb_biased_matmul(linear, factor, shift, taken)
    if layout.bias is not None:
        return _absorb_biased(linear, layout, factor, shift, taken)
    weight = constant(linear.inputs[layout.index])
    if axis is not None or np.any(shift) or weight is None or weight.ndim != 2:
        return False
    return _set(linear, {layout.index: weight * factor}, weight, taken)


def _absorb_biased(
    node: ir.Node, layout: WeightLayout, factor: Float64, shift: Float64, taken: set[str]
) -> bool:
    """Absorb into a product with a bias input; its bias is multiplied by `beta`, an attribute of Gemm."""
    assert layout.bias is not None
    weight = constant(node.inputs[layout.index])
    bias = constant(node.inputs[layout.bias]) if has_input(node, layout.bias) else None
    if weight is None or (has_input(node, layout.bias) and bias is None):
        return False
    axes = layout.axes(node, weight.shape)
    channels = axes.output_channels
    if bias is not None and bias.size != 1 and bias.shape not in ((channels,), (1, channels)):
        return False  # a bias that differs from row to row
    if factor.size not in (1, channels) or shift.size not in (1, channels):
        return False
    per_channel = np.broadcast_to(factor, channels)
    new: dict[int, Array] = {}
    if np.any(factor != 1):
        new[layout.index] = weight * axes.along_outputs(per_channel)
    if bias is not None or np.any(shift):
        old = 0.0 if bias is None else node.attributes.get_float("beta", 1.0) * bias.astype(np.float64)
        new[layout.bias] = np.broadcast_to(np.reshape(old, -1) * per_channel + shift, channels)
    if not _set(node, new, weight, taken):
        return False
    if layout.bias in new:
        node.attributes.pop("beta", None)
    return True


def _absorb_biased_matmul(add: ir.Node, factor: Float64, shift: Float64, taken: set[str]) -> bool:
    """MatMul + Add of a constant, of rank 2: axis 1 is the last, the one that the weight's columns make."""
    for index in (0, 1):
        bias = constant(add.inputs[1 - index])
        product = feeding(add.inputs[index], "MatMul")  # the product whose bias an Add is
        weight = constant(product.inputs[1]) if product is not None else None
        if bias is None or product is None or weight is None or weight.ndim != 2 or rank(add.outputs[0]) != 2:
            continue
        if bias.size not in (1, weight.shape[1]) or (bias.size != 1 and bias.shape[-1] != bias.size):
            continue
        if factor.size != weight.shape[1]:
            continue
        vector = bias.astype(np.float64).reshape(-1) * factor + shift
        scaled = weight * factor
        kind = weight.dtype
        if not (_finite(scaled, kind) and _finite(vector, kind)):
            return False
        replace_constant(product, 1, scaled.astype(kind), taken)
        replace_constant(add, 1 - index, vector.astype(kind), taken)
        return True
    return False


def _finite(array: Array, kind: np.dtype[np.generic]) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(array.astype(kind)).all())


def _set(node: ir.Node, new: dict[int, Array], like: Array, taken: set[str]) -> bool:
    """Set the constants by input index, in the type of `like`; False and nothing done when one overflows."""
    if not all(_finite(array, like.dtype) for array in new.values()):
        return False
    for index, array in new.items():
        if has_input(node, index):
            replace_constant(node, index, array.astype(like.dtype), taken)
            continue
        graph = node.graph
        assert graph is not None
        node.resize_inputs(index + 1)
        name = fresh(f"{node.outputs[0].name}_bias", taken)
        node.replace_input_with(index, add_initializer(graph, name, array.astype(like.dtype)))
    return True
