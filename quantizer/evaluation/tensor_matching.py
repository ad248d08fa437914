"""Where each activation of a float model lives in the quantized model that was made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..numerics.affine import QuantParams
from ..operators.table import DEQUANTIZE, QUANTIZE, Constraint, is_clip, rule_of

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)
CODES = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16, ir.DataType.INT32)


@dataclass(frozen=True, eq=False)
class Match:
    """Where an activation of the float model lives in the quantized model.

    Attributes:
        tensor: its name in the float model.
        exposed: name of the tensor of the quantized model that holds it.
        scale: float32, None when `exposed` is float.
        zero_point: of the codes' type.
        axis: of `scale`, when it has more than one element.
    """

    tensor: str
    exposed: str
    scale: npt.NDArray[np.float32] | None = None
    zero_point: npt.NDArray[np.integer] | None = None
    axis: int = 1

    def real(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the real numbers that `values` of the exposed tensor stand for (ONNX DequantizeLinear)."""
        if self.scale is None or self.zero_point is None:
            return values
        shape = [1] * values.ndim
        if self.scale.size > 1:
            shape[self.axis] = self.scale.size
        codes = values.astype(np.int64) - self.zero_point.astype(np.int64).reshape(shape)
        return np.asarray(codes.astype(np.float32) * self.scale.reshape(shape), np.float32)


def activations(model: ir.Model) -> tuple[str, ...]:
    """Return the names of the floating-point activations of the main graph: inputs, then in graph order."""
    return tuple(
        v.name
        for v in values_of(model.graph)
        if v.name and v.dtype in FLOATS and isinstance(v.type, ir.TensorType)
    )


def values_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the inputs of a graph, then what its nodes make, in graph order."""
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def matches(
    prepared: ir.Model, quantized: ir.Model, params: Mapping[str, QuantParams] | None = None
) -> tuple[Match, ...]:
    """Return where each activation lives in the quantized model; those that it has not are left out.

    The lowering keeps an activation's name on its real-valued form, the DequantizeLinear of its codes where
    it is stored in codes; codes that nobody dequantizes are called `x_quantized`. A tensor that stayed float
    and is quantized for some of its readers, such as a graph input, is judged by those codes.

    Args:
        prepared: the prepared float model.
        quantized: the model that the lowering made of it.
        params: of activations by name, from the plan: finds codes that the graph alone does not explain, such
            as those out of a table.
    """
    values = {value.name: value for value in values_of(quantized.graph)}
    found = []
    for original in values_of(prepared.graph):
        name = original.name or ""
        if original.dtype not in FLOATS:
            continue
        value, codes = values.get(name), values.get(f"{name}_quantized")
        match = None
        if value is not None:
            match = _from_codes(name, value) or _for_readers(name, value) or Match(name, name)
        elif codes is not None and not _only_clipped(original):
            match = _given(name, codes, (params or {}).get(name)) or _explained(name, codes)
        if match is not None:
            found.append(match)
    return tuple(found)


def _from_codes(name: str, value: ir.Value) -> Match | None:
    """`value` is the DequantizeLinear of codes."""
    node = value.producer()
    if node is None or node.op_type != DEQUANTIZE or node.inputs[0] is None:
        return None
    return _read_with(name, node.inputs[0], node)


def _for_readers(name: str, value: ir.Value) -> Match | None:
    """`value` is float and goes into a QuantizeLinear."""
    for use in value.uses():
        if use.node.op_type == QUANTIZE and use.idx == 0:
            return _read_with(name, use.node.outputs[0], use.node)
    return None


def _explained(name: str, codes: ir.Value) -> Match | None:
    """`codes` come out of the tensor's own QuantizeLinear, maybe through operators that move codes."""
    source: ir.Value | None = codes
    while source is not None and (node := source.producer()) is not None:
        if node.op_type == QUANTIZE:
            # Another name is another tensor: of tanh as a sigmoid the codes mean something else than here.
            stem = (node.outputs[0].name or "").removesuffix("_quantized")
            own = node.inputs[0] is not None and node.inputs[0].name in (stem, f"{stem}_raw")
            found = _read_with(name, source, node) if own else None
            return None if found is None else replace(found, exposed=codes.name or "")
        rule = rule_of(node)
        if rule is None or rule.constraint not in (Constraint.SAME, Constraint.CLAMP):
            return None
        source = node.inputs[0]
    return None


def _given(name: str, codes: ir.Value, params: QuantParams | None) -> Match | None:
    """`codes` have the parameters that the plan gives to the tensor."""
    if params is None or params.block_size is not None or params.qtype.bits < 8:
        return None
    scale, zero_point = np.array(params.scale, np.float32), np.array(params.zero_point, np.int64)
    return Match(name, codes.name or "", scale, zero_point, 0 if params.axis is None else params.axis)


def _read_with(name: str, codes: ir.Value, node: ir.Node) -> Match | None:
    """Return the match for `codes` with scale and zero point of a (De)QuantizeLinear.

    None for parameters that are computed, for blocks, and for codes that are no whole bytes.
    """
    scale = _constant(node.inputs[1])
    point = node.inputs[2] if len(node.inputs) > 2 else None
    zero_point = np.zeros(1, np.int64) if point is None else _constant(point)
    types = {codes.dtype, None if point is None else point.dtype} - {None}
    if scale is None or zero_point is None or not types <= set(CODES):
        return None
    if codes.is_initializer() or node.attributes.get_int("block_size"):
        return None
    zeros = np.broadcast_to(zero_point.astype(np.int64).reshape(-1), scale.size)
    axis = node.attributes.get_int("axis", 1)
    return Match(name, codes.name or "", scale.astype(np.float32).reshape(-1), zeros, axis)


def _constant(value: ir.Value | None) -> npt.NDArray[Any] | None:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def _only_clipped(value: ir.Value) -> bool:
    """Return whether all that reads a tensor are clips: codes under its name may be those of the clip."""
    readers = [use.node for use in value.uses()]
    return bool(readers) and all(map(is_clip, readers))
