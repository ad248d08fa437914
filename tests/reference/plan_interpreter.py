"""What a plan means, in plain numpy: the reference that every form is compared with. Slow; for tests only.

One function for each kind of node:

=====================================  =======================================================================
Conv, ConvTranspose, Gemm, MatMul      exact sums of integers, one rescale in float32 (`_quantized_product`)
other nodes that compute on quantized  float64 on the dequantized values, rounded once (`_rounded_once`):
values                                 q = saturate(round(y / scale) + zero_point), halves to even
PRelu with implementation              what is added to x is rounded to 8 bits first (`_corrected`)
"saturating"
DYNAMIC                                parameters of the data from its values (`_dynamic_product`,
                                       `_dynamic_lstm`)
WEIGHT_ONLY                            constants quantized and dequantized, the operator in float
FLOAT                                  onnx's reference evaluator
=====================================  =======================================================================

It knows the layout of weights by itself, so that a mistake in the operator table does not hide here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import helper
from onnx.reference import ReferenceEvaluator
from qprof_onnx.quantizer.lowering.lower import compensated
from qprof_onnx.quantizer.model.graph import input_name, name_of
from qprof_onnx.quantizer.numerics.affine import QuantParams, dequantize, quantize
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan

from .lstm import LstmSettings, LstmWeights, run_lstm, run_time_params
from .onnx_fixes import FIXED_OPERATORS

Array = npt.NDArray[Any]

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor of a run.

    Attributes:
        values: float values, float32 where the model says so; the dequantized ones of a quantized tensor.
        quantized, params: the integers of a quantized tensor and their parameters; None for a float one.
    """

    values: Array
    quantized: Array | None = None
    params: QuantParams | None = None


@dataclass(frozen=True, eq=False)
class Read:
    """One input of a node.

    Attributes:
        tensor: what is read; None for an optional input that is not given.
        params: the parameters in which the node reads it; None for float.
        is_data: whether the node computes with it: the bounds of a Clip are no data, nor is the constant
            inside a look-up table.
        is_constant: whether it is an initialiser.
    """

    tensor: Tensor | None
    params: QuantParams | None
    is_data: bool
    is_constant: bool

    @property
    def values(self) -> Array | None:
        """The float values."""
        return None if self.tensor is None else self.tensor.values

    def given(self) -> tuple[Tensor, QuantParams]:
        """Return tensor and parameters of an input that has both."""
        assert self.tensor is not None
        assert self.params is not None
        return self.tensor, self.params

    def centred(self) -> Array:
        """Return the quantized values without their zero points, int64."""
        tensor, params = self.given()
        stored = tensor.quantized if tensor.params == params else None
        quantized = quantize(tensor.values, params) if stored is None else stored
        return np.asarray(quantized.astype(np.int64) - _along_axis(params.zero_point, params, quantized.ndim))

    def dequantized(self) -> Array:
        """Return the float values that the quantized ones stand for, exact in float64."""
        _, params = self.given()
        centred = self.centred()
        return np.asarray(centred * _along_axis(params.scale, params, centred.ndim))


@dataclass(frozen=True, eq=False)
class Call:
    """One node with everything that it computes with.

    Attributes:
        node, kind, implementation: the node, and its kind and implementation in the plan.
        reads: its inputs.
        results: parameters of its outputs; None for float.
        tensors: every tensor so far: what subgraphs of the node read by name.
        opset: of the model.
    """

    node: ir.Node
    kind: Kind
    implementation: str
    reads: tuple[Read, ...]
    results: tuple[QuantParams | None, ...]
    tensors: Mapping[str, Tensor]
    opset: int

    def evaluate(self, inputs: Sequence[Array | None]) -> list[Array]:
        """Run the operator on these inputs, of any precision."""
        return _evaluate(self.node, inputs, self.opset, self.tensors)


