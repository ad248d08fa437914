"""The options of `qprof quantize` besides settings: samples, what the result is judged on, and its speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .evaluation import GATES, RUNNING, SCORING
from .files import DATA, EXISTING, NEW
from .groups import option, option_list
from .numbers import FiniteNumber
from .report.saving import report_option
from .shared import class_axis_option, preprocess_option

if TYPE_CHECKING:
    from ...quantizer.api.quantization import SampleSteps
    from ...quantizer.api.quantize_data import Judging
    from ...quantizer.targets.target import Recipe


_OPTIONS = (
    option(
        "--check-speed",
        group="Speed",
        is_flag=True,
        help="Measure latency, and keep what makes the model faster: never slower than float.",
    ),
    option(
        "--data",
        group="Basic",
        type=DATA,
        metavar="DATA",
        help="Samples: folder or file of pictures or arrays, or FILE.py:FUNCTION. Without --profile: profile "
        "them, hold some out, and judge the result. With it: for --check-speed (else made up) or --rounding.",
    ),
    option(
        "--limit",
        group="Basic",
        type=click.IntRange(min=1),
        metavar="N",
        help="Use the first N samples.  [default: all; with --profile 2 for --check-speed]",
    ),
    option(
        "--checkpoint",
        group="Files",
        type=NEW,
        metavar="FILE",
        help="Keep progress of --rounding gptq or gptaq here; the same command resumes after a kill.",
    ),
    option(
        "--threads",
        group="Speed",
        type=click.IntRange(min=1),
        metavar="N",
        help="Threads of onnxruntime, where latency is measured.  [default: 1]",
    ),
    option(
        "--min-speedup",
        group="Speed",
        type=FiniteNumber(),
        metavar="X",
        help="Gate: float latency over quantized latency, lower quartile; with --check-speed or without "
        "--profile.",
    ),
    *SCORING,
    option(
        "--holdout-data",
        group="Basic",
        type=DATA,
        metavar="DATA",
        help="Samples to judge the result on.  [default: a quarter of --data, drawn by content]",
    ),
    option(
        "--scored-output",
        group="Quality",
        metavar="NAME",
        help="Output that the labels belong to.  [default: the first]",
    ),
    class_axis_option,
    option(
        "--min-sqnr",
        "gate_min_sqnr",
        group="Quality",
        type=FiniteNumber(),
        metavar="DB",
        help="Gate: SQNR of every float output, on held-out samples.",
    ),
    *GATES,
    *RUNNING,
    option(
        "--fix",
        group="Quality",
        type=click.Choice(["off", "auto"]),
        help="auto: apply the best fix that was tried, where the result is not good.  [default: off]",
    ),
    option(
        "--budget",
        group="Quality",
        type=FiniteNumber(),
        metavar="SECONDS",
        help="Time for trying fixes, where the result is not good; 0 tries none.  [default: 20]",
    ),
)


_FILES = (
    option(
        "--profile",
        group="Basic",
        type=EXISTING,
        metavar="PROFILE.yaml",
        help="Profile of the model, or calibration data of onnxruntime, TensorRT or Glow.",
    ),
    option(
        "-o", "--output", group="Basic", required=True, type=NEW, metavar="OUT.onnx", help="File to write."
    ),
    option(
        "--save-plan",
        group="Files",
        type=NEW,
        metavar="PLAN.yaml",
        help="Write the plan: every decision.",
    ),
    option("--plan", group="Files", type=EXISTING, metavar="PLAN.yaml", help="Apply this plan instead."),
    report_option,
    option("--accept-retrained", group="Files", is_flag=True, help="Accept a profile of other weights."),
)

_NAMES = ("check_speed", "data", "limit", "checkpoint", "threads", "min_speedup")
_OF_ROUNDING = ("data", "limit", "checkpoint")
_GATES = ("min_group_sqnr", "max_accuracy_drop", "max_drop", "min_score", "max_size")
_JUDGING = (
    *("labels", "metric", "holdout_data", "scored_output", "class_axis", "gate_min_sqnr", *_GATES),
    *("no_latency", "fix", "budget"),
)
_RUNTIME = ("runtime", "provider")
_ROUNDINGS = "--rounding gptq or gptaq"
_BOTH = f"--check-speed, {_ROUNDINGS}"
_PURPOSES = {"data": _BOTH, "limit": _BOTH, "checkpoint": _ROUNDINGS}

file_options = option_list(*_FILES)
"""Add the options of what is read and written besides samples."""

sample_options = option_list(*_OPTIONS, preprocess_option)
"""Add the options; the command hands what it gets to `sample_settings`."""


def sample_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take these options out of `options` and return them, for `samples_for` and `judging_of`."""
    return {name: options.pop(name) for name in (*_NAMES, *_JUDGING, *_RUNTIME)}


