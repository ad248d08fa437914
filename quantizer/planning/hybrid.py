"""Nodes that compute in float, or nearly, and keep their weights quantized: dynamic and weight-only. Pure.

What the selection left in float is looked at once more, in this order:

1. A large embedding table that nodes only read entries from is quantized in every mode: each entry has a
   scale of its own, and what was read is dequantized. That costs no time worth measuring. Tables whose
   entries turn activations, the cosines and sines of rotary positions, are no embeddings.
2. Modes "dynamic" and "auto": a product whose kernel can compute the parameters of its activations at run
   time becomes `Kind.DYNAMIC`. In "auto" only where the quantization noise, estimated for the smallest and
   largest value of all samples, leaves `DYNAMIC_SQNR`: one sample spans no more than all do, so this is the
   worst. A kernel that is slower than float is used in mode "dynamic" with `cost_model` off alone. An LSTM
   becomes dynamic in mode "static" too, where `AUTO_SQNR` is left: there is no static kernel for it, and it
   loses next to nothing (Silero VAD: 46 dB, and 1.2 times as fast with it).
3. Mode "weight-only": any operator that the target can give a quantized constant becomes
   `Kind.WEIGHT_ONLY`, with 8 bits instead of 4 where a profile shows that an output would be below its
   limit of noise otherwise, and where `size_budget` has room for them; in mode "dynamic" those whose kernel
   computes with the quantized weight.
4. Modes "static" and "auto": what is float in the end has int8 weights where the runtime dequantizes these
   when it loads the model, and where the noise budget allows (`noise_budget.plan_with_int8_weights`).

Each entry has its figures as a remark. Weights that would keep too low an SQNR stay float.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..noise.value_paths import upstream
from ..numerics.affine import INT8, QuantParams, quantize
from ..numerics.block_scales import channel_params_and_sqnr
from ..numerics.quantization_noise import expected_noise, weight_sqnr
from ..numerics.schemas import channel_params, dynamic_params
from ..operators.facts import Arithmetic, KernelSizes
from ..operators.graph import Graph, Node
from ..operators.sub_pixel import MOST_IN_FLOAT32, largest_sum, sub_pixel_refusal
from ..operators.table import DEQUANTIZE, Rule
from ..plan.plan import ROUNDS_IN_KERNEL, RUNTIME_WEIGHTS, SUB_PIXEL, Kind, NodePlan, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..prepare.constant_folding import bytes_computed_from
from ..targets.config import AUTO_SQNR, DATA_FREE, QuantConfig
from ..targets.forms import FORMS, RUNTIME_FORMS
from .candidates import Choice
from .facts import PlanningFacts
from .size_budget import LEAST_TABLE
from .stored_weights import WeightStorage, signed_type, symmetric_schema, table_params

LEAST_WEIGHT = 1024
"""Fewest elements of a weight that is quantized. The two nodes that dequantize it and the names of its
parameters are about 500 bytes of the file and are loaded too; a smaller one saves less than 3 kB."""
LEAST_RECURRENT = 16384
"""Elements of both weights of an LSTM from which it is dynamic unasked. Measured with onnxruntime 1.31 on
AVX512-VNNI, one thread: 0.9 times float's speed at 8,192 elements, 1.5 at 32,768, 2.0 at 131,072, 2.9 at
524,288; for one sequence and for eight at once."""
KERNELS_OF_A_TABLE = 3
"""Nodes that a quantized table adds: its scales are read, the entries cast and multiplied."""
MOST_FOR_A_TABLE = 0.02
"""Part of float's time that these may take: an embedding with an MLP of 64 to 256 took 1.2 to 1.3 times as
long as float with them, all else in float; of minilm they take 0.2 % (DECISIONS.md, 29)."""
LEAST_ROW = 8
"""Fewest elements for each scale of an embedding table or of the weight of a float node: with fewer the
scales are a noticeable part of the size."""
LONGEST = 8
"""Most nodes that move the entries of a table before they are used."""
TABLE_SQNR = 35.0
"""SQNR (dB) that an embedding table must keep, where no limit was asked for."""
EIGHT_BITS = 8
"""Bits of the weights of a node that has too much noise with fewer (mixed precision, in mode weight-only)."""
DYNAMIC_SQNR = 10.0
"""SQNR (dB) below which even dynamic quantization is too coarse for mode auto."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Hybrid:
    """A node that keeps its constants quantized and its activations in float.

    Attributes:
        choice: kind, figures and implementation.
        inputs: parameters of the constants, by input index.
    """

    choice: Choice
    inputs: Mapping[int, QuantParams]


