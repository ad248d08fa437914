"""A plan with its adjustments: the one way from a prepared model and its profile to what is written.

    prepared model, profile -> a first plan: what would be in integers
                            -> factors (`adjust.factors`): the model and the profile with channels evened out
                            -> a second plan, of that model; what was float stays float
                            -> biases (`adjust.biases`) of what is in integers there
                            -> the plan: of the model with both
    the plan, samples       -> codes of weights (`adjust.rounding`), biases for these, and the plan once more

A plan belongs to the prepared model and carries its adjustments; `open_plan` applies them to the model again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ...profiles.base.tool import Progress
from ...profiles.records.profile import ModelId, Profile
from ...profiles.samples.objects import DataLike
from ...profiles.samples.samples import Sample, Samples, input_specs, open_samples
from ..equalization.apply import apply_biases, apply_equalization, inserted_nodes
from ..equalization.bias_correction import channel_means, find_biases
from ..equalization.equalized_profile import equalized_profile
from ..equalization.scales import find_equalization_scales
from ..model.graph import Graph, index
from ..numerics.channel_density import ChannelDensities
from ..plan.adjustments import Adjustments, ChannelFactors
from ..plan.plan import Kind, QuantPlan
from ..plan.verify import check_identity, verify_plan
from ..ranges.clipped_activations import as_seen
from ..rounding.collect import collect_moments
from ..rounding.gptq_codes import carried_over, find_roundings
from ..rounding.quantized_weights import round_weights, weights_in_codes
from ..targets.config import DATA_FREE, QuantConfig
from ..targets.target import Recipe, Target
from .chains import contracted, expanded
from .planner import make_plan

INSERTED_REASON = "evens out the channels of an activation before it is rounded"


@dataclass(frozen=True, eq=False)
class PlannedModel:
    """A verified plan and the model that its names are those of.

    Attributes:
        plan: the plan.
        model: the prepared model with the plan's factors; in real numbers it computes the same. This is what
            is lowered.
        graph: its index.
    """

    plan: QuantPlan
    model: ir.Model
    graph: Graph


def plan_model(
    model: ir.Model,
    profile: Profile,
    recipe: Recipe,
    identity: ModelId,
    notes: tuple[str, ...] = (),
) -> PlannedModel:
    """Decide everything about a prepared model.

    Args:
        model, identity: the prepared model.
        profile: its profile, bound to its tensor names.
        recipe: what was asked for and what the runtime can execute.
        notes: remarks of earlier steps that the user should see.

    Raises:
        ConfigError: the settings name something that the model does not have, or round with samples, for
            which there is `round_plan`. PlanError: the plan breaks a rule.
    """
    config, graph = recipe.config, index(model)
    check_without_samples(config)
    profile = as_seen(profile, graph)
    plan = _one_plan(model, graph, profile, recipe, identity=identity, notes=notes)
    if config.mode in DATA_FREE:
        return open_plan(model, plan, identity)
    wanted = config.equalization != "off" or config.bias_correction != "off"
    if wanted and not any(tensor.channels is not None for tensor in profile.values()):
        told = "the profile has no records of channels: no equalization, no bias correction; profile again"
        return open_plan(model, replace(plan, notes=(*plan.notes, told)), identity)
    factors: dict[str, ChannelFactors] = {}
    densities = ChannelDensities(profile)
    if config.equalization != "off":
        factors = find_equalization_scales(graph, profile, config, plan, densities)
    adjusted = apply_equalization(model, factors)
    again = _Again(recipe, identity, (*notes, *_told(factors)), _fixed(plan, inserted_nodes(model, adjusted)))
    even = equalized_profile(graph, profile, factors, densities)
    even_graph = index(adjusted)
    if factors:
        plan = again.plan(adjusted, even_graph, even)
    biases: dict[str, tuple[float, ...]] = {}
    corrected = even_graph
    if config.bias_correction != "off":
        means = channel_means(profile, factors)
        biases = find_biases(even_graph, index(round_weights(adjusted, plan)), means, plan)
        if biases:
            changed = apply_biases(adjusted, biases)
            corrected = index(changed)
            plan = again.plan(changed, corrected, even)
    plan = replace(plan, adjustments=Adjustments(factors, biases))
    verify_plan(plan, corrected, identity)
    return PlannedModel(plan, adjusted, even_graph)


def _one_plan(
    model: ir.Model,
    graph: Graph,
    profile: Profile,
    recipe: Recipe,
    *,
    identity: ModelId,
    notes: tuple[str, ...],
    fixed: Mapping[str, str] | None = None,
) -> QuantPlan:
    """Make a plan in which chains that are taken as one are one node (see `chains`)."""
    config = recipe.config
    if config.mode in DATA_FREE:
        return make_plan(graph, profile, recipe, identity, notes, fixed=fixed)
    view = contracted(model, graph, config, recipe.target, profile.tensors)
    asked = Recipe(replace(config, keep_float=view.keep_float), recipe.target)
    made = make_plan(view.graph, view.seen(profile), asked, identity, notes, fixed=fixed)
    return expanded(replace(made, config=config), view)


def round_plan(
    model: ir.Model,
    planned: PlannedModel,
    profile: Profile,
    target: Target,
    samples: Iterable[Sample],
    *,
    progress: Progress | None = None,
) -> PlannedModel:
    """Return the plan with codes of weights that are chosen with samples ("gptq"), and biases for these.

    Args:
        model: the prepared model.
        planned: what `plan_model` has made of it.
        profile: what it was made from.
        target: what the runtime can execute.
        samples: feeds of the model, which can be iterated more than once.
        progress: see `collect_moments`.

    Raises:
        DataError: there are no samples, or one cannot be run.
    """
    plan, config = planned.plan, replace(planned.plan.config, rounding="gptq")
    before = plan.adjustments
    found = find_roundings(
        planned.graph,
        plan,
        before.biases,
        lambda inputs: collect_moments(planned.model, inputs, samples, progress),
    )
    rounded = replace(plan, adjustments=replace(before, roundings=found))
    biases: dict[str, tuple[float, ...]] = {}
    if before.biases:
        graph = index(model)
        even = as_seen(profile, graph)
        means = channel_means(even, before.factors)
        biases = find_biases(planned.graph, index(round_weights(planned.model, rounded)), means, rounded)
        again = _Again(Recipe(plan.config, target), plan.model, plan.notes, _fixed(plan, ()))
        corrected = apply_biases(planned.model, biases)
        rounded = again.plan(corrected, index(corrected), equalized_profile(graph, even, before.factors))
        found = carried_over(planned.graph, found, plan, rounded)
    every = sum(1 for _ in weights_in_codes(planned.graph, plan))
    told = f"{len(found)} of {every} weights in codes are rounded with samples, not to the nearest"
    notes = (*dict.fromkeys([*rounded.notes, told]),)
    adjustments = Adjustments(before.factors, biases, found)
    finished = replace(rounded, config=config, notes=notes, adjustments=adjustments)
    return open_plan(model, finished, plan.model)


def rounding_samples(
    model: ir.Model, recipe: Recipe, data: DataLike | None, limit: int | None = None
) -> Samples | None:
    """Return the samples that `round_plan` takes; None where the settings need none.

    Args:
        model: the prepared model.
        recipe: the settings.
        data: folder of samples, "module:function", or an object of Python (`open_samples`).
        limit: the first so many; None for all.

    Raises:
        ConfigError: there must be some, and none are given. DataError: they cannot be opened.
    """
    if recipe.config.rounding != "gptq":
        return None
    if data is None:
        raise ConfigError(
            "rounding gptq: needs samples, as for calibration; give them with --data DIR, or choose rounding "
            "sums or nearest, which need none"
        )
    return open_samples(data, input_specs(model), limit)


def check_without_samples(config: QuantConfig) -> None:
    """Raise ConfigError where settings round with samples."""
    if config.rounding == "gptq":
        raise ConfigError(
            "rounding gptq: needs samples, which 'qprof quantize --data' takes; write a plan there with "
            "--save-plan and give that, or choose another rounding"
        )


def without_samples(recipe: Recipe) -> Recipe:
    """Return a recipe that `plan_model` takes: nearest codes stand in where samples are to round."""
    if recipe.config.rounding != "gptq":
        return recipe
    return Recipe(replace(recipe.config, rounding="nearest"), recipe.target)


@dataclass(frozen=True)
class _Again:
    """What plans of the adjusted model are made from, besides it and its profile.

    What the first plan left float stays so: its noise at the outputs was judged there, for which the channels
    of a divided activation are too uneven.
    """

    recipe: Recipe
    identity: ModelId
    notes: tuple[str, ...]
    fixed: Mapping[str, str]

    def plan(self, model: ir.Model, graph: Graph, profile: Profile) -> QuantPlan:
        config = self.recipe.config
        judged = Recipe(replace(config, min_output_sqnr=0.0), self.recipe.target)
        made = _one_plan(
            model, graph, profile, judged, identity=self.identity, notes=self.notes, fixed=self.fixed
        )
        return replace(made, config=replace(made.config, min_output_sqnr=config.min_output_sqnr))


def _fixed(plan: QuantPlan, inserted: Iterable[str]) -> dict[str, str]:
    """Return the nodes that stay float in further plans, each with its reason."""
    floats = {name: entry.reason for name, entry in plan.nodes.items() if entry.kind is Kind.FLOAT}
    return {**floats, **dict.fromkeys(inserted, INSERTED_REASON)}


def open_plan(model: ir.Model, plan: QuantPlan, identity: ModelId, where: str = "plan") -> PlannedModel:
    """Return a plan with the model that it is to be applied to, after `verify_plan`.

    Args:
        model, identity: the prepared model.
        plan: made for it, perhaps edited since.
        where: how to name the plan in messages.

    Raises:
        PlanError: it belongs to another model, its adjustments do not fit, or it breaks a rule.
    """
    check_identity(plan, identity, where)
    adjusted = apply_equalization(model, plan.adjustments.factors, where)
    corrected = apply_biases(adjusted, plan.adjustments.biases, where)
    verify_plan(plan, index(corrected), identity, where)
    return PlannedModel(plan, adjusted, index(adjusted))


def _told(factors: dict[str, ChannelFactors]) -> tuple[str, ...]:
    if not factors:
        return ()
    inserted = sum(entry.inserted for entry in factors.values())
    return (f"the channels of {len(factors)} activations are evened out, {inserted} of them by an added Mul",)
