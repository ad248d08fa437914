"""`qprof tune`: the plan that keeps a promise, with its proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options.shared import EXISTING, check_outputs, data_option, limit_option, model_argument, recipe_of
from ..options.tuning import promise_options


@click.command("tune")
@model_argument
@click.option("--profile", required=True, type=EXISTING, metavar="PROFILE.yaml", help="The model's profile.")
@data_option
@limit_option
@promise_options
def command(model: Path, profile: Path, as_json: bool, **options: Any) -> None:
    """Find the plan that keeps a promise at the best objective, and prove it.

    The promise: at most --max-drop points are lost of top-1 accuracy with --labels; of your own metric with
    --metric, a function of a list of outputs (dicts by name) and of the samples' indices that returns a score
    from 0 to 100 for each. Without either, of the answers (largest class) that are float's; for outputs
    without classes, of their energy (0.5 points of noise are 23 dB). One of each two samples is held out
    for the proof, unless --proof-data names others.

    A promise that is not kept, in tuning or in the proof, ends with exit code 1: OUT.onnx is not written
    then, and the best plan that was found is reported.

    \b
    Example:
      qprof tune model.onnx --profile profile.yaml --data heldout/ --labels labels.txt --max-drop 0.5 \\
          --objective size --budget 600 --state tune.json --save-plan plan.yaml -o model.int8.onnx
    """
    from ...quantizer.tuning.evidence import Evidence
    from ...quantizer.tuning.result import Promise
    from ...quantizer.tuning.tune import Files, tune
    from ..render.tuning import trial_text, tune_json, tune_text

    def taken(kind: type, **renamed: str) -> Any:
        return kind(**{f: options.pop(renamed.get(f, f)) for f in kind.__dataclass_fields__})  # type: ignore[attr-defined]

    promise, evidence = taken(Promise), taken(Evidence)
    files = taken(Files, model="output_file", plan="save_plan")
    check_outputs([files.model, files.plan, files.state], [model, profile, evidence.labels])
    found = tune(
        model,
        profile,
        evidence,
        promise,
        recipe=recipe_of(options),
        files=files,
        on_trial=lambda n, trial, known: click.echo(trial_text(n, trial, known, promise), err=as_json),
    )
    click.echo(tune_json(found) if as_json else tune_text(found, files.model))
    if not found.kept:
        click.get_current_context().exit(1)
