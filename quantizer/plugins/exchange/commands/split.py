"""`qprof split`: the plan of a joined model, as a quantized file for each part."""

from __future__ import annotations

from pathlib import Path

import click

from .....cli.console import echo
from .....cli.options import EXISTING, FileCommand, FolderWritten, model_argument
from .....profiles.base.presentation import size_text


@click.command("split", cls=FileCommand)
@model_argument
@click.argument("plan", type=EXISTING, metavar="PLAN.yaml")
@click.option(
    "-o", "--output", required=True, type=FolderWritten(()), metavar="DIR", help="Folder for the files."
)
def command(model: Path, plan: Path, output: Path) -> None:
    """Write the parts of a joined model as quantized files.

    MODEL.onnx was written by qprof join, and PLAN.yaml by qprof quantize or tune with --save-plan. DIR gets
    PART.int8.onnx for each part, with the inputs and outputs of the part's float file. One after the other
    they compute what the quantized model of the whole computes, bit for bit. All are written, or none.

    \b
    Example:
      qprof split whole.onnx plan.yaml -o int8/
    """
    from ..split import split

    for part in split(model, plan, output):
        echo(f"{part.file}: {size_text(part.size)}")
