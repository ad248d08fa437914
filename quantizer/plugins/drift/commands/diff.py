"""`qprof diff`: has the data drifted?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .....cli.console import REPORTER, document, echo, result_text, save_report
from .....cli.options import (
    EXISTING,
    MODEL,
    GroupedCommand,
    json_option,
    option,
    record_of,
    record_options,
    report_option,
    take_recipe,
)
from ....targets.config import QuantConfig
from ..limits import DriftLimits


@click.command("diff", cls=GroupedCommand)
@click.argument("old", type=EXISTING, metavar="OLD.yaml")
@click.argument("new", type=EXISTING, metavar="NEW.yaml")
@option(
    "--worst",
    group="Basic",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the worst N.  [default: 10; JSON: all]",
)
@option(
    "--model",
    group="Basic",
    type=MODEL,
    metavar="MODEL.onnx",
    help="Skip tensors that no plan needs, except inputs.",
)
@option("--config", group="Basic", type=EXISTING, metavar="FILE", help="YAML settings of OLD's parameters.")
@record_options(QuantConfig, "calibrator", shows_defaults=False)
@record_options(DriftLimits)
@json_option
@report_option
def command(
    old: Path, new: Path, *, worst: int | None, as_json: bool, report: Path | None, **options: Any
) -> None:
    """Compare two profiles of a model, the largest drift first.

    Range growth is the factor by which OLD's range must grow to contain NEW's data. Clipping rate is the
    fraction of NEW's data that OLD's parameters clip (baseline: the same for OLD's data). Histograms are
    compared by Jensen-Shannon (JS) distance, and the channels that Conv, MatMul and Gemm read (such as the
    columns of a table) by their means. If a gate is exceeded or not proven, the exit code is 1.

    \b
    Example:
      qprof diff profile.yaml tonight.yaml --model model.onnx --max-clipping 0.001 --max-js-distance 0.3
    """
    from ..drift import diff

    recipe, float_model = take_recipe(options), options.pop("model")
    result = diff(old, new, config=recipe, model=float_model, limits=record_of(DriftLimits(), options))
    if report is not None:
        save_report(REPORTER.load().drift_report(result), report)
    if as_json:
        echo(document("drift", 1, replace(result, tensors=result.worst(worst)), passed=result.passed))
    else:
        echo(result_text(result, rows=worst or 10))
    if not result.passed:
        raise click.exceptions.Exit(1)
