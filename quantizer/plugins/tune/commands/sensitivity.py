"""`qprof sensitivity`: the noise that each quantized node adds."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click

from .....cli.console import document, echo, progress, table
from .....cli.options import (
    DATA,
    EXISTING,
    MODEL,
    NEW,
    GroupedCommand,
    given_options,
    json_option,
    model_argument,
    option,
    preprocess_option,
    record_options,
    setting_options,
    take_recipe,
)
from .....profiles.base.errors import ConfigError
from .....profiles.base.output_files import write_atomically
from .....profiles.base.presentation import decibels
from ....evaluation.options import EvaluationOptions

if TYPE_CHECKING:
    from ..node_noise import Sensitivities


@click.command(
    "sensitivity",
    cls=GroupedCommand,
    everyday=(
        *("profile", "data", "preprocess", "limit", "plan", "worst", "plot", "target", "schema"),
        *("calibrator", "keep_float", "config", "as_json"),
    ),
)
@model_argument
@click.argument("quantized", type=MODEL, metavar="[OUT.onnx]", required=False)
@option(
    "--profile",
    group="Basic",
    type=EXISTING,
    metavar="PROFILE.yaml",
    help="The model's profile.  [default: the one that lies beside OUT.onnx]",
)
@option(
    "--data",
    group="Basic",
    type=DATA,
    metavar="DATA",
    help="Samples to run; those that the profile keeps are run without.",
)
@preprocess_option
@record_options(EvaluationOptions, "limit")
@option(
    "--plan",
    group="Files",
    type=EXISTING,
    metavar="PLAN.yaml",
    help="Measure this plan.  [default: the one beside OUT.onnx, else a new one]",
)
@setting_options
@option("--worst", group="Basic", type=click.IntRange(min=1), metavar="N", help="Only the first N nodes.")
@option("--plot", group="Files", type=NEW, metavar="FILE.svg|FILE.html", help="Draw the ranking.")
@record_options(EvaluationOptions, "provider")
@json_option
def command(
    model: Path,
    quantized: Path | None,
    profile: Path | None,
    *,
    worst: int | None,
    plot: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Rank the quantized nodes by the noise that each adds.

    The plan is that of OUT.onnx; without it a new one, which quantize writes of the profile. Groups of
    neighbouring nodes are quantized alone and run, and those with the most noise in ever smaller parts;
    within a part the estimate shares it out ("~"). Where outputs do not hold the worst nodes are left float
    one after another, and run. 8 samples unless --limit says otherwise; of sequences 256 steps, each model
    with its own state.

    \b
    Examples:
      qprof sensitivity model.onnx model.int8.onnx --data samples/
      qprof sensitivity model.onnx --profile profile.yaml --data samples/ --worst 20 --plot ranking.svg
    """
    from ..sensitivity import sensitivity

    if plot is not None and plot.suffix.lower() not in (".svg", ".html"):
        raise ConfigError(f"{plot}: a plot is written as .svg or .html; choose a name that ends so")
    recipe = take_recipe(options)
    with progress("measuring"):
        result = sensitivity(model, profile, quantized=quantized, config=recipe, **given_options(options))
    if plot is not None:
        write_plot(result, plot, worst)
    if as_json:
        echo(document("sensitivity", 1, replace(result, nodes=result.nodes[:worst])))
    else:
        is_default = recipe is None or not recipe.given
        echo(sensitivity_text(result, worst, "the defaults" if is_default else "the given settings"))
        if result.plan and result.nodes:
            words = ["qprof", "show", result.plan, result.nodes[0].nodes[-1], "--model", str(model)]
            words += ["--profile", result.profile] if result.profile else []
            echo(f"why: {shlex.join(words)}")


