"""`quantize` with samples: profiles some, holds the others out, and judges the result on them. With a given
profile, all samples judge the result.

`quantize_from_samples` checks the arguments, splits the samples, makes or reuses the profile, and then plans,
writes and judges a model, and again after a fix.

The profile is stored in the folder of the quantized model, and reused if model and digests of data are equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...profiles.base.errors import ConfigError, ProfileError, WritingError
from ...profiles.base.findings import ON_SAMPLES, Code, Finding, gravest_first
from ...profiles.base.improvement import improved
from ...profiles.base.output_files import FileBatch
from ...profiles.base.progress import Stage, counted, stages
from ...profiles.base.seconds import clocked
from ...profiles.records.check_samples import check_samples_place, samples_file
from ...profiles.records.profile import Profile, check_data_not_random
from ...profiles.records.store import first_lines, load_profile, with_samples_of_file
from ...profiles.runner.settings import RunSettings
from ...profiles.runtime.providers import MAX_COPIED_BYTES, check_provider, profiled_by
from ...profiles.runtime.states import float_model, model_samples
from ...profiles.samples.objects import ChosenSamples, DataLike, place_of_data, source_name
from ...profiles.samples.picture_files import note_class_folders
from ...profiles.samples.random_samples import is_random
from ...profiles.samples.samples import input_specs
from ..evaluation.compare import declared_class_count
from ..evaluation.cost import Cost
from ..evaluation.evaluate import evaluate
from ..evaluation.gates import MIN_REFUSED_ROWS, check_gate, check_truth, timed_where_it_runs, truth_doubts
from ..evaluation.grades import ORDER
from ..evaluation.metrics.score import reads_truth
from ..evaluation.metrics.table import named_metric
from ..evaluation.metrics.truth import Labels, load_labels
from ..evaluation.options import Judge
from ..evaluation.output_shift import JudgedSamples
from ..evaluation.written_model import NOT_RUN
from ..model.external_data import float_weight_bytes
from ..model.folders import PROFILE, qprof_folder
from ..model.output_paths import FilesRead, check_outputs
from ..noise.kept_samples import read_measured, with_noise_of_kept
from ..plan.provenance import plan_digest
from ..plan.store import save_plan
from ..planning.settings_check import check_settings
from ..prepare.prepare import ModelFile, ProfileLike, profile_name
from ..search.attribution import Attribution, attribute, samples_to_attribute_on
from ..search.closed_loop import CHECK_SAMPLES, INCOMPARABLE_SAMPLES, samples_to_run
from ..search.fixes import fix_order, in_place_of_poor, is_better, proposed_fixes, weights_fix
from ..search.loop import CANDIDATE_ERRORS, Trial
from ..search.speed import SPEED
from ..search.verdict import NOTHING_TO_QUANTIZE, Fix, Judged, Verdict, no_verdict, verdict_of, with_fixes
from ..search.worth import is_float, is_in_vain, takes_its_place, why_in_vain
from ..targets.config import DATA_FREE
from ..targets.loading import load_recipe, with_settings
from ..targets.machine import runs_here
from ..targets.target import Recipe
from .evaluate import limits_of
from .from_profile import write_quantized
from .held_out import HELD_OUT_FRACTION, SampleSplit, held_out_labels, read_digests, split_samples
from .options import QuantizeOptions
from .profiling import profile_model, settings_for
from .results import QuantizeResult
from .sources import labels_file, samples_of, with_metric_of_labels

CHOSEN_ON_HELD_OUT = Finding(
    Code.CHOSEN_ON_HELD_OUT,
    "the fix was chosen on the held-out samples, so the figures are slightly too good",
    remedy="measure other samples with qprof evaluate",
)
"""Remark on a verdict after a fix."""

SAID_BETTER = (Code.LIMIT_EXCEEDED, Code.BELOW_WISH, Code.ESTIMATED_ONLY)
"""Findings on errors of outputs, estimated or on check samples: a verdict has those on held-out samples."""


@dataclass(frozen=True, eq=False)
class _Task:
    """What one quantization of a call is made from; a fix replaces the recipe, the profile and options."""

    model: ModelFile
    recipe: Recipe  # with the settings of a fix
    profile: Profile | None  # None in a mode that needs none
    profile_file: Path | None  # None for nowhere
    samples: SampleSplit
    labels: Path | Labels | None  # of the held-out samples
    measuring: Judge
    output: Path
    options: QuantizeOptions
    stage: Stage  # called when a stage begins
    folders: ExitStack  # those of files that have not appeared


@dataclass(frozen=True, eq=False)
class _Written:
    """A quantized model in a file that has not appeared yet."""

    task: _Task
    result: QuantizeResult
    files: FileBatch


Judgement = Trial[_Written, Fix | None, Judged]
"""A quantized model, judged on the held-out samples; its cost is in processor seconds, its change is None for
the model as requested."""


def quantize_from_samples(
    model: ModelFile,
    data: DataLike,
    output: Path,
    recipe: Recipe | None,
    options: QuantizeOptions,
    *,
    profile: ProfileLike | None = None,
) -> QuantizeResult:
    """Profile, plan and write a model, judge it on held-out samples, and try fixes."""
    recipe = recipe or load_recipe()
    config, is_given = recipe.config, profile is not None
    options = with_metric_of_labels(options)
    stage = options.stage or stages(options.progress)
    tell = options.note or (lambda finding: None)
    given, reading = options.holdout_data, (options.transform, options.preprocess, options.labels)
    holdout = None if given is None else samples_of(given, *reading)
    with labels_file(options.labels, classes=not reads_truth(options.metric)) as labels:
        # What is asked, before any work.
        metric = options.metric
        labelled = options.labels is not None and not reads_truth(metric)
        options = timed_where_it_runs(options, options.gate, recipe.target.name)
        times = options.latency is not None
        check_gate(options.gate, labels=labelled, latency=times, metric=metric)
        if options.speed is not None:
            SPEED.load("--check-speed").check_options(options.speed, recipe.target.name)
        for source in (data, holdout):
            if options.gate.has_limit and source is not None and is_random(source_name(source)):
                raise ConfigError(
                    f"{source_name(source)}: random values meet no limit; give samples as the model will see "
                    "them, or no limit"
                )

        profile_file = qprof_folder(output) / PROFILE if not is_given and config.reads_profile else None
        read = FilesRead((model,), (labels, profile), (data, holdout))
        check_outputs([output, options.save_plan, profile_file], read)
        if profile_file is not None:
            check_samples_place(profile_file)

        # The model, its labels, and the profile that was given.
        prepared = model.prepared
        check_settings(prepared, recipe)
        specs, state_model = input_specs(prepared.model), float_model(prepared.model)
        truth: Path | Labels | None = labels
        classes = declared_class_count(prepared.model, options.scored_output, options.class_axis)
        if labels is not None and _is_one_class_a_row(options):
            truth = load_labels(labels)
            truth.check_classes(classes)
        elif labels is None and options.metric is None:
            note_class_folders(place_of_data(data), classes)
        kept: Profile | None = None
        if profile is not None:
            kept, missing, of_noise = read_measured(profile, prepared)
            for finding in of_noise if missing else ():  # the result has the others
                tell(finding)
            if options.gate.has_limit:
                check_data_not_random(kept.data, profile_name(profile), "a limit")
            profile_file = None if isinstance(profile, Profile) else Path(profile_name(profile))

        # The samples are read once, and split.
        assert not isinstance(data, ChosenSamples)
        assert not isinstance(holdout, ChosenSamples)
        digests = read_digests(data, specs, options.limit, stage("reading"), state_model)
        others = (
            None if holdout is None else read_digests(holdout, specs, None, stage("reading"), state_model)
        )
        samples = split_samples(
            digests,
            others=others,
            profile=None if kept is None or config.rounding == "gptq" else kept.data,
        )
        if isinstance(truth, Labels):
            truth = held_out_labels(truth, samples)
        elif samples.labelled and samples.description.samples < samples.description.of_samples:
            # The metric finds the truth of a sample by its name, or by its place among all.
            samples = replace(samples, held_out=replace(samples.held_out, know_places=True))

        _check_judging(model.path, samples, truth, options, tell)

        # The profile, where none was given.
        inputs = {spec.name for spec in specs}
        if kept is None and config.reads_profile:
            kept, profile_file = own_profile(
                model,
                samples,
                profile_file,
                options=options,
                stage=stage,
                tell=lambda finding: None if _is_in_verdict(finding, inputs) else tell(finding),
            )

        measuring = replace(options, limit=None)  # of what was read
        with ExitStack() as folders:
            task = _Task(
                model, recipe, kept, profile_file, samples, truth, measuring, output, options, stage, folders
            )
            best, result = _judge_and_fix(task)
            if options.save_plan is not None:
                save_plan(result.plan, options.save_plan, best.plan.files)
            best.plan.files.appear()
        return replace(result, model_path=output, read=read)


def _is_in_verdict(finding: Finding, inputs: Collection[str]) -> bool:
    """Whether the verdict has a finding of the profile, which is then not printed earlier."""
    is_nan = finding.code is Code.NON_FINITE and finding.subject in inputs
    return is_nan or finding.code in (*ON_SAMPLES, Code.RANDOM_DATA)


def _check_judging(
    model: Path,
    samples: SampleSplit,
    truth: Path | Labels | None,
    options: QuantizeOptions,
    tell: Callable[[Finding], None],
) -> None:
    """Judge the float model as its quantized model will be judged, before a profile is made."""
    may_not_fit = "metric", "scored_output", "class_axis", "runtime", "provider"
    if truth is None and all(getattr(options, name) == getattr(Judge(), name) for name in may_not_fit):
        return
    for limit in (1,) if truth is None else (8, None):  # wrong labels show on a few samples
        how = replace(options, latency=None, limit=limit)
        found = evaluate(model, model, samples.held_out, labels=truth, measuring=how)
        scores = found.score
        doubts = truth_doubts(scores)
        if scores is None or not doubts:
            return
    if truth is None or scores is None or scores.rows < MIN_REFUSED_ROWS:
        return
    file = truth if isinstance(truth, Path) else truth.file
    check_truth(file, scores, found.findings)
    for doubt in doubts:
        tell(replace(doubt, sentence=f"{file}: {doubt.sentence}"))


def _is_one_class_a_row(options: QuantizeOptions) -> bool:
    """Whether labels are one class for each row, so that the labels of held-out rows can be selected."""
    metric = options.metric
    named = named_metric(metric) if isinstance(metric, str) else None
    if metric is None or (named is not None and named.kind.name == "top-K"):
        return True
    return options.labels is None and reads_truth(metric)


def own_profile(
    model: ModelFile,
    samples: SampleSplit,
    file: Path | None,
    *,
    options: QuantizeOptions,
    stage: Stage,
    tell: Callable[[Finding], None] = lambda finding: None,
) -> tuple[Profile, Path | None]:
    """Return a profile of this model and data, with its file: of this output, of one beside it, or new."""
    provider = options.provider if options.runtime == "onnxruntime" else "cpu"
    profile: Profile | None = None
    if file is not None and file.exists():
        try:
            profile = _same_profile(file, model, samples, options, provider)
        except ProfileError as error:  # made anew, where it is one that is damaged or of another version
            if "qprof-profile" not in first_lines(file):
                raise ConfigError(
                    f"{file}: is not a profile, but the profile is stored there; move it, or choose another "
                    "output"
                ) from error
    elif file is not None:
        for other in sorted(file.parent.parent.glob(f"*.qprof/{PROFILE}")):
            if samples.profiled_id.digest in first_lines(other):
                with suppress(ProfileError):
                    profile = _same_profile(other, model, samples, options, provider)
            if profile is not None:
                file = other
                break
    used, name = "used again, model and data are the same", "profile" if file is None else str(file)
    if profile is None:
        settings = RunSettings(provider=provider, keep_samples=options.keep_samples)
        profile = profile_model(model, samples.profiled, file, settings, stage=stage)
        used = f"{len(profile)} tensors, {counted(profile.data.samples, None, 'sample')}"
    tell(Finding(Code.PROFILE_KEPT, f"{name}: {used}", name))
    if file is not None and profile.check_samples:
        count, kept = len(profile.check_samples), str(samples_file(file))
        text = f"{kept}: {counted(count, None, 'raw sample')}, used to test models before they are written"
        remedy = "do not publish the file (--set keep_samples=0: none)"
        tell(Finding(Code.CHECK_SAMPLES_KEPT, text, kept, {"samples": count}, remedy))
    profile, _ = with_noise_of_kept(profile, model.prepared.model)  # the result has the findings
    for finding in profile.findings:
        tell(finding)
    return profile, file


def _same_profile(
    file: Path, model: ModelFile, samples: SampleSplit, options: QuantizeOptions, provider: str
) -> Profile | None:
    """Return the profile in a file if a new run would make the same one, else None."""
    profile, missing = with_samples_of_file(load_profile(file), file)
    has_channels = bool(settings_for(model.prepared.graph, RunSettings()).channels)
    is_same = (
        not missing
        and profile.model == model.prepared.identity
        and profile.data == samples.profiled_id
        and profile.tool == profiled_by(check_provider(provider))
        and profile.keep_samples == (0 if profile.data.random else options.keep_samples)
        # Other settings leave channels out where the model has some to record.
        and (not has_channels or any(one.channels is not None for one in profile.values()))
    )
    return profile if is_same else None


def _judge_and_fix(task: _Task) -> tuple[Judgement, QuantizeResult]:
    """Return the model that is written, and its result with the verdict."""
    options, config = task.options, task.recipe.config
    first = _attempt(task, None)
    for data in (task.samples.profiled, task.samples.held_out):
        if is_random(source_name(data)):
            sentence = f"random data: no verdict ({source_name(data)})"
            remedy = "give samples as the model will see them"
            reason = Finding(Code.NO_VERDICT, sentence, remedy=remedy)
            return first, _with_verdict(first, no_verdict(first.measured.verdict, reason), task)

    # Fixes that are tried; where pixels are not scaled no other settings are of any help.
    verdict, trials = first.measured.verdict, list[Judgement]()
    cause = _cause_in_input(verdict, task.profile)
    left_out: tuple[Finding, ...] = ()
    if cause:
        verdict = replace(verdict, findings=gravest_first([*verdict.findings, *cause]))
    elif verdict.grade in ("fair", "poor") or verdict.against or any(proposed_fixes(verdict, task.recipe)):
        search = partial(_tried_fixes, task, first, trials)
        verdict, left_out = improved("search for fixes", search, verdict)
    tried = sorted((one.change for one in trials if one.change), key=fix_order)
    fixes = verdict.fixes
    fix = fixes[0] if options.fix == "auto" and fixes else in_place_of_poor(verdict, task.recipe, tried)
    best = next((one for one in trials if fix is not None and one.change is fix), first)
    if best is not first:
        words = " ".join(best.change.options if best.change else ())
        own = best.measured.verdict
        cause = _cause_in_input(own, task.profile)
        worst = "" if verdict.worst is None else f": {verdict.worst.text}"
        before = Finding(Code.FALLBACK_TAKEN, f"as planned the model is {verdict.grade}{worst}", words)
        instead = () if options.fix == "auto" else (before,)
        findings = gravest_first([*own.findings, *cause, CHOSEN_ON_HELD_OUT, *instead])
        return best, _with_verdict(best, replace(own, applied=fix, findings=findings), task)
    is_asked = config.mode in DATA_FREE or config.has_size or config.cost_model == "off"
    if is_in_vain(verdict) and not is_asked:
        best, verdict = _worth_writing(task, first, verdict, trials)
    result = _with_verdict(best, verdict, task)
    return best, replace(result, findings=gravest_first([*result.findings, *left_out]))


def _worth_writing(
    task: _Task, first: Judgement, verdict: Verdict, trials: Sequence[Judgement]
) -> tuple[Judgement, Verdict]:
    """Return the model in place of one in vain, with its verdict: quantized weights only, or float."""
    if is_float(verdict) and not verdict.composition.products:
        return first, replace(no_verdict(verdict, NOTHING_TO_QUANTIZE), fixes=verdict.fixes)
    why, fix = why_in_vain(verdict), weights_fix(task.recipe)
    same = (one for one in trials if fix and one.change and one.change.settings == fix.settings)
    weights = next(same, None)
    if weights is None and fix is not None:
        weights = _attempt(task, fix)
    if weights is not None and takes_its_place(weights.measured.verdict, verdict):
        own = weights.measured.verdict
        instead = Finding(Code.FALLBACK_TAKEN, f"only weights are quantized, for the size: {why}")
        fixes = tuple(fix for fix in verdict.fixes if fix is not weights.change)
        return weights, replace(own, fixes=fixes, findings=gravest_first([instead, *own.findings]))
    floats = _attempt(task, Fix({"keep_float": ("*",)}), why_float=why)
    reason = replace(NOTHING_TO_QUANTIZE, sentence=f"nothing is quantized: {why}")
    return floats, replace(no_verdict(floats.measured.verdict, reason), fixes=verdict.fixes)


def _attempt(task: _Task, fix: Fix | None, why_float: str = "") -> Judgement:
    """Return the model that a command with these settings writes, judged on the held-out samples."""
    start = time.process_time()
    if fix is not None:
        task = replace(task, recipe=with_settings(task.recipe, fix.settings, "fix", why_float=why_float))
    written, judged = _judged(_written(task))
    fix = None if fix is None else fix.with_figures(judged.verdict)
    return Trial(written, fix, judged, time.process_time() - start)


def _written(task: _Task) -> _Written:
    """Plan and write a model."""
    options, samples = task.options, task.samples
    rounds = task.recipe.config.rounding == "gptq"
    progress = task.stage("rounding" if rounds else "planning")
    speed = options.speed
    if speed is not None and speed.data is None:
        speed = replace(speed, data=samples.profiled, threads=max(speed.threads, options.threads))
    profile = task.profile
    count = CHECK_SAMPLES
    if profile is not None:
        count = samples_to_run(task.model.prepared.graph, profile, profile.runs)
    files = FileBatch(task.folders, FilesRead((task.model,)).weights)
    result = write_quantized(
        task.model,
        profile,
        task.output,
        recipe=task.recipe,
        speed=speed,
        data=samples.profiled if rounds else None,
        check=samples.plan_check(count),
        check_outputs=options.check_outputs == "auto",
        progress=progress if rounds else None,
        batch=files,
    )
    return _Written(task, result, files)


def _judged(made: _Written) -> tuple[_Written, Judged]:
    """Compare a model with float on the held-out samples, and say how good it is."""
    task, result = made.task, made.result
    options, samples, config = task.options, task.samples, task.recipe.config
    assert result.model_path is not None
    written = ModelFile(result.model_path, task.output)
    facts = result.facts
    assert facts is not None
    told = {*SAID_BETTER, *([Code.RANDOM_DATA] if is_random(source_name(samples.profiled)) else [])}
    findings = tuple(one for one in result.findings if one != NOT_RUN and one.code not in told)
    result = replace(result, findings=findings)

    # Latency is left out where this runtime says nothing of the target's, where it takes the memory of the
    # float model once more, and where the arithmetic is float's.
    measuring = task.measuring
    predicted = None if result.plan.origin.time is None else result.plan.origin.time.speedup
    if options.latency is not None and options.gate.min_speedup is None:
        float_bytes = float_weight_bytes(task.model.path, MAX_COPIED_BYTES)
        is_float = predicted is not None and result.composition.has_floats_speed(Cost(1, 1, None, predicted))
        if is_float or float_bytes > MAX_COPIED_BYTES or not runs_here(config.target):
            measuring = replace(measuring, latency=None)
    # The limits that follow from what outputs are, where no limit was asked for.
    held_out = model_samples(samples.held_out, task.model.model, measuring.limit, notes=False)
    limits = limits_of(task.model, result.plan, task.profile, held_out)
    has_truth = task.labels is not None or options.metric is not None
    if limits.compares_nothing and not has_truth and not options.gate.has_limit:
        measuring = replace(measuring, limit=INCOMPARABLE_SAMPLES)

    evaluation = evaluate(
        task.model,
        written,
        samples.held_out,
        labels=task.labels,
        gate=options.gate,
        measuring=measuring,
        limits=limits,
        progress=task.stage("evaluating"),
    )
    if not options.keep_samples:  # nothing of them is kept, in a report neither
        evaluation = replace(evaluation, excerpts=())

    verdict = verdict_of(
        evaluation,
        result.composition,
        replace(samples.description, rows=min(samples.description.rows, evaluation.rows)),
        predicted=predicted,
        printed=result.predicted_speedup,
    )
    return replace(made, result=result), Judged(verdict, evaluation)


def _tried_fixes(task: _Task, first: Judgement, trials: list[Judgement]) -> Verdict:
    """Return the verdict with the fixes that make a better model; `trials` receives all that were tried."""
    verdict, result, budget = first.measured.verdict, first.plan.result, task.options.budget
    start, why_none = time.process_time(), ""
    no_time = f"there was no time for one (--set budget={budget:g})"
    progress = task.stage("trying") if budget else lambda done, of: None

    def has_time() -> bool:
        """Whether another trial is expected to be done in time; one of a poor model is always made."""
        longest = max((one.cost for one in trials), default=first.cost / 2.0)
        is_due = bool(budget) and verdict.grade == "poor" and not trials
        return is_due or time.process_time() - start + longest <= budget

    # A fix that is only printed is timed if its grade is better. Held-out samples show if it is destroyed.
    is_printed = verdict.grade == "fair" and task.options.fix != "auto" and not is_in_vain(verdict)
    is_printed &= task.options.gate.min_speedup is None and not verdict.cost.is_slower
    untimed = replace(task.measuring, latency=None) if is_printed else task.measuring
    plans = {plan_digest(result.plan)}
    config, found = task.recipe.config, list[Attribution]()
    is_noisy = verdict.grade in ("fair", "poor") and verdict.sqnr is not None
    is_noisy &= config.reads_profile and verdict.composition.uses_integers

    def proposals() -> Iterator[Fix]:
        """Yield the fixes by settings, and then the noisiest layer in float, and with it the next one."""
        yield from proposed_fixes(verdict, task.recipe)
        kept, last = tuple[str, ...](), first
        while is_noisy and len(kept) < 2 and last.measured.verdict.grade != "good" and has_time():
            left = budget - time.process_time() + start
            noise = _attributed(task, last.plan.result, last.measured.evaluation.judged, left)
            found.append(noise)
            subjects = tuple(one.subject for one in noise.cause if one.subject)
            # Beyond twice the noise power one layer does not suffice; below half of it noise is not at fault.
            is_near = bool(subjects) and 0.5 <= noise.whole[noise.output].figure <= 2.0
            is_met = any(one.change and one.change.grade == "good" and not one.change.lost for one in trials)
            if is_met or not is_near or is_in_vain(verdict) or config.has_size:
                return
            kept += subjects
            yield Fix({"keep_float": kept})
            last = trials[-1] if trials else first
            if last.change is None or last.change.settings != {"keep_float": kept}:
                return  # it made no other plan

    for fix in proposals():
        began, profile, options = time.process_time(), task.profile, task.options
        try:
            recipe = with_settings(task.recipe, fix.settings, "fix")
            needs_profile = profile is None and recipe.config.reads_profile
            if not has_time() or (needs_profile and first.cost * HELD_OUT_FRACTION > budget):
                why_none = why_none or ("" if trials else no_time)
                continue
            quiet = replace(task, recipe=recipe, measuring=untimed, stage=lambda name: lambda done, of: None)
            if needs_profile:
                profile, _ = own_profile(task.model, task.samples, None, options=options, stage=quiet.stage)
            if is_printed and recipe.config.mode == "weight-only" and not recipe.config.asks_quality:
                options = replace(options, check_outputs="off")
            made = _written(replace(quiet, profile=profile, options=options))
            no_gain = made.result.composition.is_weights_only and recipe.config.mode != "weight-only"
            if (no_gain and "cost_model" not in fix.settings) or plan_digest(made.result.plan) in plans:
                continue
            made, judged = _judged(made)
            is_nearer = ORDER[judged.verdict.grade] < ORDER[verdict.grade]
            if is_printed and is_nearer and not judged.verdict.has_floats_speed:
                made, judged = _judged(replace(made, task=replace(made.task, measuring=task.measuring)))
        except WritingError as error:  # no reason to lose the model that is written
            why_none = str(error)
            break
        except CANDIDATE_ERRORS:
            continue
        plans.add(plan_digest(made.result.plan))
        cost = time.process_time() - began
        trials.append(Trial(made, fix.with_figures(judged.verdict, verdict), judged, cost))
        progress(len(trials), None)

    better = [one.change for one in trials if one.change and is_better(one.measured.verdict, verdict)]
    tried = [one.measured.verdict for one in trials]
    ranked = replace(verdict, attribution=found[0] if found else None)
    return with_fixes(ranked, found[0].cause if found else (), sorted(better, key=fix_order), tried, why_none)


@clocked("rank")
def _attributed(task: _Task, result: QuantizeResult, judged: JudgedSamples, seconds: float) -> Attribution:
    """Return the noise of a plan's nodes on the first held-out samples, on which it was `judged`."""
    how = task.measuring
    provider = check_provider(how.provider if how.runtime == "onnxruntime" else "cpu")
    planned = replace(result.planned, facts=result.facts)
    samples = samples_to_attribute_on(judged, planned, task.samples.held_out, provider=provider)
    return attribute(planned, samples, provider=provider, seconds=seconds)


