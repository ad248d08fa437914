"""The profile that lies beside a quantized model: made once, used again where model and data are the same.

The same are data whose digests are: they are read in any case, to hold some out. Names, sizes and times of
files would be quicker to compare, but a copied folder has other times, a changed file may keep its own, and a
function or a data loader has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...profiles.base.destinations import destination
from ...profiles.base.errors import ConfigError, ProfileError
from ...profiles.base.tool import Progress
from ...profiles.records.profile import DataId, ModelId, Profile
from ...profiles.records.store import load_profile
from ...profiles.runner.settings import RunSettings
from ...profiles.runtime.providers import check_provider, profiled_by
from ...profiles.samples.objects import DataLike
from ..pipeline.profiling import dump_profile
from ..pipeline.run_settings import settings_for
from ..prepare.opening import open_prepared


@dataclass(frozen=True)
class KeptProfile:
    """A profile and where it is kept.

    Attributes:
        profile: the profile.
        file: where it lies; None for nowhere.
        is_reused: whether it was there, of the same model and data.
    """

    profile: Profile
    file: Path | None
    is_reused: bool

    @property
    def sentence(self) -> str:
        """Return what became of it."""
        name = "profile" if self.file is None else str(self.file)
        samples = f"{len(self.profile)} tensors, {self.profile.data.samples} samples"
        return f"{name}: {'used again, model and data are the same' if self.is_reused else samples}"


def file_beside(output: str | Path, kind: Literal["profile", "plan"]) -> Path | None:
    """Return the file of the profile, or the plan, beside a model that is written; None for a stream.

    Raises:
        ConfigError: the output cannot be written, or is what the file would be.
    """
    if destination(output).is_stream:
        return None
    path = Path(output)
    return path.with_name(f"{path.stem}.{kind}.yaml")


def kept_profile(
    model: str | Path,
    identity: ModelId,
    data: tuple[DataLike, DataId],
    file: Path | None,
    *,
    provider: str = "cpu",
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> KeptProfile:
    """Return the profile that lies in a file, where it is of this model and data; else make it and write it.

    Args:
        model: file of the float model.
        identity: of the prepared model.
        data: the samples, and their identity.
        file: where the profile lies or is written; None for nowhere.
        provider: execution provider that runs the model, in full or short.
        progress: called after each sample.
        note: called with remarks.

    Raises:
        ConfigError: the file is there and is no profile.
    """
    found = None if file is None or not file.exists() else _read(file)
    if found is not None and _is_of(found, identity, data[1], provider) and _has_channels(found, model):
        return KeptProfile(found, file, True)
    profile = dump_profile(model, data[0], file, RunSettings(provider=provider), progress=progress, note=note)
    return KeptProfile(profile, file, False)


def _read(file: Path) -> Profile | None:
    """Return a profile; None for one that is damaged or of another version."""
    try:
        return load_profile(file)
    except ProfileError as error:
        if "qprof-profile" in file.read_text(encoding="utf-8", errors="replace")[:4096]:
            return None
        raise ConfigError(
            f"{file}: is no profile, and the profile is kept there; move it, or choose another output"
        ) from error


def _has_channels(profile: Profile, model: str | Path) -> bool:
    """Whether a profile has channels, where the model has some to record: other settings leave them out."""
    settings = settings_for(open_prepared(model).graph, RunSettings())
    return not settings.channels or any(one.channels is not None for one in profile.values())


def _is_of(profile: Profile, identity: ModelId, data: DataId, provider: str) -> bool:
    """Whether a profile is what profiling this model with these samples would give."""
    return (
        profile.model == identity
        and profile.data == data
        and profile.tool == profiled_by(check_provider(provider))
        and profile.noise_samples == RunSettings().noise_samples
    )
