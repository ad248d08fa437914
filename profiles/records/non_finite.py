"""NaN and Inf that were left out of a profile: the report on them, and what runs tell one another.

A profile's file has their numbers for each tensor. Which sample was the first is known to the run alone; it
goes from workers to the run that merges their profiles, and into checkpoints, beside the profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .profile import FirstNonFinite, NonFinite, Profile


@dataclass(frozen=True)
class NonFiniteReport:
    """NaN and Inf of a profile.

    Attributes:
        tensors: how many tensors held some.
        worst: the tensor with the largest share of them, and the share, 0 to 1. A tensor that holds
            infinities and nothing else is a filler, as those of masks, and is left out here; "" and 0.0 for
            none.
        first: name of the first tensor that held some, in graph order.
        remembered: samples and node, where the run is known.
    """

    tensors: int
    worst: tuple[str, float]
    first: str
    remembered: NonFinite

    @property
    def sentence(self) -> str:
        """The report as a sentence."""
        tensors = "1 tensor" if self.tensors == 1 else f"{self.tensors} tensors"
        parts, first = [f"NaN or Inf in {tensors}", f"the first is '{self.first}'"], self.remembered.first
        if first is not None:
            count = len(self.remembered.samples)
            samples = "1 sample" if count == 1 else f"{count} samples"
            parts = [
                f"NaN or Inf from {samples} in {tensors}",
                f"first in sample {first.sample}: tensor '{first.tensor}' ({first.producer}) holds "
                f"{counted(first.nan, first.inf)} among {first.elements} elements",
            ]
        if self.worst[0]:
            parts.append(f"most in tensor '{self.worst[0]}': {100 * self.worst[1]:.3g} % of its elements")
        return f"{parts[0]}, left out of ranges and histograms; {'; '.join(parts[1:])}"


def non_finite_report(profile: Profile) -> NonFiniteReport | None:
    """Return the report on a profile's NaN and Inf; None where there are none."""
    holding = {name: tensor for name, tensor in profile.items() if tensor.nan or tensor.inf}
    if not holding:
        return None
    shares = {
        name: (tensor.nan + tensor.inf) / (tensor.nan + tensor.inf + tensor.count)
        for name, tensor in holding.items()
        if tensor.nan or tensor.count
    }
    worst = max(shares.items(), key=lambda item: item[1], default=("", 0.0))
    return NonFiniteReport(len(holding), worst, next(iter(holding)), profile.non_finite)


def gate_failure(profile: Profile, limit: float) -> str | None:
    """Return why a profile fails whose tensors may hold NaN and Inf up to a share; None where it does not."""
    report = non_finite_report(profile)
    if report is None or report.worst[1] <= limit:
        return None
    name, share = report.worst
    return (
        f"tensor '{name}': {100 * share:.3g} % of its elements are NaN or Inf, more than "
        f"{100 * limit:.3g} %; repair the samples or the model, or raise --max-non-finite"
    )


def counted(nan: int, inf: int) -> str:
    """Return numbers of NaN and infinite elements as text, of which one is not 0."""
    return " and ".join(f"{number} {kind}" for number, kind in ((nan, "NaN"), (inf, "Inf")) if number)


def to_entries(non_finite: NonFinite) -> dict[str, Any]:
    """Return what a run remembers as entries of JSON."""
    first = None if non_finite.first is None else asdict(non_finite.first)
    return {"samples": sorted(non_finite.samples), "first": first}


def from_entries(entries: Mapping[str, Any]) -> NonFinite:
    """Return what `to_entries` was given.

    Raises:
        KeyError, TypeError, ValueError: these are no such entries, or they contradict each other.
    """
    samples, entry = entries["samples"], entries["first"]
    first = None if entry is None else FirstNonFinite(**entry)
    types = {} if first is None else {name: type(value).__name__ for name, value in vars(first).items()}
    if type(samples) is not list or not all(type(name) is str for name in samples):
        raise ValueError("the samples with NaN or Inf are no names")
    if any(types[field.name] != field.type for field in fields(FirstNonFinite) if types):
        raise ValueError("the first NaN or Inf has entries of other types")
    if (first.sample if first else None) not in (samples or [None]):
        raise ValueError("the first sample with NaN or Inf is none of them")
    return NonFinite(frozenset(samples), first)
