"""`qprof evaluate`: compare a quantized model with the float one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options.shared import EXISTING, data_option, json_option, limit_option, model_argument
from ..render.progress import progress


@click.command("evaluate")
@model_argument
@click.argument("quantized", type=EXISTING, metavar="OUT.onnx")
@data_option
@click.option(
    "--labels", type=EXISTING, metavar="FILE", help="Class of each row: one integer a line, or .npy."
)
@click.option("--output", metavar="NAME", help="Output that the labels belong to.  [default: the first]")
@limit_option
@click.option("--min-sqnr", type=float, metavar="DB", help="Gate: SQNR of every float output.")
@click.option("--min-group-sqnr", type=float, metavar="DB", help="Gate: SQNR of every group of channels.")
@click.option("--max-accuracy-drop", type=float, metavar="POINTS", help="Gate: drop in percentage points.")
@click.option("--min-speedup", type=float, metavar="X", help="Gate: float latency over quantized latency.")
@click.option("--no-latency", is_flag=True, help="Do not measure latency.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="For both models.")
@json_option
def command(
    model: Path, quantized: Path, data: str, *, as_json: bool, no_latency: bool, **options: Any
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
    click.echo(evaluation_json(result) if as_json else evaluation_text(result))
    if not result.passed:
        click.get_current_context().exit(1)
