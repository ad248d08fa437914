"""Models in float16 and bfloat16 converted to float32, between casts at their inputs and outputs.

Quantized values are computed from float32: below opset 19 QuantizeLinear takes no other type, and runtimes
have integer kernels for no other. `narrow_constants` stores remaining float constants in half the bytes
again.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...profiles.base.findings import Code, Finding
from ...profiles.instrumentation.subgraphs import value_names
from ..model.editing import Array, free_name, is_standard
from ..model.external_data import WidenedTensor

NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
WIDE = ir.DataType.FLOAT

MIN_NARROWED = 1024
"""Elements from which a constant is stored in half the bytes, with a Cast after it."""

_TYPE_ATTRIBUTES = ("to", "dtype")
"""Attributes of standard operators that hold an element type."""


def narrow_type(model: ir.Model) -> ir.DataType | None:
    """Return the type of a model in float16 or bfloat16, the one with more tensors and bytes; else None."""
    weight = dict.fromkeys(NARROW, 0)
    for graph in model.graphs():
        for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
            if value.dtype in NARROW:
                weight[value.dtype] += 1
        tensors = [value.const_value for value in graph.initializers.values()]
        attributes = (attribute for node in graph for attribute in node.attributes.values())
        tensors += [a.value for a in attributes if a.type == ir.AttributeType.TENSOR]
        for tensor in tensors:
            if tensor is not None and tensor.dtype in NARROW:
                weight[tensor.dtype] += tensor.nbytes
    heavier = max(NARROW, key=lambda dtype: weight[dtype])
    return heavier if weight[heavier] else None


def widen(model: ir.Model) -> tuple[Finding, ...]:
    """Convert float16 and bfloat16 tensors to float32, not inputs and outputs; types are inferred later."""
    names = value_names(model)
    border = _cast_inputs(model, names) | _cast_outputs(model, names)
    changed = 0
    for graph in model.graphs():
        inputs = () if graph is model.graph else graph.inputs
        for value in (*inputs, *(v for node in graph if node not in border for v in node.outputs)):
            changed += _widen_type(value)
        for value in graph.initializers.values():
            if value.const_value is not None and value.const_value.dtype in NARROW:
                value.const_value, value.type = WidenedTensor(value.const_value), ir.TensorType(WIDE)
                changed += 1
        for node in graph:
            if node not in border:
                changed += _widen_attributes(node)
    if not changed:
        return ()
    sentence = (
        "a model in 16-bit floats: its float nodes compute in float32; its inputs and outputs do not change"
    )
    return (Finding(Code.WIDENED, sentence),)


def narrow_constants(model: ir.Model, dtype: ir.DataType) -> ir.Model:
    """Return the model with large float32 constants stored in `dtype`, behind a Cast, if no value changes."""
    model = model.clone()
    names = value_names(model)
    for graph in model.graphs():
        casts = []
        for name, value in list(graph.initializers.items()):
            narrow = _narrowed(value, dtype)
            if narrow is None:
                continue
            graph.initializers.pop(name)
            stored = ir.Value(
                name=free_name(f"{name}_{dtype.name.lower()}", names),
                type=ir.TensorType(dtype),
                shape=value.shape,
                const_value=narrow,
            )
            graph.register_initializer(stored)
            casts.append(_cast(stored, WIDE, f"{name}_Cast", name))
            value.replace_all_uses_with(casts[-1].outputs[0])
        if casts:
            graph.insert_before(graph[0], casts)
    return model


def _narrowed(value: ir.Value, dtype: ir.DataType) -> ir.TensorProtocol | None:
    """Return a large float32 constant in `dtype`, or None if a value would change, and for all others."""
    tensor = value.const_value
    if tensor is None or tensor.dtype != WIDE or tensor.size < MIN_NARROWED:
        return None
    if value.is_graph_output() or value.is_graph_input():
        return None
    if isinstance(tensor, WidenedTensor) and tensor.narrow.dtype == dtype:
        return tensor.narrow
    array = tensor.numpy()
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype.numpy())
    same = np.array_equal(narrow.astype(np.float32), array, equal_nan=True)
    return ir.Tensor(narrow, dtype=dtype) if same else None


def _cast_inputs(model: ir.Model, names: set[str]) -> set[ir.Node]:
    """Put a Cast after each narrow input; return all such casts."""
    casts = set()
    for value in model.graph.inputs:
        if value.dtype not in NARROW or value.is_initializer() or not value.uses():
            continue
        users = {use.node for use in value.uses()}
        if all(is_standard(n, "Cast") and n.attributes["to"].as_int() == WIDE for n in users):
            casts |= users
            continue
        uses = list(value.uses())
        cast = _cast(value, WIDE, f"{value.name}_Cast", free_name(f"{value.name}_float", names))
        model.graph.insert_before(model.graph[0], cast)
        for use in uses:
            use.node.replace_input_with(use.idx, cast.outputs[0])
        casts.add(cast)
    return casts


def _cast_outputs(model: ir.Model, names: set[str]) -> set[ir.Node]:
    """Put a Cast before each narrow output; return all such casts."""
    casts = set()
    for index, value in enumerate(model.graph.outputs):
        if not isinstance(value.type, ir.TensorType) or value.dtype not in NARROW or value.is_graph_input():
            continue
        producer = value.producer()
        if producer is not None and is_standard(producer, "Cast") and not value.uses():
            casts.add(producer)
            continue
        name, dtype, shape = value.name, value.dtype, value.shape
        value.name = free_name(f"{name}_float", names)
        cast = _cast(value, dtype, f"{name}_Cast", str(name))
        cast.outputs[0].shape = shape
        model.graph.append(cast)
        model.graph.outputs[index] = cast.outputs[0]
        casts.add(cast)
    return casts


def _cast(source: ir.Value, dtype: ir.DataType, name: str, output: str) -> ir.Node:
    result = ir.Value(name=output, type=ir.TensorType(dtype), shape=source.shape)
    return ir.Node("", "Cast", [source], [ir.AttrInt64("to", int(dtype))], outputs=[result], name=name)


def _widen_type(value: ir.Value) -> int:
    before, value.type = value.type, _widened(value.type)
    return int(value.type != before)


def _widened(kind: ir.TypeProtocol | None) -> ir.TypeProtocol | None:
    match kind:
        case ir.SequenceType() | ir.OptionalType():
            inner = _widened(kind.elem_type)
            assert inner is not None
            return type(kind)(inner)
    return ir.TensorType(WIDE) if isinstance(kind, ir.TensorType) and kind.dtype in NARROW else kind


def _widen_attributes(node: ir.Node) -> int:
    changed = 0
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype in NARROW:
            array: Array = attribute.value.numpy().astype(np.float32)
            node.attributes[name] = ir.AttrTensor(
                name, ir.Tensor(array, dtype=WIDE, name=attribute.value.name)
            )
            changed += 1
        elif is_standard(node) and name in _TYPE_ATTRIBUTES and attribute.value in NARROW:
            node.attributes[name] = ir.AttrInt64(name, int(WIDE))
            changed += 1
    return changed
