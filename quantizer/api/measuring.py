"""`evaluate`, `compare_layers`, `sensitivity`, `diff` and `explain`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from ...profiles.base.tool import Progress
from ...profiles.samples.objects import DataSource
from ..evaluation import evaluate as evaluation
from ..evaluation import layers
from ..evaluation.baseline import Slack, held_against, load_baseline
from ..evaluation.evaluate import Evaluation
from ..evaluation.layers import LayerReport
from ..evaluation.metrics.score import reads_truth
from ..evaluation.metrics.table import MetricName
from ..evaluation.metrics.user_functions import MetricFunction
from ..evaluation.options import EvaluationOptions, Gate, LatencySettings, RuntimeName
from ..model.files import ModelLike, model_file
from ..plan.store import PlanLike
from ..prepare.prepare import ProfileLike
from ..search import sensitivity as analysis
from ..search.sensitivity import LIMIT, Sensitivities, SensitivityRun
from . import drift as drift_check
from . import explanation
from .drift import DriftLimits, DriftReport
from .explanation import NodeExplanation, TensorExplanation
from .quantization import QuantizeResult
from .results import TuneResult
from .settings import Settings, TargetLike, chosen
from .sources import LabelsLike, QuantizedLike, Transform, labels_file, quantized_file, samples_of


class LayerOptions(TypedDict, total=False):
    """Keywords of `compare_layers`.

    transform: makes a sample of an item of the data; preprocess: as in `profile`; limit: number of samples to
    use; threads: inside an operator; provider: execution provider of onnxruntime, such as "cpu" or "cuda:1";
    progress: called after each sample.
    """

    transform: Transform | None
    preprocess: str | os.PathLike[str] | None
    limit: int | None
    threads: int
    provider: str
    progress: Progress | None


class EvaluateOptions(LayerOptions, total=False):
    """Keywords of `evaluate`: those of `LayerOptions`, and these.

    latency: False leaves it out; runtime: what runs both models; provider: its execution provider or device,
    such as "cpu" or "cuda"; scored_output: the output that labels and metric belong to, the first when None;
    class_axis: axis of its classes, what its operator says when None; baseline: an earlier evaluation, as
    JSON, that no figure may be worse than; slack: by how much all the same (`Slack`).
    """

    latency: bool
    runtime: RuntimeName
    scored_output: str | None
    class_axis: int | None
    baseline: str | os.PathLike[str] | None
    slack: Mapping[Literal["score", "sqnr", "size", "speedup"], float]


class SensitivityOptions(Settings, LayerOptions, total=False):
    """Keywords of `sensitivity`: those of `Settings` and of `LayerOptions`, and this.

    class_axis: axis of the classes of the first output, what its operator says when None.
    """

    class_axis: int | None


class DiffOptions(Settings, total=False):
    """Keywords of `diff`: those of `Settings`, the limits of `DriftLimits`, and this.

    allow_different: compares tensors of the same name in models of different structure.
    """

    max_clipping: float | None
    max_range_growth: float | None
    max_js_distance: float | None
    max_wasserstein: float | None
    max_non_finite: float | None
    allow_different: bool


def evaluate(
    model: ModelLike,
    quantized: QuantizedLike,
    data: DataSource,
    *,
    labels: LabelsLike | None = None,
    metric: MetricName | str | MetricFunction | None = None,
    gate: Gate | None = None,
    **options: Unpack[EvaluateOptions],
) -> Evaluation:
    """Compare a quantized model with the float one on samples: SQNR, accuracy, size and latency.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        quantized: the same, or the result of `quantize` or `tune`.
        data: samples, as in `profile`.
        labels: the truth that the metric reads, a file or folder; without a metric, or for "top-1", the class
            of each row: a file, or integers.
        metric: a name of the table of metrics (see `qprof evaluate --help`), with options as in
            "map50:nms=0.6"; or a function, or "module:function": called with the outputs of a model (a dict
            from output name to array for each sample) and the indices of the samples; returns a score from 0
            to 100 for each. The outputs of both models are then in memory.
        gate: what the quantized model must keep.
        options: those of `EvaluateOptions`.

    Raises:
        ModelError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword is not known, the gate asks for what is not measured, there is no such metric,
            runtime or provider, or the baseline is about something else.
    """
    others = dict(chosen("evaluate", options, EvaluateOptions).others)
    samples = samples_of(data, others.pop("transform", None), others.pop("preprocess", None))
    progress = others.pop("progress", None)
    measuring = replace(measuring_of(others), metric=metric)
    baseline, slack = others.get("baseline"), Slack(**others.get("slack", {}))
    earlier = None if baseline is None else load_baseline(baseline)
    classes = not reads_truth(metric)
    with (
        model_file(model) as path,
        quantized_file(quantized) as other,
        labels_file(labels, classes=classes) as truth,
    ):
        found = evaluation.evaluate(
            path, other, samples, labels=truth, gate=gate, measuring=measuring, progress=progress
        )
    if baseline is None or earlier is None:
        return found
    return held_against(found, earlier, Path(baseline).name, slack)


def measuring_of(options: Mapping[str, Any]) -> EvaluationOptions:
    """Return the record of keywords limit, threads, latency, runtime, provider, scored_output and
    class_axis."""
    return EvaluationOptions(
        limit=options.get("limit"),
        scored_output=options.get("scored_output"),
        class_axis=options.get("class_axis"),
        threads=options.get("threads", 1),
        latency=LatencySettings() if options.get("latency", True) else None,
        runtime=options.get("runtime", "onnxruntime"),
        provider=options.get("provider", "cpu"),
    )


def compare_layers(
    model: ModelLike,
    quantized: QuantizedLike,
    data: DataSource,
    *,
    plan: PlanLike | None = None,
    **options: Unpack[LayerOptions],
) -> LayerReport:
    """Compare every activation of a float and a quantized model, in graph order: where the signal is lost.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        quantized: the same, or the result of `quantize` or `tune`.
        data: samples, as in `profile`.
        plan: path or object: names the kinds of nodes, and finds more quantized tensors; that of a result
            when None.
        options: those of `LayerOptions`.

    Raises:
        ModelError, DataError, PlanError: what is wrong, where, and what to do.
        ConfigError: a keyword is not known.
    """
    others = dict(chosen("compare_layers", options, LayerOptions).others)
    samples = samples_of(data, others.pop("transform", None), others.pop("preprocess", None))
    progress = others.pop("progress", None)
    if plan is None and isinstance(quantized, QuantizeResult | TuneResult):
        plan = quantized.plan
    with model_file(model) as path, quantized_file(quantized) as other:
        return layers.compare_layers(
            path, other, samples, plan=plan, measuring=measuring_of(others), progress=progress
        )


def sensitivity(
    model: ModelLike,
    profile: ProfileLike | None,
    data: DataSource,
    *,
    plan: PlanLike | None = None,
    target: TargetLike | None = None,
    **options: Unpack[SensitivityOptions],
) -> Sensitivities:
    """Measure how sensitive the outputs are to each quantized node, and rank the nodes.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        profile: path or object; not needed with a plan.
        data: samples, as in `profile`; by default the first few, which are held in memory.
        plan: path or object: the plan to measure instead of the one that the settings give.
        target: as in `quantize`.
        options: settings as in `quantize`, and those of `LayerOptions`.

    Raises:
        ModelError, ProfileError, PlanError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword or its value is not allowed.
    """
    given = chosen("sensitivity", options, SensitivityOptions)
    others = given.others
    with model_file(model) as path:
        return analysis.sensitivity(
            path,
            profile,
            samples_of(data, others.get("transform"), others.get("preprocess")),
            recipe=given.recipe(target),
            plan_path=plan,
            run=SensitivityRun(
                others.get("limit", LIMIT),
                others.get("threads", 0),
                others.get("class_axis"),
                others.get("provider", "cpu"),
            ),
            progress=others.get("progress"),
        )


def diff(
    old: ProfileLike,
    new: ProfileLike,
    *,
    model: ModelLike | None = None,
    target: TargetLike | None = None,
    **options: Unpack[DiffOptions],
) -> DriftReport:
    """Compare new data with the data that a model was quantized for: which tensors drifted, and how far.

    Args:
        old: the profile that a model was quantized with: path or object.
        new: a profile of newer data.
        model: the float model: leaves out tensors that no plan needs.
        target: as in `quantize`: with the settings it chooses the parameters that `old` led to.
        options: settings as in `quantize`, and those of `DiffOptions`.

    Raises:
        ProfileError: a profile cannot be read, or the two cannot be compared.
        ConfigError: a keyword or its value is not allowed.
    """
    given = chosen("diff", options, DiffOptions)
    limits = dict(given.others)
    allow_different = limits.pop("allow_different", False)
    with nullcontext() if model is None else model_file(model) as path:
        return drift_check.diff(
            old,
            new,
            limits=DriftLimits(**limits),
            recipe=given.recipe(target),
            model_path=path,
            allow_different=allow_different,
        )


def explain(
    plan: PlanLike | QuantizeResult,
    name: str,
    model: ModelLike | None = None,
    profile: ProfileLike | None = None,
) -> TensorExplanation | NodeExplanation:
    """Explain why a tensor has its parameters (who shares them, whose range set them), or a node its kind.

    Args:
        plan: path or object, or the result of `quantize`.
        name: of a tensor or a node of the prepared model.
        model: the float model, for what is around it.
        profile: its profile, for the noise; goes with `model`.

    Raises:
        ConfigError: there is no such tensor (with the nearest name), or a profile without the model.
        PlanError, ModelError, ProfileError: something cannot be read, or belongs to another model.
    """
    plan = plan.plan if isinstance(plan, QuantizeResult) else plan
    if model is None:
        return explanation.explain(plan, name, None, profile)
    with model_file(model) as path:
        return explanation.explain(plan, name, path, profile)
