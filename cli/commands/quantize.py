"""`qprof quantize`: write a quantized model from a float model and its profile, or from samples."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...profiles.base.findings import Code, Severity, of_severity
from ...profiles.base.options import options_of
from ...quantizer.api.options import MIXED, OF_JUDGING, QuantizeOptions
from ...quantizer.evaluation.options import Gate, SpeedCheckOptions
from ...quantizer.targets.config import DATA_FREE, OF_ACTIVATIONS
from ..console import REPORTER, Stages, current_run, document, echo, finding_lines, result_lines, save_report
from ..options import (
    DATA,
    EXISTING,
    NEW,
    RARE,
    GroupedCommand,
    given_options,
    json_option,
    model_argument,
    no_latency_option,
    option,
    record_of,
    record_options,
    report_option,
    setting_options,
    take_limits,
    take_recipe,
)

if TYPE_CHECKING:
    from ...quantizer.api.results import QuantizeResult
    from ...quantizer.search.verdict import Fix, Judged


DETAILS = frozenset(
    {Code.PROFILE_KEPT, Code.OPSET_RAISED, Code.NOISY_PLAN, Code.OUTPUT_KIND, Code.FEW_HELD_OUT}
    | {Code.INT8_SAVES_TOO_LITTLE}
)
"""Notes that ask for no action, or repeat the lines verdict or int8: printed with --verbose."""


@click.command(
    "quantize",
    cls=GroupedCommand,
    everyday=(
        *("data", "profile", "output", "precision", "target", "schema", "calibrator", "preprocess"),
        *("labels", "metric", "keep_float"),
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
    help="Samples: pictures, text, sound, tables or arrays; FILE.py:FUNCTION. Without --profile: profile "
    "them, hold some out, and judge the result. With it: judge on them.",
)
@option("-o", "--output", group="Basic", required=True, type=NEW, metavar="OUT.onnx", help="File to write.")
@setting_options(QuantizeOptions, Gate)
@record_options(QuantizeOptions, without=("held_out", *RARE))
@record_options(Gate, without=RARE, prefix="gate_")
@no_latency_option
@option(
    "--check-speed",
    group="Speed",
    is_flag=True,
    help="Measure latency, and use int8 only if it is faster than float.",
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

    With --data, qprof profiles three quarters of the samples, quantizes, and tests the result on the rest
    (of fewer than 16 samples on four, or half). The plan, and a profile to reuse, are stored in OUT.qprof.
    With --data and --profile, all samples test. --as int8-dynamic and weight-only-... need neither.

    \b
    Examples:
      qprof quantize model.onnx --data samples/ --labels labels.txt -o model.int8.onnx
      qprof quantize model.onnx --profile profile.yaml -o model.int8.onnx
      qprof quantize model.onnx --as weight-only-4 -o model.int4.onnx
    """
    from ...quantizer.api.quantize import quantize
    from ...quantizer.prepare.prepare import file_of

    is_mixed = options["precision"] == MIXED
    recipe = take_recipe(options)
    limits = take_limits(options)
    asked = given_options(options)
    if is_mixed:  # the size is that of the plan, and no gate
        limits.pop("max_size", None)
    is_judged = plan is None and data is not None
    if is_judged:
        asked["gate"] = Gate(**limits)
        speed = SpeedCheckOptions()
    else:
        _refuse_options_of_judging(given_options({**asked, **limits}), check_speed=check_speed)
        min_speedup, threads = limits.get("min_speedup"), asked.pop("threads", 1)
        speed = SpeedCheckOptions(limit=asked.get("limit"), min_speedup=min_speedup, threads=threads)
    if check_speed:
        asked["speed"] = speed
    file, how = file_of(model), record_of(QuantizeOptions(), asked)
    current_run().details = DETAILS
    with Stages() as stage:
        if is_judged:
            how = replace(how, stage=stage, note=stage.note)
        result = quantize(file, profile, output, config=recipe, plan=plan, data=data, options=how)
    if report is not None:
        save_report(REPORTER.load().quantization_report(result, file, profile, recipe), report)
    if as_json:
        echo(document("quantization", 1, result.to_dict()))
    else:
        echo(summary_text(result, verbose=current_run().verbose))
    if not result.passed:
        raise click.exceptions.Exit(1)


