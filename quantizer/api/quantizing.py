"""`profile`, `quantize` and what goes with them: `dump_profile`, `instrument`, `merge`, `join`, `split`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ...profiles.base.output_files import replacing_together
from ...profiles.base.tool import Progress, note, notes_once
from ...profiles.records.merge import merge_profiles
from ...profiles.records.profile import Profile
from ...profiles.records.store import save_profile
from ...profiles.runner.settings import RunSettings
from ...profiles.samples.objects import DataSource
from ..exchange import join as joining
from ..exchange import split as splitting
from ..exchange.join import Joined
from ..exchange.profiles import load_profile
from ..exchange.split import PartFile
from ..model.files import ModelLike, model_file, temporary_folder
from ..model.output_paths import FilesRead, check_outputs
from ..model.saving import save_model
from ..plan.store import PlanLike
from ..prepare.prepare import ProfileLike, profile_name
from ..search.float_fallback import SpeedDemand
from . import profiling, quantization
from .judged import JudgeOptions, check_unjudged, judged_quantize
from .quantization import QuantizeResult, SampleSteps
from .settings import RunOptions, Settings, TargetLike, chosen
from .sources import Transform, in_memory, quantized_name, samples_of

STEPS = ("limit", "progress", "checkpoint", "speed")
"""Keywords of `quantize` that are fields of `SampleSteps`."""


class QuantizeOptions(Settings, JudgeOptions, total=False):
    """Keywords of `quantize`: those of `Settings` and of `JudgeOptions`, and these.

    transform: makes a sample of an item of `data`; preprocess: as in `profile`; limit: number of samples to
    use; progress: called after each sample; checkpoint: a file that keeps the weights that are rounded with
    samples, so that the same call resumes after a kill; speed: measures the model against float, and keeps
    float what int8 slows down; accept_retrained: takes a profile of the same graph with other weights.
    """

    transform: Transform | None
    preprocess: str | os.PathLike[str] | None
    limit: int | None
    progress: Progress | None
    checkpoint: str | os.PathLike[str] | None
    speed: SpeedDemand | None
    accept_retrained: bool


def profile(
    model: ModelLike,
    data: DataSource,
    output: str | os.PathLike[str] | None = None,
    *,
    transform: Transform | None = None,
    preprocess: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **run: Unpack[RunOptions],
) -> Profile:
    """Run a float model on samples and record statistics of its activations.

    Args:
        model: path, `onnx.ModelProto` or `onnx_ir.Model`; an object is only read.
        data: samples: a folder of .npz, .npy or .pb files; "module:function"; or an iterable (a list, a
            generator, a data loader), or a function that returns one. Its items are dicts from input name to
            array; for a model with one input also arrays, or (x, y) pairs, of which x is taken. An array is
            whatever numpy can read: a numpy array, or anything with `__array__` or `__dlpack__`, such as a
            tensor of torch.
        output: where to write the profile; None for nowhere.
        transform: makes a sample of each item, as in `lambda batch: {"image": batch[0]}`.
        preprocess: how samples are made of the files of a folder: "imagenet", "clip", "yolo" or "raw" for
            pictures, or the file of a recipe (`qprof schema preprocess`) or a `preprocessor_config.json`.
        progress: called after each sample with how many are done and, where known, how many there are.
        run: fields of `RunSettings`, such as `threads=4`, `limit=100`, `memory_limit=2 << 30`.

    Returns:
        The profile: a mapping from tensor name to `TensorProfile`; its `notes` tell of NaN and Inf that were
        left out.

    Raises:
        ModelError: the model cannot be read or run. DataError: a sample does not fit; its number is named.
        ConfigError: a keyword or its value is not allowed.
    """
    settings = RunSettings(**chosen("profile", run, RunOptions).others)
    samples = samples_of(data, transform, preprocess)
    check_outputs([output, settings.checkpoint], FilesRead((model,), tuple(settings.custom_ops), (samples,)))
    with model_file(model) as path:
        return profiling.dump_profile(path, samples, _path(output), settings, progress=progress)


def dump_profile(
    model: ModelLike,
    data: DataSource,
    output: str | os.PathLike[str],
    *,
    transform: Transform | None = None,
    preprocess: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **run: Unpack[RunOptions],
) -> Profile:
    """Write the profile of a model to a file, as the command does; see `profile`."""
    return profile(model, data, output, transform=transform, preprocess=preprocess, progress=progress, **run)


def quantize(
    model: ModelLike,
    profile: ProfileLike | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    target: TargetLike | None = None,
    plan: PlanLike | None = None,
    data: DataSource | None = None,
    **options: Unpack[QuantizeOptions],
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
            `keep_float=["Gemm_9"]`; and those of `QuantizeOptions`.

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
    given = chosen("quantize", options, QuantizeOptions)
    recipe = given.recipe(target)
    if plan is not None and recipe is not None:
        raise ConfigError("plan: holds its own settings; give no others, and no target")
    others = dict(given.others)
    made = others.get("transform"), others.get("preprocess")
    samples = None if data is None else samples_of(data, *made)
    alone = samples is not None and profile is None and plan is None
    speed = given.others.get("speed")
    read = FilesRead((model,), (profile, plan, target), (samples, None if speed is None else speed.data))
    check_outputs([output, others.get("checkpoint")], read)
    with notes_once(), model_file(model) as path, _output_file(output, path) as written:
        if alone and samples is not None:
            result = judged_quantize(path, samples, written, recipe, others)
        else:
            check_unjudged(others)
            steps = {name: others[name] for name in STEPS if name in others}
            result = quantization.quantize(
                path,
                profile,
                written,
                recipe=recipe,
                plan_path=plan,
                accept_retrained=others.get("accept_retrained", False),
                samples=SampleSteps(data=samples, **steps),
            )
        if not isinstance(model, str | os.PathLike):
            in_memory(result.model)
    if output is None:
        judged = None if result.judged is None else replace(result.judged, profile="")
        result = replace(result, model_path=None, judged=judged)
    return replace(result, read=read)


def instrument(model: ModelLike, output: str | os.PathLike[str] | None = None) -> ir.Model:
    """Return the prepared model with a QuantizationProfile node on every floating-point activation.

    Args:
        model: path, `onnx.ModelProto` or `onnx_ir.Model`; an object is only read.
        output: where to write it; None for nowhere.

    Raises:
        ModelError: the model cannot be read. ConfigError: `output` would overwrite its weights.
    """
    read = FilesRead(models=(model,))
    check_outputs([output], read)
    with model_file(model) as path:
        result = profiling.instrumented(path)
        if output is not None:
            with replacing_together(read.weights) as batch:
                save_model(result, output, batch=batch)
        return result if isinstance(model, str | os.PathLike) else in_memory(result)


def merge(
    profiles: Iterable[ProfileLike],
    output: str | os.PathLike[str] | None = None,
    *,
    allow_duplicates: bool = False,
) -> Profile:
    """Return the profile of all the data that several profiles have seen: exact, in any order.

    Args:
        profiles: paths or objects, at least one; all of one model.
        output: where to write the result; None for nowhere.
        allow_duplicates: accept data that seems to be counted twice.

    Raises:
        ProfileError: they do not fit together, one cannot be read, or data is counted twice.
    """
    sources = tuple(profiles)
    check_outputs([output], FilesRead(files=sources))
    loaded = (_named(number, source) for number, source in enumerate(sources))
    merged = merge_profiles(loaded, allow_duplicates=allow_duplicates).profile
    if output is not None:
        save_profile(merged, output)
    return merged


def join(
    models: Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    functions: Iterable[str | os.PathLike[str]] = (),
    connect: Sequence[str] = (),
) -> Joined:
    """Write the model that several files make together, and that calls functions of others.

    Everything takes the joined model as any other, and `split` writes its quantized parts. What was changed
    or left out is noted.

    Args:
        models: files of the parts, each called by its file's name without suffix: its nodes and tensors are
            `PART:NAME`. One file, where only functions are put in: nothing is renamed.
        output: the ONNX file to write.
        functions: files with functions that the models call: ONNX models, or serialised FunctionProtos.
        connect: "PART:INPUT=PART:OUTPUT", what an input reads, or "PART:INPUT=NAME" for an input of the
            whole. An input that is not named reads the output of the same name of another part, or else is
            an input of the whole.

    Returns:
        Parts, inputs, connections and outputs of the whole.

    Raises:
        ModelError: a part cannot be read, parts do not go together, or onnxruntime refuses the whole.
        ConfigError: a part or connection does not exist, or the output cannot be written.
    """
    with notes_once():
        result = joining.join(tuple(models), output, functions=tuple(functions), connect=connect)
        for text in result.notes:
            note(text)
    return result


def split(model: ModelLike, plan: PlanLike, folder: str | os.PathLike[str]) -> tuple[PartFile, ...]:
    """Write the parts of a joined model as quantized files, by the plan of the whole.

    One after the other they compute what the quantized model of the whole computes, bit for bit. All are
    written, or none. What a person should know of a part is noted.

    Args:
        model: the joined float model, which `join` wrote: path, `onnx.ModelProto` or `onnx_ir.Model`.
        plan: made for it, path or object.
        folder: gets `PART.int8.onnx` for each part, with the inputs and outputs of the part's float file; it
            is made where it is not there.

    Returns:
        Each part with its file, its size in bytes and its notes.

    Raises:
        ModelError: the model was not joined, is not in float32, or onnxruntime refuses a part.
        PlanError: the plan is that of another model. ConfigError: a file cannot be written.
    """
    with notes_once(), model_file(model) as path:
        parts = splitting.split(path, plan, folder)
        for part in parts:
            for text in part.notes:
                note(f"part {part.part}: {text}")
    return parts


def _named(number: int, source: ProfileLike) -> tuple[str, Profile]:
    if isinstance(source, Profile):
        return f"profiles[{number}]", source
    return profile_name(source), load_profile(source)


@contextmanager
def _output_file(output: str | os.PathLike[str] | None, model: Path) -> Iterator[Path]:
    if output is not None:
        yield Path(output)
        return
    with temporary_folder() as folder:
        yield folder / quantized_name(model.name)


def _path(output: str | os.PathLike[str] | None) -> Path | None:
    return None if output is None else Path(output)
