"""`report`: the report of a quantization, a tuning or a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from ...profiles.base.errors import ConfigError
from ...profiles.base.tool import notes_once
from ...profiles.samples.objects import DataSource
from ..api.measuring import LayerOptions, measuring_of
from ..api.quantization import QuantizeResult
from ..api.results import TuneResult
from ..api.settings import TargetLike, chosen, recipe_of
from ..api.sources import LabelsLike, QuantizedLike, labels_file, quantized_file, samples_of
from ..evaluation.metrics.table import MetricName
from ..evaluation.metrics.user_functions import MetricFunction
from ..evaluation.options import Gate, RuntimeName
from ..model.files import ModelLike, model_file
from ..plan.store import PlanLike
from ..prepare.prepare import ProfileLike
from ..targets.target import Recipe
from . import reporting
from .content import Report
from .reporting import Measured


class ReportOptions(LayerOptions, total=False):
    """Keywords of `report`: those of `LayerOptions`, and these.

    metric, gate, latency, runtime, provider, scored_output, class_axis: as in `evaluate`; history: profiles
    of newer data, the oldest first: how they drift; target: of the plan, where it is no packaged one.
    """

    latency: bool
    runtime: RuntimeName
    provider: str
    scored_output: str | None
    class_axis: int | None
    metric: MetricName | str | MetricFunction | None
    gate: Gate | None
    history: Iterable[ProfileLike]
    target: TargetLike | None


def report(
    model: ModelLike,
    result: QuantizeResult | TuneResult | PlanLike,
    profile: ProfileLike | None = None,
    *,
    quantized: QuantizedLike | None = None,
    data: DataSource | None = None,
    labels: LabelsLike | None = None,
    **options: Unpack[ReportOptions],
) -> Report:
    """Return the report of a quantized model: noise, tensors, graph, prices, and what to try.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        result: of `quantize` or `tune`; or a plan, path or object.
        profile: path or object, which the plan was made from; None for the one that `quantize` kept beside
            the model that it wrote.
        quantized: the model to measure on `data`; that of the result when None.
        data: samples, as in `profile`; without any, a report has what `result` holds, and estimates.
        labels: as in `evaluate`.
        options: those of `ReportOptions`.

    Returns:
        The report; `save(path)` writes it: a folder with report.html, report.md, junit.xml and report.json,
        or one page where the name ends in .html.

    Raises:
        ModelError, ProfileError, PlanError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword is not known, or something is missing.
    """
    others = dict(chosen("report", options, ReportOptions).others)
    target = others.pop("target", None)
    recipe = target if target is None or isinstance(target, Recipe) else recipe_of(target, {})
    profile = _kept_profile(result) if profile is None else profile
    with notes_once(), model_file(model) as path:
        if data is None and isinstance(result, QuantizeResult):
            return reporting.quantization_report(result, path, profile, recipe)
        if profile is None:
            raise ConfigError("report: needs the profile that the plan was made from; give profile=")
        if data is None and isinstance(result, TuneResult):
            return reporting.tuning_report(result, path, profile, result.plan, recipe)
        plan = result.plan if isinstance(result, QuantizeResult | TuneResult) else result
        if plan is None:
            raise ConfigError("report: the tuning found no plan; see its `limits`")
        if quantized is None and isinstance(result, QuantizeResult | TuneResult):
            quantized = result if data is not None else None
        history = others.pop("history", ())
        with (
            nullcontext() if quantized is None else quantized_file(quantized) as file,
            labels_file(labels) as truth,
        ):
            measured = _measured(file, data, truth, others)
            return reporting.report(path, plan, profile, measured=measured, history=history, recipe=recipe)


def _kept_profile(result: QuantizeResult | TuneResult | PlanLike) -> str | os.PathLike[str] | None:
    judged = result.judged if isinstance(result, QuantizeResult) else None
    return None if judged is None else judged.profile or None


def _measured(
    quantized: Path | None, data: DataSource | None, labels: Path | None, options: dict[str, Any]
) -> Measured:
    made = options.get("transform"), options.get("preprocess")
    return Measured(
        quantized,
        None if data is None else samples_of(data, *made),
        labels,
        options.get("gate") or Gate(),
        replace(measuring_of(options), metric=options.get("metric")),
        options.get("progress"),
    )
