"""The order of the steps from samples to a verdict, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ProfileError, check_finite
from ...profiles.base.output_files import destination
from ...profiles.base.tool import Progress
from ...profiles.records.profile import DataId, ModelId, Profile
from ...profiles.records.store import load_profile
from ...profiles.runner.settings import RunSettings
from ...profiles.runtime.providers import check_provider, profiled_by
from ...profiles.samples.objects import ChosenSamples, DataLike, source_name
from ...profiles.samples.samples import input_specs
from ...profiles.samples.values import InputSpec
from ..evaluation.compare import declared_class_count
from ..evaluation.evaluate import Evaluation, evaluate
from ..evaluation.gates import check_gate
from ..evaluation.metrics.score import reads_truth
from ..evaluation.metrics.truth import Labels, load_labels
from ..evaluation.options import QUICK, EvaluationOptions, Gate
from ..evaluation.order import ModelFile, speed_doubts
from ..model.output_paths import FilesRead, check_outputs
from ..noise.output_limits import NoiseLimits, noise_limits
from ..plan.plan import Kind
from ..prepare.prepare import open_prepared
from ..search.engine import with_settings
from ..search.fixes import FixSearch, find_fixes
from ..search.float_fallback import SpeedDemand
from ..search.quality import int8_share
from ..search.verdict import (
    Composition,
    Fix,
    FloatNodes,
    Judged,
    Verdict,
    best_fix,
    is_no_gain,
    no_verdict,
    verdict_of,
    with_fixes,
)
from ..targets.config import DATA_FREE, WITH_SAMPLES, QuantConfig
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .held_out import (
    Split,
    has_rows,
    held_out_labels,
    in_samples,
    is_random,
    read_digests,
    split,
    split_by_source,
)
from .profiling import dump_profile, settings_for
from .quantization import OutputFiles, QuantizeResult, SampleSteps, quantize

# The profile that lies beside a quantized model: made once, used again where model and data are the same.
#
# The same are data whose digests are: they are read in any case, to hold some out. Names, sizes and times
# of
# files would be quicker to compare, but a copied folder has other times, a changed file may keep its own,
# and a
# function or a data loader has none.


@dataclass(frozen=True)
class KeptProfile:
    """A profile and where it is kept.

    Attributes:
        profile: the profile.
        file: where it lies; None for nowhere.
        is_reused: whether it was there, of the same model and data.
    """

    profile: Profile
    file: Path | None
    is_reused: bool

    @property
    def sentence(self) -> str:
        """Return what became of it."""
        name = "profile" if self.file is None else str(self.file)
        samples = f"{len(self.profile)} tensors, {self.profile.data.samples} samples"
        return f"{name}: {'used again, model and data are the same' if self.is_reused else samples}"


def file_beside(output: str | Path, kind: Literal["profile", "plan"]) -> Path | None:
    """Return the file of the profile, or the plan, beside a model that is written; None for a stream.

    Raises:
        ConfigError: the output cannot be written, or is what the file would be.
    """
    if destination(output).is_stream:
        return None
    path = Path(output)
    return path.with_name(f"{path.stem}.{kind}.yaml")


def kept_profile(
    model: str | Path,
    identity: ModelId,
    data: tuple[DataLike, DataId],
    file: Path | None,
    *,
    provider: str = "cpu",
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> KeptProfile:
    """Return the profile that lies in a file, where it is of this model and data; else make it and write it.

    Args:
        model: file of the float model.
        identity: of the prepared model.
        data: the samples, and their identity.
        file: where the profile lies or is written; None for nowhere.
        provider: execution provider that runs the model, in full or short.
        progress: called after each sample.
        note: called with remarks.

    Raises:
        ConfigError: the file is there and is no profile.
    """
    found = None if file is None or not file.exists() else _read(file)
    if found is not None and _is_of(found, identity, data[1], provider) and _has_channels(found, model):
        return KeptProfile(found, file, True)
    profile = dump_profile(model, data[0], file, RunSettings(provider=provider), progress=progress, note=note)
    return KeptProfile(profile, file, False)


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


def _has_channels(profile: Profile, model: str | Path) -> bool:
    """Whether a profile has channels, where the model has some to record: other settings leave them out."""
    settings = settings_for(open_prepared(model).graph, RunSettings())
    return not settings.channels or any(one.channels is not None for one in profile.values())


def _is_of(profile: Profile, identity: ModelId, data: DataId, provider: str) -> bool:
    """Whether a profile is what profiling this model with these samples would give."""
    return (
        profile.model == identity
        and profile.data == data
        and profile.tool == profiled_by(check_provider(provider))
        and profile.noise_samples == RunSettings().noise_samples
    )


BUDGET = 20.0
"""Seconds for trying fixes, where nobody says."""

CHOSEN = (
    "the fix was chosen on the held-out samples, which flatters a little: others tell, with qprof evaluate"
)
"""Remark on a verdict after a fix."""

Stages = Callable[[str], Progress]
"""Called when a stage begins, with its name; returns what is called after each of its units."""


@dataclass(frozen=True)
class Judging:
    """On what a model is judged, and what follows.

    Attributes:
        labels: file of the class of each row: of the data, or of `holdout_data` where that is given.
        holdout_data: samples to judge on; None holds out a quarter of the data.
        gate: limits that the model must keep.
        measuring: how it is compared with float; its `limit` is of the held-out samples.
        check_speed: measure speed when planning, and keep float what is slower in int8.
        fix: "auto" applies the best fix that was tried.
        budget: seconds for trying fixes; 0 tries none.
    """

    labels: str | os.PathLike[str] | None = None
    holdout_data: DataLike | None = None
    gate: Gate = field(default_factory=Gate)
    measuring: EvaluationOptions = field(default_factory=lambda: EvaluationOptions(latency=QUICK))
    check_speed: bool = False
    fix: Literal["off", "auto"] = "off"
    budget: float = BUDGET

    def __post_init__(self) -> None:
        """Raise ConfigError for what makes no sense."""
        check_finite(self)
        if self.budget < 0.0:
            raise ConfigError(f"budget: {self.budget:g} is no number of seconds; give 0 or more")
        metric, latency = self.measuring.metric, self.measuring.latency
        labelled = self.labels is not None and not reads_truth(metric)
        check_gate(self.gate, labels=labelled, latency=latency is not None, metric=metric is not None)
        if self.holdout_data is None and not self.classes_only:
            raise ConfigError(
                f"metric {getattr(metric, '__name__', metric)}: has its truth in the order of the samples; "
                "give other samples to judge on, with labels of these: --holdout-data DATA"
            )

    @property
    def classes_only(self) -> bool:
        """Whether the truth is one class for each row, of which those of the held-out rows can be taken."""
        metric = self.measuring.metric
        if metric is None or (isinstance(metric, str) and metric.startswith("top-")):
            return True
        return self.labels is None and reads_truth(metric)


@dataclass(frozen=True, eq=False)
class Watching:
    """Who is told what happens.

    Attributes:
        stage: called at the beginning of each stage.
        note: called with remarks.
    """

    stage: Stages = lambda _: lambda done, total: None
    note: Callable[[str], None] = lambda _: None


def quantize_with_data(
    model: str | Path,
    samples: SampleSteps,
    files: OutputFiles,
    recipe: Recipe | None = None,
    *,
    judging: Judging | None = None,
    watching: Watching | None = None,
) -> QuantizeResult:
    """Profile, plan and write a model, and judge it on samples that were held out.

    Args:
        model: float ONNX model.
        samples: the data, how many samples of it are used, and the checkpoint of rounding; nothing else.
        files: where to write the model and the plan; the profile is kept beside the model, and so is a plan
            that no place is given for.
        recipe: settings and target; None for the default target's.
        judging: on what it is judged; None for the defaults.
        watching: who is told.

    Returns:
        The result, with `judged`.

    Raises:
        ModelError, ProfileError, PlanError, ConfigError, DataError: what is wrong, where, and what to do.
    """
    data, steps = samples.data, samples
    if data is None or isinstance(data, ChosenSamples):
        raise ConfigError("data: is missing, or a part of other data; give all of it")
    judging, watching = judging or Judging(), watching or Watching()
    recipe, sources = recipe or load_recipe(), (data, judging.holdout_data)
    for source in sources:
        if judging.gate.has_limit and source is not None and is_random(source):
            raise ConfigError(
                f"{source_name(source)}: random values meet no limit; give samples as the model will see "
                "them, or no limit"
            )
    kept = None if recipe.config.mode in DATA_FREE else file_beside(files.model, "profile")
    files = replace(files, plan=files.plan or file_beside(files.model, "plan"))
    read = FilesRead((model,), (judging.labels,), sources)
    check_outputs([files.model, files.plan, kept, steps.checkpoint], read)
    prepared = open_prepared(model)
    specs, identity = input_specs(prepared.model), prepared.identity
    truth, rows = _truth(judging, prepared.model), has_rows(prepared.model.graph.outputs)
    del prepared  # quantizing reads it again; a large model is not to be in memory twice
    parts = _split(specs, data, judging, steps.limit, watching)
    parts = parts if rows else in_samples(parts)
    if isinstance(truth, Labels):
        truth = held_out_labels(truth, parts)
    run = _Run(Path(model), identity, parts, truth, kept, files, judging, steps, watching, recipe.config)
    return replace(_judged(run, recipe), read=read)


def _truth(judging: Judging, model: ir.Model) -> Path | Labels | None:
    """Return the labels of all rows, checked against the classes that the model says its output has.

    Truth of another kind is the metric's to read.
    """
    if judging.labels is None or not judging.classes_only:
        return None if judging.labels is None else Path(judging.labels)
    labels, measuring = load_labels(Path(judging.labels)), judging.measuring
    labels.check_classes(declared_class_count(model, measuring.scored_output, measuring.class_axis))
    return labels


def _split(
    specs: Sequence[InputSpec], data: DataLike, judging: Judging, limit: int | None, watching: Watching
) -> Split:
    """Read all samples, and hold some out."""
    assert not isinstance(data, ChosenSamples)
    found = read_digests(data, specs, limit, watching.stage("reading"))
    if judging.holdout_data is None:
        return split(found)
    assert not isinstance(judging.holdout_data, ChosenSamples)
    other = read_digests(judging.holdout_data, specs, judging.measuring.limit, watching.stage("reading"))
    return split_by_source(found, other)


@dataclass(frozen=True, eq=False)
class _Run:
    """What does not change from one quantization of a call to the next."""

    model: Path
    identity: ModelId
    parts: Split
    labels: Path | Labels | None
    kept: Path | None
    files: OutputFiles
    judging: Judging
    steps: SampleSteps
    watching: Watching
    config: QuantConfig


@dataclass(frozen=True, eq=False)
class _Done:
    """A quantized model and how it compares."""

    result: QuantizeResult
    evaluation: Evaluation
    verdict: Verdict
    limits: NoiseLimits
    seconds: float


def _judged(run: _Run, recipe: Recipe) -> QuantizeResult:
    """Return the result of a run, with its verdict, after the fixes."""
    profile = None if recipe.config.mode in DATA_FREE else _profile(run)
    done = _quantized(run, recipe, profile, check_speed=run.judging.check_speed)
    reason = _no_verdict_reason(run)
    if reason:
        return _with(done, no_verdict(done.verdict, reason), profile)
    cause, fixes = _fixes(run, done)
    cause = _input_cause(done.verdict, profile) or cause
    verdict = with_fixes(done.verdict, cause, fixes)
    fix = _to_apply(verdict) if run.judging.fix == "auto" else None
    if fix is None:
        return _with(done, verdict, profile)
    run.watching.note(f"fix: {' '.join(fix.options)}")
    speed = run.judging.check_speed or fix.check_speed
    fixed = _quantized(run, with_settings(recipe, fix.settings, "fix"), profile, check_speed=speed)
    if is_no_gain(fixed.verdict.composition, fixed.verdict.cost):
        run.watching.note(
            f"fix: {' '.join(fix.options)} is undone: it leaves nothing that is better than float"
        )
        done = _quantized(run, recipe, profile, check_speed=run.judging.check_speed)
        others = [other for other in fixes if other.options != fix.options]
        return _with(done, with_fixes(done.verdict, cause, others), profile)
    remarks = (*fixed.verdict.remarks, CHOSEN) if fix.is_measured else fixed.verdict.remarks
    cause = _input_cause(fixed.verdict, profile)
    return _with(fixed, replace(fixed.verdict, applied=fix, remarks=remarks, cause=cause), profile)


def _input_cause(verdict: Verdict, profile: KeptProfile | None) -> str:
    """Return what looks wrong with the inputs of a model that is not good, as its profile has it."""
    if profile is None or verdict.grade == "good":
        return ""
    return next((hint.text for hint in profile.profile.hints() if hint.code == "pixels"), "")


def _to_apply(verdict: Verdict) -> Fix | None:
    best = best_fix(verdict.fixes, verdict.grade, verdict.sqnr)
    if best is not None and verdict.grade in ("fair", "poor"):
        return best
    return next((fix for fix in verdict.fixes if fix.check_speed), None)


def _with(done: _Done, verdict: Verdict, profile: KeptProfile | None) -> QuantizeResult:
    file = "" if profile is None or profile.file is None else str(profile.file)
    reused = profile is not None and profile.is_reused
    return replace(done.result, judged=Judged(verdict, done.evaluation, file, reused))


def _no_verdict_reason(run: _Run) -> str:
    for data in (run.parts.profiled, run.parts.judged):
        if is_random(data):
            return f"random data: no verdict ({source_name(data)}); give samples as the model will see them"
    return ""


def _profile(run: _Run) -> KeptProfile:
    data = (run.parts.profiled, run.parts.identity)
    progress = run.watching.stage("profiling")
    how = run.judging.measuring
    found = kept_profile(
        run.model,
        run.identity,
        data,
        run.kept,
        provider=how.provider if how.runtime == "onnxruntime" else "cpu",
        progress=progress,
        note=run.watching.note,
    )
    run.watching.note(found.sentence)
    for text in (*found.profile.notes, *(hint.text for hint in found.profile.hints())):
        run.watching.note(text)
    return found


def _quantized(run: _Run, recipe: Recipe, profile: KeptProfile | None, *, check_speed: bool) -> _Done:
    """Plan, write and compare."""
    start = time.perf_counter()
    judging, data = run.judging, run.parts.profiled
    demand = SpeedDemand(data, threads=judging.measuring.threads) if check_speed else None
    rounds = recipe.config.rounding in WITH_SAMPLES
    progress = run.watching.stage("rounding" if rounds else "planning")
    steps = SampleSteps(
        speed=demand,
        data=data if rounds else None,
        progress=progress if rounds else None,
        checkpoint=run.steps.checkpoint,
    )
    result = quantize(
        run.model, None if profile is None else profile.profile, run.files, recipe=recipe, samples=steps
    )
    assert result.model_path is not None
    evaluation = evaluate(
        run.model,
        result.model_path,
        run.parts.judged,
        labels=run.labels,
        gate=judging.gate,
        measuring=_measuring(judging, result.model_path),
        progress=run.watching.stage("evaluating"),
    )
    made = result.made
    assert made is not None
    assert made.facts is not None
    measured = Profile(run.identity, DataId(), {}) if profile is None else profile.profile
    limits = noise_limits(made.facts.prepared.graph, measured, _with_kinds(run.config))
    verdict = verdict_of(evaluation, limits, _composition(result, measured), run.parts.about)
    return _Done(result, evaluation, verdict, limits, time.perf_counter() - start)


def _measuring(judging: Judging, file: Path) -> EvaluationOptions:
    """Return how models are compared: without latency where this runtime says nothing of the target's."""
    if judging.gate.min_speedup is None and speed_doubts(ModelFile(file)):
        return replace(judging.measuring, latency=None)
    return judging.measuring


