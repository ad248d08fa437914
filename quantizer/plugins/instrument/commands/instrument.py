"""`qprof instrument`: write a model with a QuantizationProfile node on every activation."""

from __future__ import annotations

from pathlib import Path

import click

from .....cli.console import echo
from .....cli.options import NEW, FileCommand, model_argument


@click.command("instrument", cls=FileCommand)
@model_argument
@click.option(
    "-o", "--output", required=True, type=NEW, metavar="OUT.onnx", help="Instrumented model to write."
)
def command(model: Path, output: Path) -> None:
    """Write a model that records its own activations.

    Every activation gets a QuantizationProfile node, an ONNX function of standard operators. The written
    model runs in onnxruntime, opens in every viewer, and returns the original outputs bit for
    bit. qprof dump-profile does not need it.

    \b
    Example:
      qprof instrument model.onnx -o model.instrumented.onnx
    """
    from ..instrument import instrument

    instrument(model, output)
    echo(f"{output}: instrumented")
