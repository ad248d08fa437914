"""`qprof join`: a model of several files as one file."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import click

from .....cli.console import echo
from .....cli.options import MODEL, NEW, FileCommand, custom_ops_option


@click.command("join", cls=FileCommand)
@click.argument("models", type=MODEL, nargs=-1, required=True, metavar="PART.onnx...")
@click.option(
    "--connect",
    multiple=True,
    metavar="PART:INPUT=PART:OUTPUT",
    help="Output that an input reads; PART:INPUT=NAME makes an input of the whole. Repeatable.  "
    "[default: by names]",
)
@custom_ops_option
@click.option("-o", "--output", required=True, type=NEW, metavar="WHOLE.onnx", help="Model to write.")
def command(models: tuple[Path, ...], connect: tuple[str, ...], output: Path) -> None:
    """Join the parts of a model into one model.

    A decoder is then calibrated on the output of its encoder. Every command accepts WHOLE.onnx, and
    qprof export --parts writes the quantized parts. A part has the name of its file, its nodes and tensors
    are called PART:NAME. An input reads the output of another part with the same name, or with the name that
    exporters use. All other inputs are inputs of the whole. Inputs of the same name stay separate, except the
    mask of an encoder.

    \b
    Examples:
      qprof join t5/encoder_model.onnx t5/decoder_model.onnx -o t5.onnx
      qprof join encoder.onnx decoder.onnx --connect decoder:memory=encoder:h -o whole.onnx
    """
    from ..join import join

    joined = join(models, output, connect=connect)
    echo(f"{output}: {len(joined.parts)} parts")
    lines = [
        f"input      {starred(n)} -> {', '.join(map(starred, r))}" for n, r in joined.inputs.items() if r
    ]
    lines += [f"connected  {starred(made)} -> {starred(end)}" for end, made in joined.connections.items()]
    lines += [f"output     {starred(name)}" for name in joined.outputs]
    for line, count in Counter(lines).items():
        echo(line if count == 1 else f"{line} ({count})")


def starred(name: str) -> str:
    """Return a name with * from its number on, as of present.0.key, which others have with other numbers."""
    return re.sub(r"[._]\d+[._].*$", lambda found: f"{found.group()[0]}*", name)
