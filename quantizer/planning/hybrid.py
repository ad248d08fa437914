"""Nodes that compute in float, or nearly, and keep their weights quantized: dynamic and weight-only. Pure.

Nodes that the selection left in float are considered again, in this order:

1. A large embedding table from which nodes only read entries is quantized in every mode: each entry has its
   own scale, and the result is dequantized. Tables with cosines and sines of rotary positions are not
   embeddings.
2. Modes "dynamic" and "auto": a product whose kernel can compute the parameters of its activations at run
   time becomes `Kind.DYNAMIC`. In "auto" this requires that the quantization noise, estimated for the
   smallest and largest value of all samples, leaves `MIN_DYNAMIC_SQNR_DB`: one sample has no wider range than
   all, so this is the worst case. A kernel that is slower than float is only used in mode "dynamic" with
   `cost_model` off. An LSTM also becomes dynamic in mode "static", if `AUTO_SQNR` is left: it has no static
   kernel, and loses almost nothing (a voice detector: 46 dB, 1.2 times as fast). The same applies to a GRU or
   an RNN, written as a Scan, if the table of kernel times predicts that it is faster.
3. Mode "weight-only": any operator that the target can give a quantized constant becomes `Kind.WEIGHT_ONLY`,
   in the chosen format or the format that fits a size, and with 8 bits instead of 4 if a profile shows that
   an output would be below `min_output_sqnr`; in mode "dynamic" only nodes whose kernel computes with the
   quantized weight. Default limits of outputs never change 4 bits to 8.
4. Modes "static" and "auto": remaining float nodes get int8 weights if the runtime dequantizes these when it
   loads the model, and if the noise budget allows (`noise_budget`).

Each entry has its figures as a remark. Weights that would keep too low an SQNR stay float.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.tuned import tuned
from ...profiles.records.profile import has_histograms
from ..noise.value_paths import upstream
from ..numerics.affine import INT8, UINT8, QuantParams
from ..numerics.block_scales import channel_params_and_sqnr
from ..numerics.quantization_noise import expected_noise, weight_sqnr
from ..numerics.schemas import dynamic_params
from ..operators.facts import Arithmetic, KernelSizes
from ..operators.graph import Graph, Node
from ..operators.table import Rule
from ..plan.plan import ROUNDS_IN_KERNEL, RUNTIME_WEIGHTS, Implementation, Kind, NodePlan, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..plan.rewrites import SUB_PIXEL, rewrite_refusal
from ..prepare.constant_folding import bytes_computed_from
from ..targets.config import AUTO_SQNR, DATA_FREE, QuantConfig
from ..targets.forms import FORMS, RUNTIME_FORMS
from ..targets.target import dynamic_implementation
from ..targets.weight_formats import WeightFormat, asked_format
from .facts import PlanningFacts
from .known import Known
from .selection import Choice
from .stored_weights import (
    kernel_reads_weight,
    signed_type,
    stand_in,
    symmetric_schema,
    table_storage,
    weight_storage,
)

MIN_TABLE_ELEMENTS = tuned(16384, figure="a smaller table saves less than 50 kB", chosen_on="by hand")
"""Fewest elements of an embedding table that is quantized whatever the mode."""
MIN_WEIGHT_ELEMENTS = tuned(
    1024, figure="a smaller weight saves less than 3 kB", chosen_on="by hand", holds=(1024, 1024)
)
"""Fewest elements of a weight that is quantized: the two nodes that dequantize it and the names of its
parameters take about 500 bytes of the file."""
MIN_RECURRENT_ELEMENTS = tuned(
    16384,
    figure="0.9 times float's speed at 8,192 elements, 1.5 at 32,768, 2.0 at 131,072, 2.9 at 524,288",
    chosen_on="single LSTMs, AVX512-VNNI, one thread, one and eight sequences",
)
"""Elements of both weights of an LSTM from which it is dynamic unasked."""
MAX_SCAN_TIME = tuned(
    0.9,
    figure=(
        "its noise must save at least a tenth; with 1.0, one GRU more as a Scan, the model takes 0.931 "
        "of float's time instead of 0.938"
    ),
    chosen_on="by hand, a GRU for speech",
    holds=(0.45, 0.95),
)
"""Part of float's time that a recurrent node written as a Scan may take."""
_NOISE_UNKNOWN = (ReasonCode.NOT_OBSERVED, ReasonCode.BODY_NOT_RUN)
"""Reasons of float nodes whose noise nobody knows, as their tensors had no values."""

