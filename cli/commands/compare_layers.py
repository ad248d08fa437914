"""`qprof compare-layers`: where the signal is lost."""

from __future__ import annotations

from pathlib import Path

import click

from ..options.shared import EXISTING, data_option, json_option, limit_option, model_argument
from ..render.progress import progress


@click.command("compare-layers")
@model_argument
@click.argument("quantized", type=EXISTING, metavar="OUT.onnx")
@data_option
@limit_option
@click.option("--plan", type=EXISTING, metavar="PLAN.yaml", help="Saved plan: adds the kind of each node.")
@click.option("--worst", type=click.IntRange(min=1), metavar="N", help="Only the N worst, the worst first.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="For both models.")
@json_option
def command(
    model: Path,
    quantized: Path,
    data: str,
    *,
    limit: int | None,
    plan: Path | None,
    worst: int | None,
    threads: int,
    as_json: bool,
) -> None:
    """List the signal-to-noise ratio of each tensor in graph order.

    Noise adds up on its way through the graph; "loss" is what a node adds to the noisiest of its inputs,
    and "!" marks 6 dB and more that leave less than 30 dB. In JSON an infinite SQNR (nothing differs) is
    the string "inf".

    \b
    Example:
      qprof compare-layers model.onnx model.int8.onnx --data heldout/ --limit 8 --worst 10
    """
    from ...quantizer.evaluation.layers import compare_layers
    from ..render.evaluation import layers_json, layers_text

    with progress("comparing") as report:
        found = compare_layers(model, quantized, data, limit, plan=plan, threads=threads, progress=report)
    layers = found.layers if worst is None else found.worst(worst)
    click.echo(layers_json(found, layers) if as_json else layers_text(found, layers))
