"""The reasons for a tensor's parameters and a node's kind.

The plan contains the shared-scale groups with the ranges of their members, so it explains itself. The model
adds the nodes around a tensor, and the inputs and outputs of a node; the profile adds observed values and
expected noise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TypeAlias

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ConfigError, nearest
from ....profiles.base.findings import Code, Finding
from ....profiles.base.presentation import Presentation, Presented, Table, decibels
from ....profiles.records.histogram import Histogram
from ....profiles.records.profile import Profile, TensorProfile
from ...adjustments.equalization import equalized_profile
from ...api.results import QuantizeResult
from ...model.files import ModelLike
from ...noise.activation_ranges import effective_range, evaluated, find_following
from ...numerics.affine import TYPES, QuantParams
from ...numerics.clipping import covered, share_outside
from ...numerics.quantization_noise import expected_noise
from ...numerics.schemas import SCHEMAS, choose_params
from ...operators.graph import Graph
from ...plan.documents import read_profile
from ...plan.plan import QuantPlan
from ...plan.provenance import profile_digest
from ...plan.reasons import stays_float
from ...plan.store import PlanLike, plan_name, read_plan
from ...planning.plan_model import open_plan
from ...planning.shared_scales import lost_to
from ...prepare.prepare import ProfileLike, opened, profile_name

# What `explain` says of a tensor or a node: plain records.


@dataclass(frozen=True)
class Member:
    """One tensor of a shared-scale group.

    Attributes:
        name: of the tensor.
        own_range: its own calibrated range.
        sets_range: whether its range makes the common one.
        lost_db: loss by sharing in dB: the step grows with the width of the range. 0 for a common range that
            is narrower, because a clip downstream discards the rest.
        sqnr_db: expected SQNR with the parameters of the plan; None without a profile, and if all readers
            discard a part of the values (Relu, Clip, ...), whose loss is not noise.
        own_sqnr_db: the same with parameters from its own range.
    """

    name: str
    own_range: tuple[float, float]
    sets_range: bool
    lost_db: float
    sqnr_db: float | None = None
    own_sqnr_db: float | None = None


@dataclass(frozen=True)
class Neighbour:
    """A node that makes or reads the tensor.

    Attributes:
        node, operator: its name and type.
        makes: whether it makes the tensor; if not, it reads it.
        kind: of the node in the plan, as in `NodePlan`.
        reason: why it stays float, or a remark.
    """

    node: str
    operator: str
    makes: bool
    kind: str
    reason: str


@dataclass(frozen=True)
class Observed:
    """The values of a tensor, and how its readers use them.

    Attributes:
        minimum, maximum: of the values in the profile, or of a constant.
        is_constant: whether the tensor is a constant of the model.
        clipped: share of the values that saturate by more than one step with the parameters of the plan, 0 to
            1; None for a float tensor, a constant, and a profile with Glow's coarse bins.
        effective_range: interval outside which no reader distinguishes values, such as 0 and inf before a
            Relu; None if the readers use all observed values.
        following_function: operators of the activation function that the readers compute, if the calibrator
            minimises the error after it; else empty.
    """

    minimum: float
    maximum: float
    is_constant: bool
    clipped: float | None
    effective_range: tuple[float, float] | None
    following_function: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class TensorExplanation(Presented, document="explanation"):
    """Why one tensor of a plan has its parameters.

    Attributes:
        tensor: its name.
        params: its parameters; None for a tensor that stays float.
        calibrator: calibrator of the plan.
        range: the common range of its shared-scale group; None if it shares its scale with no other tensor.
        tied_by: names of the nodes that tied the group.
        members: tensors of the group, in graph order.
        neighbours: the nodes around the tensor, the one that makes it first; None without a model.
        observed: its values; None without a profile or, for a constant, a model.
        sqnr_db: expected SQNR with the parameters of the plan; None without a profile.
        findings: notes about the files.
    """

    tensor: str
    params: QuantParams | None
    calibrator: str
    range: tuple[float, float] | None
    tied_by: tuple[str, ...]
    members: tuple[Member, ...]
    neighbours: tuple[Neighbour, ...] | None
    observed: Observed | None
    sqnr_db: float | None
    findings: tuple[Finding, ...] = ()

    def headline(self) -> str:
        """Return the tensor, its type and scale, and how many share it."""
        if self.params is None:
            return f"{self.tensor} stays float"
        scales = self.params.scale
        scale = f"scale {scales[0]:.6g}" if len(scales) == 1 else f"{len(scales)} scales"
        shared = f", shared by {len(self.members)}" if self.members else ""
        return f"{self.tensor}: {self.params.qtype.name}, {scale}{shared}"

    def presentation(self) -> Presentation:
        """Return the parameters, the values, the tensors that share the parameters, the nodes around it."""
        facts = [("parameters", _params_text(self.params))]
        if self.sqnr_db is not None:
            facts.append(("expected SQNR", f"{decibels(self.sqnr_db)} dB"))
        facts += [] if self.observed is None else self._facts_of(self.observed)
        if self.range is not None:
            others = f"{len(self.members) - 1} other(s), tied by {', '.join(self.tied_by)}"
            facts.append(("scale", f"shared with {others}; common range {_range_text(self.range)}"))
        elif self.params is not None:
            facts.append(("scale", "of no other tensor"))
        if self.neighbours is None:
            facts.append(("more", "--model and --profile add the nodes around it and its observed range"))
        members = tuple(
            (
                m.name,
                _range_text(m.own_range),
                "yes" if m.sets_range else "",
                f"{m.lost_db:.2f}",
                *map(decibels, (m.sqnr_db, m.own_sqnr_db)),
            )
            for m in self.members
        )
        nodes = tuple(
            (n.node, n.operator, "output" if n.makes else "input", n.kind, n.reason)
            for n in self.neighbours or ()
        )
        member_header = ("tensor", "own range", "sets the range", "lost dB", "SQNR dB", "unshared SQNR dB")
        node_header = ("node", "operator", "the tensor is its", "kind", "reason")
        tables = (Table(member_header, members), Table(node_header, nodes, left=5))
        return Presentation(tuple(facts), tables, self.findings)

    def _facts_of(self, observed: Observed) -> list[tuple[str, str]]:
        """Return the values, the part that readers use, and the calibrator of the range."""
        values = _range_text((observed.minimum, observed.maximum))
        if observed.is_constant:
            return [("constant", values)]
        facts = [("observed", values + _clipped_text(observed))]
        if observed.effective_range is not None:
            facts.append(("used", f"{_range_text(observed.effective_range)}; others may be clipped"))
        if self.params is not None:
            after = ""
            if observed.following_function:
                after = f", for the error after {', '.join(observed.following_function)}, which follows"
            facts.append(("calibrator", f"{self.calibrator}{after}"))
        return facts


@dataclass(frozen=True)
class Operand:
    """An input or output of a node.

    Attributes:
        index: position among the inputs or outputs.
        tensor: its name.
        params: that the node reads or writes it with; None for float.
        converted: whether these are not the parameters that the tensor is stored with.
        observed: its values as profiled; None for a constant, and without a profile.
    """

    index: int
    tensor: str
    params: QuantParams | None
    converted: bool
    observed: Observed | None = None


@dataclass(frozen=True, repr=False)
class NodeExplanation(Presented, document="explanation"):
    """Why one node of a plan is quantized or float.

    Attributes:
        node: its name.
        operator: its type; None without a model.
        kind: kind of the node in the plan, as in `NodePlan`.
        implementation: implementation, as in `NodePlan`; "" for the usual one.
        reason: why it stays float, or a remark.
        inputs, outputs: its operands; None without a model.
        findings: the finding that it stays float, with the code and the figures of the reason.
    """

    node: str
    operator: str | None
    kind: str
    implementation: str
    reason: str
    inputs: tuple[Operand, ...] | None
    outputs: tuple[Operand, ...] | None
    findings: tuple[Finding, ...] = ()

    def headline(self) -> str:
        """Return the node, its operator and its kind."""
        operator = "" if self.operator is None else f" ({self.operator})"
        return f"{self.node}{operator}: {'stays float' if self.kind == 'float' else self.kind}"

    def presentation(self) -> Presentation:
        """Return the reason, and the operands with their parameters."""
        operands = [*((o, "input") for o in self.inputs or ()), *((o, "output") for o in self.outputs or ())]
        rows = []
        for one, side in operands:
            seen = one.observed
            values = "" if seen is None else _range_text((seen.minimum, seen.maximum)) + _clipped_text(seen)
            converted = ", converted for this node" if one.converted else ""
            rows.append((one.tensor, f"{side} {one.index}", _params_text(one.params) + converted, values))
        told = (("why", self.reason), ("written as", self.implementation))
        facts = [fact for fact in told if fact[1]]
        if self.inputs is None:
            facts.append(("more", "--model adds its operator, inputs and outputs"))
        return Presentation(
            tuple(facts), (Table(("tensor", "operand", "parameters", "observed"), tuple(rows), left=4),)
        )


Explanation: TypeAlias = TensorExplanation | NodeExplanation
"""Explanation of a tensor or of a node."""


def _range_text(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.6g} .. {ends[1]:.6g}"


def _clipped_text(observed: Observed) -> str:
    return "" if observed.clipped is None else f"; {100 * observed.clipped:.4g} % of the values are clipped"


def _params_text(params: QuantParams | None) -> str:
    """Return type, scale, zero point, and the values that they cover."""
    if params is None:
        return "float"
    scale, zero_point = float(params.scale[0]), int(params.zero_point[0])
    covers, several = "", f" and {len(params.scale) - 1} more along axis {params.axis}"
    if len(params.scale) == 1:
        ends = (params.qtype.low - zero_point) * scale, (params.qtype.high - zero_point) * scale
        covers, several = f", covers {_range_text(ends)}", ""
    return f"{params.qtype.name}, scale {scale:.6g}{several}, zero_point {zero_point}{covers}"


@checks_arguments
def explain(
    plan: PlanLike | QuantizeResult,
    name: str,
    model: ModelLike | None = None,
    profile: ProfileLike | None = None,
) -> Explanation:
    """Explain why a tensor has its parameters (who shares them, whose range set them), or a node its kind.

    Args:
        plan: path or object, or the result of `quantize`.
        name: name of a tensor or a node of the prepared model; the tensor if both have that name.
        model: the float model, to show neighbours.
        profile: its profile, for observed values and noise; goes with `model`.

    Raises:
        ConfigError: there is no such tensor or node (with the nearest name), or a profile without the model.
        PlanError, ModelError, ProfileError: a file cannot be read, or belongs to another model.
    """
    source = plan.plan if isinstance(plan, QuantizeResult) else plan
    plan, where = read_plan(source), plan_name(source)
    graph, observed = None, None
    findings: tuple[Finding, ...] = ()
    with nullcontext() if model is None else opened(model) as file:
        if file is not None:
            prepared = file.prepared
            graph = open_plan(prepared, plan, where).graph
            if profile is not None:
                observed = read_profile(profile, prepared.model, prepared.identity)
                if plan.origin.profile not in ("", profile_digest(observed)):
                    sentence = (
                        f"{where} was made from another profile than {profile_name(profile)}: observed "
                        "range, clipped fraction and expected noise are those of the profile given; the "
                        "parameters are not"
                    )
                    findings = (Finding(Code.OTHER_PLAN, sentence, where),)
                observed = equalized_profile(prepared.graph, observed, plan.adjustments.equalization)
        elif profile is not None:
            raise ConfigError(
                f"{profile_name(profile)}: a profile is read with its model; give the model too"
            )
        if name in plan.nodes and name not in _tensor_names(plan, graph):
            return explain_node(plan, name, where, graph, observed)
        return replace(explain_tensor(plan, name, where, graph, observed), findings=findings)


def explain_tensor(
    plan: QuantPlan, tensor: str, where: str, graph: Graph | None = None, profile: Profile | None = None
) -> TensorExplanation:
    """Explain one tensor of a plan, called `where` in errors. See `explain`.

    Raises ConfigError if neither the plan nor the model has the tensor.
    """
    names = _tensor_names(plan, graph)
    if tensor not in names:
        raise _unknown(tensor, {*names, *plan.nodes}, where, has_model=graph is not None)
    params = plan.tensors.get(tensor, plan.borders.get(tensor))
    group = next((g for g in plan.shared_scales if tensor in g.members and params is not None), None)
    noise_profile = None if profile is None or graph is None else _read_in_full(graph, profile, plan)
    members: list[Member] = []
    if group is not None:
        schema, qtype = SCHEMAS[plan.config.schema], TYPES[plan.config.activation_type]
        for name, own_range in group.members.items():
            if plan.tensors.get(name) == params:
                member = Member(
                    name=name,
                    own_range=own_range,
                    sets_range=name in group.range_set_by,
                    lost_db=lost_to(own_range, group.range),
                    sqnr_db=_sqnr(name, params, noise_profile),
                    own_sqnr_db=_sqnr(name, choose_params(*own_range, schema, qtype), noise_profile),
                )
                members.append(member)
    return TensorExplanation(
        tensor=tensor,
        params=params,
        calibrator=plan.config.calibrator,
        range=None if group is None else group.range,
        tied_by=() if group is None else group.tied_by,
        members=tuple(members),
        neighbours=None if graph is None else _neighbours(plan, tensor, graph),
        observed=None if graph is None else _observed(plan, tensor, graph, profile),
        sqnr_db=_sqnr(tensor, params, noise_profile),
    )


def explain_node(
    plan: QuantPlan, name: str, where: str, graph: Graph | None = None, profile: Profile | None = None
) -> NodeExplanation:
    """Explain one node of a plan, called `where` in errors. See `explain`.

    Raises ConfigError if the plan lacks the node.
    """
    if name not in plan.nodes:
        raise _unknown(name, plan.nodes, where, has_model=True)
    entry = plan.nodes[name]
    node = None if graph is None else next(node for node in graph.nodes if node.name == name)
    inputs, outputs = list[Operand](), list[Operand]()
    if node is not None and graph is not None:

        def seen(tensor: str) -> Observed | None:
            return None if graph.is_constant(tensor) else _observed(plan, tensor, graph, profile)

        for index, tensor in enumerate(node.inputs):
            if tensor:
                params = plan.params_read(name, index, tensor)
                converted = params != plan.tensors.get(tensor)
                inputs.append(Operand(index, tensor, params, converted, seen(tensor)))
        for index, tensor in enumerate(node.outputs):
            if tensor:
                outputs.append(Operand(index, tensor, plan.tensors.get(tensor), False, seen(tensor)))
    return NodeExplanation(
        node=name,
        operator=None if node is None else node.op_type,
        kind=entry.kind.value,
        implementation=entry.implementation,
        reason=entry.reason,
        inputs=None if node is None else tuple(inputs),
        outputs=None if node is None else tuple(outputs),
        findings=(stays_float(name, entry.float_reason),) if entry.stays_float else (),
    )


def _tensor_names(plan: QuantPlan, graph: Graph | None) -> set[str]:
    return {*plan.tensors, *plan.borders} if graph is None else {*plan.tensors, *graph.values}


def _unknown(name: str, names: Collection[str], where: str, *, has_model: bool) -> ConfigError:
    advice = "see 'qprof show'" if has_model else "if it stays float, give the model with --model"
    return ConfigError(
        f"{where}: no tensor or node is called '{name}'; {advice}.{nearest(name, sorted(names))}"
    )


def _observed(plan: QuantPlan, name: str, graph: Graph, profile: Profile | None) -> Observed | None:
    constant = graph.constant(name)
    if constant is not None:
        if not constant.size or constant.dtype.kind not in "fiu":
            return None
        return Observed(float(constant.min()), float(constant.max()), True, None, None, ())
    if profile is None or name not in profile or not profile[name].count:
        return None
    tensor, params = profile[name], plan.tensors.get(name)
    clipped = None
    if params is not None and params.axis is None and isinstance(tensor.histogram, Histogram):
        clipped = share_outside(tensor, covered(params))
    low, high = effective_range(graph, name)
    is_clipped = low > tensor.minimum or high < tensor.maximum
    readers = dict.fromkeys(reader.op_type for reader, _ in graph.consumers(name))
    return Observed(
        tensor.minimum,
        tensor.maximum,
        False,
        clipped,
        (low, high) if is_clipped else None,
        tuple(readers) if _error_is_after_function(graph, name, tensor, plan) else (),
    )


def _error_is_after_function(graph: Graph, name: str, tensor: TensorProfile, plan: QuantPlan) -> bool:
    """Whether the range of a tensor is chosen by the error after the activation function that follows it."""
    following = find_following(graph, name) if plan.config.calibrator == "mse" else None
    return following is not None and evaluated(following, tensor, plan.model.opset) is not None


def _read_in_full(graph: Graph, profile: Profile, plan: QuantPlan) -> dict[str, TensorProfile]:
    """Return the profiles of the tensors whose readers use all values alike, so that their error is noise."""
    tensors = {}
    for name, tensor in profile.items():
        if name in graph.values:
            low, high = effective_range(graph, name)
            whole = low <= tensor.minimum and tensor.maximum <= high
            if whole and not _error_is_after_function(graph, name, tensor, plan):
                tensors[name] = tensor
    return tensors


def _sqnr(name: str, params: QuantParams | None, profile: Mapping[str, TensorProfile] | None) -> float | None:
    if profile is None or name not in profile or params is None or params.axis is not None:
        return None
    return expected_noise(profile[name], params).sqnr_db


def _neighbours(plan: QuantPlan, tensor: str, graph: Graph) -> tuple[Neighbour, ...]:
    """Return the nodes around a tensor, the one that makes it first."""
    producer = graph.producer(tensor)
    nodes = [] if producer is None else [(producer, True)]
    nodes += [(node, False) for node in dict.fromkeys(reader for reader, _ in graph.consumers(tensor))]
    return tuple(
        Neighbour(
            node.name, node.op_type, makes, plan.nodes[node.name].kind.value, plan.nodes[node.name].reason
        )
        for node, makes in nodes
    )
