"""The facts that plans are made from: one record, made once for a call and given to every step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ProfileError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.once import computed_once
from ...profiles.base.seconds import clocked
from ...profiles.records.profile import ModelId, Profile, has_histograms, source_of
from ..costs.predicted import CostModel
from ..costs.spellings import has_own_price
from ..noise.activation_ranges import ActivationRanges, RangeCache, with_clip_profiles
from ..noise.assumed_values import with_assumed_values
from ..noise.estimator import NoiseEstimator
from ..noise.mask_fillers import with_fillers_apart
from ..noise.output_limits import NoiseLimits, noise_limits
from ..noise.propagation import NoiseGains, WeightErrors, measured_gains
from ..numerics.affine import INT7, INT8, TYPES, QuantParams, QuantType
from ..numerics.array_file import ArrayFile
from ..numerics.density import ChannelDensities
from ..numerics.schemas import SCHEMAS, Schema, bias_params, channel_params, choose_params, weight_for_bias
from ..operators.functions import FUSED_KERNELS, PointwiseChain, fused_function
from ..operators.graph import Graph, Node, match_nodes
from ..operators.pair_sums import unsaturated
from ..operators.weight_layout import WeightAxes, WeightLayout
from ..plan.formats import formats_of
from ..plan.plan import Implementation, Kind, NodePlan
from ..plan.provenance import profile_digest
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..prepare.prepare import PreparedModel, with_shapes_of_run
from ..targets.config import DATA_FREE, QuantConfig, with_limit
from ..targets.forms import FORMS, RUNTIME_FORMS
from ..targets.target import Recipe, Target
from .chains import (
    adjusted_chain,
    contracted_graph,
    find_chains,
    functions_of_one_variable,
    inner_tensors,
    planned_separately,
)


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """A model with the profile of its activations, and facts that follow only from these."""

    graph: Graph
    profile: Profile
    opset: int
    array_file: ArrayFile = field(default_factory=ArrayFile)  # where the scales of blocks are stored
    # Errors of weights in formats that a size chooses among, over their signal.
    format_errors: dict[Hashable, float] = field(default_factory=dict)
    weight_errors: WeightErrors = field(default_factory=dict)

    @cached_property
    @clocked("estimate")
    def noise_gains(self) -> NoiseGains:
        """The noise that the nodes let through, corrected by measured noise if the profile has some."""
        return measured_gains(self.graph, self.profile, self.opset, self.profile.noise, self.weight_errors)

    @computed_once
    def channel_params(self, name: str, axis: int | None, schema: Schema, qtype: QuantType) -> QuantParams:
        """Return `schemas.channel_params` of a constant, in float32."""
        return channel_params(self._float32(name), axis, schema, qtype)

    @computed_once
    def unsaturated_params(
        self, name: str, layout: WeightLayout, axes: WeightAxes, axis: int | None, schema: Schema
    ) -> QuantParams:
        """Return int8 parameters of a weight of whose codes no pair saturates 16 bits."""
        params = self.channel_params(name, axis, schema, INT8)
        return unsaturated(params, self._float32(name), axes, layout, schema)

    @computed_once
    def params_with_bias(
        self, weight: QuantParams, data: QuantParams, bias: str, schema: Schema
    ) -> tuple[QuantParams, QuantParams]:
        """Return the parameters of a weight and its constant bias."""
        return params_with_bias(weight, data, self._float32(bias), schema)

    def _float32(self, name: str) -> npt.NDArray[np.float32]:
        array = self.graph.constant(name)
        assert array is not None
        return array.astype(np.float32, copy=False)

    def contracted(self, chains: Mapping[str, PointwiseChain]) -> ModelFacts:
        """Return it with one node instead of each chain, and without the tensors inside chains."""
        if not chains:
            return self
        inner = inner_tensors(chains.values())
        tensors = {name: tensor for name, tensor in self.profile.tensors.items() if name not in inner}
        profile = replace(self.profile, tensors=tensors)
        return ModelFacts(contracted_graph(self.graph, chains.values()), profile, self.opset)


@dataclass(frozen=True, eq=False)
class PlanningFacts:
    """Everything that decisions about one model follow from: the same for all plans of a call."""

    prepared: PreparedModel  # the model as it was prepared: index, identity, findings
    recipe: Recipe  # settings that were asked for, and the target
    measured: Profile  # profile of the prepared model
    on: ModelFacts  # the prepared or an adjusted model, and its profile: as measured, or as estimated then
    profile_digest: str  # of the profile as it was given (`profile_digest`); "" for an empty one
    findings: tuple[Finding, ...]  # of preparation and earlier steps
    channel_densities: ChannelDensities
    range_cache: RangeCache  # calibrated ranges
    # Those planned as one node, by the name of that node.
    chains: Mapping[str, PointwiseChain] = field(default_factory=dict)
    noise_left: Callable[[], Mapping[str, float]] = dict  # by equalization: it takes long

    @property
    def graph(self) -> Graph:
        """The graph of the model."""
        return self.on.graph

    @property
    def profile(self) -> Profile:
        """The profile of its activations."""
        return self.on.profile

    @property
    def noise_gains(self) -> NoiseGains:
        """The noise that the nodes let through."""
        return self.on.noise_gains

    @cached_property
    def config(self) -> QuantConfig:
        """The settings in effect: those asked for with the limits that the mode implies."""
        return with_limit(self.recipe.config)

    @cached_property
    def contracted(self) -> PlanningFacts:
        """The facts with one node instead of each chain, and without the tensors inside chains."""
        return replace(self, on=self.on.contracted(self.chains)) if self.chains else self

    def of_adjusted(self, graph: Graph, profile: Profile) -> PlanningFacts:
        """Return the facts of an adjusted model, without chains whose function the adjustment changed."""
        found = ((name, adjusted_chain(chain, graph)) for name, chain in self.chains.items())
        chains = {name: chain for name, chain in found if chain is not None}
        return replace(self, on=ModelFacts(graph, profile, self.on.opset), chains=chains)

    @property
    def target(self) -> Target:
        """The operators and types that the runtime can execute."""
        return self.recipe.target

    @property
    def identity(self) -> ModelId:
        """The fingerprint of the prepared model."""
        return self.prepared.identity

    @cached_property
    def activations(self) -> ActivationRanges:
        """Calibrated and effective ranges of the activations."""
        return ActivationRanges(self.graph, self.profile, self.recipe, self.identity.opset, self.range_cache)

    @cached_property
    def noise_estimator(self) -> NoiseEstimator:
        """The estimates of the noise of plans."""
        return NoiseEstimator(self.activations, self.noise_gains, self.noise_left, self.on.weight_errors)

    @cached_property
    def knows_sizes(self) -> bool:
        """Whether the sizes of all activations are known: from counts of elements, or from the model."""
        dims = (
            dim
            for name, tensor in self.measured.items()
            if tensor.dtype == "float" and (value := self.prepared.graph.values.get(name)) is not None
            for dim in ([None] if value.shape is None else list(value.shape)[1:])
        )
        return has_histograms(self.measured) or all(isinstance(dim, int) for dim in dims)

    @cached_property
    def cost_model(self) -> CostModel | None:
        """Times of nodes and conversions; None if the target's kernels or the sizes are unknown."""
        table = self.recipe.costs
        ways = self.target.spellings if self.config.form in RUNTIME_FORMS else ()
        if table is None or not self.knows_sizes:
            return None
        on_codes = FORMS[self.config.form].kernels_on_codes
        return CostModel(self.graph, self.profile, table, spellings=ways, folds=on_codes)

    @cached_property
    def file_costs(self) -> CostModel | None:
        """Times of the nodes of the model's file, as onnxruntime has it after loading; None as above."""
        table = self.recipe.costs
        if table is None or not self.knows_sizes:
            return None
        return CostModel(self.prepared.loaded, self.measured, table)

    @cached_property
    def float_spellings(self) -> Mapping[str, str]:
        """Implementations of float nodes that cost less than the usual ones."""
        model = self.cost_model
        if model is None:
            return {}
        names = list(filter(has_own_price, model.spellings))
        return {node.name: model.float_spelling(node, names) for node in self.graph.nodes if names}

    @cached_property
    def noise_limits(self) -> NoiseLimits:
        """The noise limits of the prepared model's outputs and of the steps inside it."""
        return noise_limits(self.prepared.graph, self.measured, self.config)

    @cached_property
    def judged(self) -> tuple[str, ...]:
        """The tensors at which the noise of a plan is judged: outputs, their parts, and steps inside."""
        compared = [name for name in self.noise_limits.compared if self.noise_gains.powers.get(name)]
        return tuple(dict.fromkeys([*self.noise_gains.judged_tensors(), *compared]))

    @cached_property
    def requested_float(self) -> FloatReasons:
        """The nodes of `graph` that `keep_float` names, or that stay float for a format of numbers."""
        matched = match_nodes(self.prepared.graph, self.config.keep_float)
        reasons = {name: self._kept_float(pattern) for name, pattern in matched.items()}
        for number_format in formats_of(self.config):
            reasons |= number_format.floats(self.prepared.graph, self.recipe)
        return self.by_planned_node(reasons)

    def _kept_float(self, pattern: str) -> FloatReason:
        own = self.recipe.own_floats.get(pattern)
        if own is None:
            return because(ReasonCode.BY_REQUEST, pattern=pattern)
        return because(ReasonCode.UNKNOWN, text=own)

    def by_planned_node(self, reasons: FloatReasons) -> FloatReasons:
        """Return reasons with the name of its chain for a node in one: a chain stays float as a whole."""
        chain_of = {node.name: name for name, chain in self.chains.items() for node in chain.nodes}
        return {chain_of.get(name, name): reason for name, reason in reasons.items()}

    def product_params(
        self, node: Node, layout: WeightLayout, axis: int | None, schema: Schema, qtype: QuantType
    ) -> QuantParams:
        """Return `channel_params` of the weight of a product of integers that the target computes exactly."""
        name = node.input(layout.index)
        params = self.on.channel_params(name, axis, schema, qtype)
        if not self.target.pairs_in_16_bits or qtype != INT8 or layout.input_axis is None:
            return params
        if params.zero_point.any():  # its products sum the codes: those of 7 bits are safe in any pair
            params = self.on.channel_params(name, axis, schema, INT7)
            return QuantParams(params.scale, params.zero_point, qtype, axis)
        weight = node.constant(layout.index)
        assert weight is not None
        axes = layout.axes(node, weight.shape)
        return self.on.unsaturated_params(name, layout, axes, axis, schema)

    @cached_property
    def imprecise(self) -> FloatReasons:
        """The activations that would lose more than `min_tensor_sqnr` allows, each with the reason."""
        least = self.config.min_tensor_sqnr
        names = self.activations.names if least > 0.0 else ()
        return {name: reason for name in names if (reason := self._below(name, least)) is not None}

    @property
    def starts_everywhere(self) -> bool:
        """Whether quantization starts at every operator that can be quantized, at any cost in time."""
        everything_asked = not self.config.regards_time and not self.recipe.products_alone
        return self.target.start_everywhere or everything_asked

    def _below(self, name: str, least: float) -> FloatReason | None:
        config, qtype = self.config, TYPES[self.config.activation_type]
        chosen = self.activations.calibrated(name)
        params = choose_params(chosen.low, chosen.high, SCHEMAS[config.schema], qtype)
        sqnr = self.activations.noise(name, params).sqnr_db
        if sqnr >= least:
            return None
        return because(
            ReasonCode.BELOW_SQNR_LIMIT, tensor=name, type=qtype.name, sqnr=sqnr, limit=config.min_tensor_sqnr
        )


