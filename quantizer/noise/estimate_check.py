"""Estimated SQNR held against what was measured on samples. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TOO_GOOD_DB = 3.0
"""An estimate that exceeds the measurement by more than this is reported: twice the noise power."""


@dataclass(frozen=True)
class EstimateCheck:
    """The SQNR of one output, as it was estimated and as it was measured.

    Attributes:
        output: its name.
        estimated: dB, of the plan.
        measured: dB, on samples.
        too_good: whether the estimate exceeds the measurement by more than `TOO_GOOD_DB`.
    """

    output: str
    estimated: float
    measured: float
    too_good: bool

    @property
    def text(self) -> str:
        """Return both numbers, and by how much the estimate was too good."""
        return (
            f"output '{self.output}': estimated {self.estimated:.1f} dB, measured {self.measured:.1f}: "
            f"the estimate was {self.estimated - self.measured:.1f} dB too good; trust the measurement"
        )


def check_estimates(
    estimated: Mapping[str, float], measured: Mapping[str, float]
) -> tuple[EstimateCheck, ...]:
    """Return both numbers for each output that was estimated and measured, in the order of the estimates."""
    return tuple(
        EstimateCheck(name, db, measured[name], db - measured[name] > TOO_GOOD_DB)
        for name, db in estimated.items()
        if name in measured
    )


def too_good_texts(checks: Iterable[EstimateCheck]) -> tuple[str, ...]:
    """Return a sentence for each estimate that was too good."""
    return tuple(check.text for check in checks if check.too_good)
