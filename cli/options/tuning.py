"""The options of `qprof tune` besides model, profile and data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from .shared import EXISTING, NEW, Name, json_option, setting_options

F = TypeVar("F", bound=Callable[..., Any])


def _objectives() -> Iterable[str]:
    from ...quantizer.tuning.quality_target import OBJECTIVES

    return OBJECTIVES


_OPTIONS = (
    click.option("--labels", type=EXISTING, metavar="FILE", help="Class of each row: text lines, or .npy."),
    click.option("--output", metavar="NAME", help="Output that the labels belong to.  [default: the first]"),
    click.option("--metric", metavar="MODULE:FUNCTION", help="Metric of your own."),
    click.option("--holdout-data", metavar="DIR", help="Held-out samples.  [default: half of --data]"),
    click.option("--holdout-labels", type=EXISTING, metavar="FILE", help="Labels of --holdout-data."),
    click.option(
        "--max-drop",
        type=float,
        default=0.5,
        show_default=True,
        metavar="PP",
        help="Quality target: largest drop of the score, in percentage points.",
    ),
    click.option(
        "--objective",
        type=Name(_objectives),
        default="latency",
        show_default=True,
        help="What to optimise among the plans that meet the target.",
    ),
    click.option("--budget", type=float, metavar="SECONDS", help="No new trial starts after this time."),
    click.option("--seed", type=int, default=0, show_default=True, help="Of the random hold-out split."),
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Of the latency measurement.",
    ),
    click.option("-o", "--output-file", type=NEW, metavar="OUT.onnx", help="Quantized model to write."),
    click.option("--save-plan", type=NEW, metavar="PLAN.yaml", help="Write the best plan."),
    click.option(
        "--state", type=NEW, metavar="FILE.json", help="Keep the trials here, and resume from them."
    ),
    setting_options,
    json_option,
)


def tuning_options(function: F) -> F:
    """Add the options; the command takes them as `**options`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
