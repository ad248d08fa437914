"""`qprof card`: a record that travels with a quantized model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .....cli.commands.evaluate import comparing_options, evaluation_text, write_report
from .....cli.console import current_run, document, echo, progress
from .....cli.options import (
    MODEL,
    NEW,
    GroupedCommand,
    data_option,
    json_option,
    model_argument,
    option,
    record_of,
    record_options,
    report_option,
    take_limits,
)
from .....profiles.base.output_files import write_atomically
from ....api.options import Judge
from ....evaluation.options import EvaluationOptions, Gate


@click.command(
    "card",
    cls=GroupedCommand,
    everyday=(
        *("data", "preprocess", "limit", "labels", "metric", "gate_min_sqnr"),
        *("gate_max_drop", "latency", "output", "markdown", "task", "base_model", "as_json"),
    ),
)
@model_argument
@click.argument("quantized", type=MODEL, metavar="OUT.onnx")
@data_option
@comparing_options
@record_options(EvaluationOptions, "scored_output")
@option(
    "-o",
    "--output",
    group="Files",
    required=True,
    type=NEW,
    metavar="CARD.json",
    help="Card to write, for qprof verify.",
)
@option(
    "--markdown", group="Files", type=NEW, metavar="README.md", help="Write it for people and model hubs too."
)
@option(
    "--task",
    group="Files",
    metavar="NAME",
    help="What a model hub calls the task, such as image-classification: scores go to the front matter.",
)
@option("--base-model", group="Files", metavar="NAME", help="What a model hub calls the float model.")
@report_option
@json_option
def command(
    model: Path,
    quantized: Path,
    data: str,
    *,
    output: Path,
    markdown: Path | None,
    report: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a record of a quantized model that others can verify.

    Runs both models as qprof evaluate does. The card names the files by what is in them, and holds score with
    interval, SQNR of each output, size, time with the machine, and limits; qprof verify measures it again. A
    limit that is missed stands on the card, and ends with exit code 1.

    \b
    Example:
      qprof card model.onnx model.int8.onnx --data heldout/ --labels heldout/labels.txt -o model.card.json
    """
    from ....prepare.prepare import file_of
    from ..card import card

    files = file_of(model), file_of(quantized)
    names = {name: options.pop(name) or "" for name in ("task", "base_model")}
    judge = Judge(gate=Gate(**take_limits(options)))
    with progress("evaluating") as shown:
        result = card(*files, data, record_of(replace(judge, progress=shown), options), **names)
    write_atomically(output, document("card", 1, result.to_dict()) + "\n")
    if markdown is not None:
        write_atomically(markdown, result.to_markdown())
    if report is not None:
        write_report(result.evaluation, *files, report)
    if as_json:
        echo(document("card", 1, result.to_dict()))
    else:
        echo(evaluation_text(result.evaluation, verbose=current_run().verbose))
    if not result.evaluation.passed:
        raise click.exceptions.Exit(1)
