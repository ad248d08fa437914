"""How a plan is made, from the top to the bottom: facts, a first plan, adjustments, what the kernels want.

    facts = model_facts(prepared, profile, recipe)  what is known, and the chains that are planned as one node
    planned = first_plan(facts)                     choices, shared scales, parameters (`planner.decide`),
                                                    within the noise budget (`planner.make_plan`)
    planned = recurrent_equalized(planned)          equalized inputs of recurrent nodes, planned anew
    planned = equalized(planned)                    equalization scales; a plan of the model with them
    planned = bias_corrected(planned)               biases that make up for rounded weights, likewise
    planned = fitted_to_kernels(planned)            padded channels; what each float node and a run take
    verify_plan(planned.plan, ...)                  no rule of a plan is broken

`plan_from` does all of it but the first, and again without integer arithmetic where that saves too little
time. `rounded_with_samples` goes on with a plan whose weights are to be rounded with samples.

Each step takes and returns a `PlannedModel`. What is float in one plan stays float in the next: its noise at
the outputs was estimated there. A plan belongs to the prepared model and carries its adjustments; `open_plan`
applies them to the model again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ModelError, PlanError
from ...profiles.base.improvement import improvement, left_out_steps
from ...profiles.records.profile import Profile
from ...profiles.samples.values import Sample
from ..adjustments.bias_correction import apply_biases, channel_means, find_biases
from ..adjustments.checkpoint import RoundingCheckpoint, run_of
from ..adjustments.equalization import (
    apply_equalization,
    equalized_profile,
    find_equalization_scales,
    find_recurrent_scales,
    inserted_nodes,
    left_by_equalization,
)
from ..adjustments.gptaq import find_asymmetric_roundings
from ..adjustments.gptq import find_roundings, rebased
from ..adjustments.rounded_weights import quantized_weights, round_weights
from ..adjustments.second_moments import collect_moments
from ..costs.float_regions import is_unprofitable, predicted_time, saves_too_little, with_prices
from ..numerics.affine import TYPES
from ..operators.graph import Graph, Node, index
from ..plan.plan import EqualizationScales, Kind, QuantPlan, RoundingOffsets
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..plan.verify import check_identity, verify_plan
from ..prepare.prepare import PreparedModel, fix_shapes
from ..targets.config import DATA_FREE, WITH_SAMPLES, QuantConfig, split_shapes
from ..targets.target import Recipe
from .chains import contracted, expanded, of_adjusted, with_chains
from .facts import PlanningFacts, planning_facts
from .hybrid import with_int8_weights
from .needed_tensors import weighted_channels
from .planner import NO_FLOATS, decide, make_plan, with_padding
from .stored_weights import signed_type


@dataclass(frozen=True, eq=False)
class PlannedModel:
    """A plan and the model that its names are those of.

    Attributes:
        plan: the plan.
        model: the prepared model with the plan's equalization scales; in float it computes the same. This is
            what is lowered.
        graph: its index.
        facts: what the plan was made from, of the model with its corrected biases; None for one that was
            read.
    """

    plan: QuantPlan
    model: ir.Model
    graph: Graph
    facts: PlanningFacts | None = None


def model_facts(
    prepared: PreparedModel, profile: Profile, recipe: Recipe, notes: tuple[str, ...] = ()
) -> PlanningFacts:
    """Return what plans of a model are made from.

    Args:
        prepared: the model.
        profile: its profile, bound to its tensor names.
        recipe: what was asked for and what the runtime can execute.
        notes: remarks of earlier steps that the user should see.

    Raises:
        ConfigError: the settings name something that the model does not have. ProfileError: a setting needs
            histograms, and the profile has none.
    """
    facts = planning_facts(prepared, profile, recipe, notes)
    if recipe.config.mode in DATA_FREE:
        return facts
    facts = with_chains(facts)
    if recipe.config.equalization == "off" or not _has_channels(facts):
        return facts
    with improvement("noise of equalized channels", PlanError):
        view = contracted(facts)
        plan = expanded(decide(view, view.by_planned_node(NO_FLOATS)), facts)
        left = left_by_equalization(
            facts.graph,
            facts.profile,
            facts.config,
            plan,
            densities=facts.channel_densities,
            ranges=facts.cache,
        )
        return replace(facts, left=left)
    return facts


def plan_from(facts: PlanningFacts, floats: FloatReasons = NO_FLOATS) -> PlannedModel:
    """Return the verified plan that takes no samples.

    An adjustment that fails by a fault of qprof leaves the plan as it was, with a note that says so; so do
    all of them where the plan that they end in breaks a rule.

    Args:
        facts: what it is made from.
        floats: nodes that stay float whatever the settings say, each with the reason.
    """
    with left_out_steps() as left_out:
        first, planned = _with_adjustments(facts, floats)
        with improvement("predicted times", PlanError):
            planned = fitted_to_kernels(planned)
            reason = _too_little_saved(planned)
            if reason is not None:
                integers = [n for n, entry in planned.plan.nodes.items() if entry.kind.counts_as_quantized]
                kept = _float_nodes(planned.plan) | dict.fromkeys(integers, reason)
                first, planned = _with_adjustments(facts, {**floats, **kept})
                planned = fitted_to_kernels(planned)
            planned = with_notes(planned, _without_integers(planned.plan))
        with improvement("all adjustments of the model", PlanError):
            verify_plan(planned.plan, _facts(planned).graph, facts.identity)
            return with_notes(planned, left_out)
        verify_plan(first.plan, facts.graph, facts.identity)
    return with_notes(first, left_out)


def _with_adjustments(facts: PlanningFacts, floats: FloatReasons) -> tuple[PlannedModel, PlannedModel]:
    """Return the plan of a model without adjustments, and with them."""
    first = planned = first_plan(facts, floats)
    if _has_channels(facts):
        with improvement("equalization of recurrent nodes", PlanError):
            planned = recurrent_equalized(planned, floats)
        with improvement("equalization", PlanError):
            planned = equalized(planned)
        with improvement("bias correction", PlanError):
            planned = bias_corrected(planned)
    else:
        planned = _without_channels(planned)
    return first, planned


def _too_little_saved(planned: PlannedModel) -> FloatReason | None:
    """Return why no node is to be quantized, as predicted; None where quantizing them saves enough time,
    where plans are timed, or where 16 bits are asked for, whose times are not known."""
    facts, predicted = _facts(planned), planned.plan.origin.time
    if predicted is None or facts.cost_model is None or facts.config.mode in DATA_FREE or facts.timed:
        return None
    if facts.config.keep_16bit or TYPES[facts.config.activation_type].bits == 16:
        return None
    before = replace(facts.cost_model, graph=facts.prepared.graph, profile=facts.measured)
    after = replace(facts.cost_model, graph=planned.graph)
    return saves_too_little(before, after, planned.plan, predicted)


def _without_integers(plan: QuantPlan) -> Iterator[str]:
    """Yield the remark on a plan without integer arithmetic, where time is the reason."""
    if not is_unprofitable(plan):
        return
    stored = sum(entry.kind is Kind.WEIGHT_ONLY for entry in plan.nodes.values())
    what = f"weights only, of {stored} node{'s'[: stored != 1]}" if stored else "nothing is quantized"
    yield f"{what}: int8 is predicted to save too little time; --cost-model off quantizes all the same"


def first_plan(facts: PlanningFacts, floats: FloatReasons = NO_FLOATS) -> PlannedModel:
    """Return the plan of a model without adjustments, within the noise budget."""
    view = contracted(facts)
    plan = make_plan(view, view.by_planned_node(floats))
    return PlannedModel(expanded(plan, facts), facts.prepared.model, facts.graph, facts)


def recurrent_equalized(planned: PlannedModel, floats: FloatReasons = NO_FLOATS) -> PlannedModel:
    """Return the plan of the model with equalized inputs of the recurrent nodes that compute with these.

    It is made anew, noise budget and all: with the channels of its input equalized a node may become dynamic
    that would have been too noisy. What stays float all the same is not equalized.

    Args:
        planned: by `first_plan`.
        floats: as there.
    """
    facts = _facts(planned)
    if facts.config.equalization != "auto":  # a Mul is added
        return planned
    nodes = [node for node in facts.graph.nodes if _may_be_dynamic(node, planned.plan, facts)]
    per_channel = facts.config.granularity == "per-channel"
    weight_type = signed_type(facts.target, facts.config)
    scales = find_recurrent_scales(facts.graph, facts.profile, nodes, weight_type, per_channel=per_channel)
    while scales:
        scaled = _with_scales(planned, scales)
        view = contracted(scaled.after)
        plan = make_plan(view, view.by_planned_node({**floats, **scaled.inserted}))
        readers = {name: [n for n in nodes if n.input(0) == name] for name in scales}
        kept = {
            name: entry
            for name, entry in scales.items()
            if any(plan.nodes[reader.name].kind is Kind.DYNAMIC for reader in readers[name])
        }
        if len(kept) == len(scales):
            return scaled.planned(expanded(plan, scaled.after))
        scales = kept
    return planned


def equalized(planned: PlannedModel) -> PlannedModel:
    """Return the plan of the model whose activation channels are equalized where that gains enough."""
    facts = _facts(planned)
    if facts.config.equalization == "off":
        return planned
    scales = find_equalization_scales(
        facts.graph,
        facts.profile,
        facts.config,
        planned.plan,
        densities=facts.channel_densities,
        ranges=facts.cache,
    )
    if not scales:
        return planned
    scaled = _with_scales(planned, scales)
    return scaled.planned(
        _plan_again(scaled.after, {**_float_nodes(planned.plan), **scaled.inserted}, planned.plan)
    )


def fitted_to_kernels(planned: PlannedModel) -> PlannedModel:
    """Return the plan with channels padded where that is predicted to be faster, its reasons priced, and the
    time that is predicted of it."""
    facts = _facts(planned)
    if facts.cost_model is None:
        return planned
    model = replace(facts.cost_model, graph=planned.graph)
    plan = with_prices(with_padding(planned.plan, model), model)
    if len(facts.profile):
        assert facts.file_costs is not None
        time = predicted_time(facts.file_costs, model, plan)
        plan = replace(plan, origin=replace(plan.origin, time=time))
    elif facts.token_costs is not None and facts.token_costs.is_measured:
        plan = replace(plan, origin=replace(plan.origin, time=facts.token_costs.predicted(plan)))
    return replace(planned, plan=plan)


def bias_corrected(planned: PlannedModel) -> PlannedModel:
    """Return the plan of the model with biases that make up for the rounding of weights, as it is now.

    New biases may change the parameters of weights, and those their rounding offsets.
    """
    facts, before = _facts(planned), planned.plan.adjustments
    if facts.config.bias_correction == "off":
        return planned
    rounded = index(round_weights(planned.model, planned.plan))
    means = channel_means(facts.measured, before.equalization)
    biases = find_biases(planned.graph, rounded, means, planned.plan)
    if not biases and not before.biases:
        return planned
    after = of_adjusted(facts, index(apply_biases(planned.model, biases)), facts.profile)
    plan = _plan_again(after, _float_nodes(planned.plan), planned.plan)
    plan = replace(
        plan,
        notes=tuple(dict.fromkeys([*planned.plan.notes, *plan.notes])),
        adjustments=replace(before, biases=biases),
    )
    corrected = replace(planned, plan=plan, facts=after)
    return _with_offsets(corrected, rebased(planned.graph, before.roundings, planned.plan, plan))


def rounded_with_samples(
    planned: PlannedModel,
    samples: Iterable[Sample],
    progress: Callable[[int, int | None], None] | None = None,
    checkpoint: Path | None = None,
) -> PlannedModel:
    """Return the verified plan with rounding offsets that are chosen with samples, and biases for these.

    Args:
        planned: the plan that takes no samples.
        samples: of the model, which can be iterated more than once.
        progress: see `collect_moments`.
        checkpoint: keeps the offsets of finished weights, for a run that resumes this one.

    Raises:
        DataError: there are no samples, or one cannot be run. ConfigError: the checkpoint is that of another
            run.
    """
    with left_out_steps() as left_out, improvement(f"rounding {planned.plan.config.rounding}", PlanError):
        return _rounded_with_samples(planned, samples, progress, checkpoint)
    return with_notes(planned, left_out)


def _rounded_with_samples(
    planned: PlannedModel,
    samples: Iterable[Sample],
    progress: Callable[[int, int | None], None] | None,
    checkpoint: Path | None,
) -> PlannedModel:
    biases, facts = planned.plan.adjustments.biases, _facts(planned)
    kept = None
    if checkpoint is not None:
        kept = RoundingCheckpoint(checkpoint, run_of(facts.identity, facts.config.rounding, samples))
    graph, plan = planned.graph, planned.plan
    if facts.config.rounding == "gptaq":
        offsets = find_asymmetric_roundings(
            planned.model, graph, plan, samples, progress=progress, checkpoint=kept
        )
    else:
        gathered = partial(collect_moments, planned.model, samples=samples, progress=progress)
        offsets = find_roundings(graph, plan, biases, gathered, kept)
    count = sum(1 for _ in quantized_weights(planned.graph, planned.plan))
    planned = _with_offsets(planned, offsets)
    if biases:
        planned = bias_corrected(planned)
    found = len(planned.plan.adjustments.roundings)
    note = f"{found} of {count} quantized weights are rounded with samples, not to the nearest"
    planned = with_notes(planned, [note])
    verify_plan(planned.plan, _facts(planned).graph, facts.identity)
    return planned


def open_plan(prepared: PreparedModel, plan: QuantPlan, where: str = "plan") -> PlannedModel:
    """Return a plan with the model that it is to be applied to, after `verify_plan`.

    Args:
        prepared: the model.
        plan: made for it, perhaps edited since.
        where: how to name the plan in messages.

    Raises:
        PlanError: it belongs to another model, its adjustments do not fit, or it breaks a rule. ModelError:
            it does since the library of an operator is not loaded.
    """
    check_identity(plan, prepared.identity, where)
    prepared = fix_shapes(prepared, split_shapes(plan.config.fix_shapes))
    adjusted = apply_equalization(prepared.model, plan.adjustments.equalization, where)
    corrected = apply_biases(adjusted, plan.adjustments.biases, where)
    try:
        verify_plan(plan, index(corrected), prepared.identity, where)
    except PlanError:
        if prepared.untyped:
            raise ModelError(prepared.untyped) from None
        raise
    return PlannedModel(plan, adjusted, index(adjusted))


def check_without_samples(config: QuantConfig) -> None:
    """Raise ConfigError where settings round with samples."""
    if config.rounding in WITH_SAMPLES:
        raise ConfigError(
            f"rounding {config.rounding}: needs samples, which 'qprof quantize --data' takes; write a plan "
            "there with --save-plan and give that, or choose another rounding"
        )


NOISY = (ReasonCode.NOISE_BUDGET, ReasonCode.NOISE_LIMIT, ReasonCode.NO_KERNEL)
"""Why a recurrent node is not dynamic where noise is the reason; the last where its own SQNR is too low."""


@dataclass(frozen=True, eq=False)
class _Scaled:
    """A model with equalized channels, before it is planned.

    Attributes:
        before: what was planned of it without.
        model: with the scales.
        after: facts of it.
        inserted: the nodes that were added, each with the reason why it stays float.
        scales: those of before and the new ones.
    """

    before: PlannedModel
    model: ir.Model
    after: PlanningFacts
    inserted: FloatReasons
    scales: Mapping[str, EqualizationScales]

    def planned(self, plan: QuantPlan) -> PlannedModel:
        """Return it with its plan."""
        adjustments = replace(self.before.plan.adjustments, equalization=self.scales)
        plan = replace(plan, adjustments=adjustments)
        return PlannedModel(plan, self.model, self.after.graph, self.after)


def _with_scales(planned: PlannedModel, new: Mapping[str, EqualizationScales]) -> _Scaled:
    """Apply equalization scales to a model whose plan may have some already."""
    facts = _facts(planned)
    model = apply_equalization(planned.model, new)
    inserted = inserted_nodes(planned.model, model)
    of = f"{len(new)} activation{'s'[: len(new) != 1]}"
    added = f" ({len(inserted)} added multiplication{'s'[: len(inserted) != 1]})" if inserted else ""
    note = f"the channels of {of} are balanced to lose less{added}"
    profile = equalized_profile(facts.graph, facts.profile, new, facts.channel_densities)
    after = replace(of_adjusted(facts, index(model), profile), notes=(*facts.notes, note))
    floats = dict.fromkeys(inserted, because(ReasonCode.EQUALIZATION_MUL))
    return _Scaled(planned, model, after, floats, {**planned.plan.adjustments.equalization, **new})


def _may_be_dynamic(node: Node, plan: QuantPlan, facts: PlanningFacts) -> bool:
    """Whether a recurrent node is dynamic, or noise alone keeps it from being it."""
    rule, entry = node.rule, plan.nodes[node.name]
    if rule is None or not rule.is_recurrent or node.op_type not in facts.target.dynamic:
        return False
    noisy = entry.kind is not Kind.DYNAMIC and entry.float_reason.code in NOISY
    return (entry.kind is Kind.DYNAMIC or noisy) and node.input(0) not in plan.tensors


def with_notes(planned: PlannedModel, notes: Iterable[str]) -> PlannedModel:
    """Return a plan with further remarks, each once."""
    plan = planned.plan
    return replace(planned, plan=replace(plan, notes=tuple(dict.fromkeys([*plan.notes, *notes]))))


def _facts(planned: PlannedModel) -> PlanningFacts:
    assert planned.facts is not None, "a plan that was read is not planned further"
    return planned.facts


def _plan_again(facts: PlanningFacts, floats: FloatReasons, before: QuantPlan) -> QuantPlan:
    """Return the plan of an adjusted model. Its noise is not estimated again: the estimate of the plan before
    has what equalization leaves (`left_by_equalization`), and gains of noise are known by the names there."""
    view = contracted(facts)
    plan = expanded(decide(view, view.by_planned_node(floats)), facts)
    without = {name for name, entry in before.nodes.items() if entry.kind is Kind.FLOAT}
    return replace(with_int8_weights(facts, plan, without=without), origin=before.origin)


def _float_nodes(plan: QuantPlan) -> dict[str, FloatReason]:
    """Return the nodes that stay float in further plans, each with its reason."""
    return {name: entry.float_reason for name, entry in plan.nodes.items() if entry.stays_float}


def _with_offsets(planned: PlannedModel, offsets: Mapping[str, RoundingOffsets]) -> PlannedModel:
    adjustments = replace(planned.plan.adjustments, roundings=offsets)
    return replace(planned, plan=replace(planned.plan, adjustments=adjustments))


def _has_channels(facts: PlanningFacts) -> bool:
    """Whether adjustments can be found: they need records of channels."""
    return facts.config.mode not in DATA_FREE and any(
        tensor.channels is not None for tensor in facts.measured.values()
    )


def _without_channels(planned: PlannedModel) -> PlannedModel:
    """Return the plan, with a remark where the settings ask for adjustments that it cannot have."""
    config = _facts(planned).config
    if config.mode in DATA_FREE or config.equalization == config.bias_correction == "off":
        return planned
    if not weighted_channels(_facts(planned).graph):
        return planned  # there is none to record
    own = _facts(planned).measured.origin == "qprof"
    advice = "profile again, without --channels off" if own else "'qprof dump-profile' records them"
    note = f"the profile has no records of channels: no equalization, no bias correction; {advice}"
    return with_notes(planned, [note])
