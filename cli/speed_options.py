"""The options of `qprof quantize` that ask how fast the result is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import F

if TYPE_CHECKING:
    from ..quantizer.speed.check_speed import SpeedDemand

_OPTIONS = (
    click.option(
        "--check-speed", is_flag=True, help="Measure, and take back to float what is slower in integers."
    ),
    click.option("--data", metavar="DIR", help="With --check-speed: samples, or module:function."),
    click.option(
        "--limit",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --check-speed: use N samples.  [default: 2]",
    ),
    click.option(
        "--threads", type=click.IntRange(min=1), metavar="N", help="With --check-speed.  [default: 1]"
    ),
    click.option(
        "--min-speedup", type=float, metavar="X", help="With --check-speed, a gate: float latency over int8."
    ),
)


def speed_options(function: F) -> F:
    """Add the options; the command hands what it gets to `demand_of`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def demand_of(options: dict[str, Any]) -> SpeedDemand | None:
    """Take these options out of `options` and return what they ask for; None without --check-speed.

    Raises:
        click.UsageError: one of them without --check-speed, or that without --data.
    """
    asked = options.pop("check_speed")
    given = {name: options.pop(name) for name in ("data", "limit", "threads", "min_speedup")}
    given = {name: value for name, value in given.items() if value is not None}
    if not asked:
        for name in given:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for --check-speed; add that, or leave it out."
            )
        return None
    if "data" not in given:
        raise click.UsageError("Missing option '--data': --check-speed runs the model on samples.")
    from ..quantizer.speed.check_speed import SpeedDemand

    return SpeedDemand(**given)
