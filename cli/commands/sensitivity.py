"""`qprof sensitivity`: how sensitive the outputs are to each quantized node."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click

from ...profiles.base.errors import ConfigError
from ...profiles.base.output_files import write_atomically
from ...quantizer.evaluation.options import EvaluationOptions
from ..console import add_finding, decibel_text, document, echo, progress, table
from ..options import (
    EXISTING,
    NEW,
    GroupedCommand,
    data_option,
    given_options,
    json_option,
    model_argument,
    option,
    record_options,
    setting_options,
    take_recipe,
)

if TYPE_CHECKING:
    from ...quantizer.search.sensitivity import Effect, NodeSensitivity, Sensitivities


@click.command(
    "sensitivity",
    cls=GroupedCommand,
    everyday=(
        *("profile", "data", "preprocess", "limit", "plan", "worst", "plot", "target", "schema"),
        *("calibrator", "keep_float", "config", "as_json"),
    ),
)
@model_argument
@option("--profile", group="Basic", type=EXISTING, metavar="PROFILE.yaml", help="The model's profile.")
@data_option
@option(
    "--plan",
    group="Files",
    type=EXISTING,
    metavar="PLAN.yaml",
    help="Measure this plan instead of making one.",
)
@setting_options
@option("--worst", group="Basic", type=click.IntRange(min=1), metavar="N", help="Only the N most sensitive.")
@option("--plot", group="Files", type=NEW, metavar="FILE.svg|FILE.html", help="Draw the ranking.")
@record_options(EvaluationOptions, "class_axis", "provider")
@option(
    "--threads",
    group="Speed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Threads of onnxruntime; 0 for all cores.  [default: 0]",
)
@json_option
def command(
    model: Path,
    profile: Path | None,
    data: str,
    *,
    worst: int | None,
    plot: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Rank the quantized nodes by the noise that each adds.

    Ranked by the SQNR of the outputs with only this node quantized; beside it the dB that are recovered when
    only this node is kept float, and --keep-float options to copy. 8 samples unless --limit says otherwise.

    \b
    Example:
      qprof sensitivity model.onnx --profile profile.yaml --data samples/ --worst 20 --plot ranking.svg
    """
    from ...quantizer.api.evaluate import sensitivity

    if plot is not None and plot.suffix.lower() not in (".svg", ".html"):
        raise ConfigError(f"{plot}: a plot is written as .svg or .html; choose a name that ends so")
    recipe = take_recipe(options)
    with progress("measuring") as shown:
        result = sensitivity(model, profile, data, target=recipe, progress=shown, **given_options(options))
    if plot is not None:
        write_plot(result, plot, worst)
    add_finding(keep_float_found=result.keep_float)
    if as_json:
        worst_nodes = replace(result, nodes=result.nodes[:worst])
        echo(document("sensitivity", 1, worst_nodes, keep_float=result.keep_float))
    else:
        echo(sensitivity_text(result, worst))


HEADERS = (
    ("", "", "", "SQNR dB with", "worst", "", "SQNR dB with", "recovered"),
    ("node", "operator", "kind", "only this quantized", "group dB", "agreement", "only this float", "dB"),
)
ROW, LEFT, WIDTH = 18, 330, 560
TOP_DB = 80.0
"""A bar of this many dB fills the width."""


def sensitivity_text(result: Sensitivities, worst: int | None = None) -> str:
    """Return the ranking as a table between a line about the whole plan and options to copy."""
    whole = result.quantized
    shown = result.nodes[:worst]
    lines = [
        f"{result.model}: {len(result.nodes)} quantized nodes, {result.samples} samples; all quantized: "
        f"SQNR {_decibels(whole.worst_sqnr)} dB, worst group {_decibels(whole.worst_group_sqnr)} dB, "
        f"agreement {_percent(whole)}",
        "",
        *(table([*HEADERS, *map(_row, shown)], left=(0, 1, 2)) if shown else ()),
    ]
    if len(shown) < len(result.nodes):
        lines += [f"... and {len(result.nodes) - len(shown)} that are less sensitive"]
    return "\n".join([*lines, "", *_advice(result), *result.remarks])


def _advice(result: Sensitivities) -> Iterator[str]:
    """Yield the options that keep float the nodes that recover most."""
    from ...quantizer.search.sensitivity import MIN_RECOVERED_DB

    if result.keep_float:
        yield "to keep float the nodes that recover most (each measured by itself):"
        yield "  " + " ".join(f"--keep-float {shlex.quote(name)}" for name in result.keep_float)
    else:
        yield f"no node recovers {MIN_RECOVERED_DB:g} dB or more when only that node is kept float"


def _row(node: NodeSensitivity) -> tuple[str, ...]:
    recovered = "-" if node.recovered is None else f"{node.recovered:+.2f}"
    alone = node.only_quantized
    measured = (_decibels(alone.worst_sqnr), _decibels(alone.worst_group_sqnr), _percent(alone))
    return (node.node, node.op_type, node.kind, *measured, _decibels(node.left_float.worst_sqnr), recovered)


def _decibels(value: float | None) -> str:
    return "-" if value is None else decibel_text(value)


def _percent(effect: Effect) -> str:
    return "-" if effect.agreement is None else f"{100 * effect.agreement:.2f} %"


def write_plot(result: Sensitivities, path: Path, worst: int | None = None) -> None:
    """Write the ranking as a drawing: a bar for each node, short for a sensitive one.

    Raises:
        ConfigError: the file cannot be written.
    """
    drawing = ElementTree.tostring(_drawing(result, worst), encoding="unicode")
    if path.suffix.lower() == ".html":
        title = "qprof sensitivity"
        drawing = (
            f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>{drawing}</html>'
        )
    write_atomically(path, drawing + "\n")


def _drawing(result: Sensitivities, worst: int | None) -> ElementTree.Element:
    shown = result.nodes[:worst]
    height = ROW * (len(shown) + 3)
    size = {"width": str(LEFT + WIDTH + 130), "height": str(height)}
    style = {"font-family": "sans-serif", "font-size": "12"}
    svg = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **style})
    title = f"{result.model}: SQNR of the outputs with only one node quantized (dB)"
    _text(svg, 8, ROW, title)
    for mark in range(0, int(TOP_DB) + 1, 10):
        x = LEFT + WIDTH * mark / TOP_DB
        ends = {"x1": f"{x:.1f}", "x2": f"{x:.1f}", "y1": str(2 * ROW), "y2": str(height - 4)}
        ElementTree.SubElement(svg, "line", {**ends, "stroke": "#ddd"})
        _text(svg, x, 2 * ROW - 4, str(mark), "middle")
    for index, node in enumerate(shown):
        y = ROW * (index + 2) + 4
        sqnr = node.only_quantized.worst_sqnr
        value = math.inf if sqnr is None else sqnr
        length = WIDTH * min(max(value, 0.0), TOP_DB) / TOP_DB
        colour = "#c0392b" if value < 20 else "#e0a030" if value < 40 else "#4a8f5c"
        bar = {"x": str(LEFT), "y": str(y), "width": f"{length:.1f}", "height": str(ROW - 4)}
        ElementTree.SubElement(svg, "rect", {**bar, "fill": colour})
        _text(svg, LEFT - 6, y + 11, f"{node.op_type}  {node.node}"[-46:], "end")
        recovered = "" if node.recovered is None else f"  (recovered {node.recovered:+.2f})"
        _text(svg, LEFT + length + 4, y + 11, _decibels(sqnr) + recovered)
    return svg


def _text(svg: ElementTree.Element, x: float, y: float, text: str, anchor: str = "start") -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ElementTree.SubElement(svg, "text", place).text = text
