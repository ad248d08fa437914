"""`qprof explain`: why does this tensor have these parameters?"""

from __future__ import annotations

from pathlib import Path

import click

from ..options.shared import EXISTING, json_option


@click.command("explain")
@click.argument("plan", type=EXISTING, metavar="PLAN.yaml")
@click.argument("tensor", metavar="TENSOR")
@click.option("--model", type=EXISTING, metavar="MODEL.onnx", help="Adds the nodes around the tensor.")
@click.option(
    "--profile", type=EXISTING, metavar="PROFILE.yaml", help="Adds the expected noise; needs --model."
)
@json_option
def command(plan: Path, tensor: str, model: Path | None, profile: Path | None, as_json: bool) -> None:
    """Tell why a tensor of a plan has the parameters that it has.

    Which nodes tied it to other tensors, whose range won, and what the common range costs each of them in
    decibels. A plan is written by qprof quantize --save-plan.

    \b
    Examples:
      qprof explain plan.yaml /layer1/Concat_output_0
      qprof explain plan.yaml x --model model.onnx --profile profile.yaml --json
    """
    from ...quantizer.pipeline.explanation import explain
    from ..render.explanation import explanation_json, explanation_text

    found = explain(plan, tensor, model, profile)
    click.echo(explanation_json(found) if as_json else explanation_text(found))
