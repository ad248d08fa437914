"""The options of `qprof quantize` that ask how fast the result is, and those about samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .files import DATA, NEW
from .groups import F, option
from .numbers import FiniteNumber
from .shared import preprocess_option

if TYPE_CHECKING:
    from ...quantizer.targets.target import Recipe


_OPTIONS = (
    option(
        "--check-speed",
        group="Speed",
        is_flag=True,
        help="Measure latency, and keep what makes the model faster: never slower than float.",
    ),
    option(
        "--data",
        group="Speed",
        type=DATA,
        metavar="DATA",
        help="Samples for --check-speed (else made up) or --rounding: a folder or file, or FILE.py:FUNCTION.",
    ),
    option(
        "--limit",
        group="Speed",
        type=click.IntRange(min=1),
        metavar="N",
        help="Use the first N of these.  [default: 2 for --check-speed, all for --rounding]",
    ),
    option(
        "--checkpoint",
        group="Files",
        type=NEW,
        metavar="FILE",
        help="Keep progress of --rounding gptq or gptaq here; the same command resumes after a kill.",
    ),
    option(
        "--threads",
        group="Speed",
        type=click.IntRange(min=1),
        metavar="N",
        help="Threads of onnxruntime, for --check-speed.  [default: 1]",
    ),
    option(
        "--min-speedup",
        group="Speed",
        type=FiniteNumber(),
        metavar="X",
        help="Gate, with --check-speed: float latency over quantized latency, lower quartile.",
    ),
)


_NAMES = ("check_speed", "data", "limit", "checkpoint", "threads", "min_speedup")
_OF_ROUNDING = ("data", "limit", "checkpoint")
_ROUNDINGS = "--rounding gptq or gptaq"
_BOTH = f"--check-speed, {_ROUNDINGS}"
_PURPOSES = {"data": _BOTH, "limit": _BOTH, "checkpoint": _ROUNDINGS}


def speed_options(function: F) -> F:
    """Add the options; the command hands what it gets to `speed_settings`."""
    function = preprocess_option(function)
    for add in reversed(_OPTIONS):
        function = add(function)
    return function


def speed_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take these options out of `options` and return them, for `samples_for`."""
    return {name: options.pop(name) for name in _NAMES}


def rounds_with_samples(recipe: Recipe | None) -> bool:
    """Whether the settings round weights with samples."""
    return recipe is not None and recipe.config.rounding in ("gptq", "gptaq")


def samples_for(given: dict[str, Any], recipe: Recipe | None) -> dict[str, Any]:
    """Return what the options of `speed_settings` ask of `SampleSteps`: all but progress.

    Raises:
        click.UsageError: an option without what it is for.
    """
    rounds = rounds_with_samples(recipe)
    for name in (name for name, value in given.items() if value not in (None, False)):
        if not ((name != "checkpoint" and given["check_speed"]) or (name in _OF_ROUNDING and rounds)):
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for {_PURPOSES.get(name, '--check-speed')}; "
                "add that, or leave it out."
            )
    steps = {name: given[name] for name in _OF_ROUNDING}
    if not given["check_speed"]:
        return {**steps, "speed": None}
    from ...quantizer.speed.float_fallback import SpeedDemand

    demand = {name: given[name] for name in _NAMES if name not in ("check_speed", "checkpoint")}
    return {**steps, "speed": SpeedDemand(**{k: v for k, v in demand.items() if v is not None})}
