"""`tune`: the plan that meets a quality target with the best objective, verified on held-out samples."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ConfigError, DataError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.json_values import NOT_IN_JSON, to_jsonable
from ....profiles.base.output_files import replacing_together, temporary_folder
from ....profiles.base.presentation import Presentation, Presented, Table, is_report
from ....profiles.base.progress import asked_for, stages
from ....profiles.base.tool import note, notes_once
from ....profiles.records.profile import Profile, check_data_not_random, has_histograms
from ....profiles.runtime.external_weights import load_weights
from ....profiles.runtime.providers import check_provider, cores
from ....profiles.runtime.states import float_model
from ....profiles.samples.objects import ChosenSamples, DataLike, DataSource, source_name
from ....profiles.samples.preprocessing import recipe_file
from ....profiles.samples.random_samples import check_not_random
from ....profiles.samples.samples import input_specs
from ...api.from_samples import own_profile
from ...api.held_out import held_out_labels, read_digests, split_samples
from ...api.keywords import SETTINGS, ConfigLike, recipe_of, split_settings, with_keywords
from ...api.options import QuantizeOptions
from ...api.sources import are_samples, labels_file, samples_of, with_metric_of_labels
from ...evaluation.cost import Cost
from ...evaluation.gates import check_truth, truth_doubts
from ...evaluation.metrics.score import Score, reads_truth
from ...evaluation.metrics.truth import load_labels
from ...evaluation.runtimes import open_session
from ...model.files import ModelLike, model_bytes
from ...model.folders import PLAN, PROFILE, qprof_folder, quantized_name
from ...model.output_paths import FilesRead, check_outputs
from ...model.saving import save_model
from ...noise.kept_samples import read_measured
from ...numerics.calibrators import CALIBRATORS
from ...plan.store import save_plan
from ...planning.plan_model import check_without_samples
from ...planning.settings_check import check_settings
from ...prepare.prepare import ModelFile, ProfileLike, opened, profile_name
from ...targets.loading import goes_with, load_recipe, weight_only_settings
from ...targets.machine import runs_here
from ...targets.target import Recipe
from .plan_search import PlanSearch
from .trial import Candidate, Trial, TuningRun
from .tune_options import OBJECTIVES, Objective, QualityTarget, TuneOptions
from .tuning_data import read_split

LOW_SQNR = (0.0, 10.0)
"""Limits of the outputs (dB) that leave fewer nodes float than the default, for models that can bear it."""


@dataclass(frozen=True, repr=False)
class TuneResult(Presented, document="tuning"):
    """The result of a tuning, with its plan and its model.

    Attributes:
        model: file name.
        metric: name of the score, for people.
        drop_unit: unit of its drop.
        target: the quality target.
        split: how the tuning and the held-out samples were separated, as a sentence.
        separate_holdout: whether no held-out sample was used for tuning or for the profile, as far as known.
        trials: all trials, in order.
        finished: whether the search ended before its budget.
        chosen: index of the best trial; None if no plan could be run.
        holdout: score of the chosen plan on the held-out samples; None without a plan.
        float_bytes, quantized_bytes: sizes of the model files; None for a model that was not made.
        seconds: duration.
        findings: obstacles to a better or a verified plan, the gravest first; then how the metric read
            outputs and labels.
        plan: plan of the best trial, even if it misses the target; None if none could be run. Not in JSON.
        quantized: its model; None if the target is missed. Not in JSON.
        profile: the profile of its plan. Not in JSON.
        read: its input files, which `save` does not overwrite. Not in JSON.
    """

    model: str
    metric: str
    target: QualityTarget
    split: str
    separate_holdout: bool
    trials: tuple[Trial, ...]
    finished: bool
    chosen: int | None
    holdout: Score | None
    float_bytes: int
    quantized_bytes: int | None
    seconds: float
    drop_unit: str = "percentage points"
    findings: tuple[Finding, ...] = ()
    plan: Any = field(default=None, metadata=NOT_IN_JSON)
    quantized: Any = field(default=None, compare=False, metadata=NOT_IN_JSON)
    profile: Any = field(default=None, compare=False, metadata=NOT_IN_JSON)
    read: Any = field(default=FilesRead(), compare=False, metadata=NOT_IN_JSON)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the plan and the model; the plan has a separate `to_dict`."""
        more = {name: to_jsonable(getattr(self, name)) for name in ("target_met", "verified", "float_nodes")}
        return {**super().to_dict(), **more}

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; a name that ends in .html, .md or .json asks for a report.

        Raises:
            ConfigError: there is no model, as the target is missed; or the file cannot be written, or is one
                that the model was made from.
        """
        check_outputs([path], self.read)
        if is_report(path):
            super().save(path)
        else:
            model, _ = self.quantized_model()
            with replacing_together(self.read.weights) as batch:
                save_model(model, path, batch=batch)

    def quantized_model(self) -> tuple[Any, str]:
        """Return the model, and the usual name of its file.

        Raises:
            ConfigError: no plan met the target.
        """
        if self.quantized is None:
            raise ConfigError("the tuning: no plan met its target, so there is no model; see its `limits`")
        return self.quantized, quantized_name(self.model)

    def headline(self) -> str:
        """Return the model, whether the target is met, and the score on the held-out samples."""
        met = "target met" if self.target_met else "target missed"
        where = "held out" if self.separate_holdout else "on samples used before"
        drop = "" if self.holdout is None else f", drop {self.holdout.drop:.2f} {self.drop_unit} {where}"
        return f"{self.model}, {met}{drop}, {len(self.trials)} trials"

    def presentation(self) -> Presentation:
        """Return the figures, and a table of the trials."""
        rows = tuple(
            (
                trial.candidate.name,
                str(len(trial.candidate.keep_float)),
                str(trial.quantized_nodes),
                "-" if trial.score is None else f"{trial.score.drop:.2f}",
                "-" if trial.predicted is None else f"{trial.predicted:.2f}",
                "-" if trial.value is None else f"{trial.value:.2f}",
                trial.error,
            )
            for trial in self.trials
        )
        header = ("settings", "kept float", "quantized", "drop", "predicted", self.target.optimised, "error")
        return Presentation(tuple(self.figures(every=True)), (Table(header, rows),))

    def figures(self, *, every: bool = False) -> Iterator[tuple[str, str]]:
        """Yield name and text of the target, the best plan, its scores, its limits; `every` adds samples."""
        target, best, holdout = self.target, self.best, self.holdout
        what = f"a drop of at most {target.max_drop:g} {self.drop_unit} in {self.metric}"
        yield "target", f"{self.model}: {what}; objective {target.optimised}"
        if every:
            yield "samples", self.split
            yield from (("assumed", str(one)) for one in self.findings if one not in self.limits)
        if best is not None and best.score is not None:
            value = "" if best.value is None else f", {value_text(best.value, target.optimised)}"
            yield "best", f"{best.candidate}: {best.quantized_nodes} nodes quantized{value}"
            yield "tuning", _score_text(best.score)
        if holdout is not None:
            text = f"{_score_text(holdout)}, {holdout.interval}"
            yield "hold-out" if self.separate_holdout else "overlap", text
        if self.quantized_bytes:
            yield "size", Cost(self.float_bytes, self.quantized_bytes).size
        yield from (("limit", str(one)) for one in (self.limits if every else self.limits[:1]))
        trials = len(self.trials)
        yield "time", f"{self.seconds:.0f} s, {trials} trial{'' if trials == 1 else 's'}"

    @property
    def best(self) -> Trial | None:
        """The trial that was chosen."""
        return None if self.chosen is None else self.trials[self.chosen]

    @property
    def float_nodes(self) -> tuple[str, ...]:
        """Names of the nodes that the chosen plan leaves float to meet the target."""
        return () if self.best is None else self.best.candidate.keep_float

    @property
    def target_met(self) -> bool:
        """Whether the chosen plan meets the target as measured, on the tuning samples and the held-out ones.

        With few rows that is no proof, see `verified`. A plan for objective "size" must not be larger than
        the float model besides.
        """
        best, held_out = self.best, self.holdout
        if best is None or held_out is None or self._is_at_chance or self._is_larger:
            return False
        return best.meets(self.target.max_drop) and held_out.drop <= self.target.max_drop

    @property
    def _is_at_chance(self) -> bool:
        """Whether the float model is no better than guessing on either part: no drop says anything."""
        scores = (None if self.best is None else self.best.score, self.holdout)
        return any(score is not None and score.is_at_chance for score in scores)

    @property
    def _is_larger(self) -> bool:
        value = None if self.best is None else self.best.value
        return self.target.optimised == "size" and value is not None and value < 1.0

    @property
    def verified(self) -> bool:
        """Whether the upper end of the 95 % interval meets the target too, on samples not used before."""
        if self.holdout is None or not self.separate_holdout:
            return False
        return self.target_met and self.holdout.drop_high <= self.target.max_drop

    @property
    def gate(self) -> Literal["passed", "failed", "not proven"]:
        """The target as a gate: not proven if no plan was scored, or if the labels do not fit."""
        if self.target_met:
            return "passed"
        is_scored = self.best is not None and self.best.score is not None
        return "failed" if is_scored and not self._is_at_chance else "not proven"

    @property
    def limits(self) -> tuple[Finding, ...]:
        """The findings on obstacles to a better plan, or to a verified one."""
        return tuple(finding for finding in self.findings if finding.code is not Code.METRIC_ASSUMED)

    def obstacles(self, overlaps: Sequence[Finding]) -> Iterator[Finding]:
        """Yield findings on obstacles to a better plan, or to a verified one."""
        best, holdout = self.best, self.holdout
        if best is None or holdout is None:
            sentence = "no plan quantizes a node and can be run"
            remedy = "keep the float model; 'qprof quantize' prints the reason for each node"
            yield Finding(Code.TARGET_MISSED, sentence, remedy=remedy)
        else:
            yield from self._missed(best, holdout)
            remedy = "keep the float model, or choose another objective"
            if self.target.optimised == "latency" and best.value is not None and best.value < 1.0:
                sentence = f"the best plan is slower than float ({best.value:.2f} times as fast)"
                yield Finding(Code.FLOAT_IS_FASTER, sentence, figures={"speedup": best.value}, remedy=remedy)
            if self._is_larger:
                yield Finding(Code.LARGER_THAN_FLOAT, "the best plan is larger than float", remedy=remedy)
            for one in overlaps:
                sentence = f"{one.sentence} (the score on samples that were used before is too optimistic)"
                yield replace(one, sentence=sentence)
        if not self.finished:
            sentence = f"the budget of {self.target.budget:g} s ended after {len(self.trials)} trials"
            yield Finding(Code.BUDGET_ENDED, sentence, figures={"trials": len(self.trials)})

    def _missed(self, best: Trial, holdout: Score) -> Iterator[Finding]:
        """Yield why the target is missed, or met and not verified."""
        max_drop, unit = self.target.max_drop, self.drop_unit
        if self._is_at_chance:
            at_chance = best.score if best.score is not None and best.score.is_at_chance else holdout
            yield from truth_doubts(at_chance)
        elif not best.meets(max_drop):
            sentence = (
                "no plan that was tried meets the target on the tuning samples; the smallest drop is "
                f"{best.drop:.2f} {unit}"
            )
            yield Finding(Code.TARGET_MISSED, sentence, figures={"drop": best.drop})
        elif holdout.drop > max_drop:
            sentence = (
                f"the target is met on the tuning samples (drop {best.drop:.2f} {unit}) and missed on the "
                f"held-out ones ({holdout.drop:.2f})"
            )
            remedy = "give more samples, or tune with a smaller --max-drop"
            figures = {"drop": best.drop, "drop_held_out": holdout.drop}
            yield Finding(Code.TARGET_MISSED, sentence, figures=figures, remedy=remedy)
        elif self.separate_holdout and not holdout.drop_high <= max_drop:
            sentence = (
                f"{holdout.rows} held-out rows are too few to verify the target: the 95 % interval of the "
                f"drop reaches {holdout.drop_high:.2f} {unit}"
            )
            figures = {"rows": holdout.rows, "drop_high": holdout.drop_high}
            yield Finding(Code.TARGET_UNVERIFIED, sentence, figures=figures)


def value_text(value: float, objective: Objective) -> str:
    """Return the value of an objective with its unit."""
    number = f"{100 * value:.1f} %" if objective == "int8-share" else f"{value:.2f}"
    return f"{number} {OBJECTIVES[objective]}"


def _score_text(score: Score) -> str:
    return (
        f"{score.float_score:.2f} float, {score.quantized_score:.2f} quantized of {score.rows} rows "
        f"in {score.samples} samples: drop {score.drop:.2f} {score.drop_unit}"
    )


@checks_arguments
def tune(
    model: ModelLike,
    profile: ProfileLike | DataSource | None = None,
    data: DataSource | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    config: ConfigLike | None = None,
    options: TuneOptions | None = None,
    **keywords: Any,
) -> TuneResult:
    """Find the best plan that meets a quality target, and verify it on held-out samples.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        profile: path or object; None to make it from three quarters of the samples, as `quantize` does, and
            to verify the result on the others. In its place samples may stand.
        data: samples, as in `profile`; all are held in memory.
        output: file for the model, if the target is met; its folder gets the plan, and the profile if none
            was given. None to write no file.
        config: as in `quantize`.
        options: the quality that the model has to keep, and how it is searched for.
        keywords: settings as in `quantize`, and fields of `TuneOptions`. `max_drop` is the largest allowed
            loss of score against the float model, in percentage points (dB, or percent of the score, for some
            metrics). The score is that of `metric`, top-1 accuracy with only `labels`, else agreement with
            the float model, or for outputs without classes the correlation with its outputs.

    Returns:
        The result: `quantized` (an `onnx_ir.Model`, None if the target is missed), `plan`, all trials.

    Raises:
        ModelError, ProfileError, DataError: an unusable input.
        ConfigError: a keyword or its value is not allowed.
    """
    if are_samples(profile) and data is None:
        data, profile = cast("DataSource", profile), None
    if data is None:
        raise DataError("tune: samples are needed; give them after the model, or as data=")
    settings, others = split_settings(keywords)
    how = with_keywords("tune", options or TuneOptions(), others, besides=SETTINGS)
    how = with_metric_of_labels(how)
    recipe = recipe_of(config, settings) or load_recipe()
    check_without_samples(recipe.config)
    how = replace(how, objective=objective_in_effect(how, recipe))
    read = FilesRead(
        (model,),
        (profile, config, how.labels, recipe_file(how.preprocess)),
        (data, how.holdout_data, how.metric),
    )
    folder = None if output is None else qprof_folder(output)
    plan_file = how.save_plan or (folder and folder / PLAN)
    profile_file = folder and folder / PROFILE if profile is None else None
    check_outputs([output, plan_file, profile_file], read, model=output)
    given, way = how.holdout_data, (how.transform, how.preprocess, how.labels)
    if profile is not None and how.labels is not None and given is not None:
        raise ConfigError(
            "--profile: with --holdout-data and --labels, --data is only profiled; leave out --profile, or "
            "give the samples with labels as --data"
        )
    classes = not reads_truth(how.metric)
    with notes_once(), opened(model) as file, labels_file(how.labels, classes=classes) as labels:
        samples = samples_of(data, *way, given)
        holdout = None if given is None else cast("DataSource", samples_of(given, *way, data))
        how = replace(how, labels=labels, holdout_data=holdout)
        for source in (samples, holdout):
            if source is not None:
                check_not_random(source_name(source), "tuning")
        used = cast("ProfileLike | None", profile)
        if used is None:
            used, samples, how = _with_own_profile(file, samples, recipe, how, profile_file)
        result, run = _search(file, used, samples, recipe, how)
        if result.best is None:
            return replace(result, profile=used, read=read)
        planned = run.planned(result.best.candidate)
        lowered = run.lowered(planned)
        with temporary_folder() as folder:
            save_model(lowered.model, folder / "best.onnx")
            result = replace(result, quantized_bytes=model_bytes(folder / "best.onnx"))
        plan = replace(
            planned.plan, findings=tuple(dict.fromkeys([*planned.plan.findings, *lowered.findings]))
        )
        with replacing_together(read.weights) as batch:
            if output is not None and result.target_met:
                save_model(lowered.model, output, batch=batch)
            if plan_file is not None and (how.save_plan or result.target_met):
                save_plan(plan, plan_file, batch)
        if result.target_met:
            load_weights(lowered.model)  # its files may be temporary
    quantized = lowered.model if result.target_met else None
    return replace(result, plan=plan, quantized=quantized, profile=used, read=read)


def _search(
    file: ModelFile, profile_source: ProfileLike, data: DataLike, recipe: Recipe, how: TuneOptions
) -> tuple[TuneResult, TuningRun]:
    """Return the result of the search, without its model, and the run that makes its plans."""
    begin, spent = time.monotonic(), time.process_time()
    prepared, provider = file.prepared, check_provider(how.provider)
    check_settings(prepared, recipe)
    profile, _, findings = read_measured(profile_source, prepared)
    for finding in findings:
        note(finding)
    check_data_not_random(profile.data, profile_name(profile_source), "tuning")
    session = open_session(str(file), str(file), how.threads, provider=provider, timed=True)
    split = read_split(session, prepared.model, data, how, cores())
    metric = split.tuning.metric
    if how.labels is not None:
        check_truth(cast("Path", how.labels), split.tuning.score(split.tuning.float_outputs), metric.findings)
    overlaps = split.overlaps(profile.data)

    show_progress = stages(asked_for(how.progress))("tuning")

    def after_trial(number: int, trial: Trial) -> None:
        show_progress(number, None)
        if how.on_trial is not None:
            how.on_trial(number, trial)

    target = QualityTarget(**{entry.name: getattr(how, entry.name) for entry in fields(QualityTarget)})
    deadline = None if target.budget is None else spent + target.budget
    planned_recipe = recipe
    if target.optimised == "int8-share":  # integers are asked for, whatever time they take
        whatever_time = replace(recipe.config, cost_model="off")
        planned_recipe = replace(recipe, config=whatever_time, products_alone=recipe.config.regards_time)
    run = TuningRun(
        *(file.path, prepared, profile, planned_recipe, target, session, split, deadline, after_trial)
    )
    best = PlanSearch(run, bases_of(recipe, profile)).find()
    result = TuneResult(
        model=prepared.identity.file,
        metric=metric.title,
        drop_unit=metric.kind.drop_unit,
        target=target,
        split=split.description,
        separate_holdout=not overlaps,
        trials=tuple(run.trials),
        finished=run.finished,
        chosen=None if best is None else run.trials.index(best),
        holdout=None if best is None else run.look(best.candidate),
        float_bytes=file.bytes,
        quantized_bytes=None,
        seconds=time.monotonic() - begin,
    )
    return replace(result, findings=(*result.obstacles(overlaps), *metric.findings)), run


def objective_in_effect(target: QualityTarget, recipe: Recipe) -> Objective:
    """Return the requested objective, or latency if times here are the target's, and else int8-share."""
    if runs_here(recipe.target.name, "onnxruntime", check_provider(target.provider)):
        return target.optimised
    if target.objective == "latency":
        raise ConfigError(
            f"objective latency: models run here in onnxruntime, which is not the runtime of target "
            f"{recipe.target.name}; use int8-share or size"
        )
    return target.objective or "int8-share"


