"""The options of `qprof report`."""

from __future__ import annotations

from ..evaluation import GATES, MIN_SPEEDUP, MIN_SQNR, RUNNING, SCORING, THREADS
from ..files import DATA, EXISTING, MODEL, REPORT
from ..groups import option, option_list
from ..shared import class_axis_option, limit_option, preprocess_option

_OPTIONS = (
    option(
        "--profile", group="Basic", required=True, type=EXISTING, metavar="PROFILE.yaml", help="Its profile."
    ),
    option(
        "--quantized", group="Basic", type=MODEL, metavar="OUT.onnx", help="Measure this model, on --data."
    ),
    option("--data", group="Basic", type=DATA, metavar="DATA", help="Samples for --quantized."),
    limit_option,
    *SCORING,
    class_axis_option,
    MIN_SQNR,
    *GATES,
    MIN_SPEEDUP,
    *RUNNING,
    THREADS,
    option(
        "--history",
        group="Quality",
        type=EXISTING,
        multiple=True,
        metavar="NEW.yaml",
        help="A profile of newer data, the oldest first: how it drifts. Repeatable.",
    ),
    option(
        "--config", group="Basic", type=EXISTING, metavar="FILE", help="YAML file of a target of your own."
    ),
    option(
        "-o",
        "--output",
        "report_folder",
        group="Files",
        required=True,
        type=REPORT,
        metavar="DIR",
        help="Folder to write.",
    ),
)

report_options = option_list(*_OPTIONS, preprocess_option)
"""Add the options of `qprof report`; the command takes them as `**options`."""
