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
from ..options.report.saving import report_option, save_quantization
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
@report_option
@shared.json_option
def command(*, model: Path, output: Path, as_json: bool, **settings: Any) -> None:
    """Write a quantized model from a float model and its profile.

    Needs a profile, but not with --mode dynamic or weight-only; and no samples, but for --check-speed and
    --rounding gptq or gptaq. Settings that are not given come from --target or --config.

    \b
    Examples:
      qprof quantize model.onnx --profile profile.yaml -o model.int8.onnx --save-plan plan.yaml
      qprof quantize model.onnx --mode weight-only --weight-type int4 -o model.int4.onnx
      qprof quantize model.onnx --profile profile.yaml -o model.int8.onnx --rounding gptq --data samples/
    """
    from ...quantizer.pipeline.quantization import OutputFiles, SampleSteps, quantize

    profile, plan, save_plan = (settings.pop(name) for name in ("profile", "plan", "save_plan"))
    given, accept_retrained = speed_settings(settings), settings.pop("accept_retrained")
    recipe = shared.recipe_of(settings)
    samples, files = samples_for(given, recipe), OutputFiles(output, save_plan)
    if plan and (recipe or samples["speed"]):
        raise click.UsageError("--plan holds its own settings: edit the file, or give no others.")
    with progress("rounding") if rounds_with_samples(recipe) else nullcontext() as shown:
        given = {"accept_retrained": accept_retrained, "samples": SampleSteps(**samples, progress=shown)}
        result = quantize(model, profile, files, recipe=recipe, plan_path=plan, **given)
    save_quantization(result, model, profile, recipe)
    echo(summary_json(result) if as_json else summary_text(result))
    if result.speed is not None and not result.speed.passed:
        raise click.exceptions.Exit(1)
