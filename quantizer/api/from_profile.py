"""A quantized model from a float model and its profile, or from a plan: plan, lower, write.

The result contains decisions and measurements. Only the speed check and rounding with samples need samples.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...profiles.base.errors import ConfigError, DataError, ModelError, PlanError
from ...profiles.base.findings import Code, Finding, gravest_first
from ...profiles.base.improvement import improved
from ...profiles.base.output_files import FileBatch, replacing_together
from ...profiles.base.seconds import clocked
from ...profiles.base.tool import Progress
from ...profiles.records.check_samples import Array, chosen_samples
from ...profiles.records.profile import DataId, Profile
from ...profiles.runtime.states import model_samples
from ...profiles.samples.objects import DataLike
from ...profiles.samples.samples import batches_of_shape, input_specs
from ...profiles.samples.values import InputSpec
from ..evaluation.doubts import clip_doubts
from ..evaluation.options import SpeedCheckOptions
from ..evaluation.written_model import NOT_RUN, check_target, write_checked
from ..lowering.lower import lower
from ..lowering.lowered import LoweredModel
from ..model.output_paths import FilesRead
from ..model.output_paths import check_outputs as check_paths
from ..model.saving import has_external_data
from ..noise.kept_samples import read_measured
from ..noise.output_limits import noise_limits
from ..numerics.affine import TYPES
from ..operators.graph import Graph
from ..plan.documents import read_with_samples
from ..plan.formats import FLOAT16, SIZES
from ..plan.plan import Kind, QuantPlan
from ..plan.store import PlanLike, plan_name, read_plan
from ..plan.store import save_plan as write_plan
from ..planning.facts import PlanningFacts
from ..planning.known import Known
from ..planning.needed_tensors import missing_tensors
from ..planning.plan_model import (
    PlannedModel,
    model_facts,
    open_plan,
    plan_from,
    rounded_with_samples,
    timed_as_run,
)
from ..prepare.float16 import narrow_constants
from ..prepare.prepare import ModelFile, PreparedModel, ProfileLike, file_of, profile_name
from ..search.closed_loop import (
    UnfitSamplesError,
    measured_on_samples,
    plan_held_on_samples,
    samples_to_run,
    why_not_run,
)
from ..search.fallback_nodes import blamed_on_nodes, with_fallback_nodes
from ..search.speed import SPEED, SpeedCheck
from ..search.verdict import NOTHING_TO_QUANTIZE, USE_FLOAT, composition_of
from ..targets.config import DATA_FREE, QuantConfig, size_in_bytes
from ..targets.loading import goes_with, load_recipe
from ..targets.target import Recipe
from .options import PRECISIONS
from .results import QuantizeResult, output_alarms


def write_quantized(
    model: str | os.PathLike[str],
    profile: ProfileLike | None,
    output: str | Path,
    *,
    save_plan: str | os.PathLike[str] | None = None,
    recipe: Recipe | None = None,
    plan: PlanLike | None = None,
    speed: SpeedCheckOptions | None = None,
    data: DataLike | None = None,
    check: DataLike | None = None,
    check_outputs: bool = True,
    progress: Progress | None = None,
    batch: FileBatch | None = None,
) -> QuantizeResult:
    """Write a quantized model from a float model and its profile, or from a plan.

    A `plan` is applied instead of making one. The model runs on the `check` samples (None: the profile's)
    before it is written; `data` is for rounding. With `batch` the model is at `model_path` until all appear.
    """
    file = file_of(model)
    path = file.path
    read = FilesRead((path,), (profile, plan), (data, None if speed is None else speed.data))
    check_paths([output, save_plan], read)
    prepared = file.prepared
    write = partial(_write, file, output=Path(output), save_plan=save_plan, read=read, batch=batch)
    if plan is not None:
        planned = open_plan(prepared, read_plan(plan), plan_name(plan))
        if check_outputs and profile is not None:
            planned = _run_on_samples(planned, prepared, profile, path)
        elif not planned.plan.origin.checks:
            why = "give the --profile that the plan is from" if check_outputs else "--set check_outputs=off"
            planned = planned.with_findings([estimated_only(why)])
        return write(planned, recipe=recipe)

    # What the plan is made from.
    recipe = recipe or load_recipe()
    config, findings, not_run, joined = recipe.config, tuple[Finding, ...](), "", 0
    own_samples = check is None
    if profile is not None:
        measured, not_run, findings = read_measured(profile, prepared)
        if check is not None:
            not_run = ""
        elif check_outputs and not not_run:
            check, joined, not_run = check_samples_of(measured, prepared, config)
        findings += missing_tensors(measured, prepared.graph, Path(profile_name(profile)).name)
        useless = {Code.EQUAL_SAMPLES, Code.CONSTANT_INPUT} if own_samples else set()
        findings += tuple(one for one in measured.findings if one.code in useless)
    elif not config.reads_profile:
        measured = Profile(prepared.identity, DataId(), {})
    elif config.mode in DATA_FREE:
        asked = f"min_output_sqnr {config.min_output_sqnr:g}" if config.min_output_sqnr else "tolerance"
        raise ConfigError(
            f"{path}: {asked}: the quality of the outputs is unknown without samples; "
            "give --data DIR, or --profile FILE, which qprof dump-profile makes; or leave it out"
        )
    else:
        without = "int8-dynamic", "weight-only-8", "weight-only-4"
        words = [word for word in without if goes_with(recipe, PRECISIONS[word])]
        neither = f"; or choose a precision that needs neither: --as {' or '.join(words)}" if words else ""
        raise ConfigError(
            f"{path}: mode {config.mode} needs a profile or samples: give --data DIR, which "
            "profiles, quantizes and evaluates in one command, or --profile FILE, which qprof dump-profile "
            f"makes{neither}"
        )
    facts = model_facts(prepared, measured, recipe, findings)
    rounds = config.rounding == "gptq"
    if rounds and data is None:
        raise ConfigError(
            f"rounding {config.rounding}: needs samples, as for calibration; give them with "
            "--data DIR, or choose rounding nearest, which needs none"
        )

    plan_of = SIZES.load("fit_size").plan_of_written_size if config.has_size else plan_from
    if not check_outputs:
        check, not_run = None, "--set check_outputs=off"
    elif check is not None and (not_run := why_not_run(check)):
        check = None

    def attempt(known: Known) -> QuantizeResult:
        planned = plan_of(facts, known)
        source = facts
        lowered: LoweredModel | None = None
        left_out: Sequence[Finding]

        # What float16 would lose, as measured on calibration samples, is float32.
        if check is not None and facts.config.is_float16:
            measure = partial(FLOAT16.load().with_float32_nodes_on_samples, facts, planned, check)
            step = "float16 run on check samples (it may lose more than recorded ranges show)"
            narrow = planned.known.lost_in_float16
            planned, left_out = improved(step, measure, planned, DataError, ModelError)
            if config.has_size and planned.known.lost_in_float16 != narrow:  # float32 takes twice the bytes
                planned = plan_of(facts, planned.known)
            planned = planned.with_findings(left_out)

        # Outputs near enough to float, as measured on calibration samples.
        if check is not None:
            run = partial(plan_held_on_samples, facts, planned, path, check, joined=joined)
            step = "run on check samples (outputs may be further from float than estimated)"
            try:
                (source, planned, lowered), left_out = improved(step, run, (facts, planned, None))
            except UnfitSamplesError as error:
                if not own_samples:
                    raise
                left_out = [estimated_only(error)]
            planned = planned.with_findings(left_out)
        if not_run:
            planned = planned.with_findings([estimated_only(not_run)])

        # The fastest plan that is found; a gate is never left out.
        speed_check: SpeedCheck | None = None
        if speed is not None and speed.min_speedup is not None:
            planned, speed_check = SPEED.load("--check-speed").check_speed(path, source, planned, speed)
        elif speed is not None:
            faster = partial(SPEED.load("--check-speed").check_speed, path, source, planned, speed)
            step = "check of speed (the model may be slower than float)"
            (planned, speed_check), left_out = improved(step, faster, (planned, None), PlanError)
            planned = planned.with_findings(left_out)

        if rounds:
            assert data is not None
            planned = rounded_with_samples(planned, model_samples(data, prepared.model), progress)
        if speed is not None or rounds:  # the plan may be another one
            lowered = None
        return write(planned, recipe=recipe, facts=source, speed=speed_check, lowered=lowered)

    return with_fallback_nodes(Known(decided=deque(maxlen=16)), attempt)


def estimated_only(reason: object) -> Finding:
    """Return the finding on a plan that was not run on check samples."""
    return Finding(Code.ESTIMATED_ONLY, f"quality is estimated, not run: {reason}")


def check_samples_of(
    profile: Profile, prepared: PreparedModel, config: QuantConfig
) -> tuple[list[dict[str, Any]] | None, int, str]:
    """Return the check samples of a profile, how many were joined to batches, and a refusal or ""."""
    count = samples_to_run(prepared.graph, profile, profile.data.samples)
    held = profile.held_samples
    samples = [one.arrays for one in (held if len(held) <= count else chosen_samples(held, count))]
    specs = input_specs(prepared.model)
    if config.mode in ("dynamic", "auto"):
        specs = _specs_of_batches(specs, profile, samples)
    if not (batches := batches_of_shape(samples, specs)):
        return None, 0, "no sample of the profile has the shape of the model's inputs"
    return batches, len(samples) if len(batches) < len(samples) else 0, ""


def _specs_of_batches(
    specs: tuple[InputSpec, ...], profile: Profile, samples: Sequence[Mapping[str, Array]]
) -> tuple[InputSpec, ...]:
    """Return input specs with as many rows as a run of the profile's data had.

    A scale computed at run time is that of a batch: one batch selects a plan, and another one confirms it.
    """
    shapes = [{name: array.shape for name, array in sample.items()} for sample in samples]
    most = len(samples) // 2
    if most < 2 or any(shape != shapes[0] for shape in shapes):
        return specs
    batched = []
    for spec in specs:
        seen, own = profile.inputs.get(spec.name), shapes[0].get(spec.name, ())
        rows = min(seen.sizes[0][0], most) if seen is not None and seen.sizes and own[:1] == (1,) else 1
        is_batched = rows > 1 and spec.shape and not isinstance(spec.shape[0], int)
        batched.append(replace(spec, shape=(rows, *(spec.shape or ())[1:])) if is_batched else spec)
    return tuple(batched)


def _run_on_samples(
    planned: PlannedModel, prepared: PreparedModel, source: ProfileLike, model: Path
) -> PlannedModel:
    """Return a plan that was read, with its figures on the check samples of a profile."""
    profile, not_run = read_with_samples(source, prepared.model, prepared.identity)
    check, joined = None, 0
    if not not_run:
        check, joined, not_run = check_samples_of(profile, prepared, planned.plan.config)
    if check is None:
        return planned.with_findings([estimated_only(not_run)])
    limits = noise_limits(prepared.graph, profile, planned.plan.config)
    try:
        return measured_on_samples(planned, limits, model, check, joined)
    except UnfitSamplesError as error:
        return planned.with_findings([estimated_only(error)])


def _nothing_quantized(plan: QuantPlan, graph: Graph) -> tuple[Finding, ...]:
    """Return a finding if no node is quantized: few-bit floats were requested, or no node could be."""
    kind = plan.config.activation_type
    if plan.int8_caches or any(entry.kind is not Kind.FLOAT for entry in plan.nodes.values()):
        return ()
    if not composition_of(plan, graph, None).products:
        return (NOTHING_TO_QUANTIZE,)
    if plan.config.mode in DATA_FREE:
        (_, reason, _), *_ = plan.float_nodes()
        sentence = f"there is nothing to quantize ({reason})"
        return (Finding(Code.NOTHING_QUANTIZED, sentence, remedy=USE_FLOAT),)
    if not TYPES[kind].is_float:
        return ()
    sentence = f"nothing is quantized: no node takes {kind}"
    return (Finding(Code.NOTHING_QUANTIZED, sentence, kind, remedy="--verbose prints the reason for each"),)


@clocked("write")
def _write(
    model: ModelFile,
    planned: PlannedModel,
    *,
    output: Path,
    save_plan: str | os.PathLike[str] | None,
    read: FilesRead,
    recipe: Recipe | None,
    facts: PlanningFacts | None = None,
    speed: SpeedCheck | None = None,
    lowered: LoweredModel | None = None,
    batch: FileBatch | None = None,
) -> QuantizeResult:
    """Lower the plan, and write all files or none."""
    planned = timed_as_run(planned)
    prepared, plan = model.prepared, planned.plan
    lowered = lowered or lower(planned.model, plan)
    unchanged = (
        not plan.config.is_float16
        and prepared.unimproved is None  # preparing brings nothing either
        and not (plan.adjustments.equalization or plan.adjustments.biases or plan.tensors)
        and not (plan.borders or plan.int8_caches)
        and all(entry.kind is Kind.FLOAT for entry in plan.nodes.values())
    )
    if unchanged:
        original = model.model.clone()
        original.metadata_props.update(lowered.model.metadata_props)
        lowered = replace(lowered, model=original, file_bytes=None)
    elif prepared.narrow is not None and not plan.config.is_float16:
        narrow = narrow_constants(lowered.model, prepared.narrow)
        lowered = replace(lowered, model=narrow, file_bytes=None)
    elements: dict[str, float] = {}  # of each tensor in a sample
    if facts is not None:
        counted = max(1, facts.measured.data.samples)
        elements = {name: tensor.count / counted for name, tensor in facts.measured.items()}
    with (
        blamed_on_nodes(planned, lowered),
        replacing_together(FilesRead((model,)).weights) if batch is None else nullcontext(batch) as files,
    ):
        of_target = check_target(lowered.model, plan, recipe, str(output))
        external = has_external_data(prepared.model)
        file, size, unchecked = write_checked(
            lowered.model,
            output,
            model.path,
            elements,
            target=plan.config.target,
            external=external,
            batch=files,
            file_bytes=lowered.file_bytes,
        )
        if facts is not None and plan.config.has_size and size > size_in_bytes(plan.config.fit_size):
            raise SIZES.load("fit_size").beyond_size(facts, size)
        findings = dict.fromkeys([*plan.findings, *lowered.findings, *of_target, *unchecked])
        if plan.origin.checks:  # it was run on samples, which say more than inputs that are made up
            findings.pop(NOT_RUN, None)
        findings |= dict.fromkeys(clip_doubts(lowered.model))
        if unchanged:  # the file has the opset that the model had
            findings = {one: None for one in findings if one.code is not Code.OPSET_RAISED}
        plan = replace(plan, findings=tuple(findings))
        if save_plan is not None:
            write_plan(plan, save_plan, files)
    return QuantizeResult(
        plan,
        output if batch is None else file,
        gravest_first(
            [
                *output_alarms(plan),
                *plan.findings,
                *(_nothing_quantized(plan, planned.graph) if batch is None else ()),  # a verdict says it
            ]
        ),
        model.bytes,
        size,
        speed,
        model=lowered.model,
        read=read,
        planned=planned,
        facts=facts,
    )