def all_float(facts: PlanningFacts) -> dict[str, Choice]:
    """Return the choices of a mode without a profile, by node name in graph order."""
    return {node.name: Choice(Kind.FLOAT, _data_free(node, facts), node.rule) for node in facts.graph.nodes}


def _data_free(node: Node, facts: PlanningFacts) -> FloatReason:
    """Return why a node stays float in a mode without a profile, unless it becomes a hybrid."""
    if node.name in facts.requested_float:
        return facts.requested_float[node.name]
    rule, mode, target = node.rule, facts.config.mode, facts.target
    is_product = rule is not None and bool(rule.constants) and not rule.is_lookup
    if is_product and mode == "dynamic" and node.op_type not in target.dynamic:
        return because(ReasonCode.NO_DYNAMIC_KERNEL, target=target.name, operator=node.op_type)
    if is_product and mode == "dynamic" and _is_too_slow(node, facts):
        times = target.slower_dynamic[node.op_type]
        return because(
            ReasonCode.SLOWER_DYNAMIC_KERNEL, target=target.name, operator=node.op_type, times=times
        )
    return because(ReasonCode.DATA_FREE_MODE, mode=mode)


def find_hybrids(
    facts: PlanningFacts, choices: Mapping[str, Choice], floats: FloatReasons
) -> dict[str, Hybrid]:
    """Return the nodes that become dynamic or weight-only, by node name in graph order.

    A recurrent node that only its kind or its size keeps float is among them, with that as the reason.

    Args:
        facts: the model.
        choices: what was selected so far.
        floats: nodes that are not to be quantized statically, each with the reason.

    Raises:
        ConfigError: a pattern of `keep_float` names nothing in the model.
    """
    found: dict[str, Hybrid] = {}
    for node in facts.graph.nodes:
        choice = choices[node.name]
        why = floats.get(node.name)
        if choice.kind is not Kind.FLOAT or choice.rule is None or node.name in facts.requested_float:
            continue
        if why is not None and why.code is ReasonCode.SLOWER_IN_INT8:
            continue  # as it is, its weights too
        hybrid = _hybrid(node, choice, facts, floats)
        if hybrid is not None:
            found[node.name] = hybrid
    return found


def _hybrid(node: Node, choice: Choice, facts: PlanningFacts, floats: FloatReasons) -> Hybrid | None:
    """Return what becomes of a node that the selection left float, None where nothing does."""
    rule, why = choice.rule, floats.get(node.name)
    assert rule is not None
    hybrid = _embedding(node, rule, facts) if rule.stored else None
    unfit = None
    if hybrid is None and _may_be_dynamic(node, rule, facts, floats):
        unfit = _unfit_recurrent(node, rule, facts) if rule.stored else None
        hybrid = None if unfit else _dynamic(node, choice, facts)
    if hybrid is None and facts.config.mode in DATA_FREE:
        noisy = why is not None and why.code in (ReasonCode.NOISE_BUDGET, ReasonCode.NOISE_LIMIT)
        hybrid = _weight_only(node, choice, facts, EIGHT_BITS if noisy or node.name in facts.wide else 0)
        if noisy and hybrid is not None and hybrid.choice.implementation == ROUNDS_IN_KERNEL:
            hybrid = replace(hybrid, choice=replace(hybrid.choice, implementation=RUNTIME_WEIGHTS[1]))
    if hybrid is not None and _is_faster_dynamic(node, hybrid, facts):
        hybrid = _dynamic(node, choice, facts) or hybrid
    if hybrid is None and unfit is not None:
        return Hybrid(replace(choice, reason=unfit), {})
    return hybrid


def _is_faster_dynamic(node: Node, hybrid: Hybrid, facts: PlanningFacts) -> bool:
    """Whether a weight-only product of 8 bits is predicted to be faster in dynamic int8, for the tokens that
    were stated. Both kernels round the activations to 8 bits, and both weights are as large."""
    config, costs = facts.config, facts.token_costs if facts.config.mode == "weight-only" else None
    if costs is None or not (config.prompt or config.answer) or config.cost_model == "off":
        return False
    if hybrid.choice.implementation != ROUNDS_IN_KERNEL or node.op_type not in facts.target.dynamic:
        return False
    bits = {params.qtype.bits for params in hybrid.inputs.values()}
    return bits == {EIGHT_BITS} and costs.is_measured and costs.is_faster_dynamic(node)


