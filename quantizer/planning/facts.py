"""The facts that plans are made from: one record, made once for a call and given to every step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from operator import is_
from typing import TypeVar, cast

import numpy as np

from ...profiles.base.errors import ProfileError
from ...profiles.base.findings import Code, Finding
from ...profiles.records.profile import ModelId, Profile, has_histograms, source_of
from ..costs.predicted import CostModel
from ..costs.spellings import has_own_price
from ..costs.token_runs import TokenCosts, token_costs
from ..noise.activation_ranges import ActivationRanges, RangeCache, with_clip_profiles
from ..noise.assumed_values import with_assumed_values
from ..noise.estimator import NoiseEstimator
from ..noise.mask_fillers import with_fillers_apart
from ..noise.output_limits import NoiseLimits, noise_limits
from ..noise.propagation import NoiseGains, WeightErrors, measured_gains
from ..numerics.affine import INT7, INT8, TYPES, QuantParams, QuantType
from ..numerics.array_file import ArrayFile
from ..numerics.calibrators import Range
from ..numerics.density import ChannelDensities
from ..numerics.schemas import SCHEMAS, Schema, bias_params, channel_params, choose_params, weight_for_bias
from ..operators.functions import PointwiseChain
from ..operators.graph import Graph, Node, match_nodes
from ..operators.pair_sums import unsaturated
from ..operators.weight_layout import WeightLayout
from ..plan.formats import formats_of
from ..plan.provenance import profile_digest
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..plan.rewrites import PLAIN_LAYOUT
from ..prepare.prepare import PreparedModel, fix_shapes, with_shapes_of_run
from ..targets.config import DATA_FREE, QuantConfig, split_shapes, with_limit
from ..targets.forms import FORMS, RUNTIME_FORMS
from ..targets.target import Recipe, Target
from ..targets.weight_formats import WeightFormat, asked_format

T = TypeVar("T")

MOST_KEPT = 8
"""Values of one derived fact that are kept, so that memory does not grow with the number of plans."""


class KeptFacts:
    """The facts derived for plans of one model, each with the field values that it follows from."""

    def __init__(self, before: KeptFacts | None = None) -> None:
        """Start a store; `before`, that of the model before an adjustment, is searched too."""
        self._before = before
        self._known: dict[str, list[tuple[tuple[object, ...], object]]] = defaultdict(list)

    def find(self, name: str, sources: tuple[object, ...]) -> tuple[object] | None:
        """Return the fact that was derived from the same objects, in a tuple, or None."""
        for known, value in self._known[name]:
            if all(map(is_, known, sources)):
                return (value,)
        return None if self._before is None else self._before.find(name, sources)

    def keep(self, name: str, sources: tuple[object, ...], value: object) -> None:
        """Store a fact that was derived from some objects."""
        self._known[name] = [(sources, value), *self._known[name]][:MOST_KEPT]


def derived_from(*fields: str) -> Callable[[Callable[[PlanningFacts], T]], cached_property[T]]:
    """Return a decorator that computes a fact once for all records with the same objects in these fields."""

    def decorated(function: Callable[[PlanningFacts], T]) -> cached_property[T]:
        def derived(facts: PlanningFacts) -> T:
            name, sources = function.__name__, tuple(getattr(facts, field) for field in fields)
            found = facts.kept.find(name, sources)
            if found is None:
                found = (function(facts),)
                facts.kept.keep(name, sources, found[0])
            return cast(T, found[0])

        derived.__doc__ = function.__doc__
        return cached_property(derived)

    return decorated


@dataclass(frozen=True, eq=False)
class PlanningFacts:
    """Everything that decisions about one model follow from: the same for all plans of a call."""

    prepared: PreparedModel  # the model as it was prepared: index, identity, findings
    recipe: Recipe  # settings that were asked for, and the target
    config: QuantConfig  # the settings in effect: those asked for with the limits that the mode implies
    measured: Profile  # profile of the prepared model
    graph: Graph
    profile: Profile  # of its activations: as measured, or as estimated after an adjustment
    profile_digest: str  # of the profile as it was given (`profile_digest`); "" for an empty one
    findings: tuple[Finding, ...]  # of preparation and earlier steps
    chains: Mapping[str, PointwiseChain]  # those planned as one node, by the name of that node
    channel_densities: ChannelDensities
    range_cache: RangeCache  # calibrated ranges, kept
    # By constant of a float node, if it is not the one asked for.
    weight_formats: Mapping[str, WeightFormat] = field(default_factory=dict)
    array_file: ArrayFile = field(default_factory=ArrayFile)  # where the scales of blocks are kept
    noise_left: Callable[[], Mapping[str, float]] = dict  # `left_by_equalization`, which takes long
    kept: KeptFacts = field(default_factory=KeptFacts)  # what was derived from records of this model

    @property
    def target(self) -> Target:
        """The operators and types that the runtime can execute."""
        return self.recipe.target

    @property
    def identity(self) -> ModelId:
        """The fingerprint of the prepared model."""
        return self.prepared.identity

    def weight_format(self, name: str) -> WeightFormat:
        """Return the format of a constant of a float node: the chosen or the requested one."""
        return self.weight_formats.get(name) or asked_format(self.config)

    @derived_from("graph")
    def format_errors(self) -> dict[Hashable, float]:
        """Errors of weights in formats that a size chooses among, over their signal."""
        return {}

    @derived_from("graph", "profile", "recipe", "prepared", "range_cache")
    def activations(self) -> ActivationRanges:
        """Calibrated and effective ranges of the activations."""
        return ActivationRanges(self.graph, self.profile, self.recipe, self.identity.opset, self.range_cache)

    @derived_from("graph", "profile", "prepared")
    def noise_gains(self) -> NoiseGains:
        """The noise that the nodes let through, corrected by measured noise if the profile has some."""
        return measured_gains(
            self.graph, self.profile, self.identity.opset, self.profile.noise, self._weight_errors
        )

    @derived_from("graph")
    def _weight_errors(self) -> WeightErrors:
        return {}

    @derived_from("graph", "profile", "recipe", "prepared", "range_cache", "noise_left")
    def noise_estimator(self) -> NoiseEstimator:
        """The estimates of the noise of plans."""
        return NoiseEstimator(self.activations, self.noise_gains, self.noise_left, self._weight_errors)

    @derived_from("graph", "profile", "recipe", "config", "prepared", "range_cache", "chains")
    def decisions(self) -> list[tuple[tuple[object, ...], object]]:
        """The last decisions of `planner.decide`, each with all else that it follows from."""
        return []

    @derived_from("graph", "profile", "chains")
    def contracted_model(self) -> list[tuple[Graph, Profile]]:
        """The contracted model and its profile, kept by `chains.contracted`; at most one."""
        return []

    @derived_from("prepared", "measured")
    def knows_sizes(self) -> bool:
        """Whether the sizes of all activations are known: from counts of elements, or from the model."""
        dims = (
            dim
            for name, tensor in self.measured.items()
            if tensor.dtype == "float" and (value := self.prepared.graph.values.get(name)) is not None
            for dim in ([None] if value.shape is None else list(value.shape)[1:])
        )
        return has_histograms(self.measured) or all(isinstance(dim, int) for dim in dims)

    @derived_from("graph", "profile", "recipe", "config", "prepared", "measured")
    def cost_model(self) -> CostModel | None:
        """Times of nodes and conversions; None if the target's kernels or the sizes are unknown."""
        table = self.recipe.costs
        ways = self.target.spellings if self.config.form in RUNTIME_FORMS else ()
        if table is None or not self.knows_sizes:
            return None
        on_codes = FORMS[self.config.form].kernels_on_codes
        return CostModel(self.graph, self.profile, table, spellings=ways, folds=on_codes)

    @derived_from("prepared", "measured", "recipe")
    def file_costs(self) -> CostModel | None:
        """Times of the nodes of the model's file, as onnxruntime has it after loading; None as above."""
        table = self.recipe.costs
        if table is None or not self.knows_sizes:
            return None
        return CostModel(self.prepared.loaded, self.measured, table)

    @derived_from("prepared", "recipe", "config")
    def token_costs(self) -> TokenCosts | None:
        """Times of nodes in a mode without data; None without measured times, or for unknown sizes."""
        table, config = self.recipe.costs, self.config
        if table is None:
            return None
        return token_costs(self.prepared.model, table, self.target, config.prompt, config.answer)

    @derived_from("graph", "profile", "recipe", "config")
    def float_spellings(self) -> Mapping[str, str]:
        """Implementations of float nodes that cost less than the usual ones."""
        model = self.cost_model
        if model is None:
            return {}
        names = list(filter(has_own_price, model.spellings))
        spellings = {node.name: model.float_spelling(node, names) for node in self.graph.nodes if names}
        spellings |= dict.fromkeys(model.plain, PLAIN_LAYOUT)
        return spellings

    @derived_from("prepared", "measured", "config")
    def noise_limits(self) -> NoiseLimits:
        """The noise limits of the prepared model's outputs and of the steps inside it."""
        return noise_limits(self.prepared.graph, self.measured, self.config)

    @derived_from("prepared", "recipe", "config", "chains")
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

    def channel_params(self, name: str, axis: int | None, schema: Schema, qtype: QuantType) -> QuantParams:
        """Return `schemas.channel_params` of a constant of the graph, in float32; cached for later plans."""
        key = (name, axis, schema, qtype)
        if key not in self._channel_params:
            array = self.graph.constant(name)
            assert array is not None
            self._channel_params[key] = channel_params(
                array.astype(np.float32, copy=False), axis, schema, qtype
            )
        return self._channel_params[key]

    def product_params(
        self, node: Node, layout: WeightLayout, axis: int | None, schema: Schema, qtype: QuantType
    ) -> QuantParams:
        """Return `channel_params` of the weight of a product of integers that the target computes exactly."""
        name = node.input(layout.index)
        params = self.channel_params(name, axis, schema, qtype)
        if not self.target.pairs_in_16_bits or qtype != INT8 or layout.input_axis is None:
            return params
        if params.zero_point.any():  # its products sum the codes: those of 7 bits are safe in any pair
            params = self.channel_params(name, axis, schema, INT7)
            return QuantParams(params.scale, params.zero_point, qtype, axis)
        array = self.graph.constant(name)
        assert array is not None
        axes = layout.axes(node, array.shape)
        key = (name, layout, axes, axis, schema)
        if key not in self._channel_params:
            weight = array.astype(np.float32, copy=False)
            self._channel_params[key] = unsaturated(params, weight, axes, layout, schema)
        return self._channel_params[key]

    def params_with_bias(
        self, weight: QuantParams, data: QuantParams, bias: str, schema: Schema
    ) -> tuple[QuantParams, QuantParams]:
        """Return `schemas.weight_for_bias` of a constant bias, and the `bias_params` to it; cached."""
        key = (bias, weight, data, schema)
        if key not in self._params_with_bias:
            array = self.graph.constant(bias)
            assert array is not None
            raised = weight_for_bias(data, weight, array.astype(np.float32, copy=False), schema)
            self._params_with_bias[key] = (raised, bias_params(data, raised))
        return self._params_with_bias[key]

    @derived_from("graph")
    def _params_with_bias(
        self,
    ) -> dict[tuple[str, QuantParams, QuantParams, Schema], tuple[QuantParams, QuantParams]]:
        return {}

    @derived_from("graph")
    def _channel_params(self) -> dict[tuple[object, ...], QuantParams]:
        return {}

    @derived_from("graph", "config")
    def named_16bit(self) -> frozenset[str]:
        """The activations that `keep_16bit` names: tensors, or all activations of nodes."""
        return activations_named(self.graph, self.config.keep_16bit)

    @derived_from("graph", "profile", "recipe", "config", "prepared", "range_cache")
    def precisions(self) -> Mapping[str, QuantType | FloatReason]:
        """The type of every activation that has a range, or the reason why it stays float."""
        return {name: self._precision(name) for name in self.activations.names}

    @property
    def starts_everywhere(self) -> bool:
        """Whether quantization starts at every operator that can be quantized, at any cost in time."""
        everything_asked = not self.config.regards_time and not self.recipe.products_alone
        return self.target.start_everywhere or everything_asked

    @property
    def type_16bit(self) -> QuantType:
        """The 16-bit type with the sign of the activation type."""
        return TYPES["int16" if TYPES[self.config.activation_type].signed else "uint16"]

    def _precision(self, name: str) -> QuantType | FloatReason:
        config, own, wide = self.config, TYPES[self.config.activation_type], self.type_16bit
        asked = name in self.named_16bit
        if config.min_tensor_sqnr <= 0.0:
            return wide if asked else own
        types = [wide] if asked else [own, wide] if self._has_16bit_kernels(name) else [own]
        sqnr = 0.0
        for qtype in types:
            chosen = self.activations.calibrated(name, qtype)
            params = choose_params(chosen.low, chosen.high, SCHEMAS[config.schema], qtype)
            sqnr = self.activations.noise(name, params).sqnr_db
            if sqnr >= config.min_tensor_sqnr:
                return qtype
        return because(
            ReasonCode.BELOW_SQNR_LIMIT,
            tensor=name,
            type=types[-1].name,
            sqnr=sqnr,
            limit=config.min_tensor_sqnr,
        )

    def _has_16bit_kernels(self, name: str) -> bool:
        """Whether every quantized operator that makes or reads an activation has a kernel for 16 bits."""
        if self.type_16bit.name not in self.target.activation_types:
            return False
        producer = self.graph.producer(name)
        nodes = [*([] if producer is None else [producer]), *(node for node, _ in self.graph.consumers(name))]
        op_types = [node.op_type for node in nodes if node.op_type in self.target.operators]
        return bool(op_types) and all(map(self.target.has_16bit_kernel, op_types))

    @derived_from("graph", "profile", "recipe", "config", "prepared", "range_cache")
    def in_16_bits(self) -> frozenset[str]:
        """The activations with 16 bits because of a setting or their noise, not of the activation type."""
        named = self.named_16bit.intersection(self.activations.names)
        if self.config.min_tensor_sqnr <= 0.0:
            return named
        own = TYPES[self.config.activation_type]
        return named | {n for n, p in self.precisions.items() if isinstance(p, QuantType) and p != own}

    def range_of(self, name: str) -> Range:
        """Return the calibrated range of an activation in the type that it has."""
        return self.activations.calibrated(name, self.type_16bit if name in self.in_16_bits else None)


