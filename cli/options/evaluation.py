"""The options of `qprof evaluate` besides models and data; the gates are the fields of `Gate`."""

from __future__ import annotations

import click

from .files import EXISTING, NEW, TRUTH
from .groups import option, option_list
from .numbers import FiniteNumber, Size
from .report.saving import report_option
from .shared import (
    Name,
    class_axis_option,
    json_option,
    labelled_output_option,
    metric_option,
    provider_option,
)

RUNTIMES = ("onnxruntime", "openvino")
"""Those of `quantizer.evaluation.runtimes`, which is slow to import; a test compares them."""


def slack_of(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, float]:
    """Return the numbers of texts such as "sqnr=1", by name."""
    names = ("score", "sqnr", "size", "speedup")
    found = {}
    for text in value:
        name, _, number = text.partition("=")
        if name not in names:
            raise click.BadParameter(f"'{text}': give one of {', '.join(names)} with a number, as in sqnr=1")
        found[name] = FiniteNumber(min=0.0).convert(number, parameter, ctx)
    return found


SCORING = (
    metric_option,
    option(
        "--labels",
        group="Quality",
        type=TRUTH,
        metavar="FILE",
        help="Truth that the metric reads; without one the class of each row: one integer a line, .npy, or a "
        "folder with a folder of pictures for each class (order: its classes.txt).",
    ),
)
"""What both models are scored by."""

GATES = (
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
        "--max-drop",
        group="Quality",
        type=FiniteNumber(),
        metavar="POINTS",
        help="Gate: drop of --metric (percentage points, dB, or % of float's), upper end of its interval.",
    ),
    option(
        "--min-score",
        group="Quality",
        type=FiniteNumber(),
        metavar="SCORE",
        help="Gate: --metric of the quantized model; at most this where lower is better.",
    ),
    option(
        "--max-size", group="Files", type=Size(), metavar="SIZE", help="Gate: size of OUT.onnx, as in 4.5MB."
    ),
)
"""Limits that `qprof quantize` takes too."""

RUNNING = (
    option("--no-latency", group="Speed", is_flag=True, help="Do not measure latency."),
    option(
        "--runtime",
        group="Speed",
        type=Name(lambda: RUNTIMES),
        default="onnxruntime",
        show_default=True,
        help="What runs both models.",
    ),
    option(
        "--provider",
        group="Speed",
        default="cpu",
        show_default=True,
        metavar="NAME",
        help="Its execution provider or device, such as cuda or cuda:1.",
    ),
)
"""What runs both models."""

MIN_SQNR = option(
    "--min-sqnr",
    group="Quality",
    type=FiniteNumber(),
    metavar="DB",
    help="Gate: SQNR of every float output.",
)
MIN_SPEEDUP = option(
    "--min-speedup",
    group="Speed",
    type=FiniteNumber(),
    metavar="X",
    help="Gate: float latency over quantized latency, lower quartile.",
)
THREADS = option(
    "--threads",
    group="Speed",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Threads of the runtime, for both models.",
)

_OPTIONS = (
    *SCORING,
    labelled_output_option,
    class_axis_option,
    MIN_SQNR,
    *GATES,
    option(
        "--baseline",
        group="Files",
        type=EXISTING,
        metavar="FILE",
        help="Gate: not worse than an earlier evaluation, a file of --save-baseline.",
    ),
    option(
        "--slack",
        group="Files",
        multiple=True,
        callback=slack_of,
        metavar="FIGURE=X",
        help="How much worse than the baseline: score (points), sqnr (dB), size (%), speedup (%). Repeatable."
        "  [default: score=0.1, sqnr=0.5, size=1, speedup=15]",
    ),
    option(
        "--save-baseline",
        group="Files",
        type=NEW,
        metavar="FILE",
        help="Write the result as JSON for --baseline.",
    ),
    MIN_SPEEDUP,
    *RUNNING,
    THREADS,
    report_option,
    json_option,
)

evaluation_options = option_list(*_OPTIONS)
"""Add the options; the command takes them as `**options`."""


_LAYERS = (
    option(
        "--plan",
        group="Files",
        type=EXISTING,
        metavar="PLAN.yaml",
        help="Saved plan: adds the kind of each node.",
    ),
    option(
        "--worst",
        group="Basic",
        type=click.IntRange(min=1),
        metavar="N",
        help="Only the N worst, the worst first.",
    ),
    THREADS,
    provider_option,
)

layer_options = option_list(*_LAYERS)
"""Add the options of `qprof compare-layers`; the command takes them as `**options`."""
