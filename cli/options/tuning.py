"""The options of `qprof tune` besides model, profile and data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .shared import EXISTING, NEW, Name, json_option, setting_options

F = TypeVar("F", bound=Callable[..., Any])


OBJECTIVES = ("latency", "size", "integer-share")
"""Those of `quantizer.tuning.trial`, which is slow to import; a test compares them."""

_OPTIONS = (
    click.option("--labels", type=EXISTING, metavar="FILE", help="Class of each row: text lines, or .npy."),
    click.option("--output", metavar="NAME", help="Output that the labels belong to.  [default: the first]"),
    click.option("--metric", metavar="MODULE:FUNCTION", help="Scores of your own."),
    click.option("--proof-data", metavar="DIR", help="Samples for the proof.  [default: half of --data]"),
    click.option("--proof-labels", type=EXISTING, metavar="FILE", help="Their labels."),
    click.option(
        "--max-drop",
        type=float,
        default=0.5,
        show_default=True,
        metavar="POINTS",
        help="The promise: what may be lost.",
    ),
    click.option(
        "--objective",
        type=Name(lambda: OBJECTIVES),
        default="latency",
        show_default=True,
        help="What is made as good as possible.",
    ),
    click.option("--budget", type=float, metavar="SECONDS", help="Nothing new is tried after this time."),
    click.option("--seed", type=int, default=0, show_default=True, help="Of what is held out."),
    click.option(
        "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="For the latency."
    ),
    click.option("-o", "--output-file", type=NEW, metavar="OUT.onnx", help="Quantized model to write."),
    click.option("--save-plan", type=NEW, metavar="PLAN.yaml", help="Write the best plan."),
    click.option("--state", type=NEW, metavar="FILE.json", help="Keep the trials; go on where it stopped."),
    setting_options,
    json_option,
)


def promise_options(function: F) -> F:
    """Add the options; the command takes them as `**options`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
