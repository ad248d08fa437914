"""What to try where a model is not good: changes of settings, what each brings, and the best. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf, log10

from ..targets.config import settings
from .candidates import RankedNode, Settings
from .grades import ORDER, Grade

WORTH_DB, WORTH = 0.5, 0.25
"""Least gain of a fix, as estimated, that is worth a trial: in dB, and of what is lacking."""

MOST_NODES = 12
"""Nodes that are named one by one at most: more is a question of the noise budget."""

LEAST_STEP_DB = 3.0
"""By which a noise limit that did not reach what is needed is raised at least."""

HEADROOM_DB = 1.0
"""By which a fix aims above what is needed."""


@dataclass(frozen=True)
class Fix:
    """A change of settings, and what it brings.

    Attributes:
        settings: fields of `QuantConfig` with their new values; names of nodes are added to those given.
        check_speed: whether it is to measure speed, and keep float what is slower in int8.
        sqnr: dB of the worst output then: measured on the held-out samples, or estimated; None for unknown.
        speedup: times as fast as float then, as measured; None where it was not.
        is_measured: whether it was tried.
        grade: of the model then, where it was tried.
        drop: of the accuracy or metric then, in `drop_unit`; None without labels.
        predicted: predicted time over that of the model as it is; 1 for unknown.
        drop_unit: "percentage points", or that of the metric.
    """

    settings: Settings = field(default_factory=dict)
    check_speed: bool = False
    sqnr: float | None = None
    speedup: float | None = None
    is_measured: bool = False
    grade: Grade = "none"
    drop: float | None = None
    predicted: float = 1.0
    drop_unit: str = "percentage points"

    @property
    def options(self) -> tuple[str, ...]:
        """Return it as options of `qprof quantize`."""
        words, known = ["--check-speed"] if self.check_speed else [], settings()
        for name, value in self.settings.items():
            values = value if isinstance(value, tuple) else (value,)
            words += [word for one in values for word in (known[name].flag, _text(one))]
        return tuple(words)

    @property
    def brings(self) -> str:
        """Return what it brings, in words."""
        parts = [] if self.sqnr is None else [f"{self.sqnr:.1f} dB"]
        if self.drop is not None:
            parts.append(f"{0.0 - self.drop:+.2f} {self.drop_unit.removeprefix('percentage ')}")
        if self.speedup is not None:
            parts.append(f"{self.speedup:.2f} times as fast as float")
        if self.check_speed and not self.is_measured:
            parts.append("never slower than float")
        how = "measured" if self.is_measured else "estimated"
        return f"{', '.join(parts)} ({how})" if parts else "not estimated"


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class QualityGap:
    """What a model lacks.

    Attributes:
        sqnr: dB of its worst output, as measured.
        needed: dB that this output needs.
        calibrator: that it was made with, and
        usual_calibrator: that of its target.
        limit: the noise limit of that output in dB, as the plan kept it by its estimate.
        in_16_bits: nodes whose activations the target can have in 16 bits.
    """

    sqnr: float
    needed: float
    calibrator: str
    usual_calibrator: str
    limit: float
    in_16_bits: frozenset[str] = frozenset()


def proposals(gap: QualityGap, ranking: Sequence[RankedNode]) -> tuple[Fix, ...]:
    """Return what to try, in the order in which it is tried, each with its estimate.

    The target's own calibrator; the node that adds most noise, in float and in 16 bits; as many nodes as
    reach what is needed, those first whose noise is worth most time; and a tighter noise budget, by as much
    as the estimate was too good.

    Args:
        gap: what is wrong.
        ranking: noise of the nodes, in any order.
    """
    found: list[Fix] = []
    if gap.calibrator != gap.usual_calibrator:
        found.append(Fix({"calibrator": gap.usual_calibrator}))
    total = sum(one.noise for one in ranking)
    worst = sorted(ranking, key=lambda one: (-one.noise, one.nodes))[:1]
    found += [_kept_float(gap, total, one.nodes, one.noise) for one in worst if 0.0 < total < inf]
    wide = [one for one in worst if gap.in_16_bits.issuperset(one.nodes)]
    found += [Fix({"keep_16bit": one.nodes}) for one in wide]
    found += [_kept_float(gap, total, *kept) for kept in _enough(gap, ranking, total)]
    stricter = round(gap.limit + max(0.0, gap.needed - gap.sqnr) + HEADROOM_DB, 1)
    found.append(Fix({"min_output_sqnr": stricter}, sqnr=gap.needed))
    least = max(WORTH_DB, WORTH * (gap.needed - gap.sqnr))
    unlike: dict[tuple[str, ...], Fix] = {}
    for fix in found:
        if fix.sqnr is None or fix.sqnr >= gap.sqnr + least:
            unlike.setdefault(fix.options, fix)
    return tuple(unlike.values())


def stricter_limits(gap: QualityGap, tried: Sequence[Fix]) -> tuple[Fix, ...]:
    """Return a noise limit above those that were tried and did not reach what is needed; () for none.

    Args:
        gap: what is wrong.
        tried: the fixes so far.
    """
    limits = [fix for fix in tried if fix.is_measured and "min_output_sqnr" in fix.settings]
    highest = max(limits, key=_limit, default=None)
    if highest is None or highest.sqnr is None or highest.sqnr >= gap.needed:
        return ()
    step = max(LEAST_STEP_DB, 2.0 * (gap.needed - highest.sqnr))
    return (Fix({"min_output_sqnr": round(_limit(highest) + step, 1)}, sqnr=gap.needed),)


def _limit(fix: Fix) -> float:
    value = fix.settings["min_output_sqnr"]
    assert isinstance(value, float)
    return value


def _kept_float(gap: QualityGap, total: float, nodes: tuple[str, ...], noise: float) -> Fix:
    return Fix({"keep_float": nodes}, sqnr=without(gap.sqnr, total, noise))


def without(sqnr: float, total: float, noise: float) -> float | None:
    """Return the SQNR in dB without a part of the noise; None where hardly any would be left."""
    rest = total - noise
    return None if not 0.0 < rest < total else sqnr + 10.0 * log10(total / rest)


def _enough(
    gap: QualityGap, ranking: Sequence[RankedNode], total: float
) -> Sequence[tuple[tuple[str, ...], float]]:
    """Return the nodes, and their noise, that are to be float for what is needed; () where they are many."""
    names: list[str] = []
    noise = 0.0
    for one in sorted(ranking, key=lambda one: (-one.noise / max(one.microseconds, 1e-3), one.nodes)):
        names += one.nodes
        noise += one.noise
        after = without(gap.sqnr, total, noise)
        if len(names) > MOST_NODES or after is None:
            return ()
        if after >= gap.needed + HEADROOM_DB:
            return ((tuple(names), noise),)
    return ()


def best_fix(fixes: Collection[Fix], grade: Grade, sqnr: float | None) -> Fix | None:
    """Return the fix to apply: the best grade, then the least time as predicted, then the highest SQNR.

    Only what was measured counts, and only what betters the model: its grade, or its worst output by
    `WORTH_DB`.

    Args:
        fixes: what was tried.
        grade: of the model as it is.
        sqnr: dB of its worst output.
    """
    before = -inf if sqnr is None else sqnr
    better = [
        fix
        for fix in fixes
        if fix.is_measured
        and fix.sqnr is not None
        and (ORDER[fix.grade], -fix.sqnr) < (ORDER[grade], -before - WORTH_DB)
        and ORDER[fix.grade] <= ORDER[grade]
    ]
    return min(better, key=worth, default=None)


def worth(fix: Fix) -> tuple[object, ...]:
    """Return what fixes that were tried are ordered by, the best first."""
    return ORDER[fix.grade], fix.predicted, -(fix.sqnr or 0.0), fix.options
