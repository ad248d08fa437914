"""`qprof tune`: the best plan that meets a quality target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..console import echo, tell
from ..options.groups import GroupedCommand
from ..options.shared import data_option, limit_option, model_argument, recipe_of
from ..options.tuning import tuning_options


@click.command("tune", cls=GroupedCommand)
@model_argument
@data_option
@limit_option
@tuning_options
def command(model: Path, profile: Path, as_json: bool, **options: Any) -> None:
    """Find the best plan that meets a quality target, and verify it on held-out samples.

    The target: the score drops by at most --max-drop percentage points. The score is top-1 accuracy with
    --labels, or your own with --metric: a function of a list of outputs (dicts by name) and of the samples'
    indices that returns a number from 0 to 100 for each sample. Without either it is top-1 agreement with the
    float model, or for outputs without classes 100 minus the noise in percent of the signal (SQNR 23 dB is
    99.5). One of each two samples is held out, unless --holdout-data names others.

    A target that is missed, on tuning or held-out samples, ends with exit code 1: the best plan is reported,
    and OUT.onnx is not written.

    \b
    Example:
      qprof tune model.onnx --profile profile.yaml --data heldout/ --labels labels.txt --max-drop 0.5 \\
          --objective size --budget 600 --state tune.json --save-plan plan.yaml -o model.int8.onnx
    """
    from ...quantizer.tuning.quality_target import QualityTarget
    from ...quantizer.tuning.tune import TuneFiles, tune
    from ...quantizer.tuning.tuning_data import TuningData
    from ..render.tuning import trial_text, tune_json, tune_text

    def taken(kind: type, **renamed: str) -> Any:
        return kind(**{f: options.pop(renamed.get(f, f)) for f in kind.__dataclass_fields__})  # type: ignore[attr-defined]

    target, data = taken(QualityTarget), taken(TuningData)
    files = taken(TuneFiles, model="output_file", plan="save_plan")
    result = tune(
        model,
        profile,
        data,
        target,
        recipe=recipe_of(options),
        files=files,
        on_trial=lambda n, trial, resumed: (tell if as_json else echo)(trial_text(n, trial, resumed, target)),
    )
    echo(tune_json(result) if as_json else tune_text(result, files.model))
    if not result.target_met:
        click.get_current_context().exit(1)
