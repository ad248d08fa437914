"""The options of `qprof diff`; the gates are the fields of `DriftLimits`."""

from __future__ import annotations

import click

from .files import EXISTING, MODEL
from .groups import option, option_list
from .numbers import FiniteNumber
from .shared import calibrator_option, json_option

_OPTIONS = (
    option(
        "--worst",
        group="Basic",
        type=click.IntRange(min=1),
        metavar="N",
        help="Only the worst N.  [default: 10; JSON: all]",
    ),
    option(
        "--model",
        group="Basic",
        type=MODEL,
        metavar="MODEL.onnx",
        help="Leave out tensors that no plan needs.",
    ),
    option(
        "--config", group="Basic", type=EXISTING, metavar="FILE", help="YAML settings of OLD's parameters."
    ),
    option(
        "--allow-different",
        group="Basic",
        is_flag=True,
        help="Compare models that differ, by names of tensors.",
    ),
    calibrator_option,
    option(
        "--max-clipping",
        group="Quality",
        type=FiniteNumber(),
        metavar="SHARE",
        help="Gate: clipping rate above the baseline.",
    ),
    option(
        "--max-range-growth",
        group="Quality",
        type=FiniteNumber(),
        metavar="FACTOR",
        help="Gate: range growth.",
    ),
    option(
        "--max-js-distance",
        group="Quality",
        type=FiniteNumber(),
        metavar="D",
        help="Gate: Jensen-Shannon distance, 0 to 1.",
    ),
    option(
        "--max-wasserstein",
        group="Quality",
        type=FiniteNumber(),
        metavar="SHARE",
        help="Gate: Wasserstein distance.",
    ),
    option(
        "--max-non-finite",
        group="Quality",
        type=FiniteNumber(),
        metavar="SHARE",
        help="Gate: share of NaN and Inf.",
    ),
    json_option,
)

drift_options = option_list(*_OPTIONS)
"""Add the options; the command takes them as `**options`."""
