"""Operators that stand for several are written as these, and are then quantized like them.

Packages ship encoders as onnxruntime's transformer optimizer writes them: the three projections of an
attention are one weight of `Attention`, and embeddings, biases and sums are inside of others, and could not
be quantized. The same holds for activations in products of a model that onnxruntime optimised and saved. This
module restores the original operators. `Attention` becomes `MultiHeadAttention`, which computes the same bit
for bit. onnxruntime fuses the others again when it loads a model. A model with tensors in the layout of one
machine's kernels is rejected.

Sources of the definitions: onnxruntime's docs/ContribOperators.md, and its kernels for missing details.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ...profiles.instrumentation.subgraphs import value_names
from ..model.editing import has_input, is_standard, rank, sole_user, static_shape, take_over
from ..operators.table import MICROSOFT, product_layout
from .einsum import einsum
from .replacement import Replacement, Results

GELU_IN_ONNX = 20
"""The first opset with a Gelu."""

BLOCKED_DOMAINS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
"""Domains of operators on tensors in the layout of one machine's kernels."""


def refuse_blocked_layouts(model: ir.Model) -> None:
    """Raise ModelError if onnxruntime optimised the layout of a tensor for the kernels of one machine."""
    for graph in model.graphs():
        for node in graph:
            if node.domain in BLOCKED_DOMAINS or (node.domain, node.op_type) == (MICROSOFT, "NhwcFusedConv"):
                raise ModelError(
                    f"operator {node.domain}.{node.op_type}: optimised by onnxruntime for this machine; give "
                    "the exported file, or save the optimised one at level ORT_ENABLE_EXTENDED"
                )


def unfuse(model: ir.Model) -> int:
    """Write Einsum and operators of onnxruntime that stand for several as these; return how many."""
    changed, taken = 0, value_names(model)
    for node in list(model.graph):
        of_runtime = TAKEN_APART.get(node.op_type) if node.domain == MICROSOFT else None
        taken_apart = EINSUM if is_standard(node, "Einsum") else of_runtime
        if taken_apart is None:
            continue
        write, written = taken_apart
        if any(_is_used(output) for index, output in enumerate(node.outputs) if index not in written):
            continue
        results = write(Replacement(node, taken, model.opset_imports.get("", 0)))
        for index, result in zip(written, results, strict=False):
            if index < len(node.outputs) and _is_used(node.outputs[index]):
                take_over(result, node.outputs[index])
        if results:
            model.graph.remove(node, safe=True)
            changed += 1
    return changed


