"""Form qoperator: operators with quantized inputs and outputs, and scales and zero points as further inputs.

QLinearConv and QLinearMatMul are standard ONNX. The others are onnxruntime's own, in domain com.microsoft:
QGemm, QLinearAdd, QLinearMul, QLinearAveragePool, QLinearGlobalAveragePool, QLinearConcat, QLinearWhere,
QLinearSoftmax, QLinearSigmoid (Tanh goes through it), QLinearLeakyRelu; for results in float
MatMulIntegerToFloat, and QGemm again. What these cannot take (16 bits, mixed types, alpha that is not 1, ...)
and operators without a QLinear counterpart stay between conversions; pass-through nodes work on integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import onnx_ir as ir

from ...numerics.affine import INT7, INT8
from ...operators.table import MICROSOFT, product_layout
from ...plan.plan import Implementation, Kind, QuantPlan
from ..emitter import Emitter, become, integer_type, new_value
from ..lower import write
from ..lowered import LoweredModel
from ..pass_through import channels_last, direct
from ..products import is_integer_product
from ..writers import Task, Writers, lookup_table, tanh_through_sigmoid
from . import qdq

MIN_SOFTMAX_SCALE = 1.0 / 256.0
"""With a smaller one onnxruntime 1.31 gives 0 to some of the largest probabilities: it wraps around."""


@dataclass(frozen=True)
class QLinear:
    """The QLinear counterpart of a float operator."""

    op_type: str
    inputs: tuple[str, ...]  # "0": value, scale, zero point; "*": of all inputs; "y": result; "=0": value
    domain: str = MICROSOFT
    neutral: Mapping[str, object] = field(default_factory=dict)  # unknown attributes -> harmless value
    further: Mapping[str, int] = field(default_factory=dict)  # attributes that only it has


QLINEAR: Mapping[str, QLinear] = {
    "Conv": QLinear("QLinearConv", ("0", "1", "y", "=2"), ""),
    "MatMul": QLinear("QLinearMatMul", ("0", "1", "y"), ""),
    "Gemm": QLinear("QGemm", ("0", "1", "=2", "y"), neutral={"beta": 1.0}),
    "Add": QLinear("QLinearAdd", ("0", "1", "y")),
    "Mul": QLinear("QLinearMul", ("0", "1", "y")),
    "AveragePool": QLinear("QLinearAveragePool", ("0", "y"), neutral={"dilations": 1}),
    "GlobalAveragePool": QLinear("QLinearGlobalAveragePool", ("0", "y"), further={"channels_last": 0}),
    "Concat": QLinear("QLinearConcat", ("y", "*")),
    "Where": QLinear("QLinearWhere", ("=0", "1", "2", "y")),
    "Softmax": QLinear("QLinearSoftmax", ("0", "y")),
    "Sigmoid": QLinear("QLinearSigmoid", ("0", "y")),
    "LeakyRelu": QLinear("QLinearLeakyRelu", ("0", "y")),
}
"""Float operator -> its QLinear counterpart."""


def qlinear(task: Task) -> bool:
    """Write the QLinear counterpart of the operator, else the operator on integers or between conversions."""
    counterpart = QLINEAR.get(task.node.op_type)
    if counterpart is None or not _takes(task, counterpart):
        return direct(task)
    node, emitter, result = task.node, task.emitter, task.result()
    attributes: dict[str, int | float | str | ir.Attr] = {
        name: attribute for name, attribute in node.attributes.items() if name not in counterpart.neutral
    }
    attributes.update(counterpart.further)
    if counterpart.op_type == "QLinearSoftmax":
        attributes["opset"] = task.opset
    if result is not None:
        name = emitter.name(node.outputs[0])
        output = new_value(f"{name}_quantized", integer_type(result), node.outputs[0])
        inputs = _inputs(task, counterpart.inputs)
        domain = counterpart.domain
        quantized = emitter.add(counterpart.op_type, inputs, output, node, attributes, domain=domain)
        emitter.store(node.outputs[0], quantized, result)
        return True
    # A float result: QGemm without its parameters; of MatMul onnxruntime has another operator.
    if counterpart.op_type == "QGemm":
        become(node, "QGemm", _inputs(task, counterpart.inputs[:-1]), attributes, MICROSOFT)
    else:
        (a, a_scale, a_zero), (b, b_scale, b_zero) = _values_and_params(task, 0), _values_and_params(task, 1)
        inputs = [a, b, a_scale, b_scale, a_zero, b_zero]
        become(node, "MatMulIntegerToFloat", inputs, attributes, MICROSOFT)
    return False


def _takes(task: Task, counterpart: QLinear) -> bool:
    """Return whether the counterpart takes the types, parameters and attributes of a node."""
    node, result = task.node, task.result()
    for name, neutral in counterpart.neutral.items():
        value = node.attributes[name].value if name in node.attributes else neutral
        if any(v != neutral for v in (value if isinstance(value, list | tuple) else (value,))):
            return False
    if "*" in counterpart.inputs:
        data = [task.params(index) for index in range(len(node.inputs))]
    else:
        data = [task.params(int(token)) for token in counterpart.inputs if token.isdigit()]
    if None in data:
        return False
    all_params = [params for params in (*data, result) if params is not None]
    if product_layout(node) is not None:
        weight = all_params.pop(1)
        if not is_integer_product(task) or weight.qtype not in (INT7, INT8, all_params[0].qtype):
            return False
        if node.op_type == "Conv" and result is None:
            return False
        if node.op_type == "Gemm" and not _bias_is_a_row(task):
            return False
    elif result is None or (node.op_type == "Softmax" and (result.scale < MIN_SOFTMAX_SCALE).any()):
        return False
    qtype = all_params[0].qtype
    return qtype.bits == 8 and all(p.qtype == qtype and p.axis is None for p in all_params)


def _bias_is_a_row(task: Task) -> bool:
    """Return whether QGemm takes the bias: one number for each column."""
    value = task.node.inputs[2] if len(task.node.inputs) > 2 else None
    if value is None:
        return True
    weight = task.node.inputs[1]
    if value.shape is None or weight is None or weight.shape is None:
        return False
    columns = weight.shape[0 if task.node.attributes.get_int("transB", 0) == 1 else 1]
    return tuple(value.shape) in ((columns,), (1, columns))


def _inputs(task: Task, tokens: Sequence[str]) -> list[ir.Value | None]:
    """Return the inputs of a counterpart, given as in `QLinear.inputs`."""
    node, emitter, inputs = task.node, task.emitter, list[ir.Value | None]()
    for token in tokens:
        if token == "y":
            result = task.result()
            assert result is not None
            inputs.extend(emitter.param_values(emitter.name(node.outputs[0]), result))
        elif token == "*":
            for index in range(len(node.inputs)):
                inputs.extend(_values_and_params(task, index))
        elif not token.startswith("="):
            inputs.extend(_values_and_params(task, int(token)))
        else:
            index = int(token[1:])
            value = node.inputs[index] if index < len(node.inputs) else None
            params = None if value is None else task.params(index)
            if value is None or params is None:
                inputs.append(None if value is None else emitter.floating(value, node))
            else:
                inputs.append(emitter.quantized(value, params, node))
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def _values_and_params(task: Task, index: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the quantized values of an input, their scale and their zero point."""
    value, params = task.node.inputs[index], task.params(index)
    assert value is not None
    assert params is not None
    scale, zero_point = task.emitter.param_values(task.emitter.name(value), params)
    return task.emitter.quantized(value, params, task.node), scale, zero_point


