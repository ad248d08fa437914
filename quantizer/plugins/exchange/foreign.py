"""The content of another tool's file, before it is bound to a model, and the limits of its ranges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ....profiles.base.errors import MalformedError
from ....profiles.base.findings import Code, Figure, Finding
from ....profiles.records.histogram import EqualBins
from ...numerics.affine import QuantParams
from ...numerics.schemas import FLOAT32_MAX

ADVICE = "calibrate again with the tool that wrote the file, on data without NaN and Inf, or correct the file"


@dataclass(frozen=True)
class ForeignRanges:
    """The ranges and histograms that a calibrator of another tool recorded."""

    ranges: Mapping[str, tuple[float, float]]  # per tensor; finite, low <= high
    tool: str  # who wrote it, for people: "TensorRT 10.3 (EntropyCalibration2)"
    findings: tuple[Finding, ...] = ()  # what was assumed or left out
    histograms: Mapping[str, EqualBins] = field(default_factory=dict)  # of the values seen; ranges may differ


@dataclass(frozen=True)
class ForeignParams:
    """Scales and zero points that another tool chose."""

    tensors: Mapping[str, QuantParams]
    tool: str  # who wrote it, for people
    findings: tuple[Finding, ...] = ()  # what was assumed or left out
    axis_unknown: frozenset[str] = frozenset()  # constants whose axis is a stand-in until `with_axes`


def assumption(sentence: str, subject: str = "", remedy: str = "", **figures: Figure) -> Finding:
    """Return the finding on how a file was read, or completed."""
    return Finding(Code.IMPORT_ASSUMED, sentence, subject, figures, remedy)


def omission(sentence: str, subject: str = "", remedy: str = "", **figures: Figure) -> Finding:
    """Return the finding on entries of a file that were left out."""
    return Finding(Code.IMPORT_LOSES, sentence, subject, figures, remedy)


def checked_range(tensor: str, low: float, high: float) -> tuple[float, float]:
    """Return a range; raise MalformedError if an end is no finite float32 or low exceeds high."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise MalformedError(f"tensor '{tensor}': the range {low} .. {high} is not finite", ADVICE)
    if max(abs(low), abs(high)) > FLOAT32_MAX:
        raise MalformedError(f"tensor '{tensor}': the range {low} .. {high} is beyond float32", ADVICE)
    if low > high:
        raise MalformedError(f"tensor '{tensor}': minimum {low} is greater than maximum {high}", ADVICE)
    return low, high


def unique(entries: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return entries by name; raise MalformedError if a name occurs twice."""
    by_name: dict[str, float] = {}
    for name, value in entries:
        if name in by_name:
            raise MalformedError(
                f"tensor '{name}': is repeated in the file",
                "delete the entry that is wrong, or write it again",
            )
        by_name[name] = value
    return by_name


def symmetric_ranges(limits: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Return [-limit, limit] of each tensor; raise MalformedError if a limit is negative or not finite."""
    return {name: checked_range(name, -limit, limit) for name, limit in limits.items()}


def some_of(names: Sequence[str]) -> str:
    """Return the first of some names, for a sentence: "'a', 'b', 'c' and 4 more"."""
    listed = ", ".join(f"'{name}'" for name in names[:3])
    return listed if len(names) <= 3 else f"{listed} and {len(names) - 3} more"