def _embedding(node: Node, rule: Rule, facts: PlanningFacts) -> Hybrid | None:
    """Return a node that reads entries of an embedding table, None for any other."""
    graph = facts.graph
    if not rule.is_lookup or "int8" not in facts.target.weight_only.get(node.op_type, ()):
        return None
    (weight,) = rule.stored
    name = node.input(weight.index)
    table = _large(graph, name, LEAST_TABLE)
    axis = None if table is None else weight.axis(node, table.ndim)
    if table is None or axis is None or table.size < LEAST_ROW * table.shape[axis]:
        return None
    # A reader of another kind would keep the float table in the file, beside the quantized one.
    readers = graph.consumers(name)
    if any(
        r.op_type != node.op_type or i != weight.index or weight.axis(r, table.ndim) != axis
        for r, i in readers
    ):
        return None
    if _multiplies_activations(graph, node.output):
        return None
    few, sqnr = None, 0.0
    if node.name not in facts.wide:
        few, sqnr = table_params(node, table, facts.target, facts.config, facts.room) or (None, 0.0)
    if few is not None and sqnr >= facts.config.min_tensor_sqnr:
        reason = f"embedding table {_shape(table)} in {few.qtype.name}{_blocks(few)}: {sqnr:.1f} dB"
        return Hybrid(Choice(Kind.WEIGHT_ONLY, reason, rule, "runtime"), {weight.index: few})
    params, sqnr = channel_params_and_sqnr(table, axis, symmetric_schema(facts.config), INT8)
    if sqnr < (facts.config.min_tensor_sqnr or TABLE_SQNR) or _is_dear_to_read(node, facts):
        return None
    reason = f"embedding table {_shape(table)} in int8, a scale for each entry: {sqnr:.1f} dB"
    return Hybrid(Choice(Kind.WEIGHT_ONLY, reason, rule, "integer"), {weight.index: params})


def _is_dear_to_read(node: Node, facts: PlanningFacts) -> bool:
    """Whether dequantizing the entries that are read is predicted to make the model noticeably slower."""
    model = facts.cost_model
    if model is None or facts.config.mode in DATA_FREE:
        return False
    added = KERNELS_OF_A_TABLE * model.conversion_time(node.output, DEQUANTIZE)
    return added > MOST_FOR_A_TABLE * sum(model.floating.values())


def _multiplies_activations(graph: Graph, name: str, longest: int = LONGEST) -> bool:
    """Whether the entries of a table become factors of what a product computed, as the cosines and sines of
    rotary positions: their errors are those of every activation that they turn, and they are small. Entries
    that are multiplied with what is made of entries alone, as by a normalisation, are no such factors."""
    for reader, index in graph.consumers(name) if longest else ():
        facts, other = reader.facts, reader.input(1 - index)
        if facts.arithmetic is Arithmetic.PRODUCT:
            found = any(
                (rule := node.rule) is not None and rule.constants and not rule.is_lookup
                for node in upstream(graph, [other])
            )
        else:
            moves = facts.moves_values or facts.joins_inputs
            found = moves and _multiplies_activations(graph, reader.output, longest - 1)
        if found:
            return True
    return False


def _may_be_dynamic(node: Node, rule: Rule, facts: PlanningFacts, floats: FloatReasons) -> bool:
    """Whether the target has the kernel, and the mode asks for it; a recurrent node has no other."""
    if node.op_type not in facts.target.dynamic or (rule.stored and node.name in floats):
        return False
    if node.name in floats and floats[node.name].code is ReasonCode.MODEL_SAVES_TOO_LITTLE:
        return False
    if _is_too_slow(node, facts):
        return False
    mode = facts.config.mode
    return mode in ("dynamic", "auto") or (mode == "static" and bool(rule.stored))


def _is_too_slow(node: Node, facts: PlanningFacts) -> bool:
    """Whether the target's kernel is slower than float, and was not asked for all the same."""
    asked = facts.config.mode == "dynamic" and facts.config.cost_model == "off"
    return node.op_type in facts.target.slower_dynamic and not asked


def _unfit_recurrent(node: Node, rule: Rule, facts: PlanningFacts) -> FloatReason | None:
    """Return why a recurrent node cannot be dynamic or would gain nothing; None when it can and would."""
    graph, config = facts.graph, facts.config
    if not FORMS[config.form].runtime_operators:
        return because(
            ReasonCode.NO_DYNAMIC_FORM, form=config.form, operator=node.op_type, instead=RUNTIME_FORMS[0]
        )
    arrays = [graph.constant(node.input(weight.index)) for weight in rule.stored]
    size = sum(array.size for array in arrays if array is not None)
    if refusal := rule.refusal(node, graph):
        return because(ReasonCode.UNSUPPORTED_USE, text=refusal)
    if config.mode != "dynamic" and size < LEAST_RECURRENT:
        return because(ReasonCode.SMALL_RECURRENT, elements=size, limit=LEAST_RECURRENT)
    return None


