"""What `qprof tune` prints, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...profiles.base.json_values import to_jsonable
from ...quantizer.tuning.search import kept
from ...quantizer.tuning.trial import OBJECTIVES

if TYPE_CHECKING:
    from ...quantizer.tuning.result import Promise, TuneResult
    from ...quantizer.tuning.scores import Judgement
    from ...quantizer.tuning.search import Candidate, Trial


def trial_text(number: int, trial: Trial, resumed: bool, promise: Promise) -> str:
    """Return the line about one trial."""
    name = f"{number:>3}  {candidate_text(trial.candidate):<40}"
    if trial.judgement is None:
        return f"{name}  failed: {trial.error}"
    judged = trial.judgement
    keeps = "kept  " if kept(trial, promise.max_drop) else "broken"
    value = "" if trial.value is None else f"  {value_text(trial.value, promise.objective)}"
    known = "  (from the state file)" if resumed else ""
    return (
        f"{name}  drop {judged.drop:6.2f} points ({judged.drop_low:.2f} to {judged.drop_high:.2f})  "
        f"{trial.integer_nodes:>4} on codes  {keeps}{value}{known}"
    )


def candidate_text(candidate: Candidate) -> str:
    """Return what a candidate is, in a few words."""
    count = len(candidate.keep_float)
    return candidate.base.name + (f", {count} node{'s' if count > 1 else ''} float" if count else "")


def value_text(value: float, objective: str) -> str:
    """Return the value of an objective with its unit."""
    number = f"{100 * value:.1f} %" if objective == "integer-share" else f"{value:.2f}"
    return f"{number} {OBJECTIVES[objective]}"


def tune_json(found: TuneResult) -> str:
    """Return the result as one JSON object."""
    return json.dumps(to_jsonable(found), indent=2, allow_nan=False)


def tune_text(found: TuneResult, written: Path | None = None) -> str:
    """Return the result for people: the promise, the plan, the proof, and what limited it.

    Args:
        found: the result.
        written: file that the model was to go to.
    """
    return "\n".join(["", *_lines(found, written)])


def _lines(found: TuneResult, written: Path | None) -> Iterator[str]:
    promise, best, proof = found.promise, found.best, found.proof
    yield (
        f"promise    {found.model}: at most {promise.max_drop:g} points less {found.measured}; then the best "
        f"{promise.objective}"
    )
    yield f"samples    {found.split}"
    if best is not None and best.judgement is not None:
        value = "" if best.value is None else f", {value_text(best.value, promise.objective)}"
        yield f"best       {candidate_text(best.candidate)}: {best.integer_nodes} nodes on codes{value}"
        yield f"tuning     {_judged(best.judgement)}"
    if proof is not None:
        yield f"proof      {_judged(proof)}"
        yield f"           95 % interval of the drop {proof.drop_low:.2f} to {proof.drop_high:.2f} points"
    if found.quantized_bytes:
        a, b = found.float_bytes, found.quantized_bytes
        yield f"size       {a / 1000:.1f} kB float, {b / 1000:.1f} kB quantized: {a / b:.2f} times smaller"
    yield from (f"limit      {text}" for text in found.limits)
    yield f"time       {found.seconds:.0f} s, {len(found.trials)} trials"
    if not found.kept:
        unwritten = "" if written is None else f"; {written} was not written"
        yield f"FAILED     --max-drop {promise.max_drop:g}: the promise is not kept{unwritten}"
    else:
        yield f"kept       {'and proven at 95 %' if found.proven else 'as measured'}"


def _judged(found: Judgement) -> str:
    return (
        f"{found.float_points:.2f} float, {found.quantized_points:.2f} quantized of {found.units} rows "
        f"in {found.samples} samples: drop {found.drop:.2f} points"
    )
