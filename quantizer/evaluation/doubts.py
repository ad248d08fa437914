"""Doubts about a pair of models: signs that they are not a float model and its quantized form, by a model's
own provenance first."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.tool import tool_name
from ..model.editing import is_standard
from ..model.external_data import FEW_BIT_FLOATS
from ..model.graph import constant_of
from ..model.identity import model_id
from ..operators.pair_sums import saturates
from ..operators.table import CONVERSIONS, is_clip
from ..operators.weight_layout import CONV, GEMM, MATMUL, WeightLayout
from ..plan.plan import QuantPlan
from ..plan.provenance import Provenance, model_fingerprint, plan_digest, read_provenance
from ..prepare.prepare import ModelFile, is_instrumented, nodes_said_to_be_quantized
from .cost import Cost
from .runtimes import DROPS_RELU, ROUNDS_BIAS

_QUANTIZED_PREFIXES = ("qlinear", "qgemm", "qattention", "qembed", "qordered", "qmoe")
_QUANTIZED_WORDS = ("quantize", "integer", "nbits")


def is_quantized(file: ModelFile) -> bool:
    """Return whether a model has quantized nodes, or says so."""
    return has_quantized_nodes(file.model) or bool(nodes_said_to_be_quantized(file.model))


def has_quantized_nodes(model: ir.Model) -> bool:
    """Return whether an operator of the model, its subgraphs and functions has quantized values."""
    nodes = chain(model.graph.all_nodes(), *(f.all_nodes() for f in model.functions.values()))
    names = {node.op_type.lower() for node in nodes}
    return any(
        name.startswith(_QUANTIZED_PREFIXES) or any(word in name for word in _QUANTIZED_WORDS)
        for name in names
    )


def check_not_instrumented(*files: ModelFile) -> None:
    """Raise ModelError for a model with profiling nodes: it computes statistics besides its outputs."""
    for file in files:
        if is_instrumented(file.model):
            raise ModelError(
                f"{file.name}: this model is instrumented: it profiles its activations; give the original "
                "model"
            )


def doubts(floats: ModelFile, quantized: ModelFile) -> tuple[Finding, ...]:
    """Return the signs that the first model is not float, or the second not its quantized form."""
    first, second = floats.name, quantized.name
    first_is, second_is = is_quantized(floats), is_quantized(quantized)
    if first_is and not second_is:
        sentence = f"{first} is quantized and {second} is not: they look swapped"
        return (Finding(Code.SWAPPED_MODELS, sentence, first, remedy="give the float model first"),)
    found = []
    own, provenance = read_provenance(floats.model), read_provenance(quantized.model)
    if own is not None:
        sentence = f"{first} is a quantized model itself, written by {own.tool}"
        found.append(Finding(Code.FLOAT_IS_QUANTIZED, sentence, first, remedy="give the float model first"))
    elif provenance is not None:
        made_from = provenance.float_model
        try:
            actual = model_fingerprint(floats.prepared.identity)
            if actual != made_from and _same_structure(actual, made_from):
                sentence = (
                    f"{second} was made from another float model than {first} (other "
                    f"weights{_other_tool(provenance)})"
                )
                remedy = "give the model that was quantized"
                found.append(Finding(Code.OTHER_FLOAT_MODEL, sentence, first, remedy=remedy))
        except ModelError as error:
            sentence = f"{second} cannot have been made from {first}: {error}"
            found.append(Finding(Code.OTHER_FLOAT_MODEL, sentence, first))
    if not second_is:
        same = not first_is and model_id(floats.model, "") == model_id(quantized.model, "")
        sentence = f"{second} is the float model {first} again" if same else f"{second}: no node is quantized"
        remedy = "did you mean the model that you quantized?"
        found.append(Finding(Code.NOTHING_QUANTIZED, sentence, second, remedy=remedy))
    if quantized.bytes > floats.bytes:
        found.append(Cost(floats.bytes, quantized.bytes).larger(second, "see which nodes are quantized"))
    return tuple(found)


def other_graph(floats: ModelFile, quantized: ModelFile) -> tuple[Finding, ...]:
    """Return a finding if the quantized model's own metadata name another graph; that is no doubt."""
    provenance = read_provenance(quantized.model)
    if provenance is None or read_provenance(floats.model) is not None:
        return ()
    try:
        actual = model_fingerprint(floats.prepared.identity)
    except ModelError:  # it is in the doubts
        return ()
    if _same_structure(actual, provenance.float_model):
        return ()
    sentence = (
        f"{quantized.name} was made from another graph than that of {floats.name} (nodes renamed, exported "
        f"anew{_other_tool(provenance)}); the figures apply to these two files"
    )
    return (Finding(Code.OTHER_GRAPH, sentence, quantized.name),)


def _same_structure(one: str, other: str) -> bool:
    """Whether two fingerprints of models have the same structure."""
    return one.partition("-")[0] == other.partition("-")[0]


