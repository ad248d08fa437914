"""What `qprof evaluate` and `qprof compare-layers` print, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...profiles.base.output_files import write_atomically
from ...profiles.base.presentation import size_text
from ...quantizer.evaluation.metrics.score import score_text
from .json_document import document

if TYPE_CHECKING:
    from ...quantizer.evaluation.accuracy import Accuracy
    from ...quantizer.evaluation.compare import OutputResult
    from ...quantizer.evaluation.evaluate import Evaluation
    from ...quantizer.evaluation.gates import GateFailure
    from ...quantizer.evaluation.latency import Latency
    from ...quantizer.evaluation.layers import LayerComparison, LayerReport
    from ...quantizer.evaluation.metrics.score import Score


BAD_DROP, BAD_SQNR = 6.0, 30.0
"""A node is marked when it drops SQNR by at least the first (dB) and leaves less than the second."""

NAMED = 3
"""Samples with the lowest SQNR that are named; JSON and reports have a few more."""

UNITS = {
    "min_sqnr": "dB",
    "min_group_sqnr": "dB",
    "max_accuracy_drop": "percentage points",
    "min_speedup": "times",
    "max_size": "bytes",
}


def evaluation_json(result: Evaluation) -> str:
    """Return the evaluation as one JSON object, see `qprof schema evaluation`."""
    return document("evaluation", 1, result, passed=result.passed)


def save_evaluation(result: Evaluation, path: Path) -> None:
    """Write the evaluation as JSON, for `--baseline`."""
    write_atomically(path, evaluation_json(result) + "\n")


def evaluation_text(result: Evaluation) -> str:
    """Return the evaluation for people: a table of outputs, then one line or two for each of the rest."""
    header = ("output", "SQNR dB", "cosine", "max abs error", "max abs value", "agreement")
    lines = [
        f"{result.quantized_model} against {result.float_model} on {result.samples} samples{_where(result)}",
        "",
        *table([header, *(_row(output) for output in result.outputs)]),
        *(line for output in result.outputs for line in _remarks(output)),
        *_worst_samples(result),
        "",
        *(_accuracy(result.accuracy) if result.accuracy else ()),
        *(_score(result, result.score) if result.score else ()),
        _sizes(result),
        *(_latency(result.latency) if result.latency else ()),
        *(f"FAILED     {failure_text(failure)}" for failure in result.failures),
        *(f"{'FAILED' if result.gated else 'REMARK':10} {doubt}" for doubt in result.doubts),
        *(f"REMARK     {remark}" for remark in result.remarks),
    ]
    if result.passed and result.gated:
        against = f", not worse than {result.baseline}" if result.baseline else ""
        lines.append(f"gate       passed{against}")
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> Iterator[str]:
    """Yield the rows in columns: those of `left` aligned to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def decibel_text(sqnr: float) -> str:
    """Return an SQNR with two decimals; "equal" without any difference, "-inf" for noise without signal."""
    if sqnr == math.inf:
        return "equal"
    return f"{sqnr:.2f}" if math.isfinite(sqnr) else "-inf"


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


def _remarks(output: OutputResult) -> Iterator[str]:
    """Yield the remarks on an output that stand below the table."""
    if output.shape_mismatches:
        yield f"output '{output.name}': another shape than float's in {output.shape_mismatches} samples"
    if output.difference is not None and output.difference.non_finite:
        count = output.difference.non_finite
        yield f"output '{output.name}': {count} elements are NaN or Inf in one model only"
    channels = output.channels
    if channels is None or output.difference is None or output.difference.sqnr == math.inf:
        return
    worst = channels.worst_difference
    yield (
        f"output '{output.name}': worst of {channels.count} channels (axis {channels.axis}) is number "
        f"{channels.worst}: {decibel_text(worst.sqnr)} dB, values up to {worst.max_abs_value:.4g}"
    )
    if len(channels.groups) > 1:
        for group in channels.groups:
            d = group.difference
            yield f"  channels {group.text}, values up to {d.max_abs_value:.4g}: {decibel_text(d.sqnr)} dB"


def _accuracy(a: Accuracy) -> Iterable[str]:
    return (
        f"accuracy   {a.float_percent:.2f} % float, {a.quantized_percent:.2f} % quantized of {a.rows} rows",
        f"           drop {a.drop:.2f} percentage points, "
        f"95 % interval {a.drop_low:.2f} to {a.drop_high:.2f}",
        f"           right in float only {a.only_float}, in quantized only {a.only_quantized}; "
        f"McNemar p = {a.p_value:.2g}",
    )


