"""Profiles of shards of the data, merged into the profile of all of it: exact, whatever the order.

Profiles are taken one at a time and not kept, so memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..base.errors import ProfileError
from ..base.findings import Code, Finding
from .profile import DataId, Profile, describe, is_exact, source_of

MAX_COUNT = (1 << 63) - 1
"""Largest count that a histogram holds (int64)."""


def merge_profiles(
    named: Iterable[tuple[str, Profile]], *, allow_duplicates: bool = False
) -> tuple[Profile, tuple[Finding, ...]]:
    """Return the profile of the data of several, read one at a time, and findings on samples counted twice.

    The result is the same, to the byte, in any order. Profiles of the same samples as one other, or as all
    others together, are refused unless duplicates are allowed.
    """
    sources: dict[DataId, str] = {}
    files, first = 0, ""
    warnings: list[Finding] = []

    def notice(where: str, sentence: str) -> None:
        if not allow_duplicates:
            raise ProfileError(f"{sentence}; leave one out, or give --allow-duplicates to count them twice")
        warnings.append(Finding(Code.COUNTED_TWICE, sentence, where))

    total: Profile | None = None
    for where, profile in named:
        if not is_exact(profile):
            raise ProfileError(
                f"{where}: comes from {source_of(profile)}, which has no histograms that can be merged "
                "exactly; profile the shards with 'qprof dump-profile'"
            )
        if profile.data in sources and profile.data.samples:
            other = sources[profile.data]
            notice(where, f"{where}: seems to hold the same {_samples(profile.data)} as {other}")
        sources.setdefault(profile.data, where)
        first = first or where
        total = profile if total is None else _pair(total, profile, first, where)
        files += 1
    if total is None:
        raise ProfileError("merge: there is no profile; give at least one")
    if not warnings and files > 1:
        for data, where in sources.items():
            if data.samples and data.merged(data) == total.data:
                notice(where, f"{where}: seems to hold the same {_samples(data)} as all the others together")
    return total, tuple(warnings)


def _samples(data: DataId) -> str:
    return "sample" if data.samples == 1 else f"{data.samples} samples"


def _pair(total: Profile, profile: Profile, first: str, where: str) -> Profile:
    """Return both profiles merged; `first` and `where` name their files."""
    if total.model != profile.model:
        same_graph = replace(total.model, weights="") == replace(profile.model, weights="")
        raise ProfileError(
            f"{where}: is of {'other weights' if same_graph else 'another model'} than {first}: "
            f"{describe(profile.model)} against {describe(total.model)}; merge profiles of one model only"
        )
    unshared = sorted(set(total) ^ set(profile))
    if unshared:
        has, lacks = (first, where) if unshared[0] in total else (where, first)
        raise ProfileError(
            f"{lacks}: has no tensor '{unshared[0]}', which {has} has; profile all shards with the same "
            "options and the same version of qprof"
        )
    for name, tensor in profile.items():
        other = total[name]
        if tensor.dtype != other.dtype:
            raise ProfileError(
                f"{where}: tensor '{name}' is of {tensor.dtype}, in {first} of {other.dtype}; "
                "restore the files, or profile the shards again"
            )
        mine, others = (
            "no record of its channels"
            if channels is None
            else f"{channels.count.size} channels on axis {channels.axis}"
            for channels in (tensor.channels, other.channels)
        )
        if mine != others:
            recorded = tensor.channels is not None and other.channels is None
            difference = "has a record of its channels" if recorded else f"has {mine}"
            raise ProfileError(
                f"{where}: tensor '{name}' {difference}, other than in {first}; profile all shards with the "
                "same options and the same version of qprof"
            )
        if tensor.count + other.count > MAX_COUNT:
            raise ProfileError(
                f"{where}: tensor '{name}' would have more than {MAX_COUNT} elements; merge fewer profiles"
            )
    merged = total.merged(profile)
    return replace(
        merged,
        model=replace(merged.model, file=min(total.model.file, profile.model.file)),
        tool=", ".join(sorted({*total.tool.split(", "), *profile.tool.split(", ")} - {""})),
    )
