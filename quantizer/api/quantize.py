"""`quantize`: makes a quantized model from a float model and its profile, a plan, or samples.

This module sorts the arguments. `from_profile` has the steps from a profile or a plan to a model,
`from_samples` adds the steps with samples, which judge the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.errors import ConfigError
from ...profiles.base.output_files import temporary_folder
from ...profiles.base.progress import asked_for, stages
from ...profiles.base.tool import notes_once
from ...profiles.runtime.external_weights import load_weights
from ...profiles.samples.objects import DataSource
from ..model.files import ModelLike
from ..model.folders import PLAN, qprof_folder, quantized_name
from ..model.output_paths import FilesRead, check_outputs
from ..plan.store import PlanLike
from ..prepare.prepare import ProfileLike, opened
from .from_profile import write_quantized
from .keywords import SETTINGS, ConfigLike, PathLike, given_fields, recipe_of, split_settings, with_keywords
from .options import OF_JUDGING, QuantizeOptions
from .results import QuantizeResult
from .sources import are_samples, samples_of


@checks_arguments
def quantize(
    model: ModelLike,
    profile: ProfileLike | DataSource | None = None,
    output: PathLike | None = None,
    *,
    config: ConfigLike | None = None,
    plan: PlanLike | None = None,
    data: DataSource | None = None,
    options: QuantizeOptions | None = None,
    **keywords: Any,
) -> QuantizeResult:
    """Quantize a float model with samples, with its profile, or with a plan.

    Args:
        model: path, `onnx.ModelProto` or `onnx_ir.Model`; an object is only read.
        profile: path or object; not needed with samples or a plan, or if no activation is calibrated. Samples
            are also accepted here: an object, a folder, a function or a URL. A file is a profile.
        output: file for the quantized model; None to write no file.
        config: a word of the command line, such as "weight-only-4"; a `QuantConfig`; or the YAML file of
            settings or of a target.
        plan: path or object: apply this instead of making one; it holds its own settings.
        data: samples, as in `profile`. They are profiled, some are held out, and the result is judged on
            these; with a profile, which decides the ranges, it is judged on all of them.
            `rounding="gptq"` reads those that are not held out.
        options: samples and settings that judge the model, and the actions that follow.
        keywords: fields of `QuantConfig`, such as `target="onnxruntime-arm"`, `calibrator="mse"`,
            `keep_float=["Gemm_9"]`; and those of `QuantizeOptions`, such as `labels`, `gate`, `limit`.

    Returns:
        The result: `model` (an `onnx_ir.Model`), `plan`, `kinds`, `findings`; `save(path)` writes the model;
        and `verdict`, if it was judged.

    Raises:
        ModelError, ProfileError, PlanError, DataError: an unusable input.
        ConfigError: a keyword or its value is not allowed.
    """
    if are_samples(profile):
        if data is not None:
            raise ConfigError("data: samples were given twice; leave out those in the place of the profile")
        data, profile = cast("DataSource", profile), None
    settings, others = split_settings(keywords)
    how = with_keywords("quantize", options or QuantizeOptions(), others, besides=SETTINGS)
    asked = others.keys() | given_fields(how)
    how = replace(how, stage=how.stage or stages(asked_for(how.progress)))
    reading = how.transform, how.preprocess, how.labels
    samples = None if data is None else samples_of(data, *reading, how.holdout_data)
    if (samples is None or plan is not None) and (unused := OF_JUDGING & asked):
        raise ConfigError(
            f"{min(unused)}: is for data, on which the result is judged; give samples and no plan, or leave "
            "it out and call evaluate"
        )
    timed = None if how.speed is None else how.speed.data
    profile = cast("ProfileLike | None", profile)
    sources = profile, plan, settings.get("target")
    read = FilesRead((model,), sources, (samples, timed))
    recipe = recipe_of(config, settings)
    if plan is not None and (recipe is not None or how.speed is not None or data is not None):
        raise ConfigError("--plan: has its own settings and takes no --data; leave out one or the other")
    if output is not None and plan is None and how.save_plan is None:
        how = replace(how, save_plan=qprof_folder(output) / PLAN)
    check_outputs([output, how.save_plan], read, model=output)
    with notes_once(), opened(model) as path, _output_file(output, path.name) as written:
        if samples is not None:
            from .from_samples import quantize_from_samples  # with what profiles and judges

            result = quantize_from_samples(path, samples, written, recipe, how, profile=profile)
        else:
            result = write_quantized(
                path,
                profile,
                written,
                save_plan=how.save_plan,
                recipe=recipe,
                plan=plan,
                speed=how.speed,
                check=None if how.speed is None else how.speed.data,
                check_outputs=how.check_outputs == "auto",
            )
        if not isinstance(model, str | os.PathLike):
            load_weights(result.model)  # its files are temporary
    if output is None:
        judged = None if result.judged is None else replace(result.judged, profile="")
        result = replace(result, model_path=None, judged=judged)
    return replace(result, read=read)


@contextmanager
def _output_file(output: str | os.PathLike[str] | None, model_name: str) -> Iterator[Path]:
    if output is not None:
        yield Path(output)
        return
    with temporary_folder() as folder:
        yield folder / quantized_name(model_name)
