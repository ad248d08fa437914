"""Form qdq: standard ONNX, integers spelled as DequantizeLinear -> operator -> QuantizeLinear.

What a reader of the format executes is up to it: onnxruntime, OpenVINO and TensorRT look for this pattern and
put an integer kernel in its place; a plain evaluator computes the same in float. What becomes of each kind
of node, with `codes` for a tensor's integers:

============  =========  ===============================================================================
kind          spelling   written as
============  =========  ===============================================================================
INTEGER       ""         DequantizeLinear for each input with parameters, the operator, QuantizeLinear
                         for each output with parameters
MOVE          ""         the same; but a Relu or Clip that changes no code is left out
MOVE          codes      the operator directly on codes (unsigned, see `spellings`); Relu and Clip as Clip
                         with bounds in codes, Pad with its value in codes. Also for INTEGER Max and Min
MOVE          leaky      Relu (or Clip from 0) as LeakyRelu with slope 0 between conversions: onnxruntime has
                         an integer kernel of LeakyRelu only
TABLE         runtime    as INTEGER; for runtimes that make the table themselves
TABLE         sigmoid    Tanh as 2 sigmoid(2x) - 1: codes read with twice their scale, Sigmoid, QuantizeLinear
                         with scale 1/256 and zero point 0. The same codes are tanh in 128ths, uint8
TABLE         portable   Cast to int32 (unsigned), Gather from a constant table: exact everywhere, slow in
                         onnxruntime
WEIGHT_ONLY   ""         DequantizeLinear for constants with parameters, the operator in float
FLOAT         ""         as it was, reading real numbers
============  =========  ===============================================================================

What onnxruntime 1.31 makes of it on x86-64 (opset 13 to 23, found by experiment). Integer kernels: Conv (its
output must be in codes), Gemm with alpha = beta = 1, MatMul (both also with float output), Add, Mul, Concat,
Where, AveragePool, GlobalAveragePool, Softmax, Sigmoid, LeakyRelu. On codes where input and output have equal
parameters: MaxPool, ReduceMax, ReduceMin, Reshape, Flatten, Transpose, Squeeze, Unsqueeze, Slice, Gather,
GatherElements, Split, Expand, Tile, DepthToSpace, Resize (nearest); ArgMax. Float between conversions:
ConvTranspose, Sub, Div, Max, Min, Pad, Tanh, HardSigmoid, HardSwish, Gelu, Erf, Exp, ReduceMean, ReduceSum,
Resize (linear), GlobalMaxPool, GatherND, SpaceToDepth, Relu and Clip that saturation does not cover, 16 bits.
The constant operand of Add, Mul, Concat, Where, and a constant first operand of MatMul, must be uint8. An
int8 activation with two readers, or that is a graph output too, makes its neighbours float there: x86-64
wants uint8 activations (or the session option session.qdqisint8allowed = 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from ...profiles.errors import PlanError
from ..plan import Kind, QuantPlan
from . import Lowered
from .emitter import Emitter
from .spellings import (
    Task,
    between_conversions,
    float_node,
    leaky_relu,
    move,
    on_codes,
    portable_table,
    tanh_through_sigmoid,
    weight_only,
)

OLDEST_OPSET = 13
"""The first with an axis in QuantizeLinear."""
WIDE_OPSET, WIDE_IR_VERSION = 21, 10
"""The first with 16-bit, 4-bit and blocked codes in QuantizeLinear."""

Writer = Callable[[Task], bool]
"""Writes one node; whether the node itself is no longer needed."""


def lower_qdq(model: ir.Model, plan: QuantPlan) -> Lowered:
    """Return the model that `plan` describes in form qdq; see `lower`.

    Raises:
        PlanError: the plan has no entry for a node, or something in it that cannot be written.
    """
    opset = model.opset_imports.get("", 0)
    if opset < OLDEST_OPSET:
        raise PlanError(f"form qdq: the model has opset {opset}; raise it to {OLDEST_OPSET} or later first")
    model = model.clone()
    graph = model.graph
    emitter = Emitter(graph)
    replaced = []
    for node in list(graph):
        if (node.name or "") not in plan.nodes:
            raise PlanError(
                f"node '{node.name}': the plan has no entry for it; make a new plan for this model"
            )
        task = Task(node, plan.nodes[node.name or ""], plan.tensors, emitter, opset)
        if _writer(task)(task):
            replaced.append(node)
    for index, value in enumerate(graph.outputs):
        graph.outputs[index] = emitter.real(value, None)
    for node in reversed(replaced):
        graph.remove(node, safe=True)
    emitter.drop_unused()
    if opset < WIDE_OPSET and any(p.qtype.bits in (4, 16) or p.block for p in plan.tensors.values()):
        return Lowered(
            _raised(model, WIDE_OPSET), (f"opset raised from {opset} to {WIDE_OPSET} for its wider codes",)
        )
    return Lowered(model)


def _writer(task: Task) -> Writer:
    kind, spelling = task.entry.kind, task.entry.spelling
    if (kind, spelling) not in _WRITERS:
        how = f" with spelling '{spelling}'" if spelling else ""
        raise task.error(f"{kind}{how} is not written yet in form qdq; plan this node otherwise")
    return _WRITERS[kind, spelling]


def _raised(model: ir.Model, opset: int) -> ir.Model:
    """Return the model in a later opset."""
    import onnx.version_converter

    proto = ir.to_proto(model)
    try:
        raised = ir.from_proto(onnx.version_converter.convert_version(proto, opset))
    except RuntimeError as error:
        raise PlanError(
            f"form qdq: these codes need opset {opset}, and the model cannot be raised to it ({error}); "
            "export it again in that opset, or use 8-bit types"
        ) from error
    raised.ir_version = max(raised.ir_version, WIDE_IR_VERSION)
    return raised


_WRITERS: Mapping[tuple[Kind, str], Writer] = {
    (Kind.INTEGER, ""): between_conversions,
    (Kind.INTEGER, "codes"): on_codes,
    (Kind.MOVE, ""): move,
    (Kind.MOVE, "codes"): on_codes,
    (Kind.MOVE, "leaky"): leaky_relu,
    (Kind.TABLE, ""): between_conversions,
    (Kind.TABLE, "runtime"): between_conversions,
    (Kind.TABLE, "sigmoid"): tanh_through_sigmoid,
    (Kind.TABLE, "portable"): portable_table,
    (Kind.WEIGHT_ONLY, ""): weight_only,
    (Kind.FLOAT, ""): float_node,
}
"""Every way to write a node, by kind and spelling."""
