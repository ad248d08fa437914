"""`qprof import-profile`: ranges that another tool recorded as a profile."""

from __future__ import annotations

from pathlib import Path

import click

from ..console import echo
from ..options import EXISTING, MODEL, NEW, FileCommand


@click.command("import-profile", cls=FileCommand)
@click.argument("file", type=EXISTING, metavar="FILE")
@click.option("--model", required=True, type=MODEL, metavar="MODEL.onnx", help="Float model of the ranges.")
@click.option("-o", "--output", required=True, type=NEW, metavar="PROFILE.yaml", help="Profile to write.")
@click.option(
    "--chosen-ranges",
    is_flag=True,
    help="Take the ranges that the other tool chose, even where its file has histograms.",
)
def command(file: Path, model: Path, output: Path, chosen_ranges: bool) -> None:
    """Read another tool's calibrated ranges as a profile.

    FILE is onnxruntime's calibration.json, calibration.cache or calibration.flatbuffers, TensorRT's
    calibration cache, or Glow's YAML; it is told by its content. All commands with --profile take such a file
    too. Ranges are all that most of them hold: what needs histograms is left out, and said.

    \b
    Examples:
      qprof import-profile calibration.json --model model.onnx -o profile.yaml
      qprof import-profile model.cache --model model.onnx -o profile.yaml
    """
    from ...quantizer.exchange.exchanging import import_profile

    profile = import_profile(file, model, output, chosen_ranges=chosen_ranges)
    bins = sum(bool(tensor.histogram.total) for tensor in profile.values())
    echo(f"{output}: {len(profile)} tensors, {bins} with histograms, of {profile.tool}")
