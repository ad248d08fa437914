"""`report`, and the reports of the results of other commands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...profiles.base.errors import ConfigError, QprofError
from ...profiles.base.tool import Progress
from ...profiles.samples.objects import DataLike
from ..api.drift import DriftReport, diff
from ..api.quantization import QuantizeResult
from ..evaluation.evaluate import Evaluation, evaluate
from ..evaluation.layers import compare_layers
from ..evaluation.options import EvaluationOptions, Gate
from ..exchange.profiles import read_profile
from ..model.files import load_model
from ..plan.plan import QuantPlan
from ..plan.provenance import plan_digest, profile_digest, read_provenance
from ..plan.store import PlanLike, load_plan
from ..prepare.prepare import ProfileLike, open_prepared, profile_name
from ..search.tune import TuneResult
from ..targets.target import Recipe
from .assemble import Names, Results, make_report
from .content import Report
from .estimates import analyse, recipe_of

MOST_FILES = 30
"""YAML files beside a quantized model that are looked at for its plan and its profile."""


@dataclass(frozen=True)
class Measured:
    """What a report measures, besides what it estimates.

    Attributes:
        quantized: the quantized model; None measures nothing.
        data: samples for it.
        labels: truth of the samples, as for `evaluate`; None for none.
        gate: limits that the quantized model must keep.
        measuring: how both models are compared.
        progress: called while samples run.
    """

    quantized: str | Path | None = None
    data: DataLike | None = None
    labels: str | Path | None = None
    gate: Gate = field(default_factory=Gate)
    measuring: EvaluationOptions = field(default_factory=EvaluationOptions)
    progress: Progress | None = None


NOTHING = Measured()
"""Only estimates."""


def report(
    model: str | Path,
    plan: PlanLike,
    profile: ProfileLike,
    *,
    measured: Measured = NOTHING,
    history: Iterable[ProfileLike] = (),
    recipe: Recipe | None = None,
) -> Report:
    """Return a report of a quantized model: what is estimated of its plan, and what is measured.

    Args:
        model: the float model.
        plan: its plan.
        profile: the profile that the plan was made from.
        measured: what is run besides: without a quantized model and samples, nothing.
        history: profiles of newer data, the oldest first: how they drift from `profile`.
        recipe: target and settings of the plan where the target is no packaged one.

    Raises:
        ConfigError: samples without a quantized model, or the other way round.
        ModelError, ProfileError, PlanError, DataError: a file cannot be read, or belongs to another model.
    """
    if (measured.quantized is None) != (measured.data is None):
        given = "quantized model" if measured.data is None else "samples"
        raise ConfigError(f"report: {given} alone cannot be measured; give both --quantized and --data")
    if measured.quantized is None and measured.gate.has_limit:
        raise ConfigError("report: a gate needs something measured; give --quantized and --data")
    analysis = analyse(model, plan, profile, recipe)
    evaluation = layers = None
    if measured.quantized is not None and measured.data is not None:
        how, files = measured.measuring, (model, measured.quantized, measured.data)
        evaluation = evaluate(
            *files, labels=measured.labels, gate=measured.gate, measuring=how, progress=measured.progress
        )
        layers = compare_layers(*files, plan=plan, measuring=replace(how, metric=None))
    settings = recipe_of(analysis.plan, recipe)
    nights = tuple(diff(profile, new, recipe=settings, model_path=model) for new in history)
    names = Names(
        str(model), profile_name(profile), "" if measured.quantized is None else str(measured.quantized)
    )
    return make_report(analysis, Results(evaluation, layers, drift=nights), names)


def quantization_report(
    result: QuantizeResult,
    model: str | Path,
    profile: ProfileLike | None,
    recipe: Recipe | None = None,
    *,
    given: tuple[str, ...] = (),
) -> Report:
    """Return the report of a quantization; without a profile one of sizes and reasons alone.

    Args:
        result: what was done.
        model: the float model.
        profile: None for the one that was kept beside the quantized model, if one was.
        recipe: target and settings, if they were given.
        given: words of the command line; commands to try repeat those that had the model judged.
    """
    judged = result.judged
    if profile is None and judged is not None and judged.profile:
        profile = judged.profile
    name = "" if profile is None else profile_name(profile)
    names = Names(str(model), name, str(result.model_path or ""), () if judged is None else given)
    analysis = None if profile is None else analyse(model, result.plan, profile, recipe)
    evaluation = None if judged is None else judged.evaluation
    return make_report(analysis, Results(evaluation, quantization=result), names)


def evaluation_report(
    evaluation: Evaluation, model: str | Path, quantized: str | Path
) -> tuple[Report, tuple[str, ...]]:
    """Return the report of an evaluation, and remarks about the files that were found for it.

    Plan and profile are looked for among the YAML files beside the quantized model, by the digests that it
    holds; without them the report has no estimates.
    """
    plan, profile, remarks = files_of(Path(quantized), model)
    analysis = None if plan is None or profile is None else analyse(model, plan, profile)
    names = Names(str(model), "" if profile is None else str(profile), str(quantized))
    return make_report(analysis, Results(evaluation=evaluation), names), remarks


def tuning_report(
    result: TuneResult,
    model: str | Path,
    profile: ProfileLike,
    plan: QuantPlan | None = None,
    recipe: Recipe | None = None,
) -> Report:
    """Return the report of a tuning, with the estimates of the chosen plan where it is given."""
    analysis = None if plan is None else analyse(model, plan, profile, recipe)
    return make_report(analysis, Results(tuning=result), Names(str(model), profile_name(profile)))


def drift_report(result: DriftReport) -> Report:
    """Return the report of a comparison of two profiles."""
    return make_report(None, Results(drift=(result,)), Names())


def files_of(quantized: Path, model: str | Path) -> tuple[Path | None, Path | None, tuple[str, ...]]:
    """Return the plan and the profile of a quantized model from the YAML files beside it, and remarks."""
    provenance = read_provenance(load_model(quantized))
    if provenance is None:
        return (
            None,
            None,
            ("the quantized model does not say what it was made from: no estimates in the report",),
        )
    prepared = open_prepared(model)
    plan = profile = None
    for path in sorted(quantized.parent.glob("*.y*ml"))[:MOST_FILES]:
        kind = _first_words(path)
        try:
            if plan is None and "qprof-plan" in kind and plan_digest(load_plan(path)) == provenance.plan:
                plan = path
            elif profile is None and "qprof-profile" in kind:
                found = read_profile(path, prepared.model, prepared.identity)
                profile = path if profile_digest(found) == provenance.profile else None
        except QprofError:  # of another model
            continue
    remarks = [
        f"report: {what} {path}, by its digest"
        for what, path in (("plan", plan), ("profile", profile))
        if path
    ]
    lacking = [what for what, path in (("plan", plan), ("profile", profile)) if path is None]
    if lacking:
        remarks.append(
            f"report: no {' and no '.join(lacking)} of {quantized.name} lies beside it, so the report has no "
            "estimates; qprof report takes them wherever they are"
        )
    return plan, profile, tuple(remarks)


def _first_words(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(400).decode("utf-8", "replace")
