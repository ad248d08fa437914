"""`qprof dump-profile`: run a model on samples and record what flows through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options.profiling import run_options
from ..options.shared import NEW, check_outputs, data_option, limit_option, model_argument
from ..render.progress import progress


@click.command("dump-profile")
@model_argument
@data_option
@click.option("-o", "--output", type=NEW, metavar="PROFILE.yaml", help="Default: MODEL.profile.yaml, here.")
@limit_option
@run_options
def command(model: Path, data: str, output: Path | None, **options: Any) -> None:
    """Run a model on samples and record what flows through it.

    The profile holds the exact range and a histogram of every floating-point activation, and range, mean
    and power of each channel of those that meet a constant weight. Quantizing needs it and no
    data: make it once, then choose schema, calibrator and target with qprof quantize.
    NaN and Inf stop the run with --non-finite error; with skip they are counted and left out.
    Threads, passes, workers and interruptions do not change a byte of it.

    \b
    Example:
      qprof dump-profile model.onnx --data calibration/ -o profile.yaml
      qprof dump-profile model.onnx --data calibration/ --checkpoint progress.qprof
      qprof dump-profile model.onnx --data calibration/ --tensors needed --channels off
    """
    from ...profiles.observers import channel_counter
    from ...profiles.observers import histogram_counter as counter
    from ...quantizer.pipeline.profiling import dump_profile
    from ...quantizer.pipeline.run_settings import RunSettings

    output = output or Path(f"{model.stem}.profile.yaml")
    check_outputs([output, options["checkpoint"]], [model])
    if "numpy" in (counter.IMPLEMENTATION, channel_counter.IMPLEMENTATION):
        click.echo(
            "note: counting in numpy, at a fifth of the speed: the compiled counter is not built", err=True
        )
    notes: list[str] = []
    which = {name: options.pop(name) for name in ("limit", "format")}
    with progress("profiling") as report:
        run = RunSettings(**options)
        profile = dump_profile(model, data, output, run, progress=report, note=notes.append, **which)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"{output}: {len(profile)} tensors, {profile.data.samples} samples")
