"""What a report says from model, plan and profile alone: noise, nodes, tensors, shared scales, samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ...profiles.base.errors import ConfigError, PlanError, QprofError, natural_key
from ...profiles.records.drawing import shape_text
from ...profiles.records.drift import share_outside
from ...profiles.records.histogram import Histogram, UnknownBins
from ...profiles.records.profile import Profile, TensorProfile
from ..adjustments.equalization import equalized_name, equalized_profile
from ..costs.predicted import CostModel, Costs, price_of, total_microseconds
from ..evaluation.layers import LayerReport
from ..exchange.profiles import read_profile
from ..noise.activation_ranges import ActivationRanges, effective_range, find_following, with_clip_profiles
from ..noise.estimator import NoiseEstimator, NoiseSource, decibels_of
from ..noise.mask_fillers import with_fillers_apart
from ..noise.output_limits import NoiseLimits
from ..noise.propagation import NoiseFlow, forecast_flow, measured_gains
from ..numerics.affine import TYPES, QuantParams
from ..numerics.calibrators import CALIBRATORS, calibrate
from ..numerics.quantization_noise import expected_noise
from ..numerics.schemas import SCHEMAS, choose_params
from ..operators.graph import Graph, Node
from ..plan.plan import NodePlan, QuantPlan
from ..plan.reasons import FloatReason, ReasonCode, summary
from ..plan.store import PlanLike, plan_name, read_plan
from ..planning.chains import contracted
from ..planning.facts import PlanningFacts
from ..planning.hybrid import with_int8_weights
from ..planning.plan_model import model_facts, open_plan
from ..planning.planner import decide
from ..planning.shared_scales import lost_to
from ..prepare.prepare import PreparedModel, ProfileLike, fix_shapes, open_prepared
from ..search.node_costs import TimedNodes
from ..search.quality import multiplications
from ..targets.config import split_shapes
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .content import (
    CalibratorChoice,
    FloatGroupRecord,
    HistogramBins,
    NodeRecord,
    NoiseBudget,
    NoisePart,
    Parameters,
    RunTime,
    SampleRecord,
    SharedGroup,
    SharedMember,
    TensorNoiseRecord,
    TensorRecord,
)
from .layer_tree import module_of

# What is estimated of a plan from model and profile alone ------------------------------------------------


@dataclass(frozen=True, eq=False)
class Analysis:
    """A plan with the model that it is of and its profile.

    Attributes:
        model_file: the float model.
        prepared: the model, prepared.
        plan: the plan.
        graph: the prepared model with the plan's equalization: names are those of the plan.
        measured: profile of the prepared model.
        recipe: the plan's settings and its target; None for a target that is not known here.
    """

    model_file: Path
    prepared: PreparedModel
    plan: QuantPlan
    graph: Graph
    measured: Profile
    recipe: Recipe | None

    @cached_property
    def profile(self) -> Profile:
        """The profile of `graph`: as measured, or as estimated after equalization."""
        graph = self.prepared.graph
        clipped = with_fillers_apart(with_clip_profiles(self.measured, graph), graph)
        return equalized_profile(graph, clipped, self.plan.adjustments.equalization)

    @cached_property
    def activations(self) -> ActivationRanges | None:
        """Calibrated and effective ranges of the activations of `graph`; None without a target."""
        if self.recipe is None:
            return None
        return ActivationRanges(self.graph, self.profile, self.recipe, self.plan.model.opset)

    @cached_property
    def costs(self) -> tuple[CostModel, Costs] | None:
        """Predicted times of the nodes; None where the target has no table of them."""
        table = None if self.recipe is None else self.recipe.costs
        if table is None:
            return None
        model = CostModel(self.graph, self.profile, table)
        return model, model.costs(self.plan)

    @cached_property
    def file_us(self) -> float:
        """Predicted microseconds of the float model as its file has it; 0 without a table of times."""
        table = None if self.recipe is None else self.recipe.costs
        if table is None:
            return 0.0
        given = fix_shapes(self.prepared, split_shapes(self.plan.config.fix_shapes))
        return sum(CostModel(given.loaded, self.measured, table).floating.values())

    @cached_property
    def noise(self) -> NoiseAnalysis | None:
        """The noise of the plan; None where it cannot be estimated: without a target, or without activations
        in the profile."""
        if self.recipe is None or not any(t.histogram.total for t in self.measured.values()):
            return None
        return _noise_of(self, self.recipe)


@dataclass(frozen=True, eq=False)
class NoiseAnalysis:
    """The noise of a plan, estimated as planning does it: in the model before equalization, with the noise
    that this leaves (`left_by_equalization`).

    Attributes:
        facts: of that model, with a node in the place of each pointwise chain.
        plan: what the plan is for that model: the same nodes are float.
        estimator: of its noise.
        limits: of its outputs.
        measured: profile of the prepared model, chains and all.
    """

    facts: PlanningFacts
    plan: QuantPlan
    estimator: NoiseEstimator
    limits: NoiseLimits
    measured: Profile

    def flow_to(self, tensors: tuple[str, ...]) -> NoiseFlow:
        """Return how noise reaches some tensors, which must have a signal."""
        return forecast_flow(self.estimator.gains_of(self.plan), tensors)


def analyse(
    model: str | Path, plan: PlanLike, profile: ProfileLike, recipe: Recipe | None = None
) -> Analysis:
    """Read what a report of estimates needs.

    Args:
        model: the float model.
        plan: its plan.
        profile: its profile.
        recipe: the target of the plan where it is not a packaged one; None for the one that the plan names.

    Raises:
        ModelError, ProfileError, PlanError: a file cannot be read, or belongs to another model.
    """
    prepared, read, where = open_prepared(model), read_plan(plan), plan_name(plan)
    planned = open_plan(prepared, read, where)
    measured = read_profile(profile, prepared.model, prepared.identity, accept_retrained=True)
    return Analysis(Path(model), prepared, read, planned.graph, measured, recipe_of(read, recipe))


def recipe_of(plan: QuantPlan, recipe: Recipe | None = None) -> Recipe | None:
    """Return the settings of a plan with its target; None for a target that is neither packaged nor given."""
    if recipe is None:
        try:
            recipe = load_recipe(plan.config.target)
        except ConfigError:
            return None
    return replace(recipe, config=plan.config)


def _noise_of(analysis: Analysis, recipe: Recipe) -> NoiseAnalysis | None:
    facts = model_facts(analysis.prepared, analysis.measured, recipe)
    view = contracted(facts)
    plan = analysis.plan if view is facts else None
    if plan is None or plan.adjustments.equalization:
        try:
            plan = _plan_before_equalization(analysis.plan, facts, view)
        except PlanError:  # a plan that was edited to what these rules would not decide
            return None
    gains = measured_gains(view.graph, view.profile, plan.model.opset, view.profile.noise)
    estimator = NoiseEstimator(view.activations, gains, view.noise_left)
    return NoiseAnalysis(view, plan, estimator, facts.noise_limits, facts.profile)


def _plan_before_equalization(plan: QuantPlan, facts: PlanningFacts, view: PlanningFacts) -> QuantPlan:
    """Return the plan of the model without equalization in which the same nodes are float."""
    names = (node.name for node in facts.graph.nodes)
    nodes = {name: plan.nodes[name] for name in names if name in plan.nodes}
    floats = {name: entry.float_reason for name, entry in nodes.items() if entry.stays_float}
    whole = {name for name, entry in nodes.items() if entry.kind.value == "float"}
    return with_int8_weights(view, decide(view, view.by_planned_node(floats)), without=whole)


def noise_names(analysis: Analysis) -> Mapping[str, str]:
    """Return, for each tensor of the plan, the tensor whose noise is estimated: before equalization."""
    before = {equalized_name(name): name for name in analysis.plan.adjustments.equalization}
    return {name: before.get(name, name) for name in analysis.graph.values}


# Where the noise of outputs comes from, and what is estimated and measured at each tensor ----------------

MOST_OUTPUTS = 12
"""Outputs whose noise a report takes apart: those with the lowest SQNR."""

COLUMNS = 256
"""Tensors whose noise is estimated at once: the flow has a number for each of them at every tensor."""


def noise_budgets(noise: NoiseAnalysis) -> tuple[NoiseBudget, ...]:
    """Return where the noise of each output comes from, the output with the lowest SQNR first."""
    flow = noise.flow_to(noise.estimator.gains.outputs_with_signal())
    by_node: dict[str, np.ndarray] = {}
    for source in _sources(noise, flow):
        by_node[source.node] = by_node.get(source.node, np.zeros(len(flow.outputs))) + source.share
    found = [
        _budget(name, {node: float(shares[at]) for node, shares in by_node.items()}, noise.limits)
        for at, name in enumerate(flow.outputs)
    ]
    return tuple(sorted((b for b in found if b is not None), key=lambda b: b.sqnr)[:MOST_OUTPUTS])


def _sources(noise: NoiseAnalysis, flow: NoiseFlow) -> Iterator[NoiseSource]:
    """Yield every place where the plan rounds, as its estimate of the outputs counts them."""
    estimator = noise.estimator
    yield from estimator.sources(flow, noise.plan)
    yield from estimator.dynamic_inputs(flow, noise.plan)


def _budget(output: str, noise: Mapping[str, float], limits: NoiseLimits) -> NoiseBudget | None:
    total = sum(noise.values())
    if not 0.0 < total < math.inf:
        return None
    order = sorted(noise.items(), key=lambda pair: -pair[1])
    parts = (NoisePart(name, part / total, decibels_of(part)) for name, part in order if part > 0.0)
    allowed = limits.allowed(output) if output in limits.kinds or limits.least is not None else math.inf
    limit = decibels_of(allowed) if 0.0 < allowed < math.inf else None
    return NoiseBudget(output, decibels_of(total), limit, tuple(parts))


def estimated_noise(noise: NoiseAnalysis, tensors: Iterable[str]) -> dict[str, float]:
    """Return the SQNR in dB that is estimated at tensors, with all noise that was added upstream.

    Args:
        noise: of the plan.
        tensors: of the model before equalization; those without signal or noise are left out.
    """
    powers = noise.estimator.gains.powers
    names = [n for n in dict.fromkeys(tensors) if n in noise.facts.graph.values and powers.get(n)]
    found: dict[str, float] = {}
    for first in range(0, len(names), COLUMNS):
        flow = noise.flow_to(tuple(names[first : first + COLUMNS]))
        total = sum((s.share for s in _sources(noise, flow)), np.zeros(len(flow.outputs)))
        found |= {n: decibels_of(x) for n, x in zip(flow.outputs, total.tolist(), strict=True) if x > 0.0}
    return found


def tensor_noise(analysis: Analysis | None, layers: LayerReport | None) -> tuple[TensorNoiseRecord, ...]:
    """Return estimated and measured noise of tensors: of those that were compared, else of the quantized.

    Args:
        analysis: of the plan; None for no estimates.
        layers: what was measured; None for nothing.
    """
    if layers is None:
        return () if analysis is None else tuple(_estimated_only(analysis))
    names = {} if analysis is None else noise_names(analysis)
    noise = None if analysis is None else analysis.noise
    found = {}
    if noise is not None:
        found = estimated_noise(noise, (layer.tensor for layer in layers.layers))
    return tuple(
        TensorNoiseRecord(
            tensor=layer.tensor,
            operator=layer.op_type,
            estimated=None if _is_equalized(layer.tensor, names) else found.get(layer.tensor),
            measured=None if layer.effective is None else layer.effective.sqnr,
            drop=layer.sqnr_drop,
            is_quantized=layer.type == "quantized",
            after=layer.after,
            is_equalized=_is_equalized(layer.tensor, names),
        )
        for layer in layers.layers
    )


def _is_equalized(tensor: str, names: Mapping[str, str]) -> bool:
    return names.get(tensor, tensor) != tensor


def _estimated_only(analysis: Analysis) -> Iterator[TensorNoiseRecord]:
    noise, graph = analysis.noise, analysis.graph
    if noise is None:
        return
    names = noise_names(analysis)
    tensors = [n for n in graph.values if n in analysis.plan.tensors and not graph.is_constant(n)]
    found = estimated_noise(noise, (names[name] for name in [*tensors, *graph.outputs]))
    for name in dict.fromkeys([*tensors, *graph.outputs]):
        if names[name] in found:
            maker = graph.producer(name)
            operator = "input" if maker is None else maker.op_type
            is_quantized = name in analysis.plan.tensors
            equalized = _is_equalized(name, names)
            yield TensorNoiseRecord(
                name, operator, found[names[name]], None, None, is_quantized, is_equalized=equalized
            )


# What a report says of each node: what it costs, what int8 would bring, why it stays float ---------------

NO_PRICE = (
    *(ReasonCode.SHAPE_ARITHMETIC, ReasonCode.ONLY_CONSTANTS, ReasonCode.EQUALIZATION_MUL),
    *(ReasonCode.NO_KERNEL, ReasonCode.UNSUPPORTED_OPERATOR, ReasonCode.UNSUPPORTED_USE),
)
"""Reasons of nodes that int8 is no choice for."""


def node_records(
    analysis: Analysis, budget: NoiseBudget | None, measured: TimedNodes | None
) -> tuple[NodeRecord, ...]:
    """Return a record of each node, in graph order.

    Args:
        analysis: of the plan.
        budget: of the output with the lowest SQNR; None for no estimate.
        measured: times of the nodes; None where they were not measured.
    """
    noise = {} if budget is None else {part.node: part.share for part in budget.parts}
    times = Costs({}, {}, {}) if measured is None else measured.costs
    return tuple(_record(node, analysis, noise.get(node.name), times) for node in analysis.graph.nodes)


def run_times(analysis: Analysis, measured: TimedNodes | None) -> Iterator[RunTime]:
    """Yield the times of one run, as predicted and as measured, where they are known."""
    if analysis.costs is not None:
        _, costs = analysis.costs
        nodes = sum(costs.integer.values())
        total = total_microseconds(costs, analysis.graph, analysis.plan)
        yield RunTime("predicted", sum(costs.floating.values()), total, total - nodes)
    if measured is not None:
        times, conversions = measured.costs, sum(measured.costs.border.values())
        yield RunTime(
            "measured",
            sum(times.floating.values()),
            sum(times.integer.values()) + conversions,
            conversions,
            _of_no_node(times.floating, analysis),
            _of_no_node(times.integer, analysis),
            measured.relative_size,
            None if measured.latency is None else 1e3 * measured.latency.float_ms,
            None if measured.latency is None else 1e3 * measured.latency.quantized_ms,
        )


def _of_no_node(times: Mapping[str, float], analysis: Analysis) -> float:
    known = {node.name for node in analysis.graph.nodes}
    return sum(time for name, time in times.items() if name not in known)


def _record(node: Node, analysis: Analysis, noise: float | None, measured: Costs) -> NodeRecord:
    name, graph = node.name, analysis.graph
    entry = analysis.plan.nodes[name]
    floating, planned, quantized, conversions = _times(node, entry, analysis)
    return NodeRecord(
        name=name,
        operator=node.op_type,
        kind=entry.kind.value,
        reason=entry.reason,
        code=entry.float_reason.code.value if entry.stays_float else "",
        inputs=tuple(dict.fromkeys(n for n in node.inputs if n and not graph.is_constant(n))),
        outputs=tuple(name for name in node.outputs if name),
        float_us=floating,
        planned_us=planned,
        quantized_us=quantized,
        conversions_us=conversions,
        multiply_adds=_multiply_adds(node, analysis),
        noise=noise,
        module=module_of(node),
        measured_float_us=measured.floating.get(name),
        measured_us=measured.integer.get(name),
    )


def _times(
    node: Node, entry: NodePlan, analysis: Analysis
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return microseconds: in float, as planned, and of a float node in int8 and for its conversions."""
    if analysis.costs is None:
        return None, None, None, None
    model, costs = analysis.costs
    name = node.name
    floating, planned = costs.floating.get(name, 0.0), costs.integer.get(name, 0.0)
    reason = entry.because
    rule = node.rule
    priced = isinstance(reason, FloatReason) and reason.code not in NO_PRICE and rule is not None
    if not entry.stays_float or not priced or not _reads_floats(node, analysis.graph):
        return floating, planned, None, None
    price = price_of(node, analysis.plan, model, costs)
    return floating, planned, price.integer, price.conversions


