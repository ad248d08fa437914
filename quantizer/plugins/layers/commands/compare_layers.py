"""`qprof compare-layers`: where SQNR is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .....cli.console import document, echo, finding_lines, progress, table
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
from .....profiles.base.presentation import decibels
from ....api.options import Judge
from ....evaluation.options import EvaluationOptions

if TYPE_CHECKING:
    from ..layers import LayerComparison, LayerReport


@click.command("compare-layers", cls=GroupedCommand)
@model_argument
@click.argument("quantized", type=MODEL, metavar="OUT.onnx")
@data_option
@option(
    "--plan",
    group="Files",
    type=EXISTING,
    metavar="PLAN.yaml",
    help="Its plan: adds the kind of each node.  [default: the plan beside OUT.onnx]",
)
@option(
    "--worst",
    group="Basic",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the N worst, the worst first.",
)
@record_options(EvaluationOptions, "threads", "provider")
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
    adds: the lowest SQNR of its inputs less that of its output, in dB. "!" marks drops of 6 dB and more that
    leave less than 30 dB. A tensor that only an activation function reads is compared after it ("after
    Relu"), because clipped values do not matter; JSON also has the figures before it ("difference"). In JSON
    an infinite SQNR (no difference at all) is the string "inf". Tensors inside If, Loop and Scan come before
    the results of these nodes, with all passes together. A model with a state reads its own state in each
    step. "cause" is the node that adds the most noise at the outputs, measured by itself; it needs a
    plan, given or beside OUT.onnx.

    \b
    Examples:
      qprof compare-layers model.onnx model.int8.onnx --data heldout/ --limit 8 --worst 10
    """
    from ..compare_layers import compare_layers

    plan = options.pop("plan")
    with progress("comparing") as shown:
        judge = record_of(Judge(progress=shown), options)
        result = compare_layers(model, quantized, data, plan=plan, judge=judge)
    layers = result.layers if worst is None else result.worst(worst)
    if as_json:
        echo(document("layers", 1, replace(result, layers=tuple(layers))))
    else:
        echo(layers_text(result, layers))


BAD_DROP, BAD_SQNR = 6.0, 30.0
"""A node is marked when it drops SQNR by at least the first (dB) and leaves less than the second."""


def layers_text(report: LayerReport, layers: Sequence[LayerComparison]) -> str:
    """Return some layers of a report as a table with a bar of the SQNR: one # for every 4 dB, at most 15."""
    rows = [("tensor", "operator", "kind", "type", "SQNR dB", "SQNR drop", "")]
    for layer in layers:
        drop = "" if layer.sqnr_drop is None else f"{layer.sqnr_drop:.2f}"
        if layer.effective is None:
            measured = ("-", drop, f"another shape in {layer.shape_mismatches} samples")
        else:
            sqnr = layer.effective.sqnr
            bar = "#" * int(min(max(sqnr, 0.0), 60.0) / 4.0)
            if layer.sqnr_drop is not None and layer.sqnr_drop >= BAD_DROP and sqnr < BAD_SQNR:
                bar += " !"
            if layer.after and sqnr != math.inf:
                bar += f" after {layer.after}"
            measured = (decibels(sqnr), drop, bar)
        rows.append((layer.tensor, layer.op_type, layer.kind or "-", layer.type, *measured))
    lines = [
        f"{report.quantized_model} against {report.float_model} on {report.samples} samples",
        "",
        *table(rows, left=(0, 1, 2, 3, 6)),
    ]
    if report.missing:
        few = ", ".join(report.missing[:3]) + (", ..." if len(report.missing) > 3 else "")
        lines += ["", f"{len(report.missing)} float tensors are not in the quantized model: {few}"]
    lines += finding_lines(report.findings)
    return "\n".join(lines)
