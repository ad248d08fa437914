"""Limits that a quantized model must keep, and those that it does not.

Where an interval is measured, a limit is held against its pessimistic end, not against the middle: accuracy
drop against the upper end of the 95 % interval, speedup against the lower quartile. What could be chance does
not pass. SQNR has no interval: it is that of all the samples together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...profiles.base.errors import ConfigError, check_finite
from .accuracy import Accuracy
from .compare import Difference, OutputResult
from .latency import Latency
from .metrics.score import Score
from .options import Gate

WORTHLESS = (
    "the float model has nothing right, so that nothing can be lost: do labels, their order and numbers, and "
    "--preprocess belong to this model?"
)
"""Remark on truth that judges nothing."""

LEAST_RIGHT, LEAST_SCORE = 50.0, 10.0
"""Percent of right rows, and of another score, below which a float model's own is more likely a mistake."""


@dataclass(frozen=True)
class GateFailure:
    """One limit that was not met.

    Attributes:
        demand: name of the field of `Gate`.
        where: the output (and channels) that failed it; "" for the whole model.
        measured: None when nothing could be measured.
        limit: value of that field.
        missing: how far `measured` is from `limit`, in the unit of the limit; inf when nothing was measured.
        reason: why, where the numbers do not say it; else "".
        unit: of the limit, where the demand alone does not say it; else "".
    """

    demand: str
    where: str
    measured: float | None
    limit: float
    missing: float
    reason: str = ""
    unit: str = ""


def truth_doubts(accuracy: Accuracy | None, score: Score | None, *, counts_rows: bool) -> tuple[str, ...]:
    """Return a remark where the float model does so badly that labels or preprocessing may be at fault.

    Args:
        accuracy, score: of both models; the score counts where there is one.
        counts_rows: whether the score is a share of rows that are right, as top-1 accuracy is.
    """
    if score is not None:
        right = score.float_score if score.higher_is_better else 100.0 - score.float_score
        least = LEAST_RIGHT if counts_rows else LEAST_SCORE
        rows, chance, is_at_chance = score.rows, score.chance, score.is_at_chance
        if score.unit == "%" and right <= 0.0:
            return (WORTHLESS,)
        if is_at_chance and not counts_rows:
            return (
                f"the float model scores {score.float_score:.6g} with the truth of its rows, and "
                f"{score.chance:.6g} with that of other rows: do labels, their order and numbers, and "
                "--preprocess belong to this model?",
            )
        if score.unit != "%":
            return ()
    elif accuracy is not None:
        right, least, counts_rows = accuracy.float_percent, LEAST_RIGHT, True
        rows, chance, is_at_chance = accuracy.rows, accuracy.chance, accuracy.is_at_chance
    else:
        return ()
    if right >= least and not is_at_chance:
        return ()
    if right <= 0.0:
        return (WORTHLESS,)
    if not counts_rows:
        return (
            f"the float model itself scores {right:.2f} %: labels, preprocessing or metric may not be those "
            "that it was trained for",
        )
    return (
        f"the float model is right on only {right:.0f} % of {rows} rows"
        + (f" (chance {chance:.3g} %)" if chance else "")
        + ": are labels in the model's order, and preprocessing as in training?",
    )


def check_gate(gate: Gate, *, labels: bool, latency: bool, metric: bool = True) -> None:
    """Raise ConfigError for a limit on something that is not measured, or that is not finite.

    Args:
        gate: the limits.
        labels: whether accuracy is measured.
        latency: whether latency is.
        metric: whether a metric is.
    """
    check_finite(gate)
    for demand in ("max_drop", "min_score"):
        if getattr(gate, demand) is not None and not metric:
            raise ConfigError(f"{demand}: needs a metric; name one (--metric, in Python metric=)")
    if gate.max_accuracy_drop is not None and not labels:
        raise ConfigError("max_accuracy_drop: accuracy needs labels; give a file of labels")
    if gate.min_speedup is not None and not latency:
        raise ConfigError("min_speedup: latency is not measured; do not leave it out")


