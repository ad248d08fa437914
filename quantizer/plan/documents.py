"""Profiles and plans from files, by the format that a file states.

Files of qprof are read here. Those of other tools are read and written by a plug-in, which `READING` and
`WRITING` name: without it they are refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.errors import ConfigError, ProfileError
from ...profiles.base.extras import OptionalModule
from ...profiles.base.output_files import read_bytes, text_of
from ...profiles.base.seconds import clocked
from ...profiles.records.check_samples import ADVICE, samples_file
from ...profiles.records.profile import ModelId, Profile, is_bound
from ...profiles.records.store import loads, with_samples_of_file
from ...profiles.samples.samples import digest_text, input_specs, sample_digests
from ..model.identity import check_model
from ..prepare.prepare import ProfileLike, profile_name
from .plan import QuantPlan
from .store import loads as loads_plan

READING = OptionalModule("the reader of other tools' files", "quantizer.plugins.exchange.profiles")
"""Has `foreign_profile` and `bind`."""

WRITING = OptionalModule("the writer of other tools' files", "quantizer.plugins.exchange.exporting")
"""Has `file_content`."""

OWN = b"format: qprof-"
"""Begins the files of qprof itself, which are large: no other format is looked for in them."""


@checks_arguments
def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile: of qprof, or a file of another tool that holds ranges, recognised by its content.

    The check samples beside the file come with it, if they are there.

    The latter has the names of its file for keys until it is bound to a model, as by `quantize`; its `origin`
    is the name of the format.

    Raises:
        ProfileError: the file is missing, malformed in any way, or contradicts itself; the message names
            file and tensor.
    """
    profile = profile_in(read_bytes(path, ProfileError), os.path.basename(path))
    return with_samples_of_file(profile, path)[0]


def profile_in(data: bytes, where: str) -> Profile:
    """Return the profile in the bytes of a file, see `load_profile`; messages call it `where`."""
    if where.endswith(".onnx"):
        raise ProfileError(
            f"{where}: is a model, not a profile; give a profile, or make a plan of a quantized "
            "model with 'qprof import'"
        )
    profile = _foreign_profile(data, where)
    return loads(text_of(data, where, ProfileError), where) if profile is None else profile


def _foreign_profile(data: bytes, where: str) -> Profile | None:
    """Return the ranges of another tool in a file, or None for a file of qprof and for any other."""
    if data.startswith(OWN) or (not READING.is_installed and b"qprof-" in data[:4096]):
        return None
    found: Profile | None = READING.load(where).foreign_profile(data, where)
    return found


def read_at(path: str | os.PathLike[str]) -> Profile:
    """Read a profile as `load_profile` does; messages name the whole path."""
    return profile_in(read_bytes(path, ProfileError), os.fspath(path))


def read_profile(source: ProfileLike, model: ir.Model, identity: ModelId) -> Profile:
    """Return a profile, which may be in a file, bound to a prepared model."""
    where = profile_name(source)
    profile = source if isinstance(source, Profile) else read_at(source)
    if not is_bound(profile):
        profile = READING.load(where).bind(profile, model, identity, where)
    else:
        check_model(profile.model, identity, where)
    return profile


@clocked("read profile")
def read_with_samples(source: ProfileLike, model: ir.Model, identity: ModelId) -> tuple[Profile, str]:
    """Return a profile with its samples, bound to a prepared model, and why there are no samples, or ""."""
    profile = read_profile(source, model, identity)
    if not isinstance(source, Profile):
        profile, missing = with_samples_of_file(profile, source)
        if missing:
            return profile, missing
    if not profile.held_samples:
        kept = "keeps no samples" if profile.origin == "qprof" else "of another tool has no samples"
        return profile, f"the profile {kept}"
    specs = input_specs(model)
    for sample in profile.held_samples:
        if digest_text(sum(sample_digests(sample.arrays, specs))) != sample.digest:
            where = "the profile" if isinstance(source, Profile) else str(samples_file(source))
            others = f"{where}: a check sample is not the one that was profiled; {ADVICE}"
            return replace(profile, held_samples=()), others
    return profile, ""


def read_document(path: str | os.PathLike[str]) -> Profile | QuantPlan:
    """Return the profile or plan of a file, by its heading; ranges of another tool are a profile."""
    path = Path(path)
    advice = (
        "give a profile of 'qprof dump-profile' or of another tool, or a plan of 'qprof quantize' or 'import'"
    )
    if path.suffix == ".onnx":
        raise ConfigError(f"{path}: is a model, not a profile or a plan; {advice}")
    data = read_bytes(path, ConfigError)
    if (foreign := _foreign_profile(data, path.name)) is not None:
        return foreign
    document = text_of(data, str(path), ConfigError)
    said = re.search(r"""^["']?format["']?\s*:\s*["']?([^\s"'#]*)""", document, re.MULTILINE)
    family = said[1].partition("/")[0] if said else ""
    if family == "qprof-profile":
        return profile_in(data, path.name)
    if family == "qprof-plan":
        return loads_plan(document, path.name)
    problem = f"format '{said[1]}' is unknown" if said else "key 'format' is missing"
    raise ConfigError(f"{path}: {problem}; {advice}")
