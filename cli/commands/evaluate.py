"""`qprof evaluate`: compare a quantized model with the float one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...profiles.base.extras import OptionalModule
from ...profiles.base.output_files import write_atomically
from ...quantizer.evaluation.options import Gate, Judge
from ..console import REPORTER, document, echo, progress, result_text, save_report, tell_findings
from ..options import (
    MODEL,
    NEW,
    GroupedCommand,
    data_option,
    json_option,
    labels_option,
    model_argument,
    no_latency_option,
    option,
    option_list,
    record_of,
    record_options,
    report_option,
    take_limits,
)

if TYPE_CHECKING:
    from ...quantizer.evaluation.evaluate import Evaluation


CARD = OptionalModule("a card", "quantizer.plugins.card.card")
"""Makes the record of an evaluation."""

comparing_options = option_list(
    record_options(Judge, "metric"),
    labels_option,
    record_options(Judge, "class_axis"),
    record_options(Gate, prefix="gate_"),
    no_latency_option,
    record_options(Judge, "runtime", "provider", "threads"),
)
"""How both models are compared, and the limits: of `qprof evaluate` and `report`."""


@click.command(
    "evaluate",
    cls=GroupedCommand,
    everyday=(
        *("data", "preprocess", "limit", "labels", "metric", "gate_min_sqnr"),
        *("gate_max_drop", "gate_min_speedup", "latency", "report", "as_json"),
    ),
)
@model_argument
@click.argument("quantized", type=MODEL, metavar="OUT.onnx")
@data_option
@record_options(Judge, "held_out")
@comparing_options
@record_options(Judge, "scored_output")
@option(
    "--card",
    group="Files",
    type=NEW,
    metavar="CARD.json",
    help="Write a record of the quantized model, for qprof verify.",
)
@option(
    "--markdown",
    group="Files",
    type=NEW,
    metavar="README.md",
    help="Write the same record as a page for model hubs.",
)
@report_option
@json_option
def command(
    model: Path,
    quantized: Path,
    data: str,
    *,
    card: Path | None,
    markdown: Path | None,
    report: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare a quantized model with its float model, and print a verdict.

    Runs both models on the same samples. The verdict follows the same rules as in quantize --data. It uses
    the plan and profile in OUT.qprof; without them, the kind of each output is derived from the graph. If a
    gate is not met or not proven, the exit code is 1. Without --labels, --metric uses the boxes, masks or
    texts of the float model as labels. In JSON an infinite SQNR is the string "inf". A card contains digests
    of the files, the measured figures and the gates.

    \b
    Example:
      qprof evaluate model.onnx model.int8.onnx --data heldout/ --labels heldout/labels.txt --min-sqnr 25
      qprof evaluate yolo.onnx yolo.int8.onnx --data val/ --metric map50 --labels coco.json --max-drop 1
    """
    from ...quantizer.api.evaluate import evaluate
    from ...quantizer.prepare.prepare import file_of

    files = file_of(model), file_of(quantized)
    judge = record_of(Judge(gate=Gate(**take_limits(options))), options)
    make_card = CARD.load().card_of if card or markdown else None
    with progress("evaluating") as shown:
        result = evaluate(*files, data, replace(judge, progress=shown))
    if make_card is not None:
        made = make_card(result, *(file.path for file in files), data, judge)
        if card is not None:
            write_atomically(card, document("card", 1, made.to_dict()) + "\n")
        if markdown is not None:
            write_atomically(markdown, made.to_markdown())
    if report is not None:
        write_report(result, *files, report)
    if as_json:
        echo(document("evaluation", 1, result, passed=result.passed))
    else:
        echo(result_text(result, title="", rows=LISTED_OUTPUTS))
    if not result.passed:
        raise click.exceptions.Exit(1)


def write_report(
    result: Evaluation, model: os.PathLike[str], quantized: os.PathLike[str], folder: Path
) -> None:
    """Write the report of an evaluation, and print the findings on the files that it was made from."""
    page, findings = REPORTER.load().evaluation_report(result, model, quantized)
    tell_findings(findings)
    save_report(page, folder)


LISTED_OUTPUTS = 3
"""Outputs that are listed without --verbose, those with the lowest SQNR, states last; JSON has all."""