def failures_of(
    gate: Gate,
    outputs: Sequence[OutputResult],
    accuracy: Accuracy | None,
    latency: Latency | None,
    samples: int,
    *,
    score: Score | None = None,
    size: int = 0,
) -> tuple[GateFailure, ...]:
    """Return the limits of `gate` that are not met, for outputs that were compared on `samples` samples.

    `score` is that of the metric and `size` the bytes of the quantized model. An output whose shape
    differs in some of the samples fails both limits on SQNR: that of the others says nothing about them.
    """
    failures: list[GateFailure] = []
    floats = [output for output in outputs if output.is_float]
    alike = [output for output in floats if not output.shape_mismatches]
    for demand, compared in (
        ("min_sqnr", ((f"output '{o.name}'", o.difference) for o in alike)),
        ("min_group_sqnr", _channel_groups(alike)),
    ):
        limit = getattr(gate, demand)
        if limit is not None:
            failures += _other_shapes(demand, limit, floats, samples)
            failures += _below(demand, limit, compared)
    if gate.max_accuracy_drop is not None:
        failures += _too_inaccurate(gate.max_accuracy_drop, accuracy)
    if gate.min_speedup is not None:
        failures += _too_slow(gate.min_speedup, latency)
    if score is not None:
        failures += _worse(gate, score)
    if gate.max_size is not None and size > gate.max_size:
        failures.append(_failure("max_size", "", float(size), gate.max_size))
    return tuple(failures)


def _other_shapes(
    demand: str, limit: float, floats: Sequence[OutputResult], samples: int
) -> Iterator[GateFailure]:
    for output in floats:
        if output.shape_mismatches:
            reason = f"has another shape than float's in {output.shape_mismatches} of {samples} samples"
            yield _failure(demand, f"output '{output.name}'", None, limit, reason)


def _channel_groups(floats: Sequence[OutputResult]) -> Iterator[tuple[str, Difference | None]]:
    for output in floats:
        if output.channels is None:
            yield f"output '{output.name}'", output.difference
            continue
        several = len(output.channels.groups) > 1
        for group in output.channels.groups:
            yield (
                f"output '{output.name}'" + (f", channels {group.text}" if several else ""),
                group.difference,
            )


def _below(
    demand: str, limit: float, compared: Iterator[tuple[str, Difference | None]]
) -> Iterator[GateFailure]:
    for where, difference in compared:
        if difference is None or difference.sqnr < limit:
            yield _failure(demand, where, None if difference is None else difference.sqnr, limit)


def _too_inaccurate(limit: float, accuracy: Accuracy | None) -> Iterator[GateFailure]:
    if accuracy is None:
        yield _failure("max_accuracy_drop", "", None, limit)
    elif accuracy.drop_high > limit:
        a = accuracy
        interval = f"drop {a.drop:.2f}, 95 % interval {a.drop_low:.2f} to {a.drop_high:.2f} on {a.rows} rows"
        rows = a.rows_to_show(limit)
        more = "the drop itself is above the limit"
        if a.is_at_chance:
            (more,) = truth_doubts(a, None, counts_rows=True)
        elif rows is not None:
            more = f"about {rows} rows would show that it is kept, if they differ as often as these"
        yield _failure(
            "max_accuracy_drop", "", a.drop_high, limit, f"upper end of the interval: {interval}; {more}"
        )


def _too_slow(limit: float, latency: Latency | None) -> Iterator[GateFailure]:
    low = None if latency is None else latency.speedup_low
    if low is None or low < limit:
        reason = "" if latency is None else f"lower quartile of the rounds; median {latency.speedup:.2f}"
        yield _failure("min_speedup", "", low, limit, reason)


def _worse(gate: Gate, score: Score) -> Iterator[GateFailure]:
    """Yield the limits on the metric's score that are not met."""
    if gate.max_drop is not None and not score.drop_high <= gate.max_drop:
        rows, doubts = score.rows_to_show(gate.max_drop), list[str]()
        if score.is_at_chance:
            doubts += truth_doubts(None, score, counts_rows=False)
        elif rows is not None:
            doubts.append(f"about {rows} would show that it is kept, if they differ as these do")
        interval = (
            f"upper end of the interval: drop {score.drop:.2f}, 95 % interval {score.drop_low:.2f} to "
            f"{score.drop_high:.2f} on {score.rows} scored"
        )
        reason = "; ".join((interval, *doubts))
        failure = _failure("max_drop", "", score.drop_high, gate.max_drop, reason)
        yield replace(failure, unit=score.drop_unit)
    limit, better = gate.min_score, score.higher_is_better
    if limit is None or (score.quantized_score >= limit if better else score.quantized_score <= limit):
        return
    reason = f"the float model has {score.float_score:.6g}" + ("" if better else "; a lower score is better")
    yield replace(_failure("min_score", "", score.quantized_score, limit, reason), unit=score.unit)


def _failure(demand: str, where: str, measured: float | None, limit: float, reason: str = "") -> GateFailure:
    missing = math.inf if measured is None else abs(measured - limit)
    return GateFailure(demand, where, measured, limit, missing, reason)