def _cause_in_input(verdict: Verdict, profile: Profile | None) -> tuple[Finding, ...]:
    """Return the finding that a model that is not good may have received unscaled pixels, by its profile."""
    fits = verdict.score is not None and not truth_doubts(verdict.score)
    if profile is None or verdict.grade == "good" or fits:
        return ()
    pixels = [one for one in profile.findings if one.code is Code.PIXELS][:1]
    return tuple(replace(one, code=Code.MAIN_CAUSE) for one in pixels)


def _with_verdict(attempt: Judgement, verdict: Verdict, task: _Task) -> QuantizeResult:
    """Return the result of an attempt with its verdict and the findings on its samples."""
    profile = task.profile
    if profile is None:
        return replace(attempt.plan.result, judged=Judged(verdict, attempt.measured.evaluation))
    causes = [one.text for one in verdict.cause]
    found = [one for one in profile.findings if one.code is not Code.RANDOM_DATA and one.text not in causes]
    of_samples = [one for one in found if _is_in_verdict(one, profile.inputs)]
    verdict = replace(verdict, findings=gravest_first([*verdict.findings, *of_samples]))
    file = "" if task.profile_file is None else str(task.profile_file)
    return replace(attempt.plan.result, judged=Judged(verdict, attempt.measured.evaluation, file))
