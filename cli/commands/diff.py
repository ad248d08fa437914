"""`qprof diff`: has the data drifted?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..console import echo
from ..options.drift import drift_options
from ..options.files import EXISTING
from ..options.groups import GroupedCommand
from ..options.report.saving import report_drift, report_option
from ..options.shared import recipe_of


@click.command("diff", cls=GroupedCommand)
@click.argument("old", type=EXISTING, metavar="OLD.yaml")
@click.argument("new", type=EXISTING, metavar="NEW.yaml")
@drift_options
@report_option
def command(
    old: Path, new: Path, *, worst: int | None, allow_different: bool, as_json: bool, **options: Any
) -> None:
    """Compare two profiles of a model, tensor by tensor, the largest drift first.

    Range growth is the factor by which OLD's range would have to grow to hold NEW's data, clipping rate the
    share of that data that OLD's parameters clip (the baseline: of OLD's own data). The histograms are
    compared by Jensen-Shannon (JS) and Wasserstein distance, the latter as a share of OLD's range. A gate
    that is exceeded ends with exit code 1.

    \b
    Example:
      qprof diff profile.yaml tonight.yaml --model model.onnx --max-clipping 0.001 --max-js-distance 0.3
    """
    from ...quantizer.api.drift import DriftLimits, diff
    from ..render.drift import drift_json, drift_text

    limits = DriftLimits(**{limit: options.pop(limit) for limit in DriftLimits.__dataclass_fields__})
    model, different = options.pop("model"), allow_different
    report = diff(
        old, new, limits=limits, recipe=recipe_of(options), model_path=model, allow_different=different
    )
    report_drift(report)
    echo(drift_json(report, worst) if as_json else drift_text(report, worst or 10))
    if not report.passed:
        click.get_current_context().exit(1)
