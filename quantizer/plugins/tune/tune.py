"""`tune`: the best plan that meets a quality target, with its model."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import onnx_ir as ir

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ConfigError, DataError
from ....profiles.base.json_values import to_jsonable
from ....profiles.base.output_files import destination, replacing_together, temporary_folder
from ....profiles.base.presentation import is_report
from ....profiles.base.progress import asked_for, stages
from ....profiles.base.tool import note, notes_once
from ....profiles.records.profile import Profile
from ....profiles.runtime.external_weights import load_weights
from ....profiles.runtime.states import float_model
from ....profiles.samples.objects import ChosenSamples, DataSource, source_name
from ....profiles.samples.preprocessing import recipe_file
from ....profiles.samples.random_samples import check_not_random
from ....profiles.samples.samples import input_specs
from ...api.from_samples import own_profile
from ...api.held_out import read_digests, split_samples
from ...api.keywords import SETTINGS, ConfigLike, recipe_of, split_settings, with_keywords
from ...api.options import QuantizeOptions
from ...api.sources import are_samples, labels_file, samples_of, with_metric_of_labels
from ...evaluation.metrics.score import reads_truth
from ...model.files import ModelLike
from ...model.folders import quantized_name
from ...model.loading import load_model
from ...model.output_paths import FilesRead, check_outputs
from ...model.saving import save_model
from ...plan.plan import QuantPlan
from ...plan.store import load_plan
from ...planning.settings_check import check_settings
from ...prepare.prepare import ModelFile, ProfileLike, opened
from ...targets.loading import load_recipe
from ...targets.target import Recipe
from . import search
from .trial import Trial
from .tune_options import QualityTarget, TuneOptions, TuningData


@dataclass(frozen=True, repr=False)
class TuneResult(search.TuneResult):
    """The result of a tuning, with its plan and its model.

    Attributes:
        plan: of the best trial, whether it meets the target or not; None where none could be run.
        quantized: its model; None where the target is missed.
        profile: that its plan was made from.
        read: what it was made from, which `save` does not write over.
    """

    plan: QuantPlan | None = None
    profile: ProfileLike | None = field(default=None, compare=False)
    quantized: ir.Model | None = field(default=None, compare=False)
    read: FilesRead = field(default=FilesRead(), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the plan and the model; the plan has a separate `to_dict`."""
        names = [f.name for f in fields(search.TuneResult)]
        return {
            name: to_jsonable(getattr(self, name)) for name in (*names, "target_met", "verified", "limits")
        }

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
        elif self.quantized is None:
            raise ConfigError(f"{path}: no plan met the target, so there is no model; see `limits`")
        else:
            with replacing_together(self.read.weights) as batch:
                save_model(self.quantized, path, batch=batch)

    def quantized_model(self) -> tuple[ModelLike, str]:
        """Return the model, and the usual name of its file.

        Raises:
            ConfigError: no plan met the target.
        """
        if self.quantized is None:
            raise ConfigError("the tuning: no plan met its target, so there is no model; see its `limits`")
        return self.quantized, quantized_name(self.model)


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
        output: where to write the model, if the target is met, and beside it plan and profile where none was
            given; None for nowhere.
        config: as in `quantize`.
        options: the quality that the model has to keep, and how it is searched for.
        keywords: settings as in `quantize`, and fields of `TuneOptions`. `max_drop` is how much worse the
            score may be than the float model's, in percentage points (dB, or percent of it, for metrics that
            are counted so). The score is that of `metric`, top-1 accuracy with `labels` alone, else agreement
            with the float model, or for outputs that are no classes the correlation with its outputs.

    Returns:
        The result: `quantized` (an `onnx_ir.Model`, None where the target is missed), `plan`, all trials.

    Raises:
        ModelError, ProfileError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword or its value is not allowed.
    """
    if are_samples(profile) and data is None:
        data, profile = cast("DataSource", profile), None
    if data is None:
        raise DataError("tune: samples are needed; give them after the model, or as data=")
    settings, others = split_settings(keywords)
    how = with_keywords("tune", options or TuneOptions(), others, besides=SETTINGS)
    how = with_metric_of_labels(how)
    recipe = recipe_of(config, settings)
    target = QualityTarget(**{entry.name: getattr(how, entry.name) for entry in fields(QualityTarget)})
    holdout = how.holdout_data
    read = FilesRead(
        (model,),
        (profile, config, how.labels, how.holdout_labels, recipe_file(how.preprocess)),
        (data, holdout, how.metric),
    )
    beside = None if profile is not None or output is None or destination(output).is_stream else Path(output)
    kept = {
        what: None if beside is None else beside.with_name(f"{beside.stem}.{what}.yaml")
        for what in ("profile", "plan")
    }
    check_outputs([output, how.save_plan or kept["plan"], kept["profile"]], read)
    show_progress = stages(asked_for(how.progress))("tuning")

    def after_trial(number: int, trial: Trial) -> None:
        show_progress(number, None)
        if how.on_trial is not None:
            how.on_trial(number, trial)

    classes = not reads_truth(how.metric)
    with (
        notes_once(),
        opened(model) as path,
        temporary_folder() as folder,
        labels_file(how.labels, classes=classes) as labels_path,
        labels_file(how.holdout_labels, classes=classes) as holdout_path,
    ):
        written = folder / quantized_name(path.name) if output is None else Path(output)
        plan_file = folder / "plan.yaml" if how.save_plan is None else Path(how.save_plan)
        tuning = TuningData(
            samples_of(data, how.transform, how.preprocess),
            labels=labels_path,
            output=how.scored_output,
            class_axis=how.class_axis,
            metric=how.metric,
            holdout_data=None if holdout is None else samples_of(holdout, how.transform, how.preprocess),
            holdout_labels=holdout_path,
            limit=how.limit,
        )
        used = cast("ProfileLike | None", profile)
        if used is None:
            used, tuning = _with_own_profile(path, tuning, recipe, how, kept["profile"])
        result = search.tune(
            path,
            used,
            tuning,
            target,
            recipe=recipe,
            output=written,
            save_plan=plan_file,
            on_trial=after_trial,
        )
        plan = load_plan(plan_file) if result.best is not None else None
        quantized = None
        if result.target_met:
            quantized = load_model(written)
            load_weights(quantized)  # its files are temporary
            if plan is not None and how.save_plan is None and kept["plan"] is not None:
                plan.save(kept["plan"])
    return TuneResult(
        **{entry.name: getattr(result, entry.name) for entry in fields(result)},
        plan=plan,
        quantized=quantized,
        profile=used,
        read=read,
    )


def _with_own_profile(
    model: ModelFile,
    data: TuningData,
    recipe: Recipe | None,
    how: TuneOptions,
    file: Path | None,
) -> tuple[Profile, TuningData]:
    """Return a profile of the samples, and the samples with a quarter held out, like `quantize`."""
    prepared, show = model.prepared, stages(asked_for(how.progress))
    check_settings(prepared, recipe or load_recipe())
    check_not_random(source_name(data.data), "tuning")
    assert not isinstance(data.data, ChosenSamples)
    specs, state_model = input_specs(prepared.model), float_model(prepared.model)
    digests = read_digests(data.data, specs, how.limit, show("reading"), state_model)
    split, every = split_samples(digests), range(len(digests.rows))
    if data.holdout_data is not None:
        split = replace(split, profiled=digests.chosen(every), profiled_id=digests.identity(every))
    options = QuantizeOptions(provider=how.provider)
    kept = own_profile(model, split, file, options=options, stage=show, tell=note)
    if data.holdout_data is not None:
        return kept.profile, data
    # Truth in the order of all samples is found by their places.
    tuned, others = (replace(one, know_places=True) for one in (split.profiled, split.held_out))
    return kept.profile, replace(
        data, data=tuned, holdout_data=others, holdout_labels=data.labels, limit=None
    )
