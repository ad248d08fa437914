"""Progress of a calibration run on disk, so that a run that was killed goes on where it was.

A checkpoint is a line of JSON that says which run it belongs to and how far it came, and the profile of what
has been counted, in the format of profiles. It is replaced as a whole; so there is always a whole one.
"""

from __future__ import annotations

import glob
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..base.atomic_files import read_text, write_atomically
from ..base.errors import ProfileError
from ..records.profile import ModelId, Profile
from ..records.store import dumps, loads

FORMAT = "qprof-checkpoint/1"
SECONDS = 30.0
"""How often progress is written, unless something else is asked for."""


@dataclass(frozen=True)
class Checkpoint:
    """Where progress is kept.

    Attributes:
        path: file; removed by whoever has written the finished profile.
        every: seconds between two writes.
    """

    path: Path
    every: float = SECONDS


@dataclass(frozen=True)
class Progressed:
    """How far a run came.

    Attributes:
        passes: passes over the samples that are complete.
        feeds: feeds that are done in the pass after them.
        profile: what was counted so far; None for nothing.
    """

    passes: int = 0
    feeds: int = 0
    profile: Profile | None = None


@dataclass(frozen=True)
class RunId:
    """What two runs must have in common for one to go on where the other was.

    Attributes:
        model: the prepared model.
        source: where the samples come from.
        total: number of feeds, where that is known.
        settings: whatever else decides about the values and how they are gathered, by name.
    """

    model: ModelId
    source: str
    total: int | None
    settings: dict[str, object] = field(default_factory=dict)

    def fields(self) -> dict[str, object]:
        """Return what is written of it."""
        identity = {
            "structure": self.model.structure,
            "weights": self.model.weights,
            "opset": self.model.opset,
        }
        return {"model": identity, "data": self.source, "feeds": self.total, **self.settings}


def load_progress(checkpoint: Checkpoint, run: RunId) -> Progressed:
    """Return how far an earlier run came; nothing when there is no file.

    Raises:
        ProfileError: the file is damaged, or belongs to another run.
    """
    path = checkpoint.path
    if not os.path.lexists(path):
        return Progressed()
    head, _, body = read_text(path, ProfileError).partition("\n")
    try:
        found = json.loads(head)
        passes, feeds, before = int(found["passes"]), int(found["done"]), dict(found["run"])
        known = found["format"] == FORMAT
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise ProfileError(f"{path}: is no checkpoint of this version; {_ADVICE}")
    wanted = json.loads(json.dumps(run.fields()))
    for key in wanted:
        if before.get(key) != wanted[key]:
            raise ProfileError(
                f"{path}: belongs to a run with {key} {_short(before.get(key))}, "
                f"not {_short(wanted[key])}; {_ADVICE}"
            )
    return Progressed(passes, feeds, loads(body, str(path)))


_ADVICE = "remove the file to begin anew, or name another checkpoint"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def save_progress(checkpoint: Checkpoint, run: RunId, progressed: Progressed) -> None:
    """Write how far a run came, in one step.

    Raises:
        ConfigError: the file cannot be written.
    """
    assert progressed.profile is not None
    head = {
        "format": FORMAT,
        "passes": progressed.passes,
        "done": progressed.feeds,
        "run": run.fields(),
    }
    write_atomically(checkpoint.path, json.dumps(head) + "\n" + dumps(progressed.profile))


class Keeper:
    """Writes progress when it is time to; the clock starts anew with each write."""

    def __init__(self, checkpoint: Checkpoint | None, run: RunId) -> None:
        self._checkpoint, self._run, self._last = checkpoint, run, time.monotonic()

    def load(self) -> Progressed:
        """Return how far an earlier run came."""
        return load_progress(self._checkpoint, self._run) if self._checkpoint is not None else Progressed()

    def is_due(self) -> bool:
        """Tell whether progress should be written."""
        return self._checkpoint is not None and time.monotonic() - self._last >= self._checkpoint.every

    def save(self, passes: int, feeds: int, profile: Profile) -> None:
        """Write progress."""
        assert self._checkpoint is not None
        save_progress(self._checkpoint, self._run, Progressed(passes, feeds, profile))
        self._last = time.monotonic()


def remove_progress(checkpoint: Checkpoint) -> None:
    """Remove the file, if it is there, and what killed runs left beside it: the profile has been written."""
    path = checkpoint.path
    path.unlink(missing_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.stem)}.*.tmp{glob.escape(path.suffix)}"):
        left.unlink(missing_ok=True)
