"""What a plan means, in plain numpy: the oracle that every form is held against. Slow; for tests only.

Products (Conv, ConvTranspose, Gemm, MatMul) are summed exactly, and rescaled as `products` says. Every other
operator on codes is computed in float64 on the real numbers that its codes stand for, and rounded once:
code = saturate(round(y / scale) + zero_point), halves to even. Float nodes are those of onnx's evaluator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..lowering.writers.lstm import weight_codes
from ..model.graph import input_name
from ..numerics.affine import QuantParams, dequantize, quantize
from ..plan.plan import Kind, NodePlan, QuantPlan
from .lstm import LstmWeights, run_lstm, run_time_params

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """One tensor of a run.

    Attributes:
        real: its values, float32 where the model says so.
        codes, params: the codes that it is at home in, None for a float one.
    """

    real: Array
    codes: Array | None = None
    params: QuantParams | None = None


def run_plan(model: ir.Model, plan: QuantPlan, feed: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return every tensor of the main graph, by name.

    Args:
        model: the prepared float model.
        plan: its plan, verified.
        feed: an array for each input.
    """
    from ..lowering.lower import compensated

    model = compensated(model, plan)
    opset = model.opset_imports[""]
    known = {name: Tensor(np.asarray(array)) for name, array in feed.items()}
    for name, value in model.graph.initializers.items():
        if name not in known and value.const_value is not None:
            known[name] = Tensor(value.const_value.numpy())
    for node in model.graph:
        entry = plan.nodes[node.name or ""]
        for value, tensor in zip(node.outputs, _run(node, entry, plan, known, opset), strict=True):
            if value.name:
                known[value.name] = tensor
    return known


def _run(
    node: ir.Node, entry: NodePlan, plan: QuantPlan, known: Mapping[str, Tensor], opset: int
) -> list[Tensor]:
    names = [input_name(node, position) for position in range(len(node.inputs))]
    reads = [plan.params_read(node.name or "", position, name) for position, name in enumerate(names)]
    results = [plan.tensors.get(value.name or "") for value in node.outputs]
    if entry.kind is Kind.FLOAT:
        return [Tensor(a) for a in _evaluate(node, [_real(known, n) for n in names], opset, known)]
    if entry.kind is Kind.WEIGHT_ONLY:
        constants = node.graph.initializers if node.graph is not None else {}
        weights = [
            dequantize(quantize(known[n].real, p), p) if p is not None and n in constants else _real(known, n)
            for n, p in zip(names, reads, strict=True)
        ]
        return [Tensor(a) for a in _evaluate(node, weights, opset)]
    if entry.kind is Kind.DYNAMIC:
        if node.op_type == "LSTM":
            return [Tensor(a) for a in _dynamic_lstm(node, names, reads, known)[: len(node.outputs)]]
        return [Tensor(_dynamic_product(node, names, reads, known, opset))]
    if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul") and None not in reads:
        return [_product(node, names, reads, known, result=results[0], opset=opset)]
    exact: list[Array | None] = []
    for index, (name, params) in enumerate(zip(names, reads, strict=True)):
        if name and params is not None and _is_data(node, entry, index):
            exact.append(_exact(_codes(known[name], params), params))
        else:
            array = _real(known, name)
            wide = array is not None and array.dtype == np.float32 and node.op_type != "Resize"
            exact.append(array.astype(np.float64) if wide and array is not None else array)
    return [
        _real_result(array, entry) if params is None else _rounded(array, params)
        for array, params in zip(_evaluate(node, exact, opset), results, strict=True)
    ]


def _real_result(array: Array, entry: NodePlan) -> Tensor:
    """Return what a node gives in float; inside a table nothing is rounded, not even to float32."""
    return Tensor(array if entry.kind is Kind.LOOKUP_TABLE else array.astype(np.float32))


def _product(
    node: ir.Node,
    names: list[str],
    reads: list[QuantParams | None],
    known: Mapping[str, Tensor],
    *,
    result: QuantParams | None,
    opset: int,
) -> Tensor:
    integers: list[Array | None] = []
    for name, params in zip(names, reads, strict=True):
        assert params is not None
        integers.append(_centred(_codes(known[name], params), params).astype(np.float64))
    (sums,) = _evaluate(node, integers, opset)
    data, weight = reads[0], reads[1]
    assert data is not None
    assert weight is not None
    scale = np.asarray(data.scale_array * weight.scale_array, np.float32)
    if result is None:
        return Tensor(sums.astype(np.float32) * _beside(node, scale, sums.ndim))
    multiplier = np.asarray(scale / result.scale_array, np.float32)
    steps = np.rint(sums.astype(np.float32) * _beside(node, multiplier, sums.ndim))
    return _tensor(steps.astype(np.float64) + result.zero_point[0], result)


