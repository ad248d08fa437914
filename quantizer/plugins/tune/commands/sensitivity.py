"""`qprof sensitivity`: the noise that each quantized node adds."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .....cli.console import document, echo, progress, table
from .....cli.options import (
    DATA,
    EXISTING,
    MODEL,
    GroupedCommand,
    given_options,
    json_option,
    model_argument,
    option,
    preprocess_option,
    record_options,
    setting_options,
    take_recipe,
)
from ....evaluation.options import EvaluationOptions

if TYPE_CHECKING:
    from ..node_noise import Sensitivities


@click.command(
    "sensitivity",
    cls=GroupedCommand,
    everyday=(
        *("profile", "data", "preprocess", "limit", "plan", "worst", "target", "schema"),
        *("calibrator", "keep_float", "config", "as_json"),
    ),
)
@model_argument
@click.argument("quantized", type=MODEL, metavar="[OUT.onnx]", required=False)
@option(
    "--profile",
    group="Basic",
    type=EXISTING,
    metavar="PROFILE.yaml",
    help="The model's profile.  [default: the one that lies beside OUT.onnx]",
)
@option(
    "--data",
    group="Basic",
    type=DATA,
    metavar="DATA",
    help="Samples to run; those that the profile keeps are run without.",
)
@preprocess_option
@record_options(EvaluationOptions, "limit")
@option(
    "--plan",
    group="Files",
    type=EXISTING,
    metavar="PLAN.yaml",
    help="Measure this plan.  [default: the one beside OUT.onnx, else a new one]",
)
@setting_options
@option("--worst", group="Basic", type=click.IntRange(min=1), metavar="N", help="Only the first N nodes.")
@record_options(EvaluationOptions, "provider")
@json_option
def command(
    model: Path,
    quantized: Path | None,
    profile: Path | None,
    *,
    worst: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Rank the quantized nodes by the noise that each adds.

    The plan is that of OUT.onnx; without it a new one, which quantize writes of the profile. Groups of
    neighbouring nodes are quantized alone and run, and those with the most noise in ever smaller parts;
    within a part the estimate shares it out ("~"). Where outputs do not hold the worst nodes are left float
    one after another, and run. 8 samples unless --limit says otherwise; of sequences 256 steps, each model
    with its own state.

    \b
    Examples:
      qprof sensitivity model.onnx model.int8.onnx --data samples/
      qprof sensitivity model.onnx --profile profile.yaml --data samples/ --worst 20
    """
    from ..sensitivity import sensitivity

    recipe = take_recipe(options)
    with progress("measuring"):
        result = sensitivity(model, profile, quantized=quantized, config=recipe, **given_options(options))
    if as_json:
        echo(document("sensitivity", 1, replace(result, nodes=result.nodes[:worst])))
    else:
        echo(sensitivity_text(result, worst))
        if result.plan and result.nodes:
            words = ["qprof", "show", result.plan, result.nodes[0].nodes[-1], "--model", str(model)]
            words += ["--profile", result.profile] if result.profile else []
            echo(f"why: {shlex.join(words)}")


def sensitivity_text(result: Sensitivities, worst: int | None) -> str:
    """Return the ranking as a table, after a line about the whole plan; the remedy below it."""
    shown, lines = result.presentation(), [result.headline()]
    (ranking,), rest = shown.tables, result.nodes[worst:] if worst else ()
    if ranking.rows:
        lines += ["", *table([ranking.header, *ranking.rows[:worst]], left=range(ranking.left))]
    if rest:
        share = 100.0 * sum(node.share for node in rest)
        lines.append(f"... and {len(rest)} more, with {share:.1f} % of the noise")
    for name, text in shown.facts:
        lines += ["", f"{name} {text}"]
    return "\n".join(lines)
