"""`compare_layers`: the noise of a quantized model in each layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ModelError, PlanError
from ....profiles.base.findings import Finding, gravest_first
from ....profiles.base.progress import asked_for, stages
from ....profiles.runtime.providers import check_provider
from ....profiles.samples.objects import DataLike, DataSource
from ...api.keywords import with_keywords
from ...api.made_from import made_from
from ...api.options import OF_RUNS
from ...api.results import QuantizedLike, QuantizedResult, quantized_file
from ...api.sources import samples_of
from ...evaluation.options import Judge
from ...model.files import ModelLike
from ...plan.store import PlanLike, plan_name, read_plan
from ...planning.plan_model import open_plan
from ...prepare.prepare import ModelFile, opened
from ...search.attribution import attribute, samples_to_attribute_on
from .layers import LayerReport, layers_of


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
    """Compare every activation of a float and a quantized model, in graph order.

    Noise accumulates from node to node. If the plan is given or beside the model, the node that adds the most
    noise at the outputs is measured, and reported as a finding.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        quantized: the same, or the result of `quantize` or `tune`.
        data: samples, as in `profile`.
        plan: path or object: names the kinds of nodes, and finds more quantized tensors; that of a result
            when None.
        judge: how samples are read and both models run; labels, metric and limits are for `evaluate`.
        keywords: fields of `Judge`: `limit`, `threads`, `provider`, `transform`, `preprocess`, `progress`.

    Raises:
        ModelError, DataError, PlanError: an unusable input.
        ConfigError: a keyword is not known.
    """
    judge = with_keywords("compare_layers", judge or Judge(), keywords, only=OF_RUNS)
    samples = samples_of(data, judge.transform, judge.preprocess)
    progress = stages(asked_for(judge.progress))("comparing")
    if plan is None and isinstance(quantized, QuantizedResult):
        plan = quantized.plan
    with opened(model) as path, quantized_file(quantized) as other:
        known = plan or made_from(quantized, other, path).plan
        compared = layers_of(path, other, samples, plan=known, measuring=judge, progress=progress)
        cause = () if known is None else _cause(path, known, samples, judge)
        return replace(compared, findings=gravest_first([*compared.findings, *cause]))


def _cause(model: ModelFile, plan: PlanLike, samples: DataLike, judge: Judge) -> tuple[Finding, ...]:
    """Return the finding on the node that adds most noise at the outputs, or () if its plan cannot be run."""
    provider = check_provider(judge.provider)
    try:
        planned = open_plan(model.prepared, read_plan(plan), plan_name(plan))
        run = samples_to_attribute_on(model.path, planned, samples, judge.limit, provider=provider)
        return attribute(planned, run, provider=provider).cause
    except (ModelError, PlanError):
        return ()
