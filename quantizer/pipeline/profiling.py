"""`dump_profile` and `instrument`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.atomic_files import replacing_together, write_atomically
from ...profiles.base.errors import ConfigError, ModelError
from ...profiles.base.tool import Progress, tool_name
from ...profiles.instrumentation.profiling_nodes import instrument as instrument_model
from ...profiles.instrumentation.subgraph_tensors import hidden_tensors
from ...profiles.readers.random_samples import is_random
from ...profiles.records.profile import Profile
from ...profiles.records.store import save_profile
from ...profiles.runner.calibrate import calibrate
from ...profiles.runner.checkpoint import remove_progress
from ...profiles.runner.cluster import calibrate_sharded
from ...profiles.runner.settings import RunSettings
from ...profiles.runtime.custom_operators import load_custom_operators
from ...profiles.samples.objects import DataLike, PreprocessedData, source_name
from ...profiles.samples.samples import input_specs, open_samples
from ...profiles.samples.smallest import SmallestSamples
from ..exchange.exporting import written
from ..model.outputs import FilesRead, check_outputs
from ..model.saving import save_model
from ..plan.provenance import Provenance, model_fingerprint, write_provenance
from ..prepare.opening import open_prepared
from .noise_measurement import Chosen, ProgressSoFar, with_noise
from .run_settings import settings_for


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
    if settings.sharded:
        if not isinstance(data, str | Path | PreprocessedData):
            raise ConfigError(
                "workers: each opens the samples itself; give a folder or module:function, or no workers"
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
