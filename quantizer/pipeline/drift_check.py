"""New data against the parameters that a profile led to: `qprof diff`, the alarm of a nightly job."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from ...profiles.base.atomic_files import read_text
from ...profiles.base.errors import ConfigError, ProfileError
from ...profiles.base.presentation import Presentation, Presented, Table
from ...profiles.records.drift import Cover, Drift, TensorDrift, check_comparable, compare
from ...profiles.records.profile import Profile, TensorProfile
from ...profiles.records.store import loads
from ..evaluation.gates import GateFailure
from ..numerics.affine import TYPES, QuantParams
from ..numerics.schemas import SCHEMAS, choose_params
from ..prepare.opening import ProfileLike, profile_name
from ..ranges.calibrators import calibrate
from ..targets.config import QuantConfig
from ..targets.loading import load_recipe
from ..targets.target import Recipe

MEASURES = {
    "max_clipped": "newly_clipped",
    "max_range_growth": "range_growth",
    "max_distance": "distance",
    "max_wasserstein": "wasserstein",
    "max_non_finite": "non_finite",
}
"""Each limit, and the attribute of `TensorDrift` that it bounds."""


@dataclass(frozen=True)
class DriftLimits:
    """What every tensor must stay within; None asks for nothing. The measures: see `profiles.drift`.

    Attributes:
        max_clipped: share of the elements that saturates beyond what OLD's own data does, 0 to 1.
        max_range_growth: factor, at least 1.
        max_distance: Jensen-Shannon distance, 0 to 1.
        max_wasserstein: share of OLD's range.
        max_non_finite: share of the elements, 0 to 1.
    """

    max_clipped: float | None = None
    max_range_growth: float | None = None
    max_distance: float | None = None
    max_wasserstein: float | None = None
    max_non_finite: float | None = None


@dataclass(frozen=True, repr=False)
class DriftReport(Presented):
    """What `diff` found.

    Attributes:
        old_profile, new_profile: the files, as they were named.
        old_samples, new_samples: number of samples that each has seen.
        calibrator: the one that chose OLD's ranges.
        limits: what was demanded.
        drift: the measures of every tensor in OLD's order, and what else differs.
        failures: each tensor that breaks a limit, the worst first within a limit.
    """

    old_profile: str
    new_profile: str
    old_samples: int
    new_samples: int
    calibrator: str
    limits: DriftLimits
    drift: Drift
    failures: tuple[GateFailure, ...]

    @property
    def passed(self) -> bool:
        """Whether no limit was broken."""
        return not self.failures

    @property
    def gated(self) -> bool:
        """Whether any limit was given."""
        return any(getattr(self.limits, field.name) is not None for field in fields(self.limits))

    def headline(self) -> str:
        """Return both profiles, and how many limits were broken."""
        failed = f", {len(self.failures)} failures" if self.failures else ""
        return f"{self.new_profile} against {self.old_profile}, {len(self.drift.tensors)} tensors{failed}"

    def presentation(self) -> Presentation:
        """Return a table of the tensors, those that drifted most first."""
        broken = {failure.where for failure in self.failures}
        rows = tuple(
            (
                t.tensor,
                f"{t.range_growth:.4g}",
                "-" if t.clipped is None else f"{t.clipped:.4g}",
                "-" if t.distance is None else f"{t.distance:.4g}",
                "failed" if t.tensor in broken else "",
            )
            for t in self.worst()
        )
        header = ("tensor", "range growth", "clipping rate", "JS distance", "limits")
        facts = [("samples", f"{self.new_samples} against {self.old_samples}")]
        facts += [("note", note) for note in self.drift.notes]
        return Presentation(tuple(facts), (Table(header, rows),))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and `passed`."""
        return {**super().to_dict(), "passed": self.passed}

    def worst(self, count: int | None = None) -> tuple[TensorDrift, ...]:
        """Return the tensors that drifted most, or all: those that break a limit first, then by distance.

        A distance that could not be measured counts as the largest. Ties go by range growth, then stay in
        OLD's order.
        """
        broken = {failure.where for failure in self.failures}

        def key(t: TensorDrift) -> tuple[bool, float, float]:
            return t.tensor not in broken, -math.inf if t.distance is None else -t.distance, -t.range_growth

        return tuple(sorted(self.drift.tensors, key=key)[:count])


