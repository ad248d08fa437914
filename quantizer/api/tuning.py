"""`tune`: the best plan that meets a quality target, with its model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Unpack

import onnx_ir as ir

from ...profiles.base.output_files import replacing_together
from ...profiles.samples.objects import DataSource
from ...profiles.samples.preprocessing import recipe_file
from ..evaluation.metrics.score import reads_truth
from ..evaluation.metrics.table import MetricName
from ..evaluation.metrics.user_functions import MetricFunction
from ..model.files import ModelLike, load_model, model_file, temporary_folder
from ..model.output_paths import FilesRead, check_outputs
from ..model.saving import save_model
from ..plan.store import load_plan
from ..prepare.prepare import ProfileLike
from ..search import tune as search
from ..search.quality import QualityTarget
from ..search.trial import OnTrial
from ..search.tune import TuneFiles
from ..search.tuning_data import TuningData
from .results import TuneResult, with_more
from .settings import Settings, TargetLike, chosen
from .sources import LabelsLike, Transform, in_memory, labels_file, quantized_name, samples_of

LIMITS = ("objective", "budget", "seed", "threads", "parallel", "provider")
"""Keywords of `tune` that are fields of `QualityTarget`."""


class TuneOptions(Settings, total=False):
    """Keywords of `tune`: those of `Settings`, from which it starts, and these.

    objective: what is made as good as possible; budget: seconds after which no new trial starts; seed: of the
    split into tuning and held-out samples; threads: of the latency measurement; parallel: trials that run
    side by side; provider: execution provider that runs all models; labels, metric: as in `evaluate`;
    scored_output: the output that labels belong to; class_axis: of its classes; holdout_data, holdout_labels:
    other samples to verify the plan on; transform, preprocess, limit: as in `profile`; state: file from which
    an interrupted tuning is resumed; on_trial: called after each trial.
    """

    objective: Literal["latency", "size", "int8-share"]
    budget: float | None
    seed: int
    threads: int
    parallel: int
    provider: str
    labels: LabelsLike | None
    metric: MetricName | str | MetricFunction | None
    scored_output: str | None
    class_axis: int | None
    holdout_data: DataSource | None
    holdout_labels: LabelsLike | None
    transform: Transform | None
    preprocess: str | os.PathLike[str] | None
    limit: int | None
    state: str | os.PathLike[str] | None
    on_trial: OnTrial | None


def tune(
    model: ModelLike,
    profile: ProfileLike,
    data: DataSource,
    output: str | os.PathLike[str] | None = None,
    *,
    max_drop: float = 0.5,
    target: TargetLike | None = None,
    **options: Unpack[TuneOptions],
) -> TuneResult:
    """Find the best plan that meets a quality target, and verify it on held-out samples.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        profile: path or object.
        data: samples, as in `profile`; all are held in memory.
        output: where to write the model, if the target is met; None for nowhere.
        max_drop: how much worse the score may be than the float model's, in percentage points (dB, or percent
            of it, for metrics that are counted so). The score is that of `metric`, top-1 accuracy with
            `labels` alone, else agreement with the float model, or for outputs that are no classes the
            correlation with its outputs.
        target: as in `quantize`.
        options: settings as in `quantize`, and those of `TuneOptions`.

    Returns:
        The result: `quantized` (an `onnx_ir.Model`, None where the target is missed), `plan`, all trials.

    Raises:
        ModelError, ProfileError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword or its value is not allowed.
    """
    given = chosen("tune", options, TuneOptions)
    others = dict(given.others)
    limits = {name: others.pop(name) for name in LIMITS if name in others}
    recipe, quality = given.recipe(target), QualityTarget(max_drop, **limits)
    labels, holdout_labels = others.get("labels"), others.get("holdout_labels")
    read = FilesRead(
        (model,),
        (profile, target, labels, holdout_labels, recipe_file(others.get("preprocess"))),
        (data, others.get("holdout_data"), others.get("metric")),
    )
    check_outputs([output, others.get("state")], read)
    classes = not reads_truth(others.get("metric"))
    on_trial, state = others.pop("on_trial", None), others.pop("state", None)
    with (
        model_file(model) as path,
        temporary_folder() as folder,
        labels_file(others.pop("labels", None), classes=classes) as labels_path,
        labels_file(others.pop("holdout_labels", None), classes=classes) as holdout_path,
    ):
        files = TuneFiles(
            folder / quantized_name(path.name), folder / "plan.yaml", None if state is None else Path(state)
        )
        found = search.tune(
            path,
            profile,
            _tuning_data(data, others, labels_path, holdout_path),
            quality,
            recipe=recipe,
            files=files,
            on_trial=on_trial,
        )
        quantized = _model(files.model)
        plan = load_plan(folder / "plan.yaml") if (folder / "plan.yaml").exists() else None
    if output is not None and quantized is not None:
        with replacing_together(read.weights) as batch:
            save_model(quantized, output, batch=batch)
    result: TuneResult = with_more(TuneResult, found, plan=plan, quantized=quantized, read=read)
    return result


def _tuning_data(
    data: DataSource, others: dict[str, Any], labels: Path | None, holdout_labels: Path | None
) -> TuningData:
    made, holdout = (others.get("transform"), others.get("preprocess")), others.get("holdout_data")
    return TuningData(
        samples_of(data, *made),
        labels=labels,
        output=others.get("scored_output"),
        class_axis=others.get("class_axis"),
        metric=others.get("metric"),
        holdout_data=None if holdout is None else samples_of(holdout, *made),
        holdout_labels=holdout_labels,
        limit=others.get("limit"),
    )


def _model(path: Path | None) -> ir.Model | None:
    return in_memory(load_model(path)) if path is not None and path.exists() else None
