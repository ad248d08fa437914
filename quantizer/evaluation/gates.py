"""Every gate, and the one rule for all of them: a limit that is not shown to be kept is not passed.

A limit is compared with the worse end of the measurement: the upper end of a drop's 95 % interval, the lower
quartile of the rounds of a speed, the worst output or tensor. The result is one of three:

==========  ===============================================================================================
passed      the worse end keeps the limit
failed      a number was measured, and the number itself does not keep it
not proven  anything else: too few rows, a truth that does not fit, outputs of another shape, nothing that
            could be compared, NaN, a score beside an output that is destroyed, or that is poor and that it
            does not read. The command ends with exit code 1 as after a failed one
==========  ===============================================================================================

The limits of `evaluate` are checked here, those of `diff` in its plug-in, by the same table and rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from ...profiles.base.arguments import check_record
from ...profiles.base.errors import ConfigError, DataError
from ...profiles.base.findings import Code, Figure, Finding
from ...profiles.base.presentation import size_text
from ...profiles.runtime.providers import check_provider
from ..targets.machine import runs_here
from .compare import OutputResult
from .grades import Decision
from .latency import MIN_ROUNDS, Latency
from .metrics.score import Score
from .metrics.table import named_metric
from .metrics.user_functions import MetricFunction
from .options import Gate, Judge

Options = TypeVar("Options", bound=Judge)

Result = Literal["failed", "not proven"]
"""Why a gate did not pass."""


UNITS = {"min_sqnr": "dB", "min_speedup": "times", "max_size": "bytes"}
"""Units of gates, by field of `Gate`; the metric, or the measure of drift, says those of the others."""


@dataclass(frozen=True)
class GateFailure:
    """One limit that was not shown to be kept."""

    demand: str  # field of `Gate` or of the limits of drift; a figure of `min_` has to be at least the limit
    where: str  # the output (and channels) that it is about; "" for the whole model
    measured: float | None  # the worse end of the measurement; None without a number
    limit: float  # the limit that was given
    missing: float  # how far `measured` is from `limit`, in the unit of the limit; inf without a number
    reason: str = ""  # the reason, if the numbers do not show it
    unit: str = ""  # of the limit
    result: Result = "failed"  # whether it was measured to be worse, or is not proven


def failure_text(failure: GateFailure) -> str:
    """Return the place and the size of a violation; the limit itself is printed beside it."""
    where = f"{failure.where}: " if failure.where else ""
    digits = ".2f" if failure.unit else ".4g"  # distances of drift have no unit, and are small
    measured, unit = failure.measured, failure.unit
    if measured is None or (failure.demand == "max_drop" and failure.reason):
        return f"{where}{failure.reason or 'nothing could be compared'}"
    figure, missing = (
        size_text(int(value)) if unit == "bytes" else f"{value:{digits}} {unit}".rstrip()
        for value in (measured, failure.missing)
    )
    return f"{where}{figure}, {missing} off{f' ({failure.reason})' if failure.reason else ''}"


def gate_finding(failure: GateFailure) -> Finding:
    """Return the alarm of a limit that is not kept, or not proven, as its option says it."""
    code = Code.GATE_FAILED if failure.result == "failed" else Code.GATE_NOT_PROVEN
    sentence = f"--{failure.demand.replace('_', '-')} {failure.limit:g}: {failure_text(failure)}"
    figures: dict[str, Figure] = {"gate": failure.demand, "limit": failure.limit}
    if failure.measured is not None:
        figures |= {"measured": failure.measured, "missing": failure.missing}
    return Finding(code, sentence, failure.where, figures)


def limit_failures(
    demand: str,
    limit: float,
    measured: float | None,
    *,
    worst: float | None = None,
    doubt: str = "",
    overruled: str = "",
    where: str = "",
    reason: str = "",
    unit: str = "",
    is_least: bool | None = None,
) -> Iterator[GateFailure]:
    """Yield a failure if a limit is not shown to be met: the rule of this module."""
    least = demand.startswith("min_") if is_least is None else is_least

    def is_kept(figure: float | None) -> bool:  # NaN keeps no limit
        return figure is not None and (figure >= limit if least else figure <= limit)

    worse_end = measured if worst is None else worst
    if is_kept(worse_end) and not doubt:
        if not overruled:
            return
        doubt, reason = overruled, ""
    number = None if doubt or worse_end is None or math.isnan(worse_end) else worse_end
    is_worse = not doubt and measured is not None and not math.isnan(measured) and not is_kept(measured)
    yield GateFailure(
        demand=demand,
        where=where,
        measured=number,
        limit=limit,
        missing=math.inf if number is None else abs(number - limit),
        reason="; ".join(filter(None, (doubt, reason))),
        unit=unit or UNITS.get(demand, ""),
        result="failed" if is_worse else "not proven",
    )


def check_gate(
    gate: Gate, *, labels: bool, latency: bool, metric: str | MetricFunction | None = None
) -> None:
    """Raise ConfigError for a limit without a measurement, not finite, or that looks like a fraction."""
    check_record(gate)
    least = gate.min_score
    if least is not None and 0.0 < least <= 1.0 and _is_share_right(labels, metric):
        meant = f"{100.0 * least:.6g}"
        raise ConfigError(f"--min-score {least:g}: the score is in percent; write {meant}, or {meant}%")
    for name in SCORED:
        if getattr(gate, name) is not None and not (labels or metric):
            raise ConfigError(f"{name}: nothing is scored; give labels, or name a metric (--metric)")
    if gate.min_speedup is not None and not latency:
        raise ConfigError("min_speedup: latency is not measured; do not leave it out")


def _is_share_right(labels: bool, metric: str | MetricFunction | None) -> bool:
    """Whether the score is in percent of right answers: of wrong ones, below 1 % may be wanted."""
    if metric is None:
        return labels
    named = named_metric(metric) if isinstance(metric, str) else None
    return named is not None and named.kind.unit == "%" and named.kind.higher_is_better


def timed_where_it_runs(measuring: Options, gate: Gate, target: str) -> Options:
    """Return options without latency if models do not run on their target; ConfigError if a gate needs it."""
    runtime = measuring.runtime
    provider = check_provider(measuring.provider) if runtime == "onnxruntime" else ""
    if measuring.latency is None or runs_here(target, runtime, provider):
        return measuring
    if gate.min_speedup is not None:
        raise ConfigError(
            f"min_speedup: times in {runtime} do not apply to {target}, the target of the model; leave "
            "it out, or measure on the target"
        )
    return replace(measuring, latency=None)


def failures_of(
    gate: Gate,
    outputs: Sequence[OutputResult],
    scores: Score | None,
    latency: Latency | None,
    samples: int,
    *,
    size: int = 0,
    decision: Decision | None = None,
) -> tuple[GateFailure, ...]:
    """Return the limits of `gate` that are not shown to be kept; a poor output overrules the score."""
    overruled = decision.overruled if decision is not None and decision.grade == "poor" else ""
    failures: list[GateFailure] = []
    if gate.min_sqnr is not None:
        failures += _sqnr(gate.min_sqnr, outputs, samples)
    for name, check in SCORED.items():
        if (limit := getattr(gate, name)) is not None:
            no_score = limit_failures(name, limit, None, doubt="nothing was scored")
            failures += no_score if scores is None else check(limit, scores, overruled)
    if gate.min_speedup is not None:
        failures += speed_failures(gate.min_speedup, latency)
    if gate.max_size is not None:
        failures += limit_failures("max_size", gate.max_size, float(size))
    return tuple(failures)


def _sqnr(limit: float, outputs: Sequence[OutputResult], samples: int) -> Iterator[GateFailure]:
    """Check the SQNR of each float output; one that is 0 in both models proves nothing, but another may."""
    has_proof = False
    for output in (output for output in outputs if output.is_float):
        where = f"output '{output.name}'"
        if output.shape_mismatches or output.difference is None:
            doubt = "nothing could be compared"
            if output.shape_mismatches:
                doubt = f"has another shape than float's in {output.shape_mismatches} of {samples} samples"
            yield from limit_failures("min_sqnr", limit, None, doubt=doubt, where=where)
            has_proof = True
            continue
        doubt, difference = "", output.difference
        if difference.non_finite:
            doubt = f"{difference.non_finite} elements are NaN or Inf in one of the models only"
        elif difference.max_abs_value == 0.0 and difference.sqnr == -math.inf:
            doubt = "the float model puts out nothing but 0 there"
        has_proof = has_proof or bool(doubt) or difference.max_abs_value > 0.0
        yield from limit_failures("min_sqnr", limit, difference.sqnr, doubt=doubt, where=where)
    if not has_proof:
        doubt = "both models put out nothing but 0 or nothing at all"
        yield from limit_failures("min_sqnr", limit, None, doubt=doubt)


def _drop(limit: float, scores: Score, overruled: str) -> Iterator[GateFailure]:
    """Check a drop by the upper end of its interval; say how many rows would prove the limit to be kept."""
    unit = scores.drop_unit
    lost = f"{abs(scores.drop):.2f} {unit} {'gained' if scores.drop < -0.005 else 'lost'}"
    doubt, reason = "", ""
    if scores.is_at_chance:
        doubt = _unfit_truth(scores)
    elif not math.isfinite(scores.drop):
        doubt = "one of the scores is not a number"
    elif not scores.unit and unit == "points" and limit >= scores.float_score:
        doubt = (
            f"the float model has {scores.float_score:.6g} in the unit of the function, and no model can "
            "lose more; return 0 to 100, or give a lower limit"
        )
    elif scores.drop > limit:
        reason = f"{lost}, {scores.interval} on {scores.rows} rows"
    elif scores.drop_low == -math.inf:
        doubt = f"{scores.rows} rows are too few to check whether the labels belong to them"
    else:
        rows = scores.rows_to_show(limit)
        enough = "" if rows is None else f"; about {rows} would, if they differ as often"
        reason = (
            f"{lost}, but {scores.rows} rows cannot show that it is at most {limit:g} (up to "
            f"{scores.drop_high:.2f}){enough}"
        )
    drop, most = scores.drop, scores.drop_high
    yield from limit_failures(
        "max_drop", limit, drop, worst=most, doubt=doubt, overruled=overruled, reason=reason, unit=unit
    )


def _score(limit: float, score: Score, overruled: str) -> Iterator[GateFailure]:
    """Check the quantized model's score; if lower scores are better, it must be at most the limit."""
    better = "" if score.higher_is_better else "; a lower score is better"
    yield from limit_failures(
        "min_score",
        limit,
        score.quantized_score,
        doubt=_unfit_truth(score) if score.is_at_chance else "",
        overruled=overruled,
        reason=f"the float model has {score.float_score:.6g}{better}",
        unit=score.unit,
        is_least=score.higher_is_better,
    )


