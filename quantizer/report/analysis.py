"""What is estimated of a plan from model and profile alone: every part of a report looks at this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ...profiles.base.errors import ConfigError, PlanError
from ...profiles.noise.measurements import pooled_noise
from ...profiles.records.profile import Profile
from ..costs.predicted import CostModel
from ..costs.records import Costs
from ..equalization.apply import equalized_name
from ..equalization.equalized_profile import equalized_profile
from ..exchange.profiles import read_profile
from ..model.graph import Graph, name_of
from ..noise.measured_gains import measured_gains
from ..noise.propagation import NoiseFlow, forecast_flow
from ..noise.sources import NoiseEstimator, WeightErrors
from ..outputs.limits import NoiseLimits
from ..plan.plan import QuantPlan
from ..plan.store import PlanLike, plan_name, read_plan
from ..planning.chains import contracted
from ..planning.facts import PlanningFacts
from ..planning.hybrid import with_int8_weights
from ..planning.plan_model import model_facts, open_plan
from ..planning.planner import decide
from ..prepare.opening import PreparedModel, ProfileLike, open_prepared
from ..ranges.activation_ranges import ActivationRanges
from ..ranges.clipped_activations import with_clip_profiles
from ..targets.loading import load_recipe
from ..targets.target import Recipe


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
        clipped = with_clip_profiles(self.measured, self.prepared.graph)
        return equalized_profile(self.prepared.graph, clipped, self.plan.adjustments.equalization)

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
    def noise(self) -> NoiseAnalysis | None:
        """The noise of the plan; None where it cannot be estimated: without a target, or without activations
        in the profile."""
        if self.recipe is None or not any(t.histogram.total for t in self.measured.values()):
            return None
        return _noise_of(self, self.recipe)


@dataclass(frozen=True, eq=False)
class NoiseAnalysis:
    """The noise of a plan, estimated as planning does it: in the model before equalization, since equalized
    channels are too uneven for the estimate.

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
        return forecast_flow(self.estimator.gains, tensors)


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
    gains = measured_gains(view.graph, view.profile, plan.model.opset, pooled_noise(view.profile.noise))
    estimator = NoiseEstimator(view.activations, gains, WeightErrors(view.graph))
    return NoiseAnalysis(view, plan, estimator, facts.noise_limits, facts.profile)


def _plan_before_equalization(plan: QuantPlan, facts: PlanningFacts, view: PlanningFacts) -> QuantPlan:
    """Return the plan of the model without equalization in which the same nodes are float."""
    names = (name_of(node) for node in facts.graph.nodes)
    nodes = {name: plan.nodes[name] for name in names if name in plan.nodes}
    floats = {name: entry.float_reason for name, entry in nodes.items() if entry.stays_float}
    whole = {name for name, entry in nodes.items() if entry.kind.value == "float"}
    return with_int8_weights(view, decide(view, view.by_planned_node(floats)), without=whole)


def noise_names(analysis: Analysis) -> Mapping[str, str]:
    """Return, for each tensor of the plan, the tensor whose noise is estimated: before equalization."""
    before = {equalized_name(name): name for name in analysis.plan.adjustments.equalization}
    return {name: before.get(name, name) for name in analysis.graph.values}
