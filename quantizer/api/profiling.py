"""`dump_profile` and `instrument`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ModelError, QprofError
from ...profiles.base.output_files import replacing_together, write_atomically
from ...profiles.base.tool import Progress, tool_name
from ...profiles.instrumentation.profiling_nodes import instrument as instrument_model
from ...profiles.instrumentation.subgraphs import hidden_tensors
from ...profiles.records.profile import Profile, TensorProfile
from ...profiles.records.store import save_profile
from ...profiles.runner.calibrate import calibrate
from ...profiles.runner.checkpoint import remove_progress
from ...profiles.runner.cluster import calibrate_sharded
from ...profiles.runner.settings import RunSettings
from ...profiles.runtime.providers import load_custom_operators, used_bytes
from ...profiles.samples.objects import DataLike, PreprocessedData, source_name
from ...profiles.samples.random_samples import is_random
from ...profiles.samples.samples import input_specs, open_samples
from ...profiles.samples.smallest import SmallestSamples
from ...profiles.samples.values import Sample
from ..exchange.exporting import written
from ..model.output_paths import FilesRead, check_outputs
from ..model.saving import save_model
from ..noise.measure import expected_bytes, measure_noise, rows_differ_together, unmeasurable
from ..operators.graph import Graph
from ..plan.provenance import Provenance, model_fingerprint, write_provenance
from ..planning.needed_tensors import needed_tensors, weighted_channels
from ..prepare.prepare import open_prepared

# The settings of a calibration run for one model: the tensors that plans need, the channels to record.


def settings_for(graph: Graph, settings: RunSettings, hidden: Collection[str] = ()) -> RunSettings:
    """Return the settings with names of tensors and axes of channels in place of the words for them.

    Args:
        graph: the prepared model.
        settings: of the run, checked.
        hidden: tensors whose values cannot be read.
    """
    if settings.tensors == "needed":
        settings = replace(settings, tensors=needed_tensors(graph, hidden))
    if settings.channels == "weighted-layers":
        settings = replace(settings, channels=weighted_channels(graph))
    return settings


# The last step of a calibration run: how noise travels through the model, measured on a few samples.

Note = Callable[[str], None]


@dataclass(frozen=True)
class Chosen:
    """The samples on which noise is measured.

    Attributes:
        samples: gives digests and samples, anew in each call.
        batches: whether some are rows of batches.
    """

    samples: Callable[[], Iterable[tuple[str, Sample]]]
    batches: bool


class ProgressSoFar:
    """A progress callback that knows what was reported last, so that a further step can go on from there."""

    def __init__(self, progress: Progress | None) -> None:
        """Begin with nothing done; `progress` is told of everything."""
        self._progress, self._done = progress, 0

    def __call__(self, done: int, total: int | None) -> None:
        """Report samples that are done."""
        self._done = done
        if self._progress is not None:
            self._progress(done, total)

    def further(self, count: int) -> Callable[[int], None]:
        """Return what reports how many of `count` more samples are done."""
        before = self._done
        return lambda done: self(before + done, before + count)


def with_noise(
    profile: Profile,
    model: ir.Model,
    chosen: Chosen,
    settings: RunSettings,
    *,
    progress: ProgressSoFar,
    note: Note,
) -> Profile:
    """Return a profile with the noise that is measured on the samples with the smallest digests.

    What goes wrong here is noted, and ends nothing: the profile is complete without it.

    Args:
        profile: of all samples.
        model: the prepared model.
        chosen: these samples.
        settings: of the run.
        progress: goes on from what was reported.
        note: called with a remark.
    """
    count = settings.noise_samples
    if not count:
        return profile
    if reason := unmeasurable(model) or _too_large(profile, model, settings.memory_limit):
        note(f"how noise travels is not measured: {reason}")
        return profile
    threads = 1 if settings.memory_limit is not None else settings.samples_at_once
    further = progress.further(min(count, profile.data.samples))
    try:
        if chosen.batches and rows_differ_together(model, set(profile), chosen.samples()):
            note("how noise travels is not measured: rows of a batch depend on each other")
            return profile
        provider = settings.provider
        noise = measure_noise(model, set(profile), chosen.samples(), threads, further, provider=provider)
    except QprofError as error:
        note(f"how noise travels is not measured: {error}")
        return profile
    return replace(profile, noise=noise, noise_samples=count)


def _too_large(profile: Profile, model: ir.Model, limit: int | None) -> str:
    """Return that the measurement would not stay below the memory limit; "" where it would."""
    if limit is None:
        return ""
    samples = max(1, profile.data.samples)
    sizes = {name: _bytes(tensor) // samples for name, tensor in profile.items()}
    inputs = sum(sizes.get(str(value.name), 0) for value in model.graph.inputs)
    needed = used_bytes() + expected_bytes(model, sizes) + 2 * inputs  # the next sample is read meanwhile
    return "" if needed <= limit else f"it would need {needed >> 20} MiB, more than the memory limit"


def _bytes(tensor: TensorProfile) -> int:
    return (tensor.count + tensor.nan + tensor.inf) * (8 if tensor.dtype == "double" else 4)


def dump_profile(
    model_path: str | Path,
    data: DataLike,
    output: str | Path | None = None,
    run: RunSettings | None = None,
    *,
    format: str = "qprof",
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> Profile:
    """Run a model on samples and record statistics of its activations.

    Args:
        model_path: float ONNX model.
        data: folder of samples, "module:function", or an object of Python (`open_samples`).
        output: where to write the profile; None for nowhere.
        run: settings of the run; None for the defaults.
        format: "qprof", or "glow" for Glow's YAML.
        progress: called after each sample, or each shard.
        note: called with remarks for the user: before the first sample, which tensors cannot be profiled;
            after the last, why noise is not measured.

    Returns:
        The profile of the prepared model.

    Raises:
        ModelError: the model cannot be read or run. DataError: the samples do not fit it.
        ConfigError: a setting is not allowed.
    """
    settings = (run or RunSettings()).checked()
    read = FilesRead((model_path,), tuple(settings.custom_ops), (data,))
    check_outputs([output, settings.checkpoint], read)
    load_custom_operators(*settings.custom_ops)
    prepared = open_prepared(model_path)
    if not input_specs(prepared.model):
        raise ModelError(
            f"{model_path}: has no inputs, so there is nothing to calibrate it on; "
            "give a model that computes from data, or keep this one as it is"
        )
    hidden = hidden_tensors(prepared.model)
    tell = note or (lambda _: None)
    for name, reason in hidden.items():
        tell(f"tensor '{name}' is not profiled: {reason}")
    settings = settings_for(prepared.graph, settings, hidden)
    model, identity = prepared.model, prepared.identity
    specs, reported = input_specs(model), ProgressSoFar(progress)
    smallest = SmallestSamples(settings.noise_samples, specs, hold=settings.memory_limit is None)
    samples = open_samples(data, specs, settings.limit, by_row=settings.by_row)
    if settings.scheduler is not None:
        if not isinstance(data, str | Path | PreprocessedData):
            raise ConfigError(
                "scheduler: its workers open the samples themselves; give a folder or module:function"
            )
        source = data if isinstance(data, PreprocessedData) else str(data)
        profile = calibrate_sharded(model, source, identity, settings, reported, smallest=smallest)
    else:
        profile = calibrate(model, samples, identity, settings, reported, smallest=smallest)
    if is_random(source_name(data)):
        profile = replace(profile, data=replace(profile.data, random=True))
    if format != "glow":
        batches = any(place.rows > 1 for place in smallest.places())
        chosen = Chosen(partial(smallest.samples, samples), batches)
        profile = with_noise(profile, model, chosen, settings, progress=reported, note=tell)
    if output is not None:
        if format == "glow":
            write_atomically(output, written(profile, model, format))
        else:
            save_profile(profile, output)
    if settings.checkpoint is not None:
        remove_progress(Path(settings.checkpoint))
    return profile


def instrument(model_path: str | Path, output: str | Path) -> None:
    """Write the prepared model with a QuantizationProfile node on every floating-point activation.

    Raises:
        ModelError: the model cannot be read. ConfigError: the output would overwrite its weights.
    """
    read = FilesRead(models=(model_path,))
    check_outputs([output], read)
    with replacing_together(read.weights) as batch:
        save_model(instrumented(model_path), output, batch=batch)


def instrumented(model_path: str | Path) -> ir.Model:
    """Return the prepared model with profiling nodes, with its provenance.

    Raises:
        ModelError: the model cannot be read.
    """
    prepared = open_prepared(model_path)
    model = instrument_model(prepared.model)
    write_provenance(model, Provenance(tool_name(), model_fingerprint(prepared.identity), instrumented=True))
    return model
