"""What to try where a model is not good: changes of settings, what each brings, and the best. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, log10

from ..targets.config import settings
from .candidates import RankedNode, Settings
from .grades import ORDER, Grade

MIN_GAIN_DB, MIN_GAIN_SHARE = 0.5, 0.25
"""Least gain of a fix, as estimated, that is worth a trial: in dB, and as a share of what is lacking."""

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
            for one in value if isinstance(value, tuple) else (value,):
                words += known[name].given(f"{one:g}" if isinstance(one, float) else str(one))
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


@dataclass(frozen=True)
class QualityGap:
    """What a model lacks.

    Attributes:
        sqnr: dB of its worst output, as measured.
        needed: dB that this output needs.
        calibrator: that it was made with.
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
    fixes: list[Fix] = []
    if gap.calibrator != gap.usual_calibrator:
        fixes.append(Fix({"calibrator": gap.usual_calibrator}))

    # The node that adds most noise.
    total = sum(one.noise for one in ranking)
    worst = min(ranking, key=lambda one: (-one.noise, one.nodes), default=None)
    if worst is not None and 0.0 < total < inf:
        sqnr = sqnr_without_noise(gap.sqnr, total, worst.noise)
        fixes.append(Fix({"keep_float": worst.nodes}, sqnr=sqnr))
    if worst is not None and gap.in_16_bits.issuperset(worst.nodes):
        fixes.append(Fix({"keep_16bit": worst.nodes}))

    # As many nodes as reach what is needed, unless these are too many to be named.
    names, noise = list[str](), 0.0
    for one in sorted(ranking, key=lambda one: (-one.noise / max(one.microseconds, 1e-3), one.nodes)):
        names += one.nodes
        noise += one.noise
        after = sqnr_without_noise(gap.sqnr, total, noise)
        if len(names) > MOST_NODES or after is None:
            break
        if after >= gap.needed + HEADROOM_DB:
            fixes.append(Fix({"keep_float": tuple(names)}, sqnr=after))
            break

    # A tighter noise budget.
    stricter = round(gap.limit + max(0.0, gap.needed - gap.sqnr) + HEADROOM_DB, 1)
    fixes.append(Fix({"min_output_sqnr": stricter}, sqnr=gap.needed))

    least = max(MIN_GAIN_DB, MIN_GAIN_SHARE * (gap.needed - gap.sqnr))
    unlike: dict[tuple[str, ...], Fix] = {}
    for fix in fixes:
        if fix.sqnr is None or fix.sqnr >= gap.sqnr + least:
            unlike.setdefault(fix.options, fix)
    return tuple(unlike.values())


def sqnr_without_noise(sqnr: float, total: float, noise: float) -> float | None:
    """Return the SQNR in dB without a part of the noise; None where hardly any would be left."""
    rest = total - noise
    return None if not 0.0 < rest < total else sqnr + 10.0 * log10(total / rest)


def stricter_limit(gap: QualityGap, tried: Iterable[Fix]) -> Fix | None:
    """Return a noise limit above those that were tried and did not reach what is needed; None for none.

    Args:
        gap: what is wrong.
        tried: the fixes so far.
    """
    limits = [
        (limit, fix.sqnr)
        for fix in tried
        if fix.is_measured and isinstance(limit := fix.settings.get("min_output_sqnr"), float)
    ]
    highest, sqnr = max(limits, key=lambda pair: pair[0], default=(0.0, None))
    if sqnr is None or sqnr >= gap.needed:
        return None
    step = max(LEAST_STEP_DB, 2.0 * (gap.needed - sqnr))
    return Fix({"min_output_sqnr": round(highest + step, 1)}, sqnr=gap.needed)


def best_fix(fixes: Collection[Fix], grade: Grade, sqnr: float | None) -> Fix | None:
    """Return the fix to apply: the best grade, then the least time as predicted, then the highest SQNR.

    Only what was measured counts, and only what betters the model: its grade, or its worst output by
    `MIN_GAIN_DB`.

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
        and (ORDER[fix.grade], -fix.sqnr) < (ORDER[grade], -before - MIN_GAIN_DB)
        and ORDER[fix.grade] <= ORDER[grade]
    ]
    return min(better, key=fix_order, default=None)


def fix_order(fix: Fix) -> tuple[object, ...]:
    """Return the sort key of fixes that were tried, the best first."""
    return ORDER[fix.grade], fix.predicted, -(fix.sqnr or 0.0), fix.options