def sensitivity_text(result: Sensitivities, worst: int | None, made_by: str) -> str:
    """Return the ranking as a table, after a line about the whole plan; the remedy below it."""
    plan = result.plan or f"a new plan by {made_by} (give the quantized model for its own)"
    nodes = "node" if len(result.nodes) == 1 else "nodes"
    where = f" at output '{result.output}'" if result.output else ""
    lines = [
        f"{result.model}, {plan}: {len(result.nodes)} quantized {nodes}, {result.source}; all quantized: "
        f"SQNR {decibels(result.sqnr)} dB{where}"
    ]
    tried = sum(node.sqnr_without is not None for node in result.nodes)
    rows = [
        (
            *(node.nodes[-1], ", ".join(node.op_types), node.kind),
            f"{'' if node.is_run else '~'}{100.0 * node.share:.1f} %",
            f"{'' if node.is_run else '~'}{decibels(node.sqnr)}",
            *([decibels(node.sqnr_without) if at < tried else ""] if tried else []),
            "-" if node.microseconds is None else f"{node.microseconds:.0f}",
        )
        for at, node in enumerate(result.nodes[:worst])
    ]
    if rows:
        float_header = (("SQNR dB with it and", "all above float"),) if tried else ()
        columns = (
            *(("", "node"), ("", "operator"), ("", "kind"), ("share of", "the noise")),
            *(("SQNR dB with", "only this quantized"), *float_header, ("saves", "us")),
        )
        headers = [tuple(column[line] for column in columns) for line in (0, 1)]
        lines += ["", *table([*headers, *rows], left=(0, 1, 2))]
    if len(rows) < len(result.nodes):
        left = result.nodes[len(rows) :]
        share = 100.0 * sum(node.share for node in left)
        lines.append(f"... and {len(left)} more, with {share:.1f} % of the noise")
    if result.advice:
        lines += ["", f"outputs hold with {result.advice}"]
    return "\n".join(lines)


ROW_HEIGHT, LABEL_WIDTH, BAR_WIDTH = 18, 330, 560  # in pixels
TOP_DB = 80.0  # A bar of this many dB fills the width


def write_plot(result: Sensitivities, path: Path, worst: int | None) -> None:
    """Write the ranking as a drawing: a bar for each node, short for a sensitive one."""
    shown = result.nodes[:worst]
    height = ROW_HEIGHT * (len(shown) + 3)
    svg = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": str(LABEL_WIDTH + BAR_WIDTH + 130),
            "height": str(height),
            "font-family": "sans-serif",
            "font-size": "12",
        },
    )

    def add_text(x: float, y: float, text: str, anchor: str = "start") -> None:
        place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
        ElementTree.SubElement(svg, "text", place).text = text

    add_text(8, ROW_HEIGHT, f"{result.model}: SQNR of the outputs with only one node quantized (dB)")
    for mark in range(0, int(TOP_DB) + 1, 10):
        x = LABEL_WIDTH + BAR_WIDTH * mark / TOP_DB
        ends = {"x1": f"{x:.1f}", "x2": f"{x:.1f}", "y1": str(2 * ROW_HEIGHT), "y2": str(height - 4)}
        ElementTree.SubElement(svg, "line", {**ends, "stroke": "#ddd"})
        add_text(x, 2 * ROW_HEIGHT - 4, str(mark), "middle")
    for index, node in enumerate(shown):
        y = ROW_HEIGHT * (index + 2) + 4
        value = math.inf if node.sqnr is None else node.sqnr
        length = BAR_WIDTH * min(max(value, 0.0), TOP_DB) / TOP_DB
        colour = "#c0392b" if value < 20 else "#e0a030" if value < 40 else "#4a8f5c"
        bar = {"x": str(LABEL_WIDTH), "y": str(y), "width": f"{length:.1f}", "height": str(ROW_HEIGHT - 4)}
        ElementTree.SubElement(svg, "rect", {**bar, "fill": colour})
        add_text(LABEL_WIDTH - 6, y + 11, f"{', '.join(node.op_types)}  {node.nodes[-1]}"[-46:], "end")
        add_text(LABEL_WIDTH + length + 4, y + 11, f"{decibels(node.sqnr)}  ({100.0 * node.share:.1f} %)")

    drawing = ElementTree.tostring(svg, encoding="unicode")
    if path.suffix.lower() == ".html":
        title = "qprof sensitivity"
        drawing = (
            f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>{drawing}</html>'
        )
    write_atomically(path, drawing + "\n")
