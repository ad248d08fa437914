"""Whether a quantized model is worth being written: one that gains next to nothing is not. Pure.

The voice detector with one convolution in int8 lost half of its margin and was 7 % smaller: nobody wants that
model. What is taken instead is the model with quantized weights alone, where that is better and smaller, else
the float model, with the sentence that says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..evaluation.grades import ORDER
from .verdict import Verdict

MIN_GAIN = 0.1
"""Share of its size, or of its time, that a model which is not good has to save."""


@dataclass(frozen=True)
class Taken:
    """The model that is written.

    Attributes:
        model: the quantized one, the one whose weights alone are quantized, or the float one.
        reason: why it is not the quantized one; "" where it is.
    """

    model: Literal["quantized", "weights only", "float"]
    reason: str = ""


def gains_nothing(verdict: Verdict) -> bool:
    """Whether a model is less than `MIN_GAIN` smaller and less than that faster, measured or else predicted.
    An unknown speed is no reason against it."""
    return verdict.cost.speedup is not None and verdict.cost.gain < MIN_GAIN


def is_in_vain(verdict: Verdict) -> bool:
    """Whether another model is to be written: nothing is quantized, or it is not good and gains nothing. A
    good one that is hardly smaller or faster is graded fair (`verdict.brings_nothing`)."""
    return is_float(verdict) or (verdict.grade in ("fair", "poor") and gains_nothing(verdict))


def is_float(verdict: Verdict) -> bool:
    """Whether nothing is quantized, and nothing differs from float."""
    return verdict.grade == "none" and not verdict.composition.uses_integers


def _is_nearer(weights_only: Verdict, verdict: Verdict) -> bool:
    """Whether the model with only quantized weights is graded better. In place of float it may have no grade,
    since an output that cannot be graded is no reason against a plan."""
    if is_float(verdict):
        return weights_only.grade == "none" or ORDER[weights_only.grade] < ORDER["fair"]
    return ORDER[weights_only.grade] < ORDER[verdict.grade]


def taken(verdict: Verdict, weights_only: Verdict | None = None) -> Taken:
    """Return which model is written; `weights_only` is the verdict on the model with only quantized weights.

    It is None if there is no such model.
    """
    if not is_in_vain(verdict):
        return Taken("quantized")
    gained = [verdict.cost.change, verdict.cost.speed]
    worst = "" if verdict.worst is None else f", {verdict.worst.text}"
    is_good = verdict.decision.grade == "good"
    graded = "" if is_good else f"is {verdict.grade}{worst}, and "
    why = f"int8 {graded}gains next to nothing ({', '.join(filter(None, gained))})"
    if is_float(verdict):  # no figure tells anything
        why = "every plan that quantizes more was too noisy, or gained too little time"
    if (
        weights_only is not None
        and _is_nearer(weights_only, verdict)
        and not weights_only.cost.is_slower
        and weights_only.quantized_bytes <= (1.0 - MIN_GAIN) * weights_only.float_bytes
    ):
        return Taken("weights only", f"only weights are quantized: {why}")
    return Taken("float", f"nothing is quantized: {why}")
