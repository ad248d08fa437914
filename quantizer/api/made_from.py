"""The plan and the profile that a quantized model was made from, found in its folder or in its result."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...profiles.base.errors import ModelError, QprofError
from ...profiles.records.profile import Profile
from ...profiles.records.store import first_lines
from ..model.folders import PROFILE, qprof_folder
from ..plan.documents import read_profile
from ..plan.plan import QuantPlan
from ..plan.provenance import plan_digest, profile_digest, read_provenance
from ..plan.store import load_plan
from ..prepare.prepare import ModelFile
from .results import QuantizedLike, QuantizeResult

MAX_OTHER_FILES = 30
"""YAML files outside of its folder that are searched for the plan and the profile of a quantized model."""


@dataclass(frozen=True)
class MadeFrom:
    """The plan and the profile of a quantized model, if available."""

    plan: QuantPlan | None = None  # None where they were not found
    profile: Profile | None = None
    plan_file: Path | None = None  # their files; None where they are in memory, or were not found
    profile_file: Path | None = None


def found_beside(quantized: ModelFile, model: ModelFile | None) -> MadeFrom:
    """Return the plan and, with the float model, the profile whose digests a quantized model names."""
    found, folder = MadeFrom(), quantized.path.parent
    provenance = read_provenance(quantized.model)
    # In its own folder, beside it as the user named them, or a profile that another output has.
    others = sorted([*folder.glob("*.y*ml"), *folder.glob(f"*.qprof/{PROFILE}")])[:MAX_OTHER_FILES]
    files = dict.fromkeys([*sorted(qprof_folder(quantized.path).glob("*.yaml")), *others])
    if provenance is None or not files:
        return found
    try:
        prepared = None if model is None else model.prepared
    except ModelError:  # the float model is a quantized one itself, which an evaluation tells
        return found
    for file in files:
        first_words = first_lines(file)[:400]
        with suppress(QprofError):  # of another model, or no file that can be read
            if found.plan is None and "qprof-plan" in first_words:
                plan = load_plan(file)
                if plan_digest(plan) == provenance.plan:
                    found = replace(found, plan=plan, plan_file=file)
            elif prepared and found.profile is None and "qprof-profile" in first_words:
                profile = read_profile(file, prepared.model, prepared.identity)
                if profile_digest(profile) == provenance.profile:
                    found = replace(found, profile=profile, profile_file=file)
    return found


def made_from(quantized: QuantizedLike, file: ModelFile, model: ModelFile) -> MadeFrom:
    """Return the plan and the profile of a result, or those beside the file of a quantized model."""
    if isinstance(quantized, QuantizeResult):
        return MadeFrom(quantized.plan, None if quantized.facts is None else quantized.facts.measured)
    return found_beside(file, model)
