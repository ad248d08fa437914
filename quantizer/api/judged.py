"""`quantize` with samples alone: they are profiled, some are held out, and the result is judged on these."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from ...profiles.base.errors import ConfigError
from ...profiles.base.tool import Progress
from ...profiles.samples.objects import DataLike, DataSource
from ..evaluation.metrics.table import MetricName
from ..evaluation.metrics.user_functions import MetricFunction
from ..evaluation.options import QUICK, Gate, RuntimeName
from ..targets.target import Recipe
from .measuring import measuring_of
from .quantization import OutputFiles, QuantizeResult, SampleSteps
from .quantize_data import BUDGET, Judging, Watching, quantize_with_data
from .sources import LabelsLike, Transform, labels_file, samples_of


class JudgeOptions(TypedDict, total=False):
    """Keywords of `quantize` with `data` and without a profile, where the result is judged.

    labels, metric, gate, latency, runtime, provider, scored_output, class_axis, threads: as in `evaluate`;
    holdout_data: samples to judge on, which the labels then belong to, a quarter of the data when None; fix:
    "auto" applies the best fix that was tried; budget: seconds for trying fixes.
    """

    labels: LabelsLike | None
    metric: MetricName | str | MetricFunction | None
    holdout_data: DataSource | None
    gate: Gate | None
    latency: bool
    runtime: RuntimeName
    provider: str
    scored_output: str | None
    class_axis: int | None
    threads: int
    fix: Literal["off", "auto"]
    budget: float


def check_unjudged(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for keywords of judging where there are a profile, a plan, or no samples."""
    for name in options:
        if name in JudgeOptions.__optional_keys__:
            raise ConfigError(
                f"{name}: is for data without a profile, where the result is judged; leave it out, or call "
                "evaluate"
            )


def judged_quantize(
    model: Path, data: DataLike, output: Path, recipe: Recipe | None, options: dict[str, Any]
) -> QuantizeResult:
    """Return the result of a quantization that profiles samples, with its verdict.

    Args:
        model: float ONNX model.
        data: the samples.
        output: where to write the quantized model; the profile is kept beside it.
        recipe: settings and target.
        options: keywords of `QuantizeOptions` that are no settings.
    """
    measuring = replace(measuring_of({**options, "limit": None}), metric=options.get("metric"))
    holdout = options.get("holdout_data")
    with labels_file(options.get("labels")) as labels:
        judging = Judging(
            labels=labels,
            holdout_data=None if holdout is None else _like(holdout, options),
            gate=options.get("gate") or Gate(),
            measuring=replace(measuring, latency=measuring.latency and QUICK),
            check_speed=options.get("speed") is not None,
            fix=options.get("fix", "off"),
            budget=options.get("budget", BUDGET),
        )
        steps = SampleSteps(data=data, limit=options.get("limit"), checkpoint=options.get("checkpoint"))
        watching = Watching(stage=lambda _: _progress(options))
        return quantize_with_data(
            model, steps, OutputFiles(output), recipe, judging=judging, watching=watching
        )


def _like(holdout: DataSource, options: Mapping[str, Any]) -> DataLike:
    transform: Transform | None = options.get("transform")
    preprocess: str | os.PathLike[str] | None = options.get("preprocess")
    return samples_of(holdout, transform, preprocess)


def _progress(options: Mapping[str, Any]) -> Progress:
    progress: Progress | None = options.get("progress")
    return progress or (lambda done, total: None)
