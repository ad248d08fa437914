"""One trial of a tuner: a candidate becomes a plan and a model, which is run, judged and measured."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import ConfigError, ModelError, PlanError
from ...profiles.records.profile import ModelId, Profile
from ..lowering.lower import lower
from ..lowering.writers.graph_walk import Lowered
from ..model.files import model_bytes, save_model
from ..model.graph import Graph
from ..operators.table import rule_of
from ..plan.plan import Kind, QuantPlan
from ..planning.plan_model import PlannedModel, plan_model
from ..prepare.opening import PreparedModel
from ..ranges.clipped_activations import with_clip_profiles
from ..runtime.latency import measure
from ..runtime.sessions import open_session, run
from ..targets.conformance import check_conformity
from ..targets.target import Recipe
from ..targets.validation import check_config
from .evidence import JudgedSet, outputs_of
from .scores import Judgement, judge
from .search import Candidate, Trial, kept

OBJECTIVES: Mapping[str, str] = {
    "latency": "times as fast as float",
    "size": "times smaller than float",
    "integer-share": "of the arithmetic in integers",
}
"""What a tuner can ask for, and the unit of its value; more is better."""

INTEGER_KINDS = (Kind.QUANTIZED, Kind.LOOKUP_TABLE, Kind.PASS_THROUGH, Kind.DYNAMIC)
LATENCY_FEEDS, ROUNDS, SECONDS = 2, 25, 4.0
"""Of the latency measurement: different feeds, rounds at most, and seconds after which no round starts."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What is tuned.

    Attributes:
        model, graph, identity, notes: the prepared model.
        profile, recipe: what plans are made from.
        float_path: the float model's file.
        float_session: of it, on `threads` threads.
        objective: one of `OBJECTIVES`.
        max_drop: the promise, in points.
        threads: that latency is measured on.
    """

    model: ir.Model
    graph: Graph
    identity: ModelId
    notes: tuple[str, ...]
    profile: Profile
    recipe: Recipe
    float_path: Path
    float_session: ort.InferenceSession
    objective: str
    max_drop: float
    threads: int


def plan_of(subject: Subject, candidate: Candidate) -> PlannedModel:
    """Return the verified plan of a candidate, with the model that it is lowered from.

    Raises:
        ConfigError, PlanError: it cannot be made.
    """
    config = subject.recipe.config
    keep_float = (*config.keep_float, *candidate.keep_float)
    config = replace(config, **{**candidate.base.settings, "keep_float": keep_float})  # type: ignore[arg-type]
    recipe = Recipe(check_config(config, subject.recipe.target, candidate.base.name), subject.recipe.target)
    prepared = PreparedModel(subject.model, subject.graph, subject.identity, subject.notes)
    return plan_model(prepared, subject.profile, recipe)


def try_candidate(
    subject: Subject, candidate: Candidate, tuning: JudgedSet, before: Sequence[Trial] = ()
) -> Trial:
    """Make, run and judge one candidate; the objective is measured when it keeps the promise.

    A plan that cannot be made or run is a trial with an error, not an error. One that was run `before`
    is not run again.
    """
    try:
        planned = plan_of(subject, candidate)
        plan = planned.plan
        digest = plan_digest(plan)
        same = next((t for t in before if t.plan == digest), None)
        if same is not None:
            return replace(same, candidate=candidate)
        with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "trial.onnx"
            save_model(lowered_for(subject, planned).model, path)
            judgement = judged(path, tuning)
            found = Trial(candidate, judgement, None, integer_nodes(plan), digest)
            if kept(found, subject.max_drop):
                found = replace(found, value=_value(subject, planned, path, tuning))
            return found
    except (ConfigError, PlanError, ModelError) as error:
        return Trial(candidate, None, None, 0, error=str(error))


def lowered_for(subject: Subject, planned: PlannedModel) -> Lowered:
    """Return what a plan describes, with remarks on what its target runs elsewhere or after a change.

    Raises:
        PlanError: the form cannot write it. ConfigError: its runtime would refuse it.
    """
    lowered = lower(planned.model, planned.plan)
    remarks = check_conformity(lowered.model, subject.recipe.target, "quantized model")
    return replace(lowered, notes=(*lowered.notes, *remarks))


def plan_digest(plan: QuantPlan) -> str:
    """Return a digest of what a plan makes of the model, whatever the settings and reasons were."""
    nodes = [
        (name, entry.kind.value, entry.implementation, entry.inputs) for name, entry in plan.nodes.items()
    ]
    return hashlib.sha256(
        repr((dict(plan.tensors), nodes, plan.adjustments, plan.config.form, plan.config.rounding)).encode()
    ).hexdigest()[:16]


def judged(path: Path, samples: JudgedSet) -> Judgement:
    """Return how the quantized model in a file does on some samples.

    Raises:
        ModelError: it cannot be run.
    """
    session = open_session(str(path), "quantized model", 0)
    outputs = outputs_of(session, samples.samples, "quantized model")
    return judge(samples.measure, samples.indices, samples.floats, outputs)


def integer_nodes(plan: QuantPlan) -> int:
    """Return how many nodes compute on codes."""
    return sum(entry.kind in INTEGER_KINDS for entry in plan.nodes.values())


def _value(subject: Subject, planned: PlannedModel, path: Path, tuning: JudgedSet) -> float:
    """Return what the objective is for a model in a file."""
    if subject.objective == "size":
        return model_bytes(subject.float_path) / model_bytes(path)
    if subject.objective == "integer-share":
        return integer_share(planned.plan, planned.graph, subject.profile)
    session = open_session(str(path), "quantized model", subject.threads)
    feeds = [sample.feed for sample in tuning.samples[:LATENCY_FEEDS]]
    names = [output.name for output in session.get_outputs()]
    return measure(
        lambda index: run(subject.float_session, names, feeds[index], "float model"),
        lambda index: run(session, names, feeds[index], "quantized model"),
        len(feeds),
        rounds=ROUNDS,
        seconds=SECONDS,
        threads=subject.threads,
    ).speedup


def integer_share(plan: QuantPlan, graph: Graph, profile: Profile) -> float:
    """Return the share of the arithmetic that is done on codes, in [0, 1].

    A node with a constant weight counts its multiplications (elements of the output times elements of the
    weight for each output channel), a product of two activations those along the last axis of its first
    input where that is fixed, and every other node its output elements. Outputs that the profile has not
    (shapes, indices) count nothing.
    """
    done, total, profile = 0.0, 0.0, with_clip_profiles(profile, graph)
    for node in graph.nodes:
        name = node.outputs[0].name or ""
        if name not in profile:
            continue
        work = float(profile[name].count) * _work(node, graph)
        total += work
        done += work if plan.nodes[node.name or ""].kind in INTEGER_KINDS else 0.0
    return done / total if total else 0.0


def _work(node: ir.Node, graph: Graph) -> float:
    """Return the multiplications for each element of the output."""
    rule = rule_of(node)
    if rule is None or rule.weight is None:
        return 1.0
    value = node.inputs[rule.weight.index]
    weight = None if value is None else graph.constant(value.name or "")
    if weight is not None:
        axis = rule.weight.axis(node, weight.ndim)
        return float(weight.size) / (1 if axis is None else weight.shape[axis])
    first = node.inputs[0]
    shape = None if first is None else graph.shape(first.name or "")
    inner = shape[-1] if shape else None
    return 1.0 if inner is None else float(np.int64(inner))