def diff(
    old: ProfileLike,
    new: ProfileLike,
    *,
    limits: DriftLimits | None = None,
    recipe: Recipe | None = None,
    allow_different: bool = False,
) -> DriftReport:
    """Compare two profiles: what OLD's parameters would make of NEW's data, and how far both differ.

    Args:
        old: the profile that a model was quantized with.
        new: a profile of newer data.
        limits: what every tensor must stay within; None for nothing.
        recipe: settings that choose OLD's parameters; None for the default target's.
        allow_different: compare tensors of the same name in models of different structure.

    Raises:
        ProfileError: a file cannot be read, or the two cannot be compared.
        ConfigError: a limit is not a number, or the calibrator does not exist.
    """
    limits = limits or DriftLimits()
    check_limits(limits)
    config = (recipe or load_recipe()).config
    before, after = _read(old), _read(new)
    names = _named(old, "the old profile"), _named(new, "the new profile")
    notes = check_comparable(before, after, names, allow_different=allow_different)
    drift = compare(before, after, covers_of(before, config), notes)
    failures = failures_of(limits, drift, vanished_fails=not allow_different)
    seen = before.data.samples, after.data.samples
    return DriftReport(*names, *seen, config.calibrator, limits, drift, failures)


def _read(source: ProfileLike) -> Profile:
    if isinstance(source, Profile):
        return source
    return loads(read_text(source, ProfileError), profile_name(source))


def _named(source: ProfileLike, otherwise: str) -> str:
    return otherwise if isinstance(source, Profile) else profile_name(source)


def covers_of(profile: Profile, config: QuantConfig) -> dict[str, Cover]:
    """Return, for each tensor, the numbers that its parameters hold, see `covered`."""
    return {name: covered(old_params(tensor, config)) for name, tensor in profile.items()}


def old_params(tensor: TensorProfile, config: QuantConfig) -> QuantParams:
    """Return the parameters that these settings give a tensor by itself, outside any group or fixed range.

    Raises:
        ConfigError: no such calibrator. PlanError: schema and type do not go together.
    """
    schema, qtype = SCHEMAS[config.schema], TYPES[config.activation_type]
    chosen = calibrate(tensor, config.calibrator, schema, qtype)
    return choose_params(chosen.low, chosen.high, schema, qtype)


def covered(params: QuantParams) -> Cover:
    """Return the range that one scale covers: the numbers that saturate by one step at most.

    Rounding costs half a step, so only what saturates by more loses anything worth an alarm. (The zero point
    is rounded too: OLD's own extremes may lie half a step outside the codes.)
    """
    (scale,), (zero_point,), qtype = params.scale, params.zero_point, params.qtype
    return scale * (qtype.low - zero_point - 1), scale * (qtype.high - zero_point + 1)


def check_limits(limits: DriftLimits) -> None:
    """Raise ConfigError for a limit that is no number, or that can never be kept."""
    for field in fields(limits):
        value = getattr(limits, field.name)
        least = 1.0 if field.name == "max_range_growth" else 0.0
        if value is not None and not value >= least:
            raise ConfigError(f"{field.name} {value}: must be a number of at least {least:g}; choose another")


def failures_of(limits: DriftLimits, drift: Drift, vanished_fails: bool = True) -> tuple[GateFailure, ...]:
    """Return each tensor that breaks a limit; those that could not be measured first, then the worst.

    Args:
        limits: what every tensor must stay within.
        drift: what was found.
        vanished_fails: whether a tensor that NEW does not hold breaks every limit.
    """
    found: list[GateFailure] = []
    for demand, measure in MEASURES.items():
        limit = getattr(limits, demand)
        if limit is not None:
            broken = list(_broken(demand, measure, limit, drift, vanished_fails))
            found += sorted(broken, key=lambda failure: -failure.missing)
    return tuple(found)


def _broken(
    demand: str, measure: str, limit: float, drift: Drift, vanished_fails: bool
) -> Iterator[GateFailure]:
    for tensor in drift.tensors:
        value = getattr(tensor, measure)
        if value is None:
            yield GateFailure(demand, tensor.tensor, None, limit, math.inf)
        elif value > limit:
            yield GateFailure(demand, tensor.tensor, value, limit, value - limit)
    if vanished_fails:
        yield from (GateFailure(demand, name, None, limit, math.inf) for name in drift.vanished)
