"""Types and shapes of outputs of onnxruntime's own operators, which ONNX's shape inference does not know.

Source: onnxruntime's docs/ContribOperators.md. What is not here gets its type alone, from onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx
import onnx.defs
import onnx_ir as ir

from ...model.editing import has_input, rank
from ...model.loading.protobuf import graphs_in

DOMAIN = "com.microsoft"
Dims = Sequence[int | ir.SymbolicDim]

LIKE_FIRST_INPUT: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("BiasDropout", "BiasGelu", "FastGelu", "Gelu", "Inverse", "QuickGelu"), (0,)),
    **dict.fromkeys(("GroupNorm", "RotaryEmbedding", "SkipGroupNorm"), (0,)),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), (0, 3)),
    **dict.fromkeys(("LayerNormalization", "SimplifiedLayerNormalization"), (0,)),
}
"""Operator to its outputs with type and shape of the first input."""

IN_DEFAULT_DOMAIN = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that onnxruntime has in the default domain, in opsets where ONNX does not have them."""

AS_STANDARD: Mapping[str, tuple[str, int]] = {
    "FusedConv": ("Conv", 3),
    "FusedGemm": ("Gemm", 3),
    "Pad": ("Pad", 3),
    "Trilu": ("Trilu", 2),
}
"""Operator to the one of ONNX whose output has the same type and shape, and how many inputs that takes."""


def write_as_standard(proto: onnx.ModelProto) -> None:
    """Replace operators of `AS_STANDARD` in a model of which only types and shapes are wanted."""
    opset = next((entry.version for entry in proto.opset_import if entry.domain == ""), 0)
    for node in (node for graph in graphs_in(proto.graph) for node in graph.node):
        if node.domain != DOMAIN or node.op_type not in AS_STANDARD:
            continue
        op_type, count = AS_STANDARD[node.op_type]
        if not onnx.defs.has(op_type, opset, ""):
            continue
        node.domain, node.op_type = "", op_type
        del node.input[count:]
        known = onnx.defs.get_schema(op_type, opset, "").attributes
        for index in reversed(range(len(node.attribute))):
            if node.attribute[index].name not in known:
                del node.attribute[index]


def set_contrib_shapes(model: ir.Model) -> int:
    """Give outputs of onnxruntime's operators type and shape where these are unknown; return how many."""
    changed = 0
    for node in model.graph.all_nodes():
        for index, source, dims in _known(node):
            output = node.outputs[index] if index < len(node.outputs) else None
            if output is None or not output.name:
                continue
            if output.type is None and source.type is not None:
                output.type = source.type
                changed += 1
            if output.shape is None and dims is not None and output.type is not None:
                output.shape = ir.Shape(dims)
                changed += 1
    return changed


def _known(node: ir.Node) -> Iterator[tuple[int, ir.Value, Dims | None]]:
    """Yield outputs by index, a value of the same type, and the dimensions, None where they are unknown."""
    if node.domain not in ("", DOMAIN) or not node.inputs or node.inputs[0] is None:
        return
    first = node.inputs[0]
    if (node.domain == "") != (node.op_type in IN_DEFAULT_DOMAIN):
        return
    if node.op_type in LIKE_FIRST_INPUT:
        for index in LIKE_FIRST_INPUT[node.op_type]:
            yield index, first, _dims(first)
    elif node.op_type == "EmbedLayerNormalization":
        table = _input(node, 2)
        if table is not None:
            yield from ((index, table, _embedded(node)) for index in (0, 2))
    elif node.op_type in _RULES:
        yield 0, first, _RULES[node.op_type](node)


def _dims(value: ir.Value | None, wanted: int | None = None) -> list[int | ir.SymbolicDim] | None:
    """Return the dimensions; None when they are unknown, or not as many as wanted."""
    if value is None or value.shape is None or wanted not in (None, rank(value)):
        return None
    return list(value.shape)


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _int(node: ir.Node, name: str) -> int:
    """Return an attribute, 0 where there is no such integer."""
    attribute = node.attributes.get(name)
    return attribute.as_int() if attribute is not None and attribute.type == ir.AttributeType.INT else 0


def _divided(dim: int | ir.SymbolicDim, count: int) -> int | ir.SymbolicDim:
    return dim // count if isinstance(dim, int) and count > 0 else ir.SymbolicDim(None)


def _embedded(node: ir.Node) -> Dims | None:
    tokens, table = _dims(node.inputs[0], 2), _dims(_input(node, 2), 2)
    return None if tokens is None or table is None else [*tokens, table[1]]


def _attention(node: ir.Node) -> Dims | None:
    """Input (batch, length, width), weights (width, those of query, key and value)."""
    source, weights = _dims(node.inputs[0], 3), _dims(_input(node, 1), 2)
    if source is None or weights is None:
        return None
    sizes = node.attributes.get("qkv_hidden_sizes")
    given = sizes.as_ints() if sizes is not None and sizes.type == ir.AttributeType.INTS else ()
    if len(given) != 3 or min(given) < 0:
        return [*source[:2], _divided(weights[1], 3)]
    return [*source[:2], given[2]]


def _multi_head_attention(node: ir.Node) -> Dims | None:
    """Query (batch, length, width), and the value (batch, length, width) or (batch, heads, length, width).

    Or the query is all three, (batch, length, heads, 3, width), or the key is key and value.
    """
    query = _dims(node.inputs[0])
    if query is None or len(query) == 5:
        return None if query is None else [*query[:2], _product(query[2], query[4])]
    if not has_input(node, 2):
        return query
    value = _dims(_input(node, 2))
    if value is None or len(query) != 3 or len(value) not in (3, 4):
        return None
    return [*query[:2], value[2] if len(value) == 3 else _product(value[1], value[-1])]


def _product(left: int | ir.SymbolicDim, right: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
    if isinstance(left, int) and isinstance(right, int) and min(left, right) >= 0:
        return left * right
    return ir.SymbolicDim(None)


def _group_query_attention(node: ir.Node) -> Dims | None:
    """Query (batch, length, width); without a key it holds the heads of keys and values too."""
    query = _dims(node.inputs[0], 3)
    if query is None or has_input(node, 1):
        return query
    heads = _int(node, "num_heads")
    head = _divided(query[2], heads + 2 * _int(node, "kv_num_heads"))
    return [*query[:2], _product(heads, head)]


def _matmul(node: ir.Node) -> Dims | None:
    left, right = _dims(node.inputs[0]), _dims(_input(node, 1))
    batches = any(_int(node, name) for name in ("transBatchA", "transBatchB"))
    if left is None or right is None or min(len(left), len(right)) < 2 or batches:
        return None
    rows = left[-1] if _int(node, "transA") else left[-2]
    columns = right[-2] if _int(node, "transB") else right[-1]
    if len(right) == 2:
        return [*left[:-2], rows, columns]
    if left[:-2] == right[:-2]:
        return [*left[:-2], rows, columns]
    free = [ir.SymbolicDim(None) for _ in range(max(len(left), len(right)) - 2)]
    return [*free, rows, columns]


_RULES: Mapping[str, Callable[[ir.Node], Dims | None]] = {
    "Attention": _attention,
    "FusedMatMul": _matmul,
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
    "TransposeMatMul": _matmul,
}
"""Operator to the dimensions of its first output, which has the type of the first input."""
