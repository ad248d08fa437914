"""Estimated SQNR of outputs, and the band in which it is expected. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..plan.plan import PlanOrigin
from ..plan.provenance import Provenance

BAND = (-8.0, 10.0)
"""Where the SQNR of an output lies, in dB from an estimate that is from measured noise: of nine of ten
models on which this was chosen (tuning splits). Most estimates are a little too careful."""

DECISION_BAND = (-22.0, 22.0)
"""The same for probabilities: if nearly all samples are decided, the few others make the noise."""

CALCULATED_BAND = (-25.0, 35.0)
"""The same for an estimate from profile and weights."""


def band_of(decibels: float, decides: bool, before_steps: float = math.inf) -> tuple[float, float]:
    """Return the lowest and the highest SQNR (dB) expected from an estimate by measured noise.

    A comparison or an ArgMax inside (`before_steps`: lowest SQNR there) chooses another step at as many
    places as noise is large, so that n dB before it may be n / 2 after. `decides` means probabilities.
    """
    below, above = DECISION_BAND if decides else BAND
    return round(min(decibels, before_steps / 2.0) + below, 2), round(decibels + above, 2)


ROUGH_BAND_DB = 20.0
"""Width of a band above which an estimate is called rough: with ten times the noise or a tenth of it."""


@dataclass(frozen=True)
class Estimate:
    """The SQNR of an output as it was estimated, in dB.

    Attributes:
        low, high: the band that contains the SQNR of nine of ten outputs.
        from_noise: whether the estimate is from measured noise.
    """

    output: str
    estimated: float
    low: float
    high: float
    from_noise: bool

    @property
    def text(self) -> str:
        """Return the estimate and its band."""
        word = "roughly estimated" if self.high - self.low > ROUGH_BAND_DB else "estimated"
        band = f"{self.low:.0f} to {self.high:.0f}"
        how = "" if self.from_noise else "; noise was not measured for this profile"
        return f"output '{self.output}': signal-to-noise {self.estimated:.1f} dB, {word} ({band}{how})"


def estimates_of(made: Provenance | PlanOrigin) -> tuple[Estimate, ...]:
    """Return the SQNR that is expected of each output of a plan, or of the model that was made by it."""
    below, above = CALCULATED_BAND
    return tuple(
        Estimate(name, db, *made.sqnr_bands.get(name, (db + below, db + above)), name in made.sqnr_bands)
        for name, db in made.estimated_sqnr.items()
    )