def _with_kinds(config: QuantConfig) -> QuantConfig:
    """Return settings with the limits that follow from what outputs are, where no limit was asked for."""
    return config if config.min_output_sqnr else replace(config, min_output_sqnr=None)


def _composition(result: QuantizeResult, profile: Profile) -> Composition:
    """Return how much of a model integers compute."""
    floats = tuple(FloatNodes(group.nodes, group.reason) for group in result.summary.floats)
    counts = result.summary.counts
    graph = None if result.made is None else result.made.planned.graph
    share = int8_share(result.plan, graph, profile) if graph is not None and len(profile) else None
    quantized = sum(counts.values()) - counts.get(Kind.FLOAT.value, 0)
    return Composition(share, quantized, floats, counts.get(Kind.WEIGHT_ONLY.value, 0))


def _fixes(run: _Run, done: _Done) -> tuple[str, tuple[Fix, ...]]:
    """Return what costs most in a model that is not good, is slow, or is not quantized, and what to try."""
    made, judging = done.result.made, run.judging
    assert made is not None
    if made.facts is None or not (done.verdict.grade in ("fair", "poor") or done.verdict.alarms):
        return "", ()
    progress = run.watching.stage("trying") if judging.budget else None
    search = FixSearch(
        model=run.model,
        planned=made.planned,
        facts=made.facts,
        samples=run.parts.judged,
        labels=run.labels,
        measuring=judging.measuring if done.evaluation.latency else replace(judging.measuring, latency=None),
        limits=done.limits,
        seconds=judging.budget,
        spent=done.seconds,
        progress=progress,
    )
    return find_fixes(search, done.verdict)
