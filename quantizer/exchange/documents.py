"""Profiles and plans told apart by what their files say."""

from __future__ import annotations

import re
from pathlib import Path

from ...profiles.base.errors import ConfigError
from ...profiles.base.output_files import read_bytes, text_of
from ...profiles.records.profile import Profile
from ..plan.plan import QuantPlan
from ..plan.store import loads
from .profiles import format_in, profile_in

ADVICE = (
    "give a profile of 'qprof dump-profile' or of another tool, or a plan of 'qprof quantize --save-plan'"
)


def read_document(path: Path) -> Profile | QuantPlan:
    """Return the profile or plan of a file, by what it says about itself: it may be a pipe, and is read once.

    A file of ranges of another tool is a profile, by the names of that file.

    Raises:
        ConfigError: neither; the message says what can be read.
        ProfileError, PlanError: it is one of them, and malformed.
    """
    if path.suffix == ".onnx":
        raise ConfigError(f"{path}: is a model, not a profile or a plan; {ADVICE}")
    data = read_bytes(path, ConfigError)
    if format_in(data) is not None:
        return profile_in(data, path.name)
    document = text_of(data, str(path), ConfigError)
    said = re.search(r"""^["']?format["']?\s*:\s*["']?([^\s"'#]*)""", document, re.MULTILINE)
    family = said[1].partition("/")[0] if said else ""
    if family == "qprof-profile":
        return profile_in(data, path.name)
    if family == "qprof-plan":
        return loads(document, path.name)
    found = f"format '{said[1]}' is unknown" if said else "key 'format' is missing"
    raise ConfigError(f"{path}: {found}; {ADVICE}")
