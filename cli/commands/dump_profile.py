"""`qprof dump-profile`: run a model on samples and record statistics of its activations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..console import echo, tell
from ..options.groups import GroupedCommand
from ..options.profiling import run_options
from ..options.shared import data_option, json_option, limit_option, model_argument
from ..render.files import print_profiling, profiling_json
from ..render.progress import progress


@click.command("dump-profile", cls=GroupedCommand)
@model_argument
@data_option
@limit_option
@run_options
@json_option
def command(model: Path, data: Any, output: Path, *, as_json: bool, **options: Any) -> None:
    """Run a model on samples and record what flows through it.

    The profile holds the exact range and a histogram of every floating-point activation, and the per-channel
    range, mean and power of the inputs of weighted layers. Quantizing needs the profile and no
    data: make it once, then choose schema, calibrator and target with qprof quantize.
    NaN and Inf are left out, and reported with the first sample and node; more of them in a tensor than
    the share --max-non-finite ends with exit code 1, the profile written.
    Threads, passes, clusters and interruptions do not change a byte of the profile. What is printed ends with
    a line for each input, and with hints where the data look wrong.

    \b
    Example:
      qprof dump-profile model.onnx --data calibration/ -o profile.yaml
      qprof dump-profile model.onnx --data calibration/ --tensors needed --channels off
    """
    from ...profiles.observers import channel_counter, histogram_counter
    from ...profiles.records.non_finite import gate_failure
    from ...profiles.runner.settings import RunSettings
    from ...quantizer.api.profiling import dump_profile

    if "numpy" in (histogram_counter.IMPLEMENTATION, channel_counter.IMPLEMENTATION):
        tell(
            "note: the observers count in numpy, five times slower: the compiled kernels were not built; "
            "install qprof-onnx where a C compiler is present"
        )
    notes: list[str] = []
    format, limit = options.pop("format"), options.pop("max_non_finite")
    run = RunSettings(**options)
    with progress("profiling") as report:
        profile = dump_profile(model, data, output, run, format=format, progress=report, note=notes.append)
    echo(profiling_json(profile, output, notes)) if as_json else print_profiling(profile, output, notes)
    if (failure := gate_failure(profile, limit)) is not None:
        tell(f"gate failed: {failure}")
        click.get_current_context().exit(1)
