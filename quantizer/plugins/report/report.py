"""`report`: the report of a quantization or of a plan; and those of the results of other commands."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ConfigError, QprofError
from ....profiles.base.extras import OptionalModule
from ....profiles.base.findings import Code, Finding
from ....profiles.base.improvement import improved
from ....profiles.base.output_files import temporary_folder
from ....profiles.base.tool import notes_once
from ....profiles.runtime.providers import CPU, check_provider
from ....profiles.samples.objects import DataLike, DataSource
from ...api.evaluate import judged
from ...api.from_profile import check_samples_of
from ...api.held_out import held_out_part
from ...api.keywords import ConfigLike, given_fields, recipe_of, with_keywords
from ...api.made_from import MadeFrom, found_beside
from ...api.results import QuantizedLike, QuantizedResult, QuantizeResult, quantized_file
from ...api.sources import samples_of
from ...evaluation.evaluate import Evaluation
from ...evaluation.options import Judge
from ...lowering.lower import lower
from ...model.files import ModelLike
from ...model.folders import quantized_name
from ...model.saving import save_model
from ...plan.provenance import read_provenance
from ...plan.store import PlanLike, read_plan
from ...planning.plan_model import open_plan
from ...prepare.prepare import ModelFile, ProfileLike, file_of, opened
from ...search.attribution import attribute, samples_to_attribute_on
from ...search.closed_loop import CHECK_SAMPLES
from ...targets.target import Recipe
from .assemble import Results, make_report
from .content import Report
from .estimates import Analysis, analyse

LAYERS = OptionalModule("the comparison of layers", "quantizer.plugins.layers.layers")
"""Its result is `LayerReport` there; a report without it has no noise of tensors."""

OF_MEASURING = frozenset(field.name for field in fields(Judge)) - {"progress"}
"""Options of `report` that only apply to measurements."""


LAYER_SAMPLES, LAYER_STEPS = 32, 256
"""Samples, drawn from all, on which layers are compared, and steps of sequences: the ratio of two sums moves
by little with more, and summing all activations of a model takes most of the time."""


@checks_arguments
def report(
    model: ModelLike,
    quantized: QuantizedLike,
    data: DataSource | None = None,
    *,
    plan: PlanLike | None = None,
    profile: ProfileLike | None = None,
    config: ConfigLike | None = None,
    options: Judge | None = None,
    **keywords: Any,
) -> Report:
    """Return the report of a quantized model: noise, tensors, graph and prices.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        quantized: the same, or the result of `quantize` or `tune`.
        data: samples, as in `profile`; without any, a report has the contents of the result, with the
            fixes that `quantize` tried, and estimates.
        plan: path or object; None for that of the result, or the one in the folder of the model.
        profile: path or object, which the plan was made from; None for the one in the folder of the model.
        config: configuration of the plan, if its target is not a packaged one.
        options: how both models are compared.
        keywords: fields of `Judge`, such as `labels`, `gate`; and `target`.

    Returns:
        The report; `save(path)` writes it: a folder with report.html, report.md, junit.xml and report.json,
        or one page if the name ends in .html.

    Raises:
        ModelError, ProfileError, PlanError, DataError: an unusable input.
        ConfigError: a keyword is not known, or something is missing.
    """
    target = {name: keywords.pop(name) for name in ("target",) if name in keywords}
    how = with_keywords("report", options or Judge(), keywords, besides=("target",))
    recipe = recipe_of(config, target)
    if data is None and how.gate.has_limit:
        raise ConfigError("report: a gate needs something measured; give --data")
    if data is None and (unread := sorted((given_fields(how) & OF_MEASURING) - {"gate"})):
        raise ConfigError(f"report: {unread[0]} is for measurements; give --data, or leave it out")
    with notes_once(), opened(model) as path:
        if data is None and plan is None and isinstance(quantized, QuantizeResult):
            return quantization_report(quantized, path, profile, recipe)
        if isinstance(quantized, QuantizedResult):
            profile = quantized.profile if profile is None else profile
            plan = quantized.plan if plan is None else plan
        with quantized_file(quantized) as file:
            return _file_report(path, file, data, plan, profile, recipe=recipe, how=how)


def _file_report(
    path: ModelFile,
    file: ModelFile,
    data: DataSource | None,
    plan: PlanLike | None,
    profile: ProfileLike | None,
    *,
    recipe: Recipe | None,
    how: Judge,
) -> Report:
    """Return the report of the file of a quantized model, measured if there are samples."""
    lacking: tuple[Finding, ...] = ()
    if wanted := [what for what, one in (("plan", plan), ("profile", profile)) if one is None]:
        own_plan, own_profile, lacking = _files_beside(file, path, wanted)
        plan = own_plan if plan is None else plan
        profile = own_profile if profile is None else profile
    analysis = None if plan is None or profile is None else analyse(path, plan, profile, recipe)
    if analysis is None and data is None:
        missing = [what for what, one in (("plan", plan), ("profile", profile)) if one is None]
        raise ConfigError(
            f"{file}: no {' and no '.join(missing)} of it was found; give "
            f"{' and '.join(f'--{what}' for what in missing)}, or --data"
        )
    evaluation = layers = None
    samples: DataLike | None = None
    if data is not None:
        samples = samples_of(data, how.transform, how.preprocess, how.labels)
        if how.held_out:
            samples, how = held_out_part(samples, path.model, how.limit), replace(how, limit=None)
        measured = None if analysis is None else analysis.measured
        made_from = MadeFrom(None if plan is None else read_plan(plan), measured)
        evaluation = judged(path, file, samples, replace(how, held_out=False), made_from)
        layers = _layers(path, file, samples, plan, _few(how, evaluation))
    results = Results(evaluation, layers=layers, size=(path.bytes, file.bytes), left_out=lacking)
    if analysis is not None:
        if evaluation is None:
            results = _with_kept_samples(analysis, results)
        results = _attributed(analysis, results, samples, check_provider(how.provider))
    return make_report(analysis, results, _title(path, file))


def _kept_samples(analysis: Analysis) -> DataLike | None:
    """Return the samples that the profile keeps, as the plan's model takes them; None for none."""
    if not analysis.measured.held_samples:
        return None
    samples, _, _ = check_samples_of(analysis.measured, analysis.prepared, analysis.plan.config)
    return samples


