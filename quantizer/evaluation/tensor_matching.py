"""Which tensor of a quantized model holds each activation of the float model.

In models of any tool it is the tensor of the same name, or else the one that QuantizeLinear makes of the
result of the node of the same name. Tensors that are found in neither way are in the record that
`quantizer.lowering` leaves in its models.

Of each pair sums are kept, of the tensor itself and after its following activation function: the error of
what that function clips or flattens never reaches another node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..differences.sqnr import Difference, Sums, sums_along
from ..lowering.written import QuantizedTensor, read_padded, read_record
from ..model.graph import FLOAT_TYPES, Graph, name_of, output_name
from ..numerics.arrays import UnaryFunction
from ..operators.functions import function_of_chain
from ..operators.table import DEQUANTIZE, QUANTIZE, is_clip
from ..ranges.following_function import find_following_or_clip

INTEGER_TYPES = (
    ir.DataType.INT8,
    ir.DataType.UINT8,
    ir.DataType.INT16,
    ir.DataType.UINT16,
    ir.DataType.INT32,
)
"""Element types of quantized tensors that can be read as outputs."""


@dataclass(frozen=True, eq=False)
class Match:
    """The tensor of the quantized model that holds an activation of the float model.

    Attributes:
        tensor: name of the activation in the float model.
        exposed: name of the tensor of the quantized model.
        scale: float32, None when `exposed` is float.
        zero_point: as many integers.
        axis: of `scale`, when it has more than one element.
        channels: how many the activation has in the float model, where the exposed tensor has more: the first
            ones along axis 1 are compared. None where both have as many.
    """

    tensor: str
    exposed: str
    scale: npt.NDArray[np.float32] | None = None
    zero_point: npt.NDArray[np.integer] | None = None
    axis: int = 1
    channels: int | None = None

    def dequantized(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the float values that those of the exposed tensor stand for (ONNX DequantizeLinear)."""
        if self.channels is not None:
            values = values[:, : self.channels]
        if self.scale is None or self.zero_point is None:
            return values
        shape = [1] * values.ndim
        if self.scale.size > 1:
            shape[self.axis] = self.scale.size
        centred = values.astype(np.int64) - self.zero_point.astype(np.int64).reshape(shape)
        return np.asarray(centred.astype(np.float32) * self.scale.reshape(shape), np.float32)


def activations(model: ir.Model) -> tuple[str, ...]:
    """Return the names of the floating-point activations of the main graph: inputs, then in graph order."""
    return tuple(
        v.name
        for v in values_of(model.graph)
        if v.name and v.dtype in FLOAT_TYPES and isinstance(v.type, ir.TensorType)
    )


def values_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the inputs of a graph, then the outputs of its nodes, in graph order."""
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def matches(prepared: ir.Model, quantized: ir.Model) -> tuple[Match, ...]:
    """Return the tensor that holds each activation, without the activations that the quantized model lacks.

    A tensor that stayed float and is quantized for some of its readers, such as a graph input, is compared
    in that quantized form.

    Args:
        prepared: the prepared float model.
        quantized: a quantized model of it, written by any tool.
    """
    values = {value.name: value for value in values_of(quantized.graph)}
    nodes = {node.name: node for node in quantized.graph if node.name}
    record = read_record(quantized)
    pairs: list[Match] = []
    for original in values_of(prepared.graph):
        name = name_of(original)
        if original.dtype not in FLOAT_TYPES:
            continue
        if name in values:
            match = _from_dequantized(name, values[name]) or _for_readers(name, values[name])
            pairs.append(match or Match(name, name))
        elif name in record and record[name].name in values:
            pairs.append(_from_record(name, record[name]))
        elif (match := _after_its_node(original, nodes)) is not None:
            pairs.append(match)
    sizes = read_padded(quantized)
    return tuple(replace(pair, channels=sizes.get(pair.tensor)) for pair in pairs)


def _from_dequantized(name: str, value: ir.Value) -> Match | None:
    """`value` is the DequantizeLinear of a quantized tensor."""
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


def _from_record(name: str, entry: QuantizedTensor) -> Match:
    scale, zero_point = np.array(entry.scale, np.float32), np.array(entry.zero_point, np.int64)
    return Match(name, entry.name, scale, zero_point, entry.axis or 0)


def _after_its_node(original: ir.Value, nodes: Mapping[str, ir.Node]) -> Match | None:
    """The node that makes the tensor is in both models, and a QuantizeLinear follows it.

    Not where clips alone read the tensor: its quantized values may already be those of the clip.
    """
    producer = original.producer()
    node = None if producer is None else nodes.get(name_of(producer))
    readers = [use.node for use in original.uses()]
    if producer is None or node is None or (readers and all(map(is_clip, readers))):
        return None
    index = original.index()
    if index is None or index >= len(node.outputs):
        return None
    return _for_readers(name_of(original), node.outputs[index])


def _read_with(name: str, value: ir.Value, node: ir.Node) -> Match | None:
    """Return the match for a quantized tensor with scale and zero point of a (De)QuantizeLinear.

    None for parameters that are computed, for blocks, and for 4-bit types.
    """
    scale = _constant(node.inputs[1])
    point = node.inputs[2] if len(node.inputs) > 2 else None
    zero_point = np.zeros(1, np.int64) if point is None else _constant(point)
    types = {value.dtype, None if point is None else point.dtype} - {None}
    if scale is None or zero_point is None or not types <= set(INTEGER_TYPES):
        return None
    if value.is_initializer() or node.attributes.get_int("block_size"):
        return None
    zeros = np.broadcast_to(zero_point.astype(np.int64).reshape(-1), scale.size)
    axis = node.attributes.get_int("axis", 1)
    return Match(name, name_of(value), scale.astype(np.float32).reshape(-1), zeros, axis)


def _constant(value: ir.Value | None) -> npt.NDArray[Any] | None:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


@dataclass(frozen=True, eq=False)
class Following:
    """The function that all readers of a tensor together compute of it.

    Attributes:
        operators: its operators, for people: "Relu"; "Sigmoid, Mul" for SiLU.
        function: element by element, in float64.
        inner: names of the tensors inside it, such as the Sigmoid's of SiLU.
    """

    operators: str
    function: UnaryFunction
    inner: tuple[str, ...]

    def applied(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the function of an array of any shape and float type; NaN or Inf where it is not defined."""
        with np.errstate(all="ignore"):
            return self.function(np.asarray(values, np.float64).reshape(-1)).reshape(values.shape)


