"""What can be done with a profile depends on which tool recorded it, and how much it recorded. Pure."""

from __future__ import annotations

from .histogram import Histogram
from .profile import Profile


def is_bound(profile: Profile) -> bool:
    """Return whether the keys are names of tensors of a prepared model, not those of another tool's file."""
    return profile.origin == "qprof" or bool(profile.model.structure)


def is_exact(profile: Profile) -> bool:
    """Return whether all histograms are exact: only such profiles can be merged and compared."""
    return is_bound(profile) and all(isinstance(t.histogram, Histogram) for t in profile.values())


def has_histograms(profile: Profile) -> bool:
    """Return whether of some tensor more than the range is known; also where no tensor held anything."""
    held = [tensor for tensor in profile.values() if tensor.count]
    return not held or any(tensor.histogram.total for tensor in held)


def source_of(profile: Profile) -> str:
    """Return who recorded a profile, for messages."""
    return profile.tool or (f"a file of format {profile.origin}" if profile.origin != "qprof" else "qprof")