def _score(result: Evaluation, score: Score) -> Iterable[str]:
    name = result.metric.partition(":")[0] if result.metric_title != f"metric {result.metric}" else "metric"
    better = "" if score.higher_is_better else ", lower is better"
    return (
        f"{name:<10} {score_text(score)} of {score.rows}: {result.metric_title}{better}",
        f"           drop {score.drop:.2f} {score.drop_unit}, "
        f"95 % interval {score.drop_low:.2f} to {score.drop_high:.2f}",
    )


def _where(result: Evaluation) -> str:
    """Return what ran the models where it is not onnxruntime on the processor."""
    if (result.runtime, result.provider) == ("onnxruntime", "CPUExecutionProvider"):
        return ""
    return f", {result.runtime} with {result.provider}"


def _latency(t: Latency) -> Iterable[str]:
    threads = f"{t.threads} thread{'s' if t.threads > 1 else ''}"
    return (
        f"latency    {t.float_ms:.3f} ms float, {t.quantized_ms:.3f} ms quantized: speedup {t.speedup:.2f}",
        f"           quartiles {t.speedup_low:.2f} to {t.speedup_high:.2f} in {t.rounds} rounds of "
        f"{t.samples} samples, {threads}",
    )


def _sizes(result: Evaluation) -> str:
    a, b = result.float_bytes, result.quantized_bytes
    return f"size       {size_text(a)} float, {size_text(b)} quantized: {a / max(b, 1):.2f} times smaller"


def failure_text(failure: GateFailure) -> str:
    """Return a limit that was not met: its option, what was measured, and how far off that is."""
    unit = failure.unit or UNITS.get(failure.demand, "")
    if failure.demand.startswith("baseline_"):
        return _worse_than_baseline(failure, unit)
    option = "--" + failure.demand.replace("_", "-")
    where = f"{failure.where}: " if failure.where else ""
    if failure.measured is None:
        return f"{option} {failure.limit:g}: {where}{failure.reason or 'nothing could be compared'}"
    reason = f" ({failure.reason})" if failure.reason else ""
    return (
        f"{option} {failure.limit:g}: {where}{failure.measured:.2f} {unit}, {failure.missing:.2f} {unit} off"
        f"{reason}"
    )


def _worse_than_baseline(failure: GateFailure, unit: str) -> str:
    """Return that a figure is worse than in the baseline, which the reason names with its value."""
    what = "SQNR" if failure.demand == "baseline_sqnr" else failure.demand.removeprefix("baseline_")
    where = f"{failure.where}: " if failure.where else ""
    measured, limit = f"{failure.measured:.6g}", f"{failure.limit:.6g}"
    return f"--baseline: {where}{what} {measured} {unit}, {failure.reason}; with its slack {limit}"


def layers_json(report: LayerReport, layers: Sequence[LayerComparison]) -> str:
    """Return some layers of a report as one JSON object, see `qprof schema layers`."""
    return document("layers", 1, replace(report, layers=tuple(layers)))


def layers_text(report: LayerReport, layers: Sequence[LayerComparison]) -> str:
    """Return some layers of a report as a table with a bar of the SQNR; "!" marks the bad ones.

    "after Relu" says that the figures are those of the tensor after that function.
    """
    header = ("tensor", "operator", "kind", "type", "cosine", "SQNR dB", "SQNR drop", "")
    rows = [(*_layer(layer), _bar(layer)) for layer in layers]
    lines = [
        f"{report.quantized_model} against {report.float_model} on {report.samples} samples",
        "",
        *table([header, *rows], left=(0, 1, 2, 3, 7)),
    ]
    if report.missing:
        few = ", ".join(report.missing[:3]) + (", ..." if len(report.missing) > 3 else "")
        lines += ["", f"{len(report.missing)} float tensors are not in the quantized model: {few}"]
    lines += [f"REMARK     {remark}" for remark in report.remarks]
    return "\n".join(lines)


def _layer(layer: LayerComparison) -> tuple[str, ...]:
    d = layer.effective
    drop = "" if layer.sqnr_drop is None else f"{layer.sqnr_drop:.2f}"
    measured = ("-", "-") if d is None else (f"{d.cosine:.6f}", decibel_text(d.sqnr))
    return (layer.tensor, layer.op_type, layer.kind or "-", layer.type, *measured, drop)


def _bar(layer: LayerComparison) -> str:
    """Return one # for every 4 dB, at most 15, and the function after which the tensor was compared."""
    if layer.effective is None:
        return f"another shape in {layer.shape_mismatches} samples"
    sqnr = layer.effective.sqnr
    bad = layer.sqnr_drop is not None and layer.sqnr_drop >= BAD_DROP and sqnr < BAD_SQNR
    after = f" after {layer.after}" if layer.after and sqnr != math.inf else ""
    return "#" * int(min(max(sqnr, 0.0), 60.0) / 4.0) + (" !" if bad else "") + after
