"""The options of `qprof dump-profile` besides model and data; most are fields of `RunSettings`."""

from __future__ import annotations

import click

from .files import NEW, default_profile
from .groups import option, option_list
from .numbers import FiniteNumber
from .shared import provider_option

MAX_NON_FINITE = 0.9
"""Share of the elements of a tensor up to which NaN and Inf are no failure; DECISIONS.md says why."""

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _bytes(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Return the number of bytes that 3000000, 500M or 1.5GB mean; units are powers of 1024."""
    if value is None:
        return None
    text = value.strip().lower().removesuffix("b").removesuffix("i")
    unit = text[-1:] if text[-1:] in UNITS else ""
    try:
        number = float(text.removesuffix(unit)) * UNITS[unit]
    except ValueError:
        number = 0.0
    if not 1.0 <= number < 1 << 60:
        raise click.BadParameter(f"'{value}' is not a size; write it like 500M or 1.5G")
    return int(number)


def _no_workers(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "--workers: one process takes all cores; use --threads N, --scheduler ADDRESS for a Dask cluster "
            "('dask scheduler', 'dask worker ADDRESS'), or profile parts of the data and 'qprof merge' them"
        )


_OPTIONS = (
    option(
        "-o",
        "--output",
        group="Basic",
        type=NEW,
        callback=default_profile,
        metavar="PROFILE.yaml",
        help="Default: MODEL.profile.yaml, here.",
    ),
    option(
        "--format",
        group="Output format",
        type=click.Choice(["qprof", "glow"]),
        default="qprof",
        show_default=True,
        help="qprof's own YAML, or Glow's.",
    ),
    option(
        "--non-finite",
        group="Quality",
        type=click.Choice(["error", "skip"]),
        default="skip",
        show_default=True,
        help="Leave NaN and Inf out and report them, or stop at the first.",
    ),
    option(
        "--max-non-finite",
        group="Quality",
        type=FiniteNumber(0, 1),
        default=MAX_NON_FINITE,
        show_default=True,
        metavar="SHARE",
        help="Gate: share of NaN and Inf in the worst tensor.",
    ),
    option(
        "--threads",
        group="Speed",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Samples that run at the same time; 0 for one per core.",
    ),
    option(
        "--tensors",
        group="Calibration and precision",
        type=click.Choice(["all", "needed"]),
        default="all",
        show_default=True,
        help="Every float activation, or those that some plan can need.",
    ),
    option(
        "--channels",
        group="Calibration and precision",
        type=click.Choice(["weighted-layers", "off"]),
        default="weighted-layers",
        show_default=True,
        help="Record every channel of the inputs of weighted layers (Conv, MatMul, Gemm).",
    ),
    option(
        "--by-row",
        group="Quality",
        is_flag=True,
        help="Run the rows of a batch one by one: same bytes however the data are batched.",
    ),
    option(
        "--noise-samples",
        group="Quality",
        type=click.IntRange(min=0),
        default=8,
        show_default=True,
        metavar="N",
        help="Samples on which it is measured how noise travels; 0 for none.",
    ),
    provider_option,
    option(
        "--memory-limit",
        group="Speed",
        callback=_bytes,
        metavar="SIZE",
        help="Stay below, as in 2G: fewer samples at once, then several passes.",
    ),
    option(
        "--checkpoint",
        group="Files",
        type=NEW,
        metavar="FILE",
        help="Keep progress in this file; the same command resumes after a kill.",
    ),
    option(
        "--every",
        group="Files",
        type=FiniteNumber(min=0),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="Time between two writes of the checkpoint.",
    ),
    option(
        "--workers",
        group="Speed",
        hidden=True,
        expose_value=False,
        callback=_no_workers,
        help="Refused: it says what to type.",
    ),
    option(
        "--scheduler",
        group="Speed",
        metavar="ADDRESS",
        help="Share the samples among the workers of a Dask scheduler that you trust: see SECURITY.md.",
    ),
)

run_options = option_list(*_OPTIONS)
"""Add the options; the command takes them as `**options`."""
