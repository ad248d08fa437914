"""Estimated SQNR of outputs: its expected band, and the comparison with the measured one. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...profiles.base.findings import Code, Finding

BAND = (-8.0, 10.0)
"""Where the SQNR of an output lies, in dB from an estimate that is from measured noise: of nine of ten
models on which this was chosen (tuning splits). Most estimates are a little too careful."""

DECISION_BAND = (-22.0, 22.0)
"""The same for probabilities: where nearly all samples are decided, the few that are not make the noise."""

CALCULATED_BAND = (-25.0, 35.0)
"""The same for an estimate from profile and weights alone."""


def band_of(decibels: float, decides: bool, before_steps: float = math.inf) -> tuple[float, float]:
    """Return the lowest and the highest SQNR (dB) expected from an estimate by measured noise.

    The effect of a comparison or an ArgMax inside the network on noise is not estimated: it chooses another
    step at as many places as noise is large, not as its power is, so that n dB before it may be n / 2 after.
    `decides` is true for probabilities; `before_steps` is the lowest SQNR (dB) in front of such steps.
    """
    below, above = DECISION_BAND if decides else BAND
    return round(min(decibels, before_steps / 2.0) + below, 2), round(decibels + above, 2)


@dataclass(frozen=True)
class ExpectedSqnr:
    """The SQNR that is expected of an output.

    Attributes:
        output: its name.
        estimated: SQNR in dB.
        low, high: the band in which the SQNR of nine of ten outputs lies, in dB.
        is_measured: whether the estimate is from measured noise.
    """

    output: str
    estimated: float
    low: float
    high: float
    is_measured: bool

    @property
    def text(self) -> str:
        """Return the estimate and its band."""
        how = "" if self.is_measured else "; noise was not measured for this profile"
        return (
            f"output '{self.output}': signal-to-noise {self.estimated:.1f} dB, "
            f"{_word(self.low, self.high)} ({self.low:.0f} to {self.high:.0f}{how})"
        )


HIGH_SQNR_DB = 60.0
"""Measured SQNR from which on no sentence is made of an estimate: noise is a thousandth of the signal."""

ROUGH_BAND_DB = 20.0
"""Width of a band above which an estimate is called rough: with ten times the noise or a tenth of it."""


def _word(low: float, high: float) -> str:
    return "roughly estimated" if high - low > ROUGH_BAND_DB else "estimated"


@dataclass(frozen=True)
class EstimateCheck:
    """The SQNR of one output, as it was estimated and as it was measured.

    Attributes:
        output: its name.
        estimated: dB, of the plan.
        low, high: the band in which it was expected, dB.
        measured: dB, on samples.
        too_good: whether the measured SQNR is below the band.
    """

    output: str
    estimated: float
    low: float
    high: float
    measured: float
    too_good: bool

    @property
    def text(self) -> str:
        """Return both numbers, and which one counts."""
        return (
            f"output '{self.output}': measured {self.measured:.1f} dB, {_word(self.low, self.high)} "
            f"{self.estimated:.1f} ({self.low:.0f} to {self.high:.0f}): the measurement counts"
        )


def expected_sqnr(
    estimated: Mapping[str, float], bands: Mapping[str, tuple[float, float]]
) -> tuple[ExpectedSqnr, ...]:
    """Return the expected SQNR (dB) of each output; `bands` has outputs with measured noise."""
    below, above = CALCULATED_BAND
    return tuple(
        ExpectedSqnr(name, db, *bands.get(name, (db + below, db + above)), name in bands)
        for name, db in estimated.items()
    )


def check_estimates(
    expected: Iterable[ExpectedSqnr], measured: Mapping[str, float]
) -> tuple[EstimateCheck, ...]:
    """Return both numbers for each output that was estimated and measured, in the order of the estimates."""
    return tuple(
        EstimateCheck(e.output, e.estimated, e.low, e.high, measured[e.output], measured[e.output] < e.low)
        for e in expected
        if e.output in measured
    )


def too_good(checks: Iterable[EstimateCheck]) -> tuple[Finding, ...]:
    """Return a finding on each estimate that was too good, unless the measured one is more than enough."""
    return tuple(
        Finding(
            Code.ESTIMATE_TOO_GOOD,
            check.text,
            check.output,
            {"measured": check.measured, "estimated": check.estimated, "low": check.low, "high": check.high},
        )
        for check in checks
        if check.too_good and check.measured < HIGH_SQNR_DB
    )