MIN_ELEMENTS_PER_SCALE = tuned(8, figure="a scale takes 4 bytes, these 8", chosen_on="by hand", holds=(6, 10))
"""Fewest elements for each scale of an embedding table or of the weight of a float node."""
MAX_MOVING_NODES = 8  # most nodes that move the entries of a table before they are used
MIN_TABLE_SQNR_DB = tuned(35.0, figure="none", chosen_on="by hand")
"""Least SQNR of an embedding table without a limit by the user."""
MIN_DYNAMIC_SQNR_DB = tuned(10.0, figure="none: noise of a tenth of the signal", chosen_on="by hand")
"""SQNR below which even dynamic quantization is too coarse for mode auto."""

Floats = npt.NDArray[np.float32]


def data_free_choices(facts: PlanningFacts, floats: FloatReasons) -> dict[str, Choice]:
    """Return the choices of a mode without a profile, by node name in graph order."""
    mode, target = facts.config.mode, facts.target
    choices = {}
    for node in facts.graph.nodes:
        rule = node.rule
        is_dynamic_product = mode == "dynamic" and rule is not None and rule.constants and not rule.is_lookup
        if node.name in facts.requested_float:
            reason = facts.requested_float[node.name]
        elif node.name in floats:
            reason = floats[node.name]
        elif is_dynamic_product and node.op_type not in target.dynamic:
            reason = because(ReasonCode.NO_DYNAMIC_KERNEL, target=target.name, operator=node.op_type)
        elif is_dynamic_product and _is_too_slow(node, facts):
            reason = because(
                ReasonCode.SLOWER_DYNAMIC_KERNEL,
                target=target.name,
                operator=node.op_type,
                times=target.slower_dynamic[node.op_type],
            )
        else:
            reason = because(ReasonCode.DATA_FREE_MODE, mode=mode)
        choices[node.name] = Choice(Kind.FLOAT, reason)
    return choices


def find_hybrids(facts: PlanningFacts, choices: Mapping[str, Choice], known: Known) -> dict[str, Choice]:
    """Return the choices of the nodes that become dynamic or weight-only, by node name in graph order."""
    hybrids: dict[str, Choice] = {}
    for node in facts.graph.nodes:
        choice, why = choices[node.name], known.floats.get(node.name)
        if choice.kind is not Kind.FLOAT or node.rule is None:
            continue
        if node.name in facts.requested_float or node.name in known.unfit:
            continue
        if why is not None and why.code in (ReasonCode.SLOWER_IN_INT8, ReasonCode.FITS_IN_FLOAT):
            continue  # as it is, its weights too
        hybrid = _hybrid(node, node.rule, choice, facts, known)
        if hybrid is not None:
            hybrids[node.name] = hybrid
    return hybrids


