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
    """The ranges and histograms that a calibrator of another tool recorded.

    Attributes:
        ranges: smallest and largest value by tensor name of the float model, per tensor; finite, low <= high.
            Of Glow they are by Glow's names.
        tool: who wrote it, for people: "TensorRT 10.3 (EntropyCalibration2)".
        findings: what was assumed or left out.
        histograms: those that the file holds; usually none. Their ends are those of the values that were
            seen, and may differ from the range, which the calibrator chose.
    """

    ranges: Mapping[str, tuple[float, float]]
    tool: str
    findings: tuple[Finding, ...] = ()
    histograms: Mapping[str, EqualBins] = field(default_factory=dict)


@dataclass(frozen=True)
class ForeignParams:
    """Scales and zero points that another tool chose.

    Attributes:
        tensors: parameters of activations and constants, by tensor name of the float model.
        tool: who wrote it, for people.
        findings: what was assumed or left out.
        axis_unknown: constants with a scale for each channel or block, of which the file does not say along
            which axis; that in `tensors` is a stand-in until `with_axes` has seen the model.
    """

    tensors: Mapping[str, QuantParams]
    tool: str
    findings: tuple[Finding, ...] = ()
    axis_unknown: frozenset[str] = frozenset()


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
                f"tensor '{name}': stands twice in the file",
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
