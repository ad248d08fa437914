"""Profiles from files, of qprof or of another tool, bound to a model; files that hold a profile or a plan."""

from __future__ import annotations

import os
import re
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ProfileError
from ...profiles.base.output_files import read_bytes, text_of
from ...profiles.base.tool import note
from ...profiles.records.profile import ModelId, Profile, is_bound
from ...profiles.records.store import loads
from ..model.identity import check_model
from ..noise.activation_ranges import with_clip_profiles
from ..operators.graph import Graph
from ..plan.plan import QuantPlan
from ..plan.store import loads as loads_plan
from ..planning.needed_tensors import one_with_others
from ..prepare.prepare import ProfileLike, profile_name
from .binding import bind, unbound_profile
from .foreign import ForeignRanges
from .formats import ExchangeFormat, read_as, recognised

OWN = b"format: qprof-"
"""Begins the files of qprof itself, which are large: no other format is looked for in them."""


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile: of qprof, or a file of another tool that holds ranges, recognised by its content.

    The latter has the names of its file for keys until it is bound to a model, as by `quantize`; its `origin`
    is the name of the format.

    Raises:
        ProfileError: the file is missing, malformed in any way, or contradicts itself; the message names
            file and tensor.
    """
    return profile_in(read_bytes(path, ProfileError), os.path.basename(path))


def profile_in(data: bytes, where: str, *, chosen_ranges: bool = False) -> Profile:
    """Return the profile that a file holds, see `load_profile`.

    Args:
        data: the whole file.
        where: its name, for messages.
        chosen_ranges: of another tool's file take the ranges that its calibrator chose, and no histograms.

    Raises:
        ProfileError: the file is malformed, or contradicts itself.
    """
    if where.endswith(".onnx"):
        raise ProfileError(
            f"{where}: is a model, where a profile is read; give a profile, or make a plan of a quantized "
            "model with 'qprof import-plan'"
        )
    entry = format_in(data)
    if entry is None:
        return loads(text_of(data, where, ProfileError), where)
    if entry.holds != "ranges":
        raise ProfileError(
            f"{where}: is a file of {entry.title}, which holds parameters; make a plan of it with "
            "'qprof import-plan'"
        )
    found = read_as(entry, data, where, ProfileError)
    assert isinstance(found, ForeignRanges)
    if chosen_ranges and found.histograms:
        found = ForeignRanges(found.ranges, found.tool)
    for text in found.notes:
        note(f"{where}: {text}")
    return unbound_profile(found, entry)


def read_at(path: str | os.PathLike[str]) -> Profile:
    """Read a profile as `load_profile` does; messages name the whole path."""
    return profile_in(read_bytes(path, ProfileError), os.fspath(path))


def format_in(data: bytes) -> ExchangeFormat | None:
    """Return which format of other tools a file is of; None for a file of qprof, and for any other."""
    return None if data.startswith(OWN) else recognised(data)


def read_profile(
    source: ProfileLike, model: ir.Model, identity: ModelId, accept_retrained: bool = False
) -> Profile:
    """Return a profile, which may be in a file, bound to a prepared model.

    Raises:
        ProfileError: it cannot be read, or belongs to another model.
    """
    profile = source if isinstance(source, Profile) else load_profile(source)
    where = profile_name(source)
    if not is_bound(profile):
        profile = bind(profile, model, identity, where)
    else:
        check_model(profile.model, identity, where, accept_retrained)
    return profile


def missing_notes(profile: Profile, graph: Graph, where: str) -> tuple[str, ...]:
    """Return a note when a profile, which may be another tool's, lacks activations that a plan needs."""
    profile, inner = with_clip_profiles(profile, graph), one_with_others(graph)
    names = [*graph.inputs, *(name for node in graph.nodes for name in node.outputs)]
    lacking = [n for n in names if n and graph.is_float(n) and n not in profile and n not in inner]
    if not lacking:
        return ()
    return (f"{where} has no entry for {len(lacking)} activations, such as '{lacking[0]}': float",)


def read_document(path: str | os.PathLike[str]) -> Profile | QuantPlan:
    """Return the profile or plan of a file, by what it says about itself: it may be a pipe, and is read once.

    A file of ranges of another tool is a profile, by the names of that file.

    Raises:
        ConfigError: neither; the message says what can be read.
        ProfileError, PlanError: it is one of them, and malformed.
    """
    path = Path(path)
    advice = (
        "give a profile of 'qprof dump-profile' or of another tool, or a plan of 'qprof quantize --save-plan'"
    )
    if path.suffix == ".onnx":
        raise ConfigError(f"{path}: is a model, not a profile or a plan; {advice}")
    data = read_bytes(path, ConfigError)
    if format_in(data) is not None:
        return profile_in(data, path.name)
    document = text_of(data, str(path), ConfigError)
    said = re.search(r"""^["']?format["']?\s*:\s*["']?([^\s"'#]*)""", document, re.MULTILINE)
    family = said[1].partition("/")[0] if said else ""
    if family == "qprof-profile":
        return profile_in(data, path.name)
    if family == "qprof-plan":
        return loads_plan(document, path.name)
    found = f"format '{said[1]}' is unknown" if said else "key 'format' is missing"
    raise ConfigError(f"{path}: {found}; {advice}")
