"""The plan and the profile that a quantized model was made from, found beside it or in its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...profiles.base.errors import ModelError
from ...profiles.records.profile import Profile
from ..plan.documents import documents_beside, read_profile
from ..plan.plan import QuantPlan
from ..plan.provenance import read_provenance
from ..plan.store import load_plan
from ..prepare.prepare import ModelFile
from .results import QuantizedLike, QuantizeResult


@dataclass(frozen=True)
class MadeFrom:
    """The plan and the profile of a quantized model, if available."""

    plan: QuantPlan | None = None  # None where they were not found
    profile: Profile | None = None
    plan_file: Path | None = None  # their files; None where they are in memory, or were not found
    profile_file: Path | None = None


def found_beside(quantized: ModelFile, model: ModelFile) -> MadeFrom:
    """Return the plan and the profile beside a quantized model; both are None for a model of another tool."""
    provenance = read_provenance(quantized.model)
    if provenance is None or not any(quantized.path.parent.glob("*.y*ml")):
        return MadeFrom()
    try:
        prepared = model.prepared
    except ModelError:  # the float model is a quantized one itself, which an evaluation tells
        return MadeFrom()
    plan, profile = documents_beside(quantized.path, provenance, prepared.model, prepared.identity)
    return MadeFrom(
        None if plan is None else load_plan(plan),
        None if profile is None else read_profile(profile, prepared.model, prepared.identity),
        plan,
        profile,
    )


def made_from(quantized: QuantizedLike, file: ModelFile, model: ModelFile) -> MadeFrom:
    """Return the plan and the profile of a result, or those beside the file of a quantized model."""
    if isinstance(quantized, QuantizeResult):
        return MadeFrom(quantized.plan, None if quantized.facts is None else quantized.facts.measured)
    return found_beside(file, model)
