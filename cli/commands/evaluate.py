"""`qprof evaluate`: compare a quantized model with the float one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...profiles.base.options import options_of
from ...profiles.base.output_files import write_atomically
from ...profiles.base.presentation import size_change, size_text
from ...quantizer.evaluation.options import EvaluationOptions, Gate, Slack
from ..console import (
    add_finding,
    decibel_text,
    document,
    echo,
    is_verbose,
    progress,
    save_report,
    table,
    tell_note,
)
from ..options import (
    EXISTING,
    MODEL,
    NEW,
    FiniteNumber,
    GroupedCommand,
    data_option,
    given_options,
    json_option,
    labels_option,
    model_argument,
    no_latency_option,
    option,
    option_list,
    record_options,
    report_option,
    take_limits,
)

if TYPE_CHECKING:
    from ...quantizer.evaluation.accuracy import Accuracy
    from ...quantizer.evaluation.compare import OutputResult
    from ...quantizer.evaluation.evaluate import Evaluation
    from ...quantizer.evaluation.gates import GateFailure
    from ...quantizer.evaluation.latency import Latency
    from ...quantizer.evaluation.metrics.score import Score


def slack_option(about: str, *names: str) -> Callable[[Any], Any]:
    """Return the decorator that adds --slack: numbers of texts such as "sqnr=1", by name.

    Args:
        about: what is allowed by it.
        names: fields of `Slack`; none for all.
    """
    known = {name: figure for name, figure in options_of(Slack).items() if not names or name in names}

    def read(
        ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
    ) -> dict[str, float] | None:
        found = {}
        for text in value:
            name, _, number = text.partition("=")
            if name not in known:
                raise click.BadParameter(
                    f"'{text}': give one of {', '.join(known)} with a number, as in sqnr=1"
                )
            found[name] = FiniteNumber(min=0.0).convert(number, parameter, ctx)
        return found or None

    figures = ", ".join(f"{figure.name} ({figure.metavar})" for figure in known.values())
    defaults = ", ".join(f"{figure.name}={figure.default:g}" for figure in known.values())
    return option(
        "--slack",
        group="Files",
        multiple=True,
        callback=read,
        metavar="FIGURE=X",
        help=f"{about}: {figures}. Repeatable.  [default: {defaults}]",
    )


comparing_options = option_list(
    record_options(EvaluationOptions, "metric"),
    labels_option,
    record_options(EvaluationOptions, "class_axis"),
    record_options(Gate, prefix="gate_"),
    no_latency_option,
    record_options(EvaluationOptions, "runtime", "provider", "threads"),
)
"""How both models are compared, and the limits: of `qprof evaluate`, `card` and `report`."""


@click.command(
    "evaluate",
    cls=GroupedCommand,
    everyday=(
        *("data", "preprocess", "limit", "labels", "metric", "gate_min_sqnr", "gate_max_accuracy_drop"),
        *("gate_max_drop", "gate_min_speedup", "latency", "baseline", "save_baseline", "report", "as_json"),
    ),
)
@model_argument
@click.argument("quantized", type=MODEL, metavar="OUT.onnx")
@data_option
@comparing_options
@record_options(EvaluationOptions, "scored_output")
@option(
    "--baseline",
    group="Files",
    type=EXISTING,
    metavar="FILE",
    help="Gate: not worse than an earlier evaluation, a file of --save-baseline.",
)
@slack_option("How much worse than the baseline")
@option(
    "--save-baseline",
    group="Files",
    type=NEW,
    metavar="FILE",
    help="Write the result as JSON for --baseline.",
)
@report_option
@json_option
def command(
    model: Path,
    quantized: Path,
    data: str,
    *,
    save_baseline: Path | None,
    report: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare a quantized model with its float one.

    Runs both on the same samples. A gate that is not met, or not proven, ends with exit code 1. Without
    --labels, boxes, masks and texts of the float model are the truth of --metric. In JSON infinite SQNR is
    the string "inf".

    \b
    Example:
      qprof evaluate model.onnx model.int8.onnx --data heldout/ --labels heldout/labels.txt --min-sqnr 25
      qprof evaluate yolo.onnx yolo.int8.onnx --data val/ --metric map50 --labels coco.json --max-drop 1
    """
    from ...quantizer.api.evaluate import evaluate

    gate, asked = Gate(**take_limits(options)), given_options(options)
    with progress("evaluating") as shown:
        result = evaluate(model, quantized, data, gate=gate, progress=shown, **asked)
    if save_baseline is not None:
        write_atomically(save_baseline, evaluation_json(result) + "\n")
    if report is not None:
        from ...quantizer.report.report import evaluation_report

        page, remarks = evaluation_report(result, model, quantized)
        for remark in remarks:
            tell_note(remark)
        save_report(page, report)
    add_finding(**evaluation_findings(result))
    echo(evaluation_json(result) if as_json else evaluation_text(result, verbose=is_verbose()))
    if not result.passed:
        raise click.exceptions.Exit(1)