def bases_of(recipe: Recipe, profile: Profile) -> tuple[Candidate, ...]:
    """Return the settings to start from: the recipe's own, and others that may be as good or better."""
    config = recipe.config
    can_choose = has_histograms(profile)
    quick = [name for name, calibrator in CALIBRATORS.items() if not calibrator.is_slow]
    others = [name for name in quick if can_choose and name != config.calibrator]
    bases = [Candidate("default"), *(Candidate(f"calibrator {c}", {"calibrator": c}) for c in others)]
    limits = [limit for limit in LOW_SQNR if can_choose and limit != config.min_output_sqnr]
    bases += [Candidate(f"min_output_sqnr {limit:g}", {"min_output_sqnr": limit}) for limit in limits]
    modes = {"dynamic": {"mode": "dynamic"}, "weight-only": weight_only_settings(recipe)}
    bases += [Candidate(f"mode {mode}", new) for mode, new in modes.items() if new and mode != config.mode]
    return tuple(base for base in bases if goes_with(recipe, base.settings))


def _with_own_profile(
    file: ModelFile, data: DataLike, recipe: Recipe, how: TuneOptions, profile_file: Path | None
) -> tuple[Profile, DataLike, TuneOptions]:
    """Return a profile of the samples, and the samples with a quarter held out, like `quantize`."""
    prepared, show = file.prepared, stages(asked_for(how.progress))
    check_settings(prepared, recipe)
    assert not isinstance(data, ChosenSamples)
    specs, state_model = input_specs(prepared.model), float_model(prepared.model)
    digests = read_digests(data, specs, how.limit, show("reading"), state_model)
    split, every = split_samples(digests), range(len(digests.rows))
    if how.labels is not None and how.holdout_data is None and not reads_truth(how.metric):
        held_out_labels(load_labels(cast("Path", how.labels)), split)  # a check before anything is run
    if how.holdout_data is not None:
        split = replace(split, profiled=digests.chosen(every), profiled_id=digests.identity(every))
    options = QuantizeOptions(provider=how.provider)
    profile, _ = own_profile(file, split, profile_file, options=options, stage=show, tell=note)
    if how.holdout_data is not None and how.labels is not None:
        return profile, cast("DataLike", how.holdout_data), replace(how, holdout_data=None)
    if how.holdout_data is not None:
        return profile, data, how
    # Truth in the order of all samples is found by their places.
    tuned, held_out = (replace(one, know_places=True) for one in (split.profiled, split.held_out))
    held_out_source = cast("DataSource", held_out)
    return profile, tuned, replace(how, holdout_data=held_out_source, limit=None)
