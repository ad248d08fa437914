"""`evaluate` and `compare_layers`: the noise of a quantized model at its outputs, and in each layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.errors import ModelError, PlanError
from ...profiles.base.findings import Code, Finding, gravest_first
from ...profiles.base.progress import asked_for, stages
from ...profiles.base.tool import notes_once
from ...profiles.records.profile import DataId
from ...profiles.records.store import first_lines
from ...profiles.runtime.providers import check_provider
from ...profiles.samples.objects import DataLike, DataSource
from ..evaluation import layers
from ..evaluation.evaluate import Evaluation
from ..evaluation.evaluate import evaluate as evaluate_files
from ..evaluation.layers import LayerReport
from ..evaluation.metrics.score import reads_truth
from ..evaluation.options import EvaluationOptions
from ..model.files import ModelLike
from ..plan.documents import documents_beside
from ..plan.provenance import read_provenance
from ..plan.store import PlanLike, plan_name, read_plan
from ..planning.plan_model import open_plan
from ..prepare.prepare import ModelFile, opened
from ..search.attribution import attribute, samples_to_attribute_on
from ..targets.loading import load_recipe
from ..targets.machine import saturation_alarm
from ..targets.packaged import target_names
from .held_out import with_profiled_part
from .keywords import with_keywords
from .options import Judge
from .results import QuantizedLike, QuantizedResult, quantized_file
from .sources import labels_file, samples_of, with_metric_of_labels


@checks_arguments
def evaluate(
    model: ModelLike,
    quantized: QuantizedLike,
    data: DataSource,
    judge: Judge | None = None,
    **keywords: Any,
) -> Evaluation:
    """Compare a quantized model with the float one on samples: SQNR, accuracy, size and latency.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        quantized: the same, or the result of `quantize` or `tune`.
        data: samples, as in `profile`.
        judge: truth, metric, limits, and how both models are run.
        keywords: fields of `Judge`, such as `labels`, `metric`, `gate=Gate(min_sqnr=30)`, `latency=False`.
            The metric is a name of the table of metrics (see `qprof evaluate --help`), with options as in
            "map50:nms=0.6"; or a function, or "module:function": called with the outputs of a model (a dict
            from output name to array for each sample) and the indices of the samples; returns a score from 0
            to 100 for each. The outputs of both models are then in memory.

    Raises:
        ModelError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword is not known, the gate asks for what is not measured, or there is no such
            metric, runtime or provider.
    """
    judge = with_metric_of_labels(with_keywords("evaluate", judge or Judge(), keywords))
    samples = samples_of(data, judge.transform, judge.preprocess)
    with (
        notes_once(),
        opened(model) as path,
        quantized_file(quantized) as other,
        labels_file(judge.labels, classes=not reads_truth(judge.metric)) as truth,
    ):
        evaluation = evaluate_files(
            path,
            other,
            samples,
            labels=truth,
            gate=judge.gate,
            measuring=judge,
            progress=stages(asked_for(judge.progress))("evaluating"),
        )
        if saturation := _saturation(evaluation, other, judge):
            known = (one for one in evaluation.findings if one.code is not Code.ESTIMATE_TOO_GOOD)
            evaluation = replace(evaluation, findings=gravest_first([*saturation, *known]))
        return with_profiled_part(evaluation, lambda data: _was_profiled(data, evaluation, path, other))


def _was_profiled(data: DataId, evaluation: Evaluation, model: ModelFile, quantized: ModelFile) -> bool:
    """Return whether a quantized model was planned from the profile of these data, where that lies beside it.

    Digests of documents are compared only where the first lines of one name the data.
    """
    provenance, files = evaluation.provenance, quantized.path.parent.glob("*.y*ml")
    if provenance is None or not any(data.digest in first_lines(file) for file in files):
        return False
    prepared = model.prepared
    _, profile = documents_beside(quantized.path, provenance, prepared.model, prepared.identity)
    return profile is not None and data.digest in first_lines(profile)


LARGEST_7_BIT = 64
"""Largest magnitude of a weight whose products never saturate (`numerics.affine.INT7`)."""


def _saturation(
    evaluation: Evaluation, quantized: ModelFile, measuring: EvaluationOptions
) -> tuple[Finding, ...]:
    """Return why a model is computed worse here than on the target that it was quantized for; () where it is
    not, or where the model does not say what it was quantized for."""
    provenance = evaluation.provenance
    if provenance is None or provenance.target not in target_names():
        return ()
    target = load_recipe(provenance.target).target
    alarm = saturation_alarm(target, "int8", measuring.runtime, measuring.provider)
    if not alarm:
        return ()
    for value in quantized.model.graph.initializers.values():
        weight = value.const_value
        if weight is None or weight.dtype is not ir.DataType.INT8 or len(weight.shape) < 2:
            continue
        if np.abs(weight.numpy().astype(np.int16)).max(initial=0) > LARGEST_7_BIT:
            return alarm
    return ()


OF_LAYERS = frozenset({"limit", "threads", "provider", "transform", "preprocess", "progress"})
"""Fields of `Judge` that say how a model is run."""


@checks_arguments
def compare_layers(
    model: ModelLike,
    quantized: QuantizedLike,
    data: DataSource,
    *,
    plan: PlanLike | None = None,
    judge: Judge | None = None,
    **keywords: Any,
) -> LayerReport:
    """Compare every activation of a float and a quantized model, in graph order: where the signal is lost.

    Noise adds up on its way; which node adds most of that of the outputs is run (`sensitivity`) where the
    plan is given, or lies beside the model, and is a finding.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        quantized: the same, or the result of `quantize` or `tune`.
        data: samples, as in `profile`.
        plan: path or object: names the kinds of nodes, and finds more quantized tensors; that of a result
            when None.
        judge: how samples are read and both models run; labels, metric and limits are for `evaluate`.
        keywords: fields of `Judge`: `limit`, `threads`, `provider`, `transform`, `preprocess`, `progress`.

    Raises:
        ModelError, DataError, PlanError: what is wrong, where, and what to do.
        ConfigError: a keyword is not known.
    """
    judge = with_keywords("compare_layers", judge or Judge(), keywords, only=OF_LAYERS)
    samples = samples_of(data, judge.transform, judge.preprocess)
    progress = stages(asked_for(judge.progress))("comparing")
    if plan is None and isinstance(quantized, QuantizedResult):
        plan = quantized.plan
    with opened(model) as path, quantized_file(quantized) as other:
        known = plan or _plan_beside(path, other)
        compared = layers.compare_layers(path, other, samples, plan=plan, measuring=judge, progress=progress)
        cause = () if known is None else _cause(path, known, samples, judge)
        return replace(compared, findings=gravest_first([*compared.findings, *cause]))


def _plan_beside(model: ModelFile, quantized: ModelFile) -> Path | None:
    """Return the plan that lies beside a quantized model, by the digest that it holds; None for none."""
    provenance = read_provenance(quantized.model)
    if provenance is None:
        return None
    prepared = model.prepared
    return documents_beside(quantized.path, provenance, prepared.model, prepared.identity)[0]


def _cause(
    model: ModelFile, plan: PlanLike, samples: DataLike, judge: EvaluationOptions
) -> tuple[Finding, ...]:
    """Return the finding on the node that adds most noise at the outputs; () where its plan cannot be run."""
    provider = check_provider(judge.provider)
    try:
        planned = open_plan(model.prepared, read_plan(plan), plan_name(plan))
        run = samples_to_attribute_on(model.path, planned, samples, judge.limit, provider=provider)
        return attribute(planned, run, lacking=0.0, provider=provider).cause
    except (ModelError, PlanError):
        return ()
