"""NaN and Inf left out of a profile: the report on them, and its exchange between runs.

A profile's file has their numbers for each tensor. Which sample was the first is known to the run alone; it
goes from workers to the run that merges their profiles, and into checkpoints, beside the profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from ..base.errors import DataError
from ..base.findings import Code, Figure, Finding
from .profile import FirstNonFinite, NonFinite, Profile


def non_finite_finding(profile: Profile) -> Finding | None:
    """Return the finding on a profile's NaN and Inf, with sample and node if known; None for none."""
    names = [name for name, tensor in profile.items() if tensor.nan or tensor.inf]
    if not names:
        return None
    tensors = "1 tensor" if len(names) == 1 else f"{len(names)} tensors"
    head, clauses = f"NaN or Inf in {tensors}", [f"the first is '{names[0]}'"]
    first = profile.non_finite.first
    if first is not None:
        count = len(profile.non_finite.samples)
        samples = "1 sample" if count == 1 else f"{count} samples"
        head = f"NaN or Inf from {samples} in {tensors}"
        clauses = [
            f"first in sample {first.sample}: tensor '{first.tensor}' ({first.producer}) holds "
            f"{counted(first.nan, first.inf)} among {first.elements} elements"
        ]
    worst, share = _worst_tensor(profile)
    if worst:
        clauses.append(f"most in tensor '{worst}': {100 * share:.3g} % of its elements")
    sentence = f"{head}, left out of ranges and histograms; {'; '.join(clauses)}"
    figures: dict[str, Figure] = {"tensors": len(names), "worst": worst, "share": share}
    return Finding(Code.NON_FINITE, sentence, names[0], figures)


def gate_failure(profile: Profile, limit: float) -> Finding | None:
    """Return the alarm of a profile if a tensor has too large a fraction of NaN and Inf, else None."""
    name, share = _worst_tensor(profile)
    if share <= limit:
        return None
    sentence = (
        f"--max-non-finite {limit:g}: tensor '{name}': {100 * share:.3g} % of its elements are NaN or Inf, "
        f"more than {100 * limit:.3g} %"
    )
    figures: dict[str, Figure] = {"gate": "max_non_finite", "limit": limit, "measured": share}
    remedy = "repair the samples or the model, or raise --max-non-finite"
    return Finding(Code.GATE_FAILED, sentence, name, figures, remedy)


def check_outputs_have_numbers(profile: Profile, outputs: Iterable[str]) -> None:
    """Raise DataError if each profiled output has NaN, and no finite number: a model could not be judged."""
    seen = [profile[name] for name in outputs if name in profile]
    if seen and all(tensor.nan and not tensor.count for tensor in seen):
        finding = non_finite_finding(profile)
        cause = "" if finding is None else f": {finding.sentence}"
        raise DataError(f"no output of the model is a finite number{cause}; repair the samples or the model")


def _worst_tensor(profile: Profile) -> tuple[str, float]:
    """Return the tensor with the largest share of NaN and Inf; infinities alone are a filler of masks."""
    shares = {
        name: (tensor.nan + tensor.inf) / (tensor.nan + tensor.inf + tensor.count)
        for name, tensor in profile.items()
        if tensor.nan or (tensor.inf and tensor.count)
    }
    return max(shares.items(), key=lambda item: item[1], default=("", 0.0))


def counted(nan: int, inf: int) -> str:
    """Return numbers of NaN and infinite elements, at least one above 0, as text."""
    return " and ".join(f"{number} {kind}" for number, kind in ((nan, "NaN"), (inf, "Inf")) if number)


def to_entries(non_finite: NonFinite) -> dict[str, Any]:
    """Return the memory of a run as entries of JSON."""
    first = None if non_finite.first is None else asdict(non_finite.first)
    return {"samples": sorted(non_finite.samples), "first": first}


def from_entries(entries: Mapping[str, Any]) -> NonFinite:
    """Return the argument of `to_entries` again.

    KeyError, TypeError or ValueError if these are no such entries, or if they contradict each other.
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
