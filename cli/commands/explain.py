"""`qprof explain`: why does this tensor have these parameters, and why is this node float?"""

from __future__ import annotations

from pathlib import Path

import click

from ..console import echo
from ..options.files import EXISTING, MODEL, FileCommand
from ..options.shared import custom_ops_option, json_option


@click.command("explain", cls=FileCommand)
@click.argument("plan", type=EXISTING, metavar="PLAN.yaml")
@click.argument("name", metavar="TENSOR|NODE")
@click.option("--model", type=MODEL, metavar="MODEL.onnx", help="Adds the nodes and tensors around it.")
@click.option(
    "--profile",
    type=EXISTING,
    metavar="PROFILE.yaml",
    help="Adds observed range, clipped share and expected noise; needs --model.",
)
@custom_ops_option
@json_option
def command(plan: Path, name: str, model: Path | None, profile: Path | None, as_json: bool) -> None:
    """Explain the parameters of a tensor, or why a node is quantized or float.

    Of a tensor: its parameters; with --model and --profile the observed range, the share of clipped values,
    the calibrator and what follows; the tensors that share its scale, which of them set the common range,
    which nodes tied them, and the dB that each loses to sharing. Of a node: what the plan makes of it, why,
    and how its inputs and outputs are quantized. A plan is written by qprof quantize --save-plan.

    \b
    Examples:
      qprof explain plan.yaml /layer1/Concat_output_0
      qprof explain plan.yaml /layer1/conv/Conv --model model.onnx --profile profile.yaml --json
    """
    from ...quantizer.api.explanation import explain
    from ..render.explanation import explanation_json, explanation_text

    explanation = explain(plan, name, model, profile)
    echo(explanation_json(explanation) if as_json else explanation_text(explanation))
