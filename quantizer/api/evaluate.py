"""`evaluate`: the verdict on a quantized model."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.errors import ModelError, PlanError
from ...profiles.base.findings import Code, gravest_first
from ...profiles.base.improvement import improved
from ...profiles.base.presentation import Presentation
from ...profiles.base.progress import asked_for, stages
from ...profiles.base.tool import notes_once
from ...profiles.records.profile import DataId, Profile
from ...profiles.runtime.providers import MAX_COPIED_BYTES
from ...profiles.samples.objects import DataLike, DataSource
from ...profiles.samples.values import Samples
from ..evaluation.evaluate import Evaluation
from ..evaluation.evaluate import evaluate as evaluate_files
from ..evaluation.gates import check_truth
from ..evaluation.metrics.score import reads_truth
from ..evaluation.options import Judge
from ..model.external_data import float_weight_bytes
from ..model.files import ModelLike
from ..noise.output_limits import NoiseLimits, judging_limits, meanings_in_plan
from ..noise.output_profile import profile_of_outputs
from ..plan.plan import QuantPlan
from ..planning.plan_model import open_plan
from ..prepare.prepare import ModelFile, opened
from ..search.verdict import Composition, HeldOut, Verdict, composition_of, verdict_of
from ..targets.config import QuantConfig
from ..targets.machine import processor
from .held_out import held_out_part, with_profiled_part
from .keywords import with_keywords
from .made_from import MadeFrom, made_from
from .results import QuantizedLike, quantized_file
from .sources import labels_file, samples_of, with_metric_of_labels


@dataclass(frozen=True, repr=False)
class EvaluateResult(Evaluation):
    """The result of `evaluate`: both models compared, and the verdict on the quantized one.

    Attributes:
        verdict: good, fair or poor, by the same rules as in `quantize` with samples.
        plan, profile: files with the kinds and limits of the outputs; "" for none.
    """

    verdict: Verdict = field(kw_only=True)
    plan: str = field(default="", kw_only=True)
    profile: str = field(default="", kw_only=True)

    def headline(self) -> str:
        """Return both models, and the verdict."""
        return f"{self.quantized_model} against {self.float_model}: {self.verdict.sentence}"

    @property
    def has_floats_speed(self) -> bool:
        """Whether the quantized model is known to compute in float."""
        return self.verdict.has_floats_speed

    def presentation(self) -> Presentation:
        """Return the verdict, and the figures of the comparison."""
        shown, verdict = super().presentation(), self.verdict
        told = {finding.code for finding in self.findings}
        on_samples = verdict.held_out.findings if verdict.grade != "none" else ()
        more = [finding for finding in (*on_samples, *verdict.against) if finding.code not in told]
        advice = verdict.score_to_try
        tries = (("try", f"{advice}: a score may decide"),) if advice else ()
        facts = (("verdict", verdict.sentence), *tries, *shown.facts)
        untold = (one for one in (*self.findings, *more) if one.text not in verdict.sentence)
        return replace(shown, facts=facts, findings=gravest_first(untold))


@checks_arguments
def evaluate(
    model: ModelLike, quantized: QuantizedLike, data: DataSource, judge: Judge | None = None, **keywords: Any
) -> EvaluateResult:
    """Compare a quantized model with the float one on samples: a verdict, SQNR, accuracy, size and latency.

    Outputs are judged by the plan and the profile of the quantized model: those of a result, or the files
    beside the model. Without them, as for a model of another tool, the outputs of the float model are
    profiled on all samples.

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
        ModelError, DataError: an unusable model or samples.
        ConfigError: a keyword is unknown, a gate needs a figure that is not measured, or there is no such
            metric, runtime or provider.
    """
    judge = with_keywords("evaluate", judge or Judge(), keywords)
    samples = samples_of(data, judge.transform, judge.preprocess, judge.labels)
    with notes_once(), opened(model) as path, quantized_file(quantized) as other:
        return judged(path, other, samples, judge, made_from(quantized, other, path))


def judged(
    model: ModelFile,
    quantized: ModelFile,
    samples: DataLike,
    judge: Judge,
    found: MadeFrom,
    *,
    seen: bool = False,
) -> EvaluateResult:
    """Return the comparison of both models, with the verdict; errors are those of `evaluate`."""
    evaluation = compare(model, quantized, samples, judge, found)
    profiled = "" if found.profile is None else found.profile.data.digest
    evaluation = with_profiled_part(evaluation, lambda data: data.digest == profiled)
    plan, profile = (str(file or "") for file in (found.plan_file, found.profile_file))
    verdict = _verdict(evaluation, model, found, seen=seen)
    return EvaluateResult(**vars(evaluation), verdict=verdict, plan=plan, profile=profile)


def compare(
    model: ModelFile, quantized: ModelFile, samples: DataLike, judge: Judge, found: MadeFrom
) -> Evaluation:
    """Return the comparison of both models, without a verdict; errors are those of `evaluate`."""
    judge = with_metric_of_labels(judge)
    if judge.held_out:
        samples, judge = held_out_part(samples, model.model, judge.limit), replace(judge, limit=None)
    with labels_file(judge.labels, classes=not reads_truth(judge.metric)) as truth:
        evaluation = evaluate_files(
            model,
            quantized,
            samples,
            labels=truth,
            gate=judge.gate,
            measuring=judge,
            limits=partial(limits_of, model, found.plan, found.profile),
            progress=stages(asked_for(judge.progress))("evaluating"),
        )
        if truth is not None:
            named = judge.labels if isinstance(judge.labels, str | os.PathLike) else "labels"
            check_truth(str(named), evaluation.score, evaluation.findings)
    return evaluation


def limits_of(
    model: ModelFile, plan: QuantPlan | None, profile: Profile | None, samples: Samples
) -> NoiseLimits:
    """Return the limits of the outputs' noise by plan and profile, or else by a profile of all samples."""
    try:
        prepared = model.prepared
    except ModelError:  # it is quantized itself, which the evaluation tells
        prepared = model.normalised
    if profile is None:
        is_large = float_weight_bytes(model.path, MAX_COPIED_BYTES) > MAX_COPIED_BYTES
        profile = Profile(prepared.identity, DataId(), {})
        if not is_large:
            profile = profile_of_outputs(prepared.model, prepared.graph, prepared.identity, samples)
        profile = replace(profile, outputs={} if plan is None else meanings_in_plan(plan.findings))
    return judging_limits(prepared.graph, profile, QuantConfig() if plan is None else plan.config)


def _verdict(evaluation: Evaluation, model: ModelFile, found: MadeFrom, *, seen: bool) -> Verdict:
    """Return the verdict on an evaluation whose outputs were judged."""
    plan = found.plan
    quantized = 0 if any(one.code is Code.NOTHING_QUANTIZED for one in evaluation.findings) else 1
    composition = Composition(None, quantized)
    if plan is not None:
        make = partial(open_plan, model.prepared, plan)
        planned, _ = improved("plan beside the model", make, None, PlanError, ModelError)
        if planned is not None:
            composition = composition_of(plan, planned.graph, found.profile)
    counts = evaluation.samples, evaluation.rows, evaluation.samples
    held_out = HeldOut(*counts, seen=seen, source="", are_held_out=False)
    time = None if plan is None else plan.origin.time
    return verdict_of(
        evaluation,
        composition,
        held_out,
        predicted=None if time is None else time.speedup,
        printed=time.speedup if time is not None and processor().has_kernels_of(time.table) else None,
    )
