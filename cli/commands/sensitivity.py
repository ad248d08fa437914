"""`qprof sensitivity`: what each quantized node costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options.shared import (
    EXISTING,
    NEW,
    check_outputs,
    data_option,
    json_option,
    limit_option,
    model_argument,
    recipe_of,
    setting_options,
    threads_option,
)
from ..render.progress import progress


@click.command("sensitivity")
@model_argument
@click.option("--profile", type=EXISTING, metavar="PROFILE.yaml", help="The model's profile.")
@data_option
@limit_option
@click.option("--plan", type=EXISTING, metavar="PLAN.yaml", help="Measure this plan instead of making one.")
@setting_options
@click.option("--worst", type=click.IntRange(min=1), metavar="N", help="Only the N that cost most.")
@click.option("--plot", type=NEW, metavar="FILE.svg|FILE.html", help="Draw the ranking.")
@threads_option
@json_option
def command(model: Path, worst: int | None, plot: Path | None, as_json: bool, **options: Any) -> None:
    """Rank the quantized nodes by what each costs at the outputs.

    "alone" is the outputs' signal over noise when only this node is quantized, "gain" what leaving it
    float gives back to the whole plan. The first 8 samples are used unless --limit says otherwise.

    \b
    Example:
      qprof sensitivity model.onnx --profile profile.yaml --data samples/ --worst 20 --plot ranking.svg
    """
    from ...quantizer.tuning.sensitivity import LIMIT, sensitivity
    from ..render.sensitivity import check_plot, sensitivity_json, sensitivity_text, write_plot

    profile, plan, data, threads, limit = (
        options.pop(name) for name in ("profile", "plan", "data", "threads", "limit")
    )
    check_outputs([plot], [model, profile, plan])
    check_plot(plot)
    known = {"recipe": recipe_of(options), "plan_path": plan, "limit": limit or LIMIT, "threads": threads}
    with progress("measuring") as report:
        found = sensitivity(model, profile, data, progress=report, **known)
    if plot is not None:
        write_plot(found, plot, worst)
    click.echo(sensitivity_json(found, worst) if as_json else sensitivity_text(found, worst))
