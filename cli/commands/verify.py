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
@slack_option("How much a figure may differ from the card's", "score", "sqnr", "speedup")
@no_latency_option
@record_options(EvaluationOptions, "runtime", "provider")
@option(
    "--strict",
    group="Basic",
    is_flag=True,
    help="Exit code 1 also where anything was not checked, or differs without refuting the card.",
)
@json_option
def command(card: Path, quantized: Path, *, as_json: bool, strict: bool, **options: Any) -> None:
    """Hold a card against a quantized model.

    Without --float and --data the bytes of OUT.onnx are compared. With both everything is measured again, on
    the runtime of the card, and each value on it is compared. Exit code 1 where one is not so: other bytes,
    samples or labels, another figure than --slack allows, a limit that was kept and is not any more. What
    cannot be checked, such as a time of another machine, is named. No code is run because of a card: give a
    metric of your own with --metric.

    \b
    Examples:
      qprof verify model.card.json model.int8.onnx
      qprof verify model.card.json model.int8.onnx --float model.onnx --data heldout/ --labels labels.txt
      qprof verify model.card.json model.int8.onnx --float model.onnx --data heldout/ --strict
    """
    from ...quantizer.api.card import verify

    with progress("evaluating") as shown:
        result = verify(card, quantized, progress=shown, **given_options(options))
    passed = result.complete if strict else result.passed
    if as_json:
        echo(document("verification", 1, result, passed=result.passed, complete=result.complete))
    else:
        echo(f"{result.headline()}\n")
        rows = []
        for check in result.checks:
            if check.result == "same":
                figure = check.found
            elif not check.found:
                said = f"{check.card} on the card" if check.card else ""
                figure = ": ".join(filter(None, (said, check.reason)))
            else:
                reason = f": {check.reason}" if check.reason else ""
                said = f"{check.card} on the card, " if check.card else ""
                figure = f"{said}{check.found} here{reason}"
            rows.append((check.result, check.of, figure))
        for line in table(rows, left=range(3)):
            echo(line)
        verified = "verified" + ("" if result.complete else ", as far as it was checked")
        if passed:
            echo(f"\ncard       {verified}")
        elif result.passed:
            open_checks = sum(check.result != "same" for check in result.checks)
            echo(f"\nFAILED     {open_checks} of {len(result.checks)} checks could not be made (--strict)")
        else:
            echo("\nFAILED     what the card says is not so")
    if not passed:
        raise click.exceptions.Exit(1)
