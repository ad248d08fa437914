"""`sensitivity`: the quantized nodes, ranked by the noise that each adds at the outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...profiles.base.errors import PlanError
from ...profiles.runtime.providers import check_provider
from ...profiles.samples.objects import DataSource
from ..model.files import ModelLike, temporary_folder
from ..model.folders import quantized_name
from ..plan.store import PlanLike, plan_name, read_plan
from ..planning.plan_model import check_without_samples, open_plan
from ..prepare.prepare import ProfileLike, opened
from ..search.sensitivity import DEFAULT_SAMPLES, Sensitivities, sensitivity_of
from ..targets.loading import load_recipe
from .from_profile import write_quantized
from .keywords import SETTINGS, ConfigLike, recipe_of, split_settings, with_keywords
from .options import Judge
from .sources import samples_of

OF_RANKING = frozenset({"limit", "provider", "transform", "preprocess"})
"""Fields of `Judge` that say on which samples nodes are ranked, and by what they are run."""


def sensitivity(
    model: ModelLike,
    profile: ProfileLike | None,
    data: DataSource,
    *,
    plan: PlanLike | None = None,
    config: ConfigLike | None = None,
    judge: Judge | None = None,
    **keywords: Any,
) -> Sensitivities:
    """Measure the noise that each quantized node adds at the outputs, and rank the nodes.

    With a profile the plan is the very one that `quantize` writes, run on the profile's check samples.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        profile: path or object; not needed with a plan.
        data: samples, as in `profile`; by default 8, drawn from all of them, which are held in memory.
        plan: path or object: the plan to measure instead of the one that the settings give.
        config: as in `quantize`.
        judge: how samples are read and the model is run; labels, metric and limits are for `evaluate`.
        keywords: settings as in `quantize`, and of `Judge` `limit`, `provider`, `transform`, `preprocess`.

    Raises:
        ModelError, ProfileError, PlanError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword or its value is not allowed.
    """
    settings, others = split_settings(keywords)
    judge = judge or Judge(limit=DEFAULT_SAMPLES)
    judge = with_keywords("sensitivity", judge, others, only=OF_RANKING, besides=SETTINGS)
    provider = check_provider(judge.provider)
    with opened(model) as file:
        source = samples_of(data, judge.transform, judge.preprocess)
        recipe = recipe_of(config, settings)
        if plan is not None:
            planned = open_plan(file.prepared, read_plan(plan), plan_name(plan))
        elif profile is not None:
            recipe = recipe or load_recipe()
            check_without_samples(recipe.config)
            with temporary_folder() as folder:  # the very plan that quantize writes, run on check samples
                written = write_quantized(file, profile, folder / quantized_name(file.name), recipe=recipe)
            planned = replace(written.planned, facts=written.facts)
        else:
            raise PlanError(f"{file}: a profile or a plan is needed; make a profile with qprof dump-profile")
        return sensitivity_of(file, planned, source, limit=judge.limit or DEFAULT_SAMPLES, provider=provider)