def _reads_floats(node: Node, graph: Graph) -> bool:
    """Whether a node reads a float activation, as those do that int8 is a choice for."""
    rule = node.rule
    return rule is not None and any(graph.is_float(name) for name in node.activations)


def _multiply_adds(node: Node, analysis: Analysis) -> float:
    """Return the multiply-adds of a node in one sample; those of the elements for all but products."""
    name = node.output
    if name not in analysis.profile:
        return 0.0
    elements = analysis.profile[name].count / max(analysis.profile.data.samples, 1)
    return elements * multiplications(node, analysis.graph)


def int8_share(nodes: tuple[NodeRecord, ...]) -> float | None:
    """Return the share of the multiply-adds that are done in integers, 0 to 1; None without any."""
    total = sum(node.multiply_adds for node in nodes)
    done = sum(node.multiply_adds for node in nodes if node.is_integer)
    return done / total if total else None


def float_groups(plan: QuantPlan, nodes: tuple[NodeRecord, ...]) -> tuple[FloatGroupRecord, ...]:
    """Return why nodes stay float, the reason that takes most time first, then the most frequent.

    Args:
        plan: with the reasons.
        nodes: with the prices; those that are missing are not priced.
    """
    records = {node.name: node for node in nodes}
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, entry in plan.nodes.items():
        if entry.stays_float:
            reason = entry.float_reason
            words = str(reason) if reason.code is ReasonCode.UNKNOWN else ""
            reasons.setdefault((reason.code.value, words), []).append(name)
    total = sum(node.multiply_adds for node in nodes) or 1.0
    groups = [
        FloatGroupRecord(
            code=code,
            reason=summary([plan.nodes[name].float_reason for name in names]),
            nodes=tuple(names),
            float_us=_sum(records[name].planned_us for name in names if name in records),
            gain_us=_sum(records[name].gain_us for name in names if name in records),
            multiply_adds=sum(records[name].multiply_adds for name in names if name in records) / total,
        )
        for (code, _), names in reasons.items()
    ]
    return tuple(sorted(groups, key=lambda g: (-(g.float_us or 0.0), -len(g.nodes))))


