"""`qprof compare-layers`: the SQNR of each tensor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .....cli.console import document, echo, progress, result_text
from .....cli.options import (
    EXISTING,
    MODEL,
    GroupedCommand,
    data_option,
    json_option,
    model_argument,
    option,
    record_of,
    record_options,
)
from ....evaluation.options import Judge


@click.command("compare-layers", cls=GroupedCommand)
@model_argument
@click.argument("quantized", type=MODEL, metavar="OUT.onnx")
@data_option
@option(
    "--plan",
    group="Files",
    type=EXISTING,
    metavar="PLAN.yaml",
    help="Its plan: adds the kind of each node.  [default: the one in OUT.qprof]",
)
@option(
    "--worst",
    group="Basic",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the N worst, the worst first.",
)
@record_options(Judge, "threads", "provider")
@json_option
def command(
    model: Path,
    quantized: Path,
    data: str,
    *,
    worst: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """List the SQNR of each tensor.

    Tensors are in graph order. Noise accumulates from node to node. "SQNR drop" is the noise that a node
    adds: the lowest SQNR of its inputs less that of its output, in dB. A tensor that only an activation
    function reads is compared after it ("after Relu"), because clipped values do not matter; JSON also has
    the figures before it ("difference"). In JSON an infinite SQNR (no difference at all) is the string "inf".
    Tensors inside If, Loop and Scan come before the results of these nodes, with all passes together. A model
    with a state reads its own state in each step. "cause" is the node that adds the most noise at the
    outputs, measured by itself; it needs a plan, given or in OUT.qprof.

    \b
    Examples:
      qprof compare-layers model.onnx model.int8.onnx --data heldout/ --limit 8 --worst 10
    """
    from ..compare_layers import compare_layers

    plan = options.pop("plan")
    with progress("comparing") as shown:
        judge = record_of(Judge(progress=shown), options)
        result = compare_layers(model, quantized, data, plan=plan, judge=judge)
    title = result.headline()
    if worst is not None:
        result = replace(result, layers=result.worst(worst))
    echo(document("layers", 1, result) if as_json else result_text(result, title=title))
