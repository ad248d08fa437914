"""`qprof diff`: has the data drifted?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...profiles.base.options import options_of
from ...quantizer.api.options import DriftLimits
from ...quantizer.targets.config import QuantConfig
from ..console import add_finding, document, echo, save_report, table
from ..options import (
    EXISTING,
    MODEL,
    GroupedCommand,
    given_options,
    json_option,
    option,
    record_options,
    report_option,
    take_recipe,
)

if TYPE_CHECKING:
    from ...profiles.records.drift import TensorDrift
    from ...quantizer.api.drift import DriftReport
    from ...quantizer.evaluation.gates import GateFailure


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
    "--model", group="Basic", type=MODEL, metavar="MODEL.onnx", help="Leave out tensors that no plan needs."
)
@option("--config", group="Basic", type=EXISTING, metavar="FILE", help="YAML settings of OLD's parameters.")
@option(
    "--allow-different", group="Basic", is_flag=True, help="Compare models that differ, by names of tensors."
)
@record_options(QuantConfig, "calibrator", shows_defaults=False)
@record_options(DriftLimits)
@json_option
@report_option
def command(
    old: Path, new: Path, *, worst: int | None, as_json: bool, report: Path | None, **options: Any
) -> None:
    """Compare two profiles of a model, the largest drift first.

    Range growth is the factor by which OLD's range would have to grow to hold NEW's data, clipping rate the
    share of that data that OLD's parameters clip (the baseline: of OLD's own data). The histograms are
    compared by Jensen-Shannon (JS) and Wasserstein distance, the latter as a share of OLD's range. A gate
    that is exceeded, or not proven, ends with exit code 1.

    \b
    Example:
      qprof diff profile.yaml tonight.yaml --model model.onnx --max-clipping 0.001 --max-js-distance 0.3
    """
    from ...quantizer.api.drift import diff

    recipe = take_recipe(options)
    result = diff(old, new, target=recipe, **given_options(options))
    if report is not None:
        from ...quantizer.report.report import drift_report

        save_report(drift_report(result), report)
    if as_json:
        worst_tensors = replace(result.drift, tensors=tuple(result.worst(worst)))
        echo(document("drift", 1, replace(result, drift=worst_tensors), passed=result.passed))
    else:
        echo(drift_text(result, worst or 10))
    if not result.passed:
        tensors = {tensor.tensor for tensor in result.drift.tensors}
        add_finding(drifted=next((f.where for f in result.failures if f.where in tensors), ""))
        raise click.exceptions.Exit(1)


HEADER = [
    *("tensor", "OLD", "NEW", "range growth", "clipping rate", "baseline clipping"),
    *("JS distance", "Wasserstein", ""),
]
BASELINE = HEADER.index("baseline clipping")
FEW = 3
"""Number of names that are listed where there may be many."""


def drift_text(report: DriftReport, worst: int) -> str:
    """Return the report for people: notes, a table of the N worst tensors, and the gates."""
    drift, tensors = report.drift, report.worst(worst)
    failing = {failure.where for failure in report.failures}
    rows = [HEADER, *([*_cells(tensor), "!" if tensor.tensor in failing else ""] for tensor in tensors)]
    if not any(tensor.baseline_clipping for tensor in drift.tensors):
        rows = [[*row[:BASELINE], *row[BASELINE + 1 :]] for row in rows]
    lines = [
        f"{report.new_profile} against {report.old_profile}: {report.new_samples} samples against "
        f"{report.old_samples}, calibrator {report.calibrator}",
        *(f"note: {note}" for note in drift.notes),
        *_names("NEW alone holds", drift.appeared),
        *_names("OLD alone holds", drift.vanished),
        *_non_finite(drift.tensors),
        "",
        *table(rows, left=(0, len(rows[0]) - 1)),
    ]
    if len(tensors) < len(drift.tensors):
        lines.append(f"... and {len(drift.tensors) - len(tensors)} that drifted less")
    lines += _left_out(report)
    if report.gated:
        lines += ["", *(_failures(report.failures) if report.failures else ["gate       passed"])]
    return "\n".join(lines)


def _left_out(report: DriftReport) -> Iterator[str]:
    """Yield one line about the tensors that are not in the table."""
    if not report.left_out:
        return
    worst = max(report.left_out, key=lambda t: math.inf if t.js_distance is None else t.js_distance)
    largest = f"largest JS distance {_share(worst.js_distance)} ('{worst.tensor}')"
    if report.model is None:
        yield (
            f"{len(report.left_out)} small tensors without a batch axis (shape arithmetic) are not listed; "
            f"{largest}; --model leaves them out of the gates too"
        )
    else:
        yield f"{len(report.left_out)} tensors that no plan of {report.model} needs are left out; {largest}"


def _cells(t: TensorDrift) -> list[str]:
    return [
        t.tensor,
        f"{t.old_minimum:.4g} .. {t.old_maximum:.4g}",
        f"{t.new_minimum:.4g} .. {t.new_maximum:.4g}",
        f"{t.range_growth:.3f}" if t.range_growth < 1e6 else f"{t.range_growth:.3g}",
        _share(t.clipping_rate),
        _share(t.baseline_clipping),
        _share(t.js_distance),
        _share(t.wasserstein),
    ]


def _share(value: float | None) -> str:
    """Return a number of some digits; "0" is exact, "-" could not be measured."""
    if value is None:
        return "-"
    if value == 0.0:
        return "0"
    return f"{value:.4f}" if 0.0001 <= value < 1e4 else f"{value:.2g}"


def _names(what: str, names: tuple[str, ...]) -> Iterator[str]:
    if names:
        few = ", ".join(names[:FEW]) + (", ..." if len(names) > FEW else "")
        yield f"note: {what} {len(names)} tensors: {few}"


def _non_finite(tensors: Iterable[TensorDrift]) -> Iterator[str]:
    non_finite = sorted((t for t in tensors if t.non_finite), key=lambda t: -t.non_finite)
    if non_finite:
        worst = non_finite[0]
        yield (
            f"note: NaN or Inf in {len(non_finite)} tensors of NEW; worst '{worst.tensor}': "
            f"{_share(worst.non_finite)} of its elements"
        )


def _failures(failures: Iterable[GateFailure]) -> Iterator[str]:
    """Yield a line for each limit that is not met, and one for each that is not proven."""
    for (demand, limit, result), group in groupby(failures, lambda f: (f.demand, f.limit, f.result)):
        members = list(group)
        worst = members[0]
        value = worst.reason if worst.measured is None else f"{worst.measured:.4g}"
        many = f"{len(members)} tensors, the worst " if len(members) > 1 else "tensor "
        where = f"{many}'{worst.where}': " if worst.where else ""
        flag = options_of(DriftLimits)[demand].flag
        yield f"{result.upper():10} {flag} {limit:g}: {where}{value}"
