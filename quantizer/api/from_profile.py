"""A quantized model from a float model and its profile, or from a plan: plan, lower, write.

What comes back says what was decided and measured. Steps that run samples are the speed check and rounding
with samples; all others need none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, PlanError
from ...profiles.base.improvement import improvement, left_out_steps
from ...profiles.base.output_files import replacing_together
from ...profiles.base.tool import Progress
from ...profiles.records.profile import DataId, Profile
from ...profiles.samples.objects import DataLike
from ...profiles.samples.samples import input_specs, open_samples
from ...profiles.samples.values import Sample, Samples
from ..adjustments.checkpoint import remove_checkpoint
from ..evaluation.evaluate import measured_sqnr
from ..evaluation.written_model import check_target, write_checked
from ..exchange.profiles import missing_notes, read_profile
from ..lowering.lower import lower
from ..model.files import model_bytes
from ..model.output_paths import FilesRead, check_outputs
from ..model.saving import has_external_data
from ..noise.estimate_check import EstimateCheck, check_estimates, expected_sqnr, too_good_texts
from ..plan.plan import QuantPlan
from ..plan.store import PlanLike, plan_name, read_plan
from ..plan.store import save_plan as write_plan
from ..planning.facts import PlanningFacts
from ..planning.plan_model import (
    PlannedModel,
    model_facts,
    open_plan,
    plan_from,
    rounded_with_samples,
    with_notes,
)
from ..prepare.float16 import narrow_constants
from ..prepare.prepare import PreparedModel, ProfileLike, open_prepared, profile_name
from ..search.fallback_nodes import blamed_on_nodes, plan_that_runs, with_fallback_nodes
from ..search.options import SpeedCheckOptions
from ..search.speed_check import SpeedCheck, Subject, check_speed
from ..targets.config import DATA_FREE, WITH_SAMPLES
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .results import Made, QuantizeResult, summarize

CHECKED = 16
"""Samples on which the outputs of a model that was written are held against their estimate."""


@dataclass(frozen=True)
class _Planned:
    """A planned model and how it came about: speed check, elements of each tensor in a sample, the samples
    that it was rounded with, and the facts; without facts a plan that was read."""

    model: PlannedModel
    check: SpeedCheck | None = None
    elements: Mapping[str, float] = field(default_factory=dict)
    samples: Iterable[Sample] = ()
    facts: PlanningFacts | None = None


@dataclass(frozen=True)
class _Written:
    """A written model, its plan with all remarks, the size of its files, and what was measured."""

    model: ir.Model
    plan: QuantPlan
    size: int
    estimates: tuple[EstimateCheck, ...]
    planned: _Planned


def write_quantized(
    model_path: str | Path,
    profile: ProfileLike | None,
    output: str | Path,
    *,
    save_plan: str | os.PathLike[str] | None = None,
    recipe: Recipe | None = None,
    plan: PlanLike | None = None,
    accept_retrained: bool = False,
    speed: SpeedCheckOptions | None = None,
    data: DataLike | None = None,
    limit: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> QuantizeResult:
    """Write a quantized model from a float model and its profile, or from a plan.

    Args:
        model_path: file of the float model.
        profile: not needed with `plan`, nor in the modes of `config.DATA_FREE`.
        output: where to write the quantized model.
        save_plan: where to write the plan; None for nowhere.
        recipe: settings and target; None for the default target's.
        plan: apply this plan, which a person may have edited, instead of making one.
        accept_retrained: take a profile of the same graph with other weights.
        speed: measure the plan that is made against float, and leave float what is slower in int8.
        data: samples for rounding "gptq" or "gptaq"; `limit` of them, from the first.
        limit: None for all.
        checkpoint: file that keeps the weights that are rounded; the same call resumes after a kill.
        progress: called while the model runs on the samples for rounding.

    Raises:
        ModelError, ProfileError, PlanError, ConfigError, DataError: what is wrong, where, and what to do.
    """
    path, written_to = Path(model_path), Path(output)
    read = FilesRead((path,), (profile, plan), (data, None if speed is None else speed.data))
    check_outputs([output, save_plan, checkpoint], read)
    prepared = open_prepared(path)
    if plan is not None:
        opened = _Planned(open_plan(prepared, read_plan(plan), plan_name(plan)))
        done = _write(prepared, opened, path, written_to, plan_path=save_plan, recipe=recipe)
    else:
        chosen = recipe or load_recipe()

        def attempt(facts: PlanningFacts) -> _Written:
            planned = _plan(
                path, facts, speed=speed, data=data, limit=limit, checkpoint=checkpoint, progress=progress
            )
            return _write(prepared, planned, path, written_to, plan_path=save_plan, recipe=chosen)

        measured, notes = _profile_for(prepared, profile, chosen, path, accept_retrained)
        facts = model_facts(prepared, measured, chosen, notes)
        if speed is not None or data is not None:  # before steps that take their time
            _, facts = plan_that_runs(facts, path)
        done = with_fallback_nodes(facts, attempt)
        if checkpoint is not None:
            remove_checkpoint(Path(checkpoint))
    return QuantizeResult(
        done.plan,
        written_to,
        summarize(done.plan),
        (*done.plan.notes, *too_good_texts(done.estimates)),
        model_bytes(path),
        done.size,
        done.planned.check,
        done.estimates,
        model=done.model,
        read=read,
        made=Made(done.planned.model, done.planned.facts),
    )


def _profile_for(
    prepared: PreparedModel,
    source: ProfileLike | None,
    recipe: Recipe,
    model_path: Path,
    accept_retrained: bool,
) -> tuple[Profile, tuple[str, ...]]:
    """Return what a plan is made from, and remarks about it; an empty profile where the mode needs none."""
    if source is not None:
        profile = read_profile(source, prepared.model, prepared.identity, accept_retrained)
        return profile, missing_notes(profile, prepared.graph, Path(profile_name(source)).name)
    if recipe.config.mode not in DATA_FREE:
        raise ConfigError(
            f"{model_path}: mode {recipe.config.mode} needs a profile or samples: give --data DIR, which "
            "profiles, quantizes and evaluates in one command, or --profile FILE, which qprof dump-profile "
            f"makes; or use a mode without either ({', '.join(DATA_FREE)})"
        )
    return Profile(prepared.identity, DataId(), {}), ()


def _plan(
    model_path: Path,
    facts: PlanningFacts,
    *,
    speed: SpeedCheckOptions | None,
    data: DataLike | None,
    limit: int | None,
    checkpoint: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> _Planned:
    """Plan a model, with the steps that run samples: the speed check, and rounding."""
    specs = input_specs(facts.prepared.model)
    samples: Samples | None = None
    if facts.recipe.config.rounding in WITH_SAMPLES:
        if data is None:
            raise ConfigError(
                f"rounding {facts.recipe.config.rounding}: needs samples, as for calibration; give them with "
                "--data DIR, or choose rounding nearest, which needs none"
            )
        samples = open_samples(data, specs, limit)
    planned, check = plan_from(facts), None
    if speed is not None and speed.min_speedup is not None:  # a gate is never left out
        planned, check = check_speed(Subject(model_path, facts), planned, speed)
    elif speed is not None:
        step = "check of speed (the model may be slower than float)"
        with left_out_steps() as left_out, improvement(step, PlanError):
            planned, check = check_speed(Subject(model_path, facts), planned, speed)
        planned = with_notes(planned, left_out)
    if samples is not None:
        kept = None if checkpoint is None else Path(checkpoint)
        planned = rounded_with_samples(planned, samples, progress, kept)
    elif speed is not None and speed.data is not None:
        samples = open_samples(speed.data, specs, CHECKED)
    counted = max(1, facts.measured.data.samples)
    elements = {name: tensor.count / counted for name, tensor in facts.measured.items()}
    return _Planned(planned, check, elements, samples or (), facts)


def _write(
    prepared: PreparedModel,
    planned: _Planned,
    model_path: Path,
    output: Path,
    *,
    plan_path: str | os.PathLike[str] | None,
    recipe: Recipe | None,
) -> _Written:
    """Lower the plan, write the files, together or not at all, and hold the estimated SQNR of the outputs
    against the written model on the first samples."""
    plan = planned.model.plan
    lowered = lower(planned.model.model, plan)
    model = lowered.model if prepared.narrow is None else narrow_constants(lowered.model, prepared.narrow)
    external = has_external_data(prepared.model)
    with (
        blamed_on_nodes(planned.model, lowered),
        replacing_together(FilesRead((model_path,)).weights) as batch,
    ):
        remarks = check_target(model, plan, recipe, str(output))
        written = write_checked(model, output, model_path, planned.elements, external=external, batch=batch)
        notes = dict.fromkeys([*plan.notes, *lowered.notes, *remarks, *written.notes])
        plan = replace(plan, notes=tuple(notes))
        if plan_path is not None:
            write_plan(plan, plan_path, batch)
        expected = expected_sqnr(plan.origin.estimated_sqnr, plan.origin.sqnr_bands)
        first = tuple(islice(planned.samples, CHECKED)) if expected else ()
        estimates: tuple[EstimateCheck, ...] = ()
        with improvement("estimates held against the written model"):
            if first:
                estimates = check_estimates(expected, measured_sqnr(model_path, written.file, first))
    return _Written(model, plan, written.size, estimates, planned)