def _dynamic_product(
    node: ir.Node,
    names: list[str],
    reads: list[QuantParams | None],
    known: Mapping[str, Tensor],
    opset: int,
) -> Array:
    """Compute with parameters from the data (ONNX DynamicQuantizeLinear), the bias added last."""
    x, weight = known[names[0]].real, reads[1]
    assert weight is not None
    data = run_time_params(x)
    integers: list[Array | None] = [
        _centred(quantize(x, data), data).astype(np.float64),
        _centred(_codes(known[names[1]], weight), weight).astype(np.float64),
    ]
    (sums,) = _evaluate(node, integers, opset)
    multiplier = np.asarray(data.scale_array * weight.scale_array, np.float32)
    real: Array = sums.astype(np.float32) * _beside(node, multiplier, sums.ndim)
    if len(names) > 2 and names[2]:
        bias = known[names[2]].real
        real = real + (_beside(node, bias, sums.ndim) if node.op_type == "Conv" else bias)
    return real


def _dynamic_lstm(
    node: ir.Node, names: list[str], reads: list[QuantParams | None], known: Mapping[str, Tensor]
) -> tuple[Array, Array, Array]:
    of_inputs, of_remembered = reads[1:3]
    assert of_inputs is not None
    assert of_remembered is not None
    inputs, remembered = (
        weight_codes(known[names[1]].real, of_inputs),
        weight_codes(known[names[2]].real, of_remembered),
    )
    bias, lengths, hidden, cell = (_real(known, name) for name in [*names, "", "", "", ""][3:7])
    attributes = node.attributes
    return run_lstm(
        known[names[0]].real,
        LstmWeights(*inputs, *remembered, bias),
        lengths,
        (hidden, cell),
        direction=attributes.get_string("direction", "forward"),
        activations=attributes.get_strings("activations", ()),
        clip=attributes.get_float("clip", 0.0),
        input_forget=attributes.get_int("input_forget", 0) == 1,
    )


def _beside(node: ir.Node, array: Array, rank: int) -> Array:
    """Return one number for each output channel in a shape that stands beside the output."""
    if array.ndim == 0 or node.op_type in ("Gemm", "MatMul"):
        return array
    return array.reshape(-1, *([1] * (rank - 2)))


def _is_data(node: ir.Node, entry: NodePlan, index: int) -> bool:
    """Whether an input is read in codes: of moves and clips the first alone, of tables no constant."""
    if entry.kind is Kind.LOOKUP_TABLE:
        value = node.inputs[index]
        return value is not None and not value.is_initializer()
    return index == 0 or not (entry.kind is Kind.PASS_THROUGH or node.op_type in ("Relu", "Clip"))


def _codes(tensor: Tensor, params: QuantParams) -> Array:
    if tensor.codes is not None and tensor.params == params:
        return tensor.codes
    return quantize(tensor.real, params)


def _centred(codes: Array, params: QuantParams) -> Array:
    if params.axis is None:
        return np.asarray(codes.astype(np.int64) - params.zero_point[0])
    shape = tuple(-1 if i == params.axis else 1 for i in range(codes.ndim))
    return np.asarray(codes.astype(np.int64) - np.array(params.zero_point, np.int64).reshape(shape))


def _exact(codes: Array, params: QuantParams) -> Array:
    scale = np.array(params.scale, np.float64)
    shape = () if params.axis is None else tuple(-1 if i == params.axis else 1 for i in range(codes.ndim))
    return np.asarray(_centred(codes, params) * scale.reshape(shape))


def _rounded(real: Array, params: QuantParams) -> Tensor:
    return _tensor(np.rint(real / params.scale[0]) + params.zero_point[0], params)


def _tensor(steps: Array, params: QuantParams) -> Tensor:
    codes = np.clip(steps, params.qtype.low, params.qtype.high).astype(params.qtype.numpy_dtype)
    return Tensor(dequantize(codes, params), codes, params)


def _real(known: Mapping[str, Tensor], name: str) -> Array | None:
    return known[name].real if name else None


def _evaluate(
    node: ir.Node, arrays: list[Array | None], opset: int, outer: Mapping[str, Tensor] | None = None
) -> list[Array]:
    """Run one node on arrays of any precision; `outer` is what graphs inside it can see."""
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    from .onnx_fixes import MENDED

    proto = ir.serde.serialize_node(node)
    del proto.input[:], proto.output[:]
    given = {f"input_{i}": array for i, array in enumerate(arrays) if array is not None}
    proto.input.extend("" if array is None else f"input_{i}" for i, array in enumerate(arrays))
    proto.output.extend(f"output_{i}" if v.name else "" for i, v in enumerate(node.outputs))
    wanted = [name for name in proto.output if name]
    captured = {name: tensor.real for name, tensor in (outer or {}).items()} if _has_graphs(proto) else {}
    feed = {**captured, **given}
    inputs = [onnx.ValueInfoProto(name=name) for name in feed]
    outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
    opsets = [helper.make_opsetid("", opset)]
    if node.domain:
        opsets.append(helper.make_opsetid(node.domain, 1))
    model = helper.make_model(helper.make_graph([proto], "node", inputs, outputs), opset_imports=opsets)
    found = iter(ReferenceEvaluator(model, new_ops=MENDED).run(None, feed))
    return [np.asarray(next(found)) if name else np.zeros(0) for name in proto.output]


def _has_graphs(proto: Any) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in proto.attribute)
