"""`quantize`: from a float model, with its profile, a plan, or samples alone, to a quantized model.

Here what was given is sorted; `from_profile` has the steps from a profile or a plan to a model,
`from_samples` those around it where there are samples, on which the model is judged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, cast, overload

from ...profiles.base.errors import ConfigError
from ...profiles.base.progress import asked_for, stages
from ...profiles.base.tool import notes_once
from ...profiles.runtime.external_weights import load_weights
from ...profiles.samples.objects import DataLike, DataSource
from ..evaluation.options import QUICK
from ..model.files import ModelLike, temporary_folder
from ..model.folders import quantized_name
from ..model.output_paths import FilesRead, check_outputs
from ..plan.store import PlanLike
from ..prepare.prepare import ProfileLike, opened
from ..targets.target import Recipe
from .from_profile import write_quantized
from .from_samples import quantize_from_samples
from .keywords import PathLike, QuantizeKeywords, TargetLike, checked_keywords, recipe_of, take_settings
from .options import OF_JUDGING, Precision, QuantizeOptions, precision_named, settings_with
from .results import QuantizeResult
from .sources import are_samples, samples_of


@overload
def quantize(
    model: ModelLike,
    profile: ProfileLike | DataSource | None = None,
    output: PathLike | None = None,
    *,
    target: TargetLike | None = None,
    config: Precision | str | None = None,
    plan: PlanLike | None = None,
    data: DataSource | None = None,
    **options: Unpack[QuantizeKeywords],
) -> QuantizeResult: ...


@overload
def quantize(
    model: ModelLike,
    profile: ProfileLike | DataSource | None = None,
    output: PathLike | None = None,
    *,
    target: TargetLike | None = None,
    config: Mapping[str, Precision | str],
    plan: PlanLike | None = None,
    data: DataSource | None = None,
    **options: Unpack[QuantizeKeywords],
) -> dict[str, QuantizeResult]: ...


def quantize(
    model: ModelLike,
    profile: ProfileLike | DataSource | None = None,
    output: PathLike | None = None,
    *,
    target: TargetLike | None = None,
    config: Precision | str | Mapping[str, Precision | str] | None = None,
    plan: PlanLike | None = None,
    data: DataSource | None = None,
    **options: Unpack[QuantizeKeywords],
) -> QuantizeResult | dict[str, QuantizeResult]:
    """Quantize a float model with samples, with its profile, or with a plan.

    Args:
        model: path, `onnx.ModelProto` or `onnx_ir.Model`; an object is only read.
        profile: path or object; not needed with samples or a plan, nor where no activation is calibrated. In
            its place samples may stand: an object, a folder, a function, a URL; a file is a profile.
        output: where to write the quantized model; None for nowhere. With several configurations a folder.
        target: the runtime that the model is for (`target_names`), a configuration file, or a `Recipe`.
        config: `Int8()` (the default), `Int8Dynamic()`, `WeightOnly(bits=4)` or `Mixed(max_size="900MB")`, or
            a word of the command line, such as "weight-only-4". A mapping of names to them makes a model of
            each, from one profile.
        plan: path or object: apply this instead of making one; it holds its own settings.
        data: samples, as in `profile`. They are profiled, some are held out, and the result is judged on
            these; with a profile, which decides the ranges, it is judged on all of them. `rounding="gptq"` or
            `"gptaq"` reads those that are not held out.
        options: fields of `QuantConfig`, such as `calibrator="mse"`, `schema="symmetric"`,
            `keep_float=["Gemm_9"]`; and those of `QuantizeOptions`, such as `labels`, `gate`, `limit`.

    Returns:
        The result: `model` (an `onnx_ir.Model`), `plan`, `summary`, `findings`; `save(path)` writes the
        model; and `verdict`, where it was judged. For a mapping of configurations a result for each name.

    Raises:
        ModelError, ProfileError, PlanError, DataError: what is wrong, where, and what to do.
        ConfigError: a keyword or its value is not allowed.
    """
    if are_samples(profile):
        if data is not None:
            raise ConfigError("data: samples were given twice; leave out those in the place of the profile")
        data, profile = cast("DataSource", profile), None
    others = checked_keywords("quantize", options, QuantizeKeywords)
    settings = take_settings(others)
    if "latency" in others:
        others["latency"] = QUICK if others["latency"] else None
    how = QuantizeOptions(**others)
    how = replace(how, stage=how.stage or stages(asked_for(how.progress)))
    samples = None if data is None else samples_of(data, how.transform, how.preprocess)
    if (samples is None or plan is not None) and (unused := OF_JUDGING & others.keys()):
        raise ConfigError(
            f"{min(unused)}: is for data, on which the result is judged; give samples and no plan, or leave "
            "it out and call evaluate"
        )
    call = _Call(model, cast("ProfileLike | None", profile), plan, samples, how, target)
    if not isinstance(config, Mapping):
        return _quantize_as(call, _recipe(settings, target, config), output)
    for name, value in (("save_plan", how.save_plan), ("checkpoint", how.checkpoint), ("plan", plan)):
        if value is not None:
            raise ConfigError(f"{name}: is of one model; leave it out, or give one configuration")
    if wrong := next((name for name in config if not name or name != Path(name).name), None):
        raise ConfigError(f"config: '{wrong}' is no name of a file; give one without a folder")
    results = {}
    with nullcontext(output) if output is not None else temporary_folder() as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, one in config.items():
            file = Path(folder) / (name if name.endswith(".onnx") else f"{name}.onnx")
            written, kept = None if output is None else file, Path(folder) / "profile.yaml"
            results[name] = _quantize_as(call, _recipe(settings, target, one), written, kept)
    return results


@dataclass(frozen=True, eq=False)
class _Call:
    """What does not change from one configuration of a call to the next."""

    model: ModelLike
    profile: ProfileLike | None
    plan: PlanLike | None
    samples: DataLike | None
    how: QuantizeOptions
    target: TargetLike | None


def _recipe(
    settings: Mapping[str, Any], target: TargetLike | None, config: Precision | str | None
) -> Recipe | None:
    """Return settings and target of a call; None where none were given."""
    if config is None:
        return recipe_of(target, settings)
    if isinstance(config, str):
        config = precision_named(config, settings.get("fit_size"), "config")
    elif not isinstance(config, Precision):
        raise ConfigError(
            f"config: is a {type(config).__name__}; give Int8(), Int8Dynamic(), WeightOnly(bits=4) or "
            'Mixed(max_size="900MB")'
        )
    settings = settings_with(config, settings, type(config).__name__)
    own = settings.pop("target", None)
    if own is not None and target is not None:
        raise ConfigError(f"target: {own} stands in the configuration too; leave one out")
    return recipe_of(target if own is None else own, settings)


def _quantize_as(
    call: _Call, recipe: Recipe | None, output: PathLike | None, profile_file: Path | None = None
) -> QuantizeResult:
    """Quantize with one configuration; the profile of samples is kept in `profile_file`, or beside the
    output."""
    model, profile, plan, samples, how = call.model, call.profile, call.plan, call.samples, call.how
    if plan is not None and recipe is not None:
        raise ConfigError("plan: holds its own settings; give no others, and no target")
    timed = None if how.speed is None else how.speed.data
    read = FilesRead((model,), (profile, plan, call.target), (samples, timed))
    check_outputs([output, how.save_plan, how.checkpoint], read)
    with (
        notes_once(),
        opened(model) as path,
        _output_file(output, path.name) as written,
    ):
        if samples is not None and plan is None:
            result = quantize_from_samples(
                path, samples, written, recipe, how, profile=profile, profile_file=profile_file
            )
        else:
            result = write_quantized(
                path,
                profile,
                written,
                save_plan=how.save_plan,
                recipe=recipe,
                plan=plan,
                speed=how.speed,
                check=timed,
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
