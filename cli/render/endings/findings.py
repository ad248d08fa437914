"""What of a result the next command depends on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....quantizer.evaluation.accuracy import Accuracy
    from ....quantizer.evaluation.evaluate import Evaluation
    from ....quantizer.evaluation.gates import GateFailure
    from ....quantizer.evaluation.metrics.score import Score

DROPS = ("max_accuracy_drop", "max_drop")
"""Limits that are held against the upper end of an interval, which more rows narrow."""

QUALITY = (*DROPS, "min_sqnr", "min_group_sqnr", "min_score")
"""Limits that are not met for noise; so are those of a baseline but for size and speedup."""


def evaluation_findings(result: Evaluation) -> dict[str, Any]:
    """Return what follows from an evaluation.

    "sqnr" is the worst of an output in dB; "gated" whether there is a limit; "doubtful" whether these are not
    a float model and its quantized form; "few_rows" whether limits fail for want of rows alone; "noisy"
    whether one fails for noise.
    """
    scored = result.score or result.accuracy
    failures = [failure for failure in result.failures if not _is_at_chance(failure, scored)]
    few = [failure for failure in failures if _lacks_rows(failure, result)]
    return {
        "sqnr": result.worst_sqnr,
        "gated": result.gated,
        "doubtful": bool(result.doubts),
        "few_rows": bool(few) and len(few) == len(result.failures),
        "noisy": any(_is_noise(failure) for failure in failures if failure not in few),
    }


def _is_at_chance(failure: GateFailure, scored: Score | Accuracy | None) -> bool:
    """Whether a drop was limited on truth that judges nothing."""
    return failure.demand in DROPS and scored is not None and scored.is_at_chance


def _lacks_rows(failure: GateFailure, result: Evaluation) -> bool:
    """Whether the drop itself is below its limit, and only the upper end of the interval is not."""
    drop = {"max_accuracy_drop": result.accuracy, "max_drop": result.score}.get(failure.demand)
    return drop is not None and drop.drop <= failure.limit


def _is_noise(failure: GateFailure) -> bool:
    of_baseline = failure.demand.removeprefix("baseline_")
    return failure.demand in QUALITY or (
        of_baseline != failure.demand and of_baseline not in ("size", "speedup")
    )
