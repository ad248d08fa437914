"""The options of `qprof tune` besides model and data."""

from __future__ import annotations

import click

from .files import DATA, EXISTING, NEW, TRUTH
from .groups import option, option_list
from .numbers import FiniteNumber
from .shared import (
    Name,
    class_axis_option,
    json_option,
    labelled_output_option,
    metric_option,
    provider_option,
    setting_options,
)

OBJECTIVES = ("latency", "size", "int8-share")
"""Those of `quantizer.search.quality`, which is slow to import; a test compares them."""

_OPTIONS = (
    option(
        "--profile",
        group="Basic",
        required=True,
        type=EXISTING,
        metavar="PROFILE.yaml",
        help="The model's profile.",
    ),
    option(
        "--labels",
        group="Quality",
        type=TRUTH,
        metavar="FILE",
        help="Truth that the metric reads; without a metric the class of each sample: text, .npy, or a "
        "folder with a folder of pictures for each class (order: its classes.txt).",
    ),
    labelled_output_option,
    class_axis_option,
    metric_option,
    option(
        "--holdout-data",
        group="Quality",
        type=DATA,
        metavar="DATA",
        help="Samples that verify the result.  [default: half of --data is held out]",
    ),
    option("--holdout-labels", group="Quality", type=TRUTH, metavar="FILE", help="Labels of --holdout-data."),
    option(
        "--max-drop",
        group="Quality",
        type=FiniteNumber(),
        default=0.5,
        show_default=True,
        metavar="POINTS",
        help="Quality target: points that may be lost; dB, or % of float's, where the metric has them.",
    ),
    option(
        "--objective",
        group="Basic",
        type=Name(lambda: OBJECTIVES),
        default="latency",
        show_default=True,
        help="What is optimised while the quality target is met.",
    ),
    option(
        "--budget",
        group="Speed",
        type=FiniteNumber(),
        metavar="SECONDS",
        help="No new trial starts after this time.",
    ),
    option(
        "--seed", group="Quality", type=int, default=0, show_default=True, help="Chooses what is held out."
    ),
    option(
        "--threads",
        group="Speed",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="Threads of onnxruntime, for the latency.",
    ),
    option(
        "--parallel",
        group="Speed",
        type=click.IntRange(min=0, max=256),
        default=0,
        metavar="N",
        help="Trials that run side by side.  [default: one for each core]",
    ),
    option(
        "-o", "--output-file", group="Basic", type=NEW, metavar="OUT.onnx", help="Quantized model to write."
    ),
    option("--save-plan", group="Files", type=NEW, metavar="PLAN.yaml", help="Write the best plan."),
    option("--state", group="Files", type=NEW, metavar="FILE.json", help="Keep the trials here, to resume."),
    provider_option,
    setting_options,
    json_option,
)

tuning_options = option_list(*_OPTIONS)
"""Add the options; the command takes them as `**options`."""
