"""`quantize` with samples: they are profiled, some are held out, and the result is judged on these; where a
profile was given it is judged on all of them.

The profile lies beside the quantized model: made once, used again where model and data are the same. The same
are data whose digests are: they are read in any case, to hold some out. Names, sizes and times of files would
be quicker to compare, but a copied folder has other times, a changed file may keep its own, and a function or
a data loader has none.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, DataError, ProfileError
from ...profiles.base.improvement import improvement
from ...profiles.base.output_files import destination
from ...profiles.base.progress import stages
from ...profiles.base.tool import Progress, note
from ...profiles.records.data_checks import Hint
from ...profiles.records.profile import DataId, ModelId, Profile, check_data_not_random
from ...profiles.records.store import load_profile
from ...profiles.runner.settings import RunSettings
from ...profiles.runtime.providers import CPU, check_provider, profiled_by
from ...profiles.runtime.states import float_model
from ...profiles.samples.images import folder_classes
from ...profiles.samples.objects import ChosenSamples, DataLike, PreprocessedData, source_name
from ...profiles.samples.samples import input_specs
from ...profiles.samples.states import FloatModel
from ...profiles.samples.values import InputSpec
from ..evaluation.compare import declared_class_count
from ..evaluation.evaluate import Evaluation, evaluate
from ..evaluation.gates import check_gate, truth_doubts
from ..evaluation.metrics.score import reads_truth
from ..evaluation.metrics.truth import Labels, load_labels
from ..evaluation.options import EvaluationOptions
from ..evaluation.order import ModelFile, speed_doubts
from ..evaluation.written_model import NOT_RUN
from ..exchange.profiles import read_profile
from ..model.output_paths import FilesRead, check_outputs
from ..noise.estimate_check import too_good_texts
from ..noise.output_limits import NoiseLimits, noise_limits
from ..plan.plan import Kind, QuantPlan
from ..planning.facts import PlanningFacts
from ..prepare.prepare import PreparedModel, ProfileLike, open_prepared, profile_name
from ..search.engine import with_settings
from ..search.fixes import FixSearch, find_fixes
from ..search.options import SpeedCheckOptions
from ..search.proposals import Fix, best_fix
from ..search.verdict import (
    Judged,
    Verdict,
    is_no_gain,
    no_verdict,
    verdict_of,
    with_fixes,
)
from ..targets.config import DATA_FREE, WITH_SAMPLES, QuantConfig
from ..targets.loading import load_recipe
from ..targets.machine import saturation_alarm
from ..targets.target import Recipe
from .from_profile import write_quantized
from .held_out import (
    Split,
    has_rows,
    held_out_labels,
    in_samples,
    is_random,
    read_digests,
    split,
    split_beside,
    split_by_source,
)
from .options import QuantizeOptions
from .profiling import profile_model, settings_for
from .results import QuantizeResult
from .sources import labels_file, samples_of

CHOSEN = (
    "the fix was chosen on the held-out samples, which flatters a little: others tell, with qprof evaluate"
)
"""Remark on a verdict after a fix."""


def quantize_from_samples(
    model: Path,
    data: DataLike,
    output: Path,
    recipe: Recipe | None,
    options: QuantizeOptions,
    *,
    profile: ProfileLike | None = None,
    profile_file: Path | None = None,
) -> QuantizeResult:
    """Profile, plan and write a model, judge it on samples that were held out, and try fixes.

    With a profile none is made: it decides the ranges, and all samples judge; of rounding with samples, which
    reads them, those that are held out.

    Args:
        model: file of the float model.
        data: the samples; all of them.
        output: where to write the model; the profile is kept beside it, and so is a plan that no place is
            given for.
        recipe: settings and target; None for the default target's.
        options: on what it is judged, and what follows.
        profile: as in `write_quantized`; None to make one.
        profile_file: where the profile is kept; None for beside the model.

    Returns:
        The result, with `judged`.

    Raises:
        ModelError, ProfileError, PlanError, ConfigError, DataError: what is wrong, where, and what to do.
    """
    others = options.holdout_data
    holdout = None if others is None else samples_of(others, options.transform, options.preprocess)
    recipe = recipe or load_recipe()
    with labels_file(options.labels, classes=not reads_truth(options.metric)) as labels:
        check_judging(options, in_order=profile is not None and options.limit is None)
        for source in (data, holdout):
            if options.gate.has_limit and source is not None and is_random(source):
                raise ConfigError(
                    f"{source_name(source)}: random values meet no limit; give samples as the model will see "
                    "them, or no limit"
                )
        if profile is not None or recipe.config.mode in DATA_FREE:
            profile_file = None
        elif profile_file is None:
            profile_file = file_beside(output, "profile")
        beside = None if profile is not None else file_beside(output, "plan")
        plan_file = Path(options.save_plan) if options.save_plan else beside
        read = FilesRead((model,), (labels, profile), (data, holdout))
        check_outputs([output, plan_file, profile_file, options.checkpoint], read)
        prepared = open_prepared(model)
        specs, identity = input_specs(prepared.model), prepared.identity
        if labels is None and holdout is None and options.metric is None:
            _note_class_folders(data, options, prepared.model)
        truth, rows = _truth(labels, options, prepared.model), has_rows(prepared.model.graph.outputs)
        given = None if profile is None else _given(profile, prepared, options)
        beside_profile = given if recipe.config.rounding not in WITH_SAMPLES else None
        parts = _split(specs, float_model(prepared.model), data, holdout, options, profile=beside_profile)
        del prepared  # quantizing reads it again; a large model is not to be in memory twice
        if profile is not None and parts.about.samples < parts.about.of_samples:
            check_judging(options)
        parts = parts if rows else in_samples(parts)
        if isinstance(truth, Labels):
            truth = held_out_labels(truth, parts)
        files = profile_file, output, plan_file
        task = _Task(model, identity, parts, truth, given, *files, recipe.config, options)
        return replace(_judge_and_fix(task, recipe), read=read)


def _note_class_folders(data: DataLike, options: QuantizeOptions, model: ir.Model) -> None:
    """Note that the folders of pictures can be their labels, where an output has as many classes."""
    source = data.source if isinstance(data, PreprocessedData) else data
    if not isinstance(source, str | os.PathLike) or not os.path.isdir(source):
        return
    try:
        folders = len(folder_classes(source).names)
    except DataError:  # no pictures, or not in folders of classes
        return
    if folders == declared_class_count(model, options.scored_output, options.class_axis):
        folder = os.fspath(source)
        note(f"{folder}: has a folder for each of the {folders} classes; as --labels too it scores accuracy")


def _given(profile: ProfileLike, prepared: PreparedModel, options: QuantizeOptions) -> KeptProfile:
    """Return the profile that was given.

    Raises:
        ProfileError: it cannot be read, is of another model, or of random values where there is a limit.
    """
    name = profile_name(profile)
    found = read_profile(profile, prepared.model, prepared.identity, options.accept_retrained)
    if options.gate.has_limit:
        check_data_not_random(found.data, name, "a limit")
    return KeptProfile(found, None if isinstance(profile, Profile) else Path(name), True)


def check_judging(options: QuantizeOptions, *, in_order: bool = False) -> None:
    """Check what a model is judged on before any work.

    Args:
        options: of the call.
        in_order: whether it may be judged on all samples, in their order.

    Raises:
        ConfigError: a limit on what is not measured, or truth that cannot be divided.
    """
    metric = options.metric
    labelled = options.labels is not None and not reads_truth(metric)
    check_gate(options.gate, labels=labelled, latency=options.latency is not None, metric=metric is not None)
    if options.holdout_data is None and not in_order and not _classes_only(options):
        raise ConfigError(
            f"metric {getattr(metric, '__name__', metric)}: has its truth in the order of the samples; "
            "give other samples to judge on, with labels of these: --holdout-data DATA"
        )


def _classes_only(options: QuantizeOptions) -> bool:
    """Whether the truth is one class for each row, of which those of the held-out rows can be taken."""
    metric = options.metric
    if metric is None or (isinstance(metric, str) and metric.startswith("top-")):
        return True
    return options.labels is None and reads_truth(metric)


def file_beside(output: str | Path, kind: Literal["profile", "plan"]) -> Path | None:
    """Return the file of the profile, or the plan, beside a model that is written; None for a stream.

    Raises:
        ConfigError: the output cannot be written, or is what the file would be.
    """
    if destination(output).is_stream:
        return None
    path = Path(output)
    return path.with_name(f"{path.stem}.{kind}.yaml")


def _truth(labels: Path | None, options: QuantizeOptions, model: ir.Model) -> Path | Labels | None:
    """Return the labels of all rows, checked against the classes that the model says its output has.

    Truth of another kind is the metric's to read.
    """
    if labels is None or not _classes_only(options):
        return labels
    loaded = load_labels(labels)
    loaded.check_classes(declared_class_count(model, options.scored_output, options.class_axis))
    return loaded


def _split(
    specs: Sequence[InputSpec],
    model: FloatModel,
    data: DataLike,
    holdout: DataLike | None,
    options: QuantizeOptions,
    *,
    profile: KeptProfile | None,
) -> Split:
    """Read all samples, and hold some out; those that a profile is not of."""
    assert not isinstance(data, ChosenSamples)
    found = read_digests(data, specs, options.limit, _stage(options, "reading"), model)
    if holdout is None:
        return split(found) if profile is None else split_beside(found, profile.profile.data)
    assert not isinstance(holdout, ChosenSamples)
    others = read_digests(holdout, specs, None, _stage(options, "reading"), model)
    return split_by_source(found, others)


def _stage(options: QuantizeOptions, name: str) -> Progress:
    """Return what is called after each unit of a stage that begins."""
    return (options.stage or stages(options.progress))(name)


def _note(options: QuantizeOptions, text: str) -> None:
    if options.note is not None:
        options.note(text)


@dataclass(frozen=True, eq=False)
class _Task:
    """What does not change from one quantization of a call to the next."""

    model: Path
    identity: ModelId
    parts: Split
    labels: Path | Labels | None
    given: KeptProfile | None
    profile_file: Path | None
    output: Path
    plan_file: Path | None
    config: QuantConfig
    options: QuantizeOptions

    @property
    def evaluation(self) -> EvaluationOptions:
        """How models are compared on the samples that are held out."""
        asked = self.options
        return EvaluationOptions(
            scored_output=asked.scored_output,
            class_axis=asked.class_axis,
            threads=asked.threads,
            latency=asked.latency,
            metric=asked.metric,
            runtime=asked.runtime,
            provider=asked.provider,
        )


@dataclass(frozen=True, eq=False)
class _Attempt:
    """A quantized model and how it compares."""

    result: QuantizeResult
    evaluation: Evaluation
    verdict: Verdict
    limits: NoiseLimits
    seconds: float


def _judge_and_fix(task: _Task, recipe: Recipe) -> QuantizeResult:
    """Return the quantized model with its verdict, after the fixes."""
    options = task.options
    profile = task.given or (None if recipe.config.mode in DATA_FREE else _profile(task))
    first = _attempt(task, recipe, profile, check_speed=options.speed is not None)
    for data in (task.parts.profiled, task.parts.judged):
        if is_random(data):
            reason = f"random data: no verdict ({source_name(data)}); give samples as the model will see them"
            return _with_verdict(first, no_verdict(first.verdict, reason), profile)
    cause, fixes = _input_cause(first.verdict, profile), tuple[Fix, ...]()
    if not cause:  # else no other settings are of any help
        with improvement("search for fixes"):
            cause, fixes = _fixes(task, first)
    verdict = with_fixes(first.verdict, cause, fixes)
    fix = _to_apply(verdict) if options.fix == "auto" else None
    if fix is None:
        return _with_verdict(first, verdict, profile)
    _note(options, f"fix: {' '.join(fix.options)}")
    speed = options.speed is not None or fix.check_speed
    fixed = None
    with improvement(f"fix {' '.join(fix.options)}"):
        fixed = _attempt(task, with_settings(recipe, fix.settings, "fix"), profile, check_speed=speed)
    if fixed is None or is_no_gain(fixed.verdict.composition, fixed.verdict.cost):
        why = "it cannot be made" if fixed is None else "it leaves nothing that is better than float"
        _note(options, f"fix: {' '.join(fix.options)} is undone: {why}")
        again = _attempt(task, recipe, profile, check_speed=options.speed is not None)
        others = [other for other in fixes if other.options != fix.options]
        return _with_verdict(again, with_fixes(again.verdict, cause, others), profile)
    remarks = (*fixed.verdict.remarks, CHOSEN) if fix.is_measured else fixed.verdict.remarks
    cause = _input_cause(fixed.verdict, profile)
    return _with_verdict(fixed, replace(fixed.verdict, applied=fix, remarks=remarks, cause=cause), profile)


@dataclass(frozen=True)
class KeptProfile:
    """A profile and where it is kept: None for nowhere.

    Attributes:
        is_reused: whether it was there, of the same model and data.
    """

    profile: Profile
    file: Path | None
    is_reused: bool


def _profile(task: _Task) -> KeptProfile:
    """Return the profile that lies beside the output, where it is of this model and data; else make it.

    Raises:
        ConfigError: the file is there and is no profile.
    """
    options, file, data = task.options, task.profile_file, task.parts.identity
    provider = options.provider if options.runtime == "onnxruntime" else "cpu"
    profile = None if file is None or not file.exists() else _read(file)
    reused = (
        profile is not None
        and profile.model == task.identity
        and profile.data == data
        and profile.tool == profiled_by(check_provider(provider))
        and profile.noise_samples == RunSettings().noise_samples
        and _has_channels(profile, task.model)
    )
    if profile is None or not reused:
        settings = RunSettings(provider=provider)
        profile = profile_model(
            task.model, task.parts.profiled, file, settings, stage=partial(_stage, options), note=options.note
        )
    name = "profile" if file is None else str(file)
    samples = f"{len(profile)} tensors, {profile.data.samples} samples"
    _note(options, f"{name}: {'used again, model and data are the same' if reused else samples}")
    for text in (*profile.notes, *(hint.text for hint in _hints(profile))):
        _note(options, text)
    return KeptProfile(profile, file, reused)


def _hints(profile: Profile) -> Sequence[Hint]:
    with improvement("hints about the profile"):
        return profile.hints()
    return ()


def _read(file: Path) -> Profile | None:
    """Return a profile; None for one that is damaged or of another version."""
    try:
        return load_profile(file)
    except ProfileError as error:
        if "qprof-profile" in file.read_text(encoding="utf-8", errors="replace")[:4096]:
            return None
        raise ConfigError(
            f"{file}: is no profile, and the profile is kept there; move it, or choose another output"
        ) from error


def _has_channels(profile: Profile, model: Path) -> bool:
    """Whether a profile has channels, where the model has some to record: other settings leave them out."""
    settings = settings_for(open_prepared(model).graph, RunSettings())
    return not settings.channels or any(one.channels is not None for one in profile.values())


def _attempt(task: _Task, recipe: Recipe, profile: KeptProfile | None, *, check_speed: bool) -> _Attempt:
    """Plan, write and compare."""
    start, options, data = time.perf_counter(), task.options, task.parts.profiled
    rounds = recipe.config.rounding in WITH_SAMPLES
    progress = _stage(options, "rounding" if rounds else "planning")
    result = write_quantized(
        task.model,
        None if profile is None else profile.profile,
        task.output,
        save_plan=task.plan_file,
        recipe=recipe,
        accept_retrained=options.accept_retrained,
        speed=_speed_check(options, data) if check_speed else None,
        data=data if rounds else None,
        check=task.parts.checked if options.check_outputs == "auto" else None,
        progress=progress if rounds else None,
        checkpoint=options.checkpoint,
    )
    assert result.model_path is not None
    # Latency is left out where this runtime says nothing of the target's.
    unmeasured = options.gate.min_speedup is None and speed_doubts(ModelFile(result.model_path))
    evaluation = evaluate(
        task.model,
        result.model_path,
        task.parts.judged,
        labels=task.labels,
        gate=options.gate,
        measuring=replace(task.evaluation, latency=None) if unmeasured else task.evaluation,
        progress=_stage(options, "evaluating"),
    )
    result = replace(result, notes=tuple(note for note in result.notes if note != NOT_RUN))
    assert result.made is not None
    assert result.made.facts is not None
    measured = Profile(task.identity, DataId(), {}) if profile is None else profile.profile
    # The limits that follow from what outputs are, where no limit was asked for.
    config = task.config if task.config.min_output_sqnr else replace(task.config, min_output_sqnr=None)
    limits = noise_limits(result.made.facts.prepared.graph, measured, config)
    saturation = _saturation(result.made.facts, result.made.planned.plan, task.evaluation)
    if not saturation:
        evaluation = replace(evaluation, remarks=remarks_with_causes(evaluation, measured))
    predicted, about = result.predicted_speedup, task.parts.about
    composition = result.composition
    verdict = verdict_of(evaluation, limits, composition, about, predicted=predicted, saturation=saturation)
    return _Attempt(result, evaluation, verdict, limits, time.perf_counter() - start)


def _speed_check(options: QuantizeOptions, data: DataLike) -> SpeedCheckOptions:
    """Return how the speed is checked: as was asked, on these samples where no others were given."""
    asked = options.speed or SpeedCheckOptions()
    if asked.data is not None:
        return asked
    return replace(asked, data=data, threads=max(asked.threads, options.threads))


BEYOND = 0.1
"""Share of a calibrated range by which held-out values go beyond it before an estimate that was too good is
put down to that: 25 steps of 8 bits."""


def remarks_with_causes(evaluation: Evaluation, profile: Profile) -> tuple[str, ...]:
    """Return the remarks of an evaluation, those on estimates that were too good with the values that go
    beyond the calibrated range, where there are some: these saturate, which no estimate knows.

    Args:
        evaluation: on samples that the profile was not made from.
        profile: what calibration saw.
    """
    beyond: list[tuple[float, str, float, float]] = []  # by what share, where, held-out and calibrated value
    for name, (low, high) in evaluation.input_ranges.items():
        given = profile.inputs.get(name)
        if given is not None and given.tensor.count:
            least, most = given.tensor.minimum, given.tensor.maximum
            width = max(most, 0.0) - min(least, 0.0) or math.inf
            beyond.append(((high - most) / width, f"input '{name}'", high, most))
            beyond.append(((least - low) / width, f"input '{name}'", low, least))
    for output in evaluation.outputs:
        if output.difference is not None and output.name in profile and profile[output.name].count:
            held = output.difference.max_abs_value
            seen = max(abs(profile[output.name].minimum), abs(profile[output.name].maximum))
            beyond.append(((held - seen) / (seen or math.inf), f"output '{output.name}'", held, seen))
    share, where, held, seen = max(beyond, default=(0.0, "", 0.0, 0.0))
    if share < BEYOND:
        return evaluation.remarks
    cause = (
        f"held-out values go beyond the calibrated range of {where} ({held:.3g} against {seen:.3g}): use "
        "more calibration samples"
    )
    untrue = too_good_texts(evaluation.estimates)
    return tuple(f"{cause}; {remark}" if remark in untrue else remark for remark in evaluation.remarks)


def _saturation(facts: PlanningFacts, plan: QuantPlan, how: EvaluationOptions) -> str:
    """Return why the figures of a plan are worse here than on its target, "" where they are not."""
    integers = (Kind.QUANTIZED, Kind.DYNAMIC)
    if (
        plan.config.weight_type != "int8"
        or how.runtime != "onnxruntime"
        or check_provider(how.provider) != CPU
        or not any(entry.kind in integers for entry in plan.nodes.values())
    ):
        return ""
    return saturation_alarm(plan.config.target, facts.target.weight_types)


def _fixes(task: _Task, attempt: _Attempt) -> tuple[str, tuple[Fix, ...]]:
    """Return what costs most in a model that is not good, is slow, or is not quantized, and what to try."""
    made, budget = attempt.result.made, task.options.budget
    assert made is not None
    if made.facts is None or not (attempt.verdict.grade in ("fair", "poor") or attempt.verdict.alarms):
        return "", ()
    search = FixSearch(
        model=task.model,
        planned=made.planned,
        facts=made.facts,
        samples=task.parts.judged,
        labels=task.labels,
        measuring=task.evaluation if attempt.evaluation.latency else replace(task.evaluation, latency=None),
        limits=attempt.limits,
        seconds=budget,
        spent=attempt.seconds,
        progress=_stage(task.options, "trying") if budget else None,
        saturates=bool(_saturation(made.facts, made.planned.plan, task.evaluation)),
    )
    return find_fixes(search, attempt.verdict)


def _to_apply(verdict: Verdict) -> Fix | None:
    best = best_fix(verdict.fixes, verdict.grade, verdict.sqnr)
    if best is not None and verdict.grade in ("fair", "poor"):
        return best
    return next((fix for fix in verdict.fixes if fix.check_speed), None)


OF_THE_DATA = ("pixels", "channels-last", "equal-samples", "constant-input", "zero-state")
"""Hints that the samples may not be those that the model will see."""


def _input_cause(verdict: Verdict, profile: KeptProfile | None) -> str:
    """Return that a model that is not good may have got unscaled pixels; "" where its profile does not look
    so, or where the float model does well on labels, as some networks take pixels as they are."""
    labelled = verdict.score is not None or verdict.accuracy is not None
    fits = labelled and not truth_doubts(verdict.accuracy, verdict.score, counts_rows=False)
    if profile is None or verdict.grade == "good" or fits:
        return ""
    return next((hint.text for hint in _hints(profile.profile) if hint.code == "pixels"), "")


def _with_verdict(attempt: _Attempt, verdict: Verdict, profile: KeptProfile | None) -> QuantizeResult:
    if profile is not None:
        hints = [hint.text for hint in _hints(profile.profile) if hint.code in OF_THE_DATA]
        hints = [text for text in hints if text != verdict.cause]
        # The first remark is always printed; of a model that is not good another one matters more.
        both = (hints, verdict.remarks) if verdict.grade == "good" else (verdict.remarks, hints)
        verdict = replace(verdict, remarks=tuple(dict.fromkeys(text for texts in both for text in texts)))
    file = "" if profile is None or profile.file is None else str(profile.file)
    reused = profile is not None and profile.is_reused
    return replace(attempt.result, judged=Judged(verdict, attempt.evaluation, file, reused))
