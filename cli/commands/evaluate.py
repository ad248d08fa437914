"""`qprof evaluate`: compare a quantized model with the float one."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...profiles.base.extras import OptionalModule
from ...profiles.base.findings import Severity, of_severity
from ...profiles.base.output_files import write_atomically
from ...profiles.base.presentation import counted, decibels
from ...quantizer.api.options import Judge
from ...quantizer.evaluation.cost import Cost
from ...quantizer.evaluation.options import EvaluationOptions, Gate
from ..console import (
    REPORTER,
    current_run,
    document,
    echo,
    finding_lines,
    progress,
    result_lines,
    save_report,
    table,
    tell_findings,
)
from ..options import (
    MODEL,
    NEW,
    RARE,
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
    from ...quantizer.api.evaluate import EvaluateResult
    from ...quantizer.evaluation.evaluate import Evaluation


CARD = OptionalModule("a card", "quantizer.plugins.card.card")
"""Makes the record of an evaluation."""

comparing_options = option_list(
    record_options(EvaluationOptions, "metric"),
    labels_option,
    record_options(EvaluationOptions, "class_axis"),
    record_options(Gate, prefix="gate_"),
    no_latency_option,
    record_options(EvaluationOptions, "runtime", "provider", "threads"),
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
@record_options(EvaluationOptions, "scored_output")
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
    the plan and profile beside OUT; without them, the kind of each output is derived from the graph. If a
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
        echo(evaluation_json(result))
    else:
        verbose = current_run().verbose
        text = evaluation_text(result, verbose=verbose, floats_speed=result.verdict.has_floats_speed)
        echo("\n".join([*verdict_lines(result), text]))
        if step := next_step(result, model, quantized, current_run().arguments):
            echo(f"next       {step}")
    if not result.passed:
        raise click.exceptions.Exit(1)


def write_report(
    result: Evaluation, model: os.PathLike[str], quantized: os.PathLike[str], folder: Path
) -> None:
    """Write the report of an evaluation, and print the findings on the files that it was made from."""
    page, findings = REPORTER.load().evaluation_report(result, model, quantized)
    tell_findings(findings)
    save_report(page, folder)


def verdict_lines(result: EvaluateResult) -> Iterator[str]:
    """Yield the verdict, findings on its samples only, and the findings against the model."""
    verdict = result.verdict
    yield f"verdict    {verdict.sentence}"
    if verdict.held_out.findings and verdict.grade != "none":
        yield from finding_lines(verdict.held_out.findings)
    codes = {finding.code for finding in result.findings}
    yield from (f"doubt: {one}" for one in verdict.against if one.code not in codes)


def next_step(
    result: EvaluateResult, model: os.PathLike[str], quantized: os.PathLike[str], arguments: Sequence[str]
) -> str:
    """Return the command that makes a better model than a fair or poor one; "" for other grades."""
    if result.verdict.decision.grade not in ("fair", "poor"):
        return ""
    from ...quantizer.plan.store import load_plan
    from ...quantizer.targets.loading import options_of_config

    words = ["qprof", "quantize", os.fspath(model)]
    if result.profile:
        words += ["--profile", result.profile]
    if result.plan:
        words += options_of_config(load_plan(result.plan).config)
    words += [word for name in REPEATED for word in _given(arguments, name)]
    path = Path(quantized)
    name = "fixed" if result.plan else "qprof"
    words += ["--fix", "auto"] if result.plan else []
    return shlex.join([*words, "-o", str(path.with_name(f"{path.stem}.{name}{path.suffix}"))])


REPEATED = ("--data", "--preprocess", "--limit", "--labels", "--metric", "--scored-output", "--class-axis")
"""Options of `evaluate` that `quantize` has too, and that say how samples are read and scored."""


def _given(arguments: Sequence[str], name: str) -> Iterator[str]:
    """Yield an option and its value, as `quantize` takes them."""
    field = name[2:].replace("-", "_")
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option == name:
            value = value if equals else following
            yield from ("--set", f"{field}={value}") if field in RARE else (name, value)


NAMED_SAMPLES = 3
"""Samples with the lowest SQNR that are named; JSON and reports have a few more."""

LISTED_OUTPUTS = 3
"""Outputs that are listed without --verbose, those with the lowest SQNR, states last; JSON has all."""


def evaluation_json(result: Evaluation) -> str:
    """Return the evaluation as one JSON object, see `qprof schema evaluation`."""
    return document("evaluation", 1, result, passed=result.passed)


def evaluation_text(result: Evaluation, *, verbose: bool = True, floats_speed: bool = False) -> str:
    """Return the evaluation for people: scores, size and speed, a table of the outputs, gates."""
    lines = [*_task_lines(result)]
    cost = Cost(result.float_bytes, result.quantized_bytes, result.latency)
    lines.append(f"size       {cost.size}")
    if (t := result.latency) is not None:
        lines.append(f"latency    {t.milliseconds}: {cost.speed_line(floats_speed=floats_speed)}")
        if verbose:
            lines.append(f"           quartiles of {t.rounds} rounds of {t.samples} samples")

    # the outputs: a table, and what is remarkable in each
    outputs = list(result.outputs)
    if not verbose and len(outputs) > LISTED_OUTPUTS:
        answers_first = [
            (output.name in result.states, math.inf if output.difference is None else output.difference.sqnr)
            for output in outputs
        ]
        order = sorted(range(len(outputs)), key=answers_first.__getitem__)
        outputs = [outputs[place] for place in order[:LISTED_OUTPUTS]]
    rows = [("output", "SQNR dB", "agreement")]
    for output in outputs:
        agreement = "-"
        if (same := output.agreement) is not None:
            agreement = f"{same.kind} {100 * same.ratio:.2f} % of {same.total}"
        sqnr = "-" if output.difference is None else decibels(output.difference.sqnr)
        rows.append((output.name, sqnr, agreement))
    lines += table(rows)
    if len(outputs) < len(result.outputs):
        lines.append(f"{len(result.outputs) - len(outputs)} more outputs: --verbose")
    lines += [
        f"output '{output.name}': another shape than float's in {output.shape_mismatches} samples"
        f"{'; compared on what both have' if output.difference is not None else ''}"
        for output in outputs
        if output.shape_mismatches
    ]
    worst_samples = result.worst_samples[:NAMED_SAMPLES]
    if worst_samples:
        named = [
            f"{worst.sample} {decibels(worst.sqnr)} dB{' (an answer changed)' if worst.changed else ''}"
            for worst in worst_samples
        ]
        lines.append(f"samples that differ most: {', '.join(named)}")

    # what was compared, and whether it is good enough
    elsewhere = ""
    if (result.runtime, result.provider) != ("onnxruntime", "CPUExecutionProvider"):
        elsewhere = f", {result.runtime} with {result.provider}"
    pair = f"{result.quantized_model} against {result.float_model}"
    lines.append(f"compared   {pair} on {counted(result.samples, result.rows)}{elsewhere}")
    alarms = of_severity(result.findings, Severity.ALARM)
    lines += finding_lines(alarms, verbose=verbose)
    lines += [f"{'NOT PROVEN' if result.gated else 'doubt:'} {doubt}" for doubt in result.doubts]
    others = of_severity(result.findings, Severity.WARNING, Severity.NOTE)
    lines += result_lines(others, verbose=verbose)
    if result.passed and result.gated:
        lines.append("gate       passed")
    return "\n".join(lines)


def _task_lines(result: Evaluation) -> Iterator[str]:
    """Yield the score of both models, and the figures of texts."""
    from ...quantizer.evaluation.metrics.score import score_text

    if (score := result.score) is not None:
        is_titled = result.metric_title != f"metric {result.metric}"
        name = result.metric.partition(":")[0] if is_titled else "metric"
        title = "" if result.metric_title == result.metric else f": {result.metric_title}"
        better = "" if score.higher_is_better else ", lower is better"
        if score.drop_unit == "points":
            better = ", in the unit of the function"
        rows = f"{score.rows} {'texts' if result.metric.startswith('perplexity') else 'rows'}"
        interval = f"95 % interval {score.drop_low:.2f} to {score.drop_high:.2f}"
        if not math.isfinite(score.drop_high - score.drop_low):
            interval = "no 95 % interval"
        yield (
            f"{name:<10} {score_text(score)} of {rows}{title}{better}; drop "
            f"{score.drop:.2f} {score.drop_unit}, {interval}"
        )