def rounds_with_samples(recipe: Recipe | None) -> bool:
    """Whether the settings round weights with samples."""
    return recipe is not None and recipe.config.rounding in ("gptq", "gptaq")


def samples_for(
    given: dict[str, Any], recipe: Recipe | None, *, alone: bool
) -> tuple[Judging | None, SampleSteps]:
    """Return on what the result is judged, None for not at all, and the steps that run samples.

    Args:
        given: by `sample_settings`.
        recipe: the settings.
        alone: whether there is neither a profile nor a plan, so that samples are all there is.

    Raises:
        click.UsageError: an option without what it is for.
    """
    from ...quantizer.api.quantization import SampleSteps

    if alone and given["data"] is not None:
        return _judging(given), SampleSteps(**{name: given[name] for name in _OF_ROUNDING})
    return None, _steps(given, recipe)


def _steps(given: dict[str, Any], recipe: Recipe | None) -> SampleSteps:
    """Return the steps that run samples where there is a profile or a plan."""
    from ...quantizer.api.quantization import SampleSteps
    from ...quantizer.search.float_fallback import SpeedDemand

    rounds = rounds_with_samples(recipe)
    asked_for = [name for name in (*_NAMES, *_JUDGING) if given[name] not in (None, False)]
    for name in (*asked_for, *filter(_was_typed, _RUNTIME)):
        option = f"--{name.removeprefix('gate_').replace('_', '-')}"
        if name in (*_JUDGING, *_RUNTIME):
            raise click.UsageError(
                f"{option} is for --data without --profile, where the result is judged; leave it out, or run "
                "qprof evaluate."
            )
        if not ((name != "checkpoint" and given["check_speed"]) or (name in _OF_ROUNDING and rounds)):
            raise click.UsageError(
                f"{option} is for {_PURPOSES.get(name, '--check-speed')}; add that, or leave it out."
            )
    steps = {name: given[name] for name in _OF_ROUNDING}
    demand = {name: given[name] for name in _NAMES if name not in ("check_speed", "checkpoint")}
    asked = SpeedDemand(**{k: v for k, v in demand.items() if v is not None})
    return SampleSteps(**steps, speed=asked if given["check_speed"] else None)


def _was_typed(name: str) -> bool:
    """Whether an option with a default was given on the command line."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _judging(given: dict[str, Any]) -> Judging:
    """Return on what a result is judged where it is made of samples."""
    from ...quantizer.api.quantize_data import BUDGET, Judging
    from ...quantizer.evaluation.options import QUICK, EvaluationOptions, Gate

    measuring = EvaluationOptions(
        scored_output=given["scored_output"],
        class_axis=given["class_axis"],
        threads=given["threads"] or 1,
        latency=None if given["no_latency"] else QUICK,
        **{name: given[name] for name in ("metric", *_RUNTIME)},
    )
    return Judging(
        labels=given["labels"],
        holdout_data=given["holdout_data"],
        gate=Gate(
            min_sqnr=given["gate_min_sqnr"], **{name: given[name] for name in (*_GATES, "min_speedup")}
        ),
        measuring=measuring,
        check_speed=given["check_speed"],
        fix=given["fix"] or "off",
        budget=BUDGET if given["budget"] is None else given["budget"],
    )