def _other_tool(provenance: Provenance) -> str:
    return "" if provenance.tool == tool_name() else f", or prepared differently by {provenance.tool}"


def other_plan(plan: QuantPlan, quantized: ModelFile) -> tuple[Finding, ...]:
    """Return a finding if the quantized model names another plan as its origin."""
    provenance = read_provenance(quantized.model)
    if provenance is None or not provenance.plan or provenance.plan == plan_digest(plan):
        return ()
    sentence = f"{quantized.name} was written by another plan than the one given"
    return (Finding(Code.OTHER_PLAN, sentence, quantized.name, remedy="give the plan of this model"),)


def clip_doubts(quantized: ir.Model) -> tuple[Finding, ...]:
    """Return a finding if onnxruntime's default level leaves out a Relu or Clip before floats of few bits."""
    makers = [
        (node.inputs[0].producer(), node.inputs[2].dtype)
        for node in quantized.graph.all_nodes()
        if is_standard(node, *CONVERSIONS)
        and len(node.inputs) > 2
        and node.inputs[0] is not None
        and node.inputs[2] is not None
    ]
    clips = {maker for maker, dtype in makers if maker is not None and dtype in FEW_BIT_FLOATS}
    count = sum(is_clip(node) for node in clips)
    if not count:
        return ()
    sentence = (
        f"{count} Relu or Clip before floats of few bits: onnxruntime wrongly drops them, or does not load "
        "the model; the measurements here include them"
    )
    names = ";".join((*DROPS_RELU, ROUNDS_BIAS))
    remedy = f"set optimization.disable_specified_optimizers to {names} there, or use --target onnx"
    return (Finding(Code.CLIP_LEFT_OUT, sentence, figures={"nodes": count}, remedy=remedy),)


LSTM_WEIGHT = WeightLayout(1, output_axis=2, input_axis=1)
"""[directions, inputs or hidden, gates]: the weights of DynamicQuantizeLSTM"""

_PRODUCTS: Mapping[str, tuple[int, tuple[WeightLayout, ...]]] = {
    "MatMulInteger": (1, (MATMUL,)),
    "MatMulIntegerToFloat": (1, (MATMUL,)),
    "DynamicQuantizeMatMul": (1, (MATMUL,)),
    "QLinearMatMul": (3, (MATMUL,)),
    "QGemm": (3, (GEMM,)),
    "QLinearConv": (3, (CONV,)),
    "DynamicQuantizeLSTM": (1, (LSTM_WEIGHT, LSTM_WEIGHT)),
    "MatMul": (1, (MATMUL,)),
    "Gemm": (1, (GEMM,)),
    "Conv": (1, (CONV,)),
}
"""The first weight of the products that add two of uint8 and int8 in 16 bits on x86-64 without VNNI, and the
layouts of all. The last three do if they read dequantized integers. ConvInteger adds in 32 bits."""


def saturating_nodes(quantized: ir.Model) -> tuple[str, ...]:
    """Return the names of products whose int8 weights can saturate 16 bits, see `operators.pair_sums`."""
    found = []
    for node in quantized.graph.all_nodes():
        first, layouts = _PRODUCTS.get(node.op_type, (0, ()))
        is_float = is_standard(node, "MatMul", "Gemm", "Conv")
        if is_float and not _reads_integers(node):
            continue
        for index, layout in enumerate(layouts, first):
            value = node.inputs[index] if index < len(node.inputs) else None
            producer = value.producer() if is_float and value is not None else None
            codes = constant_of(value if producer is None else producer.inputs[0])
            if codes is None or codes.dtype != np.int8:
                continue
            if saturates(codes, layout.axes(node, codes.shape), layout):
                found.append(node.name or node.outputs[0].name or node.op_type)
                break
    return tuple(found)


def _reads_integers(node: ir.Node) -> bool:
    """Whether data and weight of a float product are dequantized, so that a runtime multiplies integers."""
    makers = [None if value is None else value.producer() for value in node.inputs[:2]]
    data, weight = (maker is not None and is_standard(maker, "DequantizeLinear") for maker in makers)
    return data and weight and constant_of(makers[0].inputs[0] if makers[0] else None) is None


def saturation_doubts(quantized: ir.Model) -> tuple[Finding, ...]:
    """Return a finding if products of a model can saturate on a processor of x86-64 without VNNI."""
    nodes = saturating_nodes(quantized)
    if not nodes:
        return ()
    others = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    sentence = (
        f"int8 weights of '{nodes[0]}'{others} can saturate here: this processor has no VNNI and adds two "
        "products in 16 bits, so the figures are worse than with VNNI"
    )
    remedy = "quantize with target onnxruntime-x86, whose weights never saturate, or with reduce_range"
    return (Finding(Code.SATURATING_KERNELS, sentence, nodes[0], {"nodes": len(nodes)}, remedy),)
