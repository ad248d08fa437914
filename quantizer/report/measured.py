"""What a report takes over from the results of commands: outputs, gates, drift, trials. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from ..differences.outputs import OutputResult
from ..evaluation.gates import GateFailure
from ..evaluation.layers import LayerReport
from ..evaluation.result import Evaluation
from ..metrics.score import score_text
from ..noise.estimate_check import expected_sqnr
from ..outputs.limits import WORDS, NoiseLimits
from ..pipeline.drift_check import DriftLimits, DriftReport
from ..pipeline.quantize_result import QuantizeResult
from ..plan.plan import QuantPlan
from ..speed.float_fallback import SpeedCheck
from ..tuning.result import TuneResult
from ..verdict.grades import needed_sqnr
from .content import Fact, GateResult, OutputQuality, Speed, TrialRecord, WhatIf
from .records import DriftRecord, TensorDriftRecord

UNITS = {
    "min_sqnr": "dB",
    "min_group_sqnr": "dB",
    "max_accuracy_drop": "percentage points",
    "min_speedup": "times float",
    "max_size": "bytes",
}
"""Unit of each limit that has always the same."""

SAME_DB = 0.05
"""Difference in dB up to which two figures are the same."""

MOST_DRIFT = 200
"""Tensors of a newer profile that a report lists, the worst first."""


@dataclass(frozen=True)
class Results:
    """Results of commands that a report is made of; None, or empty, for what was not run.

    Attributes:
        evaluation: of the quantized model on samples.
        layers: tensor by tensor, on samples.
        quantization: the files that were written.
        tuning: the trials.
        drift: newer profiles, in the order of time.
    """

    evaluation: Evaluation | None = None
    layers: LayerReport | None = None
    quantization: QuantizeResult | None = None
    tuning: TuneResult | None = None
    drift: tuple[DriftReport, ...] = ()


def outputs_of(
    plan: QuantPlan | None, evaluation: Evaluation | None, limits: NoiseLimits | None
) -> tuple[OutputQuality, ...]:
    """Return how near the outputs are, as estimated and as measured; the lowest SQNR first."""
    needed = {} if limits is None else needed_sqnr(limits)
    provenance = None if evaluation is None else evaluation.provenance
    origin = provenance if plan is None else plan.origin
    expected = (
        {}
        if origin is None
        else {e.output: e for e in expected_sqnr(origin.estimated_sqnr, origin.sqnr_bands)}
    )
    measured = {} if evaluation is None else {o.name: o for o in evaluation.outputs}
    found = []
    for name in dict.fromkeys([*measured, *expected]):
        e, m = expected.get(name), measured.get(name)
        difference = None if m is None else m.difference
        found.append(
            OutputQuality(
                name=name,
                estimated=None if e is None else e.estimated,
                low=None if e is None else e.low,
                high=None if e is None else e.high,
                measured=None if difference is None else difference.sqnr,
                cosine=None if difference is None else difference.cosine,
                agreement=_agreement(m),
                kind="" if limits is None or name not in limits.kinds else WORDS[limits.kinds[name]],
                needed=float(needed[name]) if name in needed else None,
            )
        )
    return tuple(sorted(found, key=sqnr_of))


def _agreement(output: OutputResult | None) -> float | None:
    return None if output is None or output.agreement is None else output.agreement.ratio


def sqnr_of(output: OutputQuality) -> float:
    """Return the SQNR of an output in dB: measured, else estimated; inf for one without any."""
    known = output.measured if output.measured is not None else output.estimated
    return math.inf if known is None else known


def _output_of(change: WhatIf, outputs: Sequence[OutputQuality]) -> OutputQuality | None:
    """Return the output that a change is about; the worst for a tensor that an output is made of."""
    return next((o for o in outputs if o.name == change.output), outputs[0] if outputs else None)


def reached_sqnr(change: WhatIf, outputs: Sequence[OutputQuality]) -> float | None:
    """Return the SQNR in dB that a change leads to; None where its gain is added to an estimate, and the
    output was measured: the sum would be neither."""
    output = _output_of(change, outputs)
    if change.is_measured or output is None or output.measured is None:
        return change.sqnr
    if change.sqnr is None or change.gained is None:
        return None
    return change.sqnr if abs(change.sqnr - change.gained - output.measured) <= SAME_DB else None


def is_unsure(change: WhatIf, outputs: Sequence[OutputQuality]) -> bool:
    """Whether a change is estimated where the output was measured outside of the band that was expected."""
    output = _output_of(change, outputs)
    if change.is_measured or output is None or output.measured is None:
        return False
    return not (
        (output.low is None or output.low <= output.measured)
        and (output.high is None or output.measured <= output.high)
    )


def facts_of(evaluation: Evaluation) -> Iterator[Fact]:
    """Yield what an evaluation says besides outputs, sizes and latency."""
    yield Fact("samples", str(evaluation.samples))
    a = evaluation.accuracy
    if a is not None:
        yield Fact(
            "accuracy",
            f"{a.float_percent:.2f} % float, {a.quantized_percent:.2f} % quantized of {a.rows} rows: drop "
            f"{a.drop:.2f} percentage points, 95 % interval {a.drop_low:.2f} to {a.drop_high:.2f}",
        )
    if evaluation.score is not None:
        yield Fact(evaluation.metric_title or evaluation.metric, score_text(evaluation.score))
    yield Fact("run by", f"{evaluation.runtime}, {evaluation.provider}")


def evaluation_gates(evaluation: Evaluation) -> Iterator[GateResult]:
    """Yield the limits of an evaluation, kept or not, and the baseline."""
    gate, known = evaluation.gate, set()
    for field in fields(gate):
        limit = getattr(gate, field.name)
        known.add(field.name)
        if limit is not None:
            failed = [f for f in evaluation.failures if f.demand == field.name]
            yield gate_result(field.name, limit, failed)
    others = [f for f in evaluation.failures if f.demand not in known]
    if evaluation.baseline:
        name = f"--baseline {evaluation.baseline}"
        yield GateResult(name, None, "", not others, tuple(map(failure_text, others)))
    if evaluation.doubts and evaluation.gated:
        yield GateResult("doubts about the models", None, "", False, evaluation.doubts)


def gate_result(demand: str, limit: float, failures: list[GateFailure]) -> GateResult:
    """Return one limit with where it is not kept."""
    unit = next((f.unit for f in failures if f.unit), UNITS.get(demand, ""))
    return GateResult(option_of(demand), limit, unit, not failures, tuple(map(failure_text, failures)))


def option_of(demand: str) -> str:
    """Return the option of a limit."""
    return f"--{demand.replace('_', '-')}"


def failure_text(failure: GateFailure) -> str:
    """Return where a limit is not kept, and by how much."""
    unit = failure.unit or UNITS.get(failure.demand, "")
    where = f"{failure.where}: " if failure.where else ""
    if failure.measured is None:
        return f"{where}{failure.reason or 'nothing could be compared'}"
    reason = f" ({failure.reason})" if failure.reason else ""
    measured = f"{failure.measured:.4g} {unit}".strip()
    return f"{where}{measured}, the limit is {failure.limit:g}{reason}"


def tuning_gates(result: TuneResult) -> Iterator[GateResult]:
    """Yield the quality target of a tuning."""
    why = () if result.target_met else tuple(result.limits) or ("no plan met it",)
    yield GateResult("--max-drop", result.target.max_drop, "percentage points", result.target_met, why)


def speed_gates(check: SpeedCheck) -> Iterator[GateResult]:
    """Yield the limit on speed of a quantization."""
    limit = check.demand.min_speedup
    if limit is not None:
        low = check.after.speedup_low
        why = () if check.passed else (f"{low:.2f} times float in the lower quartile of the rounds",)
        yield GateResult("--min-speedup", limit, UNITS["min_speedup"], check.passed, why)


def drift_gates(report: DriftReport) -> Iterator[GateResult]:
    """Yield the limits on the drift of one newer profile."""
    for field in fields(DriftLimits):
        limit = getattr(report.limits, field.name)
        if limit is not None:
            failed = [f for f in report.failures if f.demand == field.name]
            yield replace(gate_result(field.name, limit, failed), subject=report.new_profile)


def drift_record(report: DriftReport) -> DriftRecord:
    """Return a newer profile as a record, the tensors that drifted most first."""
    failing = {failure.where for failure in report.failures}
    return DriftRecord(
        profile=report.new_profile,
        samples=report.new_samples,
        passed=report.passed,
        gated=report.gated,
        tensors=tuple(
            TensorDriftRecord(t.tensor, t.clipping_rate, t.range_growth, t.js_distance, t.tensor in failing)
            for t in report.worst(MOST_DRIFT)
        ),
        notes=report.drift.notes,
    )


def trials_of(result: TuneResult) -> Iterator[TrialRecord]:
    """Yield the trials of a tuning, in order."""
    for at, trial in enumerate(result.trials):
        yield TrialRecord(
            settings=trial.candidate.base.name,
            kept_float=len(trial.candidate.keep_float),
            quantized=trial.quantized_nodes,
            drop=None if trial.score is None else trial.score.drop,
            value=trial.value,
            chosen=at == result.chosen,
            error=trial.error,
        )


def measured_speed(results: Results) -> Speed | None:
    """Return the time of both models where it was measured."""
    latency, where = None, ""
    if results.evaluation is not None and results.evaluation.latency is not None:
        latency = results.evaluation.latency
    elif results.quantization is not None and results.quantization.speed is not None:
        latency = results.quantization.speed.after
    if latency is None:
        return None
    where = f"{latency.threads} thread{'s' if latency.threads > 1 else ''}, {latency.samples} samples"
    return Speed(
        latency.float_ms,
        latency.quantized_ms,
        latency.speedup,
        latency.speedup_low,
        latency.speedup_high,
        "measured",
        where,
    )


def notes_of(results: Results) -> tuple[str, ...]:
    """Return the remarks of all results, each once."""
    found: list[str] = []
    if results.quantization is not None:
        found += results.quantization.notes
    if results.evaluation is not None:
        found += [*results.evaluation.doubts, *results.evaluation.remarks]
    if results.layers is not None:
        found += results.layers.remarks
    return tuple(dict.fromkeys(found))
