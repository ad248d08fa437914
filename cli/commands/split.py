"""`qprof split`: the plan of a joined model, as a quantized file for each part."""

from __future__ import annotations

from pathlib import Path

import click

from ..console import echo, tell
from ..options.files import EXISTING, FileCommand, FolderWritten
from ..options.shared import model_argument


@click.command("split", cls=FileCommand)
@model_argument
@click.argument("plan", type=EXISTING, metavar="PLAN.yaml")
@click.option(
    "-o", "--output", required=True, type=FolderWritten(()), metavar="DIR", help="Folder for the files."
)
def command(model: Path, plan: Path, output: Path) -> None:
    """Write the parts of a joined model as quantized files, by the plan of the whole.

    MODEL.onnx was written by qprof join, and PLAN.yaml by qprof quantize or tune with --save-plan. DIR gets
    PART.int8.onnx for each part, with the inputs and outputs of the part's float file. One after the other
    they compute what the quantized model of the whole computes, bit for bit. All are written, or none.

    \b
    Example:
      qprof split whole.onnx plan.yaml -o int8/
    """
    from ...quantizer.exchange.split import split
    from ..render.files import split_text

    result = split(model, plan, output)
    for part in result:
        for note in part.notes:
            tell(f"note: part {part.part}: {note}")
    echo(split_text(result))
