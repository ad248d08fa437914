"""Estimated SQNR of outputs: its expected band, and the comparison with the measured one. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...profiles.base.findings import Code, Finding
from ..plan.plan import PlanOrigin
from ..plan.provenance import Provenance

BAND = (-8.0, 10.0)
"""Where the SQNR of an output lies, in dB from an estimate that is from measured noise: of nine of ten
models on which this was chosen (tuning splits). Most estimates are a little too careful."""

DECISION_BAND = (-22.0, 22.0)
"""The same for probabilities: where nearly all samples are decided, the few that are not make the noise."""

CALCULATED_BAND = (-25.0, 35.0)
"""The same for an estimate from profile and weights alone."""


def band_of(decibels: float, decides: bool, before_steps: float = math.inf) -> tuple[float, float]:
    """Return the lowest and the highest SQNR (dB) expected from an estimate by measured noise.

    A comparison or an ArgMax inside (`before_steps`: lowest SQNR there) chooses another step at as many
    places as noise is large, so that n dB before it may be n / 2 after. `decides` means probabilities.
    """
    below, above = DECISION_BAND if decides else BAND
    return round(min(decibels, before_steps / 2.0) + below, 2), round(decibels + above, 2)


HIGH_SQNR_DB = 60.0
"""Measured SQNR from which on no sentence is made of an estimate: noise is a thousandth of the signal."""

ROUGH_BAND_DB = 20.0
"""Width of a band above which an estimate is called rough: with ten times the noise or a tenth of it."""


@dataclass(frozen=True)
class Estimate:
    """The SQNR of an output as it was estimated and as it was measured, in dB.

    Attributes:
        low, high: the band in which the SQNR of nine of ten outputs lies.
        from_noise: whether the estimate is from measured noise.
        measured: on samples; None without.
    """

    output: str
    estimated: float
    low: float
    high: float
    from_noise: bool
    measured: float | None = None

    @property
    def is_too_good(self) -> bool:
        """Whether less was measured than the band holds."""
        return self.measured is not None and self.measured < self.low

    @property
    def text(self) -> str:
        """Return the estimate and its band, or both numbers and which one counts."""
        word = "roughly estimated" if self.high - self.low > ROUGH_BAND_DB else "estimated"
        band = f"{self.low:.0f} to {self.high:.0f}"
        if self.measured is None:
            how = "" if self.from_noise else "; noise was not measured for this profile"
            return f"output '{self.output}': signal-to-noise {self.estimated:.1f} dB, {word} ({band}{how})"
        return (
            f"output '{self.output}': measured {self.measured:.1f} dB, {word} {self.estimated:.1f} ({band}): "
            "the measurement counts"
        )


def estimates_of(made: Provenance | PlanOrigin) -> tuple[Estimate, ...]:
    """Return the SQNR that is expected of each output of a plan, or of the model that was made by it."""
    below, above = CALCULATED_BAND
    return tuple(
        Estimate(name, db, *made.sqnr_bands.get(name, (db + below, db + above)), name in made.sqnr_bands)
        for name, db in made.estimated_sqnr.items()
    )


def with_measured(estimates: Iterable[Estimate], measured: Mapping[str, float]) -> tuple[Estimate, ...]:
    """Return the estimates of outputs that were measured, with that SQNR (dB)."""
    return tuple(replace(one, measured=measured[one.output]) for one in estimates if one.output in measured)


def too_good(estimates: Iterable[Estimate]) -> tuple[Finding, ...]:
    """Return a finding on each estimate that was too good, unless the measured one is more than enough."""
    return tuple(
        Finding(
            Code.ESTIMATE_TOO_GOOD,
            one.text,
            one.output,
            {"measured": one.measured, "estimated": one.estimated, "low": one.low, "high": one.high},
        )
        for one in estimates
        if one.measured is not None and one.is_too_good and one.measured < HIGH_SQNR_DB
    )
