"""`sensitivity`: the quantized nodes, ranked by the noise that each adds at the outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import DataError, PlanError
from ....profiles.runtime.providers import check_provider
from ....profiles.samples.objects import DataLike, DataSource
from ...api.from_profile import check_samples_of
from ...api.keywords import with_keywords
from ...api.made_from import made_from
from ...api.options import Judge
from ...api.results import QuantizedLike, quantized_file
from ...api.sources import samples_of
from ...model.files import ModelLike
from ...noise.output_limits import noise_limits
from ...plan.documents import read_with_samples
from ...plan.store import PlanLike, plan_name, read_plan
from ...planning.plan_model import PlannedModel, open_plan
from ...prepare.prepare import ModelFile, ProfileLike, opened, profile_name
from ...search.closed_loop import CHECK_SAMPLES
from .node_noise import Sensitivities, sensitivity_of

OF_RANKING = frozenset({"limit", "provider", "transform", "preprocess"})
"""Fields of `Judge` that say on which samples nodes are ranked, and by what they are run."""


@checks_arguments
def sensitivity(
    model: ModelLike,
    profile: ProfileLike | None = None,
    data: DataSource | None = None,
    *,
    quantized: QuantizedLike | None = None,
    plan: PlanLike | None = None,
    judge: Judge | None = None,
    **keywords: Any,
) -> Sensitivities:
    """Measure the noise that each quantized node of a plan adds at the outputs, and rank the nodes.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        profile: path or object; its noise limits decide where outputs hold.
        data: samples, as in `profile`; by default 8, or 256 steps of sequences, drawn from all of them, which
            are held in memory. None for the check samples of the profile.
        quantized: path, model, or the result of `quantize`: its plan and profile, which the result
            holds or which lie beside it, are taken where none are given.
        plan: path or object: the plan to measure.
        judge: how samples are read and the model is run; labels, metric and limits are for `evaluate`.
        keywords: of `Judge` `limit`, `provider`, `transform`, `preprocess`.

    Raises:
        ModelError, ProfileError, PlanError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword or its value is not allowed.
    """
    judge = with_keywords("sensitivity", judge or Judge(), keywords, only=OF_RANKING)
    provider = check_provider(judge.provider)
    with opened(model) as file:
        source = None if data is None else samples_of(data, judge.transform, judge.preprocess)
        if quantized is not None:
            plan, profile = _made_from(file, quantized, plan, profile)
        if plan is None:
            raise PlanError(
                f"{file}: a plan is needed; give the quantized model, or its plan ('qprof quantize')"
            )
        planned = open_plan(file.prepared, read_plan(plan), plan_name(plan))
        limits = None
        if profile is not None:
            measured, _ = read_with_samples(profile, file.prepared.model, file.prepared.identity)
            limits = noise_limits(file.prepared.graph, measured, planned.plan.config)
        ranking = sensitivity_of(
            file,
            planned,
            _check_samples(file, planned, profile) if source is None else source,
            limits=limits,
            limit=judge.limit or (CHECK_SAMPLES if source is None else None),
            provider=provider,
        )
        name = "" if profile is None else profile_name(profile)
        return replace(ranking, plan=plan_name(plan), profile=name)


def _made_from(
    model: ModelFile, quantized: QuantizedLike, plan: PlanLike | None, profile: ProfileLike | None
) -> tuple[PlanLike, ProfileLike | None]:
    """Return the given plan and profile, or those of a quantized model; PlanError if there is no plan."""
    with quantized_file(quantized) as file:
        found = made_from(quantized, file, model)
        plan = plan or found.plan_file or found.plan
        if plan is None:
            raise PlanError(f"{file}: no plan that it was made from lies beside it; give --plan")
        return plan, profile or found.profile_file or found.profile


def _check_samples(file: ModelFile, planned: PlannedModel, profile: ProfileLike | None) -> DataLike:
    """Return the check samples of a profile; raises DataError if there are none."""
    missing = "samples are needed"
    if profile is not None:
        read, missing = read_with_samples(profile, file.prepared.model, file.prepared.identity)
        if not missing:
            samples, _, missing = check_samples_of(read, file.prepared, planned.plan.config)
            if samples is not None:
                return samples
    raise DataError(f"{file}: {missing}; give samples: --data")
