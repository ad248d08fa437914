"""`qprof verify`: hold a card against a quantized model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...quantizer.evaluation.options import EvaluationOptions
from ..console import document, echo, progress, table
from ..options import (
    DATA,
    EXISTING,
    MODEL,
    GroupedCommand,
    custom_ops_option,
    given_options,
    json_option,
    labels_option,
    no_latency_option,
    option,
    preprocess_option,
    record_options,
)
from .evaluate import slack_option


@click.command("verify", cls=GroupedCommand)
@custom_ops_option
@click.argument("card", type=EXISTING, metavar="CARD.json")
@click.argument("quantized", type=MODEL, metavar="OUT.onnx")
@option("--float", "model", group="Basic", type=MODEL, metavar="MODEL.onnx", help="The float model.")
@option("--data", group="Basic", type=DATA, metavar="DATA", help="The samples of the card, to measure again.")
@preprocess_option
@labels_option
@record_options(EvaluationOptions, "metric")
@slack_option("How much a figure may differ from the card's", "score", "sqnr")
@no_latency_option
@record_options(EvaluationOptions, "runtime", "provider")
@json_option
def command(card: Path, quantized: Path, *, as_json: bool, **options: Any) -> None:
    """Hold a card against a quantized model.

    Without --float and --data the bytes of OUT.onnx are compared. With both every figure is measured again,
    on the runtime of the card. Exit code 1 where anything is not so: other bytes, other samples or labels,
    another SQNR or score than --slack allows, a limit that was kept and is not any more. Times are told only.
    No code is run because of a card: give a metric of your own with --metric.

    \b
    Examples:
      qprof verify model.card.json model.int8.onnx
      qprof verify model.card.json model.int8.onnx --float model.onnx --data heldout/ --labels labels.txt
    """
    from ...quantizer.api.card import verify

    with progress("evaluating") as shown:
        result = verify(card, quantized, progress=shown, **given_options(options))
    if as_json:
        echo(document("verification", 1, result, passed=result.passed))
    else:
        echo(f"{result.headline()}\n")
        rows = []
        for check in result.checks:
            if check.result == "same":
                figure = check.found
            elif not check.found:
                figure = f"{check.card} on the card: {check.reason}"
            else:
                reason = f": {check.reason}" if check.reason else ""
                figure = f"{check.card} on the card, {check.found} here{reason}"
            rows.append((check.result, check.of, figure))
        for line in table(rows, left=range(3)):
            echo(line)
        unchecked = any(check.result == "not checked" for check in result.checks)
        verified = "verified" + (", as far as it was checked" if unchecked else "")
        echo(f"\ncard       {verified}" if result.passed else "\nFAILED     what the card says is not so")
    if not result.passed:
        raise click.exceptions.Exit(1)