def params_with_bias(
    weight: QuantParams, data: QuantParams, bias: npt.NDArray[np.float32], schema: Schema
) -> tuple[QuantParams, QuantParams]:
    """Return `schemas.weight_for_bias` of a bias, and the `bias_params` to it."""
    raised = weight_for_bias(data, weight, bias, schema)
    return raised, bias_params(data, raised)


def planning_facts(
    prepared: PreparedModel, profile: Profile, recipe: Recipe, findings: tuple[Finding, ...] = ()
) -> PlanningFacts:
    """Return the facts of a model; no chain is planned as one node yet."""
    run = with_shapes_of_run(prepared, profile)
    graph = run.graph
    clipped = with_fillers_apart(with_clip_profiles(profile, graph), graph)
    planned_profile, on_ranges = clipped, _on_ranges(profile, recipe)
    if recipe.config.mode not in DATA_FREE and not has_histograms(profile):
        # Ranges are taken as they are: a calibrator has nothing to choose from.
        recipe = replace(recipe, config=replace(recipe.config, calibrator="minmax"))
        planned_profile = with_assumed_values(clipped)
    facts = PlanningFacts(
        prepared=run,
        recipe=recipe,
        measured=clipped,
        on=ModelFacts(graph, planned_profile, run.identity.opset),
        profile_digest=profile_digest(profile) if profile.tensors else "",
        findings=(
            *(f for f in prepared.findings if f.code is not Code.WIDENED or not recipe.config.is_float16),
            *findings,
            *profile.data.findings,
            *on_ranges,
        ),
        channel_densities=ChannelDensities(planned_profile),
        range_cache=RangeCache(),
    )
    if recipe.config.mode in DATA_FREE or not has_histograms(profile):
        return facts
    return replace(facts, findings=(*facts.findings, *facts.noise_limits.findings()))