def _hybrid(node: Node, rule: Rule, choice: Choice, facts: PlanningFacts, known: Known) -> Choice | None:
    """Return the dynamic or weight-only choice for a node left in float, or None."""
    why = known.floats.get(node.name)
    config, target = facts.config, facts.target
    hybrid = _embedding(node, rule, facts, known) if rule.stored else None
    may_be_dynamic = (
        node.op_type in target.dynamic
        and not _is_too_slow(node, facts)
        and not (why is not None and (rule.stored or why.code is ReasonCode.MODEL_SAVES_TOO_LITTLE))
        # A recurrent node has no static kernel.
        and (config.mode in ("dynamic", "auto") or (config.mode == "static" and bool(rule.stored)))
    )
    unfit = None
    if hybrid is None and may_be_dynamic:
        unfit = _unfit_recurrent(node, rule, facts) if rule.stored else None
        hybrid = None if unfit else _dynamic(node, rule, choice, facts)
    if hybrid is None and config.mode in DATA_FREE:
        noisy = why is not None and why.code in (ReasonCode.NOISE_BUDGET, ReasonCode.NOISE_LIMIT)
        hybrid = _weight_only(node, rule, facts, known, stand_in(facts) if noisy else None)
        if noisy and hybrid is not None:
            if hybrid.implementation == ROUNDS_IN_KERNEL:
                hybrid = replace(hybrid, implementation=RUNTIME_WEIGHTS[1])
            if config.has_few_bits:
                hybrid = replace(hybrid, reason=f"{hybrid.reason}; in 4 bits {why}")
    return Choice(Kind.FLOAT, unfit) if hybrid is None and unfit is not None else hybrid


def _is_too_slow(node: Node, facts: PlanningFacts) -> bool:
    """Whether the target's dynamic kernel is slower than float, and the user did not ask for it."""
    asked = facts.config.mode == "dynamic" and not facts.config.regards_time
    return node.op_type in facts.target.slower_dynamic and not asked


# Embedding tables -----------------------------------------------------------------------------------------


def _embedding(node: Node, rule: Rule, facts: PlanningFacts, known: Known) -> Choice | None:
    """Return a node that reads entries of an embedding table, None for any other."""
    graph, config = facts.graph, facts.config
    if not rule.is_lookup or "int8" not in facts.target.weight_only.get(node.op_type, ()):
        return None
    (weight,) = rule.stored
    name = node.input(weight.index)
    table = _large(graph, name, MIN_TABLE_ELEMENTS)
    axis = None if table is None else weight.axis(node, table.ndim)
    if table is None or axis is None or table.size < MIN_ELEMENTS_PER_SCALE * table.shape[axis]:
        return None
    # A reader of another kind would keep the float table in the file, beside the quantized one.
    if any(
        reader.op_type != node.op_type or index != weight.index or weight.axis(reader, table.ndim) != axis
        for reader, index in graph.consumers(name)
    ):
        return None
    if _multiplies_activations(graph, node.output, MAX_MOVING_NODES):
        return None
    asked = known.formats.get(name) or asked_format(config)
    stored = table_storage(node, table.shape, facts, asked)
    if stored is not None:
        params, sqnr = stored.params_of(table, facts.on.array_file)
        if sqnr >= config.min_tensor_sqnr:
            reason = f"embedding table {_shape(table)} in {params.qtype.name}{_blocks(params)}: {sqnr:.1f} dB"
            reason = "; ".join(filter(None, [reason, asked.why]))
            return Choice(Kind.WEIGHT_ONLY, reason, stored.implementation, weights={weight.index: params})
    params, sqnr = channel_params_and_sqnr(table, axis, symmetric_schema(facts), INT8)
    if sqnr < (config.min_tensor_sqnr or MIN_TABLE_SQNR_DB):
        return None
    reason = f"embedding table {_shape(table)} in int8, a scale for each entry: {sqnr:.1f} dB"
    reason = "; ".join(filter(None, [reason, asked.why]))
    return Choice(Kind.WEIGHT_ONLY, reason, Implementation.INTEGER, weights={weight.index: params})


def _multiplies_activations(graph: Graph, name: str, longest: int) -> bool:
    """Whether entries of a table multiply activations of a product, as cosines of rotary positions do.

    Those multiplied only with values made of entries, as by a normalisation, do not count.
    """
    for reader, index in graph.consumers(name) if longest else ():
        if reader.facts.arithmetic is Arithmetic.PRODUCT:
            for node in upstream(graph, [reader.input(1 - index)]):
                if node.rule is not None and node.rule.constants and not node.rule.is_lookup:
                    return True
        elif (reader.facts.moves_values or reader.facts.joins_inputs) and _multiplies_activations(
            graph, reader.output, longest - 1
        ):
            return True
    return False


