"""`qprof measure-target`: the times of a target's kernels on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from .....cli.console import echo, progress
from .....cli.options import NEW, FileCommand


@click.command("measure-target", cls=FileCommand)
@click.argument("target")
@click.option(
    "-o", "--output", type=NEW, required=True, metavar="COSTS.json", help="The table of costs to write."
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Threads inside an operator; a table holds for one number of them.",
)
def command(target: str, output: Path, threads: int) -> None:
    """Measure the kernel times of TARGET on this machine.

    Small networks of one operator each are run in float and quantized, with onnxruntime's profiler. The times
    go into a table, from which quantize predicts what each node and conversion will cost. It takes a few
    minutes; nothing else should run meanwhile. The processor must be one that the target is for.

    \b
    Example:
      qprof measure-target onnxruntime-x86 --threads 2 -o costs.json
    """
    from ..measure_target import measure_target

    with progress("measuring", "network") as report:
        table = measure_target(target, output, threads=threads, progress=report)
    points = sum(map(len, table.kernels.values()))
    echo(f"{output}: {len(table.kernels)} kernels, {points} times, {table.conditions.processor}")
