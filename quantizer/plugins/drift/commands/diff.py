"""`qprof diff`: has the data drifted?"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .....cli.console import REPORTER, document, echo, finding_lines, save_report, table
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
from .....profiles.base.findings import Severity, of_severity
from ....targets.config import QuantConfig
from ..limits import DriftLimits

if TYPE_CHECKING:
    from ..drift import DriftReport


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
@option("--model", group="Basic", type=MODEL, metavar="MODEL.onnx", help="Skip tensors that no plan needs.")
@option("--config", group="Basic", type=EXISTING, metavar="FILE", help="YAML settings of OLD's parameters.")
@option(
    "--allow-different",
    group="Basic",
    is_flag=True,
    help="Compare different models, by the names of their tensors.",
)
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
    compared by Jensen-Shannon (JS) distance. If a gate is exceeded or not proven, the exit code is 1.

    \b
    Example:
      qprof diff profile.yaml tonight.yaml --model model.onnx --max-clipping 0.001 --max-js-distance 0.3
    """
    from ..drift import diff

    recipe, known = take_recipe(options), {name: options.pop(name) for name in ("model", "allow_different")}
    result = diff(old, new, config=recipe, limits=record_of(DriftLimits(), options), **known)
    if report is not None:
        save_report(REPORTER.load().drift_report(result), report)
    if as_json:
        worst_tensors = replace(result.drift, tensors=tuple(result.worst(worst)))
        echo(document("drift", 1, replace(result, drift=worst_tensors), passed=result.passed))
    else:
        echo(drift_text(result, worst or 10))
    if not result.passed:
        raise click.exceptions.Exit(1)


def drift_text(report: DriftReport, worst: int) -> str:
    """Return the report for people: notes, a table of the N worst tensors, and the gates."""
    drift, tensors = report.drift, report.worst(worst)
    lines = [
        f"{report.new_profile} against {report.old_profile}: {report.new_samples} samples against "
        f"{report.old_samples}, calibrator {report.calibrator}",
        *(one.line for one in of_severity(report.findings, Severity.WARNING, Severity.NOTE)),
    ]

    # the table; without the baseline where it is 0 for all
    has_baseline = any(tensor.baseline_clipping for tensor in drift.tensors)
    failing = {failure.where for failure in report.failures}
    rows = [
        [
            *("tensor", "OLD", "NEW", "range growth", "clipping rate"),
            *(["baseline clipping"] if has_baseline else []),
            *("JS distance", ""),
        ]
    ]
    for tensor in tensors:
        growth = tensor.range_growth
        rows.append(
            [
                tensor.tensor,
                f"{tensor.old_minimum:.4g} .. {tensor.old_maximum:.4g}",
                f"{tensor.new_minimum:.4g} .. {tensor.new_maximum:.4g}",
                f"{growth:.3f}" if growth < 1e6 else f"{growth:.3g}",
                _share_text(tensor.clipping_rate),
                *([_share_text(tensor.baseline_clipping)] if has_baseline else []),
                _share_text(tensor.js_distance),
                "!" if tensor.tensor in failing else "",
            ]
        )
    lines += ["", *table(rows, left=(0, len(rows[0]) - 1))]
    if len(tensors) < len(drift.tensors):
        lines.append(f"... and {len(drift.tensors) - len(tensors)} that drifted less")
    if left_out := report.left_out:
        most = max(left_out, key=lambda t: math.inf if t.js_distance is None else t.js_distance)
        largest = f"largest JS distance {_share_text(most.js_distance)} ('{most.tensor}')"
        lines.append(f"{len(left_out)} tensors that no plan of {report.model} needs are left out; {largest}")

    # a line for each limit that is not met, or not proven
    if report.gated:
        lines += ["", *([] if report.failures else ["gate       passed"])]
    alarms = of_severity(report.findings, Severity.ALARM)
    lines += finding_lines(alarms)
    return "\n".join(lines)


def _share_text(value: float | None) -> str:
    """Return a number of some digits; "0" is exact, "-" could not be measured."""
    if value is None:
        return "-"
    if value == 0.0:
        return "0"
    return f"{value:.4f}" if 0.0001 <= value < 1e4 else f"{value:.2g}"
