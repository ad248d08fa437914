"""`quantize`: from a float model, with its profile, a plan, or samples alone, to a quantized model.

Here what was given is sorted; `from_profile` has the steps where there is a profile or a plan, `from_samples`
those where there are samples alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from ...profiles.base.errors import ConfigError
from ...profiles.base.improvement import left_out_steps
from ...profiles.base.tool import notes_once
from ...profiles.records.profile import Profile
from ...profiles.samples.objects import DataSource
from ..evaluation.options import QUICK
from ..model.files import ModelLike, model_file, temporary_folder
from ..model.output_paths import FilesRead, check_outputs
from ..plan.store import PlanLike
from ..prepare.prepare import ProfileLike
from .from_profile import write_quantized
from .from_samples import quantize_from_samples
from .keywords import QuantizeKeywords, TargetLike, sorted_keywords
from .options import OF_JUDGING, QuantizeOptions
from .results import QuantizeResult, quantized_name
from .sources import in_memory, samples_of


def quantize(
    model: ModelLike,
    profile: ProfileLike | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    target: TargetLike | None = None,
    plan: PlanLike | None = None,
    data: DataSource | None = None,
    **options: Unpack[QuantizeKeywords],
) -> QuantizeResult:
    """Quantize a float model with its profile, with a plan, or with samples alone.

    Args:
        model: path, `onnx.ModelProto` or `onnx_ir.Model`; an object is only read.
        profile: path or object; not needed with a plan, nor in mode "dynamic" or "weight-only".
        output: where to write the quantized model; None for nowhere.
        target: the runtime that the model is for (`target_names`), a configuration file, or a `Recipe`.
        plan: path or object: apply this instead of making one; it holds its own settings.
        data: samples, as in `profile`. Without a profile and a plan they are profiled, some are held out, and
            the result is judged on these; with one they are for `rounding="gptq"` or `"gptaq"`.
        options: fields of `QuantConfig`, such as `calibrator="mse"`, `schema="symmetric"`,
            `keep_float=["Gemm_9"]`; and those of `QuantizeOptions`, such as `labels`, `gate`, `limit`.

    Returns:
        The result: `model` (an `onnx_ir.Model`), `plan`, `summary`, `notes`; `save(path)` writes the model;
        and `verdict`, where it was judged.

    Raises:
        ModelError, ProfileError, PlanError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword or its value is not allowed.
    """
    if profile is not None and not isinstance(profile, str | os.PathLike | Profile):
        raise ConfigError(
            f"profile: is a {type(profile).__name__}; give a profile, or its path; samples go to data="
        )
    given = sorted_keywords("quantize", options, QuantizeKeywords)
    recipe = given.recipe(target)
    if plan is not None and recipe is not None:
        raise ConfigError("plan: holds its own settings; give no others, and no target")
    latency = {} if "latency" not in given.others else {"latency": QUICK if given.others["latency"] else None}
    how = QuantizeOptions(**{**given.others, **latency})
    samples = None if data is None else samples_of(data, how.transform, how.preprocess)
    alone = samples is not None and profile is None and plan is None
    if not alone and (unused := OF_JUDGING & given.others.keys()):
        raise ConfigError(
            f"{min(unused)}: is for data without a profile, where the result is judged; leave it out, or "
            "call evaluate"
        )
    timed = None if how.speed is None else how.speed.data
    read = FilesRead((model,), (profile, plan, target), (samples, timed))
    check_outputs([output, how.save_plan, how.checkpoint], read)
    with (
        notes_once(),
        left_out_steps() as left_out,
        model_file(model) as path,
        _output_file(output, path) as written,
    ):
        if alone and samples is not None:
            result = quantize_from_samples(path, samples, written, recipe, how)
        else:
            result = write_quantized(
                path,
                profile,
                written,
                save_plan=how.save_plan,
                recipe=recipe,
                plan=plan,
                accept_retrained=how.accept_retrained,
                speed=how.speed,
                data=samples,
                limit=how.limit,
                check=None if how.check_outputs == "off" else samples if timed is None else timed,
                checkpoint=how.checkpoint,
                progress=how.progress,
            )
        if not isinstance(model, str | os.PathLike):
            in_memory(result.model)
    if output is None:
        judged = None if result.judged is None else replace(result.judged, profile="")
        result = replace(result, model_path=None, judged=judged)
    return replace(result, read=read, notes=tuple(dict.fromkeys([*result.notes, *left_out])))


@contextmanager
def _output_file(output: str | os.PathLike[str] | None, model: Path) -> Iterator[Path]:
    if output is not None:
        yield Path(output)
        return
    with temporary_folder() as folder:
        yield folder / quantized_name(model.name)
