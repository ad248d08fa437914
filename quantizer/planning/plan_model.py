"""The order of planning: facts, a first plan, adjustments, the shapes that kernels prefer.

    facts = model_facts(prepared, profile, recipe)  facts, and the chains that are planned as one node
    planned = first_plan(facts)                     choices, shared scales, parameters (`planner.decide`),
                                                    within the noise budget (`noise_budget.make_plan`)
    planned = saving_time(planned)                  no arithmetic in integers if that saves too little
    planned = equalized(planned)                    equalization scales; a plan of the model with them
    planned = bias_corrected(planned)               biases that make up for rounded weights, likewise
    planned = fitted_to_kernels(planned)            padded channels; times of each float node and of a run
    planned = in_formats(planned)                   with float16 the nodes in float32, and the reasons
    verify_plan(planned.plan, ...)                  no rule of a plan is broken

`plan_from` does all of it but the first, each step once. `rounded_with_samples` goes on with a plan whose
weights are to be rounded with samples.

Each step takes and returns a `PlannedModel`. Nodes that are float in one plan stay float in the next, because
that plan estimated their noise at the outputs. A plan belongs to the prepared model and carries its
adjustments; `open_plan` applies them to the model again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ModelError, PlanError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.improvement import leave_out
from ...profiles.base.seconds import clocked
from ...profiles.records.profile import Profile
from ...profiles.samples.values import Sample
from ..adjustments.bias_correction import apply_biases, channel_means, find_biases
from ..adjustments.equalization import (
    EqualizationSearch,
    apply_equalization,
    equalized_profile,
    inserted_nodes,
)
from ..adjustments.gptq import find_roundings, rebased
from ..adjustments.rounded_weights import round_weights
from ..adjustments.second_moments import collect_moments
from ..costs.float_regions import predicted_time, saves_too_little, without_int8
from ..costs.predicted import CostModel
from ..noise.constant_errors import without_constant_errors
from ..numerics.affine import TYPES
from ..operators.graph import Graph, index
from ..plan.formats import formats_of
from ..plan.plan import EqualizationScales, Kind, PredictedTime, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..plan.verify import check_identity, verify_plan
from ..prepare.prepare import PreparedModel, with_shapes
from ..targets.config import DATA_FREE, QuantConfig
from ..targets.cost_table import CostTable
from ..targets.machine import Processor, runs_here
from ..targets.target import Recipe
from .facts import PlanningFacts, planning_facts, with_chains
from .hybrid import with_int8_weights
from .known import NOTHING, Known
from .noise_budget import make_plan
from .parameters import with_other_biases
from .planner import decide, plan_with_chains, with_fitting_shapes
from .settings_check import check_weight_type
from .weighted_channels import weighted_channels


@dataclass(frozen=True, eq=False)
class PlannedModel:
    """A plan and the model that its names are those of."""

    plan: QuantPlan
    model: ir.Model  # the prepared model with the plan's equalization scales
    graph: Graph
    facts: PlanningFacts | None = None  # what the plan was made from, of the model with its corrected biases
    known: Known = NOTHING
    cost_model: CostModel | None = None  # predicts the times of the model's nodes
    file_costs: CostModel | None = None  # likewise of the float model as in its file

    @property
    def source_facts(self) -> PlanningFacts:
        """Its facts; a plan that was read has no facts, and is not planned further."""
        assert self.facts is not None
        return self.facts

    def with_findings(self, findings: Iterable[Finding]) -> PlannedModel:
        """Return the plan with further findings, each once."""
        every = tuple(dict.fromkeys([*self.plan.findings, *findings]))
        return replace(self, plan=replace(self.plan, findings=every))


def model_facts(
    prepared: PreparedModel, profile: Profile, recipe: Recipe, findings: tuple[Finding, ...] = ()
) -> PlanningFacts:
    """Return the facts that plans of a model are made from, with its chains."""
    facts = planning_facts(prepared, profile, recipe, findings)
    if recipe.config.mode in DATA_FREE:
        return facts
    facts = with_chains(facts)
    if recipe.config.equalization == "off" or not _has_channels(facts):
        return facts

    @cache
    def noise_left() -> Mapping[str, float]:
        plan = plan_with_chains(equalized_later, NOTHING, decide)
        return _equalization(equalized_later, plan).all_noise_left()

    equalized_later = replace(facts, noise_left=noise_left)
    return equalized_later


NOISE_AND_TIME = "noise budget (outputs may be noisier than their limits) and predicted times"
ADJUSTMENTS = "all adjustments of the model"
"""Steps that a fault of qprof leaves out, as a finding names them."""


def plan_from(facts: PlanningFacts, known: Known = NOTHING) -> PlannedModel:
    """Return the verified plan that takes no samples.

    Only here in planning a fault of qprof is no error: the first plan is returned, with a finding.
    """
    check_weight_type(facts.graph, facts.recipe)
    first: PlannedModel | None = None
    try:
        first = first_plan(facts, known)
        planned = saving_time(first, facts)
        planned = equalized(planned)
        planned = bias_corrected(planned)
        planned = in_formats(fitted_to_kernels(planned))
        verify_plan(planned.plan, planned.source_facts.graph, facts.identity)
        return replace(with_run_shapes(planned, facts), known=known)
    except Exception as error:
        step = NOISE_AND_TIME if first is None else ADJUSTMENTS
        left_out = leave_out(step, error, PlanError)
    if first is None:
        plan = plan_with_chains(facts, known, decide)
        first = PlannedModel(plan, facts.prepared.model, facts.graph, facts, known)
    first = in_formats(first)
    verify_plan(first.plan, facts.graph, facts.identity)
    return with_run_shapes(first, facts).with_findings([left_out])


def with_run_shapes(planned: PlannedModel, facts: PlanningFacts) -> PlannedModel:
    """Return the plan with the shapes that it takes from the run, so that it can be applied without it."""
    plan = planned.plan
    return replace(
        planned, plan=replace(plan, adjustments=replace(plan.adjustments, shapes=facts.prepared.shapes))
    )


def _has_channels(facts: PlanningFacts) -> bool:
    """Whether adjustments can be found: they need records of channels."""
    return facts.config.mode not in DATA_FREE and any(
        tensor.channels is not None for tensor in facts.measured.values()
    )


def _without_channels(facts: PlanningFacts) -> list[Finding]:
    """Return a finding if adjustments need channel statistics and the profile lacks them."""
    config, weighted = facts.config, weighted_channels(facts.graph)
    is_asked = config.mode not in DATA_FREE and not (config.equalization == config.bias_correction == "off")
    if not is_asked or _has_channels(facts) or weighted.keys().isdisjoint(facts.measured):
        return []
    sentence = "the profile has no records of channels: no equalization, no bias correction"
    remedy = "'qprof dump-profile' records those of a size that the model declares"
    return [Finding(Code.NO_CHANNELS, sentence, remedy=remedy)]


def _float_nodes(plan: QuantPlan) -> dict[str, FloatReason]:
    """Return the nodes that stay float in further plans, each with its reason."""
    return {name: entry.float_reason for name, entry in plan.nodes.items() if entry.stays_float}


def first_plan(facts: PlanningFacts, known: Known = NOTHING) -> PlannedModel:
    """Return the plan of a model without adjustments, within the noise budget."""
    plan = plan_with_chains(facts, known, make_plan)
    costs = facts.cost_model
    in_file = None if costs is None or not len(facts.profile) else facts.file_costs
    planned = PlannedModel(plan, facts.prepared.model, facts.graph, facts, known, costs, in_file)
    return planned.with_findings(_without_channels(facts))


@clocked("price")
def saving_time(planned: PlannedModel, facts: PlanningFacts) -> PlannedModel:
    """Return the plan, or, if integer arithmetic is predicted to save too little time, one without it."""
    costs, in_file, config = planned.cost_model, planned.file_costs, facts.config
    if costs is None or in_file is None or planned.known.timed or config.mode in DATA_FREE:
        return planned
    if TYPES[config.activation_type].bits == 16:
        return planned
    in_int8 = [name for name, entry in planned.plan.nodes.items() if entry.kind.counts_as_quantized]
    if not in_int8:
        return planned
    plan = with_fitting_shapes(planned.plan, costs)
    predicted = predicted_time(in_file, costs, plan, costs.costs(plan))
    if min(predicted.float_us, predicted.planned_us) <= 0.0:
        return planned
    reason = saves_too_little(costs, plan, predicted)
    if reason is None:
        return planned
    return first_plan(
        facts, planned.known.with_floats({**_float_nodes(plan), **dict.fromkeys(in_int8, reason)})
    )


@clocked("adjust")
def equalized(planned: PlannedModel) -> PlannedModel:
    """Return the plan of the model with equalized activation channels, if that gains enough."""
    facts = planned.source_facts
    if facts.config.equalization == "off" or not _has_channels(facts):
        return planned
    scales = dict(_equalization(facts, planned.plan).scales())
    if not scales:
        return planned
    scaled, inserted = _with_scales(planned, scales)
    plan = _plan_of_adjusted(scaled, {**_float_nodes(planned.plan), **inserted})
    return replace(scaled, plan=replace(plan, adjustments=scaled.plan.adjustments))


def _equalization(facts: PlanningFacts, plan: QuantPlan) -> EqualizationSearch:
    densities, ranges = facts.channel_densities, facts.range_cache
    return EqualizationSearch(facts.graph, facts.profile, facts.config, plan, densities, ranges)


def _with_scales(
    planned: PlannedModel, scales: Mapping[str, EqualizationScales]
) -> tuple[PlannedModel, FloatReasons]:
    """Return the model with further equalization scales, not planned anew yet, and its added float nodes."""
    facts = planned.source_facts
    model = apply_equalization(planned.model, scales)
    profile = equalized_profile(facts.graph, facts.profile, scales, facts.channel_densities)
    scaled_facts = facts.of_adjusted(index(model), profile)
    adjustments = planned.plan.adjustments
    adjustments = replace(adjustments, equalization={**adjustments.equalization, **scales})
    plan = replace(planned.plan, adjustments=adjustments)
    scaled = replace(
        planned,
        plan=plan,
        model=model,
        graph=scaled_facts.graph,
        facts=scaled_facts,
        cost_model=scaled_facts.cost_model,
    )
    return scaled, dict.fromkeys(inserted_nodes(planned.model, model), because(ReasonCode.EQUALIZATION_MUL))


def _plan_of_adjusted(adjusted: PlannedModel, floats: FloatReasons) -> QuantPlan:
    """Return the plan of an adjusted model; its noise is that before, which includes equalization."""
    facts, before = adjusted.source_facts, adjusted.plan
    wholly_float = {name for name, entry in before.nodes.items() if entry.kind is Kind.FLOAT}
    plan = plan_with_chains(facts, adjusted.known.with_floats(floats), decide)
    return replace(with_int8_weights(facts, plan, without=wholly_float), origin=before.origin)


@clocked("adjust")
def bias_corrected(planned: PlannedModel) -> PlannedModel:
    """Return the plan of the model with biases that compensate for the present rounding of weights."""
    facts, adjustments = planned.source_facts, planned.plan.adjustments
    if facts.config.bias_correction == "off" or not _has_channels(facts):
        return planned
    rounded = index(round_weights(planned.model, planned.plan))
    means = channel_means(facts.measured, adjustments.equalization)
    without = without_constant_errors(planned.graph, facts.profile, facts.identity.opset)
    biases = find_biases(planned.graph, rounded, means, planned.plan, without)
    if not biases and not adjustments.biases:
        return planned
    corrected_facts = facts.of_adjusted(index(apply_biases(planned.model, biases)), facts.profile)
    plan = with_other_biases(facts.contracted, corrected_facts.graph, planned.plan)
    if plan is None:
        plan = _plan_of_adjusted(replace(planned, facts=corrected_facts), _float_nodes(planned.plan))
    roundings = rebased(planned.graph, adjustments.roundings, planned.plan, plan)
    plan = replace(
        plan,
        findings=tuple(dict.fromkeys([*planned.plan.findings, *plan.findings])),
        adjustments=replace(adjustments, biases=biases, roundings=roundings),
    )
    return replace(planned, plan=plan, facts=corrected_facts)


def in_formats(planned: PlannedModel) -> PlannedModel:
    """Return an adjusted plan with the additions of number formats."""
    for number_format in formats_of(planned.source_facts.config):
        planned = number_format.adjusted(planned)
    return planned


@clocked("price")
def fitted_to_kernels(planned: PlannedModel) -> PlannedModel:
    """Return the plan with channels padded if that is faster, and its predicted time."""
    costs = planned.cost_model
    if costs is not None:
        plan = with_fitting_shapes(planned.plan, costs)
        if planned.file_costs is not None:
            time = predicted_time(planned.file_costs, costs, plan, costs.costs(plan))
            # A model without nodes, or whose nodes take no time, has no predicted time.
            if min(time.float_us, time.planned_us) > 0.0:
                plan = replace(plan, origin=replace(plan.origin, time=time))
        planned = replace(planned, plan=plan)
    slow, noisy = without_int8(planned.plan)
    if slow <= noisy:
        return planned
    stored = sum(entry.kind is Kind.WEIGHT_ONLY for entry in planned.plan.nodes.values())
    what = f"weights only, of {stored} node{'s'[: stored != 1]}" if stored else "nothing is quantized"
    sentence = f"{what}: int8 is predicted to save too little time"
    remedy = "--set cost_model=off quantizes it anyway"
    return planned.with_findings(
        [Finding(Code.INT8_SAVES_TOO_LITTLE, sentence, figures={"weights_only": stored}, remedy=remedy)]
    )


NOT_HERE = "not predicted: no table of times has this processor's instruction sets"

PRINTED = 0.005  # half of the last digit of a printed ratio


@clocked("price")
def predicted_on(here: Processor, planned: PlannedModel) -> PredictedTime | str:
    """Return the predicted time of a run on a processor, or why none is; "" if the plan has no time."""
    found = _predicted_on(here, planned)
    if not found or not isinstance(found, str):
        return found
    target = planned.plan.config.target
    measured = "--check-speed measures it" if runs_here(target) else f"measure it on a machine of {target}"
    return f"{found}; {measured}"


def _predicted_on(here: Processor, planned: PlannedModel) -> PredictedTime | str:
    time, facts, costs = planned.plan.origin.time, planned.facts, planned.cost_model
    if time is None:
        return ""
    if facts is None or costs is None or planned.file_costs is None:
        return time if here.has_kernels_of(time.table) else NOT_HERE
    table, data = facts.recipe.costs_on(here), facts.measured.data
    if table is None:
        return NOT_HERE
    as_planned = table is facts.recipe.costs and facts.measured.runs in (0, data.samples)
    predicted = time if as_planned else _priced(planned, table)
    guessed = _priced(planned, table.guessed)
    share = max(guessed.float_us / predicted.float_us, guessed.planned_us / predicted.planned_us)
    if share <= max(table.error, PRINTED):
        return predicted
    return f"not predicted: {share:.0%} of the time is that of kernels that were not measured"


def timed_as_run(planned: PlannedModel) -> PlannedModel:
    """Return a plan whose predicted time is that of a run of the data, as printed, and not of one sample."""
    facts, origin = planned.facts, planned.plan.origin
    if facts is None or origin.time is None or planned.cost_model is None or planned.file_costs is None:
        return planned
    if facts.recipe.costs is None or facts.measured.runs in (0, facts.measured.data.samples):
        return planned
    origin = replace(origin, time=_priced(planned, facts.recipe.costs))
    return replace(planned, plan=replace(planned.plan, origin=origin))


def _priced(planned: PlannedModel, table: CostTable) -> PredictedTime:
    """Return the time of a run of a plan by a table."""
    facts, costs, plan = planned.source_facts, planned.cost_model, planned.plan
    assert costs is not None
    assert planned.file_costs is not None
    data = facts.measured.data
    of_runs = replace(data, samples=facts.measured.runs or data.samples)
    before = planned.file_costs.on(table, replace(planned.file_costs.profile, data=of_runs))
    after = costs.on(table, replace(costs.profile, data=of_runs))
    return predicted_time(before, after, plan, after.costs(plan))


@clocked("adjust")
def rounded_with_samples(
    planned: PlannedModel,
    samples: Iterable[Sample],
    progress: Callable[[int, int | None], None] | None = None,
) -> PlannedModel:
    """Return the verified plan with rounding offsets that are chosen with samples, and biases for these."""
    facts, graph, plan = planned.source_facts, planned.graph, planned.plan
    moments = partial(collect_moments, planned.model, samples=samples, progress=progress)
    offsets = find_roundings(graph, plan, plan.adjustments.biases, moments)
    planned = replace(planned, plan=replace(plan, adjustments=replace(plan.adjustments, roundings=offsets)))
    if plan.adjustments.biases:
        planned = bias_corrected(planned)
    verify_plan(planned.plan, planned.source_facts.graph, facts.identity)
    return planned


def open_plan(prepared: PreparedModel, plan: QuantPlan, where: str = "plan") -> PlannedModel:
    """Return a plan with its model, after `verify_plan`; messages call it `where`."""
    check_identity(plan, prepared.identity, where)
    shaped = with_shapes(prepared.model, plan.adjustments.shapes)
    adjusted = apply_equalization(shaped, plan.adjustments.equalization, where)
    corrected = apply_biases(adjusted, plan.adjustments.biases, where)
    try:
        verify_plan(plan, index(corrected), prepared.identity, where)
    except PlanError:
        if prepared.untyped:
            raise ModelError(prepared.untyped) from None
        raise
    return PlannedModel(plan, adjusted, index(adjusted))


def check_without_samples(config: QuantConfig) -> None:
    """Raise ConfigError if settings round with samples."""
    if config.rounding == "gptq":
        raise ConfigError(
            f"rounding {config.rounding}: needs samples, which 'qprof quantize --data' takes; write a plan "
            "there with --save-plan and give that, or choose another rounding"
        )
