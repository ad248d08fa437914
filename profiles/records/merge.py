"""Merges profiles of shards into the profile of all data, exactly and in any order.

Profiles are read one at a time, so memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..base.errors import ProfileError
from ..base.findings import Code, Finding
from .profile import DataId, Profile, is_exact, source_of


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
            notice(where, f"{where}: seems to contain the same {_samples(profile.data)} as {other}")
        sources.setdefault(profile.data, where)
        first = first or where
        total = profile if total is None else total.merged(profile, first, where)
        files += 1
    if total is None:
        raise ProfileError("merge: there is no profile; give at least one")
    if not warnings and files > 1:
        for data, where in sources.items():
            if data.samples and data.merged(data) == total.data:
                notice(
                    where, f"{where}: seems to contain the same {_samples(data)} as all the others together"
                )
    return total, tuple(warnings)


def _samples(data: DataId) -> str:
    return "sample" if data.samples == 1 else f"{data.samples} samples"
