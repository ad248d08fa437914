"""Progress of a calibration run on disk, so that a run that was killed can be resumed.

A checkpoint is a line of JSON with the identity of the run and its progress, followed by the profile of the
samples counted so far, in the format of profiles. It is replaced atomically, so a complete checkpoint always
exists.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..base.atomic_files import read_text, remove_leftovers, write_atomically
from ..base.errors import ProfileError
from ..records.profile import ModelId, Profile
from ..records.store import dumps, loads

FORMAT = "qprof-checkpoint/2"
_ADVICE = "remove the file to start over, or name another checkpoint"


@dataclass(frozen=True)
class RunProgress:
    """How much of a run is done.

    Attributes:
        passes: complete passes over the samples.
        samples: samples that are done in the pass after them.
        profile: what was counted so far; None for nothing.
    """

    passes: int = 0
    samples: int = 0
    profile: Profile | None = None


@dataclass(frozen=True)
class RunId:
    """What two runs must have in common for one to resume the other.

    Attributes:
        model: the prepared model.
        source: where the samples come from.
        total: number of samples, where that is known.
        settings: everything else that the profile depends on, by name.
    """

    model: ModelId
    source: str
    total: int | None
    settings: dict[str, object] = field(default_factory=dict)

    def fields(self) -> dict[str, object]:
        """Return the entries of a checkpoint that identify its run."""
        identity = {
            "structure": self.model.structure,
            "weights": self.model.weights,
            "opset": self.model.opset,
        }
        return {"model": identity, "data": self.source, "samples": self.total, **self.settings}


def load_progress(path: Path, run: RunId) -> RunProgress:
    """Return the progress of an earlier run; none when there is no file.

    Raises:
        ProfileError: the file is damaged, or belongs to another run.
    """
    if not os.path.lexists(path):
        return RunProgress()
    head, _, profile = read_text(path, ProfileError).partition("\n")
    try:
        entries = json.loads(head)
        passes, samples, before = int(entries["passes"]), int(entries["done"]), dict(entries["run"])
        current = entries["format"] == FORMAT
    except (ValueError, KeyError, TypeError):
        current = False
    if not current:
        raise ProfileError(f"{path}: is not a checkpoint of this version; {_ADVICE}")
    wanted = json.loads(json.dumps(run.fields()))
    for key in wanted:
        if before.get(key) != wanted[key]:
            raise ProfileError(
                f"{path}: belongs to a run with {key} {_short(before.get(key))}, "
                f"not {_short(wanted[key])}; {_ADVICE}"
            )
    return RunProgress(passes, samples, loads(profile, str(path)))


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def save_progress(path: Path, run: RunId, progress: RunProgress) -> None:
    """Write the progress of a run atomically.

    Raises:
        ConfigError: the file cannot be written.
    """
    assert progress.profile is not None
    head = {"format": FORMAT, "passes": progress.passes, "done": progress.samples, "run": run.fields()}
    write_atomically(path, json.dumps(head) + "\n" + dumps(progress.profile))


def remove_progress(path: Path) -> None:
    """Remove the file, if it exists, and the temporary files of killed runs: the profile was written."""
    path.unlink(missing_ok=True)
    remove_leftovers(path)


class CheckpointWriter:
    """Writes checkpoints at intervals, which count from the start and from each write."""

    def __init__(self, path: Path | None, every: float, run: RunId) -> None:
        """Begin to wait.

        Args:
            path: of the checkpoint; None to write none.
            every: seconds between two writes.
            run: identity of the run.
        """
        self._path, self._every, self._run, self._last = path, every, run, time.monotonic()

    def load(self) -> RunProgress:
        """Return the progress of an earlier run; see `load_progress`."""
        return RunProgress() if self._path is None else load_progress(self._path, self._run)

    def is_due(self) -> bool:
        """Return whether a checkpoint should be written."""
        return self._path is not None and time.monotonic() - self._last >= self._every

    def save(self, progress: RunProgress) -> None:
        """Write a checkpoint."""
        assert self._path is not None
        save_progress(self._path, self._run, progress)
        self._last = time.monotonic()