NAMED = 3
"""Samples with the lowest SQNR that are named; JSON and reports have a few more."""

OUTPUTS = 3
"""Outputs that are listed without --verbose, those with the lowest SQNR, states last; JSON has all."""


def evaluation_json(result: Evaluation) -> str:
    """Return the evaluation as one JSON object, see `qprof schema evaluation`."""
    return document("evaluation", 1, result, passed=result.passed)


def evaluation_text(result: Evaluation, *, verbose: bool = True) -> str:
    """Return the evaluation for people: what the task says, size and speed, a table of the outputs, gates.

    `verbose` adds figures of channels, and how the score and the latency were found.
    """
    header = ("output", "SQNR dB", "cosine", "max abs error", "max abs value", "agreement")
    outputs = list(result.outputs)
    if not verbose and len(outputs) > OUTPUTS:
        answers_first = [
            (output.name in result.states, math.inf if output.difference is None else output.difference.sqnr)
            for output in outputs
        ]
        order = sorted(range(len(outputs)), key=answers_first.__getitem__)
        outputs = [outputs[place] for place in order[:OUTPUTS]]
    rest = len(result.outputs) - len(outputs)
    remarks = result.remarks if verbose else result.remarks[:1]
    pair = f"{result.quantized_model} against {result.float_model}"
    lines = [
        *(_accuracy(result.accuracy, verbose) if result.accuracy else ()),
        *(_score(result, result.score) if result.score else ()),
        *((f"scores     {result.score_shift.text}",) if result.score_shift else ()),
        *_tokens(result),
        _sizes(result),
        *(_latency(result.latency, verbose) if result.latency else ()),
        *(f"{speed.of:<10} {speed.text}" for speed in result.token_speeds),
        *table([header, *(_row(output) for output in outputs)]),
        *([f"{rest} more outputs: --verbose"] if rest else []),
        *(line for output in outputs for line in _remarks(output, verbose)),
        *(_worst_samples(result) if verbose or result.tokens is None else ()),
        f"compared   {pair} on {result.samples} samples{_where(result)}",
        *(f"{failure.result.upper():10} {failure_line(failure)}" for failure in result.failures),
        *(f"{'NOT PROVEN' if result.gated else 'REMARK':10} {doubt}" for doubt in result.doubts),
        *(f"REMARK     {remark}" for remark in remarks),
    ]
    if result.passed and result.gated:
        against = f", not worse than {result.baseline}" if result.baseline else ""
        lines.append(f"gate       passed{against}")
    return "\n".join(lines)


def _row(output: OutputResult) -> tuple[str, ...]:
    agreement = "-"
    if output.agreement is not None:
        agreement = (
            f"{output.agreement.kind} {100 * output.agreement.ratio:.2f} % of {output.agreement.total}"
        )
    if output.difference is None:
        return (output.name, "-", "-", "-", "-", agreement)
    d = output.difference
    return (
        output.name,
        decibel_text(d.sqnr),
        f"{d.cosine:.6f}",
        f"{d.max_abs_error:.4g}",
        f"{d.max_abs_value:.4g}",
        agreement,
    )


def _worst_samples(result: Evaluation) -> Iterator[str]:
    """Yield a line that names the samples on which the outputs differ most."""
    named = ", ".join(f"{one.sample} {decibel_text(one.sqnr)} dB" for one in result.worst_samples[:NAMED])
    if named:
        yield f"samples with the lowest SQNR: {named}"


CHANNELS_DB = 6.0
"""How far below its output's SQNR that of the worst channel is told without --verbose."""


def _remarks(output: OutputResult, verbose: bool) -> Iterator[str]:
    """Yield the remarks on an output that stand below the table."""
    if output.shape_mismatches:
        compared = "; compared on what both have" if output.difference is not None else ""
        where = f"in {output.shape_mismatches} samples{compared}"
        yield f"output '{output.name}': another shape than float's {where}"
    if output.difference is not None and output.difference.non_finite:
        count = output.difference.non_finite
        yield f"output '{output.name}': {count} elements are NaN or Inf in one model only"
    channels = output.channels
    if channels is None or output.difference is None or output.difference.sqnr == math.inf:
        return
    worst = channels.worst_difference
    if not verbose and worst.sqnr > output.difference.sqnr - CHANNELS_DB:
        return
    yield (
        f"output '{output.name}': worst of {channels.count} channels (axis {channels.axis}) is number "
        f"{channels.worst}: {decibel_text(worst.sqnr)} dB, values up to {worst.max_abs_value:.4g}"
    )
    if verbose and len(channels.groups) > 1:
        for group in channels.groups:
            d = group.difference
            yield f"  channels {group.text}, values up to {d.max_abs_value:.4g}: {decibel_text(d.sqnr)} dB"


