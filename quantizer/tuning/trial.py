"""One trial of a tuning: a candidate becomes a plan and a model, which is run, scored and measured."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import ConfigError, ModelError, PlanError, WritingError
from ...profiles.records.profile import Profile
from ..lowering.lower import lower
from ..lowering.written import Lowered
from ..model.files import model_bytes
from ..model.graph import Graph, name_of, output_name
from ..model.saving import save_model
from ..operators.table import rule_of
from ..plan.plan import QuantPlan
from ..plan.provenance import plan_digest
from ..planning.plan_model import PlannedModel, model_facts
from ..prepare.opening import PreparedModel
from ..ranges.clipped_activations import with_clip_profiles
from ..runtime.latency import QUICK, measure
from ..runtime.sessions import open_session, run
from ..speed.unfit_nodes import plan_that_runs
from ..targets.conformance import check_conformity
from ..targets.target import Recipe
from ..targets.validation import check_config
from .quality_target import QualityTarget
from .scores import Score, score_outputs
from .search import Candidate, Trial, meets
from .tuning_data import ScoringSamples, outputs_of


@dataclass(frozen=True, eq=False)
class TuningTask:
    """What is tuned: the same for all trials.

    Attributes:
        prepared: the prepared float model.
        profile, recipe: what plans are made from.
        target: the quality target and the objective.
        float_path: the float model's file.
        float_session: a session of it, on `target.threads` threads.
    """

    prepared: PreparedModel
    profile: Profile
    recipe: Recipe
    target: QualityTarget
    float_path: Path
    float_session: ort.InferenceSession


def plan_of(task: TuningTask, candidate: Candidate) -> PlannedModel:
    """Return the verified plan of a candidate, with the model that it is lowered from.

    Raises:
        ConfigError, PlanError: it cannot be made.
    """
    prepared, config = task.prepared, task.recipe.config
    keep_float = (*config.keep_float, *candidate.keep_float)
    config = replace(config, **{**candidate.base.settings, "keep_float": keep_float})  # type: ignore[arg-type]
    if task.target.objective == "int8-share":  # integers are asked for, whatever time they take
        config = replace(config, cost_model="off")
    recipe = replace(task.recipe, config=check_config(config, task.recipe.target, candidate.base.name))
    return plan_that_runs(model_facts(prepared, task.profile, recipe, prepared.notes), task.float_path)[0]


def try_candidate(
    task: TuningTask, candidate: Candidate, samples: ScoringSamples, earlier: Sequence[Trial] = ()
) -> Trial:
    """Plan, lower, run and score one candidate; measure the objective when it meets the target.

    A plan that cannot be made or run gives a trial with an error. A plan that equals one of the `earlier`
    trials is not run again: it takes their score.

    Raises:
        WritingError: the model cannot be written; that says nothing about the candidate.
    """
    digest = ""
    try:
        planned = plan_of(task, candidate)
        digest = plan_digest(planned.plan)
        equal = next((trial for trial in earlier if trial.plan_digest == digest), None)
        if equal is not None:
            return replace(equal, candidate=candidate)
        return _run_trial(task, candidate, planned, digest, samples)
    except WritingError as error:
        raise WritingError(
            f"trial '{candidate.base.name}': {error} for temporary files with TMPDIR, or make room; "
            "with a state file the tuning is resumed"
        ) from error
    except (ConfigError, PlanError, ModelError) as error:
        return Trial(candidate, None, None, 0, digest, str(error))


def _run_trial(
    task: TuningTask, candidate: Candidate, planned: PlannedModel, digest: str, samples: ScoringSamples
) -> Trial:
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "trial.onnx"
        save_model(lowered_for(task, planned).model, path)
        score = score_model(path, samples)
        trial = Trial(candidate, score, None, quantized_nodes(planned.plan), digest)
        if not meets(trial, task.target.max_drop):
            return trial
        return replace(trial, value=_objective_value(task, planned, path, samples))


def lowered_for(task: TuningTask, planned: PlannedModel) -> Lowered:
    """Return the quantized model of a plan, with notes on what its target does not support as it stands.

    Raises:
        PlanError: the form cannot write it. ConfigError: its runtime would refuse it.
    """
    lowered = lower(planned.model, planned.plan)
    notes = check_conformity(lowered.model, task.recipe.target, "quantized model")
    return replace(lowered, notes=(*lowered.notes, *notes))


def score_model(path: Path, samples: ScoringSamples) -> Score:
    """Return the score of the quantized model in a file on some samples.

    Raises:
        ModelError: it cannot be run.
    """
    session = open_session(str(path), "quantized model", 0)
    outputs = outputs_of(session, samples.samples, "quantized model")
    return score_outputs(samples.metric, samples.indices, samples.float_outputs, outputs)


def quantized_nodes(plan: QuantPlan) -> int:
    """Return how many nodes compute in integers."""
    return sum(entry.kind.counts_as_quantized for entry in plan.nodes.values())


def _objective_value(task: TuningTask, planned: PlannedModel, path: Path, samples: ScoringSamples) -> float:
    """Return the value of the objective for a quantized model in a file."""
    if task.target.objective == "size":
        return model_bytes(task.float_path) / model_bytes(path)
    if task.target.objective == "int8-share":
        return int8_share(planned.plan, planned.graph, task.profile)
    return _speedup(task, path, samples)


def _speedup(task: TuningTask, path: Path, samples: ScoringSamples) -> float:
    """Return how many times as fast as the float model a quantized model in a file is."""
    session = open_session(str(path), "quantized model", task.target.threads)
    feeds = [sample.arrays for sample in samples.samples[: QUICK.samples]]
    names = [output.name for output in session.get_outputs()]
    return measure(
        lambda index: run(task.float_session, names, feeds[index], "float model"),
        lambda index: run(session, names, feeds[index], "quantized model"),
        len(feeds),
        replace(QUICK, threads=task.target.threads),
    ).speedup


def int8_share(plan: QuantPlan, graph: Graph, profile: Profile) -> float:
    """Return the share of the arithmetic that is done in integers, in [0, 1].

    A node with a constant weight counts its multiplications (elements of the output times elements of the
    weight for each output channel), a product of two activations those along the last axis of its first
    input where that is fixed, and every other node its output elements. Outputs without a profile (shapes,
    indices) count nothing.
    """
    done, total, profile = 0.0, 0.0, with_clip_profiles(profile, graph)
    for node in graph.nodes:
        name = output_name(node)
        if name not in profile:
            continue
        work = float(profile[name].count) * _multiplications(node, graph)
        total += work
        done += work if plan.nodes[name_of(node)].kind.counts_as_quantized else 0.0
    return done / total if total else 0.0


def _multiplications(node: ir.Node, graph: Graph) -> float:
    """Return the multiplications for each element of the output."""
    rule = rule_of(node)
    if rule is None or rule.weight is None:
        return 1.0
    value = node.inputs[rule.weight.index]
    weight = None if value is None else graph.constant(name_of(value))
    if weight is not None:
        axis = rule.weight.axis(node, weight.ndim)
        return float(weight.size) / (1 if axis is None else weight.shape[axis])
    first = node.inputs[0]
    shape = None if first is None else graph.shape(name_of(first))
    inner = shape[-1] if shape else None
    return 1.0 if inner is None else float(np.int64(inner))
