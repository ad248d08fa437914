"""`qprof export`: a profile or a plan as a file of another tool."""

from __future__ import annotations

from pathlib import Path

import click

from .....cli.console import echo
from .....cli.options import EXISTING, MODEL, NEW, FileCommand, FolderWritten, Name
from .....profiles.base.presentation import size_text
from ..formats import FORMATS


@click.command("export", cls=FileCommand)
@click.argument("source", type=EXISTING, metavar="PROFILE.yaml|PLAN.yaml")
@click.option("--model", required=True, type=MODEL, metavar="MODEL.onnx", help="Its float model.")
@click.option(
    "--format",
    type=Name(lambda: FORMATS),
    metavar="NAME",
    help="Format to write, see above.",
)
@click.option("-o", "--output", type=NEW, metavar="FILE", help="File to write, in that format.")
@click.option(
    "--parts",
    type=FolderWritten(()),
    metavar="DIR",
    help="For the plan of a joined model: write each part as a quantized file into this folder.",
)
def command(source: Path, model: Path, format: str | None, output: Path | None, parts: Path | None) -> None:
    """Write a profile or a plan for another tool.

    From a profile, qprof exports the ranges of the data; from a plan, the ranges that a calibrator chose for
    the quantized activations. Formats of scales and zero points need a plan. Notes list the data that a
    format cannot store. With --parts, DIR gets PART.int8.onnx for each part of a model that qprof join wrote,
    with the inputs and outputs of the part's float file. Run one after the other, they compute the same as
    the quantized model of the whole, bit for bit. qprof writes all of them, or none.

    \b
    Formats:
      FORMAT_LIST

    \b
    Examples:
      qprof export profile.yaml --model model.onnx --format tensorrt-cache -o model.cache
      qprof export plan.yaml --model whole.onnx --parts int8/
    """
    from ..exporting import export
    from ..split import split

    if parts is not None:
        if format or output:
            raise click.UsageError("--parts: leave out --format and --output, which are for one file.")
        for part in split(model, source, parts):
            echo(f"{part.file}: {size_text(part.size)}")
        return
    if format is None or output is None:
        raise click.UsageError("give --format NAME and -o FILE, or --parts DIR.")
    content = export(source, model, format, output)
    size = len(content) if isinstance(content, bytes) else len(content.encode())
    echo(f"{output}: {FORMATS[format].title}, {size} bytes")


command.help = (command.help or "").replace(
    "FORMAT_LIST", "\n      ".join(f"{name:24} {entry.title}" for name, entry in FORMATS.items())
)