def _accuracy(a: Accuracy, verbose: bool) -> Iterator[str]:
    yield (
        f"accuracy   {a.float_percent:.2f} % float, {a.quantized_percent:.2f} % quantized of {a.rows} rows; "
        f"drop {a.drop:.2f} percentage points, 95 % interval {a.drop_low:.2f} to {a.drop_high:.2f}"
    )
    if verbose:
        yield (
            f"           right in float only {a.only_float}, in quantized only {a.only_quantized}; "
            f"McNemar p = {a.p_value:.2g}"
        )


def _score(result: Evaluation, score: Score) -> Iterator[str]:
    from ...quantizer.evaluation.metrics.score import score_text

    name = result.metric.partition(":")[0] if result.metric_title != f"metric {result.metric}" else "metric"
    better = "" if score.higher_is_better else ", lower is better"
    interval = f"95 % interval {score.drop_low:.2f} to {score.drop_high:.2f}"
    yield (
        f"{name:<10} {score_text(score)} of {score.rows}: {result.metric_title}{better}; "
        f"drop {score.drop:.2f} {score.drop_unit}, {interval}"
    )


def _tokens(result: Evaluation) -> Iterator[str]:
    """Yield how often both models take the same token, and what their state takes in memory."""
    if result.tokens is not None:
        yield f"tokens     {result.tokens.text}"
    if (memory := result.state_memory) is not None:
        sizes = (
            size_text(round(model + MANY_TOKENS * state))
            for model, state in (
                (result.float_bytes, memory.float_bytes),
                (result.quantized_bytes, memory.quantized_bytes),
            )
        )
        yield (
            f"memory     of weights and state at {MANY_TOKENS} tokens: {' float, '.join(sizes)} quantized; "
            f"{memory.quantized_bytes:.0f} bytes of state a token"
        )


MANY_TOKENS = 1024
"""Tokens for which the memory is told."""


def _where(result: Evaluation) -> str:
    """Return what ran the models where it is not onnxruntime on the processor."""
    if (result.runtime, result.provider) == ("onnxruntime", "CPUExecutionProvider"):
        return ""
    return f", {result.runtime} with {result.provider}"


def _latency(t: Latency, verbose: bool) -> Iterator[str]:
    yield f"latency    {t.float_ms:.3f} ms float, {t.quantized_ms:.3f} ms quantized: {t.text()}"
    if verbose:
        yield f"           quartiles of {t.rounds} rounds of {t.samples} samples"


def _sizes(result: Evaluation) -> str:
    a, b = result.float_bytes, result.quantized_bytes
    return f"size       {size_text(a)} float, {size_text(b)} quantized: {size_change(a, b)}"


def failure_line(failure: GateFailure) -> str:
    """Return the option of a limit that was not met, and how far off the model is."""
    from ...quantizer.evaluation.gates import failure_text

    if failure.demand.startswith("baseline_"):
        return f"--baseline: {failure_text(failure)}"
    return f"--{failure.demand.replace('_', '-')} {failure.limit:g}: {failure_text(failure)}"


NOT_FOR_NOISE = ("min_speedup", "max_size", "baseline_speedup", "baseline_size")
"""Limits whose failure is no sign of too much noise."""


def evaluation_findings(result: Evaluation) -> dict[str, Any]:
    """Return what follows from an evaluation.

    "sqnr" is the worst of an output in dB; "gated" whether there is a limit; "doubtful" whether these are not
    a float model and its quantized form; "few_rows" whether limits fail for want of rows alone; "noisy"
    whether one fails for noise.
    """
    from ...quantizer.evaluation.gates import DROPS

    scored = result.score or result.accuracy
    at_chance = scored is not None and scored.is_at_chance
    few = [f for f in result.failures if f.demand in DROPS and f.result == "not proven" and not at_chance]
    return {
        "sqnr": result.worst_sqnr,
        "gated": result.gated,
        "doubtful": bool(result.doubts),
        "few_rows": bool(few) and len(few) == len(result.failures),
        "noisy": any(f.demand not in NOT_FOR_NOISE and f.result == "failed" for f in result.failures),
    }
