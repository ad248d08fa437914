"""`qprof export`: a profile or a plan as a file of another tool."""

from __future__ import annotations

from pathlib import Path

import click

from .....cli.console import echo
from .....cli.options import EXISTING, MODEL, NEW, FileCommand
from ..formats import FORMATS


@click.command("export", cls=FileCommand)
@click.argument("source", type=EXISTING, metavar="PROFILE.yaml|PLAN.yaml")
@click.option("--model", required=True, type=MODEL, metavar="MODEL.onnx", help="Float model that it is of.")
@click.option(
    "--format",
    required=True,
    type=click.Choice(list(FORMATS)),
    metavar="NAME",
    help="Format to write: see above.",
)
@click.option("-o", "--output", required=True, type=NEW, metavar="FILE", help="File to write.")
def command(source: Path, model: Path, format: str, output: Path) -> None:
    """Write a profile or a plan as a file of another tool.

    Of a profile the ranges are those of the data. Of a plan they are what its quantized activations
    represent: what a calibrator of qprof chose. Formats of scales and zero points need a plan. What a format
    cannot hold is told.

    \b
    Formats:
      FORMAT_LIST

    \b
    Example:
      qprof export profile.yaml --model model.onnx --format tensorrt-cache -o model.cache
    """
    from ..exporting import export

    content = export(source, model, format, output)
    size = len(content) if isinstance(content, bytes) else len(content.encode())
    echo(f"{output}: {FORMATS[format].title}, {size} bytes")


command.help = (command.help or "").replace(
    "FORMAT_LIST", "\n      ".join(f"{name:24} {entry.title}" for name, entry in FORMATS.items())
)
