"""`qprof instrument`: write a model with a QuantizationProfile node on every activation."""

from __future__ import annotations

from pathlib import Path

import click

from ..options.shared import NEW, check_outputs, model_argument


@click.command("instrument")
@model_argument
@click.option(
    "-o", "--output", required=True, type=NEW, metavar="OUT.onnx", help="Instrumented model to write."
)
def command(model: Path, output: Path) -> None:
    """Write a model with a QuantizationProfile node on every activation.

    The node is an ONNX function of standard operators: the written model runs in onnxruntime as it is, opens
    in every viewer, and returns the original outputs bit for bit. qprof dump-profile does not need it.

    \b
    Example:
      qprof instrument model.onnx -o model.instrumented.onnx
    """
    from ...quantizer.pipeline.profiling import instrument

    check_outputs([output], [model])
    instrument(model, output)
    click.echo(f"{output}: instrumented")
