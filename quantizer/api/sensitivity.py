"""`sensitivity`: the quantized nodes, ranked by the noise that each adds at the outputs."""

from __future__ import annotations

from typing import Unpack

from ...profiles.base.errors import PlanError
from ...profiles.base.progress import asked_for, stages
from ...profiles.runtime.states import model_samples
from ...profiles.samples.objects import DataSource
from ..model.files import ModelLike, temporary_folder
from ..model.folders import quantized_name
from ..plan.store import PlanLike, plan_name, read_plan
from ..planning.plan_model import check_without_samples, open_plan
from ..prepare.prepare import ProfileLike, opened
from ..search.sensitivity import DEFAULT_SAMPLES, Sensitivities, sensitivity_of
from ..targets.loading import load_recipe
from .from_profile import write_quantized
from .keywords import SensitivityKeywords, TargetLike, checked_keywords, recipe_of, take_settings
from .sources import samples_of


def sensitivity(
    model: ModelLike,
    profile: ProfileLike | None,
    data: DataSource,
    *,
    plan: PlanLike | None = None,
    target: TargetLike | None = None,
    **options: Unpack[SensitivityKeywords],
) -> Sensitivities:
    """Measure how sensitive the outputs are to each quantized node, and rank the nodes, those of bodies too.

    With a profile the plan is the very one that `quantize` writes, run on the profile's check samples.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        profile: path or object; not needed with a plan.
        data: samples, as in `profile`; by default 8, drawn from all of them, which are held in memory.
        plan: path or object: the plan to measure instead of the one that the settings give.
        target: as in `quantize`.
        options: settings as in `quantize`, and `limit`, `threads`, `provider`, `class_axis`.

    Raises:
        ModelError, ProfileError, PlanError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword or its value is not allowed.
    """
    others = checked_keywords("sensitivity", options, SensitivityKeywords)
    settings = take_settings(others)
    with opened(model) as path:
        source = samples_of(data, others.get("transform"), others.get("preprocess"))
        recipe = recipe_of(target, settings)
        prepared = path.prepared
        if plan is not None:
            planned = open_plan(prepared, read_plan(plan), plan_name(plan))
        elif profile is not None:
            recipe = recipe or load_recipe()
            check_without_samples(recipe.config)
            with temporary_folder() as folder:  # the very plan that quantize writes, run on check samples
                written = folder / quantized_name(path.path.name)
                planned = write_quantized(path, profile, written, recipe=recipe).planned
        else:
            raise PlanError(f"{path}: a profile or a plan is needed; make a profile with qprof dump-profile")
        samples = model_samples(source, prepared.model, others.get("limit", DEFAULT_SAMPLES))
        return sensitivity_of(
            planned.model,
            planned.plan,
            list(samples),
            threads=others.get("threads", 0),
            class_axis=others.get("class_axis"),
            provider=others.get("provider", "cpu"),
            progress=stages(asked_for(others.get("progress")))("measuring"),
        )
