"""Limits that a quantized model must keep, and those that it does not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from ...profiles.base.errors import ConfigError
from ..runtime.latency import Latency
from .accuracy import Accuracy
from .outputs import OutputResult
from .sqnr import Difference


@dataclass(frozen=True)
class Gate:
    """Limits that the quantized model must keep; None for no limit.

    Attributes:
        min_sqnr: dB, for every float output.
        min_group_sqnr: dB, for every group of channels of similar range of every float output: for
            detectors, where the error of small scores is hidden by large boxes. An output without channels
            is one group.
        max_accuracy_drop: percentage points (percent of the rows).
        min_speedup: latency of the float model over that of the quantized one: its lower quartile, so that
            chance on a busy machine does not pass.
    """

    min_sqnr: float | None = None
    min_group_sqnr: float | None = None
    max_accuracy_drop: float | None = None
    min_speedup: float | None = None

    @property
    def has_limit(self) -> bool:
        """Whether any limit was given."""
        return any(getattr(self, limit.name) is not None for limit in fields(self))


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
    """

    demand: str
    where: str
    measured: float | None
    limit: float
    missing: float
    reason: str = ""


def check_gate(gate: Gate, *, labels: bool, latency: bool) -> None:
    """Raise ConfigError for a limit on something that is not measured, or that is no number."""
    for field in fields(gate):
        value = getattr(gate, field.name)
        if value is not None and math.isnan(value):
            raise ConfigError(f"{field.name}: {value} is not a number; give one, or leave the gate out")
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
) -> tuple[GateFailure, ...]:
    """Return the limits of `gate` that are not met, for outputs that were compared on `samples` samples.

    An output whose shape differs in some of them fails both limits on SQNR: that of the others says nothing
    about them.
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
        drop = None if accuracy is None else accuracy.drop
        if drop is None or drop > gate.max_accuracy_drop:
            failures.append(_failure("max_accuracy_drop", "", drop, gate.max_accuracy_drop))
    if gate.min_speedup is not None:
        failures += _too_slow(gate.min_speedup, latency)
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


def _too_slow(limit: float, latency: Latency | None) -> Iterator[GateFailure]:
    low = None if latency is None else latency.speedup_low
    if low is None or low < limit:
        reason = "" if latency is None else f"lower quartile of the rounds; median {latency.speedup:.2f}"
        yield _failure("min_speedup", "", low, limit, reason)


def _failure(demand: str, where: str, measured: float | None, limit: float, reason: str = "") -> GateFailure:
    missing = math.inf if measured is None else abs(measured - limit)
    return GateFailure(demand, where, measured, limit, missing, reason)
