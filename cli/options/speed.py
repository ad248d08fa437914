"""The options of `qprof quantize` that ask how fast the result is, and those about samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .files import DATA
from .groups import F, option
from .numbers import FiniteNumber

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
        metavar="DIR",
        help="Samples for --check-speed (else made up) or --rounding gptq: a folder, or module:function.",
    ),
    option(
        "--limit",
        group="Speed",
        type=click.IntRange(min=1),
        metavar="N",
        help="Use the first N of these.  [default: 2 for --check-speed, all for --rounding gptq]",
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


def speed_options(function: F) -> F:
    """Add the options; the command hands what it gets to `speed_settings`."""
    for add in reversed(_OPTIONS):
        function = add(function)
    return function


def speed_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take these options out of `options` and return them, for `samples_for`."""
    return {name: options.pop(name) for name in ("check_speed", "data", "limit", "threads", "min_speedup")}


def rounds_with_samples(recipe: Recipe | None) -> bool:
    """Whether the settings round weights with samples."""
    return recipe is not None and recipe.config.rounding == "gptq"


def samples_for(given: dict[str, Any], recipe: Recipe | None) -> dict[str, Any]:
    """Return what the options of `speed_settings` ask of `pipeline.quantize`: data, limit and speed.

    Raises:
        click.UsageError: an option without what it is for.
    """
    source = {name: given[name] for name in ("data", "limit")}
    values = {name: given[name] for name in given if name != "check_speed" and given[name] is not None}
    if not given["check_speed"]:
        for name in values:
            if not (name in source and rounds_with_samples(recipe)):
                also = " or --rounding gptq" if name in source else ""
                raise click.UsageError(
                    f"--{name.replace('_', '-')} is for --check-speed{also}; add that, or leave it out."
                )
        return {**source, "speed": None}
    from ...quantizer.speed.float_fallback import SpeedDemand

    return {**source, "speed": SpeedDemand(**values)}
