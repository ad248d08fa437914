"""Whether a quantized model is worth being written. Pure.

Instead of one that gains almost nothing, the weight-only model is written if it is better and smaller, else
the float model.
"""

from __future__ import annotations

from ..evaluation.grades import ORDER
from .verdict import Verdict

MIN_GAIN = 0.1  # share of its size, or of its time, that a model which is not good has to save


def gains_nothing(verdict: Verdict) -> bool:
    """Whether a model is known to be less than `MIN_GAIN` smaller, and less than that faster."""
    return verdict.cost.speedup is not None and verdict.cost.gain < MIN_GAIN


def is_in_vain(verdict: Verdict) -> bool:
    """Whether another model is to be written: nothing is quantized, or it is not good and gains nothing."""
    return is_float(verdict) or (verdict.grade in ("fair", "poor") and gains_nothing(verdict))


def is_float(verdict: Verdict) -> bool:
    """Whether nothing is quantized, and nothing differs from float."""
    return verdict.grade == "none" and not verdict.composition.uses_integers


def why_in_vain(verdict: Verdict) -> str:
    """Return the reason to write another model than one that is in vain."""
    if is_float(verdict):  # no figure tells anything
        every = "every plan that quantizes more was too noisy, or gained too little time"
        return verdict.composition.why_float or every
    gained = [verdict.cost.change, verdict.cost.speed]
    worst = "" if verdict.worst is None else f", {verdict.worst.text}"
    graded = "" if verdict.decision.grade == "good" else f"is {verdict.grade}{worst}, and "
    return f"int8 {graded}gains next to nothing ({', '.join(filter(None, gained))})"


def takes_its_place(weights_only: Verdict, verdict: Verdict) -> bool:
    """Whether the model with only quantized weights is written in place of one in vain, not float's."""
    if is_float(verdict):
        is_nearer = weights_only.grade == "none" or ORDER[weights_only.grade] < ORDER["fair"]
    else:
        is_nearer = ORDER[weights_only.grade] < ORDER[verdict.grade]
    is_smaller = weights_only.quantized_bytes <= (1.0 - MIN_GAIN) * weights_only.float_bytes
    return is_nearer and is_smaller and not weights_only.cost.is_slower
