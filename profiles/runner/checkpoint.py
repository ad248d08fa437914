"""Progress of a calibration run on disk, so that a run that was killed can be resumed.

A checkpoint is a text of three parts:

    qprof-checkpoint/4 DIGEST      the digest is that of all that follows, so a damaged file is never resumed
    {"run": ..., ...}              one line of JSON: identity of the run, its passes, and what is done of them
    format: qprof-profile/1 ...    the profile of the samples counted so far

It is replaced atomically, so a complete checkpoint always exists. It holds the digest of every sample that
was counted: a resumed run reads these samples again, without running them, and compares.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base.errors import DataError, ProfileError
from ..base.output_files import read_text, remove_leftovers, write_atomically
from ..records.non_finite import from_entries, to_entries
from ..records.profile import DataId, ModelId, Profile
from ..records.store import dumps, loads
from ..samples.samples import DIGEST_BYTES
from .memory_plan import MemoryPlan

FAMILY, VERSION = "qprof-checkpoint", 4
_ADVICE = "remove the file to start over, or name another checkpoint"


@dataclass(frozen=True)
class RunProgress:
    """How much of a run is done.

    Attributes:
        passes: complete passes over the samples.
        samples: samples that are done in the pass after them.
        profile: what was counted so far; None for nothing.
        plan: how the run is laid out; None where nothing is done.
        digests: of the samples of the first pass that are done, in order, `DIGEST_BYTES` each.
    """

    passes: int = 0
    samples: int = 0
    profile: Profile | None = None
    plan: MemoryPlan | None = None
    digests: bytes = b""


@dataclass(frozen=True)
class RunId:
    """What two runs must have in common for one to resume the other.

    Attributes:
        model: the prepared model.
        data: where the samples come from: the absolute path of a folder, or "module:function".
        total: number of samples, where that is known.
        settings: everything else that the profile depends on, by name.
        memory_limit: of the run, in bytes. With another limit a run can be resumed if its passes agree.
    """

    model: ModelId
    data: str
    total: int | None
    settings: dict[str, object] = field(default_factory=dict)
    memory_limit: int | None = None

    def fields(self) -> dict[str, object]:
        """Return the entries of a checkpoint that identify its run."""
        identity = {
            "structure": self.model.structure,
            "weights": self.model.weights,
            "opset": self.model.opset,
        }
        return {"model": identity, "data": self.data, "samples": self.total, **self.settings}


def load_progress(path: Path, run: RunId) -> RunProgress:
    """Return the progress of an earlier run; none when there is no file.

    The layout is that of the earlier run if both have the same memory limit, else it has to be made anew.

    Raises:
        ProfileError: the file is damaged, of another version, or belongs to another run.
    """
    if not os.path.lexists(path):
        return RunProgress()
    first, _, rest = read_text(path, ProfileError).partition("\n")
    words = first.split(" ")
    if words[0] != f"{FAMILY}/{VERSION}" or len(words) != 2:
        kind = "a checkpoint of another version of qprof" if FAMILY in first else "not a checkpoint"
        raise ProfileError(f"{path}: is {kind}; {_ADVICE}")
    if words[1] != _digest(rest):
        raise ProfileError(f"{path}: is damaged: its digest is not that of its content; {_ADVICE}")
    line, _, profile = rest.partition("\n")
    try:
        entries = json.loads(line)
        before, progress = dict(entries["run"]), _progress(entries, loads(profile, str(path)))
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: contradicts itself ({error}); {_ADVICE}") from None
    except (KeyError, TypeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else "an entry has another type"
        raise ProfileError(f"{path}: contradicts itself ({what}); {_ADVICE}") from None
    _check_same_run(path, before, json.loads(json.dumps(run.fields())))
    return progress


def _check_same_run(path: Path, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for key in [*wanted, *(key for key in before if key not in wanted)]:
        if key not in before or key not in wanted or before[key] != wanted[key]:
            raise ProfileError(
                f"{path}: belongs to a run with {key} {_short(before.get(key))}, "
                f"not {_short(wanted.get(key))}; {_ADVICE}"
            )


def _progress(entries: Mapping[str, Any], profile: Profile) -> RunProgress:
    """Return the progress that a header tells of; every number has its type and range.

    Raises:
        ValueError, KeyError, TypeError: the header contradicts itself or the profile.
    """
    layout, total = entries["plan"], entries["run"]["samples"]
    groups = tuple(tuple(group) for group in layout["passes"])
    digests = bytes.fromhex(entries["digests"])
    known = len(digests) // DIGEST_BYTES
    if len(digests) % DIGEST_BYTES or (total is not None and known > total):
        raise ValueError("the number of digests")
    planned = [name for group in groups for name in group]
    others = [name for name in profile.inputs if name not in profile and name in planned]
    if planned != [*profile, *others]:
        raise ValueError("the tensors of passes and profile")
    passes = _integer(entries["passes"], "passes", 0, len(groups) - 1)
    samples = _integer(entries["done"], "done", 0 if passes else known, known)
    data = DataId(profile.data.samples, _hex_sum(digests))
    if data != profile.data:
        raise ValueError("the samples of digests and profile")
    limit = layout["memory_limit"]
    plan = MemoryPlan(
        _integer(layout["threads"], "threads", 1, 1 << 20),
        groups,
        None if limit is None else _integer(limit, "memory_limit", 1, 1 << 60),
        bool(_integer(layout["ahead"], "ahead", 0, 1)),
    )
    profile = replace(profile, non_finite=from_entries(entries["non_finite"]))
    return RunProgress(passes, samples, profile, plan, digests)


def _integer(value: object, name: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is {_short(value)}, not an integer from {low} to {high}")
    return value


def _hex_sum(digests: bytes) -> str:
    """Return the sum of digests, as `DataId` adds them."""
    numbers = (digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
    total = sum(int.from_bytes(number, "big") for number in numbers)
    return f"{total % (1 << 8 * DIGEST_BYTES):0{2 * DIGEST_BYTES}x}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def save_progress(path: Path, run: RunId, progress: RunProgress) -> None:
    """Write the progress of a run atomically.

    Raises:
        ConfigError: the file cannot be written.
    """
    assert progress.profile is not None
    assert progress.plan is not None
    plan = progress.plan
    layout = {
        "memory_limit": plan.memory_limit,
        "threads": plan.threads,
        "ahead": int(plan.ahead),
        "passes": plan.passes,
    }
    head = {
        "run": run.fields(),
        "plan": layout,
        "passes": progress.passes,
        "done": progress.samples,
        "digests": progress.digests.hex(),
        "non_finite": to_entries(progress.profile.non_finite),
    }
    content = json.dumps(head) + "\n" + dumps(progress.profile)
    write_atomically(path, f"{FAMILY}/{VERSION} {_digest(content)}\n{content}")


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

    def planned_before(self, progress: RunProgress) -> MemoryPlan | None:
        """Return the layout of an earlier run, if this one has the same memory limit."""
        plan = progress.plan
        return plan if plan is not None and plan.memory_limit == self._run.memory_limit else None

    def check_passes(self, progress: RunProgress, plan: MemoryPlan) -> None:
        """Raise ProfileError where an earlier run was laid out in other passes."""
        before = progress.plan
        if before is not None and before.passes != plan.passes:
            _check_same_run(
                self._path or Path(), {"passes": list(before.passes)}, {"passes": list(plan.passes)}
            )

    def is_due(self) -> bool:
        """Return whether a checkpoint should be written."""
        return self._path is not None and time.monotonic() - self._last >= self._every

    def save(self, progress: RunProgress) -> None:
        """Write a checkpoint."""
        assert self._path is not None
        save_progress(self._path, self._run, progress)
        self._last = time.monotonic()


class SampleDigests:
    """The digests of the samples of a run, in order: a resumed run and every further pass must see the same.

    Attributes:
        counted: samples whose digests are those of a checkpoint.
    """

    def __init__(self, where: object, before: RunProgress, wanted: bool) -> None:
        """Begin with the digests of a checkpoint.

        Args:
            where: the checkpoint, for messages.
            before: what the checkpoint holds.
            wanted: whether anything will be compared; if not, no digest is kept.
        """
        self._where, self._wanted = where, wanted
        self._digests = bytearray(before.digests)
        self.counted = len(self)

    def __len__(self) -> int:
        return len(self._digests) // DIGEST_BYTES

    def __bytes__(self) -> bytes:
        return bytes(self._digests)

    def note(self, number: int, name: str, data: DataId, first: bool) -> None:
        """Note the digest of a sample; where there is one already, check that it is the same.

        Args:
            number: of the sample in its pass.
            name: of the sample, for messages.
            data: its identity.
            first: whether it is the first pass, in which samples come that were not counted yet.

        Raises:
            ProfileError: it is not that of the checkpoint. DataError: not that of the first pass.
        """
        if not self._wanted:
            return
        digest, start = bytes.fromhex(data.digest), number * DIGEST_BYTES
        if first and number >= len(self):
            self._digests += digest
        elif self._digests[start : start + DIGEST_BYTES] != digest:
            self._refuse(number, f"sample {name}: is not the one that was counted in its place")

    def check_end(self, number: int) -> None:
        """Check that a pass is not shorter than the first; `number` is that of its samples.

        Raises:
            ProfileError: there are fewer than in the checkpoint. DataError: fewer than in the first pass.
        """
        if self._wanted and number < len(self):
            self._refuse(number, f"the samples end after {number}, and {len(self)} were counted")

    def _refuse(self, number: int, problem: str) -> None:
        if number < self.counted:
            raise ProfileError(
                f"{self._where}: {problem} before the run was interrupted; restore the data that the run "
                f"began with, or {_ADVICE}"
            )
        raise DataError(
            f"{problem} in the first pass; with a memory limit the samples may be read several times: "
            "give samples that stay the same, or a higher limit"
        )
