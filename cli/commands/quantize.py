"""`qprof quantize`: write a quantized model from a float model and its profile, or from samples."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...profiles.base.options import options_of
from ...profiles.base.presentation import size_text
from ...quantizer.api.options import OF_JUDGING, QuantizeOptions
from ...quantizer.api.precision import MIXED, PRECISIONS
from ...quantizer.evaluation.options import Gate
from ...quantizer.targets.config import QuantConfig
from ..console import (
    Stages,
    add_finding,
    arguments,
    document,
    echo,
    on_demand,
    save_report,
    shown_arguments,
)
from ..options import (
    DATA,
    EXISTING,
    NEW,
    GroupedCommand,
    given,
    json_option,
    model_argument,
    no_latency_option,
    option,
    record_options,
    report_option,
    setting_options,
    taken_recipe,
)

if TYPE_CHECKING:
    from ...quantizer.api.results import QuantizeResult
    from ...quantizer.search.proposals import Fix
    from ...quantizer.search.speed_check import SpeedCheck
    from ...quantizer.search.verdict import Judged, Verdict
    from ...quantizer.targets.target import Recipe


@click.command(
    "quantize",
    cls=GroupedCommand,
    everyday=(
        *("data", "profile", "output", "precision", "target", "labels", "metric", "preprocess", "limit"),
        *("gate_max_accuracy_drop", "check_speed", "keep_float", "config", "lines", "report"),
    ),
)
@model_argument
@option(
    "--profile",
    group="Basic",
    type=EXISTING,
    metavar="PROFILE.yaml",
    help="Profile of the model, or calibration data of onnxruntime, TensorRT or Glow.",
)
@option(
    "--data",
    group="Basic",
    type=DATA,
    metavar="DATA",
    help="Samples: folder or file of pictures or arrays, or FILE.py:FUNCTION. Without --profile: profile "
    "them, hold some out, and judge the result. With it: for --check-speed (else made up) or --rounding.",
)
@option("-o", "--output", group="Basic", required=True, type=NEW, metavar="OUT.onnx", help="File to write.")
@setting_options
@record_options(QuantizeOptions)
@record_options(Gate, prefix="gate_")
@no_latency_option
@option(
    "--check-speed",
    group="Speed",
    is_flag=True,
    help="Measure latency, and keep what makes the model faster: never slower than float.",
)
@option("--plan", group="Files", type=EXISTING, metavar="PLAN.yaml", help="Apply this plan instead.")
@report_option
@json_option
def command(
    *,
    model: Path,
    profile: Path | None,
    output: Path,
    plan: Path | None,
    data: str | None,
    check_speed: bool,
    report: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Quantize a model, from samples or from its profile.

    With --data and no --profile everything is done: samples are profiled (profile and plan stay beside OUT
    for the next time), a quarter is held out, the result is judged on these, and what to try is told.
    --as int8-dynamic and --as weight-only-8 or weight-only-4 need neither.

    \b
    Examples:
      qprof quantize model.onnx --data samples/ --labels labels.txt -o model.int8.onnx
      qprof quantize model.onnx --profile profile.yaml -o model.int8.onnx
      qprof quantize model.onnx --as weight-only-4 -o model.int4.onnx
    """
    from ...quantizer.api.quantize import quantize
    from ...quantizer.search.options import SpeedCheckOptions

    is_mixed = options["precision"] == MIXED
    recipe = taken_recipe(options)
    asked = {name: value for name, value in given(options).items() if not name.startswith("gate_")}
    limits = given(options, Gate, "gate_")
    judged = profile is None and plan is None and data is not None
    if judged:
        asked["gate"] = Gate(**limits)
        speed: dict[str, Any] = {}
    else:
        if is_mixed:  # the size is that of the plan, and no gate
            limits.pop("max_size", None)
        sampled = {"data": data, **asked, **limits}
        _check_purposes({k: v for k, v in sampled.items() if v is not None}, recipe, check_speed=check_speed)
        speed = {"data": data, "limit": asked.get("limit"), "min_speedup": limits.get("min_speedup")}
        if check_speed:
            speed["threads"] = asked.pop("threads", 1)
    if check_speed:
        asked["speed"] = SpeedCheckOptions(**speed)
    if plan and (recipe or check_speed):
        raise click.UsageError("--plan holds its own settings: edit the file, or give no others.")
    with Stages() as stage:
        if judged:
            asked |= {"stage": stage, "note": stage.note}
        else:
            asked["progress"] = on_demand(stage, "rounding")
        result = quantize(model, profile, output, target=recipe, plan=plan, data=data, **asked)
    if report is not None:
        from ...quantizer.report.report import quantization_report

        page = quantization_report(result, model, profile, recipe, given=shown_arguments())
        save_report(page, report)
    add_finding(**findings(result))
    echo(document("quantization", 1, _record(result)) if as_json else summary_text(result, arguments()))
    if not result.passed:
        raise click.exceptions.Exit(1)


