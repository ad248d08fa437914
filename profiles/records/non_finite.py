"""NaN and Inf left out of a profile: the report on them."""

from __future__ import annotations

from collections.abc import Iterable

from ..base.errors import DataError
from ..base.findings import Code, Figure, Finding
from .profile import Profile


def non_finite_finding(profile: Profile) -> Finding | None:
    """Return the finding on a profile's NaN and Inf, with sample and node if known; None for none."""
    names = [name for name, tensor in profile.items() if tensor.nan or tensor.inf]
    if not names:
        return None
    tensors = "1 tensor" if len(names) == 1 else f"{len(names)} tensors"
    head, clauses = f"NaN or Inf in {tensors}", [f"the first is '{names[0]}'"]
    first = profile.non_finite
    if first is not None:
        clauses = [
            f"first in sample {first.sample}: tensor '{first.tensor}' ({first.producer}) contains "
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
    """Return the tensor with the largest fraction of NaN and Inf; a tensor with only infinities is a mask."""
    shares = {
        name: (tensor.nan + tensor.inf) / (tensor.nan + tensor.inf + tensor.count)
        for name, tensor in profile.items()
        if tensor.nan or (tensor.inf and tensor.count)
    }
    return max(shares.items(), key=lambda item: item[1], default=("", 0.0))


def counted(nan: int, inf: int) -> str:
    """Return numbers of NaN and infinite elements, at least one above 0, as text."""
    return " and ".join(f"{number} {kind}" for number, kind in ((nan, "NaN"), (inf, "Inf")) if number)