def _dynamic(node: Node, choice: Choice, facts: PlanningFacts) -> Hybrid | None:
    """Return a product or a recurrent node with dynamic quantization parameters, None where it cannot be
    one."""
    rule, graph, config = choice.rule, facts.graph, facts.config
    if rule is None or rule.refusal(node, graph):
        return None
    data = node.input(0)
    weights = {w.index: _large(graph, node.input(w.index), 1) for w in rule.constants}
    arrays = {index: array for index, array in weights.items() if array is not None}
    least = 1 if facts.target.start_everywhere else LEAST_WEIGHT
    if len(arrays) < len(weights) or sum(array.size for array in arrays.values()) < least:
        return None
    if graph.constant(data) is not None or graph.dtype(data) != ir.DataType.FLOAT:
        return None
    figure, names = "", _dynamically_quantized(node, rule)
    if config.mode != "dynamic" and all(name in facts.profile for name in names):
        sqnr = min(_whole_range_sqnr(facts, name) for name in names)
        if sqnr < (DYNAMIC_SQNR if config.mode == "auto" else AUTO_SQNR):
            return None
        listed = " and ".join(f"'{name}'" for name in names)
        figure = f"; dynamic parameters of {listed}: {sqnr:.1f} dB or more"
    inputs: dict[int, QuantParams] = {}
    for weight in rule.constants:
        array = arrays[weight.index]
        axis = weight.axis(node, array.ndim) if config.granularity == "per-channel" else None
        qtype = signed_type(facts.target, config)
        inputs[weight.index] = channel_params(array, axis, symmetric_schema(config), qtype)
    sqnr = min(weight_sqnr(arrays[index], params) for index, params in inputs.items())
    if sqnr < _least_sqnr(config):
        return None
    why = f"{choice.reason}; " if config.mode == "auto" else ""
    what = " and ".join(_shape(array) for array in arrays.values())
    reason = f"{why}weight {what} in int8: {sqnr:.1f} dB{figure}"
    if node.facts.kernel is KernelSizes.TRANSPOSED_CONVOLUTION:
        return _transposed(node, Choice(Kind.DYNAMIC, reason, rule), inputs, facts)
    return Hybrid(Choice(Kind.DYNAMIC, reason, rule, "runtime" if rule.stored else ""), inputs)


def _transposed(
    node: Node, choice: Choice, inputs: Mapping[int, QuantParams], facts: PlanningFacts
) -> Hybrid:
    """Return a dynamic ConvTranspose: as Conv, or in float on integers where no sum can be rounded."""
    if FORMS[facts.config.form].dynamic_as_conv and not sub_pixel_refusal(node):
        return Hybrid(replace(choice, implementation=SUB_PIXEL), inputs)
    ((index, params),) = inputs.items()
    weight = node.constant(index)
    assert weight is not None
    if largest_sum(quantize(weight, params), node.attributes.get_int("group", 1)) > MOST_IN_FLOAT32:
        text = "ONNX has no integer ConvTranspose, and its sums of integers could exceed 2 ** 24"
        return Hybrid(Choice(Kind.FLOAT, because(ReasonCode.UNSUPPORTED_USE, text=text), choice.rule), {})
    return Hybrid(choice, inputs)


def _dynamically_quantized(node: Node, rule: Rule) -> list[str]:
    """Return the activations whose parameters a node computes at run time; of a recurrent one its state
    too."""
    names = [node.input(0)]
    if rule.weight is None:
        names += [name for name in node.outputs[:2] if name][:1]  # all states, or the last one alone
    return names


def _weight_only(node: Node, choice: Choice, facts: PlanningFacts, bits: int) -> Hybrid | None:
    """Return a float node with quantized constants of at least `bits`, None where it has none worth it."""
    rule, config, graph = choice.rule, facts.config, facts.graph
    types = facts.target.weight_only.get(node.op_type, ())
    storage, implementation = WeightStorage(graph, facts.target, config, facts.room), ""
    pays = config.mode == "weight-only" or storage.kernel_reads_weight(node)
    if rule is None or not types or not pays or rule.is_lookup:
        return None
    inputs: dict[int, QuantParams] = {}
    remarks = []
    for weight in rule.constants:
        array = _large(graph, node.input(weight.index), LEAST_WEIGHT)
        if array is None:
            continue
        stored = storage.of(node, weight, array, bits)
        params = stored.params
        if stored.sqnr >= _least_sqnr(config):
            inputs[weight.index], implementation = params, stored.implementation
            what = f"weight {_shape(array)} in {params.qtype.name}{_blocks(params)}: {stored.sqnr:.1f} dB"
            remarks += [what, *filter(None, [stored.remark])]
    if not inputs:
        return None
    return Hybrid(Choice(Kind.WEIGHT_ONLY, "; ".join(remarks), rule, implementation), inputs)