def _on_ranges(profile: Profile, recipe: Recipe) -> tuple[Finding, ...]:
    """Return the findings about a profile with ranges only; () for other profiles."""
    if has_histograms(profile):
        return ()
    config = recipe.config
    wanted = "calibrator" in recipe.given or config.calibrator != QuantConfig().calibrator
    asked = {f"calibrator {config.calibrator}": wanted and config.calibrator != "minmax"}
    asked |= {
        "min_tensor_sqnr": config.min_tensor_sqnr > 0.0,
        "min_output_sqnr": bool(config.min_output_sqnr),
        "tolerance": config.tolerance is not None,
    }
    needs = [name for name, is_asked in asked.items() if is_asked]
    who = source_of(profile)
    if needs:
        raise ProfileError(
            f"{needs[0]}: needs histograms, but the profile from {who} has only ranges; leave it out, "
            "or profile the model with 'qprof dump-profile'"
        )
    sentence = (
        f"the profile from {who} has only ranges: qprof uses them unchanged, with any calibrator, and "
        "assumes the distribution of the values; nodes that are then too noisy stay float"
    )
    return (Finding(Code.RANGES_ONLY, sentence, remedy="check the model with 'qprof evaluate'"),)


def with_chains(facts: PlanningFacts) -> PlanningFacts:
    """Return the facts with the chains planned as one node."""
    chains = [
        replace(chain, fused=_fused(chain, facts))
        for chain in find_chains(facts.graph)
        if not planned_separately(chain, facts.target, facts.profile)
    ]
    nodes = {node for chain in chains for node in chain.nodes}
    chains += [chain for chain in _faster_fused(facts) if nodes.isdisjoint(chain.nodes)]
    return replace(facts, chains={chain.name: chain for chain in chains})


def _fused(chain: PointwiseChain, facts: PlanningFacts) -> str:
    """Return the kernel of the target's one float operator for a chain, or ""."""
    if Implementation.FUSED not in facts.target.spellings or facts.config.form not in RUNTIME_FORMS:
        return ""
    function = fused_function(chain, facts.identity.opset)
    return "" if function is None else FUSED_KERNELS[function[0]]


def _faster_fused(facts: PlanningFacts) -> Iterator[PointwiseChain]:
    """Yield the functions whose operators would be quantized apart, and are faster as one in float."""
    model = facts.cost_model
    if model is None or Implementation.FUSED not in facts.target.spellings:
        return
    for chain, nodes in functions_of_one_variable(facts.graph):
        if not planned_separately(chain, facts.target, profiled=facts.profile):
            continue
        kernel = _fused(chain, facts)
        entry = NodePlan(Kind.LOOKUP_TABLE, implementation=Implementation.FUSED)
        apart = sum(model.integer_time(part, NodePlan(Kind.QUANTIZED)) for part in nodes)
        if kernel and model.integer_time(nodes[-1], entry) <= apart:
            yield replace(chain, fused=kernel, quantized_fused=True)
