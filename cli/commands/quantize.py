"""`qprof quantize`: write a quantized model from a float model and its profile."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from ..console import echo
from ..options import shared
from ..options.files import EXISTING, NEW
from ..options.groups import GroupedCommand, option
from ..options.speed import rounds_with_samples, samples_for, speed_options, speed_settings
from ..render.progress import progress
from ..render.quantization import summary_json, summary_text


@click.command("quantize", cls=GroupedCommand)
@shared.model_argument
@option("--profile", group="Basic", type=EXISTING, metavar="PROFILE.yaml", help="Profile of the model.")
@option("-o", "--output", group="Basic", required=True, type=NEW, metavar="OUT.onnx", help="File to write.")
@shared.setting_options
@option("--save-plan", group="Files", type=NEW, metavar="PLAN.yaml", help="Write the plan: every decision.")
@option("--plan", group="Files", type=EXISTING, metavar="PLAN.yaml", help="Apply this plan instead.")
@option("--accept-retrained", group="Files", is_flag=True, help="Accept a profile of other weights.")
@speed_options
@shared.json_option
def command(*, model: Path, output: Path, as_json: bool, **settings: Any) -> None:
    """Write a quantized model from a float model and its profile.

    Needs a profile, but not with --mode dynamic or weight-only; and no samples, but for --check-speed and
    --rounding gptq or gptaq. Settings that are not given come from --target or --config. Prints how many
    nodes are quantized, look-up tables, pass-through and float, and why nodes stay float.

    \b
    Examples:
      qprof quantize model.onnx --profile profile.yaml -o model.int8.onnx --save-plan plan.yaml
      qprof quantize model.onnx --profile profile.yaml -o model.int8.onnx --check-speed --data samples/
      qprof quantize model.onnx --mode weight-only --weight-type int4 -o model.int4.onnx
      qprof quantize model.onnx --profile profile.yaml -o model.int8.onnx --rounding gptq --data samples/
    """
    from ...quantizer.pipeline.quantization import OutputFiles, SampleSteps, quantize

    profile, plan, save_plan = (settings.pop(name) for name in ("profile", "plan", "save_plan"))
    given, accept_retrained = speed_settings(settings), settings.pop("accept_retrained")
    recipe = shared.recipe_of(settings)
    samples = samples_for(given, recipe)
    if plan and (recipe or samples["speed"]):
        raise click.UsageError("--plan holds its own settings: edit the file, or give no others.")
    files = OutputFiles(output, save_plan)
    with progress("rounding") if rounds_with_samples(recipe) else nullcontext() as report:
        steps = SampleSteps(**samples, progress=report)
        given = {"plan_path": plan, "accept_retrained": accept_retrained, "samples": steps}
        result = quantize(model, profile, files, recipe=recipe, **given)
    echo(summary_json(result) if as_json else summary_text(result))
    if result.speed is not None and not result.speed.passed:
        raise click.exceptions.Exit(1)
