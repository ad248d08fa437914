"""Nodes that compute on real numbers, but keep their weights in codes: dynamic and weight-only ones. Pure.

What the selection left in float is looked at once more, in this order:

1. A large constant table that nodes only read entries from is stored in codes, in every mode: each entry has
   a scale of its own, and what was read is made float. That costs no time worth measuring.
2. Modes "dynamic" and "auto": a product whose kernel can find the parameters of its activations at run time
   becomes `Kind.DYNAMIC`. In "auto" only where the noise of the codes, reckoned for the smallest and largest
   value of all samples, leaves `DYNAMIC_SQNR`: one sample spans no more than all do, so this is the worst.
   An LSTM becomes dynamic in mode "static" too, where `AUTO_SQNR` is left: no static codes are known for it,
   and it loses next to nothing (Silero VAD: 46 dB, and 1.2 times as fast with it).
3. Mode "weight-only": any operator that the target can give a constant in codes becomes
   `Kind.WEIGHT_ONLY`; in modes "dynamic" and "auto" those whose kernel computes on the codes, since the
   others pay for the smaller file with time.

Each entry has its figures as the reason. Weights whose own codes leave too little signal stay float.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.records.profile import Profile
from ..model.graph import Graph, input_name
from ..numerics.affine import INT7, INT8, TYPES, QuantParams, QuantType
from ..numerics.quantization_noise import expected_noise, weight_sqnr
from ..numerics.schemas import SCHEMAS, block_params, channel_params, span_params
from ..operators.operands import match_nodes, name_of
from ..operators.table import Rule, rule_of
from ..operators.weight_layout import WeightLayout
from ..plan.plan import RUNTIME_FORMS, Kind
from ..targets.config import AUTO_SQNR, QuantConfig
from ..targets.target import FEW_BITS, Target
from .candidates import Choice, Limits

LEAST_WEIGHT = 1024
"""Elements of a weight below which codes save less than they add to the file."""
LEAST_RECURRENT = 16384
"""Elements of both weights of an LSTM from which it is dynamic unasked. Measured with onnxruntime 1.31 on
AVX512-VNNI, one thread: 0.9 times float's speed at 8,192 elements, 1.5 at 32,768, 2.0 at 131,072, 2.9 at
524,288; for one sequence and for eight at once."""
LEAST_TABLE = 16384
"""The same for tables that are in codes whatever the mode."""
LEAST_ROW = 8
"""Elements of a table's entry below which the scale of each is no small part of it."""
TABLE_SQNR = 35.0
"""Signal over noise (dB) that the codes of a table must leave, where no limit was asked for."""
DYNAMIC_SQNR = 10.0
"""Signal over noise (dB) below which even codes made at run time are too coarse for mode auto."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Hybrid:
    """A node that keeps its constants in codes and its activations in float.

    Attributes:
        choice: kind, figures and implementation.
        inputs: parameters of the constants, by input index.
    """

    choice: Choice
    inputs: Mapping[int, QuantParams]


def all_float(graph: Graph, config: QuantConfig, target: Target) -> dict[str, Choice]:
    """Return the choices of a mode without static codes, by node name in graph order."""
    choices = {}
    for node in graph.nodes:
        rule = rule_of(node)
        reason = f"mode {config.mode}: only nodes with a large constant weight change"
        is_product = rule is not None and bool(rule.constants) and not rule.is_lookup
        if is_product and config.mode == "dynamic" and node.op_type not in target.dynamic:
            reason = f"{target.name} has no kernel of {node.op_type} with parameters made at run time"
        choices[name_of(node)] = Choice(Kind.FLOAT, reason, rule)
    return choices


def find_hybrids(
    graph: Graph, choices: Mapping[str, Choice], limits: Limits, config: QuantConfig
) -> dict[str, Hybrid]:
    """Return the nodes that become dynamic or weight-only, by node name in graph order.

    A recurrent node that only its kind or its size keeps float is among them, with that as the reason.

    Args:
        graph: the prepared model.
        choices: what was selected so far.
        limits: what bounds the choice.
        config: what was asked for.

    Raises:
        ConfigError: a pattern of `keep_float` names nothing in the model.
    """
    kept = match_nodes(graph, limits.keep_float)
    found: dict[str, Hybrid] = {}
    for node in graph.nodes:
        choice = choices[name_of(node)]
        rule = choice.rule
        if choice.kind is not Kind.FLOAT or rule is None or name_of(node) in kept:
            continue
        hybrid = _table(node, rule, graph, limits, config) if rule.stored else None
        why_not = ""
        if hybrid is None and _may_be_dynamic(node, rule, limits, config):
            why_not = _unfit_recurrent(node, rule, graph, config) if rule.stored else ""
            hybrid = None if why_not else _dynamic(node, choice, graph, limits, config)
        if hybrid is None and config.mode != "static":
            hybrid = _weight_only(node, choice, graph, limits, config)
        if hybrid is not None:
            found[name_of(node)] = hybrid
        elif why_not:
            found[name_of(node)] = Hybrid(replace(choice, reason=why_not), {})
    return found


def _table(node: ir.Node, rule: Rule, graph: Graph, limits: Limits, config: QuantConfig) -> Hybrid | None:
    """Return a node that reads entries of a constant table, None for any other."""
    if node.op_type != "Gather" or "int8" not in limits.target.weight_only.get("Gather", ()):
        return None
    (weight,) = rule.stored
    name = input_name(node, weight.index)
    table = _large(graph, name, LEAST_TABLE)
    axis = None if table is None else weight.axis(node, table.ndim)
    if table is None or axis is None or table.size < LEAST_ROW * table.shape[axis]:
        return None
    # A reader of another kind would keep the float table in the file, beside the codes.
    readers = graph.consumers(name)
    if any(
        r.op_type != "Gather" or i != weight.index or weight.axis(r, table.ndim) != axis for r, i in readers
    ):
        return None
    params = channel_params(table, axis, SCHEMAS["symmetric"], INT8)
    sqnr = weight_sqnr(table, params)
    if sqnr < (config.min_sqnr or TABLE_SQNR):
        return None
    reason = f"table {_shape(table)} in int8, a scale for each entry: {sqnr:.1f} dB"
    return Hybrid(Choice(Kind.WEIGHT_ONLY, reason, rule, "integer"), {weight.index: params})


def _may_be_dynamic(node: ir.Node, rule: Rule, limits: Limits, config: QuantConfig) -> bool:
    """Whether the target has the kernel, and the mode asks for it; a recurrent node has no other codes."""
    if node.op_type not in limits.target.dynamic or (rule.stored and name_of(node) in limits.loud):
        return False
    return config.mode in ("dynamic", "auto") or (config.mode == "static" and bool(rule.stored))


def _unfit_recurrent(node: ir.Node, rule: Rule, graph: Graph, config: QuantConfig) -> str:
    """Return why a recurrent node cannot be dynamic or would gain nothing; "" when it can and would."""
    if config.form not in RUNTIME_FORMS:
        return f"form {config.form} has no operator for a dynamic {node.op_type}; {RUNTIME_FORMS[0]} has"
    arrays = [graph.constant(input_name(node, weight.index)) for weight in rule.stored]
    size = sum(array.size for array in arrays if array is not None)
    if not rule.refusal(node, graph) and config.mode != "dynamic" and size < LEAST_RECURRENT:
        return f"its weights have {size} elements; below {LEAST_RECURRENT} float is as fast"
    return rule.refusal(node, graph)


def _dynamic(
    node: ir.Node, choice: Choice, graph: Graph, limits: Limits, config: QuantConfig
) -> Hybrid | None:
    rule = choice.rule
    if rule is None or rule.refusal(node, graph):
        return None
    data = input_name(node, 0)
    weights = {w.index: _large(graph, input_name(node, w.index), 1) for w in rule.constants}
    arrays = {index: array for index, array in weights.items() if array is not None}
    if len(arrays) < len(weights) or sum(array.size for array in arrays.values()) < LEAST_WEIGHT:
        return None
    if graph.constant(data) is not None or graph.dtype(data) != ir.DataType.FLOAT:
        return None
    figure, made = "", _made_at_run_time(node, rule)
    if config.mode != "dynamic" and all(name in limits.profile for name in made):
        sqnr = min(_span_sqnr(limits.profile, name) for name in made)
        if sqnr < (DYNAMIC_SQNR if config.mode == "auto" else AUTO_SQNR):
            return None
        told = " and ".join(f"'{name}'" for name in made)
        figure = f"; parameters of {told} at run time: {sqnr:.1f} dB or more"
    inputs: dict[int, QuantParams] = {}
    for weight in rule.constants:
        array = arrays[weight.index]
        axis = weight.axis(node, array.ndim) if config.granularity == "per-channel" else None
        inputs[weight.index] = channel_params(array, axis, SCHEMAS["symmetric"], _signed_type(limits.target))
    sqnr = min(weight_sqnr(arrays[index], params) for index, params in inputs.items())
    if sqnr < _least_sqnr(config):
        return None
    why = f"{choice.reason}; " if config.mode == "auto" else ""
    what = " and ".join(_shape(array) for array in arrays.values())
    reason = f"{why}weight {what} in int8: {sqnr:.1f} dB{figure}"
    return Hybrid(Choice(Kind.DYNAMIC, reason, rule, "runtime" if rule.stored else ""), inputs)


def _made_at_run_time(node: ir.Node, rule: Rule) -> list[str]:
    """Return the activations whose parameters a dynamic node makes; of a recurrent one its result too."""
    names = [input_name(node, 0)]
    if rule.weight is None and node.outputs[0].name:
        names.append(node.outputs[0].name)
    return names


def _weight_only(
    node: ir.Node, choice: Choice, graph: Graph, limits: Limits, config: QuantConfig
) -> Hybrid | None:
    rule = choice.rule
    types = limits.target.weight_only.get(node.op_type, ())
    pays = config.mode == "weight-only" or node.op_type in limits.target.weight_kernels
    if rule is None or not types or not pays or rule.is_lookup:
        return None
    inputs: dict[int, QuantParams] = {}
    told = []
    for weight in rule.constants:
        array = _large(graph, input_name(node, weight.index), LEAST_WEIGHT)
        if array is None:
            continue
        params = _weight_params(array, node, weight, limits.target, config)
        sqnr = weight_sqnr(array, params)
        if sqnr >= _least_sqnr(config):
            inputs[weight.index] = params
            blocks = f" in blocks of {params.block_size}" if params.block_size else ""
            told.append(f"weight {_shape(array)} in {params.qtype.name}{blocks}: {sqnr:.1f} dB")
    if not inputs:
        return None
    reason = "; ".join([*([choice.reason] if config.mode == "auto" else []), *told])
    return Hybrid(Choice(Kind.WEIGHT_ONLY, reason, rule), inputs)


def _weight_params(
    array: Floats, node: ir.Node, weight: WeightLayout, target: Target, config: QuantConfig
) -> QuantParams:
    """Return the parameters of a constant: blocks where they fit, else a scale for each channel or one.

    Signed codes of 8 bits stand in where the target has not the type that was asked for, and where 4 bits
    would have to do with one scale for a channel.
    """
    types = target.weight_only[node.op_type]
    schema, qtype = SCHEMAS[config.weight_schema], TYPES[config.weight_type]
    axis = weight.axis(node, array.ndim)
    summed = weight.summed_axis(node, array.ndim)
    blocks = bool(config.block_size) and summed is not None and array.shape[summed] % config.block_size == 0
    if qtype.storage in types and blocks and summed is not None:
        return block_params(array, summed, config.block_size, schema, qtype)
    if qtype.storage not in types or config.weight_type in FEW_BITS or config.block_size:
        schema, qtype = SCHEMAS["symmetric"], _signed_type(target)
    return channel_params(array, axis if config.granularity == "per-channel" else None, schema, qtype)


def _signed_type(target: Target) -> QuantType:
    """Return the signed type of 8 bits, or of the 7 that a target's products can sum."""
    return INT8 if "int8" in target.weight_types else INT7


def _least_sqnr(config: QuantConfig) -> float:
    return config.min_sqnr or (AUTO_SQNR if config.mode in ("static", "auto") else 0.0)


def _span_sqnr(profile: Profile, name: str) -> float:
    tensor = profile[name]
    if tensor.count == 0:
        return math.inf
    return expected_noise(tensor, span_params(tensor.minimum, tensor.maximum)).sqnr_db


def _large(graph: Graph, name: str, least: int) -> Floats | None:
    """Return a constant that is worth codes: float32, finite, large, and read by nodes alone."""
    if not graph.is_constant(name) or graph.is_result(name) or any(i < 0 for _, i in graph.consumers(name)):
        return None
    array = graph.constant(name)
    if array is None or array.dtype != np.float32 or array.size < least or not np.isfinite(array).all():
        return None
    return array.astype(np.float32, copy=False)


def _shape(array: Floats) -> str:
    return " x ".join(map(str, array.shape))
