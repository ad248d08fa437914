"""`qprof evaluate`: compare a quantized model with the float one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..console import add_finding, echo
from ..options.evaluation import evaluation_options
from ..options.files import MODEL
from ..options.groups import GroupedCommand
from ..options.report.saving import report_evaluation
from ..options.shared import data_option, limit_option, model_argument
from ..render.endings.findings import evaluation_findings
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

    Runs both on the same samples. A gate that is not met ends with exit code 1. Without --labels, boxes,
    masks and texts of the float model are the truth of --metric. In JSON infinite SQNR is the string "inf".

    \b
    Example:
      qprof evaluate model.onnx model.int8.onnx --data heldout/ --labels heldout/labels.txt --min-sqnr 25
      qprof evaluate yolo.onnx yolo.int8.onnx --data val/ --metric map50 --labels coco.json --max-drop 1
    """
    from ...quantizer.evaluation.baseline import Slack, held_against, load_baseline
    from ...quantizer.evaluation.evaluate import evaluate
    from ...quantizer.evaluation.options import EvaluationOptions, Gate
    from ..render.evaluation import evaluation_json, evaluation_text, save_evaluation

    gate = Gate(**{limit: options.pop(limit) for limit in Gate.__dataclass_fields__})
    labels, slack, baseline, save = (options.pop(n) for n in ("labels", "slack", "baseline", "save_baseline"))
    allowed, earlier = Slack(**slack), None if baseline is None else load_baseline(baseline)
    options["scored_output"] = options.pop("output")
    how = EvaluationOptions(**options | ({"latency": None} if no_latency else {}))
    with progress("evaluating") as report:
        result = evaluate(model, quantized, data, labels=labels, gate=gate, measuring=how, progress=report)
    if earlier is not None:
        result = held_against(result, earlier, baseline.name, allowed)
    if save is not None:
        save_evaluation(result, save)
    report_evaluation(result, model, quantized)
    add_finding(**evaluation_findings(result))
    echo(evaluation_json(result) if as_json else evaluation_text(result))
    if not result.passed:
        click.get_current_context().exit(1)