def _refuse_options_of_judging(asked: Mapping[str, Any], *, check_speed: bool) -> None:
    """Refuse options that have no effect without samples, or with a plan."""
    of_speed = {"limit", "threads", "min_speedup"}
    of_judging = OF_JUDGING | of_speed | set(Gate.__dataclass_fields__)
    described = {**options_of(QuantizeOptions), **options_of(Gate)}
    for name in asked:
        flag = "--no-latency" if name == "latency" else described[name].flag
        flag = f"--set {name}" if name in RARE else flag
        if name in of_judging and not (check_speed and name in of_speed):
            speed = " or --check-speed" if name in of_speed else ""
            raise click.UsageError(
                f"{flag} is for --data{speed}, which judges the result; give samples, or leave it out "
                "and run qprof evaluate."
            )


def summary_text(result: QuantizeResult, *, verbose: bool) -> str:
    """Return a result for people: a line for each fact, after its name."""
    alarms = of_severity(result.findings, Severity.ALARM)
    lines: list[str | tuple[str, str]] = [*finding_lines(alarms, verbose=verbose, width=9)]
    if result.judged is None:
        lines += [("written", str(result.model_path)), *result.figures(every=verbose)]
        others = [one for one in result.findings if one not in alarms]
        lines += result_lines(others, verbose=verbose, width=9)
    else:
        lines += _lines_of_judged(result, result.judged, verbose)
    if verbose:
        if result.predicted is not None:
            lines.append(("predicted", result.prediction))
        counts, floats = result.kinds, result.floats
        lines.append(("nodes", ", ".join(f"{count} {kind}" for kind, count in counts.items())))
        width = len(str(max(counts.values(), default=0)))
        for group in floats:
            name = "why float" if group is floats[0] else ""
            lines.append((name, f"{group.nodes:>{width}}  {group.reason}"))
    return "\n".join(line if isinstance(line, str) else f"{line[0]:9} {line[1]}".rstrip() for line in lines)


def _lines_of_judged(
    result: QuantizeResult, judged: Judged, verbose: bool
) -> Iterator[str | tuple[str, str]]:
    """Yield the verdict: the task first, then size, speed, fraction of int8, one cause, one suggestion."""
    verdict, evaluation = judged.verdict, judged.evaluation
    yield "verdict", verdict.sentence
    if verbose:
        yield from (("", output.text) for output in verdict.outputs[1:])
        yield from (("estimated", output.text) for output in result.expected)
    yield from verdict.figures()
    codes = {finding.code for finding in verdict.findings}
    of_plan = (f for f in result.findings if f.severity is not Severity.ALARM and f.code not in codes)
    yield from result_lines([*verdict.untold_findings, *of_plan], verbose=verbose, width=9)
    if verdict.applied is not None:
        yield "fixed", f"by {shlex.join(verdict.applied.options)}: {verdict.applied.brings}"
    if verdict.score_to_try and any(fix.lost for fix in verdict.fixes[:1]):
        yield "try", f"{verdict.score_to_try}: a score may decide"
    for fix in verdict.fixes if verbose else verdict.fixes[:1]:
        yield "try", f"{shlex.join(fix.options)}: {fix.brings}"
        yield "", command_with(fix, judged.profile)
    yield from finding_lines(of_severity(evaluation.findings, Severity.ALARM), verbose=verbose, width=9)
    yield from (("NOT PROVEN", doubt.text) for doubt in evaluation.doubts if evaluation.gate.has_limit)
    if evaluation.passed and evaluation.gate.has_limit:
        yield "gate", "passed"
    yield "written", str(result.model_path)
    if verdict.is_deployable and evaluation.passed:
        where = f"after a test on {verdict.simulated}" if verdict.simulated else "in place of the float model"
        yield "deploy", f"{where}{', if its size matters' * verdict.has_floats_speed}: docs/how-to/deploy.md"


def command_with(fix: Fix, profile: str) -> str:
    """Return this command with the options of a fix and its profile, without those without effect then."""
    words, given, mode = ["qprof", "quantize"], iter(current_run().arguments), fix.settings.get("mode")
    gone = {*fix.settings, *(OF_ACTIVATIONS if mode in DATA_FREE else ())}
    flags = {"--as"} if mode else {*fix.options} - {"--set"}
    flags |= {f"--{name.replace('_', '-')}" for name in gone}
    for word in given:
        values = [next(given)] if word in ("--set", *flags) else []
        if word.partition("=")[0] not in flags and gone.isdisjoint(one.partition("=")[0] for one in values):
            words += [word, *values]
    # A mode that needs no profile would make none, and judge outputs without it.
    used = ["--profile", profile] if mode in DATA_FREE and profile and "--profile" not in words else []
    return shlex.join([*words, *used, *fix.options])
