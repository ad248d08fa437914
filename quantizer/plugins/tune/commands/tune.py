"""`qprof tune`: the best plan that meets a quality target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .....cli.console import current_run, document, echo, progress, tell
from .....cli.options import (
    EXISTING,
    NEW,
    RARE,
    GroupedCommand,
    data_option,
    json_option,
    model_argument,
    option,
    record_of,
    record_options,
    setting_options,
    take_recipe,
)
from ..tune_options import OBJECTIVES, QualityTarget, TuneOptions

if TYPE_CHECKING:
    from ..trial import Trial
    from ..tune import TuneResult


@click.command(
    "tune",
    cls=GroupedCommand,
    everyday=(
        *("data", "profile", "output", "labels", "metric", "preprocess", "limit", "max_drop", "objective"),
        *("target", "keep_float"),
    ),
)
@model_argument
@data_option
@option(
    "--profile",
    group="Basic",
    type=EXISTING,
    metavar="PROFILE.yaml",
    help="The model's profile.  [default: made from three quarters of --data, as quantize does]",
)
@record_options(TuneOptions, without=("preprocess", "limit", *RARE))
@option(
    "-o",
    "--output",
    group="Basic",
    type=NEW,
    metavar="OUT.onnx",
    help="Quantized model to write.",
)
@setting_options(TuneOptions)
@json_option
def command(
    model: Path,
    profile: Path | None,
    data: str,
    output: Path | None,
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Find and verify the best plan that meets a target.

    The target: the score drops by at most --max-drop percentage points. With --labels the score is top-1
    accuracy. With --metric it is your own: a function of a list of outputs (dicts by name) and of the
    samples' indices that returns a number from 0 to 100 for each sample. Without either it is top-1 agreement
    with the float model if all outputs end in classes (Softmax, Sigmoid, Gemm); if not, the correlation with
    the float outputs: 100 minus half the noise in percent of the signal (SQNR 20 dB is 99.5).

    Exit code 0: the measured score meets the target; the last line says whether the samples verify it at
    95 %. If the target is missed on the held-out or the tuning samples, the exit code is 1, and OUT.onnx is
    not written.

    \b
    Example:
      qprof tune model.onnx --data samples/ -o model.int8.onnx
    """
    from ....prepare.prepare import file_of
    from ....targets.loading import load_recipe
    from ..tune import objective_in_effect, tune

    recipe, file = take_recipe(options) or load_recipe(), file_of(model)
    how = record_of(TuneOptions(), options)
    how = replace(how, objective=objective_in_effect(how, recipe))
    with progress("tuning", "trial") as counted:

        def tell_trial(number: int, trial: Any) -> None:
            if current_run().verbose:
                tell(trial_text(number, trial, how))
            counted(number, None)

        how = replace(how, on_trial=tell_trial)
        result = tune(file, profile, data, output, config=recipe, options=how)
    if as_json:
        echo(document("tuning", 1, result.to_dict()))
    else:
        echo(tune_text(result, output, verbose=current_run().verbose))
    if not result.target_met:
        raise click.exceptions.Exit(1)


def trial_text(number: int, trial: Trial, target: QualityTarget) -> str:
    """Return the line about one trial."""
    from ..tune import value_text

    name = f"{number:>3}  {trial.candidate!s:<40}"
    score = trial.score
    if score is None:
        return f"{name}  failed: {trial.error}"
    unit = {"percentage points": "pp", "% of float's": "%"}.get(score.drop_unit, score.drop_unit)
    met = "met   " if trial.meets(target.max_drop) else "missed"
    value = ""
    if trial.value is not None:
        value = f"  {value_text(trial.value, target.optimised)}"
    elif trial.predicted is not None:
        value = f"  {trial.predicted:.2f} {OBJECTIVES[target.optimised]}, predicted"
    return (
        f"{name}  drop {score.drop:6.2f} {unit} ({score.drop_low:.2f} to {score.drop_high:.2f})  "
        f"{trial.quantized_nodes:>4} nodes quantized  target {met}{value}"
    )


def tune_text(result: TuneResult, output: Path | None, *, verbose: bool) -> str:
    """Return the result for people: whether the target is met, the best plan, its scores, its limits."""
    if not result.target_met:
        unwritten = "" if output is None else f"; {output} was not written"
        missed = "missed" if result.gate == "failed" else "not shown to be met"
        first = f"{result.gate.upper():10} --max-drop {result.target.max_drop:g}: target {missed}{unwritten}"
    elif result.verified:
        first = "result     target met, verified on held-out samples at 95 %"
    elif result.separate_holdout:
        first = "result     target met as measured on held-out samples, but not verified at 95 %"
    else:
        first = "result     target met as measured; not verified, for samples were used before"
    return "\n".join([first, *(f"{name:<10} {text}" for name, text in result.figures(every=verbose))])