def _with_kept_samples(analysis: Analysis, results: Results) -> Results:
    """Return results with an evaluation on the samples in the profile, if there are some and it runs here."""

    def seen() -> Results:
        samples, plan = _kept_samples(analysis), analysis.plan
        if samples is None:
            return results
        with temporary_folder() as folder:
            path = folder / quantized_name(analysis.model_file.name)
            save_model(lower(open_plan(analysis.prepared, plan).model, plan).model, path)
            files, judge = (analysis.model_file, ModelFile(path)), Judge(latency=None, progress=False)
            found = judged(*files, samples, judge, MadeFrom(plan, analysis.measured), seen=True)
            layers = _layers(*files, samples, plan, _few(judge, found))
        names = {one.sample: one.sample.replace("data", "kept sample ", 1) for one in found.worst_samples}
        found = replace(
            found,
            worst_samples=tuple(replace(one, sample=names[one.sample]) for one in found.worst_samples),
            excerpts=tuple(replace(one, sample=names.get(one.sample, one.sample)) for one in found.excerpts),
        )
        return replace(results, seen=found, layers=layers)

    try:
        made, left_out = improved("report: kept samples", seen, results)
    except QprofError:  # what it is lowered to is not run here
        return results
    return replace(made, left_out=(*made.left_out, *left_out))


def _layers(
    model: ModelFile, quantized: ModelFile, samples: DataLike, plan: PlanLike | None, how: Judge
) -> Any | None:
    """Return the comparison of the layers on samples; None if its plug-in is not installed."""
    if not LAYERS.is_installed:
        return None
    return LAYERS.load().layers_of(model, quantized, samples, plan=plan, measuring=how)


