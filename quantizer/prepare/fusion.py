"""Operators fused into their neighbours: scales and shifts, biases, pads, functions written in small steps.

A factor and a term for each channel after a convolution or matrix product, as BatchNormalization is at
inference, become part of its weights; those before a convolution too. What exporters write as several
operators (HardSwish, HardSigmoid, MatMul + Add) becomes the one that runtimes have a kernel for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.editing import (
    Array,
    add_initializer,
    bypass,
    feeding,
    free_name,
    has_input,
    is_captured,
    is_standard,
    merge_into,
    rank,
    replace_constant,
    sole_user,
    take_over,
)
from ..model.graph import constant_of, is_constant
from ..operators.table import product_layout
from ..operators.weight_layout import WeightLayout
from .steps import each

# Scales and shifts for each channel, folded into the product before them -----------------------------------
#
# The output of a convolution or matrix product, times a constant for each channel, plus a constant for each
# channel, is the same operator with other weights: `f * (W x + b) + s = (f W) x + (f b + s)`. The new weights
# are computed in float64 and rounded once. BatchNormalization of inference is such a pair: with scale g, bias
# b, mean m and variance v (ONNX operator specification), `f = g / sqrt(v + epsilon)` and `s = b - f m`.

Float64 = npt.NDArray[np.float64]


@each("BatchNormalization")
def fold_batch_normalizations(node: ir.Node, taken: set[str], *, as_loaded: bool = False) -> bool:
    """Fold BatchNormalization into the operator before; with `as_loaded` only into Conv and ConvTranspose."""
    pair, before = _batch_normalization(node), feeding(node.inputs[0])
    if pair is None or before is None or (as_loaded and not is_standard(before, "Conv", "ConvTranspose")):
        return False
    return _absorb(before, *pair, axis=1, taken=taken) and merge_into(before, node)


@each("BatchNormalization")
def split_batch_normalizations(node: ir.Node, taken: set[str]) -> bool:
    """Turn every other BatchNormalization of inference and known rank into Mul and Add."""
    pair, dims = _batch_normalization(node), rank(node.inputs[0])
    if pair is None or dims is None or dims < 2:
        return False
    graph, source, output = node.graph, node.inputs[0], node.outputs[0]
    scale, shift = node.inputs[1], node.inputs[2]
    assert graph is not None
    assert source is not None
    assert scale is not None
    assert shift is not None
    if source.dtype != scale.dtype or scale.dtype is None:
        return False
    kind = scale.dtype.numpy()
    with np.errstate(over="ignore"):
        factors = [np.asarray(a.astype(kind)).reshape((-1, *(1,) * (dims - 2))) for a in pair]
    if not all(np.isfinite(a).all() for a in factors):
        return False
    names = [free_name(f"{value.name}_{node.name}", taken) for value in (scale, shift)]
    constants = [add_initializer(graph, n, a) for n, a in zip(names, factors, strict=True)]
    scaled = ir.Node("", "Mul", [source, constants[0]], name=f"{node.name}_scale")
    scaled.outputs[0].name = free_name(f"{output.name}_scaled", taken)
    scaled.outputs[0].type, scaled.outputs[0].shape = output.type, output.shape
    shifted = ir.Node("", "Add", [scaled.outputs[0], constants[1]], name=f"{node.name}_shift")
    graph.insert_before(node, [scaled, shifted])
    return merge_into(shifted, node)


@each("Mul", "Div", "Add", "Sub")
def fold_scales_and_shifts(node: ir.Node, taken: set[str], *, as_loaded: bool = False) -> bool:
    """Fold Mul, Div, Add, Sub by a constant per channel into the linear operator before."""
    for index in (0, 1) if node.op_type in ("Mul", "Add") else (0,):
        array, before = constant_of(node.inputs[1 - index]), feeding(node.inputs[index])
        layout = None if before is None else product_layout(before)
        if array is None or before is None or layout is None or array.dtype.kind != "f":
            continue
        if layout.bias is None and node.op_type in ("Add", "Sub"):
            continue
        if as_loaded and not _folds_when_loaded(node, array, before):
            continue
        vector = _per_channel(array, before)
        if vector is None or (node.op_type == "Div" and np.any(vector == 0)):
            continue
        match node.op_type:
            case "Mul" | "Div":
                factor, shift = vector if node.op_type == "Mul" else 1 / vector, np.zeros(1)
            case _:
                factor, shift = np.ones(1), vector if node.op_type == "Add" else -vector
        if _absorb(before, factor, shift, axis=None, taken=taken):
            return merge_into(before, node)
    return False


def _folds_when_loaded(node: ir.Node, array: Array, before: ir.Node) -> bool:
    """Whether onnxruntime 1.32 folds it into a Conv of pictures: Mul by a number, or one per channel."""
    weight = constant_of(before.inputs[1])
    if not is_standard(before, "Conv") or weight is None or weight.ndim != 4:
        return False
    return node.op_type in ("Mul", "Add") and (array.size > 1 or (node.op_type == "Mul" and array.ndim == 0))


def _batch_normalization(node: ir.Node) -> tuple[Float64, Float64] | None:
    """Return factor and shift of a BatchNormalization of inference with constant parameters, each [C]."""
    if any(value.name for value in node.outputs[1:]) or node.attributes.get_int("training_mode", 0) != 0:
        return None
    arrays = [constant_of(value) for value in node.inputs[1:5]]
    if any(a is None for a in arrays):
        return None
    scale, bias, mean, variance = (a.astype(np.float64) for a in arrays if a is not None)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + np.float64(np.float32(epsilon)))
    shift = bias - factor * mean
    return (factor, shift) if np.isfinite(factor).all() and np.isfinite(shift).all() else None


def _per_channel(array: Array, linear: ir.Node) -> Float64 | None:
    """Return a constant applied to the output of `linear` as [C] or [1]; None if it has another shape."""
    layout, weight = product_layout(linear), constant_of(linear.inputs[1])
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
    """Multiply the output of `linear` by `factor` and add `shift` (float64 [C] or [1]), if possible."""
    layout = product_layout(linear)
    if layout is None:
        return False
    if layout.bias is not None:
        return _absorb_biased(linear, layout, factor, shift, taken)
    weight = constant_of(linear.inputs[layout.index])
    if axis is not None or np.any(shift) or weight is None or weight.ndim != 2:
        return False
    return _set_constants(linear, {layout.index: weight * factor}, weight, taken)


def _absorb_biased(
    node: ir.Node, layout: WeightLayout, factor: Float64, shift: Float64, taken: set[str]
) -> bool:
    """Absorb into a product with a bias input; its bias is multiplied by `beta`, an attribute of Gemm."""
    assert layout.bias is not None
    weight = constant_of(node.inputs[layout.index])
    bias = constant_of(node.inputs[layout.bias]) if has_input(node, layout.bias) else None
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
    if not _set_constants(node, new, weight, taken):
        return False
    if layout.bias in new:
        node.attributes.pop("beta", None)
    return True


def _finite(array: Array, kind: np.dtype[np.generic]) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(array.astype(kind)).all())


def _set_constants(node: ir.Node, new: dict[int, Array], like: Array, taken: set[str]) -> bool:
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
        name = free_name(f"{node.outputs[0].name}_bias", taken)
        node.replace_input_with(index, add_initializer(graph, name, array.astype(like.dtype)))
    return True


# Scales and shifts folded into the convolutions after them -------------------------------------------------
#
# `W (f x) = (W f) x`, padding included, which is 0 in both. `W (x + s) = W x + W s` where nothing is padded.
# Learnable affine blocks (PP-LCNetV3: x times one number, plus one number, after each activation) are such
# pairs; before a padded convolution `f x + s = f (x + s / f)`, and the sum alone stays.


@each("Mul", "Add", backwards=True)
def fold_into_convolutions(node: ir.Node, taken: set[str]) -> bool:
    """Fold Mul and Add by constants for each channel into Convs, their only readers."""
    operands = _source_and_constant(node)
    if operands is None:
        return False
    source, array = operands
    if node.op_type == "Mul":
        convs = () if _is_product(source) else _reading_convolutions(node, unpadded=False)
        done = bool(convs) and _scale_what_is_read(convs, array, np.zeros(1), node, taken)
        return done and bypass(node, source)
    convs = _reading_convolutions(node, unpadded=True)
    if convs and _scale_what_is_read(convs, np.ones(1), array, node, taken):
        return bypass(node, source)
    return _fold_scale_before(node, source, array, taken)


def _fold_scale_before(add: ir.Node, source: ir.Value, shift: Float64, taken: set[str]) -> bool:
    """Fold the number that an Add of a number follows into the convolutions after both."""
    mul = feeding(source, "Mul")
    operands, kind = None if mul is None else _source_and_constant(mul), add.outputs[0].dtype
    if mul is None or operands is None or kind is None or shift.size != 1:
        return False
    inner, factor = operands
    if factor.size != 1 or not factor.all():
        return False
    term = shift / factor.reshape(shift.shape)
    convs = _reading_convolutions(add, unpadded=False)
    if not convs or _is_product(inner) or not _finite(term, kind.numpy()):
        return False
    if not _scale_what_is_read(convs, factor, np.zeros(1), mul, taken):
        return False
    replace_constant(add, 1 if add.inputs[0] is source else 0, term.astype(kind.numpy()), taken)
    return bypass(mul, inner)


def _source_and_constant(node: ir.Node) -> tuple[ir.Value, Float64] | None:
    """Return the other input of a Mul or Add by a constant, and that: one number, or one for each channel."""
    for source, other in (node.inputs, node.inputs[::-1]):
        array, dims = constant_of(other), rank(source)
        if array is None or source is None or dims is None or array.dtype.kind != "f" or array.ndim > dims:
            continue
        shape = (1,) * (dims - array.ndim) + array.shape
        along_channels = dims > 2 and all(size == 1 for axis, size in enumerate(shape) if axis != 1)
        if is_constant(source) or not along_channels or source.shape is None:
            continue
        if array.size == 1 or source.shape[1] == array.size:  # else channels are made of one
            return source, array.astype(np.float64)
    return None


def _is_product(value: ir.Value) -> bool:
    """Whether a value is the product of two activations."""
    maker = feeding(value, "Mul")
    return maker is not None and not any(is_constant(factor) for factor in maker.inputs)


def _reading_convolutions(node: ir.Node, *, unpadded: bool) -> tuple[ir.Node, ...]:
    """Return the Convs that read the result of a node; () if other nodes read it or a Conv is padded."""
    value = node.outputs[0]
    uses = [] if value.is_graph_output() or is_captured(value) else list(value.uses())
    for use in uses:
        conv = use.node
        if not is_standard(conv, "Conv") or use.idx != 0 or not is_constant(conv.inputs[1]):
            return ()
        pads = any(conv.attributes.get_ints("pads", ()) or ())
        automatic = conv.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
        if unpadded and (pads or automatic or (has_input(conv, 2) and not is_constant(conv.inputs[2]))):
            return ()
    return tuple(use.node for use in uses)


def _scale_what_is_read(
    convs: tuple[ir.Node, ...], factor: Float64, shift: Float64, folded: ir.Node, taken: set[str]
) -> bool:
    """Let convolutions read x for factor * x + shift (float64 [1], [C]); False if a constant overflows."""
    changes: list[tuple[ir.Node, dict[int, Array], Array]] = []
    for conv in convs:
        weight = constant_of(conv.inputs[1])
        assert weight is not None
        wide, new = weight.astype(np.float64), dict[int, Array]()
        if np.any(factor != 1):
            new[1] = wide * _by_input_channel(factor, weight, conv)
        if np.any(shift):
            bias = constant_of(conv.inputs[2]) if has_input(conv, 2) else None
            moved = (wide * _by_input_channel(shift, weight, conv)).sum(axis=tuple(range(1, weight.ndim)))
            new[2] = moved if bias is None else bias + moved
        changes.append((conv, new, weight))
    if not all(_finite(array, like.dtype) for _, new, like in changes for array in new.values()):
        return False
    for conv, new, like in changes:
        _set_constants(conv, new, like, taken)
    return True


def _by_input_channel(vector: Float64, weight: Array, conv: ir.Node) -> Float64:
    """Return the number of the input channel that each element of a weight multiplies, or one for all."""
    groups = conv.attributes.get_int("group", 1) or 1
    outputs, inputs = weight.shape[:2]
    read = (np.arange(outputs) // (outputs // groups))[:, None] * inputs + np.arange(inputs)
    each: Float64 = np.broadcast_to(vector.reshape(-1), inputs * groups)[read]
    return each.reshape(*each.shape, *(1,) * (weight.ndim - 2))


# MatMul with a bias written as Gemm, and the bias of a Gemm as a vector -------------------------------------


@each("Add")
def join_biases(add: ir.Node, _: set[str]) -> bool:
    """Fuse MatMul by a constant and Add of a row into Gemm, as runtimes do not across conversions."""
    for product, bias in (add.inputs, add.inputs[::-1]):
        matmul = feeding(product, "MatMul")
        if matmul is None or not is_constant(bias) or rank(matmul.inputs[0]) != 2:
            continue
        weight, row = constant_of(matmul.inputs[1]), constant_of(bias)
        if weight is None or row is None or weight.ndim != 2 or weight.dtype.kind != "f":
            continue
        columns = weight.shape[1]
        if row.dtype == weight.dtype and row.shape in ((columns,), (1, columns)):
            _replace([matmul, add], [ir.Node("", "Gemm", [*matmul.inputs, bias], name=matmul.name)])
            return True
    return False


@each("Gemm")
def flatten_biases(node: ir.Node, taken: set[str]) -> bool:
    """Write constant biases of Gemm as [N]."""
    row = constant_of(node.inputs[2]) if has_input(node, 2) else None
    weight, transposed = constant_of(node.inputs[1]), node.attributes.get_int("transB", 0)
    columns = None if weight is None else weight.shape[0 if transposed else 1]
    if row is not None and row.size == 1 and columns is not None and row.shape != (columns,):
        vector = np.repeat(row.reshape(-1), columns)
    elif row is not None and row.ndim == 2 and row.shape[0] == 1 and row.shape[1] > 1:
        vector = row.reshape(-1)
    else:
        return False
    replace_constant(node, 2, vector, taken)
    return True


@each("Add", "Sub", "Mul", "Div")
def widen_numbers(node: ir.Node, taken: set[str]) -> int:
    """Write constant numbers as [1, ..., 1] beside tensors whose last dimension is 1.

    As [] or [1], onnxruntime repeats them for each element: 53,148 of them take 311 us, and 6 us so. Beside
    a reduction they stay: runtimes look there for the number of a written-out normalization.
    """
    changed = 0
    for index, value in enumerate(node.inputs) if len(node.inputs) == 2 else ():
        number, other = constant_of(value), node.inputs[1 - index]
        if number is None or number.size != 1 or number.dtype.kind != "f":
            continue
        maker = None if other is None else other.producer()
        if other is None or other.shape is None or (maker and maker.op_type.startswith("Reduce")):
            continue
        dims = list(other.shape)
        if number.ndim < len(dims) and dims[-1] == 1 and any(dim != 1 for dim in dims):
            replace_constant(node, index, number.reshape((1,) * len(dims)), taken)
            changed += 1
    return changed


# HardSwish and HardSigmoid, which exporters write in small operators ----------------------------------------
#
# With the fused operator the intermediate tensors (x * (x + 3), ...) are neither profiled nor planned, and
# runtimes have a kernel for the whole function.

HARD_SWISH_OPSET = 14
SIXTH = {"alpha": 1 / 6, "beta": 0.5}
"""Attributes of the HardSigmoid by which HardSwish multiplies x."""


@each("Mul", "Div")
def fuse_hard_sigmoid(node: ir.Node, _: set[str]) -> bool:
    """Fuse clip(x + b, 0, c) / c, the sum being optional, into HardSigmoid."""
    hard_sigmoid = _hard_sigmoid(node)
    if hard_sigmoid is not None:
        nodes, source, attributes = hard_sigmoid
        _replace(nodes, [ir.node("HardSigmoid", [source], attributes, name=node.name)])
    return hard_sigmoid is not None


def _hard_sigmoid(node: ir.Node) -> tuple[list[ir.Node], ir.Value | None, dict[str, float]] | None:
    """Return the nodes up to this one that compute a HardSigmoid, their input, and its attributes."""
    scaled = _product(node, None)
    clip = None if scaled is None else feeding(scaled[0], "Clip")
    if scaled is None or clip is None or len(clip.inputs) != 3 or rank(clip.inputs[0]) == 0:
        return None
    (source, *bounds), alpha = clip.inputs, scaled[1]
    low, high = (_scalar(value, source) for value in bounds)
    if low != 0.0 or high is None or not np.isclose(high * alpha, 1.0, rtol=1e-6):
        return None
    add = feeding(source, "Add")
    for inner, term in () if add is None else (add.inputs, add.inputs[::-1]):
        offset = _scalar(term, inner)
        if add is not None and offset is not None:
            return [add, clip, node], inner, {"alpha": alpha, "beta": offset * alpha}
    return [clip, node], source, {"alpha": alpha, "beta": 0.0}


def _product(node: ir.Node, source: ir.Value | None) -> tuple[ir.Value | None, float] | None:
    """Return operand and factor if the node computes operand * factor with a constant factor."""
    if not is_standard(node, "Mul", "Div"):
        return None
    by = _scalar(node.inputs[1], source)
    if by is not None and by != 0.0:
        return node.inputs[0], by if node.op_type == "Mul" else 1.0 / by
    by = _scalar(node.inputs[0], source)
    return (node.inputs[1], by) if by is not None and node.op_type == "Mul" else None


def _scalar(value: ir.Value | None, source: ir.Value | None) -> float | None:
    """Return a constant that is one number, or None if it would add dimensions to those of `source`."""
    array, most = constant_of(value), rank(source)
    if array is None or array.size != 1 or array.ndim > (1 if most is None else most):
        return None
    return float(array.reshape(-1)[0])


@each("Mul")
def fuse_hard_swish(node: ir.Node, taken: set[str]) -> bool:
    """Fuse x * HardSigmoid(x) and x * clip(x + 3, 0, 6) / 6 into HardSwish, or before opset 14 the latter
    into HardSigmoid and Mul."""
    for gate, source in (node.inputs[::-1], node.inputs):
        hard_sigmoid, clip = feeding(gate, "HardSigmoid"), feeding(gate, "Clip")
        if hard_sigmoid is not None and hard_sigmoid.inputs[0] is source and _is_sixth(hard_sigmoid):
            return _write_hard_swish([hard_sigmoid, node], source, taken)
        after = sole_user(node.outputs[0])
        scaled = None if after is None else _product(after, source)
        if after is None or scaled is None or scaled[0] is not node.outputs[0]:
            continue
        if clip is None or len(clip.inputs) != 3 or not np.isclose(scaled[1], 1 / 6, rtol=1e-6):
            continue
        add = feeding(clip.inputs[0], "Add")
        if add is None or source is None or [_scalar(v, source) for v in clip.inputs[1:]] != [0.0, 6.0]:
            continue
        terms = [value for value in add.inputs if value is not source]
        if len(terms) == 1 and _scalar(terms[0], source) == 3.0:
            return _write_hard_swish([add, clip, node, after], source, taken)
    return False


def _is_sixth(hard_sigmoid: ir.Node) -> bool:
    alpha = hard_sigmoid.attributes.get_float("alpha", 0.2)
    beta = hard_sigmoid.attributes.get_float("beta", 0.5)
    return np.allclose([alpha, beta], list(SIXTH.values()), rtol=1e-6, atol=0.0)


def _write_hard_swish(nodes: list[ir.Node], source: ir.Value | None, taken: set[str]) -> bool:
    last = nodes[-1]
    if last.graph is not None and last.graph.opset_imports.get("", 0) >= HARD_SWISH_OPSET:
        _replace(nodes, [ir.node("HardSwish", [source], name=last.name)])
        return True
    if nodes[0].op_type == "HardSigmoid":
        return False
    gate, output = ir.node("HardSigmoid", [source], SIXTH), last.outputs[0]
    gate.outputs[0].name = free_name(f"{output.name}_gate", taken)
    gate.outputs[0].type, gate.outputs[0].shape = output.type, output.shape
    _replace(nodes, [gate, ir.node("Mul", [source, gate.outputs[0]], name=last.name)])
    return True


def _replace(nodes: list[ir.Node], new: list[ir.Node]) -> None:
    """Put new nodes in the place of others; the last of each makes the result."""
    graph = nodes[-1].graph
    assert graph is not None
    graph.insert_before(nodes[-1], new)
    take_over(new[-1].outputs[0], nodes[-1].outputs[0])
    for node in reversed(nodes):
        graph.remove(node, safe=True)


# Mul and Add by constants: normalisation and scaling are often exported as four such nodes ------------------


@each("Mul", "Add")
def merge_affine_chains(node: ir.Node, taken: set[str]) -> bool:
    """Fuse Mul with a Mul before it, Add with an Add, and Mul with Mul + Add, in float64."""
    operands = _operands(node)
    before = None if operands is None else feeding(node.inputs[operands[0]], "Mul", "Add")
    operands_before = None if before is None else _operands(before)
    if operands is None or before is None or operands_before is None:
        return False
    last, inner = operands[2], [(before, operands_before)]
    if node.op_type == "Mul" and before.op_type == "Add":
        first = feeding(before.inputs[operands_before[0]], "Mul")
        operands_first = None if first is None else _operands(first)
        if first is None or operands_first is None:
            return False
        inner.append((first, operands_first))
    elif node.op_type != before.op_type:
        return False
    combine = np.multiply if node.op_type == "Mul" else np.add
    new = [_combined(combine, array, last) for _, (_, _, array) in inner]
    if any(array is None for array in new):
        return False
    for (changed, (_, position, _)), array in zip(inner, new, strict=True):
        if array is not None:
            replace_constant(changed, position, array, taken)
    return merge_into(before, node)


def _operands(node: ir.Node) -> tuple[int, int, Array] | None:
    """Return (index of the variable input, index of the constant, the constant) of a Mul or Add."""
    for index in (0, 1):
        array = constant_of(node.inputs[1 - index])
        if array is not None and array.dtype.kind == "f" and not is_constant(node.inputs[index]):
            return index, 1 - index, array
    return None


def _combined(combine: np.ufunc, a: Array, b: Array) -> Array | None:
    """Return the combined constant in the type of `a`; None when it grows or overflows."""
    with np.errstate(all="ignore"):
        try:
            result: Array = combine(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
        except ValueError:  # shapes that only the variable input reconciles
            return None
    return result if result.size <= max(a.size, b.size) and np.isfinite(result).all() else None


# Pads -------------------------------------------------------------------------------------------------------


@each("Conv")
def fold_pads(node: ir.Node, _: set[str]) -> bool:
    """Fold Pad with constant zeros of spatial axes into the Conv after it."""
    pad, weight = feeding(node.inputs[0], "Pad"), node.inputs[1]
    if pad is None or weight is None or weight.shape is None:
        return False
    amounts = _zeros_added(pad, len(weight.shape))
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    if amounts is None or mode not in ("NOTSET", "VALID"):
        return False
    own = node.attributes.get_ints("pads", ()) if mode == "NOTSET" else ()
    added = [*(begin for begin, _ in amounts[2:]), *(end for _, end in amounts[2:])]
    total = [a + b for a, b in zip(added, own or [0] * len(added), strict=True)]
    node.attributes.pop("auto_pad", None)
    node.attributes["pads"] = ir.AttrInt64s("pads", total)
    node.replace_input_with(0, pad.inputs[0])
    assert node.graph is not None
    node.graph.remove(pad, safe=True)
    return True


@each("Pad")
def pad_all_axes(node: ir.Node, taken: set[str]) -> int:
    """Write the amounts of Pad for all axes: onnxruntime 1.31 mishandles `axes` beside an integer Conv."""
    drops = has_input(node, 2) and node.attributes.get_string("mode", "constant") != "constant"
    if drops:
        node.replace_input_with(2, None)
    dims = rank(node.inputs[0])
    amounts = None if dims is None or not has_input(node, 3) else _amounts(node, dims)
    if amounts is None:
        return drops
    array = np.array([begin for begin, _ in amounts] + [end for _, end in amounts], np.int64)
    replace_constant(node, 1, array, taken)
    node.resize_inputs(3 if has_input(node, 2) else 2)
    return drops + 1


def _amounts(pad: ir.Node, dims: int) -> list[tuple[int, int]] | None:
    """Return the amounts at begin and end of each axis of a Pad, or None if they are not constant."""
    pads = constant_of(pad.inputs[1]) if has_input(pad, 1) else None
    axes = constant_of(pad.inputs[3]) if has_input(pad, 3) else np.arange(dims)
    if pads is None or axes is None or pads.size != 2 * axes.size:
        return None
    numbers = [int(axis) % dims for axis in axes.reshape(-1)]
    if len(set(numbers)) < len(numbers):
        return None
    begins, ends = pads.reshape(2, -1).tolist()
    named = dict(zip(numbers, zip(begins, ends, strict=True), strict=True))
    return [named.get(axis, (0, 0)) for axis in range(dims)]


def _zeros_added(pad: ir.Node, dims: int) -> list[tuple[int, int]] | None:
    """Return the amounts of a Pad; None unless it adds zeros, and only to spatial axes (2 and above)."""
    value = constant_of(pad.inputs[2]) if has_input(pad, 2) else np.zeros(1)
    if pad.attributes.get_string("mode", "constant") != "constant" or value is None or np.any(value != 0):
        return None
    amounts = _amounts(pad, dims)
    if amounts is None or any(number < 0 for pair in amounts for number in pair):
        return None
    return None if any(map(any, amounts[:2])) else amounts
