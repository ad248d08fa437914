"""`qprof compare-layers`: where SQNR is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..console import add_finding, echo
from ..options.evaluation import layer_options
from ..options.files import MODEL
from ..options.groups import GroupedCommand
from ..options.shared import data_option, json_option, limit_option, model_argument
from ..render.progress import progress


@click.command("compare-layers", cls=GroupedCommand)
@model_argument
@click.argument("quantized", type=MODEL, metavar="OUT.onnx")
@data_option
@limit_option
@layer_options
@json_option
def command(
    model: Path,
    quantized: Path,
    data: Any,
    *,
    plan: Path | None,
    worst: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """List the SQNR of each tensor in graph order.

    Noise adds up on its way through the graph; "SQNR drop" is what a node adds: the lowest SQNR of its
    inputs less that of its output, in dB. "!" marks drops of 6 dB and more that leave less than 30 dB. A
    tensor that only an activation function reads is compared after it ("after Relu"), for what the function
    clips does not matter; JSON has the figures before it too ("difference"). In JSON an infinite SQNR (no
    difference at all) is the string "inf".

    \b
    Example:
      qprof compare-layers model.onnx model.int8.onnx --data heldout/ --limit 8 --worst 10
    """
    from ...quantizer.evaluation.layers import compare_layers
    from ...quantizer.evaluation.options import EvaluationOptions
    from ..render.evaluation import layers_json, layers_text

    with progress("comparing") as report:
        result = compare_layers(
            model, quantized, data, plan=plan, measuring=EvaluationOptions(**options), progress=report
        )
    add_finding(doubtful=bool(result.doubts))
    layers = result.layers if worst is None else result.worst(worst)
    echo(layers_json(result, layers) if as_json else layers_text(result, layers))
