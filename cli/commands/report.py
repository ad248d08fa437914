"""`qprof report`: a page about a quantized model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options.files import EXISTING
from ..options.groups import GroupedCommand
from ..options.report.options import report_options
from ..options.report.saving import write_and_tell
from ..options.shared import model_argument
from ..render.progress import progress


@click.command("report", cls=GroupedCommand)
@model_argument
@click.argument("plan", type=EXISTING, metavar="PLAN.yaml")
@report_options
def command(model: Path, plan: Path, profile: Path, report_folder: Path, **options: Any) -> None:
    """Write a report of a quantized model: noise, tensors, graph, prices, and what to try.

    From model, plan and profile alone it shows all that is estimated; with --quantized and --data what is
    measured too, and the gates. DIR gets report.html (one file, which loads nothing), report.md, junit.xml
    and report.json. A gate that is not met ends with exit code 1.

    \b
    Examples:
      qprof report model.onnx plan.yaml --profile profile.yaml -o report/
      qprof report model.onnx plan.yaml --profile profile.yaml --quantized out.onnx --data heldout/ -o report/
    """
    from ...quantizer.evaluation.options import EvaluationOptions, Gate
    from ...quantizer.report.reporting import Measured, report
    from ...quantizer.targets.loading import load_recipe

    names = ("config", "history", "quantized", "data", "labels")
    config, history, quantized, data, labels = (options.pop(name) for name in names)
    gate = Gate(**{limit: options.pop(limit) for limit in Gate.__dataclass_fields__})
    latency: dict[str, Any] = {"latency": None} if options.pop("no_latency") else {}
    how = EvaluationOptions(**options, **latency)
    recipe = None if config is None else load_recipe(config)
    with progress("evaluating") as shown:
        measured = Measured(quantized, data, labels, gate, how, shown)
        result = report(model, plan, profile, measured=measured, history=history, recipe=recipe)
    write_and_tell(result, report_folder)
    if not result.passed:
        click.get_current_context().exit(1)