def _check_purposes(asked: Mapping[str, Any], recipe: Recipe | None, *, check_speed: bool) -> None:
    """Refuse options that do nothing where there is a profile or a plan.

    Raises:
        click.UsageError: one of them, and what it is for.
    """
    rounds = recipe is not None and recipe.config.rounding in ("gptq", "gptaq")
    of_speed = {"data", "limit", "threads", "min_speedup"}
    of_rounding = {"data", "limit", "checkpoint"}
    judging = OF_JUDGING | set(Gate.__dataclass_fields__)
    known = {**options_of(QuantizeOptions), **options_of(Gate)}
    for name in asked:
        flag = "--data" if name == "data" else "--no-latency" if name == "latency" else known[name].flag
        if name in judging and name not in of_speed:
            raise click.UsageError(
                f"{flag} is for --data without --profile, where the result is judged; leave it out, or run "
                "qprof evaluate."
            )
        if name in of_speed | of_rounding and not (
            (name in of_speed and check_speed) or (name in of_rounding and rounds)
        ):
            both, rounding = "--check-speed, --rounding gptq or gptaq", "--rounding gptq or gptaq"
            purpose = both if name in of_speed & of_rounding else rounding
            purpose = "--check-speed" if name in of_speed - of_rounding else purpose
            raise click.UsageError(f"{flag} is for {purpose}; add that, or leave it out.")


def _record(result: QuantizeResult) -> Any:
    from ..schemas import Quantization

    return Quantization.of(result)


SHOWN_OUTPUTS = 4
"""Outputs whose expected SQNR is printed; JSON has all."""

SHOWN = 3
"""Nodes executed otherwise than planned that are printed; JSON has all."""


def findings(result: QuantizeResult) -> dict[str, Any]:
    """Return what the next command depends on; of a result that was not judged nothing is known.

    Besides those of its evaluation: "grade" of the verdict, "kept" the file of the profile, "fixed" the
    options that were applied, and "rounded" whether weights were rounded with samples.
    """
    from ...quantizer.targets.config import WITH_SAMPLES
    from .evaluate import evaluation_findings

    judged = result.judged
    if judged is None:
        return {}
    verdict, facts = judged.verdict, None if result.made is None else result.made.facts
    fix = () if verdict.applied is None else verdict.applied.options
    return {
        **evaluation_findings(judged.evaluation),
        "grade": verdict.grade,
        "kept": judged.profile,
        "fixed": tuple(word for word in fix if word != "--check-speed"),
        "rounded": facts is not None and facts.config.rounding in WITH_SAMPLES,
    }


def summary_text(result: QuantizeResult, arguments: Sequence[str] = ()) -> str:
    """Return the sizes, the number of nodes of each kind, the reasons of those that stay float, and notes; of
    a result that was judged the verdict, where `arguments` are those of the command line."""
    if result.judged is not None:
        notes = [f"note: {note}" for note in result.notes]
        predicted = [f"predicted {result.prediction}"] if result.prediction else []
        lines = [f"{result.model_path}: written", *notes, *predicted]
        return "\n".join([*lines, verdict_text(result.judged, arguments)])
    ratio = result.float_bytes / max(result.quantized_bytes, 1)
    counts, floats = result.summary.counts, result.summary.floats
    width = len(str(max(counts.values(), default=0)))
    return "\n".join(
        [
            f"{result.model_path}: {size_text(result.quantized_bytes)}, {ratio:.2f} times smaller than "
            f"the float model's {size_text(result.float_bytes)}",
            f"{sum(counts.values())} nodes:",
            *(f"  {count:>{width}}  {kind}" for kind, count in counts.items()),
            *(["why float:"] if floats else []),
            *(f"  {group.nodes:>{width}}  {group.reason}" for group in floats),
            *_expected_lines(result),
            *([f"predicted: {result.prediction}"] if result.prediction else []),
            *(f"note: {note}" for note in result.notes),
            *([] if result.speed is None else _speed_lines(result.speed)),
        ]
    )