def _sigmoid(task: Task) -> bool:
    return qlinear(task) if task.node.op_type == "Sigmoid" else tanh_through_sigmoid(task)


WRITERS: Writers = {
    **qdq.WRITERS,
    (Kind.QUANTIZED, Implementation.USUAL): qlinear,
    (Kind.QUANTIZED, Implementation.INTEGER): direct,
    (Kind.PASS_THROUGH, Implementation.USUAL): direct,
    (Kind.PASS_THROUGH, Implementation.INTEGER): direct,
    (Kind.PASS_THROUGH, Implementation.LEAKY_RELU): direct,
    (Kind.PASS_THROUGH, Implementation.CHANNELS_LAST): partial(channels_last, otherwise=direct),
    (Kind.LOOKUP_TABLE, Implementation.USUAL): qlinear,
    (Kind.LOOKUP_TABLE, Implementation.RUNTIME): qlinear,
    (Kind.LOOKUP_TABLE, Implementation.SIGMOID): _sigmoid,
    (Kind.LOOKUP_TABLE, Implementation.PORTABLE): lookup_table,
}
"""Every way to write a node: those of form qdq, but for these."""


def lower_model(model: ir.Model, plan: QuantPlan) -> LoweredModel:
    """Return the model that `plan` describes in form qoperator; see `lower`."""
    return write(model, plan, "qoperator", WRITERS, Emitter)
