"""Find the plan that meets a quality target with the best objective, and verify it on held-out samples."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ....profiles.base.errors import ConfigError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.output_files import replacing_together, temporary_folder
from ....profiles.base.presentation import Presentation, Presented, Table
from ....profiles.base.tool import note
from ....profiles.records.profile import Profile, check_data_not_random, has_histograms
from ....profiles.runtime.providers import check_provider, cores
from ....profiles.samples.objects import source_name
from ....profiles.samples.random_samples import check_not_random
from ...evaluation.gates import check_truth, truth_doubts
from ...evaluation.metrics.score import Score
from ...evaluation.runtimes import open_session
from ...model.files import model_bytes
from ...model.output_paths import FilesRead, check_outputs
from ...model.saving import save_model
from ...noise.kept_samples import read_measured
from ...numerics.calibrators import CALIBRATORS
from ...plan.store import save_plan as write_plan
from ...planning.plan_model import check_without_samples
from ...planning.settings_check import check_settings
from ...prepare.prepare import ProfileLike, file_of, profile_name
from ...targets.loading import goes_with, load_recipe, weight_only_settings
from ...targets.machine import runs_here
from ...targets.target import Recipe
from .plan_search import PlanSearch
from .trial import Candidate, OnTrial, Trial, TuningRun
from .tune_options import Objective, QualityTarget, TuningData
from .tuning_data import read_split

LOW_SQNR = (0.0, 10.0)
"""Limits of the outputs (dB) that leave fewer nodes float than the default, for models that can bear it."""


def tune(
    model: str | os.PathLike[str],
    profile_path: ProfileLike,
    data: TuningData,
    target: QualityTarget,
    *,
    recipe: Recipe | None = None,
    output: Path | None = None,
    save_plan: Path | None = None,
    on_trial: OnTrial | None = None,
) -> TuneResult:
    """Find the best plan that meets a quality target, and verify it on held-out samples."""
    begin, spent = time.monotonic(), time.process_time()
    recipe = recipe or load_recipe()
    check_without_samples(recipe.config)
    read = FilesRead(
        (model,),
        (profile_path, data.labels, data.holdout_labels),
        (data.data, data.holdout_data, data.metric),
    )
    check_outputs([output, save_plan], read)
    for samples in (data.data, data.holdout_data):
        if samples is not None:
            check_not_random(source_name(samples), "tuning")

    target = replace(target, objective=objective_in_effect(target, recipe))

    # The float model, its profile and the samples.
    file = file_of(model)
    prepared, provider = file.prepared, check_provider(target.provider)
    check_settings(prepared, recipe)
    profile, _, findings = read_measured(profile_path, prepared)
    for finding in findings:
        note(finding)
    check_data_not_random(profile.data, profile_name(profile_path), "tuning")
    session = open_session(str(file), str(file), target.threads, provider=provider, timed=True)
    split = read_split(session, prepared.model, data, cores())
    if data.labels is not None:
        metric, of_float = split.tuning.metric, split.tuning.score(split.tuning.float_outputs)
        check_truth(data.labels, of_float, metric.findings)
    overlaps = split.overlaps(profile.data)

    # The search.
    deadline = None if target.budget is None else spent + target.budget
    planned_recipe = recipe
    if target.optimised == "int8-share":  # integers are asked for, whatever time they take
        whatever_time = replace(recipe.config, cost_model="off")
        planned_recipe = replace(recipe, config=whatever_time, products_alone=recipe.config.regards_time)
    run = TuningRun(
        *(file.path, prepared, profile, planned_recipe, target, session, split, deadline, on_trial)
    )
    bases = bases_of(recipe, profile)
    search = PlanSearch(run, bases)
    best = search.find()
    holdout = None if best is None else search.verified[best.plan_digest]
    if len(search.verified) > 1:
        sentence = f"the held-out samples decided between {len(search.verified)} plans"
        figures = {"plans": len(search.verified)}
        overlaps = (*overlaps, Finding(Code.CHOSEN_ON_HELD_OUT, sentence, figures=figures))
    size = None if best is None else _write(run, best, holdout, output, save_plan)
    result = TuneResult(
        model=prepared.identity.file,
        metric=split.tuning.metric.title,
        drop_unit=split.tuning.metric.kind.drop_unit,
        target=target,
        split=split.description,
        separate_holdout=not overlaps,
        trials=tuple(run.trials),
        finished=run.finished,
        chosen=None if best is None else run.trials.index(best),
        holdout=holdout,
        float_bytes=file.bytes,
        quantized_bytes=size,
        seconds=time.monotonic() - begin,
    )
    return replace(result, findings=(*_limits(result, overlaps), *split.tuning.metric.findings))


def objective_in_effect(target: QualityTarget, recipe: Recipe) -> Objective:
    """Return the requested objective, or latency if times here are the target's, and else int8-share."""
    if runs_here(recipe.target.name, "onnxruntime", check_provider(target.provider)):
        return target.optimised
    if target.objective == "latency":
        raise ConfigError(
            f"objective latency: onnxruntime, which runs models here, is not what runs them for "
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


def _write(
    run: TuningRun, best: Trial, holdout: Score | None, output: Path | None, save_plan: Path | None
) -> int:
    """Write the files of the chosen plan; return the size of its model."""
    planned = run.planned(best.candidate)
    lowered = run.lowered(planned)
    with temporary_folder() as folder:
        save_model(lowered.model, folder / "best.onnx")
        size = model_bytes(folder / "best.onnx")
    with replacing_together(FilesRead((run.path,)).weights) as batch:
        if output is not None and target_met(best, holdout, run.target):
            save_model(lowered.model, output, batch=batch)
        if save_plan is not None:
            findings = tuple(dict.fromkeys([*planned.plan.findings, *lowered.findings]))
            write_plan(replace(planned.plan, findings=findings), save_plan, batch)
    return size


@dataclass(frozen=True, repr=False)
class TuneResult(Presented):
    """The result of a tuning.

    Attributes:
        model: file name.
        metric: what the score is, for people.
        drop_unit: in what its drop is counted.
        target: the quality target.
        split: how the tuning and the held-out samples were separated, as a sentence.
        separate_holdout: whether no held-out sample was used for tuning or for the profile, as far as known.
        trials: all of them, in order.
        finished: whether the search ended by itself, and not by its budget.
        chosen: index of the best trial; None when no plan could be run.
        holdout: score of the chosen plan on the held-out samples; None without a plan.
        float_bytes, quantized_bytes: sizes of the model files; None for a model that was not made.
        seconds: duration.
        findings: on what stood in the way of a better plan or of a verified one, the weightiest first; then
            on what the metric took the outputs and its truth for.
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

    def headline(self) -> str:
        """Return the model, whether the target is met, and the score on the held-out samples."""
        met = "target met" if self.target_met else "target missed"
        where = "held out" if self.separate_holdout else "on samples used before"
        drop = "" if self.holdout is None else f", drop {self.holdout.drop:.2f} {self.drop_unit} {where}"
        return f"{self.model}, {met}{drop}, {len(self.trials)} trials"

    def presentation(self) -> Presentation:
        """Return the target, the limits of the result, and a table of the trials."""
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
        facts = [("target", f"a drop of at most {self.target.max_drop:g} {self.drop_unit} in {self.metric}")]
        facts += [("limit", finding.text) for finding in self.limits]
        return Presentation(tuple(facts), (Table(header, rows),))

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
        return self.best is not None and target_met(self.best, self.holdout, self.target)

    @property
    def verified(self) -> bool:
        """Whether the upper end of the 95 % interval meets the target too, on samples not used before."""
        if self.holdout is None or not self.separate_holdout:
            return False
        return self.target_met and self.holdout.drop_high <= self.target.max_drop

    @property
    def gate(self) -> Literal["passed", "failed", "not proven"]:
        """The target as a gate: not proven where no plan was scored, or the truth does not fit."""
        if self.target_met:
            return "passed"
        is_scored = self.best is not None and self.best.score is not None
        is_measured = is_scored and self.best is not None and not _is_at_chance(self.best, self.holdout)
        return "failed" if is_measured else "not proven"

    @property
    def limits(self) -> tuple[Finding, ...]:
        """The findings on obstacles to a better plan, or to a verified one."""
        return tuple(finding for finding in self.findings if finding.code is not Code.METRIC_ASSUMED)


def target_met(best: Trial, holdout: Score | None, target: QualityTarget) -> bool:
    """Return whether a plan meets the target on the tuning samples (its trial) and on the held-out ones."""
    on_both = best.meets(target.max_drop) and holdout is not None and holdout.drop <= target.max_drop
    return on_both and not _is_at_chance(best, holdout) and not _is_larger(best, target)


def _is_at_chance(best: Trial, holdout: Score | None) -> bool:
    """Whether the float model is no better than guessing on either part, so that no drop says anything."""
    return any(score is not None and score.is_at_chance for score in (best.score, holdout))


def _is_larger(best: Trial, target: QualityTarget) -> bool:
    return target.optimised == "size" and best.value is not None and best.value < 1.0


def _limits(result: TuneResult, overlaps: Sequence[Finding]) -> Iterator[Finding]:
    best, holdout = result.best, result.holdout
    if best is None or holdout is None:
        sentence = "no plan quantizes a node and can be run"
        remedy = "keep the float model; 'qprof quantize' says why, for each node"
        yield Finding(Code.TARGET_MISSED, sentence, remedy=remedy)
    else:
        yield from _missed(result, best, holdout)
        remedy = "keep the float model, or choose another objective"
        if result.target.optimised == "latency" and best.value is not None and best.value < 1.0:
            sentence = f"the best plan is slower than float ({best.value:.2f} times as fast)"
            yield Finding(Code.FLOAT_IS_FASTER, sentence, figures={"speedup": best.value}, remedy=remedy)
        if _is_larger(best, result.target):
            yield Finding(Code.LARGER_THAN_FLOAT, "the best plan is larger than float", remedy=remedy)
        for one in overlaps:
            sentence = f"{one.sentence} (the score on samples that were used before is too optimistic)"
            yield replace(one, sentence=sentence)
    if not result.finished:
        sentence = f"the budget of {result.target.budget:g} s ended after {len(result.trials)} trials"
        yield Finding(Code.BUDGET_ENDED, sentence, figures={"trials": len(result.trials)})


def _missed(result: TuneResult, best: Trial, holdout: Score) -> Iterator[Finding]:
    if _is_at_chance(best, holdout):
        at_chance = best.score if best.score is not None and best.score.is_at_chance else holdout
        yield from truth_doubts(at_chance)
    elif not best.meets(result.target.max_drop):
        sentence = (
            "no plan that was tried meets the target on the tuning samples; the smallest drop is "
            f"{best.drop:.2f} {result.drop_unit}"
        )
        yield Finding(Code.TARGET_MISSED, sentence, figures={"drop": best.drop})
    elif holdout.drop > result.target.max_drop:
        sentence = (
            f"the target is met on the tuning samples (drop {best.drop:.2f} {result.drop_unit}) and missed "
            f"on the held-out ones ({holdout.drop:.2f})"
        )
        remedy = "give more samples, or tune with a smaller --max-drop"
        figures = {"drop": best.drop, "drop_held_out": holdout.drop}
        yield Finding(Code.TARGET_MISSED, sentence, figures=figures, remedy=remedy)
    elif result.separate_holdout and not holdout.drop_high <= result.target.max_drop:
        sentence = (
            f"{holdout.rows} held-out rows are too few to verify the target: the 95 % interval of the drop "
            f"reaches {holdout.drop_high:.2f} {result.drop_unit}"
        )
        figures = {"rows": holdout.rows, "drop_high": holdout.drop_high}
        yield Finding(Code.TARGET_UNVERIFIED, sentence, figures=figures)


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