def activations_named(graph: Graph, patterns: Collection[str]) -> frozenset[str]:
    """Return the activations that `keep_16bit` names: tensors, or all activations of nodes."""
    activations = {n for n, v in graph.values.items() if not graph.is_constant(n) and graph.is_float(n)}
    named: set[str] = set()
    for pattern in patterns:
        tensors = {pattern} & activations or {n for n in activations if fnmatchcase(n, pattern)}
        named |= tensors
        if not tensors:
            matched = match_nodes(graph, [pattern], "keep_16bit")
            for node in graph.nodes:
                if node.name in matched and node.rule is not None:
                    named |= activations.intersection((*node.activations, *node.results))
    return frozenset(named)


def planning_facts(
    prepared: PreparedModel, profile: Profile, recipe: Recipe, findings: tuple[Finding, ...] = ()
) -> PlanningFacts:
    """Return the facts of a model; no chain is planned as one node yet."""
    fixed = fix_shapes(prepared, split_shapes(recipe.config.fix_shapes))
    run = with_shapes_of_run(fixed, profile)
    graph = run.graph
    clipped = with_fillers_apart(with_clip_profiles(profile, graph), graph)
    if fixed is not prepared:  # some activations are constants now
        clipped = replace(
            clipped,
            tensors={
                name: tensor
                for name, tensor in clipped.tensors.items()
                if name in graph.values and not graph.is_constant(name)
            },
        )
    planned_profile, on_ranges = clipped, _on_ranges(profile, recipe)
    if recipe.config.mode not in DATA_FREE and not has_histograms(profile):
        # Ranges are taken as they are: a calibrator has nothing to choose from.
        recipe = replace(recipe, config=replace(recipe.config, calibrator="minmax"))
        planned_profile = with_assumed_values(clipped)
    facts = PlanningFacts(
        prepared=run,
        recipe=recipe,
        config=with_limit(recipe.config),
        measured=clipped,
        graph=graph,
        profile=planned_profile,
        profile_digest=profile_digest(profile) if profile.tensors else "",
        findings=(
            *(f for f in prepared.findings if f.code is not Code.WIDENED or not recipe.config.is_float16),
            *findings,
            *profile.data.findings,
            *on_ranges,
        ),
        chains={},
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
            f"{needs[0]}: needs histograms, and the profile has ranges only, of {who}; leave it out, "
            "or profile the model with 'qprof dump-profile'"
        )
    sentence = (
        f"the profile has ranges only, of {who}: they are taken as they are, with any calibrator; how values "
        "are spread over them is assumed, and nodes that are too noisy then stay float"
    )
    return (Finding(Code.RANGES_ONLY, sentence, remedy="check the model with 'qprof evaluate'"),)