# Dynamic products and recurrent nodes ---------------------------------------------------------------------


def _unfit_recurrent(node: Node, rule: Rule, facts: PlanningFacts) -> FloatReason | None:
    """Return why a recurrent node cannot be dynamic or would gain nothing; None when it can and would."""
    graph, config = facts.graph, facts.config
    if not FORMS[config.form].runtime_operators:
        return because(
            ReasonCode.NO_DYNAMIC_FORM, form=config.form, operator=node.op_type, instead=RUNTIME_FORMS[0]
        )
    if refusal := rule.refusal(node, graph):
        return because(ReasonCode.UNSUPPORTED_USE, text=refusal)
    way = dynamic_implementation(node.op_type, facts.target)
    if way != Implementation.RUNTIME:
        if refusal := rewrite_refusal(way, node, regards_time=config.regards_time):
            return because(ReasonCode.UNSUPPORTED_USE, text=refusal)
        return _slower_rewritten(node, way, facts) if config.regards_time else None
    arrays = [graph.constant(node.input(weight.index)) for weight in rule.stored]
    size = sum(array.size for array in arrays if array is not None)
    if config.mode != "dynamic" and config.regards_time and size < MIN_RECURRENT_ELEMENTS:
        return because(ReasonCode.SMALL_RECURRENT, elements=size, limit=MIN_RECURRENT_ELEMENTS)
    return None


def _slower_rewritten(node: Node, way: str, facts: PlanningFacts) -> FloatReason | None:
    """Return the reason why a recurrent node gains too little rewritten, or None."""
    model, op_type = facts.cost_model, node.op_type
    if model is None or f"{op_type}:dynamic" not in model.table.kernels:
        is_asked = facts.config.mode == "dynamic"
        code = ReasonCode.NO_DYNAMIC_KERNEL if is_asked else ReasonCode.NO_KERNEL
        return because(code, target=facts.target.name, operator=op_type)
    floating = model.floating[node.name]
    entry = NodePlan(Kind.DYNAMIC, implementation=way)
    integer = model.integer_time(node, entry) * model.runs.get(node.output, 1.0)
    if integer <= MAX_SCAN_TIME * floating:
        return None
    code = ReasonCode.PREDICTED_SLOWER if integer >= floating else ReasonCode.SAVES_TOO_LITTLE
    return because(code, int8_ms=integer / 1e3, float_ms=floating / 1e3)