def _least_sqnr(config: QuantConfig) -> float:
    return config.min_tensor_sqnr or (AUTO_SQNR if config.mode in ("static", "auto") else 0.0)


def _whole_range_sqnr(facts: PlanningFacts, name: str) -> float:
    """Return the SQNR (dB) of an activation with parameters for all that was observed."""
    tensor = facts.profile[name]
    if tensor.count == 0:
        return math.inf
    return expected_noise(tensor, dynamic_params(tensor.minimum, tensor.maximum)).sqnr_db


def with_int8_weights(facts: PlanningFacts, plan: QuantPlan, *, without: Collection[str] = ()) -> QuantPlan:
    """Return a plan whose float nodes have int8 weights where these cost no time and make the file smaller.

    Args:
        facts: the model.
        plan: of its graph; stays as it is in a mode without data, and where the runtime folds nothing.
        without: nodes that have float weights.
    """
    if facts.config.mode in DATA_FREE or facts.target.folds == "nothing":
        return plan
    wanted = {
        (node.name, index): params
        for node in facts.graph.nodes
        if plan.nodes[node.name].kind is Kind.FLOAT and node.name not in facts.requested_float
        if node.name not in without
        for index, params in _int8_params(node, plan, facts)
    }
    tensors, inputs = dict(plan.tensors), dict[str, dict[int, QuantParams]]()
    for node in facts.graph.nodes:
        for index in range(len(node.inputs)):
            name, params = node.input(index), wanted.get((node.name, index))
            if params is None or not _read_quantized(name, wanted, facts.graph, plan):
                continue
            own = inputs.setdefault(node.name, {})
            if tensors.setdefault(name, params) != params:
                own[index] = params
    how = "folded" if facts.target.folds == "arithmetic" else ""
    stored = {n: NodePlan(Kind.WEIGHT_ONLY, plan.nodes[n].because, own, how) for n, own in inputs.items()}
    return replace(plan, tensors=tensors, nodes={**plan.nodes, **stored})


def _int8_params(node: Node, plan: QuantPlan, facts: PlanningFacts) -> Iterator[tuple[int, QuantParams]]:
    """Yield the parameters of the constants that a float node can have in int8, by input index."""
    rule = node.rule
    if rule is None or rule.is_lookup or "int8" not in facts.target.weight_only.get(node.op_type, ()):
        return
    for weight in rule.constants:
        name = node.input(weight.index)
        array = _large(facts.graph, name, LEAST_WEIGHT)
        if array is None:
            continue
        params = plan.tensors.get(name)  # those of a quantized node that reads the same weight
        if params is None or params.qtype.bits > INT8.bits:
            axis = weight.axis(node, array.ndim) if facts.config.granularity == "per-channel" else None
            params = channel_params(array, axis, symmetric_schema(facts.config), INT8)
        if array.size >= LEAST_ROW * len(params.scale):
            yield weight.index, params


def _read_quantized(name: str, wanted: Collection[tuple[str, int]], graph: Graph, plan: QuantPlan) -> bool:
    """Whether no node reads a constant in float: else it would be in the file twice."""
    return all(
        (reader.name, index) in wanted
        or (
            plan.nodes[reader.name].kind.has_weights
            and plan.params_read(reader.name, index, name) is not None
        )
        for reader, index in graph.consumers(name)
    )


def _large(graph: Graph, name: str, least: int) -> Floats | None:
    """Return a constant that is worth quantizing: float32, finite, large, and read by nodes alone; and not
    computed from fewer bytes than it would take in int8, which are what is written of it in float."""
    if not graph.is_constant(name) or graph.is_result(name) or any(i < 0 for _, i in graph.consumers(name)):
        return None
    array = graph.constant(name)
    if array is None or array.dtype != np.float32 or array.size < least or not np.isfinite(array).all():
        return None
    source = bytes_computed_from(graph.values[name])
    if source is not None and source < array.size:
        return None
    return array.astype(np.float32, copy=False)


def _shape(array: Floats) -> str:
    return " x ".join(map(str, array.shape))


def _blocks(params: QuantParams) -> str:
    return f" in blocks of {params.block_size}" if params.block_size else ""
