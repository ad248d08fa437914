"""`qprof verify`: hold a card against a quantized model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .....cli.console import document, echo, progress, result_text
from .....cli.options import (
    DATA,
    EXISTING,
    MODEL,
    FiniteNumber,
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
from .....profiles.base.options import options_of
from ....evaluation.options import Judge
from ..options import Slack


def slack_option() -> Callable[[Any], Any]:
    """Return the decorator that adds --slack: numbers of texts such as "sqnr=1", by name."""
    figures = options_of(Slack)

    def read(
        ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
    ) -> dict[str, float] | None:
        slack = {}
        for text in value:
            name, _, number = text.partition("=")
            if name not in figures:
                raise click.BadParameter(
                    f"'{text}': give one of {', '.join(figures)} with a number, as in sqnr=1"
                )
            slack[name] = FiniteNumber(min=0.0).convert(number, parameter, ctx)
        return slack or None

    described = ", ".join(f"{figure.name} ({figure.metavar})" for figure in figures.values())
    defaults = ", ".join(f"{figure.name}={figure.default:g}" for figure in figures.values())
    return option(
        "--slack",
        group="Files",
        multiple=True,
        callback=read,
        metavar="FIGURE=X",
        help="Tolerance of a figure: its difference from the card's, or its loss on a newer card: "
        f"{described}. Repeatable.  [default: {defaults}]",
    )


@click.command("verify", cls=GroupedCommand)
@custom_ops_option
@click.argument("card", type=EXISTING, metavar="CARD.json")
@click.argument("quantized", type=MODEL, metavar="OUT.onnx|NEWER.json")
@option("--model", group="Basic", type=MODEL, metavar="MODEL.onnx", help="The float model.")
@option("--data", group="Basic", type=DATA, metavar="DATA", help="The samples of the card, to measure again.")
@preprocess_option
@labels_option
@record_options(Judge, "metric")
@slack_option()
@no_latency_option
@record_options(Judge, "runtime", "provider")
@option(
    "--strict",
    group="Basic",
    is_flag=True,
    help="Exit code 1 also if a value was not checked, or differs without refuting the card.",
)
@json_option
def command(card: Path, quantized: Path, *, as_json: bool, strict: bool, **options: Any) -> None:
    """Compare a card with a quantized model, or with a newer card.

    Without --model and --data, qprof compares only the bytes of OUT.onnx. With both, it measures everything
    again, on the runtime of the card, and compares each value. The exit code is 1 if a value differs: other
    bytes, samples or labels, a figure outside --slack, or a limit that is no longer met. Values that cannot
    be checked, such as a time of another machine, are listed. A card never runs code: pass your own metric
    with --metric.

    With a newer card nothing is run, and the quantized model may be another one. The exit code is 1 if score,
    SQNR, size or speed is worse by more than --slack.

    \b
    Examples:
      qprof verify model.card.json model.int8.onnx
      qprof verify model.card.json model.int8.onnx --model model.onnx --data heldout/ --labels labels.txt
      qprof verify model.card.json model.int8.onnx --model model.onnx --data heldout/ --strict
      qprof verify accepted.card.json tonight.card.json --slack score=0.5
    """
    from ..card import verify

    with progress("evaluating") as shown:
        result = verify(card, quantized, progress=shown, **given_options(options))
    passed = result.complete if strict else result.passed
    if as_json:
        echo(document("verification", 1, result, passed=result.passed, complete=result.complete))
    else:
        echo(result_text(result))
        verified = "verified" + ("" if result.complete else ", as far as it was checked")
        if passed:
            echo(f"\ncard       {verified}")
        elif result.passed:
            open_checks = sum(check.result not in ("same", "kept") for check in result.checks)
            echo(f"\nFAILED     {open_checks} of {len(result.checks)} checks could not be made (--strict)")
        else:
            is_worse = any(check.result == "worse" for check in result.checks)
            echo(
                f"\nFAILED     {'worse than on the card' if is_worse else 'the model differs from the card'}"
            )
    if not passed:
        raise click.exceptions.Exit(1)