def _sum(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


# What a report says of each tensor, of shared scales and of samples --------------------------------------

SHOWN_BINS = 128
"""Most bins of a histogram in a report; they are joined two by two, so that counts stay exact."""

JOINED = 16
"""Equal bins that are joined to one."""

MOST_KL = 400
"""Quantized tensors of a model up to which calibrator kl is asked too: it takes 20 ms for each."""

MOST_TENSORS = 1200
"""Activations of which a report has a record; those that stay float are left out first."""


SHOWN_SAMPLES = 12
"""Samples that are listed."""


def tensor_records(analysis: Analysis) -> tuple[TensorRecord, ...]:
    """Return a record of each activation that was observed, in graph order."""
    plan, graph, profile = analysis.plan, analysis.graph, analysis.profile
    groups = {name: at for at, group in enumerate(plan.shared_scales) for name in group.members}
    equalized = {equalized_name(name) for name in plan.adjustments.equalization}
    names = [n for n in graph.values if n in profile and profile[n].count and graph.is_float(n)]
    names = [n for n in names if not graph.is_constant(n)]
    if len(names) > MOST_TENSORS:
        kept = [n for n in names if n in plan.tensors]
        kept += [n for n in names if n not in plan.tensors][: max(0, MOST_TENSORS - len(kept))]
        names = [n for n in names if n in set(kept)]
    kl = sum(name in plan.tensors for name in names) <= MOST_KL
    return tuple(
        _record_of_tensors(name, analysis, groups.get(name), name in equalized, kl=kl) for name in names
    )


def _record_of_tensors(
    name: str, analysis: Analysis, group: int | None, equalized: bool, *, kl: bool
) -> TensorRecord:
    graph, plan, tensor = analysis.graph, analysis.plan, analysis.profile[name]
    producer = graph.producer(name)
    effective, following = _effective(name, analysis)
    readers = dict.fromkeys(node.name for node, _ in graph.consumers(name))
    params = plan.tensors.get(name)
    if params is not None and len(params.scale) != 1:
        params = None
    recorded = analysis.measured.get(name, tensor)  # the fillers of masks are none of its infinities
    return TensorRecord(
        name=name,
        shape=shape_text(tensor.shape),
        made_by=graph.maker(name),
        operator="input" if producer is None else producer.op_type,
        read_by=tuple(readers),
        minimum=tensor.minimum,
        maximum=tensor.maximum,
        count=tensor.count,
        zeros=tensor.zeros,
        non_finite=recorded.nan + recorded.inf,
        histogram=shown_bins(tensor),
        parameters=None if params is None else parameters_of(tensor, params, effective),
        calibrators=tuple(_choices(name, analysis, params, effective, kl=kl)),
        following=following,
        is_equalized=equalized,
        group=group,
        minimum_samples=() if tensor.extremes is None else tuple(e.name for e in tensor.extremes.lowest),
        maximum_samples=() if tensor.extremes is None else tuple(e.name for e in tensor.extremes.highest),
    )


def shown_bins(tensor: TensorProfile) -> HistogramBins | None:
    """Return the histogram of a tensor in at most `SHOWN_BINS` bins; None without any.

    Of equal bins (a profile of Glow, an equalized tensor) the last may reach beyond the range.
    """
    histogram = tensor.histogram
    if isinstance(histogram, UnknownBins) or not histogram.counts.size:
        return None
    if not isinstance(histogram, Histogram):
        joined = np.add.reduceat(histogram.counts, np.arange(0, histogram.counts.size, JOINED))
        width = (histogram.maximum - histogram.minimum) / histogram.counts.size * JOINED
        return HistogramBins(histogram.minimum, width, tuple(round(count) for count in joined.tolist()))
    while histogram.counts.size > SHOWN_BINS:
        histogram = histogram.coarsened(histogram.exponent + 1)
    start = math.ldexp(float(histogram.first), histogram.exponent)
    return HistogramBins(start, histogram.width, tuple(int(count) for count in histogram.counts))


def represented(params: QuantParams) -> tuple[float, float]:
    """Return the smallest and the largest value that one scale represents."""
    scale, zero_point, qtype = params.tensor_scale, params.tensor_zero_point, params.qtype
    return scale * (qtype.low - zero_point), scale * (qtype.high - zero_point)


def clipped_share(tensor: TensorProfile, params: QuantParams) -> float:
    """Return the share of the values that lie outside by more than one step, 0 to 1."""
    low, high = represented(params)
    cover = (low - params.tensor_scale, high + params.tensor_scale)
    histogram = tensor.histogram
    if isinstance(histogram, Histogram):
        return share_outside(tensor, cover)
    if isinstance(histogram, UnknownBins):
        return 0.0
    return _share_of_bins(histogram.counts, (histogram.minimum, histogram.maximum), cover)


def _share_of_bins(counts: np.ndarray, ends: tuple[float, float], cover: tuple[float, float]) -> float:
    """Return the share of values outside `cover`, 0 to 1, by bins of equal width from one end to the other
    in each of which they are taken as evenly spread."""
    total, width = float(np.sum(counts)), (ends[1] - ends[0]) / max(counts.size, 1)
    if not (total > 0.0 and 0.0 < width < math.inf):
        return 0.0
    start = ends[0] + width * np.arange(counts.size)
    below = np.clip((cover[0] - start) / width, 0.0, 1.0)
    above = np.clip((start + width - cover[1]) / width, 0.0, 1.0)
    return min(float(counts @ (below + above)) / total, 1.0)


def parameters_of(tensor: TensorProfile, params: QuantParams, effective: tuple[float, float]) -> Parameters:
    """Return how a tensor is quantized, and what that costs."""
    low, high = represented(params)
    return Parameters(
        type=params.qtype.name,
        scale=params.tensor_scale,
        zero_point=params.tensor_zero_point,
        low=low,
        high=high,
        clipped=clipped_share(tensor, params),
        sqnr=_sqnr(tensor, params, effective),
    )


def _effective(name: str, analysis: Analysis) -> tuple[tuple[float, float], str]:
    """Return the interval that the readers of a tensor use, and the function by which it was chosen."""
    plain = effective_range(analysis.graph, name)
    if analysis.activations is None:
        return plain, ""
    found = analysis.activations.effective(name)
    followed = None if found == plain else find_following(analysis.graph, name)
    return found, "" if followed is None else followed.chain.operators


def _choices(
    name: str, analysis: Analysis, params: QuantParams | None, effective: tuple[float, float], *, kl: bool
) -> Iterator[CalibratorChoice]:
    """Yield what each calibrator chooses for a tensor that is quantized, in its type."""
    if params is None:
        return
    plan, tensor = analysis.plan, analysis.profile[name]
    own = plan.config.calibrator.partition(":")[0]
    schema = SCHEMAS[plan.config.schema]
    qtype = TYPES[plan.config.activation_type] if params.qtype.bits <= 8 else params.qtype
    names = [found for found in CALIBRATORS if kl or found != "kl"]
    for calibrator in names if tensor.histogram.total else [own]:  # without a histogram all choose the same
        try:
            if calibrator == own and analysis.activations is not None:
                chosen = analysis.activations.calibrated(name, qtype)
            else:
                chosen = calibrate(tensor, calibrator, schema, qtype)
        except QprofError:  # bins too coarse for it
            continue
        found = choose_params(chosen.low, chosen.high, schema, qtype)
        low, high = represented(found)
        clipped, sqnr = clipped_share(tensor, found), _sqnr(tensor, found, effective)
        yield CalibratorChoice(calibrator, low, high, clipped, sqnr)


def _sqnr(tensor: TensorProfile, params: QuantParams, effective: tuple[float, float]) -> float | None:
    noise = expected_noise(tensor, params, effective)
    return noise.sqnr_db if noise.signal_power > 0.0 else None


def shared_groups(plan: QuantPlan) -> tuple[SharedGroup, ...]:
    """Return the groups of activations with one scale, that which costs a member most first."""
    groups = [
        SharedGroup(
            *group.range,
            group.tied_by,
            tuple(
                SharedMember(name, *own, name in group.range_set_by, lost_to(own, group.range))
                for name, own in group.members.items()
            ),
        )
        for group in plan.shared_scales
    ]
    return tuple(groups)


def sample_records(analysis: Analysis) -> tuple[SampleRecord, ...]:
    """Return the samples that made most minima and maxima, and in how many of them values saturate.

    A sample that makes them in far more tensors than others is an outlier, or the only one of its kind.
    """
    ends: Counter[str] = Counter()
    clipped: Counter[str] = Counter()
    for name, tensor in analysis.profile.items():
        if tensor.extremes is None or tensor.minimum == tensor.maximum:
            continue
        ends.update({e.name for e in (*tensor.extremes.lowest[:1], *tensor.extremes.highest[:1])})
        params = analysis.plan.tensors.get(name)
        if params is not None and len(params.scale) == 1:
            low, high = represented(params)
            slack = params.tensor_scale
            outside = {e.name for e in tensor.extremes.lowest if e.value < low - slack}
            outside |= {e.name for e in tensor.extremes.highest if e.value > high + slack}
            clipped.update(outside)
    order = sorted(ends, key=lambda sample: (-ends[sample], natural_key(sample)))[:SHOWN_SAMPLES]
    return tuple(SampleRecord(sample, ends[sample], clipped[sample]) for sample in order)
