"""`qprof import`: another tool's record becomes a profile, its choice a plan."""

from __future__ import annotations

from pathlib import Path

import click

from .....cli.console import echo
from .....cli.options import DATA, EXISTING, MODEL, NEW, FileCommand
from ....targets.forms import FORMS


@click.command("import", cls=FileCommand)
@click.argument("source", type=EXISTING, metavar="FILE")
@click.option("--model", required=True, type=MODEL, metavar="MODEL.onnx", help="Its float model.")
@click.option(
    "--target",
    type=DATA,
    metavar="NAME|FILE",
    help="For a plan: runtime to plan for; nodes without a kernel there stay float.",
)
@click.option("--form", type=click.Choice(FORMS), help="For a plan: output format. Default: FILE's.")
@click.option(
    "--chosen-ranges",
    is_flag=True,
    help="For a profile: use the ranges that the other tool chose, even if FILE has histograms.",
)
@click.option(
    "-o", "--output", required=True, type=NEW, metavar="PROFILE.yaml|PLAN.yaml", help="File to write."
)
def command(
    source: Path, *, model: Path, target: str | None, form: str | None, chosen_ranges: bool, output: Path
) -> None:
    """Read another tool's file as a profile or a plan.

    qprof recognises FILE by its content. Calibrated ranges (onnxruntime's calibration.json, TensorRT's
    calibration cache, Glow's YAML) become a profile; --profile also accepts these files directly. A quantized
    ONNX model of any tool (QuantizeLinear and DequantizeLinear, QLinear operators, dynamic or weight-only),
    AIMET's encodings or QNN's quantization_overrides.json become a plan, with the same parameters and weight
    integers, bit for bit. You can show, compare and edit the plan, and lower it for another target. Notes
    list the losses.

    \b
    Examples:
      qprof import calibration.json --model model.onnx -o profile.yaml
      qprof import model.int8.onnx --model model.onnx -o plan.yaml
      qprof import model.encodings --model model.onnx --target openvino -o plan.yaml
    """
    from ....search.verdict import float_nodes
    from ..importing import import_plan
    from ..profiles import holds_ranges, import_profile

    if holds_ranges(source):
        if target or form:
            raise click.UsageError(f"--target and --form are for a plan, but {source} contains ranges")
        profile = import_profile(source, model, output, chosen_ranges=chosen_ranges)
        bins = sum(bool(tensor.histogram.total) for tensor in profile.values())
        echo(f"{output}: {len(profile)} tensors, {bins} with histograms, of {profile.tool}")
        return
    if chosen_ranges:
        raise click.UsageError(f"--chosen-ranges is for calibrated ranges, but {source} contains none")
    plan = import_plan(source, model, output, target=target, form=form)  # type: ignore[arg-type]
    echo(f"{output}: {plan.headline()}")
    for group in float_nodes(plan):
        echo(f"  {group.nodes} float: {group.reason}")
