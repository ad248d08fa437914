"""Parts of a report from model, plan and profile: noise, nodes, tensors, shared scales, samples."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import ConfigError
from ....profiles.records.drawing import shape_text
from ....profiles.records.histogram import Histogram
from ....profiles.records.profile import Profile, TensorProfile
from ...adjustments.equalization import equalized_name, equalized_profile
from ...costs.predicted import CostModel, Costs, total_microseconds
from ...noise.activation_ranges import ActivationRanges, effective_range, find_following, with_clip_profiles
from ...noise.kept_samples import read_measured
from ...noise.mask_fillers import with_fillers_apart
from ...noise.output_limits import NoiseLimits, judging_limits
from ...numerics.affine import QuantParams
from ...numerics.clipping import share_outside
from ...numerics.quantization_noise import expected_noise
from ...operators.graph import Graph, Node
from ...plan.plan import QuantPlan
from ...plan.store import PlanLike, plan_name, read_plan
from ...planning.plan_model import open_plan
from ...prepare.prepare import ModelFile, PreparedModel, ProfileLike, file_of
from ...search.attribution import Attribution
from ...search.integer_share import multiplications
from ...targets.cost_table import CostTable
from ...targets.loading import load_recipe
from ...targets.machine import processor
from ...targets.target import Recipe
from .content import (
    FloatGroupRecord,
    HistogramBins,
    NodeRecord,
    NoiseBudget,
    NoisePart,
    Parameters,
    RunTime,
    TensorRecord,
)

# What is estimated of a plan from model and profile alone ------------------------------------------------


@dataclass(frozen=True, eq=False)
class Analysis:
    """A plan with the model that it is of and its profile."""

    model_file: ModelFile  # the float model
    prepared: PreparedModel  # the model, prepared
    plan: QuantPlan
    graph: Graph  # the prepared model with the plan's equalization: names are those of the plan
    measured: Profile  # profile of the prepared model
    recipe: Recipe | None  # the plan's settings and its target; None for a target that is not known here

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
    def table(self) -> CostTable | None:
        """Times of kernels on this processor, or if they are unknown, those that the plan was made with."""
        return None if self.recipe is None else self.recipe.costs_on(processor()) or self.recipe.costs

    @cached_property
    def costs(self) -> Costs | None:
        """Predicted times of the nodes, or None if the target has no table of them."""
        return (
            None if self.table is None else CostModel(self.graph, self.profile, self.table).costs(self.plan)
        )

    @cached_property
    def file_us(self) -> float:
        """Predicted microseconds of the float model as its file has it; 0 without a table of times."""
        loaded, table = self.prepared.loaded, self.table
        return 0.0 if table is None else CostModel(loaded, self.measured, table).float_time_of_run

    @cached_property
    def limits(self) -> NoiseLimits:
        """How far the outputs may be from float."""
        return judging_limits(self.prepared.graph, self.measured, self.plan.config)


def analyse(
    model: str | os.PathLike[str], plan: PlanLike, profile: ProfileLike, recipe: Recipe | None = None
) -> Analysis:
    """Read the files of a report of estimates; a recipe has the target of the plan if it is not packaged."""
    file, read, where = file_of(model), read_plan(plan), plan_name(plan)
    planned = open_plan(file.prepared, read, where)
    prepared = file.prepared
    measured, _, _ = read_measured(profile, prepared)
    return Analysis(file, prepared, read, planned.graph, measured, recipe_of_plan(read, recipe))


def recipe_of_plan(plan: QuantPlan, recipe: Recipe | None) -> Recipe | None:
    """Return the settings of a plan with its target; None for a target that is neither packaged nor given."""
    if recipe is None:
        try:
            recipe = load_recipe(plan.config.target)
        except ConfigError:
            return None
    return replace(recipe, config=plan.config)


# Where the noise of outputs comes from --------------------------------------------------------------------

MAX_OUTPUTS = 12
"""Outputs whose noise a report takes apart: those with the lowest SQNR."""


def budgets_as_run(found: Attribution, needed: Mapping[str, float | None]) -> tuple[NoiseBudget, ...]:
    """Return the measured sources of the noise of each output; the deciding output first."""
    budgets = []
    for output, noise in sorted(found.whole.items(), key=lambda pair: (-pair[1].figure, -pair[1].share)):
        pairs = sorted(zip(found.shares(output), found.nodes, strict=True), key=lambda pair: -pair[0])
        if output == found.output:  # of nodes that are alike the first is the one that is named
            pairs = list(zip(found.shares(), found.nodes, strict=True))
        parts = tuple(
            NoisePart(node.name, share, sqnr, node.is_run)
            for share, node in pairs
            if share > 0.0 and (sqnr := node.noises[output].sqnr) is not None
        )
        if noise.sqnr is None or not parts:
            continue
        name = output or "all outputs"
        budgets.append(NoiseBudget(name, noise.sqnr, needed.get(output), parts, found.samples))
    return tuple(budgets[:MAX_OUTPUTS])


# What a report says of each node: what it costs, why it stays float --------------------------------------


def node_records(
    analysis: Analysis, budget: NoiseBudget | None, measured: Costs | None
) -> tuple[NodeRecord, ...]:
    """Return a record of each node, in graph order; `budget` is of the output with the lowest SQNR."""
    noise = {} if budget is None else {part.node: part.share for part in budget.parts}
    no_time = None if measured is not None or analysis.costs is None else 0.0
    costs = measured or analysis.costs or Costs({}, {}, {})
    plan, graph, profile = analysis.plan, analysis.graph, analysis.profile
    known, records = with_clip_profiles(profile, graph), []
    for node in graph.nodes:
        name, entry = node.name, plan.nodes[node.name]
        multiply_adds = (multiplications(node, graph, known) or 0.0) / max(profile.data.samples, 1)
        records.append(
            NodeRecord(
                name=name,
                operator=node.op_type,
                kind=entry.kind.value,
                reason=entry.reason,
                code=entry.float_reason.code.value if entry.stays_float else "",
                inputs=tuple(dict.fromkeys(one for one in node.inputs if one and not graph.is_constant(one))),
                outputs=tuple(one for one in node.outputs if one),
                float_us=costs.floating.get(name, no_time),
                planned_us=costs.integer.get(name, no_time),
                multiply_adds=multiply_adds,
                noise=noise.get(name),
                run_by=_run_by(node, graph),
            )
        )
    return tuple(records)


def _run_by(node: Node, graph: Graph) -> str:
    """Return the name of the node in whose body a node is; "" for one of the main graph."""
    around = node.ir_node.graph
    return graph.runners[around].name if isinstance(around, ir.Graph) and around in graph.runners else ""


def run_time(analysis: Analysis, measured: Costs | None) -> RunTime | None:
    """Return the times of one run, as measured, else as predicted; None if neither is known."""
    if measured is not None:
        conversions, layers = sum(measured.border.values()), {node.name for node in analysis.graph.nodes}
        return RunTime(
            "measured",
            sum(measured.floating.values()),
            sum(measured.integer.values()) + conversions,
            conversions,
            sum(time for name, time in measured.floating.items() if name not in layers),
            sum(time for name, time in measured.integer.items() if name not in layers),
        )
    if (costs := analysis.costs) is None:
        return None
    total, nodes = total_microseconds(costs, analysis.graph, analysis.plan), sum(costs.integer.values())
    in_float = sum(costs.floating.values()) + costs.run
    return RunTime("predicted", in_float, total, total - nodes - costs.run)


def int8_share(nodes: tuple[NodeRecord, ...]) -> float | None:
    """Return the share of the multiply-adds that are done in integers, 0 to 1; None without any."""
    total = sum(node.multiply_adds for node in nodes)
    done = sum(node.multiply_adds for node in nodes if node.is_integer)
    return done / total if total else None


def float_groups(plan: QuantPlan, nodes: tuple[NodeRecord, ...]) -> tuple[FloatGroupRecord, ...]:
    """Return why nodes stay float, the reason that takes most time first, then the most frequent."""
    records = {node.name: node for node in nodes}
    total = sum(node.multiply_adds for node in nodes) or 1.0
    groups = [
        FloatGroupRecord(
            code=code.value,
            reason=reason,
            nodes=names,
            float_us=_known_sum(records[name].planned_us for name in names if name in records),
            multiply_adds=sum(records[name].multiply_adds for name in names if name in records) / total,
        )
        for code, reason, names in plan.float_nodes()
    ]
    return tuple(sorted(groups, key=lambda g: (-(g.float_us or 0.0), -len(g.nodes))))


def _known_sum(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


# What a report says of each tensor, of shared scales and of samples --------------------------------------

MAX_BINS = 128
"""Most bins of a histogram in a report; they are joined two by two, so that counts stay exact."""

BINS_PER_BIN = 16
"""Equal bins that are joined to one."""

MAX_TENSORS = 1200
"""Activations of which a report has a record; those that stay float are left out first."""


def tensor_records(analysis: Analysis) -> tuple[TensorRecord, ...]:
    """Return a record of each activation that was observed, in graph order."""
    plan, graph, profile = analysis.plan, analysis.graph, analysis.profile
    equalized = {equalized_name(name) for name in plan.adjustments.equalization}
    names = [n for n in graph.values if n in profile and profile[n].count and graph.is_float(n)]
    names = [n for n in names if not graph.is_constant(n)]
    if len(names) > MAX_TENSORS:
        kept = [n for n in names if n in plan.tensors]
        kept += [n for n in names if n not in plan.tensors][: max(0, MAX_TENSORS - len(kept))]
        names = [n for n in names if n in set(kept)]
    records = []
    for name in names:
        tensor, producer, activations = profile[name], graph.producer(name), analysis.activations
        # The values that the readers of the tensor tell apart, and the function by which they were chosen.
        plain = effective_range(graph, name)
        effective = plain if activations is None else activations.effective(name)
        followed = None if effective == plain else find_following(graph, name)
        params = plan.tensors.get(name)
        parameters = None
        if params is not None and len(params.scale) == 1:
            low, high = represented(params)
            parameters = Parameters(
                type=params.qtype.name,
                scale=params.tensor_scale,
                zero_point=params.tensor_zero_point,
                low=low,
                high=high,
                clipped=clipped_share(tensor, params),
                sqnr=_sqnr(tensor, params, effective),
            )
        recorded = analysis.measured.get(name, tensor)  # the fillers of masks are none of its infinities
        records.append(
            TensorRecord(
                name=name,
                shape=shape_text(tensor.shape),
                made_by=graph.maker(name),
                operator="input" if producer is None else producer.op_type,
                read_by=tuple(dict.fromkeys(node.name for node, _ in graph.consumers(name))),
                minimum=tensor.minimum,
                maximum=tensor.maximum,
                count=tensor.count,
                zeros=tensor.zeros,
                non_finite=recorded.nan + recorded.inf,
                histogram=_joined_bins(tensor),
                parameters=parameters,
                following="" if followed is None else followed.chain.operators,
                is_equalized=name in equalized,
            )
        )
    return tuple(records)


def _joined_bins(tensor: TensorProfile) -> HistogramBins | None:
    """Return the histogram of a tensor in at most `MAX_BINS` bins; None without any."""
    histogram = tensor.histogram
    if not histogram.counts.size:
        return None
    if not isinstance(histogram, Histogram):
        joined = np.add.reduceat(histogram.counts, np.arange(0, histogram.counts.size, BINS_PER_BIN))
        width = (histogram.maximum - histogram.minimum) / histogram.counts.size * BINS_PER_BIN
        return HistogramBins(histogram.minimum, width, tuple(round(count) for count in joined.tolist()))
    while histogram.counts.size > MAX_BINS:
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
    low, high = low - params.tensor_scale, high + params.tensor_scale
    histogram = tensor.histogram
    if isinstance(histogram, Histogram):
        return share_outside(tensor, (low, high))
    # Bins of equal width, in each of which the values are taken as evenly spread.
    counts = histogram.counts
    total, width = float(np.sum(counts)), (histogram.maximum - histogram.minimum) / max(counts.size, 1)
    if not (total > 0.0 and 0.0 < width < math.inf):
        return 0.0
    start = histogram.minimum + width * np.arange(counts.size)
    below = np.clip((low - start) / width, 0.0, 1.0)
    above = np.clip((start + width - high) / width, 0.0, 1.0)
    return min(float(counts @ (below + above)) / total, 1.0)


def _sqnr(tensor: TensorProfile, params: QuantParams, effective: tuple[float, float]) -> float | None:
    noise = expected_noise(tensor, params, effective)
    return noise.sqnr_db if noise.signal_power > 0.0 else None
