"""`qprof import-plan`: scales and zero points that another tool chose as a plan."""

from __future__ import annotations

from pathlib import Path

import click

from ...quantizer.targets.forms import FORMS
from ..console import echo
from ..options import DATA, EXISTING, MODEL, NEW, FileCommand


@click.command("import-plan", cls=FileCommand)
@click.argument("source", type=EXISTING, metavar="SOURCE")
@click.option("--float", "model", required=True, type=MODEL, metavar="MODEL.onnx", help="Float model of it.")
@click.option(
    "--target", type=DATA, metavar="NAME|FILE", help="Runtime to plan for; what it lacks stays float."
)
@click.option("--form", type=click.Choice(FORMS), help="Output format; that of SOURCE by default.")
@click.option("-o", "--output", required=True, type=NEW, metavar="PLAN.yaml", help="Plan to write.")
def command(source: Path, model: Path, target: str | None, form: str | None, output: Path) -> None:
    """Read another tool's quantized model as a plan.

    SOURCE is a quantized ONNX model of any tool (QuantizeLinear and DequantizeLinear, QLinear operators,
    dynamic or weight-only), AIMET's encodings, QNN's quantization_overrides.json, or TensorQuantOverrides
    as JSON. The plan has its parameters and the integers of its weights, to the bit, and can be shown,
    compared, edited and lowered for another target. What cannot be kept is told.

    \b
    Examples:
      qprof import-plan model.int8.onnx --float model.onnx -o plan.yaml
      qprof import-plan model.encodings --float model.onnx --target openvino -o plan.yaml
    """
    from ...quantizer.api.results import summarize
    from ...quantizer.exchange.exchanging import import_plan

    plan = import_plan(source, model, output, target=target, form=form)  # type: ignore[arg-type]
    echo(f"{output}: {plan.headline()}")
    for group in summarize(plan).floats:
        echo(f"  {group.nodes} float: {group.reason}")