def _dynamic(node: Node, rule: Rule, choice: Choice, facts: PlanningFacts) -> Choice | None:
    """Return a product or a recurrent node with dynamic quantization parameters, or None."""
    graph, config = facts.graph, facts.config
    if rule.refusal(node, graph):
        return None
    data = node.input(0)
    weights = {w.index: _large(graph, node.input(w.index), 1) for w in rule.constants}
    arrays = {index: array for index, array in weights.items() if array is not None}
    least = 1 if facts.starts_everywhere else MIN_WEIGHT_ELEMENTS
    if len(arrays) < len(weights) or sum(array.size for array in arrays.values()) < least:
        return None
    if graph.is_constant(data) or graph.dtype(data) != ir.DataType.FLOAT:
        return None

    # The activations whose parameters it computes at run time: no sample spans more than all do.
    rounded = [data]
    if rule.weight is None:  # a recurrent node rounds its state too: all states, or the last one alone
        rounded += [name for name in node.outputs[:2] if name][:1]
    figure = ""
    if config.mode != "dynamic" and not has_histograms(facts.measured):
        return None  # ranges alone do not tell what rounding costs, and nobody asked for dynamic nodes
    if config.mode != "dynamic" and all(name in facts.profile for name in rounded):
        observed = {name: facts.profile[name] for name in rounded if facts.profile[name].count}
        noises = {
            name: expected_noise(tensor, dynamic_params(tensor.minimum, tensor.maximum)).sqnr_db
            for name, tensor in observed.items()
        }
        sqnr = min(noises.values(), default=np.inf)
        least_sqnr = MIN_DYNAMIC_SQNR_DB if config.mode == "auto" else AUTO_SQNR
        if sqnr < least_sqnr:
            if not rule.stored:
                return None
            noisiest = min(noises, key=lambda name: noises[name])
            return Choice(
                Kind.FLOAT,
                because(
                    ReasonCode.BELOW_SQNR_LIMIT, tensor=noisiest, type=UINT8.name, sqnr=sqnr, limit=least_sqnr
                ),
            )
        listed = " and ".join(f"'{name}'" for name in rounded)
        figure = f"; dynamic parameters of {listed}: {sqnr:.1f} dB or more"

    inputs: dict[int, QuantParams] = {}
    for weight in rule.constants:
        array = arrays[weight.index]
        axis = weight.axis(node, array.ndim) if config.granularity == "per-channel" else None
        inputs[weight.index] = facts.product_params(
            node, weight, axis, symmetric_schema(facts), signed_type(facts)
        )
    sqnr = min(weight_sqnr(arrays[index], params) for index, params in inputs.items())
    if sqnr < _least_sqnr(config):
        return None
    why = f"{choice.reason}; " if config.mode == "auto" else ""
    what = " and ".join(_shape(array) for array in arrays.values())
    reason = f"{why}weight {what} in int8: {sqnr:.1f} dB{figure}"
    if node.facts.kernel is not KernelSizes.TRANSPOSED_CONVOLUTION:
        how = dynamic_implementation(node.op_type, facts.target)
        return Choice(Kind.DYNAMIC, reason, how, weights=inputs)

    # ONNX has no integer ConvTranspose: it is written as Conv.
    if refusal := rewrite_refusal(SUB_PIXEL, node, regards_time=config.regards_time):
        return Choice(Kind.FLOAT, because(ReasonCode.UNSUPPORTED_USE, text=refusal))
    return Choice(Kind.DYNAMIC, reason, SUB_PIXEL, weights=inputs)


def formats_of_ends(facts: PlanningFacts) -> dict[str, WeightFormat]:
    """Return 8 bits as the format of tables and last products, if weights have few bits and there is no size
    limit.

    This applies to models with a large table: the embedding of a language model and its last product. Their
    errors reach the output directly. A table that is also the last product is stored once.
    """
    config, graph = facts.config, facts.graph
    tables, last, followed = dict[str, int](), set[str](), set[str]()
    for node in reversed(graph.nodes) if config.has_few_bits and not config.fit_size else ():
        rule = node.rule
        weights = [] if rule is None else [node.input(weight.index) for weight in rule.constants]
        sizes = [graph.elements(name) for name in weights if graph.is_constant(name)]
        leads_on = any(name in followed for name in node.results)
        if sizes and rule is not None and rule.is_lookup:
            tables[node.name] = max(sizes)
        elif sizes:
            last.update(() if leads_on else (node.name,))
            leads_on = True
        followed.update(node.inputs if leads_on else ())
    if max(tables.values(), default=0) < MIN_TABLE_ELEMENTS:
        return {}
    rules = ((node, node.rule) for node in map(graph.node, sorted({*tables, *last})) if node.rule)
    return {node.input(w.index): stand_in(facts) for node, rule in rules for w in rule.constants}


# Weight-only nodes ----------------------------------------------------------------------------------------


