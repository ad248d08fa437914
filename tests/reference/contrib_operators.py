"""onnxruntime's operators on quantized values (domain com.microsoft), for onnx's reference evaluator.

`ReferenceEvaluator(model, new_ops=CONTRIB)` runs form qoperator without onnxruntime. Each is defined by the
float operator: inputs are dequantized, the operator runs in float64, its result is rounded once (halves to
even). The two products sum exactly and rescale in float32, see `lowering.products`; so does the LSTM,
see `reference.lstm`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from qprof_onnx.quantizer.lowering.forms.qoperator import QLINEAR
from qprof_onnx.quantizer.operators.table import MICROSOFT

from .lstm import LstmSettings, LstmWeights, run_lstm
from .onnx_fixes import FIXED_OPERATORS

Array = npt.NDArray[Any]


def _dequantized(quantized: Array, scale: Array, zero_point: Array) -> Array:
    return (quantized.astype(np.float64) - zero_point.astype(np.float64)) * scale.astype(np.float64)


def _rounded(steps: Array, zero_point: Array) -> Array:
    info = np.iinfo(zero_point.dtype)
    quantized = np.clip(np.rint(steps).astype(np.float64) + zero_point, info.min, info.max)
    return np.asarray(quantized.astype(zero_point.dtype))


def _operator(op_type: str) -> type[OpRun]:
    counterpart = QLINEAR[op_type]

    def _run(self: Any, *given: Array, **attributes: Any) -> tuple[Array]:
        queue, inputs, result = list(given), list[Array](), list[Array]()
        for token in counterpart.inputs:
            if token == "y":
                result, queue = queue[:2], queue[2:]
            elif token.startswith("="):
                inputs.append(queue.pop(0))
            else:
                for _ in range(len(queue) // 3 if token == "*" else 1):
                    inputs.append(_dequantized(*queue[:3]))
                    queue = queue[3:]
        output = _run_float(self.onnx_node, op_type, inputs)
        return (_rounded(output / result[0].astype(np.float64), result[1]),)

    return type(counterpart.op_type, (OpRun,), {"op_domain": MICROSOFT, "_run": _run})


def _run_float(node: onnx.NodeProto, op_type: str, inputs: list[Array]) -> Array:
    """Run the float operator, with those attributes of its QLinear counterpart that it knows."""
    schema = onnx.defs.get_schema(op_type)
    names = [f"input_{i}" for i in range(len(inputs))]
    float_node = helper.make_node(op_type, names, ["output"])
    float_node.attribute.extend(a for a in node.attribute if a.name in schema.attributes)
    graph = helper.make_graph(
        [float_node],
        "float",
        [onnx.ValueInfoProto(name=name) for name in names],
        [onnx.ValueInfoProto(name="output")],
    )
    opsets = [helper.make_opsetid("", onnx.defs.onnx_opset_version())]
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets), new_ops=FIXED_OPERATORS)
    (result,) = evaluator.run(None, dict(zip(names, inputs, strict=True)))
    return np.asarray(result)


def _sums(a: Array, a_zero: Array, b: Array, b_zero: Array) -> Array:
    return np.asarray((a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero))


class QGemm(OpRun):
    """Gemm on quantized values; the result is float when no scale of it is given."""

    op_domain = MICROSOFT

    def _run(self, *given: Array, **attributes: Any) -> tuple[Array]:
        a, a_scale, a_zero, b, b_scale, b_zero = given[:6]
        bias, y_scale, y_zero = (*given[6:], None, None, None)[:3]
        left = a.T if getattr(self, "transA", 0) else a
        right = b.T if getattr(self, "transB", 0) else b
        sums = _sums(left, a_zero, right, b_zero) + (0 if bias is None else bias.astype(np.int64))
        scale = np.asarray(a_scale * b_scale, np.float32)
        if y_scale is None or y_zero is None:
            return (sums.astype(np.float32) * scale,)
        return (_rounded(sums.astype(np.float32) * np.asarray(scale / y_scale, np.float32), y_zero),)


class MatMulIntegerToFloat(OpRun):
    """MatMul of quantized values with a float result."""

    op_domain = MICROSOFT

    def _run(self, *given: Array) -> tuple[Array]:
        a, b, a_scale, b_scale, a_zero, b_zero = given
        scale = np.asarray(a_scale * b_scale, np.float32)
        return (_sums(a, a_zero, b, b_zero).astype(np.float32) * scale,)


class NhwcMaxPool(OpRun):
    """MaxPool of integers whose last axis is the channels."""

    op_domain = MICROSOFT

    def _run(self, quantized: Array, **attributes: Any) -> tuple[Array]:
        first = np.moveaxis(quantized, -1, 1).astype(np.float32)
        pooled = _run_float(self.onnx_node, "MaxPool", [first])
        return (np.moveaxis(pooled, 1, -1).astype(quantized.dtype),)


def _unpacked(packed: Array, bits: int, size: int) -> Array:
    """Return `size` unsigned values of bytes along their last axis, the first in the low bits."""
    shifts = np.arange(0, 8, bits)
    values = (packed[..., None].astype(np.int64) >> shifts) & ((1 << bits) - 1)
    return np.asarray(values.reshape(*packed.shape[:-1], -1)[..., :size])


def _blockwise(packed: Array, scales: Array, points: Array | None, settings: dict[str, int]) -> Array:
    """Return the float32 values of what is packed along the last axis, with a scale for each block of it."""
    bits, block = settings.get("bits", 4), settings["block_size"]
    count = packed.shape[-1] * (8 // bits)
    unpacked = 1 << (bits - 1) if points is None else _unpacked(points, bits, scales.shape[-1])
    zeros = np.broadcast_to(unpacked, scales.shape)

    def along(numbers: Array) -> Array:
        return np.repeat(numbers, block, axis=-1)[..., :count]

    return np.asarray((_unpacked(packed, bits, count) - along(zeros)).astype(np.float32) * along(scales))


def _settings(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


class MatMulNBits(OpRun):
    """Product with a packed weight; activations are not rounded, as with accuracy_level 0."""

    op_domain = MICROSOFT

    def _run(self, *given: Array | None, **attributes: Any) -> tuple[Array]:
        a, b, scales, points, _, bias = (*given, None, None, None)[:6]
        assert a is not None
        assert b is not None
        assert scales is not None
        settings = _settings(self.onnx_node)
        weight = _blockwise(b.reshape(b.shape[0], -1), scales, points, settings)[:, : settings["K"]]
        product = a.astype(np.float64) @ weight.T.astype(np.float64)
        return ((product + (0.0 if bias is None else bias)).astype(np.float32),)


class GatherBlockQuantized(OpRun):
    """Entries of a packed table along its first axis; blocks are those of its last."""

    op_domain = MICROSOFT

    def _run(self, *given: Array, **attributes: Any) -> tuple[Array]:
        data, indices, scales = given[:3]
        points = given[3] if len(given) > 3 else None
        return (_blockwise(data, scales, points, _settings(self.onnx_node))[indices],)


class DynamicQuantizeLSTM(OpRun):
    """LSTM with quantized weights, [directions, inputs, 4 * hidden], zero points 0."""

    op_domain = MICROSOFT

    def _run(self, *given: Array, **attributes: Any) -> tuple[Array, ...]:
        x, w, r, bias, lengths, hidden, cell, peepholes, w_scales, _, r_scales, _ = given
        settings = {a.name: helper.get_attribute_value(a) for a in self.onnx_node.attribute}
        results = run_lstm(
            x,
            LstmWeights(w.transpose(0, 2, 1), w_scales, r.transpose(0, 2, 1), r_scales, bias, peepholes),
            lengths,
            (hidden, cell),
            LstmSettings(
                direction=settings.get("direction", b"forward").decode(),
                activations=tuple(name.decode() for name in settings.get("activations", ())),
                clip=settings.get("clip", 0.0),
                input_forget=settings.get("input_forget", 0) == 1,
            ),
        )
        return results[: len(self.onnx_node.output)]


CONTRIB: list[type[OpRun]] = [
    *(
        _operator(op)
        for op, counterpart in QLINEAR.items()
        if counterpart.domain == MICROSOFT and op != "Gemm"
    ),
    QGemm,
    MatMulIntegerToFloat,
    NhwcMaxPool,
    MatMulNBits,
    GatherBlockQuantized,
    DynamicQuantizeLSTM,
]
"""Every operator of domain com.microsoft that form qoperator writes."""
