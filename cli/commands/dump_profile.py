"""`qprof dump-profile`: run a model on samples and record statistics of its activations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...profiles.base.findings import Code, Finding, gravest_first
from ...profiles.base.progress import counted
from ...profiles.runner.settings import RunSettings
from ..console import Stages, current_run, document, echo, tell, tell_findings
from ..options import (
    NEW,
    FiniteNumber,
    GroupedCommand,
    data_option,
    json_option,
    model_argument,
    option,
    record_of,
    record_options,
)

if TYPE_CHECKING:
    from ...profiles.records.profile import Profile


MAX_NON_FINITE = 0.9
"""Share of the elements of a tensor up to which NaN and Inf are no failure; DECISIONS.md says why."""

INPUTS = 4
"""Inputs whose values are described without --verbose; JSON has all."""


def _default_profile(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    """Return the path of the profile that was given, or the default one in the current folder."""
    from ...quantizer.model.folders import PROFILE, qprof_folder

    return qprof_folder(ctx.params["model"].name) / PROFILE if value is None else value


@click.command(
    "dump-profile",
    cls=GroupedCommand,
    everyday=(
        *("output", "data", "preprocess", "limit", "threads", "tensors"),
        *("channels", "provider", "format", "as_json"),
    ),
)
@model_argument
@data_option
@option(
    "-o",
    "--output",
    group="Basic",
    type=NEW,
    callback=_default_profile,
    metavar="PROFILE.yaml",
    help="Default: MODEL.qprof/profile.yaml, here.",
)
@option(
    "--format",
    group="Output format",
    type=click.Choice(["qprof", "glow"]),
    default="qprof",
    show_default=True,
    help="qprof's own YAML, or Glow's.",
)
@option(
    "--max-non-finite",
    group="Quality",
    type=FiniteNumber(0, 1),
    default=MAX_NON_FINITE,
    show_default=True,
    metavar="SHARE",
    help="Gate: fraction of NaN and Inf in the worst tensor.",
)
@record_options(RunSettings)
@json_option
def command(
    model: Path, data: str, output: Path, *, format: str, max_non_finite: float, as_json: bool, **options: Any
) -> None:
    """Run a model on samples and record the values of its tensors.

    The profile contains the exact range and a histogram of every floating-point activation, and the range,
    mean and power of each channel of the inputs of weighted layers. Make it once; then choose schema,
    calibrator and target with qprof quantize, without the data. NaN and Inf are excluded, and reported with
    the first sample and node. If their fraction in a tensor exceeds --max-non-finite, the exit code is 1, and
    the profile is still written. Threads and clusters do not change a byte of the profile.
    The output ends with a line for each input, and with a warning if the data look wrong.

    \b
    Example:
      qprof dump-profile model.onnx --data calibration/ -o profile.yaml
      qprof dump-profile model.onnx --data calibration/ --tensors needed --channels off
    """
    from ...profiles.observers import channel_counter, histogram_counter
    from ...profiles.records.check_samples import samples_file
    from ...profiles.records.non_finite import gate_failure
    from ...quantizer.api.profiling import profile_model
    from ...quantizer.api.sources import samples_of
    from ...quantizer.prepare.prepare import file_of

    if "numpy" in (histogram_counter.IMPLEMENTATION, channel_counter.IMPLEMENTATION):
        sentence = "the observers count in numpy, five times slower: the compiled kernels were not built"
        remedy = "install qprof-onnx with a C compiler"
        tell_findings([Finding(Code.NUMPY_OBSERVERS, sentence, remedy=remedy)])
    samples = samples_of(data, None, options.pop("preprocess"))
    settings = record_of(RunSettings(), options)
    with Stages() as stage:
        profile = profile_model(file_of(model), samples, output, settings, format=format, stage=stage)
    failure = gate_failure(profile, max_non_finite)
    is_kept = bool(profile.held_samples) and samples_file(output).is_file()
    if as_json:
        record = {
            "profile": str(output),
            "tensors": len(profile),
            "samples": profile.data.samples,
            "runs": profile.runs,
            "inputs": profile.input_checks(),
            "check_samples": len(profile.check_samples),
            "samples_file": str(samples_file(output)) if is_kept else None,
            "findings": gravest_first((*([failure] if failure else []), *profile.findings)),
        }
        echo(document("profiling", 1, record))
    else:
        print_profiling(profile, output)
        if format == "qprof":
            echo(check_samples_line(len(profile.check_samples) if is_kept else 0, output))
    if failure is not None:
        tell(failure.line)
        raise click.exceptions.Exit(1)


def check_samples_line(count: int, output: Path) -> str:
    """Return a line on the file of raw samples, or on its absence, with advice."""
    from ...profiles.records.check_samples import samples_file

    if not count:
        return "no samples are stored: the quality that qprof quantize prints is estimated, not run"
    return (
        f"{samples_file(output)}: {counted(count, None, 'raw sample')}, used to test models before they are "
        "written; do not publish the file (--keep-samples 0: none)"
    )


def print_profiling(profile: Profile, output: Path) -> None:
    """Print the size of a profile that was made, a line for each input, and the findings."""
    echo(f"{output}: {len(profile)} tensors, {counted(profile.data.samples, None, 'sample')}")
    verbose = current_run().verbose
    checks = profile.input_checks()
    for check in checks if verbose else checks[:INPUTS]:
        echo(check.sentence)
    if len(checks) > INPUTS and not verbose:
        echo(f"{len(checks) - INPUTS} more inputs: --verbose")
    tell_findings(profile.findings)
