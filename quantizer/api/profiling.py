"""`profile` and `merge`: from a float model and samples to a profile.

`profile_model` is the order of the steps: the samples are counted, and a few of them are kept, on which it is
measured how noise travels through the model when a plan is made.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.errors import ConfigError, ModelError
from ...profiles.base.extras import OptionalModule
from ...profiles.base.findings import Code, Finding
from ...profiles.base.output_files import write_atomically
from ...profiles.base.progress import Shown, Stage, asked_for, stages
from ...profiles.base.tool import note as note_to_user
from ...profiles.instrumentation.subgraphs import hidden_tensors
from ...profiles.records.check_samples import CheckSample, check_samples_place
from ...profiles.records.merge import merge_profiles
from ...profiles.records.non_finite import check_outputs_have_numbers
from ...profiles.records.profile import Profile
from ...profiles.records.store import save_profile, with_samples_of_file
from ...profiles.runner.calibrate import calibrate
from ...profiles.runner.settings import RunSettings
from ...profiles.runtime.providers import load_custom_operators
from ...profiles.runtime.states import model_samples, rows_stand_alone
from ...profiles.samples.objects import DataLike, DataSource, PreprocessedData, source_name
from ...profiles.samples.random_samples import is_random
from ...profiles.samples.samples import input_specs
from ...profiles.samples.smallest import SmallestSamples
from ..model.files import ModelLike
from ..model.output_paths import FilesRead, check_outputs
from ..noise.activation_ranges import with_clip_profiles
from ..noise.output_kinds import column_axes, output_meanings
from ..operators.graph import Graph
from ..planning.weighted_channels import weighted_channels
from ..prepare.prepare import ProfileLike, open_prepared, opened
from .keywords import with_keywords
from .sources import Transform, samples_of

CLUSTER = OptionalModule("the runner on a cluster", "quantizer.plugins.cluster.cluster")
"""Has `calibrate_sharded`."""


@checks_arguments
def profile(
    model: ModelLike,
    data: DataSource,
    output: str | os.PathLike[str] | None = None,
    run: RunSettings | None = None,
    *,
    transform: Transform | None = None,
    preprocess: str | os.PathLike[str] | None = None,
    progress: Shown = None,
    **keywords: Any,
) -> Profile:
    """Run a float model on samples and record statistics of its activations.

    Args:
        model: path, `onnx.ModelProto` or `onnx_ir.Model`; an object is only read.
        data: samples: a folder of .npz or .npy files; "module:function"; or an iterable (a list, a generator,
            a data loader), or a function that returns one. Its items are dicts from input name to array; for
            a model with one input also arrays, or (x, y) pairs, of which only x is used. An array is a numpy
            array, or any object with `__array__` or `__dlpack__`, such as a tensor of torch.
        output: file for the profile; None to write no file.
        run: activations, samples, threads, memory and statistics.
        transform: makes a sample of each item, as in `lambda batch: {"image": batch[0]}`.
        preprocess: how samples are made of the files of a folder: "imagenet", "clip", "yolo" or "raw" for
            pictures, or the file of a recipe (`qprof schema preprocess`) or a `preprocessor_config.json`.
        progress: True for an occasional line (the default in a notebook); or a function, called after each
            sample of a pass with the number done and, if known, the total.
        keywords: fields of `RunSettings`, such as `threads=4`, `limit=100`.

    Returns:
        The profile: a mapping from tensor name to `TensorProfile`; its `findings` tell of NaN and Inf, which
        are left out.

    Raises:
        ModelError: the model cannot be read or run. DataError: a sample does not fit; its number is named.
        ConfigError: a keyword or its value is not allowed.
    """
    settings = with_keywords("profile", run or RunSettings(), keywords)
    samples = samples_of(data, transform, preprocess, keep=False)
    with opened(model) as file:
        return profile_model(file, samples, output, settings, stage=stages(asked_for(progress)))


def profile_model(
    model: str | os.PathLike[str],
    data: DataLike,
    output: str | os.PathLike[str] | None = None,
    run: RunSettings | None = None,
    *,
    format: str = "qprof",
    stage: Stage | None = None,
) -> Profile:
    """Run a model on samples and return the profile of the prepared model."""
    settings = (run or RunSettings()).checked()
    check_outputs([output], FilesRead((model,), tuple(settings.custom_ops), (data,)))
    if output is not None and format == "qprof":
        check_samples_place(output)
    load_custom_operators(*settings.custom_ops)
    prepared = open_prepared(model)
    if not input_specs(prepared.model):
        raise ModelError(
            f"{model}: has no inputs, so it cannot be calibrated; "
            "give a model with inputs, or keep this one in float"
        )
    hidden = hidden_tensors(prepared.model)
    settings = settings_for(prepared.graph, settings, hidden)
    network, identity = prepared.model, prepared.identity
    keep = 0 if is_random(source_name(data)) else settings.keep_samples
    progress = (stage or stages(None))("profiling")
    smallest = SmallestSamples(input_specs(network), keep, partial(rows_stand_alone, network))
    samples = model_samples(data, network, settings.limit, by_row=settings.by_row)
    if settings.scheduler is not None:
        if not isinstance(data, str | Path | PreprocessedData):
            raise ConfigError(
                "scheduler: its workers open the samples themselves; give a folder or module:function"
            )
        source = data if isinstance(data, PreprocessedData) else str(data)
        sharded = CLUSTER.load(f"scheduler {settings.scheduler}").calibrate_sharded
        profile: Profile = sharded(network, source, identity, settings, progress, smallest=smallest)
    else:
        profile = calibrate(network, samples, identity, settings, progress, smallest=smallest)
    known = with_clip_profiles(profile, prepared.graph)
    profile = replace(profile, outputs=output_meanings(prepared.graph, known))
    if is_random(source_name(data)):
        profile = replace(profile, data=replace(profile.data, random=True))
    if keep:
        kept = (CheckSample(digest, sample.arrays) for digest, sample in smallest.samples(samples))
        profile = profile.with_held(kept, keep)
    check_outputs_have_numbers(profile, prepared.graph.outputs)
    if output is not None:
        if format == "qprof":
            save_profile(profile, output)
        else:
            from ..plan.documents import WRITING

            content = WRITING.load(f"format '{format}'").file_content(profile, network, format)
            write_atomically(output, content)
    return profile


def settings_for(graph: Graph, settings: RunSettings, hidden: Collection[str] = ()) -> RunSettings:
    """Return the settings with tensor names and channel axes in place of words; `hidden` cannot be read."""
    columns = {name: axis for name, axis in column_axes(graph).items() if name not in hidden}
    if settings.tensors == "needed":
        from ..planning.needed_tensors import needed_tensors

        settings = replace(settings, tensors=needed_tensors(graph, hidden) | columns.keys())
    for name, axis in () if isinstance(settings.channels, str) else settings.channels.items():
        shape = graph.shape(name) if name in graph.values else None
        if shape is not None and not -len(shape) <= axis < len(shape):
            raise ConfigError(f"channels: '{name}' has {len(shape)} axes, and {axis} is none; give another")
    if settings.channels == "weighted-layers":
        recorded = {**columns, **weighted_channels(graph)}
        read = {name: axis for name, axis in recorded.items() if name not in hidden}
        settings = replace(settings, channels=read)
    return settings


@checks_arguments
def merge(
    profiles: Iterable[ProfileLike],
    output: str | os.PathLike[str] | None = None,
    *,
    allow_duplicates: bool = False,
) -> Profile:
    """Return the profile of all the data that several profiles have seen: exact, in any order.

    Args:
        profiles: paths or objects, at least one; all of one model.
        output: file for the result; None to write no file.
        allow_duplicates: accept data that seems to be counted twice, with a note.

    Raises:
        ProfileError: they do not fit together, one cannot be read, or data is counted twice.
    """
    from ..plan.documents import read_at

    sources = tuple(profiles)
    check_outputs([output], FilesRead(files=sources))
    if output is not None:
        check_samples_place(output)

    def read() -> Iterator[tuple[str, Profile]]:
        """Yield the path of each profile (shards often have the same name in different folders), and the
        profile with its check samples."""
        for number, source in enumerate(sources):
            if isinstance(source, Profile):
                yield f"profiles[{number}]", source
                continue
            profile, missing = with_samples_of_file(read_at(source), source)
            if missing:
                sentence = f"the merged profile has no check samples: {missing}"
                note_to_user(Finding(Code.NO_CHECK_SAMPLES, sentence, os.fspath(source)))
            yield os.fspath(source), profile

    merged, warnings = merge_profiles(read(), allow_duplicates=allow_duplicates)
    for warning in warnings:
        note_to_user(warning)
    if output is not None:
        save_profile(merged, output)
    return merged
