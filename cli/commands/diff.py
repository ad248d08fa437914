"""`qprof diff`: has the data drifted?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options.shared import EXISTING, Name, json_option, recipe_of


def _calibrators() -> tuple[str, ...]:
    from ...quantizer.ranges.calibrators import CALIBRATORS

    return tuple(CALIBRATORS)


@click.command("diff")
@click.argument("old", type=EXISTING, metavar="OLD.yaml")
@click.argument("new", type=EXISTING, metavar="NEW.yaml")
@click.option("--max-clipped", type=float, metavar="SHARE", help="Gate: of NEW, outside OLD's parameters.")
@click.option("--max-range-growth", type=float, metavar="FACTOR", help="Gate: of OLD's range to hold NEW.")
@click.option("--max-distance", type=float, metavar="D", help="Gate: Jensen-Shannon distance, 0 to 1.")
@click.option("--max-wasserstein", type=float, metavar="SHARE", help="Gate: mean move, of OLD's range.")
@click.option("--max-non-finite", type=float, metavar="SHARE", help="Gate: NaN and Inf in NEW.")
@click.option(
    "--worst", type=click.IntRange(min=1), metavar="N", help="Only the worst.  [default: 10; JSON: all]"
)
@click.option("--config", type=EXISTING, metavar="FILE", help="YAML settings that gave OLD's parameters.")
@click.option("--calibrator", type=Name(_calibrators), help="The one that gave OLD's parameters.")
@click.option("--allow-different", is_flag=True, help="Compare models that differ, by names of tensors.")
@json_option
def command(
    old: Path, new: Path, *, worst: int | None, allow_different: bool, as_json: bool, **options: Any
) -> None:
    """Compare two profiles of a model, tensor by tensor, and tell which drifted most.

    Of NEW's data: the share that OLD's parameters would clip, by how much the range would have to grow,
    and the distance of the histograms (Jensen-Shannon, and Wasserstein as a share of OLD's range). A gate
    that is not met ends with exit code 1. --max-clipped is about more than OLD's own data loses.

    \b
    Example:
      qprof diff profile.yaml tonight.yaml --max-clipped 0.001 --max-range-growth 1.5 --max-distance 0.3
    """
    from ...quantizer.pipeline.drift_check import DriftLimits, diff
    from ..render.drift import drift_json, drift_text

    limits = DriftLimits(**{limit: options.pop(limit) for limit in DriftLimits.__dataclass_fields__})
    found = diff(old, new, limits=limits, recipe=recipe_of(options), allow_different=allow_different)
    click.echo(drift_json(found, worst) if as_json else drift_text(found, worst or 10))
    if not found.passed:
        click.get_current_context().exit(1)