def _few(how: Judge, evaluation: Evaluation) -> Judge:
    """Return how layers are compared: on some of the samples."""
    most = LAYER_STEPS if evaluation.states else LAYER_SAMPLES
    return replace(how, metric=None, limit=min(most, how.limit or most))


def _attributed(
    analysis: Analysis,
    results: Results,
    data: DataLike | None = None,
    provider: str = CPU,
    *,
    only_poor: bool = False,
) -> Results:
    """Return results with the noise of the plan's nodes, if samples are at hand and the plan runs here."""

    def attributed() -> Results | None:
        samples = _kept_samples(analysis) if data is None else data
        if samples is None:
            return None
        evaluation = results.evaluation or results.seen
        if only_poor and evaluation is not None and evaluation.decision.grade not in ("fair", "poor"):
            return None
        planned = open_plan(analysis.prepared, analysis.plan)
        limit = CHECK_SAMPLES if data is None else None
        run = samples_to_attribute_on(analysis.model_file.path, planned, samples, limit, provider=provider)
        found = attribute(planned, run, analysis.limits, provider=provider)
        return replace(results, attribution=found)

    try:
        made, left_out = improved("report: noise of the nodes", attributed, None)
    except QprofError:
        return results
    made = made or results
    return replace(made, left_out=(*made.left_out, *left_out))


def quantization_report(
    result: QuantizeResult,
    model: str | os.PathLike[str],
    profile: ProfileLike | None,
    recipe: Recipe | None = None,
) -> Report:
    """Return the report of a quantization; without a profile, one of sizes and reasons only."""
    judged, profile = result.judged, result.profile if profile is None else profile
    analysis = None if profile is None else analyse(model, result.plan, profile, recipe)
    evaluation = None if judged is None else judged.evaluation
    found = None if judged is None else judged.verdict.attribution
    results = Results(evaluation, attribution=found, quantization=result)
    if analysis is not None:
        results = _with_kept_samples(analysis, results) if evaluation is None else results
        results = _attributed(analysis, results, only_poor=True) if found is None else results
    return make_report(analysis, results, _title(model, result.model_path or ""))


def evaluation_report(
    evaluation: Evaluation, model: str | os.PathLike[str], quantized: str | os.PathLike[str]
) -> tuple[Report, tuple[Finding, ...]]:
    """Return the report of an evaluation, and findings on the files that it was made with."""
    model = file_of(model)
    plan, profile, findings = _files_beside(file_of(quantized), model)
    analysis = None if plan is None or profile is None else analyse(model, plan, profile)
    results = Results(evaluation)
    if analysis is not None:
        results = _attributed(analysis, results, only_poor=True)
    return make_report(analysis, results, _title(model, quantized)), findings


def drift_report(result: Any) -> Report:
    """Return the report of a comparison of two profiles."""
    return make_report(None, Results(drift=result), f"{result.new_profile} against {result.old_profile}")


def _title(*files: str | os.PathLike[str]) -> str:
    return " → ".join(filter(None, (Path(file).name for file in files)))


def _files_beside(
    quantized: ModelFile, model: ModelFile, wanted: Collection[str] = ("plan", "profile")
) -> tuple[Path | None, Path | None, tuple[Finding, ...]]:
    """Return the files of plan and profile of a quantized model, with findings on the wanted ones."""
    if read_provenance(quantized.model) is None:
        sentence = "the quantized model does not name its plan: the report has no estimates"
        return None, None, (Finding(Code.REPORT_WITHOUT_ESTIMATES, sentence, str(quantized)),)
    found, findings = found_beside(quantized, model), tuple[Finding, ...]()
    lacking = [what for what in wanted if getattr(found, what) is None]
    if lacking:
        sentence = f"the report has no estimates: no {' and no '.join(lacking)} of {quantized.name} was found"
        remedy = "qprof report takes them from anywhere: --plan, --profile"
        findings = (Finding(Code.REPORT_WITHOUT_ESTIMATES, sentence, str(quantized), remedy=remedy),)
    return found.plan_file, found.profile_file, findings
