"""Why a tensor has its parameters: who shares them, who tied them, whose range won, what that costs.

The plan holds the groups with the ranges of their members, so it explains itself. A model adds the nodes
around the tensor; a profile adds the noise that is to be expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, nearest
from ...profiles.records.profile import Profile, TensorProfile
from ..equalization.equalized_profile import adjusted_profile
from ..model.graph import Graph
from ..numerics.affine import TYPES, QuantParams
from ..numerics.quantization_noise import expected_noise
from ..numerics.schemas import SCHEMAS, choose_params
from ..plan.plan import QuantPlan, SharedScale
from ..plan.store import load_plan
from ..planning.plan_model import open_plan
from ..planning.shared_scales import lost_to
from ..prepare.opening import open_prepared, read_profile
from ..ranges.activation_ranges import effective_range
from ..ranges.calibrators import parse_calibrator
from ..ranges.following_function import following_function


@dataclass(frozen=True)
class Member:
    """One tensor of a group.

    Attributes:
        name: its name.
        own_range: its own calibrated range.
        wins: whether its range makes the common one.
        lost_db: what the common range costs it: the step grows with the width. 0 for a range that is
            narrower, because a clip behind the tensor throws away what is outside.
        sqnr_db: expected signal over noise with the parameters of the plan; None without a profile, and where
            all readers throw away a part of the values (Relu, Clip, ...), whose loss is no noise.
        own_sqnr_db: the same with parameters from its own range.
    """

    name: str
    own_range: tuple[float, float]
    wins: bool
    lost_db: float
    sqnr_db: float | None = None
    own_sqnr_db: float | None = None


@dataclass(frozen=True)
class Neighbour:
    """A node beside the tensor.

    Attributes:
        node, operator: its name and type.
        makes: whether it makes the tensor; else it reads it.
        kind: what becomes of it, as in `NodePlan`.
        reason: why it stays float, or a remark.
    """

    node: str
    operator: str
    makes: bool
    kind: str
    reason: str


@dataclass(frozen=True)
class Explanation:
    """What is known of one tensor of a plan.

    Attributes:
        tensor: its name.
        params: its parameters; None for a tensor that stays float.
        range: the common range of its group, None when it shares its parameters with no other.
        ties: names of the nodes that tied the group.
        members: of the group, in graph order.
        neighbours: nodes around the tensor, the one that makes it first; None without a model.
        sqnr_db: expected signal over noise in the parameters of the plan, None without a profile.
    """

    tensor: str
    params: QuantParams | None
    range: tuple[float, float] | None
    ties: tuple[str, ...]
    members: tuple[Member, ...]
    neighbours: tuple[Neighbour, ...] | None
    sqnr_db: float | None


def explain(
    plan_path: str | Path,
    tensor: str,
    model_path: str | Path | None = None,
    profile_path: str | Path | None = None,
) -> Explanation:
    """Explain one tensor of a plan file.

    Args:
        plan_path: the plan.
        tensor: name of a tensor of the prepared model.
        model_path: the float model, for the nodes around the tensor.
        profile_path: its profile, for the noise; goes with `model_path`.

    Raises:
        ConfigError: there is no such tensor (with the nearest name), or a profile without the model.
        PlanError, ModelError, ProfileError: a file cannot be read, or belongs to another model.
    """
    plan = load_plan(plan_path)
    if model_path is None:
        if profile_path is not None:
            raise ConfigError(f"{profile_path}: a profile is read with its model; give the model too")
        return explain_tensor(plan, tensor, str(plan_path))
    prepared = open_prepared(model_path)
    graph = open_plan(prepared, plan, str(plan_path)).graph
    profile = None
    if profile_path is not None:
        profile = read_profile(profile_path, prepared.model, prepared.identity)
        profile = adjusted_profile(prepared.graph, profile, plan.adjustments.equalization)
    return explain_tensor(plan, tensor, str(plan_path), graph, profile)


def explain_tensor(
    plan: QuantPlan, tensor: str, where: str, graph: Graph | None = None, profile: Profile | None = None
) -> Explanation:
    """Explain one tensor of a plan; `where` names the plan in errors. See `explain`.

    Raises:
        ConfigError: neither the plan nor the model has such a tensor.
    """
    params = plan.tensors.get(tensor)
    known = set(plan.tensors) if graph is None else {*plan.tensors, *graph.values}
    if tensor not in known:
        advice = "; if it stays float, give the model with --model" if graph is None else ""
        raise ConfigError(f"{where}: no tensor is called '{tensor}'{advice}.{nearest(tensor, sorted(known))}")
    group = next((g for g in plan.shared_scales if tensor in g.members and params is not None), None)
    whole = None if profile is None or graph is None else _read_in_full(graph, profile, plan)
    members = () if group is None else tuple(_member(n, group, plan, whole) for n in group.members)
    return Explanation(
        tensor,
        params,
        None if group is None else group.range,
        () if group is None else group.tied_by,
        tuple(m for m in members if plan.tensors.get(m.name) == params),
        None if graph is None else _neighbours(plan, tensor, graph),
        _sqnr(tensor, params, whole),
    )


def _read_in_full(graph: Graph, profile: Profile, plan: QuantPlan) -> dict[str, TensorProfile]:
    """Return the profiles of the tensors of which each value counts as much as any other."""
    found = {}
    for name, tensor in profile.items():
        if name in graph.values:
            low, high = effective_range(graph, name)
            whole = low <= tensor.minimum and tensor.maximum <= high
            aims = parse_calibrator(plan.config.calibrator)[0].for_function is not None
            if whole and not (aims and following_function(graph, name, tensor, plan.model.opset)):
                found[name] = tensor
    return found


def _member(
    name: str, group: SharedScale, plan: QuantPlan, profile: Mapping[str, TensorProfile] | None
) -> Member:
    own = group.members[name]
    config = plan.config
    alone = choose_params(*own, SCHEMAS[config.schema], TYPES[config.activation_type])
    return Member(
        name,
        own,
        name in group.range_set_by,
        lost_to(own, group.range),
        _sqnr(name, plan.tensors.get(name), profile),
        _sqnr(name, alone, profile),
    )


def _sqnr(name: str, params: QuantParams | None, profile: Mapping[str, TensorProfile] | None) -> float | None:
    if profile is None or name not in profile or params is None or params.axis is not None:
        return None
    return expected_noise(profile[name], params).sqnr_db


def _neighbours(plan: QuantPlan, tensor: str, graph: Graph) -> tuple[Neighbour, ...]:
    producer = graph.producer(tensor)
    readers = dict.fromkeys(reader for reader, _ in graph.consumers(tensor))
    made = [] if producer is None else [_neighbour(producer, True, plan)]
    return (*made, *(_neighbour(reader, False, plan) for reader in readers))


def _neighbour(node: ir.Node, makes: bool, plan: QuantPlan) -> Neighbour:
    entry = plan.nodes[node.name or ""]
    return Neighbour(node.name or "", node.op_type, makes, entry.kind.value, entry.reason)
