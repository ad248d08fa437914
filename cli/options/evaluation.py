"""The options of `qprof evaluate` besides models and data; the gates are the fields of `Gate`."""

from __future__ import annotations

import click

from .files import EXISTING
from .groups import F, option
from .numbers import FiniteNumber
from .shared import class_axis_option, json_option, labelled_output_option

_OPTIONS = (
    option(
        "--labels",
        group="Quality",
        type=EXISTING,
        metavar="FILE",
        help="Class of each row: one integer a line, or .npy.",
    ),
    labelled_output_option,
    class_axis_option,
    option(
        "--min-sqnr",
        group="Quality",
        type=FiniteNumber(),
        metavar="DB",
        help="Gate: SQNR of every float output.",
    ),
    option(
        "--min-group-sqnr",
        group="Quality",
        type=FiniteNumber(),
        metavar="DB",
        help="Gate: SQNR of every group of channels.",
    ),
    option(
        "--max-accuracy-drop",
        group="Quality",
        type=FiniteNumber(),
        metavar="POINTS",
        help="Gate: drop in percentage points, upper end of its 95 % interval.",
    ),
    option(
        "--min-speedup",
        group="Speed",
        type=FiniteNumber(),
        metavar="X",
        help="Gate: float latency over quantized latency, lower quartile.",
    ),
    option("--no-latency", group="Speed", is_flag=True, help="Do not measure latency."),
    option(
        "--threads",
        group="Speed",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="Threads of onnxruntime, for both models.",
    ),
    json_option,
)


def evaluation_options(function: F) -> F:
    """Add the options; the command takes them as `**options`."""
    for add in reversed(_OPTIONS):
        function = add(function)
    return function