def _expected_lines(result: QuantizeResult) -> Iterator[str]:
    """Yield what is expected of the outputs, those with the least SQNR first."""
    outputs = sorted(result.expected, key=lambda output: output.estimated)
    yield from (output.text for output in outputs[:SHOWN_OUTPUTS])
    if len(outputs) > SHOWN_OUTPUTS:
        yield f"{len(outputs) - SHOWN_OUTPUTS} more outputs are expected to keep more"


def _speed_lines(speed: SpeedCheck) -> Iterator[str]:
    """Yield the latencies, what fell back to float, and whether float is faster or a gate failed."""
    from .evaluate import failure_text

    now, made_up = speed.after, ", made up from the profile" if speed.options.data is None else ""
    yield (
        f"speed: float {now.float_ms:.3g} ms, quantized {now.quantized_ms:.3g} ms: "
        f"{now.speedup:.2f} times as fast ({now.speedup_low:.2f} to {now.speedup_high:.2f}; "
        f"threads: {now.threads}, samples: {now.samples}{made_up})"
    )
    if speed.fallback:
        yield f"back to float ({speed.before.speedup:.2f} times as fast before):"
        for region in speed.fallback:
            more = f" and {len(region.nodes) - 1} more" if len(region.nodes) > 1 else ""
            times = f"{region.integer_ms:.3g} ms in int8, {region.float_ms:.3g} ms float"
            yield f"  {times}: {region.nodes[0]}{more}"
    yield from (f"faster: {change}" for change in speed.changes if not speed.left_float)
    yield from (f"executed otherwise than planned: {sentence}" for sentence in speed.undone[:SHOWN])
    if speed.left_float:
        yield speed.left_float
    if speed.slower:
        yield f"FLOAT IS FASTER: {'; '.join(speed.reasons)}"
    for failure in speed.failures:
        yield f"{failure.result.upper()}: {failure_text(failure)}"


SHOWN_OF_VERDICT = 3
"""Reasons of float nodes, outputs and fixes that are printed; JSON has all."""


def verdict_text(judged: Judged, arguments: Sequence[str]) -> str:
    """Return the verdict for people: a line for each thing, its name in front.

    Args:
        judged: what was found.
        arguments: of the command line, which commands to try repeat.
    """
    from .evaluate import failure_text

    verdict, evaluation = judged.verdict, judged.evaluation
    lines = [
        ("verdict", verdict.sentence),
        *(("", output.text) for output in verdict.outputs[1:SHOWN_OF_VERDICT] if output.grade != "good"),
        *verdict.facts(),
        *_tries(verdict, arguments),
        *((failure.result.upper(), failure_text(failure)) for failure in evaluation.failures),
        *(("NOT PROVEN", doubt) for doubt in evaluation.doubts if evaluation.gated),
        *([("gate", "passed")] if evaluation.passed and evaluation.gated else []),
    ]
    return "\n".join(f"{name:9} {text}" for name, text in lines)


def _tries(verdict: Verdict, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each fix: what it brings, and the command."""
    if verdict.applied is not None:
        yield "fixed", f"by {shlex.join(verdict.applied.options)}: {verdict.applied.brings}"
    for fix in verdict.fixes[:SHOWN_OF_VERDICT]:
        yield "try", f"{fix.brings}:"
        yield "", shlex.join(["qprof", "quantize", *_without(arguments, fix), *fix.options])


def _without(arguments: Sequence[str], fix: Fix) -> Iterator[str]:
    """Yield the words of the command line without settings that a fix changes, and --fix; where it changes
    one that --as stands for, the others in its place."""
    known = options_of(QuantConfig)
    changed = {known[name].flag for name, value in fix.settings.items() if value != ()}
    changed -= {"--keep-float", "--keep-16bit"}  # names are added to those that are given
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if name == "--as":
            value = value or next(words, "")
            meant = PRECISIONS[value].settings if value in PRECISIONS else {}
            flags = {known[key].flag: text for key, text in meant.items() if text is not None}
            kept = [
                text for flag, setting in flags.items() if flag not in changed for text in (flag, setting)
            ]
            yield from kept if flags.keys() & changed else ("--as", value)
        elif name not in (*changed, "--fix"):
            yield word
        elif not value:
            next(words, None)