def following(graph: Graph, name: str, opset: int) -> Following | None:
    """Return the function after an activation, a clip too; None where there is none that can be computed.

    Args:
        graph: the prepared model.
        name: the activation.
        opset: version of the default operator domain.
    """
    found = find_following_or_clip(graph, name)
    if found is None:
        return None
    inner = tuple(output_name(node) for node in found.chain.nodes[:-1])
    try:
        after = Following(found.chain.operators, function_of_chain(found.chain, opset), inner)
        after.applied(np.zeros(2))
    except PlanError:  # onnx has no definition of an operator
        return None
    return after


@dataclass(frozen=True, eq=False)
class TensorSums:
    """What is kept of one tensor.

    Attributes:
        match: where it is in the quantized model.
        following: the function that its readers compute, None where there is none.
        sums: over the samples so far; None before the first that could be compared.
        sums_after: likewise, of both tensors after the function; None without one.
        shape_mismatches: samples for which the shapes differed.
    """

    match: Match
    following: Following | None = None
    sums: Sums | None = None
    sums_after: Sums | None = None
    shape_mismatches: int = 0

    @property
    def difference(self) -> Difference | None:
        """The difference over all samples; None when nothing could be compared."""
        return None if self.sums is None else self.sums.difference()

    @property
    def difference_after(self) -> Difference | None:
        """The difference after the function; None without one, or where it is not finite."""
        if self.sums is None or self.sums_after is None:
            return None
        after = self.sums_after.difference()
        return None if after.non_finite > self.sums.difference().non_finite else after

    def added(self, floats: npt.NDArray[Any], exposed: npt.NDArray[Any]) -> TensorSums:
        """Return the sums with one sample more: values of the float model, and of the exposed tensor."""
        quantized = self.match.dequantized(exposed)
        if floats.shape != quantized.shape:
            return replace(self, shape_mismatches=self.shape_mismatches + 1)
        sums = replace(self, sums=_added(self.sums, floats, quantized))
        if self.following is None:
            return sums
        after = self.following.applied(floats), self.following.applied(quantized)
        return replace(sums, sums_after=_added(self.sums_after, *after))


def _added(sums: Sums | None, floats: npt.NDArray[Any], quantized: npt.NDArray[Any]) -> Sums:
    one = sums_along(floats, quantized, (None,))[0]
    return one if sums is None else sums.added(one)


def differences_after(sums: Mapping[str, TensorSums]) -> dict[str, tuple[str, Difference]]:
    """Return the operators of the function after a tensor, and the difference after it, where there is one.

    A tensor inside the function that stayed float, such as the Sigmoid's of SiLU, has the difference of the
    tensor that the function reads: it adds no noise itself.
    """
    found: dict[str, tuple[str, Difference]] = {}
    for name, tensor in sums.items():
        after = tensor.difference_after
        if tensor.following is None or after is None:
            continue
        floats = (t for t in tensor.following.inner if t in sums and sums[t].match.scale is None)
        found.update((t, (tensor.following.operators, after)) for t in (*floats, name))
    return found
