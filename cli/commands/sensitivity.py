"""`qprof sensitivity`: how sensitive the outputs are to each quantized node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..console import add_finding, echo
from ..options import shared
from ..options.files import EXISTING, NEW
from ..options.groups import GroupedCommand, option
from ..render.progress import progress


@click.command("sensitivity", cls=GroupedCommand)
@shared.model_argument
@option("--profile", group="Basic", type=EXISTING, metavar="PROFILE.yaml", help="The model's profile.")
@shared.data_option
@shared.limit_option
@option(
    "--plan",
    group="Files",
    type=EXISTING,
    metavar="PLAN.yaml",
    help="Measure this plan instead of making one.",
)
@shared.setting_options
@option("--worst", group="Basic", type=click.IntRange(min=1), metavar="N", help="Only the N most sensitive.")
@option("--plot", group="Files", type=NEW, metavar="FILE.svg|FILE.html", help="Draw the ranking.")
@shared.class_axis_option
@shared.threads_option
@shared.provider_option
@shared.json_option
def command(model: Path, worst: int | None, plot: Path | None, as_json: bool, **options: Any) -> None:
    """Rank the quantized nodes by how much noise each adds to the outputs.

    Ranked by the SQNR of the outputs with only this node quantized; beside it the dB that are recovered when
    only this node is kept float, and --keep-float options to copy. 8 samples unless --limit says otherwise.

    \b
    Example:
      qprof sensitivity model.onnx --profile profile.yaml --data samples/ --worst 20 --plot ranking.svg
    """
    from ...quantizer.search.sensitivity import LIMIT, SensitivityRun, sensitivity
    from ..render.sensitivity import check_plot, sensitivity_json, sensitivity_text, write_plot

    profile, plan, data, limit = (options.pop(name) for name in ("profile", "plan", "data", "limit"))
    how = [options.pop(name) for name in ("threads", "class_axis", "provider")]
    check_plot(plot)
    recipe, run = shared.recipe_of(options), SensitivityRun(limit or LIMIT, *how)
    with progress("measuring") as report:
        result = sensitivity(model, profile, data, recipe=recipe, plan_path=plan, run=run, progress=report)
    if plot is not None:
        write_plot(result, plot, worst)
    add_finding(keep_float_found=result.keep_float)
    echo(sensitivity_json(result, worst) if as_json else sensitivity_text(result, worst))