def run_plan(model: ir.Model, plan: QuantPlan, sample: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return every tensor of the main graph, by name.

    Args:
        model: the prepared float model.
        plan: its plan, verified.
        sample: an array for each input.
    """
    model = compensated(model, plan)
    tensors = {
        name: Tensor(value.const_value.numpy())
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }
    tensors |= {name: Tensor(np.asarray(array)) for name, array in sample.items()}
    for node in model.graph:
        call = _call(node, plan, tensors, model.opset_imports[""])
        outputs = zip(node.outputs, run_node(call), strict=True)
        tensors |= {value.name: tensor for value, tensor in outputs if value.name}
    return tensors


def _call(node: ir.Node, plan: QuantPlan, tensors: Mapping[str, Tensor], opset: int) -> Call:
    entry = plan.nodes[name_of(node)]
    kind = entry.kind
    reads = []
    for position, value in enumerate(node.inputs):
        name = input_name(node, position)
        params = plan.params_read(name_of(node), position, name)
        constant = value is not None and value.is_initializer()
        data = _is_data(node, kind, position) and not (kind is Kind.LOOKUP_TABLE and constant)
        reads.append(Read(tensors.get(name) if name else None, params, data, constant))
    results = tuple(plan.tensors.get(name_of(value)) for value in node.outputs)
    return Call(node, kind, entry.implementation, tuple(reads), results, tensors, opset)


def _is_data(node: ir.Node, kind: Kind, position: int) -> bool:
    """Return whether an input may be read quantized: of pass-through nodes and clips the first alone."""
    first_only = kind is Kind.PASS_THROUGH or (kind is Kind.QUANTIZED and node.op_type in ("Relu", "Clip"))
    return position == 0 or not first_only


def run_node(call: Call) -> list[Tensor]:
    """Return the outputs of one node."""
    match call.kind:
        case Kind.FLOAT:
            return _float(call)
        case Kind.WEIGHT_ONLY:
            return _weight_only(call)
        case Kind.DYNAMIC if call.node.op_type == "LSTM":
            return _dynamic_lstm(call)
        case Kind.DYNAMIC:
            return _dynamic_product(call)
        case Kind.QUANTIZED if call.node.op_type in PRODUCTS and all(read.params for read in call.reads):
            return _quantized_product(call)
        case Kind.QUANTIZED if call.implementation == "saturating" and call.node.op_type == "PRelu":
            return _corrected(call)
        case _:
            return _rounded_once(call)


def _float(call: Call) -> list[Tensor]:
    return [Tensor(array) for array in call.evaluate([read.values for read in call.reads])]


def _weight_only(call: Call) -> list[Tensor]:
    inputs: list[Array | None] = []
    for read in call.reads:
        if read.is_constant and read.values is not None and read.params is not None:
            inputs.append(dequantize(quantize(read.values, read.params), read.params))
        else:
            inputs.append(read.values)
    return [Tensor(array) for array in call.evaluate(inputs)]


def _rounded_once(call: Call) -> list[Tensor]:
    inputs = [
        read.dequantized() if read.is_data and read.tensor and read.params else _in_float64(read, call.node)
        for read in call.reads
    ]
    outputs = zip(call.evaluate(inputs), call.results, strict=True)
    return [
        _float_output(array, call.kind)
        if params is None
        else _saturated(np.rint(array / params.tensor_scale) + params.tensor_zero_point, params)
        for array, params in outputs
    ]


def _corrected(call: Call) -> list[Tensor]:
    """PRelu: x + (slope - 1) min(x, 0), of which the second term is rounded to 255 steps of its range."""
    (x, params), (slopes, slope) = ((read.dequantized(), read.given()[1]) for read in call.reads)
    (result,) = call.results
    assert result is not None
    steps = 1.0 / slope.tensor_scale
    if slope.tensor_zero_point + round(steps) > slope.qtype.high or abs(steps - round(steps)) > 1e-3:
        return _rounded_once(call)  # 1 is no quantized slope
    lowest = params.tensor_scale * (params.qtype.low - params.tensor_zero_point)
    step = float(np.float32(-lowest * slope.tensor_scale)) or 1.0
    correction = step * np.rint(np.minimum(x, 0.0) * (slopes - 1.0) / step)
    return [_saturated(np.rint((x + correction) / result.tensor_scale) + result.tensor_zero_point, result)]


def _in_float64(read: Read, node: ir.Node) -> Array | None:
    """Return a float input in float64; that of Resize as it is: its scales must be float32."""
    if read.values is None or read.values.dtype != np.float32 or node.op_type == "Resize":
        return read.values
    return read.values.astype(np.float64)


def _float_output(array: Array, kind: Kind) -> Tensor:
    """Return a float output; inside a look-up table nothing is rounded, not even to float32."""
    return Tensor(array if kind is Kind.LOOKUP_TABLE else array.astype(np.float32))


def _quantized_product(call: Call) -> list[Tensor]:
    """Rescale exact sums: round(sums * (scale(x) * scale(w) / scale(y))) + zero_point(y)."""
    sums = _sums(call, [read.centred() for read in call.reads])
    (_, data), (_, weight) = call.reads[0].given(), call.reads[1].given()
    scale = np.asarray(data.scale_array * weight.scale_array, np.float32)
    (result,) = call.results
    if result is None:
        return [Tensor(sums * _beside_output(call.node, scale, sums.ndim))]
    multiplier = np.asarray(scale / result.scale_array, np.float32)
    steps = np.rint(sums * _beside_output(call.node, multiplier, sums.ndim))
    return [_saturated(steps.astype(np.float64) + result.tensor_zero_point, result)]


def _dynamic_product(call: Call) -> list[Tensor]:
    """Compute with parameters from the data (ONNX DynamicQuantizeLinear); the bias is added last."""
    data, weight, *bias = call.reads
    assert data.values is not None
    params = run_time_params(data.values)
    read = Read(data.tensor, params, is_data=True, is_constant=False)
    sums = _sums(call, [read.centred(), weight.centred()])
    multiplier = np.asarray(params.scale_array * weight.given()[1].scale_array, np.float32)
    values = sums * _beside_output(call.node, multiplier, sums.ndim)
    if bias and bias[0].values is not None:
        values = values + _beside_output(call.node, bias[0].values, sums.ndim)
    return [Tensor(values)]


def _sums(call: Call, integers: Sequence[Array]) -> Array:
    """Return the product of integers as float32; float64 holds every sum exactly."""
    (sums,) = call.evaluate([array.astype(np.float64) for array in integers])
    return sums.astype(np.float32)


def _dynamic_lstm(call: Call) -> list[Tensor]:
    missing = Read(None, None, is_data=True, is_constant=False)
    x, w, r, bias, lengths, hidden, cell, peepholes = (*call.reads, *([missing] * 5))[:8]
    assert x.values is not None
    attributes = call.node.attributes
    results = run_lstm(
        x.values,
        LstmWeights(
            w.centred(), _gate_scales(w), r.centred(), _gate_scales(r), bias.values, peepholes.values
        ),
        lengths.values,
        (hidden.values, cell.values),
        LstmSettings(
            direction=attributes.get_string("direction", "forward"),
            activations=tuple(attributes.get_strings("activations", ())),
            clip=attributes.get_float("clip", 0.0),
            input_forget=attributes.get_int("input_forget", 0) == 1,
        ),
    )
    return [Tensor(array) for array in results[: len(call.node.outputs)]]


def _gate_scales(weight: Read) -> Array:
    """Return the scales of a weight [directions, gates, inputs]: [directions] or [directions, gates]."""
    tensor, params = weight.given()
    directions = tensor.values.shape[0]
    return np.broadcast_to(params.scale_array, (directions, *params.scale_array.shape))


def _beside_output(node: ir.Node, array: Array, rank: int) -> Array:
    """Return one number for each output channel in a shape that broadcasts with the output."""
    if array.ndim == 0 or node.op_type in ("Gemm", "MatMul"):
        return array
    return array.reshape(-1, *([1] * (rank - 2)))


def _along_axis(numbers: Sequence[float], params: QuantParams, rank: int) -> Array:
    """Return the scales or zero points in a shape that broadcasts with a tensor of this rank."""
    if params.axis is None:
        return np.asarray(numbers[0])
    return np.array(numbers).reshape([-1 if i == params.axis else 1 for i in range(rank)])


def _saturated(steps: Array, params: QuantParams) -> Tensor:
    quantized = np.clip(steps, params.qtype.low, params.qtype.high).astype(params.qtype.numpy_dtype)
    return Tensor(dequantize(quantized, params), quantized, params)


def _evaluate(
    node: ir.Node, arrays: Sequence[Array | None], opset: int, outer: Mapping[str, Tensor]
) -> list[Array]:
    """Run one node in onnx's reference evaluator; `outer` is what its subgraphs can read."""
    proto = ir.serde.serialize_node(node)
    del proto.input[:], proto.output[:]
    proto.input.extend("" if array is None else f"input_{i}" for i, array in enumerate(arrays))
    proto.output.extend(f"output_{i}" if v.name else "" for i, v in enumerate(node.outputs))
    captured = {name: tensor.values for name, tensor in outer.items()} if _has_subgraphs(proto) else {}
    given = {f"input_{i}": array for i, array in enumerate(arrays) if array is not None}
    values = {**captured, **given}
    graph = helper.make_graph(
        [proto],
        "node",
        [onnx.ValueInfoProto(name=name) for name in values],
        [onnx.ValueInfoProto(name=name) for name in proto.output if name],
    )
    opsets = [helper.make_opsetid("", opset)]
    if node.domain:
        opsets.append(helper.make_opsetid(node.domain, 1))
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets), new_ops=FIXED_OPERATORS)
    with np.errstate(all="ignore"):  # an exp that overflows is infinite, as in a runtime
        outputs = iter(evaluator.run(None, values))
    return [np.asarray(next(outputs)) if name else np.zeros(0) for name in proto.output]


def _has_subgraphs(proto: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in proto.attribute)
