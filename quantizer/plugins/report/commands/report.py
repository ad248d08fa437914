"""`qprof report`: a page about a quantized model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .....cli.commands.evaluate import comparing_options
from .....cli.console import echo, progress, save_report
from .....cli.options import (
    DATA,
    EXISTING,
    MODEL,
    REPORT,
    GroupedCommand,
    model_argument,
    option,
    preprocess_option,
    record_of,
    record_options,
    take_limits,
)
from ....evaluation.options import Gate, Judge


def _default_folder(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    """Return the folder that was given, or the one of the quantized model."""
    from ....model.folders import qprof_folder

    return value or REPORT.convert(qprof_folder(ctx.params["quantized"]), parameter, ctx)


@click.command(
    "report",
    cls=GroupedCommand,
    everyday=(
        *("data", "report_folder", "preprocess", "limit", "labels", "metric"),
        *("gate_min_sqnr", "gate_max_drop", "latency"),
        *("plan", "profile", "config"),
    ),
)
@model_argument
@click.argument("quantized", type=MODEL, metavar="OUT.onnx")
@option("--data", group="Basic", type=DATA, metavar="DATA", help="Samples to measure both models on.")
@option(
    "--plan",
    group="Basic",
    type=EXISTING,
    metavar="PLAN.yaml",
    help="Its plan.  [default: the one in OUT.qprof]",
)
@option(
    "--profile",
    group="Basic",
    type=EXISTING,
    metavar="PROFILE.yaml",
    help="Its profile.  [default: the one in OUT.qprof]",
)
@record_options(Judge, "limit")
@record_options(Judge, "held_out")
@comparing_options
@option("--config", group="Basic", type=EXISTING, metavar="FILE", help="YAML file of your own target.")
@option(
    "-o",
    "--output",
    "report_folder",
    group="Files",
    type=REPORT,
    callback=_default_folder,
    metavar="DIR",
    help="Folder to write. Default: OUT.qprof.",
)
@preprocess_option
def command(
    model: Path,
    quantized: Path,
    data: str | None,
    report_folder: Path,
    *,
    plan: Path | None,
    profile: Path | None,
    config: Path | None,
    **options: Any,
) -> None:
    """Write a page about a quantized model, layer by layer.

    With --data the page shows measurements and gates. With plan and profile, which quantize writes
    into OUT.qprof, it also shows estimates. DIR gets report.html (one self-contained file),
    report.md, junit.xml and report.json. If a gate is not met, the exit code is 1.

    \b
    Examples:
      qprof report model.onnx model.int8.onnx
      qprof report model.onnx model.int8.onnx --data heldout/ --labels heldout/labels.txt -o report/
    """
    from ....search.verdict import AGAINST
    from ..report import report

    how = Judge(gate=Gate(**take_limits(options)))
    with progress("evaluating") as shown:
        how = record_of(replace(how, progress=shown), options)
        result = report(model, quantized, data, plan=plan, profile=profile, config=config, options=how)
    save_report(result, report_folder)
    echo(f"verdict   {result.verdict.words}: {result.verdict.sentence}")
    for finding in result.verdict.findings:
        if finding.code in AGAINST:
            echo(f"{finding.label:9} {finding}")
    for held in result.gates:
        for failure in held.failures:
            echo(f"{held.result.upper():10} {held.title}: {failure}")
    if not result.passed:
        raise click.exceptions.Exit(1)