def _weight_only(
    node: Node, rule: Rule, facts: PlanningFacts, known: Known, instead: WeightFormat | None
) -> Choice | None:
    """Return a float node with quantized constants, or None; `instead` replaces formats with fewer bits."""
    config = facts.config
    pays = config.mode == "weight-only" or kernel_reads_weight(node, facts)
    if not facts.target.weight_only.get(node.op_type, ()) or not pays or rule.is_lookup:
        return None
    implementation, remarks = "", list[str]()
    inputs: dict[int, QuantParams] = {}
    for weight in rule.constants:
        name = node.input(weight.index)
        array = _large(facts.graph, name, MIN_WEIGHT_ELEMENTS)
        asked = known.formats.get(name) or asked_format(config)
        if array is None:
            continue
        if instead is not None and asked.qtype.bits < instead.qtype.bits:
            asked = instead
        stored = weight_storage(node, weight, array.shape, facts, asked)
        if stored is None:
            continue
        params, sqnr = stored.params_of(array, facts.on.array_file)
        if sqnr >= _least_sqnr(config):
            inputs[weight.index], implementation = params, stored.implementation
            what = f"weight {_shape(array)} in {params.qtype.name}{_blocks(params)}: {sqnr:.1f} dB"
            remarks += [what, *filter(None, [stored.remark, asked.why])]
    if not inputs:
        return None
    return Choice(Kind.WEIGHT_ONLY, "; ".join(remarks), implementation, weights=inputs)


def with_int8_weights(facts: PlanningFacts, plan: QuantPlan, *, without: Collection[str] = ()) -> QuantPlan:
    """Return a plan whose float nodes have int8 weights if these cost no time and make the file smaller."""
    if facts.config.mode in DATA_FREE or facts.target.folds == "nothing":
        return plan
    wanted = {
        (node.name, index): params
        for node in facts.graph.nodes
        if plan.nodes[node.name].kind is Kind.FLOAT
        and plan.nodes[node.name].float_reason.code not in _NOISE_UNKNOWN
        and node.name not in facts.requested_float
        and node.name not in without
        for index, params in sorted(_int8_params(node, plan, facts), key=lambda own: own[0])
    }

    def read_in_float(name: str) -> bool:  # such a constant would be in the file twice
        return not all(
            (reader.name, index) in wanted
            or (
                plan.nodes[reader.name].kind.has_weights
                and plan.params_read(reader.name, index, name) is not None
            )
            for reader, index in facts.graph.consumers(name)
        )

    tensors, own_params = dict(plan.tensors), dict[str, dict[int, QuantParams]]()
    for (node_name, index), params in wanted.items():
        name = facts.graph.node(node_name).input(index)
        if read_in_float(name):
            continue
        own = own_params.setdefault(node_name, {})
        if tensors.setdefault(name, params) != params:
            own[index] = params
    is_folded = facts.target.folds == "arithmetic"
    how = Implementation.FOLDED if is_folded else Implementation.USUAL
    stored = {n: NodePlan(Kind.WEIGHT_ONLY, plan.nodes[n].because, own, how) for n, own in own_params.items()}
    return replace(plan, tensors=tensors, nodes={**plan.nodes, **stored})


def _int8_params(node: Node, plan: QuantPlan, facts: PlanningFacts) -> Iterator[tuple[int, QuantParams]]:
    """Yield the parameters of the constants that a float node can have in int8, by input index."""
    rule = node.rule
    if rule is None or rule.is_lookup or "int8" not in facts.target.weight_only.get(node.op_type, ()):
        return
    for weight in rule.constants:
        name = node.input(weight.index)
        array = _large(facts.graph, name, MIN_WEIGHT_ELEMENTS)
        if array is None:
            continue
        params = plan.tensors.get(name)  # those of a quantized node that reads the same weight
        if params is None or params.qtype.bits > INT8.bits:
            axis = weight.axis(node, array.ndim) if facts.config.granularity == "per-channel" else None
            params = facts.on.channel_params(name, axis, symmetric_schema(facts), INT8)
        if array.size >= MIN_ELEMENTS_PER_SCALE * len(params.scale):
            yield weight.index, params


def _least_sqnr(config: QuantConfig) -> float:
    """Return the least SQNR (dB) of a weight."""
    return config.min_tensor_sqnr or (AUTO_SQNR if config.mode in ("static", "auto") else 0.0)


def _large(graph: Graph, name: str, least: int) -> Floats | None:
    """Return a constant worth quantizing: float32, finite, large, not made of fewer bytes; or None."""
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
