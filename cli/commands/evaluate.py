"""`qprof evaluate`: compare a quantized model with the float one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..console import echo
from ..options.evaluation import evaluation_options
from ..options.files import MODEL
from ..options.groups import GroupedCommand
from ..options.shared import data_option, limit_option, model_argument
from ..render.progress import progress


@click.command("evaluate", cls=GroupedCommand)
@model_argument
@click.argument("quantized", type=MODEL, metavar="OUT.onnx")
@data_option
@limit_option
@evaluation_options
def command(
    model: Path, quantized: Path, data: Any, *, as_json: bool, no_latency: bool, **options: Any
) -> None:
    """Compare a quantized model with the float one: quality, size and speed.

    Runs both on the same samples. A gate that is not met ends with exit code 1. In JSON an infinite SQNR
    (no difference at all) is the string "inf".

    \b
    Example:
      qprof evaluate model.onnx model.int8.onnx --data heldout/ --labels heldout/labels.txt --min-sqnr 25
    """
    from ...quantizer.evaluation.evaluate import evaluate
    from ...quantizer.evaluation.gates import Gate
    from ...quantizer.evaluation.measuring import Measuring
    from ..render.evaluation import evaluation_json, evaluation_text

    gate = Gate(**{limit: options.pop(limit) for limit in Gate.__dataclass_fields__})
    labels = options.pop("labels")
    if no_latency:
        options["latency"] = None
    how = Measuring(**options)
    with progress("evaluating") as report:
        result = evaluate(model, quantized, data, labels=labels, gate=gate, measuring=how, progress=report)
    echo(evaluation_json(result) if as_json else evaluation_text(result))
    if not result.passed:
        click.get_current_context().exit(1)