SCORED = {"max_drop": _drop, "min_score": _score}
"""Gates that need a score, with their checks."""


def speed_failures(limit: float, latency: Latency | None) -> Iterator[GateFailure]:
    """Check a speedup by its lower quartile, which fewer than MIN_ROUNDS rounds do not have."""
    if latency is None:
        yield from limit_failures("min_speedup", limit, None, doubt="latency was not measured")
        return
    few = latency.rounds < MIN_ROUNDS
    yield from limit_failures(
        "min_speedup",
        limit,
        latency.speedup,
        worst=latency.speedup_low,
        doubt=f"{latency.rounds} rounds are fewer than {MIN_ROUNDS}" if few else "",
        reason=f"lower quartile of the rounds; median {latency.speedup:.2f}",
    )


# Whether the truth belongs to the model ------------------------------------------------------------------

WORTHLESS = (
    "the float model gets nothing right, so no loss can be measured: do labels, their order and numbers, and "
    "--preprocess belong to this model?"
)
"""Sentence on a truth that cannot tell a good model from a bad one."""


def truth_doubts(score: Score | None) -> tuple[Finding, ...]:
    """Return a finding if the float model does so badly that labels or preprocessing may be at fault."""
    if score is None:
        return ()
    if score.is_at_chance:
        return (Finding(Code.DOUBTFUL_TRUTH, _unfit_truth(score)),)
    right = score.float_score if score.higher_is_better else 100.0 - score.float_score
    if score.unit != "%" or right >= score.least:
        return ()
    sentence = (
        f"the float model itself scores {right:.2f} % of {score.rows} rows: labels, their order and numbers, "
        "preprocessing or metric may not be those that it was trained for"
    )
    return (Finding(Code.DOUBTFUL_TRUTH, sentence, figures={"score": right}),)


def _unfit_truth(score: Score) -> str:
    """Return the sign that the truth is wrong if the float model is at chance."""
    if not score.has_something_right:
        return WORTHLESS
    right, chance = (f"{value:.4g} {score.unit}".rstrip() for value in (score.float_score, score.chance))
    return (
        f"the float model scores {right} with the truth of its {score.rows} rows, {chance} by chance: are "
        "these enough rows, and do labels, their order and numbers, and --preprocess belong to this model?"
    )


MIN_REFUSED_ROWS = 10
"""Least rows for rejecting labels because the float model gets no row right."""


def check_truth(truth: str | Path, scores: Score | None, assumed: Iterable[Finding]) -> None:
    """Raise DataError for truth of `MIN_REFUSED_ROWS` or more rows if the float model has nothing right."""
    if scores is None or scores.rows < MIN_REFUSED_ROWS:
        return
    if not scores.has_something_right:
        read = [one.text for one in assumed if one.code is Code.METRIC_ASSUMED]
        raise DataError(f"{truth}: {WORTHLESS}{''.join(f' ({text})' for text in read)}")
