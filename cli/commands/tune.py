"""`qprof tune`: the best plan that meets a quality target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..console import echo, tell
from ..options.groups import GroupedCommand
from ..options.report.saving import report_option, report_tuning
from ..options.shared import data_option, limit_option, model_argument, recipe_of
from ..options.tuning import tuning_options


@click.command("tune", cls=GroupedCommand)
@model_argument
@data_option
@limit_option
@tuning_options
@report_option
def command(model: Path, profile: Path, as_json: bool, **options: Any) -> None:
    """Find the best plan that meets a quality target, and verify it on held-out samples.

    The target: the score drops by at most --max-drop percentage points. The score is top-1 accuracy with
    --labels, or your own with --metric: a function of a list of outputs (dicts by name) and of the samples'
    indices that returns a number from 0 to 100 for each sample. Else it is top-1 agreement with the float
    model where all outputs end in classes (Softmax, Sigmoid, Gemm), or the correlation with its outputs: 100
    minus half the noise in percent of the signal (SQNR 20 dB is 99.5).

    Exit code 0: the target is met as measured; the last line says whether the samples verify it at 95 %.
    Where held-out samples miss it, plans with less noise are scored on them: as with another --seed, that is
    a second look at the same samples, and no proof. A missed target ends with 1, and OUT.onnx is not written.

    \b
    Example:
      qprof tune model.onnx --profile profile.yaml --data heldout/ --state tune.json -o model.int8.onnx
    """
    from ...quantizer.search.quality import QualityTarget
    from ...quantizer.search.tune import TuneFiles, tune
    from ...quantizer.search.tuning_data import TuningData
    from ..render.tuning import trial_text, tune_json, tune_text

    def taken(kind: type, **renamed: str) -> Any:
        return kind(**{f: options.pop(renamed.get(f, f)) for f in kind.__dataclass_fields__})  # type: ignore[attr-defined]

    target, data = taken(QualityTarget), taken(TuningData)
    files = taken(TuneFiles, model="output_file", plan="save_plan")

    def tell_trial(number: int, trial: Any, resumed: bool) -> None:
        (tell if as_json else echo)(trial_text(number, trial, resumed, target))

    result = tune(model, profile, data, target, recipe=recipe_of(options), files=files, on_trial=tell_trial)
    report_tuning(result, model, profile, files)
    echo(tune_json(result) if as_json else tune_text(result, files.model))
    if not result.target_met:
        click.get_current_context().exit(1)
