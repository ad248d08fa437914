"""`qprof quantize`: write a quantized model from a float model and its profile, or from samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..console import add_finding, arguments, echo
from ..options import shared
from ..options.groups import GroupedCommand
from ..options.quantizing import file_options, sample_options, sample_settings, samples_for
from ..options.report.saving import report_quantization
from ..render.progress import Stages, on_demand
from ..render.quantization import findings, summary_json, summary_text


@click.command("quantize", cls=GroupedCommand)
@shared.model_argument
@file_options
@shared.setting_options
@sample_options
@shared.json_option
def command(*, model: Path, output: Path, as_json: bool, **settings: Any) -> None:
    """Write a quantized model from a float model and its profile, or from samples.

    With --data and no --profile everything is done: samples are profiled (profile and plan stay beside OUT
    for the next time), a quarter is held out, the result is judged on these, and what to try is told. A
    profile needs no samples, but for --check-speed and --rounding gptq or gptaq; --mode dynamic needs none.

    \b
    Examples:
      qprof quantize model.onnx --data samples/ --labels labels.txt -o model.int8.onnx
      qprof quantize model.onnx --profile profile.yaml -o model.int8.onnx --save-plan plan.yaml
    """
    from ...quantizer.api.quantization import OutputFiles, quantize
    from ...quantizer.api.quantize_data import Watching, quantize_with_data

    profile, plan, retrained = (settings.pop(name) for name in ("profile", "plan", "accept_retrained"))
    files = OutputFiles(output, settings.pop("save_plan"))
    given, recipe = sample_settings(settings), shared.recipe_of(settings)
    judging, steps = samples_for(given, recipe, alone=profile is None and plan is None)
    if plan and (recipe or steps.speed):
        raise click.UsageError("--plan holds its own settings: edit the file, or give no others.")
    with Stages() as stage:
        if judging is not None:
            told = Watching(stage, stage.note)
            result = quantize_with_data(model, steps, files, recipe, judging=judging, watching=told)
        else:
            steps = replace(steps, progress=on_demand(stage, "rounding"))
            asked = {"plan_path": plan, "accept_retrained": retrained, "samples": steps}
            result = quantize(model, profile, files, recipe=recipe, **asked)
    report_quantization(result, model, profile, recipe)
    add_finding(**findings(result))
    echo(summary_json(result) if as_json else summary_text(result, arguments()))
    if not result.passed:
        raise click.exceptions.Exit(1)