def _is_used(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


# Attention --------------------------------------------------------------------------------------------------

FILLER = -10000.0
"""Default value that `Attention` adds to masked scores."""


def _attention(new: Replacement) -> Results:
    """The projections, and MultiHeadAttention; `past` and `present` are keys and values in one tensor."""
    node, weights = new.node, static_shape(new.input(1))
    rotates = any(node.attributes.get_int(name, 0) for name in ("do_rotary", "past_present_share_buffer"))
    if weights is None or len(weights) != 2 or rotates or has_input(node, 6) or _is_packed_mask(node):
        return ()
    declared = node.attributes.get_ints("qkv_hidden_sizes", ())
    sizes = tuple(declared) if len(declared) == 3 else (weights[1] // 3,) * 3
    if sum(sizes) != weights[1]:
        return ()
    projected = new.one("MatMul", new.input(0), new.input(1))
    if has_input(node, 2):
        projected = new.one("Add", projected, new.input(2))
    query, key, value = new.add("Split", projected, new.integers(*sizes), outputs=3, axis=-1)
    past: list[ir.Value | None] = [None, None]
    if has_input(node, 4):
        both = new.add("Split", new.input(4), new.integers(1, 1), outputs=2, axis=0)
        past = [new.one("Squeeze", half, new.integers(0)) for half in both]
    keeps = len(node.outputs) > 1 and _is_used(node.outputs[1])
    result, *present = new.add(
        "MultiHeadAttention",
        *(query, key, value, None, new.input(3), new.input(5)),
        *past,
        domain=MICROSOFT,
        outputs=3 if keeps else 1,
        attributes=[
            new.attribute("num_heads"),
            new.attribute("scale"),
            new.attribute("unidirectional"),
            new.attribute("mask_filter_value", ir.AttrFloat32("mask_filter_value", FILLER)),
        ],
    )
    if not keeps:
        return (result,)
    stacked = [new.one("Unsqueeze", half, new.integers(0)) for half in present]
    return result, new.one("Concat", *stacked, axis=0)


def _is_packed_mask(node: ir.Node) -> bool:
    """Whether the mask has first and last position of each row, which MultiHeadAttention does not read."""
    mask = static_shape(node.inputs[3]) if has_input(node, 3) else None
    source = node.inputs[0]
    batch = None if source is None or source.shape is None else source.shape[0]
    return mask is not None and len(mask) == 1 and isinstance(batch, int) and mask[0] != batch


# Normalisation ----------------------------------------------------------------------------------------------


def _skip_layer_normalization(new: Replacement) -> Results:
    """(input, skip, scale, shift, bias) -> LayerNormalization(input + bias + skip), and that sum."""
    return _normalized(new, "LayerNormalization", (2, 3), new.input(4))


def _skip_simplified_layer_normalization(new: Replacement) -> Results:
    """(input, skip, scale, bias) -> SimplifiedLayerNormalization(input + bias + skip), and that sum."""
    return _normalized(new, "SimplifiedLayerNormalization", (2,), new.input(3))


def _normalized(new: Replacement, op_type: str, constants: Sequence[int], bias: ir.Value | None) -> Results:
    source, skip = new.input(0), new.input(1)
    if bias is not None and _is_product(skip) and not _is_product(source):
        skip = new.one("Add", skip, bias)
    elif bias is not None:
        source = new.one("Add", source, bias)
    total = new.one("Add", source, skip)
    return _layer_normalization(new, op_type, total, *map(new.input, constants)), total


def _is_product(value: ir.Value | None) -> bool:
    """Whether a product makes a value for one node: then a bias is that of the product."""
    maker = None if value is None else value.producer()
    return maker is not None and product_layout(maker) is not None and sole_user(maker.outputs[0]) is not None


def _layer_normalization(new: Replacement, op_type: str, *inputs: ir.Value | None) -> ir.Value:
    epsilon = new.attribute("epsilon", ir.AttrFloat32("epsilon", 1e-12))
    return new.one(op_type, *inputs, attributes=[ir.AttrInt64("axis", -1), epsilon])


def _embed_layer_normalization(new: Replacement) -> Results:
    """Entries of up to three tables, their sum, normalised, and how many ones a row of the mask has."""
    node, ids = new.node, new.input(0)
    counts = len(node.outputs) > 1 and _is_used(node.outputs[1])
    mask_index_type = node.attributes.get_int("mask_index_type", 1)
    if rank(ids) != 2 or (counts and (not has_input(node, 7) or mask_index_type != 1)):
        return ()
    whole = ir.DataType.INT64
    total = new.one("Gather", new.input(2), ids, axis=0)
    if has_input(node, 1):
        total = new.one("Add", total, new.one("Gather", new.input(4), new.input(1), axis=0))
    positions = new.input(8)
    if positions is None:
        shape = new.one("Shape", ids, dtype=whole)
        zero, one = (new.constant(np.array(number, np.int64)) for number in (0, 1))
        length = new.one("Gather", shape, one, dtype=whole, axis=0)
        positions = new.one("Range", zero, length, one, dtype=whole)
    total = new.one("Add", total, new.one("Gather", new.input(3), positions, axis=0))
    result = _layer_normalization(new, "LayerNormalization", total, new.input(5), new.input(6))
    if not counts:
        return result, result, total
    mask = new.one("Cast", new.input(7), dtype=whole, to=int(whole))
    ones = new.one("Equal", mask, new.constant(np.array(1, np.int64)), dtype=ir.DataType.BOOL)
    numbers = new.one("Cast", ones, dtype=ir.DataType.INT32, to=int(ir.DataType.INT32))
    count = new.one("ReduceSum", numbers, new.integers(1), dtype=ir.DataType.INT32, keepdims=0)
    return result, count, total


# Functions of one variable ----------------------------------------------------------------------------------


def _gelu(new: Replacement) -> Results:
    """x / 2 (1 + erf(x / sqrt(2))), of the sum with a bias, if any."""
    source = _with_bias(new)
    if new.opset >= GELU_IN_ONNX:
        return (new.one("Gelu", source),)
    error = new.one("Erf", new.one("Div", source, new.number(math.sqrt(2.0))))
    raised = new.one("Add", error, new.number(1.0))
    return (new.one("Mul", new.one("Mul", source, raised), new.number(0.5)),)


def _fast_gelu(new: Replacement) -> Results:
    """Gelu with tanh, of the sum with a bias if there is one; onnxruntime's operator before opset 20."""
    if new.opset >= GELU_IN_ONNX:
        return (new.one("Gelu", _with_bias(new), approximate="tanh"),)
    if not has_input(new.node, 1):
        return ()
    return (new.one("FastGelu", _with_bias(new), domain=MICROSOFT),)


def _quick_gelu(new: Replacement) -> Results:
    """x sigmoid(alpha x)."""
    source, alpha = new.input(0), new.node.attributes.get_float("alpha", 1.702)
    scaled = source if alpha == 1.0 else new.one("Mul", source, new.number(alpha))
    return (new.one("Mul", source, new.one("Sigmoid", scaled)),)


def _with_bias(new: Replacement) -> ir.Value | None:
    if not has_input(new.node, 1):
        return new.input(0)
    return new.one("Add", new.input(0), new.input(1))


# Products with what follows them ----------------------------------------------------------------------------

ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    **dict.fromkeys(("Elu", "LeakyRelu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
}
"""Functions of one variable that onnxruntime computes in its products, with their attributes."""


def _activated(new: Replacement, result: ir.Value, parameters: Sequence[float | None]) -> Results:
    """The function that a product computes of its result; `parameters` are its attributes, in order."""
    activation = new.node.attributes.get_string("activation", "")
    if not activation:
        return (result,)
    if activation == "Clip" and len(parameters) == 2 and None not in parameters:
        return (new.one("Clip", result, *(new.number(float(bound or 0.0)) for bound in parameters)),)
    if activation not in ACTIVATIONS:
        return ()
    pairs = zip(ACTIVATIONS[activation], parameters, strict=False)
    return (new.one(activation, result, **{name: number for name, number in pairs if number is not None}),)


def _can_be_activated(node: ir.Node) -> bool:
    return node.attributes.get_string("activation", "") in ("", "Clip", *ACTIVATIONS)


def _fused_conv(new: Replacement) -> Results:
    """activation(Conv(x, w, b) + z)."""
    own = ("activation", "activation_params")
    attributes = [attribute for name, attribute in new.node.attributes.items() if name not in own]
    if not _can_be_activated(new.node):
        return ()
    result = new.one("Conv", *map(new.input, (0, 1)), *filter(None, [new.input(2)]), attributes=attributes)
    if has_input(new.node, 3):
        result = new.one("Add", result, new.input(3))
    return _activated(new, result, new.node.attributes.get_floats("activation_params", ()))


def _fused_gemm(new: Replacement) -> Results:
    """activation(Gemm(a, b, c))."""
    attributes = new.node.attributes
    own = [attribute for name, attribute in attributes.items() if not name.startswith("activation")]
    activation = attributes.get_string("activation", "")
    if not _can_be_activated(new.node) or activation == "Clip":
        return ()
    result = new.one("Gemm", *map(new.input, (0, 1)), *filter(None, [new.input(2)]), attributes=own)
    names = (f"activation_{name}" for name in ACTIVATIONS.get(activation, ()))
    return _activated(
        new, result, [attributes.get_float(name) if name in attributes else None for name in names]
    )


def _fused_matmul(new: Replacement) -> Results:
    """alpha MatMul(a, b), of transposed matrices."""
    factors, attributes = [], new.node.attributes
    for index, name in enumerate("AB"):
        factor, order = new.input(index), None
        is_batch, is_matrix = (attributes.get_int(f"{kind}{name}", 0) for kind in ("transBatch", "trans"))
        if is_batch or is_matrix:
            dims = rank(factor)
            if dims is None:
                return ()
            if dims > 1:  # a vector stays one
                order = list(range(dims))
                order = [*order[1:-1], order[0], order[-1]] if is_batch else order
                order = [*order[:-2], order[-1], order[-2]] if is_matrix else order
        factors.append(factor if order is None else new.one("Transpose", factor, perm=order))
    result, alpha = new.one("MatMul", *factors), attributes.get_float("alpha", 1.0)
    return (result if alpha == 1.0 else new.one("Mul", result, new.number(alpha)),)


Writing: TypeAlias = tuple[Callable[[Replacement], Results], tuple[int, ...]]
"""What writes an operator, and the outputs that this makes."""

EINSUM: Writing = (einsum, (0,))

TAKEN_APART: Mapping[str, Writing] = {
    "Attention": (_attention, (0, 1)),
    "BiasGelu": (_gelu, (0,)),
    "EmbedLayerNormalization": (_embed_layer_normalization, (0, 1, 2)),
    "FastGelu": (_fast_gelu, (0,)),
    "FusedConv": (_fused_conv, (0,)),
    "FusedGemm": (_fused_gemm, (0,)),
    "FusedMatMul": (_fused_matmul, (0,)),
    "Gelu": (_gelu, (0,)),
    "QuickGelu": (_quick_gelu, (0,)),
    "SkipLayerNormalization": (_skip_layer_normalization, (0, 3)),
    "SkipSimplifiedLayerNormalization": (_skip_simplified_layer_normalization, (0, 3)),
}
"""Operators of onnxruntime's own domain. None of these has an entry among operators that can be quantized,
because preparation removes them."""
